"""Small logs as archives, with heads of any of their sizes."""

from collections.abc import Sequence
from pathlib import Path

from enc.audit.audit import Audit, AuditRequest, InProcess, run_audit
from enc.audit.collected_heads import CollectedHead
from enc.core.machine.archive import Header, write_archive
from enc.core.primitives.hashing import log_leaf
from enc.core.primitives.types import Event, TreeHead
from enc.core.trees.merkle_log import Edge
from enc.core.trees.tree_head import sign_head
from tests.core.world import START, World, person, pub

MANIFEST = {
    "enc_v": 2,
    "states": ["MEMBER"],
    "traits": ["owner(0)"],
    "readers": [{"type": "MEMBER", "reads": "*"}],
    "moves": [
        {"event": "Move", "from": "OUTSIDER", "to": "MEMBER", "operator": "owner", "ops": ["C"]},
        {"event": "Move", "from": "MEMBER", "to": "OUTSIDER", "operator": "owner", "ops": ["C"]},
    ],
    "lifecycle": [{"event": name, "operator": "owner", "ops": ["C"]} for name in ("Pause", "Resume", "Migrate")],
    "customs": [
        {"event": "message", "operator": "MEMBER", "ops": ["C"]},
        {"event": "message", "operator": "Sender", "ops": ["U", "D"]},
    ],
    "slots": [{"event": "Own", "operator": "MEMBER", "ops": ["C", "U", "D"], "key": "profile"}],
    "init": [{"identity": pub("alice"), "state": "MEMBER", "traits": ["owner"]}],
    "bundle": {"size": 4, "timeout": 1000},
}


def talk(messages: int = 20, by: str = "alice") -> World:
    """Return a log of messages, in bundles of four events."""
    world = World(MANIFEST, by)
    for i in range(messages):
        world.send("alice", "message", f"number {i}")
    return world


def root(world: World, size: int) -> bytes:
    edge = Edge()
    for bundle in world.memory.bundles[:size]:
        edge = edge.with_leaf(log_leaf(bundle.events_root, bundle.state_hash))
    return edge.root()


def head(world: World, size: int, *, by: str = "node", wrong: bytes = b"", t: int = 0) -> TreeHead:
    """Return the head of a log at one size, or one with a wrong root."""
    return sign_head(person(by), world.state.enclave, START + t, size, wrong or root(world, size))


def held(*heads: TreeHead, source: str = "bob") -> list[CollectedHead]:
    return [CollectedHead(head=each, source=source) for each in heads]


def write(
    path: Path,
    world: World,
    events: Sequence[Event] | None = None,
    *,
    sth: TreeHead | None = None,
    says: int | None = None,
    checkpoint: bytes | None = None,
) -> str:
    """Write an archive of a world's log, or of another log under its name."""
    events = world.events if events is None else events
    own = root_of(world)
    header = Header(
        enclave=world.state.enclave,
        enc_v=2,
        sequencers=((events[0].sequencer, 0),),
        events=len(events) if says is None else says,
        sth=sth,
        checkpoint_seq=events[-1].seq,
        checkpoint_root=own if checkpoint is None else checkpoint,
    )
    path.write_bytes(b"".join(write_archive(header, events)))
    return str(path)


def root_of(world: World) -> bytes:
    from enc.core.machine.enclave import checkpoint_root

    return checkpoint_root(world.state, world.memory)


def audit(
    *paths: str, heads: Sequence[CollectedHead] = (), world: World | None = None, cores: int = 1, **more: object
) -> Audit:
    """Audit the archives; with more than one core, a runner with as many splits large archives."""
    known = {world.state.enclave: list(heads)} if world is not None else {}
    runner = InProcess()
    runner.cores = cores
    return run_audit(AuditRequest(paths=list(paths), heads=known, **more), runner)  # type: ignore[arg-type]


def reported(found: Audit) -> list[tuple[str, int]]:
    return [(finding.kind, finding.seq) for finding in found.findings]
