"""Events and items: the same names on both, and a `repr` on one line."""

import msgspec
import pytest

from enc.client import Item
from enc.core.log.commit import build_commit
from enc.core.log.event import erase, finalize
from enc.core.primitives.hashing import sha256
from enc.core.primitives.types import Event, Tags
from tests.core.world import START, person, pub
from tests.node.served import NODE

ENCLAVE, NAMED = sha256(b"enclave"), sha256(b"target")


def made(content: str = "hello", type_: str = "message", tags: Tags = ()) -> Event:
    return finalize(build_commit(person("bob"), ENCLAVE, type_, content, START + 60_000, tags), NODE, START, 7)


def test_an_item_has_the_names_of_its_event() -> None:
    event = made('{"n":1}', "Update", (("r", NAMED.hex()),))
    item = Item(event, "active")
    for name in ("id", "seq", "type", "author", "timestamp", "enclave", "tags", "content", "json", "target"):
        assert getattr(item, name) == getattr(event, name), name
    assert (event.author.hex(), event.timestamp, event.json, event.target) == (pub("bob"), START, {"n": 1}, NAMED)


@pytest.mark.parametrize(
    ("content", "parsed"), [('"x"', "x"), ("null", None), ("hello", None), ('{"a":1,"a":2}', None), ("[" * 9999, None)]
)
def test_a_content_that_is_not_json_is_none(content: str, parsed: object) -> None:
    assert made(content).json == parsed
    assert erase(made(content)).json is None


@pytest.mark.parametrize(
    ("type_", "tags", "target"),
    [
        ("Update", (("r", NAMED.hex()),), NAMED),
        ("Delete", (("k", "v"), ("r", NAMED.hex(), "target")), NAMED),
        ("message", (("r", NAMED.hex()),), None),
        ("Update", (), None),
        ("Update", (("r",),), None),
        ("Update", (("r", "zz"),), None),
        ("Update", (("r", NAMED.hex()), ("r", NAMED.hex())), None),
    ],
)
def test_the_target_of_an_update_or_delete(type_: str, tags: Tags, target: bytes | None) -> None:
    assert made(type_=type_, tags=tags).target == target


def test_a_repr_is_short() -> None:
    event, who, shown = made(), pub("bob")[:8], "line\n" * 8 + "…"
    assert repr(event) == f"Event(7 message by {who}: 'hello')"
    assert repr(erase(event)) == f"Event(7 message by {who}: erased)"
    assert repr(Item(event, "active")) == f"Item(7 message by {who}: 'hello', active)"
    assert repr(made("line\n" * 1000)) == f"Event(7 message by {who}: {shown!r})"
    assert msgspec.structs.asdict(event)["content"] == "hello"
