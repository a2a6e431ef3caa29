"""The ready-made manifests: each identity's rights in each."""

import json
from typing import Any

import pytest

from enc.client.enclave.templates import describe, names, template
from enc.core.errors import GateClosed, MisuseError
from enc.core.primitives.encoding import compact_json
from enc.core.rules.manifest_schemas import read_schemas
from enc.core.rules.parse_manifest import parse_manifest
from enc.core.trees.state_key import DELETED
from tests.core.world import NO_POINT, Json, World, about, give, move, person

NAMES = ["dm", "feed", "ledger", "log", "notes", "personal", "personal-v1", "registry", "team"]
ENDLESS = ("dm", "personal")
"""One person's own enclaves, which have no Pause: their matrices are tested elsewhere, cell by cell."""
GONE = {"reason": "author"}
REVISIONS: list[tuple[str, Any]] = [("Update", "new"), ("Delete", GONE)]
OWNER = person("alice").public


def world(name: str) -> World:
    """Return an enclave of this kind, which alice owns."""
    return World(template(name, OWNER))


def allowed(world: World, type_: str, content: Any = "", **more: Any) -> set[str]:
    """Return the people of these tests who may send it now."""
    people = ("alice", "bob", "carol", "dave", "otto")
    codes = {name: world.code(name, type_, content, **more) for name in people}
    assert set(codes.values()) <= {"", "UNAUTHORIZED"}
    return {name for name, code in codes.items() if not code}


# All


def test_names() -> None:
    assert names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_template_is_a_manifest_of_its_owner_s(name: str) -> None:
    manifest = template(name, OWNER)
    policy = parse_manifest(compact_json(manifest))
    assert policy.initial_members == (OWNER,)
    assert world(name).policy.is_owner(world(name).bitmask("alice"))
    assert "$" not in json.dumps(manifest)
    assert manifest["meta"]["description"] == describe(name)
    assert describe(name).endswith(".")


def test_every_call_gives_a_dictionary_of_its_own() -> None:
    template("notes", OWNER)["meta"]["title"] = "mine"
    assert "title" not in template("notes", OWNER)["meta"]


@pytest.mark.parametrize("name", ["none", "", "Notes", "../templates/notes", "notes.json"])
def test_an_unknown_name_is_told_the_known_ones(name: str) -> None:
    for call in (describe, lambda name: template(name, OWNER)):
        with pytest.raises(MisuseError, match=f"choose from {', '.join(NAMES)}"):
            call(name)


@pytest.mark.parametrize("owner", [b"", OWNER[:-1], bytes.fromhex(NO_POINT)])
def test_an_owner_that_is_no_key(owner: bytes) -> None:
    with pytest.raises(MisuseError, match="owner: expected a public key"):
        template("notes", owner)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "personal-v1"])
def test_what_no_template_knows_nobody_may(name: str) -> None:
    it = world(name)
    for type_, content in {
        "other": "",
        "Shared": {"key": "other", "value": 1},
        "Own": {"key": "other", "value": 1},
        "Grant": give("bob", "owner"),
        "Revoke": give("alice", "owner"),
        "Gate": {"alias": "other", "state": "closed"},
    }.items():
        assert allowed(it, type_, content) == set()


@pytest.mark.parametrize("name", NAMES)
def test_the_owner_alone_pauses_and_resumes(name: str) -> None:
    it = world(name)
    assert allowed(it, "Pause") == (set() if name in ENDLESS else {"alice"})
    if name in ENDLESS:
        return
    it.send("alice", "Pause")
    assert allowed(it, "Resume") == {"alice"}
    it.send("alice", "Resume")


@pytest.mark.parametrize("name", NAMES)
def test_the_owner_alone_terminates_and_nobody_a_log(name: str) -> None:
    assert allowed(world(name), "Terminate") == (set() if name == "log" else {"alice"})


@pytest.mark.parametrize("name", NAMES)
def test_the_owner_alone_migrates(name: str) -> None:
    it = world(name)
    assert allowed(it, "Migrate", it.migrate("node2")) == {"alice"}


# notes and feed: one person's own


@pytest.mark.parametrize(("name", "type_"), [("notes", "note"), ("feed", "post")])
def test_one_person_writes_and_revises(name: str, type_: str) -> None:
    it = world(name)
    assert allowed(it, type_, "text") == {"alice"}
    event = it.send("alice", type_, "text")
    for revision, content in REVISIONS:
        assert allowed(it, revision, content, tags=about(event)) == {"alice"}
    edited = it.send("alice", "Update", "better", tags=about(event))
    assert it.status(event) == edited.id
    it.send("alice", "Delete", GONE, tags=about(event))
    assert it.status(event) == DELETED


@pytest.mark.parametrize("name", ["notes", "feed"])
def test_nobody_comes_in(name: str) -> None:
    it = world(name)
    for state in ("OWNER", "MEMBER"):
        assert allowed(it, "Move", move("bob", "OUTSIDER", state)) == set()
    assert allowed(it, "Move", move("alice", "OWNER", "OUTSIDER")) == set()


def test_notes_are_read_by_their_owner_alone() -> None:
    it = world("notes")
    note = it.send("alice", "note", "text")
    assert (it.rights("alice", note), it.rights("otto", note)) == ("R", "")
    assert not it.scope("otto")


def test_a_feed_is_read_by_everybody() -> None:
    it = world("feed")
    post = it.send("alice", "post", "text")
    assert (it.rights("alice", post), it.rights("otto", post)) == ("R", "R")
    assert it.scope("otto").of("Manifest") == "all"


# log


@pytest.fixture
def log() -> World:
    """Return a log in which bob writes and reads, carol reads, and dave writes from outside."""
    it = world("log")
    for name in ("bob", "carol"):
        it.send("alice", "Move", move(name, "OUTSIDER", "MEMBER"))
    for name in ("bob", "dave"):
        it.send("alice", "Grant", give(name, "writer"))
    return it


def test_log_writers_write_and_members_read(log: World) -> None:
    assert allowed(log, "entry", "text") == {"alice", "bob", "dave"}
    entry = log.send("dave", "entry", "text")
    readers = [name for name in ("alice", "bob", "carol", "dave", "otto") if log.rights(name, entry)]
    assert readers == ["alice", "bob", "carol"]


def test_log_entries_are_never_revised(log: World) -> None:
    for name in ("alice", "bob", "dave"):
        entry = log.send(name, "entry", "text")
        for revision, content in REVISIONS:
            assert allowed(log, revision, content, tags=about(entry)) == set()


def test_log_the_owner_alone_admits_and_grants(log: World) -> None:
    assert allowed(log, "Move", move("otto", "OUTSIDER", "MEMBER")) == {"alice"}
    assert allowed(log, "Grant", give("carol", "writer")) == {"alice"}
    assert allowed(log, "Move", move("carol", "MEMBER", "OUTSIDER")) == {"alice", "carol"}
    assert allowed(log, "Revoke", give("bob", "writer")) == {"alice", "bob"}


def test_log_who_is_admitted_goes_on_writing_and_who_is_removed_does_not(log: World) -> None:
    log.send("alice", "Move", move("dave", "OUTSIDER", "MEMBER"))
    assert log.code("dave", "entry", "text") == ""
    log.send("alice", "Move", move("bob", "MEMBER", "OUTSIDER"))
    log.send("alice", "Revoke", give("dave", "writer"))
    assert allowed(log, "entry", "text") == {"alice"}


def test_log_the_owner_may_pass_it_on_and_stop_writing(log: World) -> None:
    log.send("alice", "Revoke", give("alice", "writer"))
    assert log.code("alice", "entry", "text") == "UNAUTHORIZED"
    assert log.code("alice", "Transfer", give("otto", "owner")) == "INVALID_STATE_FOR_TRANSFER"
    log.send("alice", "Transfer", give("carol", "owner"))
    assert allowed(log, "Grant", give("otto", "writer")) == {"carol"}
    assert log.code("carol", "entry", "text") == "UNAUTHORIZED"


# ledger


@pytest.fixture
def ledger() -> World:
    """Return a ledger with bob as a bookkeeper, carol as a member and dave as a service from outside."""
    it = world("ledger")
    for name in ("bob", "carol"):
        it.send("alice", "Move", move(name, "OUTSIDER", "MEMBER"))
    it.send("alice", "Grant", give("bob", "bookkeeper"))
    it.send("alice", "Grant", give("dave", "service"))
    return it


def test_ledger_bookkeepers_write_and_members_read(ledger: World) -> None:
    assert allowed(ledger, "entry", "{}") == {"alice", "bob"}
    entry = ledger.send("bob", "entry", "{}")
    people = ("alice", "bob", "carol", "dave", "otto")
    assert [ledger.rights(name, entry) for name in people] == ["R", "R", "R", "RP", ""]
    for revision, content in REVISIONS:
        assert allowed(ledger, revision, content, tags=about(entry)) == {"bob"}


def test_ledger_a_service_reads_and_is_pushed_everything(ledger: World) -> None:
    for event in (ledger.send("alice", "Pause"), ledger.send("alice", "Resume")):
        assert ledger.rights("dave", event) == "RP"


def test_ledger_the_owner_alone_admits_and_grants(ledger: World) -> None:
    assert allowed(ledger, "Move", move("otto", "OUTSIDER", "MEMBER")) == {"alice"}
    assert allowed(ledger, "Move", move("carol", "MEMBER", "OUTSIDER")) == {"alice", "carol"}
    for trait, holder in (("bookkeeper", "bob"), ("service", "dave")):
        assert allowed(ledger, "Grant", give("carol", trait)) == {"alice"}
        assert allowed(ledger, "Revoke", give(holder, trait)) == {"alice", holder}
    assert ledger.code("alice", "Grant", give("otto", "bookkeeper")) == "INVALID_STATE_FOR_GRANT"
    assert ledger.code("alice", "Transfer", give("otto", "owner")) == "INVALID_STATE_FOR_TRANSFER"
    ledger.send("alice", "Transfer", give("carol", "owner"))
    assert allowed(ledger, "Grant", give("carol", "bookkeeper")) == {"carol"}


def test_ledger_who_was_removed_revises_nothing(ledger: World) -> None:
    entry = ledger.send("bob", "entry", "{}")
    ledger.send("alice", "Move", move("bob", "MEMBER", "OUTSIDER"))
    assert allowed(ledger, "entry", "{}") == {"alice"}
    for revision, content in REVISIONS:
        assert allowed(ledger, revision, content, tags=about(entry)) == set()


def test_ledger_entries_have_a_schema(ledger: World) -> None:
    found = read_schemas(template("ledger", OWNER))
    assert not found.problems
    assert found.violations("entry", '{"amount":-1250,"currency":"EUR","note":"cake"}') == ()
    for wrong in ('{"amount":12.5,"currency":"EUR"}', '{"amount":1}', '{"amount":1,"currency":"€"}'):
        assert found.violations("entry", wrong)
    assert found.violations("entry", '{"amount":1,"currency":"EUR","notes":""}') == ("notes: unknown key",)


# team


@pytest.fixture
def team() -> World:
    """Return a team in which bob is an admin, and carol and dave are members."""
    it = world("team")
    for name in ("bob", "carol", "dave"):
        it.send(name, "Move", move(name, "OUTSIDER", "PENDING"))
        it.send("alice", "Move", move(name, "PENDING", "MEMBER"))
    it.send("alice", "Grant", give("bob", "admin"))
    return it


def test_team_who_applies_waits(team: World) -> None:
    assert allowed(team, "Move", move("otto", "OUTSIDER", "PENDING")) == {"otto"}
    assert allowed(team, "Move", move("otto", "OUTSIDER", "MEMBER")) == {"alice", "bob"}
    application = team.send("otto", "Move", move("otto", "OUTSIDER", "PENDING"))
    assert [team.rights(name, application) for name in ("alice", "bob", "carol", "otto")] == ["R", "R", "R", ""]
    assert team.code("otto", "message", "hi") == "UNAUTHORIZED"
    assert allowed(team, "Move", move("otto", "PENDING", "MEMBER")) == {"alice", "bob"}
    assert allowed(team, "Move", move("otto", "PENDING", "OUTSIDER")) == {"alice", "bob", "otto"}


def test_team_nobody_applies_while_the_gate_is_closed(team: World) -> None:
    closed, application = {"alias": "applications", "state": "closed"}, move("otto", "OUTSIDER", "PENDING")
    assert allowed(team, "Gate", closed) == {"alice", "bob"}
    team.send("bob", "Gate", closed)
    error = team.refused("otto", "Move", application)
    assert (type(error), error.context) == (GateClosed, {"alias": "applications"})
    assert team.code("bob", "Move", move("otto", "OUTSIDER", "MEMBER")) == ""
    team.send("alice", "Gate", {"alias": "applications", "state": "open"})
    assert team.code("otto", "Move", application) == ""


def test_team_members_write_and_revise_their_own_and_admins_delete_any(team: World) -> None:
    assert allowed(team, "message", "hi") == {"alice", "bob", "carol", "dave"}
    message = team.send("carol", "message", "hi")
    assert allowed(team, "Update", "new", tags=about(message)) == {"carol"}
    assert allowed(team, "Delete", GONE, tags=about(message)) == {"alice", "bob", "carol"}
    assert [team.rights(name, message) for name in ("alice", "dave", "otto")] == ["R", "R", ""]


@pytest.mark.parametrize("again", [False, True], ids=["outside", "pending"])
def test_team_who_was_removed_reads_and_edits_no_more_but_may_delete_its_own(team: World, again: bool) -> None:
    message = team.send("carol", "message", "hi")
    assert allowed(team, "Move", move("carol", "MEMBER", "OUTSIDER")) == {"alice", "bob", "carol"}
    team.send("bob", "Move", move("carol", "MEMBER", "OUTSIDER"))
    if again:
        team.send("carol", "Move", move("carol", "OUTSIDER", "PENDING"))
    assert team.rights("carol", message) == ""
    assert team.code("carol", "message", "more") == "UNAUTHORIZED"
    assert team.code("carol", "Update", "new", tags=about(message)) == "UNAUTHORIZED"
    assert team.code("carol", "Delete", GONE, tags=about(message)) == ""


def test_team_admins_are_the_owner_s_and_do_not_remove_each_other(team: World) -> None:
    assert allowed(team, "Grant", give("dave", "admin")) == {"alice"}
    team.send("alice", "Grant", give("dave", "admin"))
    assert team.code("bob", "Move", move("dave", "MEMBER", "OUTSIDER")) == "RANK_INSUFFICIENT"
    assert team.code("bob", "Move", move("alice", "MEMBER", "OUTSIDER")) == "RANK_INSUFFICIENT"
    assert team.code("alice", "Move", move("dave", "MEMBER", "OUTSIDER")) == ""
    assert allowed(team, "Revoke", give("bob", "admin")) == {"alice", "bob"}
    assert team.code("alice", "Grant", give("otto", "admin")) == "INVALID_STATE_FOR_GRANT"


@pytest.mark.parametrize(
    ("type_", "key", "who"),
    [("Shared", "topic", {"alice", "bob"}), ("Own", "nick", {"alice", "bob", "carol", "dave"})],
)
def test_team_slots(team: World, type_: str, key: str, who: set[str]) -> None:
    content: Json = {"key": key, "value": "cats"}
    assert allowed(team, type_, content) == who
    for name in who:
        team.send(name, type_, content)
    assert allowed(team, type_, {**content, "value": "dogs"}) == who
    assert allowed(team, type_, {**content, "value": None}) == who


def test_team_ownership_is_passed_on_to_a_member(team: World) -> None:
    assert allowed(team, "Transfer", give("carol", "owner")) == {"alice"}
    assert team.code("alice", "Transfer", give("otto", "owner")) == "INVALID_STATE_FOR_TRANSFER"
    team.send("alice", "Transfer", give("carol", "owner"))
    for type_ in ("Pause", "Terminate"):
        assert allowed(team, type_) == {"carol"}
    assert team.code("alice", "message", "hi") == ""
    assert team.code("alice", "Grant", give("dave", "admin")) == "UNAUTHORIZED"
    team.send("carol", "Pause")
    assert allowed(team, "Resume") == {"carol"}


# A registry


def test_a_registry_is_the_document_s_with_pause_and_resume() -> None:
    it = world("registry")
    assert it.policy.registry
    node = {"seq_pub": person("bob").public.hex(), "endpoints": [{"uri": "https://bob.example"}], "enc_v": 2}
    assert allowed(it, "Reg_Node", node) == {"bob"}
    assert allowed(it, "Grant", give("dave", "dataview")) == {"alice"}
    assert allowed(it, "Pause") == allowed(it, "Terminate") == {"alice"}
    entry = it.send("bob", "Reg_Node", node)
    assert it.rights("carol", entry) == "R"
    assert allowed(it, "Delete", GONE, tags=about(entry)) == {"bob"}
    it.send("alice", "Grant", give("dave", "dataview"))
    assert it.rights("dave", entry) == "RP"
    it.send("alice", "Pause")
    assert it.code("carol", "Reg_Identity", {"id_pub": person("carol").public.hex()}) == "ENCLAVE_PAUSED"
    it.send("alice", "Resume")
    it.send("alice", "Transfer", give("bob", "owner"))
    assert allowed(it, "Terminate") == {"bob"}
