"""What the node signs for an owner and remembers of it."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.json import decode, encode
from msgspec.structs import replace

from enc.client.enclave.templates import template
from enc.core.errors import InvalidQuery, MisuseError, Unavailable
from enc.core.log.commit import UNLIMITED, check_commit, parse_commit
from enc.core.primitives.types import Commit
from enc.core.registry.evacuation import Evacuation
from enc.core.sealed_forms.personal import open_notice
from enc.node.control.operations import Operations
from enc.node.evacuation.notice_log import NoticeLog, NoticeOutcome
from enc.node.evacuation.owner_notices import LIFETIME_MS, OwnerNotices
from enc.runtime.keys.socket_signer import SocketSigner
from enc.runtime.unix_sockets.frame_server import Peer
from tests.core.world import person, pub
from tests.node.evacuation.leaving import NEW, OLD, group, perform
from tests.node.served import DEV, Served
from tests.signer_process import RunningSigner

URL = "https://new.example"
TO = Evacuation(node=OLD.public, to=URL, to_key=NEW.public, since=1000)
ALICE, STORE = pub("alice"), "cd" * 32


@pytest.fixture
def old(tmp_path: Path) -> Any:
    with Served(replace(DEV, data=str(tmp_path)), key=OLD) as node:
        yield node


def start(node: Served, **params: Any) -> None:
    perform(node, "evacuate", to=URL, to_key=NEW.public.hex(), source="https://old.example", **params)


def asked(node: Served, about: bytes, **params: Any) -> Commit:
    given = {"owner": ALICE, "recipient": ALICE, "store": STORE, "enclave": about.hex(), "count": 1, **params}
    return parse_commit(encode(perform(node, "evacuation-notice", **given)), UNLIMITED)


def outcome(owner: str = ALICE, result: Any = "notified", **more: Any) -> NoticeOutcome:
    return NoticeOutcome(owner, result, 5, **more)


def test_the_node_seals_and_signs_it_for_the_owner_s_store(old: Served) -> None:
    enclave = group(old, 1).id
    start(old, deadline=old.clock.now + 1000)
    made = asked(old, enclave)
    check_commit(made, 2)
    assert (made.from_, made.enclave.hex(), made.type) == (OLD.public, STORE, "notice")
    assert made.exp == old.clock.now + LIFETIME_MS
    notice = open_notice(person("alice"), (OLD.public,), made.content or "")
    assert (notice.kind, notice.inviter, notice.enclave_id) == ("x-evacuation", OLD.public.hex(), enclave.hex())
    assert str(notice.greeting).endswith(f": enc migrate --all --to {URL}")


def test_a_notice_whose_receipt_was_lost_is_the_same_the_next_time(old: Served) -> None:
    enclave = group(old, 1).id
    start(old)
    first = asked(old, enclave)
    assert asked(old, enclave) == first != asked(old, enclave, store="ab" * 32)
    old.clock.tick(LIFETIME_MS)
    assert asked(old, enclave).exp > first.exp


def test_what_the_node_does_not_sign(old: Served) -> None:
    enclave = group(old, 1).id
    with pytest.raises(MisuseError, match="no evacuation is going on"):
        asked(old, enclave)
    start(old)
    for owner in ("bob", "carol"):
        with pytest.raises(MisuseError, match="does not own the enclave"):
            asked(old, enclave, owner=pub(owner))
    with pytest.raises(MisuseError, match="is not on this node"):
        asked(old, bytes(32))
    for name in ("owner", "recipient", "store", "enclave"):
        with pytest.raises(InvalidQuery, match=name):
            asked(old, enclave, **{name: "12"})
    with pytest.raises(InvalidQuery, match="recipient"):
        asked(old, enclave, recipient="ff" * 32)
    perform(old, "record-evacuation-notice", owner=ALICE, result="notified", store=STORE)
    with pytest.raises(MisuseError, match="was notified at"):
        asked(old, enclave)


def test_a_key_in_a_signer_process_seals_and_signs_it(old: Served, tmp_path: Path) -> None:
    enclave = group(old, 1).id
    start(old)
    params = {"owner": ALICE, "recipient": ALICE, "store": STORE, "enclave": enclave.hex(), "count": 2}
    operations = Operations()
    with RunningSigner(tmp_path / "signer", OLD) as signer:
        key = SocketSigner(signer.path)
        notices = OwnerNotices(old.node.statement, NoticeLog(tmp_path / "log"), old.store, key, restored="")
        notices.add_to(operations)
        found = operations.perform("evacuation-notice", params, Peer(pid=1, uid=0))
    made = parse_commit(encode(found), UNLIMITED)
    check_commit(made, 2)
    assert "your 2 enclaves" in str(open_notice(person("alice"), (OLD.public,), made.content or "").greeting)


def test_the_outcomes_are_listed_by_page(old: Served) -> None:
    assert perform(old, "evacuation-notices") == {"notices": [], "more": False}
    with pytest.raises(MisuseError, match="no evacuation is going on"):
        perform(old, "record-evacuation-notice", owner=ALICE, result="failed")
    start(old)
    for name, result in (("alice", "failed"), ("bob", "closed"), ("alice", "no_store")):
        perform(old, "record-evacuation-notice", owner=pub(name), result=result, reason="x" * 1000)
    with pytest.raises(InvalidQuery, match="owner"):
        perform(old, "record-evacuation-notice", owner="12", result="failed")
    first = perform(old, "evacuation-notices", limit=1)
    rest = perform(old, "evacuation-notices", after=first["notices"][0].owner)
    found = {each.owner: each for each in [*first["notices"], *rest["notices"]]}
    assert {owner: each.result for owner, each in found.items()} == {ALICE: "no_store", pub("bob"): "closed"}
    assert (first["more"], rest["more"], len(found[ALICE].reason)) == (True, False, 300)


def test_personal_stores_are_recognised_by_their_manifest(old: Served) -> None:
    alice = template("personal", person("alice").public)
    mine = old.create(alice, "alice", meta={"app": "personal"})
    old.create(alice, "bob", meta={"app": "personal", "n": 1})  # made for her by another
    old.create(template("personal", person("bob").public), "bob", meta={"app": "x"})
    old.create(template("log", person("alice").public), "alice", meta={"app": "personal"})  # takes no notices
    found = {each.enclave: each.store_of for each in perform(old, "evacuation")["enclaves"] if each.store_of}
    assert found == {mine.id.hex(): ALICE}


def test_a_restored_node_makes_none(old: Served, tmp_path: Path) -> None:
    enclave, operations = group(old, 1).id, Operations()
    start(old)
    log = NoticeLog(tmp_path / "log")
    OwnerNotices(old.node.statement, log, old.store, OLD, restored="a backup").add_to(operations)
    params = {"owner": ALICE, "recipient": ALICE, "store": STORE, "enclave": enclave.hex(), "count": 2}
    with pytest.raises(MisuseError, match="is restored"):
        operations.perform("evacuation-notice", params, Peer(pid=1, uid=0))


# The file


def test_a_restart_keeps_the_outcomes_of_this_evacuation(tmp_path: Path) -> None:
    path = tmp_path / "log"
    first = NoticeLog(path)
    for each in (outcome(result="failed", reason="why"), outcome(pub("bob"), "closed"), outcome()):
        first.record(TO, each)
    assert path.read_bytes().count(b"\n") == 4
    again = NoticeLog(path)
    assert again.outcomes(TO) == first.outcomes(TO) == {ALICE: outcome(), pub("bob"): outcome(pub("bob"), "closed")}
    again.record(TO, outcome(pub("carol")))
    assert path.read_bytes().count(b"\n") == 4  # a failure that was followed by a success is gone
    for other in (replace(TO, since=2000), replace(TO, to_key=OLD.public)):
        assert NoticeLog(path).outcomes(other) == {}
    assert NoticeLog(path).outcomes(replace(TO, to="https://other.example", deadline=9)) == again.outcomes(TO)
    again.record(replace(TO, since=2000), outcome())
    assert decode(path.read_bytes().split(b"\n")[0])["since"] == 2000


def test_a_line_that_a_crash_has_cut_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "log"
    NoticeLog(path).record(TO, outcome())
    path.write_bytes(path.read_bytes() + b'{"owner":"ab')
    again = NoticeLog(path)
    again.record(TO, outcome(pub("bob")))
    assert set(again.outcomes(TO)) == set(NoticeLog(path).outcomes(TO)) == {ALICE, pub("bob")}


def test_a_file_that_cannot_be_read_or_written_is_named(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"{")
    with pytest.raises(Unavailable, match="remove the file"):
        NoticeLog(path).outcomes(TO)
    path.unlink()
    path.mkdir()
    with pytest.raises(Unavailable, match="cannot be read"):
        NoticeLog(path).outcomes(TO)
    with pytest.raises(Unavailable, match="cannot be written"):
        NoticeLog(tmp_path / "none" / "log").record(TO, outcome())
