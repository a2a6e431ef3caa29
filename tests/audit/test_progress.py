"""A second audit goes on from the first: no signature twice, no head forgotten, nothing believed that changed."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from enc.audit.audit import Audit
from enc.audit.progress import NAME, load_progress, save_progress
from enc.core.errors import MisuseError
from enc.core.event import erase
from enc.core.hashing import sha256
from tests.core.world import World

from .logs import audit, head, held, root_of, talk, told, write


@pytest.fixture
def world() -> World:
    return talk(20)


def again(folder: Path, *paths: str, world: World, heads: object = ()) -> Audit:
    """An audit that goes on from what is in the folder, and leaves what it found there."""
    before = load_progress(folder)
    given = [*before.heads.get(world.state.enclave, []), *heads]  # type: ignore[misc]
    found = audit(*paths, heads=given, world=world, known=before.known)
    save_progress(folder, found.kept)
    return found


def test_only_what_is_new_is_checked(world: World, tmp_path: Path) -> None:
    path = write(tmp_path / "a.enc", world, sth=head(world, 5))
    first = again(tmp_path, path, world=world)
    assert (first.verdicts[0].checked, first.skipped) == (21, 0)
    for i in range(4):
        world.send("alice", "message", f"new {i}")
    path = write(tmp_path / "a.enc", world, sth=head(world, 6))
    second = again(tmp_path, path, world=world)
    assert (second.verdicts[0].checked, second.skipped, second.verdicts[0].events) == (4, 21, 25)
    assert second.verdicts[0].heads == 2
    assert told(second) == []
    third = again(tmp_path, path, world=world)
    assert (third.verdicts[0].checked, third.skipped) == (0, 25)


def test_a_large_log_too(world: World, tmp_path: Path) -> None:
    path = write(tmp_path / "a.enc", world)
    save_progress(tmp_path, audit(path, world=world, part=5, cores=2).kept)
    for i in range(20):
        world.send("alice", "message", f"new {i}")
    events = list(world.events)
    events[30] = replace(events[30], sig=bytes(64))
    path = write(tmp_path / "a.enc", world, events)
    found = audit(path, world=world, known=load_progress(tmp_path).known, part=5, cores=2)
    assert (found.verdicts[0].checked, found.skipped) == (20, 21)
    assert told(found) == [("invalid_signature", 30)]


def test_what_was_verified_and_has_changed_is_checked_again(world: World, tmp_path: Path) -> None:
    again(tmp_path, write(tmp_path / "a.enc", world), world=world)
    events = list(world.events)
    events[3] = replace(events[3], content="something else", content_hash=sha256(b"something else"))
    found = again(tmp_path, write(tmp_path / "a.enc", world, events), world=world)
    assert found.skipped == 0
    assert told(found) == [("altered_content", 3)]


def test_an_order_or_a_rule_is_asked_for_again_in_what_was_verified(world: World, tmp_path: Path) -> None:
    """A log with the same lines is derived anew: heads that come later are held against all of it."""
    path = write(tmp_path / "a.enc", world)
    again(tmp_path, path, world=world)
    found = again(tmp_path, path, world=world, heads=held(head(world, 2, wrong=sha256(b"x"))))
    assert found.skipped == 21
    assert told(found) == [("head_not_on_log", 7)]


def test_a_head_of_the_first_audit_contradicts_one_of_the_second(world: World, tmp_path: Path) -> None:
    short = write(tmp_path / "a.enc", world, world.events[:5], checkpoint=root_of(talk(4)))
    first = again(tmp_path, short, world=world, heads=held(head(world, 4, wrong=sha256(b"x"))))
    assert told(first) == []
    assert first.verdicts[0].beyond == 1
    found = again(tmp_path, write(tmp_path / "a.enc", world), world=world, heads=held(head(world, 4)))
    assert told(found) == [("equivocation", 15)]


def test_an_enclave_with_a_finding_is_not_kept_as_verified(world: World, tmp_path: Path) -> None:
    events = list(world.events)
    events[3] = erase(events[3])
    path = write(tmp_path / "a.enc", world, events)
    for _ in range(2):
        found = again(tmp_path, path, world=world)
        assert told(found) == [("erasure_without_cause", 3)]
        assert found.skipped == 0


def test_a_file_that_is_none(tmp_path: Path) -> None:
    assert load_progress(tmp_path).known == {}
    for text in ("no json\n", "{}\n", '{"enclave": "ab", "events": 1, "digest": ""}\n'):
        (tmp_path / NAME).write_text(text)
        with pytest.raises(MisuseError, match="not what an audit kept"):
            load_progress(tmp_path)
