"""What the attackers of `bench_hostile` send: everything is built and signed before the clock starts."""

import json
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

from coincurve import PublicKey
from hostile_load import Call
from node_commits import LIFE_MS, now_ms, wire

from enc.core.log.commit import build_commit, build_manifest, wire_commit
from enc.core.log.event import finalize, wire_event
from enc.core.machine.archive import write_archive
from enc.core.machine.archive_check import header_of
from enc.core.machine.replay import Replay
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.signing import PrivateKey
from enc.core.primitives.types import Commit
from enc.core.session.envelope import seal_request
from enc.core.session.session import open_session

Json = dict[str, Any]
MAX_MANIFEST = 256 * 1024
IMPORT = "application/x-enc-import"


def new_key() -> PrivateKey:
    return PrivateKey(os.urandom(32))


def public_keys(count: int) -> list[str]:
    """Return keys that nobody holds."""
    one, at = PublicKey.from_secret((1).to_bytes(32, "big")), PublicKey.from_secret(os.urandom(32))
    found = list[str]()
    for _ in range(count):
        at = PublicKey.combine_keys([at, one])
        found.append(at.format()[1:].hex())
    return found


def open_manifest(owner: PrivateKey, **more: Any) -> Json:
    """Return a Manifest of an enclave in which anyone may write a `note` and read everything."""
    return {
        "enc_v": 2,
        "states": ["M"],
        "traits": ["owner(0)", "t(1)"],
        "init": [{"identity": owner.public.hex(), "state": "M", "traits": ["owner"]}],
        "readers": [{"type": "Public", "reads": "*"}],
        "moves": [{"event": "Move", "from": "OUTSIDER", "to": "M", "operator": "owner", "ops": ["C"]}],
        "customs": [{"event": "note", "operator": "Public", "ops": ["C"]}],
        **more,
    }


def manifest_commit(owner: PrivateKey, manifest: Json) -> Commit:
    return build_manifest(owner, compact_json(manifest), now_ms() + LIFE_MS)


def write(author: PrivateKey, enclave: bytes, type_: str, content: Any, n: int = 0) -> Commit:
    text = content if isinstance(content, str) else compact_json(content)
    return build_commit(author, enclave, type_, text, now_ms() + LIFE_MS + n)


def query(key: PrivateKey, seq_pub: bytes, enclave: bytes, body: Json, **more: Any) -> bytes:
    session = open_session(key, int(time.time()) + 3600)
    return json.dumps({**seal_request(session, seq_pub, enclave, "Query", body, os.urandom(24)), **more}).encode()


def largest(manifest: Callable[[int], Json], count: int) -> Json:
    """Return the manifest with as many entries as a node accepts, `count` at most."""
    while len(compact_json(manifest(count))) > MAX_MANIFEST:
        count = int(count * 0.98)
    return manifest(count)


def gated(owner: PrivateKey, entry: Json, section: str, count: int, **more: Any) -> Json:
    """Return a Manifest with this entry behind as many gates as fit."""
    plain = open_manifest(owner, **more)

    def manifest(n: int) -> Json:
        entries = [{**entry, "alias": f"g{i}", "gate": {"operator": "owner"}} for i in range(n)]
        return {**plain, section: [*plain.get(section, []), *entries]}

    return largest(manifest, count)


def grants_manifest(owner: PrivateKey) -> Json:
    entry = {"event": "Grant", "operator": "owner", "trait": "t", "scope": "OUTSIDER"}
    return gated(owner, entry, "grants", 2_300)


def readers_manifest(owner: PrivateKey) -> Json:
    slots = [{"event": "Shared", "key": "k", "operator": "owner", "ops": ["C", "U"]}]
    return gated(owner, {"type": "Public", "reads": "n"}, "readers", 3_550, slots=slots, bundle={"size": 1})


def grants(owner: PrivateKey, enclave: bytes, count: int) -> Iterator[Call]:
    """Yield AC_Bundles of 1,000 Grants each."""
    for _ in range(count):
        operations = [{"type": "Grant", "target": target, "trait": "t"} for target in public_keys(1000)]
        yield Call(wire(write(owner, enclave, "AC_Bundle", {"operations": operations})))


def turns(owner: PrivateKey, enclave: bytes, count: int) -> Iterator[Call]:
    """Yield commits that may change what subscribers read: slots and gates in turn."""
    for i in range(count):
        gate = {"alias": f"g{i // 4}", "state": "open" if i % 4 == 3 else "closed"}
        what = ("Gate", gate) if i & 1 else ("Shared", {"key": "k", "value": i})
        yield Call(wire(write(owner, enclave, *what, n=i)))


def manifests(count: int) -> Iterator[Call]:
    """Yield Manifests of the largest size, of one identity."""
    owner = new_key()
    event = {"operator": ["owner", "M", "Public"], "ops": ["C", "R"]}
    for i in range(count):
        plain = open_manifest(owner, meta={"i": i})
        customs = [{"event": f"e{j}", **event} for j in range(4_000)]
        if not i:
            fits = len(largest(lambda n: {**plain, "customs": customs[:n]}, 4_000)["customs"]) - 1  # noqa: B023
        yield Call(wire(manifest_commit(owner, {**plain, "customs": customs[:fits]})))


def orders(seq_pub: bytes, sources: list[str]) -> Iterator[Call]:
    """Yield orders to import enclaves that do not exist, each by another identity."""
    for source in sources:
        content = {"new_sequencer": seq_pub.hex(), "prev_seq": 10**6, "ct_root": "00" * 32}
        migrate = finalize(write(new_key(), os.urandom(32), "Migrate", content), new_key(), now_ms(), 10**6 + 1)
        yield Call(json.dumps({"migrate": wire_event(migrate), "source": source}).encode(), "/import")


def archive(seq_pub: bytes, contents: list[str]) -> tuple[Call, str]:
    """Return an upload of an enclave's log with these contents, and the import's name."""
    owner, old, now = new_key(), new_key(), now_ms()
    manifest = manifest_commit(owner, open_manifest(owner))
    events = [finalize(manifest, old, now, 0)]
    for i, content in enumerate(contents, 1):
        events.append(finalize(write(owner, manifest.enclave, "note", content, i), old, now + i, i))
    replay = Replay(manifest.enclave)
    for event in events:
        replay.add(event)
    root = replay.checkpoint_root().hex()
    migrate = write(
        owner,
        manifest.enclave,
        "Migrate",
        {"new_sequencer": seq_pub.hex(), "prev_seq": len(contents), "ct_root": root},
    )
    data = b"".join(write_archive(header_of(replay, None), events, level=19))
    order = json.dumps({"migrate": wire_commit(migrate)}).encode()
    return Call(order + b"\n" + data, "/import", IMPORT), migrate.hash.hex()
