"""`enc archive`: pull a whole enclave with the installed command, and report of any file whether it is valid."""

from pathlib import Path

from msgspec.structs import replace

from enc.cli.common.output import format_time
from enc.core.log.withheld import wire_withheld
from enc.core.machine.archive import read_archive, write_archive
from enc.core.primitives.types import Event
from tests.audit.logs import talk, write
from tests.cli.people import Person
from tests.core.world import withheld

FIELDS = ["ok", "events", "bundles", "state_hash", "ct_root", "checkpoint_root", "enclave", "sequencer", "withheld"]


def test_pull_and_verify(alice: Person) -> None:
    for text in ("one", "two"):
        alice.ask("commit", "message", text)
    pulled = alice.json("archive", "pull", "a.enc")
    assert (pulled["file"], pulled["events"], pulled["head"]) == ("a.enc", 3, 3)
    found = alice.json("archive", "verify", "a.enc")
    assert list(found) == FIELDS
    assert (found["ok"], found["events"], found["bundles"]) == (True, 3, 3)
    assert found["enclave"] == pulled["enclave"]
    assert found["ct_root"] == found["checkpoint_root"] == alice.json("head")["r"]
    assert "events           3" in alice.run("archive", "verify", "a.enc")


def test_a_file_that_does_not_hold(alice: Person) -> None:
    alice.ask("archive", "pull", "a.enc")
    whole = (alice.home / "a.enc").read_bytes()
    for name, data in (("cut.enc", whole[:-9]), ("empty.enc", b""), ("more.enc", whole + b"x"), ("text.enc", b"hello")):
        (alice.home / name).write_bytes(data)
        found = alice.json("archive", "verify", name, code=1)
        assert list(found) == ["ok", "code", "seq", "message"]
        assert (found["ok"], found["code"], found["seq"]) == (False, "INVALID_ARCHIVE", None)


def test_an_event_that_breaks_a_rule_is_named_by_its_seq(alice: Person) -> None:
    alice.ask("commit", "message", "one")
    alice.ask("archive", "pull", "a.enc")
    header, events = read_archive([(alice.home / "a.enc").read_bytes()])
    forged: list[Event] = [replace(event, seq_sig=bytes(64)) if event.seq == 1 else event for event in events]
    (alice.home / "b.enc").write_bytes(b"".join(write_archive(header, forged)))
    (found,) = alice.ask_json("archive", "verify", "b.enc", code=1)
    assert (found["ok"], found["code"], found["seq"]) == (False, "INVALID_SIGNATURE", 1)


def test_a_withheld_content_is_listed_and_the_archive_is_valid(tmp_path: Path) -> None:
    world, person = talk(), Person(tmp_path / "reader")
    events = [withheld(event) if event.seq == 5 else event for event in world.events]
    (person.home / "a.enc").write_bytes(Path(write(tmp_path / "a.enc", world, events)).read_bytes())
    found = person.json("archive", "verify", "a.enc")
    assert events[5].withheld is not None
    assert (found["ok"], found["withheld"]) == (True, [{"seq": 5, **wire_withheld(events[5].withheld)}])
    shown = person.run("archive", "verify", "a.enc")
    when = format_time(events[5].withheld.ts)
    assert "withheld         1\n" in shown
    assert f"event 5: withheld by the node since {when}: court_order" in shown


def test_wrong_uses(alice: Person, tmp_path: Path) -> None:
    assert alice.refused("archive", "verify", "nothing.enc", code=2)["code"] == "MISUSE"
    (alice.home / "a.enc").write_bytes(b"")
    assert "already exists" in alice.refused("archive", "pull", "a.enc", code=2)["message"]
    assert alice.refused("archive", "pull", "no/a.enc", code=2)["code"] == "MISUSE"


def test_somebody_else_may_not_pull(alice: Person, tmp_path: Path) -> None:
    stranger = Person(tmp_path / "stranger")
    stranger.ask("key", "new")
    for name in ("node", "enclave"):
        (shown,) = alice.ask_json("config", "show")
        stranger.ask("config", "set", name, str(shown[name]["value"]))
    assert stranger.refused("archive", "pull", "a.enc", code=1)["code"] == "UNAUTHORIZED"
