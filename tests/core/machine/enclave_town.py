"""A town that alice owns, with ways to replay and forge its log."""

import re
from collections.abc import Iterable
from typing import Any

import pytest

from enc.core.errors import (
    ReplayFailed,
)
from enc.core.log.commit import build_commit
from enc.core.log.event import finalize
from enc.core.machine.replay import Replay
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.hashing import sha256
from enc.core.primitives.types import Event, Tags
from enc.core.trees.bundle import OpenBundle
from tests.core.stored import memory_of
from tests.core.world import (
    LIFETIME,
    START,
    Json,
    World,
    about,
    gated,
    give,
    grant,
    init,
    move,
    path,
    person,
    rule,
)

PAUSED, TERMINATED, MIGRATED = (sha256(word) for word in (b"paused", b"terminated", b"migrated"))


GONE = {"reason": "author"}


def town(size: int = 256, timeout: int = 5000, **sections: Any) -> World:
    """Return an enclave that alice owns, in which she may do everything; bob and carol are members."""
    manifest: Json = {
        "enc_v": 2,
        "states": ["MEMBER", "GUEST"],
        "traits": ["owner(0)", "admin(1)"],
        "readers": [{"type": "MEMBER", "reads": "*"}],
        "moves": [path("OUTSIDER", "GUEST", "owner", **gated("door", "owner")), path("GUEST", "MEMBER", "owner")],
        "grants": [grant(type_, "owner", "admin") for type_ in ("Grant", "Revoke")],
        "transfers": [{"trait": "owner", "scope": "MEMBER"}],
        "slots": [rule(type_, "MEMBER", "C U D", key="k") for type_ in ("Shared", "Own")],
        "lifecycle": [rule(type_, "owner", "C") for type_ in ("Pause", "Resume", "Terminate", "Migrate")],
        "customs": [rule("note", "MEMBER", "C"), rule("note", "Sender", "U D")],
        "init": init(alice="MEMBER owner", bob="MEMBER", carol="MEMBER"),
        "bundle": {"size": size, "timeout": timeout},
        **sections,
    }
    return World(manifest)


def everything(world: World, note: Event) -> dict[str, tuple[Any, Tags]]:
    """Return a content and tags for every type with which alice would succeed in an active enclave."""
    return {
        "Move": (move("otto", "OUTSIDER", "GUEST"), ()),
        "Grant": (give("bob", "admin"), ()),
        "Revoke": (give("bob", "admin"), ()),
        "Transfer": (give("bob", "owner"), ()),
        "Gate": ({"alias": "door", "state": "closed"}, ()),
        "AC_Bundle": ({"operations": [{"type": "Grant", **give("bob", "admin")}]}, ()),
        "Shared": ({"key": "k", "value": 1}, ()),
        "Own": ({"key": "k", "value": 1}, ()),
        "Update": ("new", about(note)),
        "Delete": (GONE, about(note)),
        "Pause": ("", ()),
        "Resume": ("", ()),
        "Terminate": ("", ()),
        "Migrate": (world.migrate("node3"), ()),
        "note": ("text", ()),
        "Manifest": (world.events[0].content, ()),
    }


def replay(events: Iterable[Event], **options: Any) -> Replay:
    """Replay the events one by one, and check that a replay by runs gives the same result."""
    events, found = list(events), Replay(**options)
    try:
        for event in events:
            found.add(event)
        found.finish()
    except ReplayFailed as e:
        with pytest.raises(ReplayFailed, match=f"^{re.escape(e.message)}$"):
            by_runs(events, **options)
        raise
    same, _ = by_runs(events, **options)
    assert (same.state, same.sequencers) == (found.state, found.sequencers)
    assert memory_of(same).targets == memory_of(found).targets
    return found


def by_runs(events: list[Event], **options: Any) -> tuple[Replay, list[int]]:
    """Replay the events in runs, as an import does; return the replay and the number of events in each run."""
    found, at, runs = Replay(**options), 0, list[int]()
    while at < len(events):
        end = found.add_run(events, at)
        if end == at:
            found.add(events[at])
        runs.append(end - at)
        at = max(end, at + 1)
    found.finish()
    return found, runs


def failure(events: Iterable[Event], **options: Any) -> ReplayFailed:
    with pytest.raises(ReplayFailed) as caught:
        replay(events, **options)
    return caught.value


def broken(events: Iterable[Event], **options: Any) -> tuple[str, int]:
    """Return the code and the seq of the first fault in a log."""
    error = failure(events, **options)
    assert error.context["seq"] == error.seq
    assert error.message.startswith(f"seq {error.seq}: ")
    return error.code, error.seq


def forge(
    world: World, name: str = "bob", type_: str = "note", content: Any = "forged", *,
    tags: Tags = (), at: int | None = None, exp: int | None = None, node: str = "node", seq: int | None = None,
) -> Event:  # fmt: skip
    """Return the next event as a node would finalise it that ignores all rules."""
    at = world.next if at is None else at
    text = content if isinstance(content, str) else compact_json(content)
    exp = START + at + LIFETIME if exp is None else exp
    commit = build_commit(person(name), world.state.enclave, type_, text, exp, tags)
    return finalize(commit, person(node), START + at, world.state.seq + 1 if seq is None else seq)


def opened(world: World) -> OpenBundle:
    """Return the open bundle, which must exist."""
    assert world.state.bundle is not None
    return world.state.bundle
