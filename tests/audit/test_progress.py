"""A second audit continues the first: no signature twice, no head lost, and nothing trusted that
changed.
"""

from pathlib import Path

import pytest
from msgspec.structs import replace

from enc.audit.audit import Audit, AuditRequest, InProcess, run_audit
from enc.audit.plan import VerifiedPrefix
from enc.audit.progress import NAME, load_progress, save_progress
from enc.core.errors import MisuseError
from enc.core.log.event import erase
from enc.core.primitives.hashing import sha256
from tests.audit.logs import audit, head, held, reported, root_of, talk, write
from tests.core.world import World, person


@pytest.fixture
def world() -> World:
    return talk(20)


def again(folder: Path, *paths: str, world: World, heads: object = ()) -> Audit:
    """Run an audit that continues from the folder, and saves its results there."""
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
    assert reported(second) == []
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
    assert reported(found) == [("invalid_signature", 30)]


def test_what_was_verified_and_has_changed_is_checked_again(world: World, tmp_path: Path) -> None:
    again(tmp_path, write(tmp_path / "a.enc", world), world=world)
    events = list(world.events)
    events[3] = replace(events[3], content="something else", content_hash=sha256(b"something else"))
    found = again(tmp_path, write(tmp_path / "a.enc", world, events), world=world)
    assert found.skipped == 0
    assert reported(found) == [("altered_content", 3)]


def test_an_order_or_a_rule_is_asked_for_again_in_what_was_verified(world: World, tmp_path: Path) -> None:
    """A log with the same lines is replayed again: later heads are compared with all of it."""
    path = write(tmp_path / "a.enc", world)
    again(tmp_path, path, world=world)
    found = again(tmp_path, path, world=world, heads=held(head(world, 2, wrong=sha256(b"x"))))
    assert found.skipped == 21
    assert reported(found) == [("head_not_on_log", 7)]


def test_a_head_of_the_first_audit_contradicts_one_of_the_second(world: World, tmp_path: Path) -> None:
    short = write(tmp_path / "a.enc", world, world.events[:5], checkpoint=root_of(talk(4)))
    first = again(tmp_path, short, world=world, heads=held(head(world, 4, wrong=sha256(b"x"))))
    assert reported(first) == []
    assert first.verdicts[0].beyond == 1
    found = again(tmp_path, write(tmp_path / "a.enc", world), world=world, heads=held(head(world, 4)))
    assert reported(found) == [("equivocation", 15)]


def test_an_audit_of_another_enclave_forgets_nothing(world: World, tmp_path: Path) -> None:
    path, pair = write(tmp_path / "a.enc", world), [head(world, 9, wrong=sha256(text)) for text in (b"one", b"other")]
    again(tmp_path, path, world=world, heads=held(pair[0]))
    other = talk(3, by="bob")
    found = run_audit(request(tmp_path, write(tmp_path / "b.enc", other)), InProcess())
    assert [(each.enclave, each.unsigned) for each in found.verdicts if each.heads] == [(world.state.enclave, 0)]
    save_progress(tmp_path, found.kept)
    assert again(tmp_path, path, world=world).skipped == 21
    named = [replace(each, sequencer=person("node").public) for each in held(pair[1])]
    assert reported(again(tmp_path, world=world, heads=named)) == [("equivocation", -1)]


def request(folder: Path, *paths: str) -> AuditRequest:
    before = load_progress(folder)
    return AuditRequest(paths=list(paths), heads=before.heads, known=before.known)


def test_an_enclave_with_a_finding_is_not_kept_as_verified(world: World, tmp_path: Path) -> None:
    events = list(world.events)
    events[3] = erase(events[3])
    path = write(tmp_path / "a.enc", world, events)
    for _ in range(2):
        found = again(tmp_path, path, world=world)
        assert reported(found) == [("erasure_without_cause", 3)]
        assert found.skipped == 0


def test_a_log_that_shows_nothing_makes_no_head_forgotten(world: World, tmp_path: Path) -> None:
    """A node that shows garbage once cannot show another log the next time."""
    again(tmp_path, write(tmp_path / "a.enc", world, sth=head(world, 5)), world=world)
    broken = again(tmp_path, write(tmp_path / "a.enc", world, world.events[1:]), world=world)
    assert reported(broken) == [("gap", 0)]
    rewritten = talk(11)
    for i in range(9):
        rewritten.send("alice", "message", f"rewritten {i}")
    found = again(tmp_path, write(tmp_path / "a.enc", rewritten, sth=head(rewritten, 5)), world=world)
    assert reported(found) == [("equivocation", 19)]


def test_heads_of_nobody_are_kept_in_bounds(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enc.audit.audit.MAX_UNSIGNED", 3)
    strange = held(*(head(world, size, by="node2") for size in range(1, 6)))
    found = audit(write(tmp_path / "a.enc", world, sth=head(world, 5)), heads=strange, world=world)
    assert [each.head.ts for each in found.kept[0][2]] == [3, 4, 5, 5]


def test_very_many_heads_are_kept_and_read_again(world: World, tmp_path: Path) -> None:
    heads = [replace(each, source="x" * 10_000) for each in held(*(head(world, 3) for _ in range(2000)))]
    save_progress(tmp_path, [(world.state.enclave, VerifiedPrefix(0, ""), heads)])
    assert (tmp_path / NAME).stat().st_size > 16 << 20
    assert len(load_progress(tmp_path).heads[world.state.enclave]) == 2000


def test_a_line_has_a_bound_that_every_head_fits_in(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For any number of heads of an enclave."""
    heads = held(*(head(world, size) for size in range(1, 5)), source="x" * 200)
    save_progress(tmp_path, [(world.state.enclave, VerifiedPrefix(7, "ab"), heads)])
    longest = max(map(len, (tmp_path / NAME).read_bytes().splitlines(keepends=True)))
    monkeypatch.setattr("enc.audit.progress.MAX_LINE", longest + 1)
    found = load_progress(tmp_path)
    assert found.known == {world.state.enclave: VerifiedPrefix(7, "ab")}
    assert found.heads == {world.state.enclave: heads}
    monkeypatch.setattr("enc.audit.progress.MAX_LINE", longest - 1)
    with pytest.raises(MisuseError, match="not an audit's progress file"):
        load_progress(tmp_path)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    assert load_progress(tmp_path).known == {}
    for text in ("no json\n", "{}\n", '{"enclave": "ab", "events": 1, "digest": ""}\n'):
        (tmp_path / NAME).write_text(text)
        with pytest.raises(MisuseError, match="not an audit's progress file"):
            load_progress(tmp_path)
