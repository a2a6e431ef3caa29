"""A small enclave in one process: create it, write, get rejected, prove, and detect three forgeries.

Run it with `make demo`. `submit` plays the sequencer: it takes the steps by which any commit becomes an event.
"""

import json
from collections.abc import Callable

from msgspec.structs import replace

from enc.core.errors import EncError
from enc.core.log.commit import Commit, build_commit, build_manifest, check_commit
from enc.core.log.event import Event, erase, finalize
from enc.core.machine.archive import read_archive, write_archive
from enc.core.machine.archive_check import header_of, verify_archive
from enc.core.machine.enclave import apply, apply_manifest, judge, judge_manifest, next_timestamp
from enc.core.machine.memory import EnclaveMemory
from enc.core.machine.replay import Replay
from enc.core.machine.state import EnclaveState
from enc.core.primitives.hashing import content_hash
from enc.core.primitives.signing import PrivateKey
from enc.core.trees.bundle import prove_membership
from enc.core.trees.merkle_log import prove_inclusion
from enc.core.trees.proof import LogLeaf, check_event_proof, check_state_proof
from enc.core.trees.sparse_merkle import prove
from enc.core.trees.state_key import identity_key
from enc.core.trees.tree_head import check_bound_head, sign_head

alice, bob, eve, node = (PrivateKey(name.ljust(32, b"-")) for name in (b"alice", b"bob", b"eve", b"node"))
CLOCK = 1_790_000_000_000
store, log = EnclaveMemory(), list[Event]()
state: EnclaveState | None = None


def submit(commit: Commit) -> Event:
    """Process a commit as a sequencer does: check, judge, order, sign, apply."""
    global state
    check_commit(commit, enc_v=2)
    timestamp = next_timestamp(state, commit, CLOCK + 10 * len(log))
    if state is None:
        policy, effects = judge_manifest(commit)
        event = finalize(commit, node, timestamp, seq=0)
        step = apply_manifest(event, policy, effects)
    else:
        effects = judge(state, commit, store, sequencer=node.public)
        event = finalize(commit, node, timestamp, seq=state.seq + 1)
        step = apply(state, event, effects, store)
    store.put(event, step)
    log.append(event)
    log[:] = [erase(old) if old.id in effects.erases else old for old in log]
    state = step.state
    return event


def write(who: PrivateKey, type_: str, content: object, *tags: tuple[str, ...]) -> Event:
    text = content if isinstance(content, str) else json.dumps(content)
    return submit(build_commit(who, manifest.enclave, type_, text, CLOCK + 60_000 + len(log), tags))


def refused(what: str, attempt: Callable[[], object]) -> None:
    """Print why the attempt fails; end the program if it does not."""
    try:
        attempt()
    except EncError as error:
        print(f"  {what}: {error.code}: {error.message}")
    else:
        raise SystemExit(f"{what} was not detected")


rules = {
    "enc_v": 2,
    "states": ["MEMBER"],
    "traits": ["owner(0)"],
    "readers": [{"type": "MEMBER", "reads": "*"}],
    "moves": [{"event": "Move", "from": "OUTSIDER", "to": "MEMBER", "operator": "owner", "ops": ["C"]}],
    "customs": [
        {"event": "message", "operator": "MEMBER", "ops": ["C"]},
        {"event": "message", "operator": "Sender", "ops": ["U", "D"]},
    ],
    "init": [{"identity": alice.public.hex(), "state": "MEMBER", "traits": ["owner"]}],
    "bundle": {"size": 4, "timeout": 1000},
}
manifest = build_manifest(alice, json.dumps(rules), CLOCK + 60_000)
submit(manifest)
print(f"Alice creates the enclave {manifest.enclave.hex()[:16]}…")

write(alice, "Move", {"target": bob.public.hex(), "from": "OUTSIDER", "to": "MEMBER"})
first = write(bob, "message", "hello")
write(bob, "Update", "hello, world", ("r", first.id.hex()))
assert log[2].content is None
print("Bob joins, writes and edits his message; the node keeps only the hash of its first version")

print("Eve tries:")
refused("to write", lambda: write(eve, "message", "let me in"))
refused("to delete Bob's message", lambda: write(eve, "Delete", {"reason": "author"}, ("r", first.id.hex())))

assert state is not None
head = sign_head(node, manifest.enclave, CLOCK + 5_000, state.log.size, state.log.root())
check_bound_head(head, node.public, manifest.enclave)
bundle = store.bundles[0]
leaf, inclusion = LogLeaf(bundle.events_root, bundle.state_hash), prove_inclusion(store, 0, head.ts)
membership = prove_membership([event.id for event in log[:4]], 2)
check_event_proof(first.id, membership, leaf, inclusion, head)
member = prove(store, bundle.state_hash, identity_key(bob.public))
check_state_proof(identity_key(bob.public), member, leaf, inclusion, head)
assert member.v is not None
assert int.from_bytes(member.v, "big") == 1  # the first declared State
print("Proved under the node's signed head: Bob's message is in the log, and Bob is a MEMBER")

replay = Replay(manifest.enclave)
for event in log:
    replay.add(event)
data = b"".join(write_archive(header_of(replay, head), log))
verify_archive(*read_archive([data]))
print(f"The whole log, {len(log)} events in {len(data)} bytes, replays to the same roots")

print("A node that lies:")
refused("another value for Bob", lambda: check_state_proof(member.k, replace(member, v=None), leaf, inclusion, head))
refused("an event left out", lambda: verify_archive(header_of(replay, head), [*log[:2], log[3]]))
altered = replace(log[3], content="goodbye", content_hash=content_hash("goodbye"))
refused("words put into Bob's mouth", lambda: verify_archive(header_of(replay, head), [*log[:3], altered]))
