"""Orders, moved enclaves and sources for tests of imports."""

from typing import Any

from msgspec.json import encode

from enc.core.errors import EnclaveNotFound
from enc.core.log.commit import build_commit
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.types import Commit, Event
from tests.core.world import GROUP, LIFETIME, START, World, move, person
from tests.node.moving import WITH_ARCHIVE
from tests.node.served import Served, bad

OLD, NEW = person("node2"), person("node")


def world(**changes: Any) -> World:
    """Return a log of node2: bob writes, updates and deletes."""
    made = World({**GROUP, "bundle": {"size": 3, "timeout": 5000}, **changes}, node="node2")
    made.send("alice", "Move", move("bob", "OUTSIDER", "MEMBER"))
    first = made.send("bob", "message", "one")
    made.send("bob", "Update", "two", tags=(("r", first.id.hex()),))
    second = made.send("bob", "message", "three")
    made.send("bob", "Delete", {"reason": "author"}, tags=(("r", second.id.hex()),))
    made.send("bob", "message", "four")
    made.send("bob", "message", "five", tags=(("auto-delete", str(START + 90_000_000)),))
    return made


def moved(made: World | None = None, **wrong: Any) -> World:
    """Return the same log with a peaceful Migrate to this node."""
    made = made or world()
    made.send("alice", "Migrate", made.migrate("node", **wrong))
    return made


def forced(made: World, by: str = "alice", **wrong: Any) -> Commit:
    """Return a Migrate that no node has finalised."""
    return made.commit(by, "Migrate", made.migrate("node", **wrong), at=LIFETIME // 2)


def nothing_is_kept(node: Served, made: World) -> None:
    enclave = made.state.enclave
    assert node.store.load(enclave) is None
    assert node.store.events(enclave, 0, 100) == []
    assert node.store.count() == 0
    node.settle()
    assert isinstance(bad(node.get(f"/{enclave.hex()}/sth")), EnclaveNotFound)
    assert node.store.usage(person("alice").public).events == 0


def refused(node: Served, wire: Any, source: str | None = "http://127.0.0.1:1", archive: bytes | None = None) -> Any:
    if archive is not None:
        return bad(node.post(encode({"migrate": wire}) + b"\n" + archive, "/import", headers=WITH_ARCHIVE))
    return bad(node.post({"migrate": wire, **({} if source is None else {"source": source})}, "/import"))


def commit(made: World, name: str, type_: str, content: Any, at: int, tags: Any = (), **more: Any) -> Commit:
    text = content if isinstance(content, str) else compact_json(content)
    exp = more.get("exp", START + at + LIFETIME)
    return build_commit(person(name), made.state.enclave, type_, text, exp, tags)


def commit_of(event: Event) -> Commit:
    """Return the commit that became an event, as anyone who reads it can send it again."""
    return Commit(**{name: getattr(event, name) for name in Commit.__struct_fields__})
