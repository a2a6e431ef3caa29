"""Enclaves of version 1 with the same calls: no caller names the version, and everything is verified."""

import json
from typing import Any

import pytest

from enc.client import (
    KINDS,
    Equivocation,
    Forgery,
    Proof,
    check_evidence,
    check_proof,
    kind_of,
    load_evidence,
    load_proof,
    of_kind,
    operation,
)
from enc.client.enclave.backup import summarise
from enc.client.enclave.templates import template
from enc.core.errors import (
    ACBundleFailed,
    BitmaskMismatch,
    EventNotFound,
    InvalidCommit,
    InvalidHash,
    InvalidNamespace,
    InvalidProof,
    MisuseError,
    OwnerBitProtected,
    OwnerSelfRevokeForbidden,
    Unauthorized,
)
from enc.core.log.commit import build_commit, version_of
from enc.core.log.event import finalize, wire_event
from enc.core.machine.archive import read_archive
from enc.core.primitives.hashing import content_hash
from tests.client.stage import Stage, caught
from tests.core.world import LIFETIME, person, pub
from tests.core.world_v1 import PERSONAL_V1, initial, manifest, row
from tests.node.served import NODE
from tests.node.small_v1 import ADMIN, DATAVIEW, ENDPOINT, MEMBER, SMALL_V1

BOB, CAROL, DAVE, MALLORY = (person(name).public for name in ("bob", "carol", "dave", "mallory"))


@pytest.fixture
def team(stage: Stage) -> Any:
    """Return the enclave as alice sees it, who created it."""
    return stage.client().create(SMALL_V1)


def fresh(stage: Stage, enclave: Any, name: str = "alice", **more: Any) -> Any:
    """Return the same enclave for a client that knows nothing of it."""
    return stage.client(name, **more).enclave(enclave.id)


# Every call, by clients that have seen the enclave and by those that have not

CALLS: dict[str, tuple[Any, str, Any]] = {
    "commit": (lambda e: e.commit("message", "text", tags=[["k", "v"]]), "message", "text"),
    "move": (
        lambda e: e.move(BOB, ["Member"], ["Admin", "DataView"]),
        "Move",
        {"identity": pub("bob"), "from": hex(MEMBER), "to": hex(ADMIN | DATAVIEW)},
    ),
    "move by bits": (
        lambda e: e.move(BOB, hex(MEMBER), "0x0"),
        "Move",
        {"identity": pub("bob"), "from": hex(MEMBER), "to": "0x0"},
    ),
    "force": (
        lambda e: e.move(CAROL, "Admin,Member", "", force=True),
        "Force_Move",
        {"identity": pub("carol"), "from": hex(ADMIN | MEMBER), "to": "0x0"},
    ),
    "grant": (lambda e: e.grant(BOB, "Admin"), "Grant", {"identity": pub("bob"), "role": "Admin"}),
    "grant, pushed": (
        lambda e: e.grant(BOB, "DataView", endpoint=ENDPOINT),
        "Grant_Push",
        {"identity": pub("bob"), "role": "DataView", "endpoint": ENDPOINT},
    ),
    "revoke": (lambda e: e.revoke(BOB, "Member"), "Revoke", {"identity": pub("bob"), "role": "Member"}),
    "revoke_self": (lambda e: e.revoke_self("Member"), "Revoke_Self", {"role": "Member"}),
    "transfer": (lambda e: e.transfer(BOB, "Owner"), "Transfer_Owner", {"new_owner": pub("bob")}),
    "ac_bundle": (
        lambda e: e.ac_bundle(
            [
                operation("Grant", target=MALLORY, trait="Member"),
                operation("Move", target=MALLORY, from_=["Member"], to=["Admin"]),
                operation("Grant", target=MALLORY, trait="DataView", endpoint=ENDPOINT),
                operation("Revoke_Self", trait="Member"),
            ]
        ),
        "AC_Bundle",
        {
            "operations": [
                {"type": "Grant", "identity": pub("mallory"), "role": "Member"},
                {"type": "Move", "identity": pub("mallory"), "from": hex(MEMBER), "to": hex(ADMIN)},
                {"type": "Grant_Push", "identity": pub("mallory"), "role": "DataView", "endpoint": ENDPOINT},
                {"type": "Revoke_Self", "role": "Member"},
            ]
        },
    ),
    "pause": (lambda e: e.pause(), "Pause", ""),
    "terminate": (lambda e: e.terminate(), "Terminate", ""),
}


@pytest.mark.parametrize("knows", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize("name", CALLS)
def test_what_each_call_writes(stage: Stage, team: Any, name: str, knows: bool) -> None:
    call, type_, content = CALLS[name]
    receipt = call(team if knows else fresh(stage, team))
    event = stage.node.store.events(team.id, receipt.seq, 1)[0]
    assert (receipt.seq, event.id, event.type) == (1, receipt.id, type_)
    assert (event.content if isinstance(content, str) else json.loads(event.content or "")) == content
    assert version_of(event) == 1


def test_who_has_seen_nothing_says_it_twice_and_then_no_more(stage: Stage, team: Any) -> None:
    bob, node = fresh(stage, team, "bob"), stage.node
    before = len(node.calls)
    first = bob.commit("message", "one")
    assert node.calls[before:] == ["/info", "/", "/"]
    bob.update(first.id, "two")
    bob.delete(first.id)
    assert node.calls[before + 3 :] == ["/", "/"]


def test_who_has_read_anything_says_it_once(stage: Stage, team: Any) -> None:
    bob, node = fresh(stage, team, "bob"), stage.node
    assert [item.type for item in bob.query()] == ["Manifest"]
    before = len(node.calls)
    bob.commit("message", "one")
    assert len(node.calls) == before + 1


def test_who_may_read_nothing_writes_all_the_same(stage: Stage) -> None:
    """A stranger writes to an inbox."""
    personal = stage.client().create("personal-v1")
    stranger = fresh(stage, personal, "mallory")
    assert stranger.commit("inbox", of_kind("dm_request", text="hello")).seq == 1
    assert [kind_of(item.content) for item in personal.query(type="inbox")] == ["dm_request"]


def test_a_prepared_commit_may_be_sent_again_as_often_as_it_takes(stage: Stage, team: Any) -> None:
    """A commit signed before the version was known becomes one event, also from another program."""
    bob = fresh(stage, team, "bob")
    commit = bob.prepare("message", "once", tags=[["k", "v"]])
    assert version_of(commit) == 2
    first = bob.send(commit)
    assert fresh(stage, team, "bob").send(commit) == first
    again = bob.prepare("message", "twice")
    assert version_of(again) == 1
    assert bob.send(again).seq == 2


def test_a_commit_prepared_before_anything_was_read_is_signed_anew(stage: Stage, team: Any) -> None:
    bob = fresh(stage, team, "bob")
    commit = bob.prepare("message", "once")
    list(bob.query())
    first = bob.send(commit)
    assert (first.seq, fresh(stage, team, "bob").send(commit)) == (1, first)


def test_a_commit_for_another_enclave_is_not_signed_anew_for_this_one(stage: Stage, team: Any) -> None:
    two = stage.create()
    for one, other in ((team, two), (two, team)):
        with pytest.raises(MisuseError, match="another enclave"):
            other.send(one.prepare("message", "x"))
        with pytest.raises(MisuseError, match="another enclave"):
            fresh(stage, other).send(one.prepare("message", "x"))
    assert [stage.node.store.load(each.id).seq for each in (team, two)] == [0, 0]  # type: ignore[union-attr]


def test_another_s_commit_is_not_signed_anew(stage: Stage, team: Any) -> None:
    commit = build_commit(person("carol"), team.id, "message", "x", stage.clock.now + LIFETIME)
    with pytest.raises(InvalidHash):
        fresh(stage, team, "bob").send(commit)


@pytest.mark.parametrize("knows", [True, False], ids=["known", "unknown"])
def test_whoever_signs_with_ecdsa_signs_here_with_schnorr(stage: Stage, team: Any, knows: bool) -> None:
    bob = fresh(stage, team, "bob", alg="ecdsa")
    if knows:
        bob.head()
        list(bob.query())
    assert bob.commit("message", "x").alg == "schnorr"
    prepared = fresh(stage, team, "bob", alg="ecdsa")
    assert prepared.send(prepared.prepare("message", "y")).alg == "schnorr"
    assert stage.client(alg="ecdsa").create({**SMALL_V1, "meta": {"n": 2}}).manifest().alg == "schnorr"


def test_what_is_wrong_in_either_version_is_told_as_the_node_told_it_first(stage: Stage, team: Any) -> None:
    two = stage.create()
    ecdsa = fresh(stage, two, "bob", alg="ecdsa")
    with pytest.raises(InvalidCommit, match="content"):
        ecdsa.commit("Shared", "no object")
    with pytest.raises(InvalidCommit, match="version 1 tag"):
        fresh(stage, team, "bob").commit("message", "x", tags=[["k", "a,b"]])


@pytest.mark.parametrize(("who", "fault"), [("bob", "King: not a role of this enclave"), ("mallory", "give bitmasks")])
def test_who_says_what_only_version_1_has_is_told_what_is_wrong_with_it(
    stage: Stage, team: Any, who: str, fault: str
) -> None:
    """The error is not that another version lacks the call."""
    with pytest.raises(MisuseError, match=fault):
        fresh(stage, team, who).move(BOB, "Member", "King", force=True)
    with pytest.raises(MisuseError, match=fault):
        fresh(stage, team, who).move(BOB, ["Member"], ["King"])


@pytest.mark.parametrize(
    ("call", "fault"),
    [
        (lambda e: e.commit("Grant", {"role": "Admin"}), "identity"),
        (lambda e: e.send(e.prepare("Grant", {"role": "Admin"})), "identity"),
        (lambda e: e.move(BOB, "0x0", "0x1", force=True), "reserved"),
        (lambda e: e.move(BOB, "0x0", "0x1"), "reserved"),
    ],
)
def test_who_signs_with_ecdsa_is_told_what_is_wrong(stage: Stage, team: Any, call: Any, fault: str) -> None:
    """The error is neither that of the first try nor that its version lacks the call."""
    with pytest.raises(InvalidCommit, match=fault):
        call(fresh(stage, team, alg="ecdsa"))


# Errors


@pytest.mark.parametrize(
    ("who", "call", "error", "context"),
    [
        ("bob", lambda e: e.grant(MALLORY, "Member"), Unauthorized, {}),
        ("carol", lambda e: e.grant(BOB, "Admin"), Unauthorized, {}),
        ("alice", lambda e: e.revoke_self("Owner"), OwnerSelfRevokeForbidden, {}),
        ("alice", lambda e: e.move(person("alice").public, "Owner,Member", "", force=True), OwnerBitProtected, {}),
        (
            *("alice", lambda e: e.move(BOB, "Admin", "")),
            *(BitmaskMismatch, {"expected": hex(ADMIN), "actual": hex(MEMBER)}),
        ),
        (
            *("carol", lambda e: e.ac_bundle([operation("Grant", target=BOB, trait="Admin")])),
            *(ACBundleFailed, {"failed_index": 0, "reason": "UNAUTHORIZED"}),
        ),
    ],
)
def test_refusals_are_the_node_s_own(stage: Stage, team: Any, who: str, call: Any, error: type, context: Any) -> None:
    with pytest.raises(error) as found:
        call(fresh(stage, team, who))
    assert found.value.context == context  # type: ignore[attr-defined]


@pytest.mark.parametrize("knows", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda e: e.gate("applications", open=True), "no gates"),
        (lambda e: e.shared("topic", 1), "no slots"),
        (lambda e: e.own("nick", 1), "no slots"),
        (lambda e: e.transfer(BOB, "Admin"), "a version 1 enclave can transfer Owner only"),
        (
            lambda e: e.move(BOB, "OUTSIDER", "MEMBER"),
            "OUTSIDER: not a role of this enclave; its roles are Owner",
        ),
    ],
)
def test_what_version_1_has_no_words_for(stage: Stage, team: Any, knows: bool, call: Any, message: str) -> None:
    with pytest.raises(MisuseError, match=message):
        call(team if knows else fresh(stage, team))
    assert stage.node.store.load(team.id).seq == 0  # type: ignore[union-attr]


@pytest.mark.parametrize("knows", [True, False], ids=["known", "unknown"])
def test_what_version_2_has_no_words_for(stage: Stage, knows: bool) -> None:
    two = stage.create()
    for call in (
        lambda e: e.move(BOB, "MEMBER", "OUTSIDER", force=True),
        lambda e: e.move(BOB, ["MEMBER"], "OUTSIDER"),
    ):
        with pytest.raises(MisuseError, match=r"version [12]"):
            call(two if knows else fresh(stage, two))
    assert stage.node.store.load(two.id).seq == 0  # type: ignore[union-attr]


def test_names_of_roles_need_the_manifest(stage: Stage) -> None:
    schema = [row("Move", "Admin", "C", "Member"), row("note", "Any", "CR")]
    enclave = stage.client().create(manifest(schema, initial(alice="Owner", carol="Admin")))
    carol = fresh(stage, enclave, "carol")
    with pytest.raises(MisuseError, match="you may not read it: give bitmasks"):
        carol.move(BOB, "", "Member")
    carol.move(BOB, "0x0", hex(1 << 33))


# Reading


def test_reading_by_both_faces(stage: Stage, team: Any) -> None:
    first = team.commit("message", "one", tags=[["k", "v"]])
    slot = team.commit("Shared", "a content event here")
    team.update(slot.id, "and updated")
    team.update(first.id, "better")
    stage.close_bundle()
    bob = fresh(stage, team, "bob")
    items = list(bob.query(type=["message", "Shared"], proof=True))
    assert [(item.status, item.content, bob.content(item)) for item in items] == [
        ("updated", None, "better"),
        ("updated", None, "and updated"),
    ]
    assert all(item.fact for item in items)
    assert bob.status(first.id) == "updated"
    assert [item.seq for item in bob.complete()] == [0, 1, 2, 3, 4]
    assert bob.event(first.id).seq == 1
    events = bob.subscribe(type="Update")
    assert next(events).content == "and updated"
    events.close()


def test_members_are_those_with_roles(stage: Stage, team: Any) -> None:
    team.grant(MALLORY, "Member")
    team.ac_bundle([operation("Revoke", target=BOB, trait="Member"), operation("Revoke_Self", trait="Member")])
    team.transfer(CAROL, "Owner")
    stage.close_bundle()
    found = {member.identity: (member.state, member.traits) for member in fresh(stage, team, "carol").members()}
    assert found == {
        CAROL: ("", ("Owner", "Admin", "Member")),
        DAVE: ("", ("DataView",)),
        MALLORY: ("", ("Member",)),
    }
    assert fresh(stage, team, "carol").member(BOB).traits == ()


def test_slots_are_none(stage: Stage, team: Any) -> None:
    stage.close_bundle()
    with pytest.raises(InvalidNamespace):
        team.read_shared("topic")


# The lifecycle, from the log


@pytest.mark.parametrize("closed", [True, False], ids=["closed bundle", "open bundle"])
def test_the_lifecycle_comes_from_the_log(stage: Stage, team: Any, closed: bool) -> None:
    expected = [("active", None), ("paused", team.pause), ("active", team.resume), ("terminated", team.terminate)]
    for lifecycle, step in expected:
        if step:
            step()
        if closed:
            stage.close_bundle()
        assert fresh(stage, team, "bob").overview().lifecycle == lifecycle
    assert team.overview().names == {"roles": ["Owner", "Admin", "Member", "DataView"]}


def test_an_enclave_that_moved_away(stage: Stage, team: Any) -> None:
    checkpoint = stage.node.sequencer.checkpoint(team.id, 0)
    content = {"prev_seq": checkpoint.seq, "ct_root": checkpoint.ct_root.hex()}
    team.commit("Migrate", {**content, "new_sequencer": pub("node2")})
    assert fresh(stage, team, "bob").overview().lifecycle == "migrated"


def test_an_enclave_that_moved_here_goes_on(stage: Stage, team: Any) -> None:
    team.pause()
    checkpoint = stage.node.sequencer.checkpoint(team.id, 0)
    content = {"prev_seq": checkpoint.seq, "ct_root": checkpoint.ct_root.hex()}
    team.commit("Migrate", {**content, "new_sequencer": NODE.public.hex()})
    assert fresh(stage, team, "bob").overview().lifecycle == "paused"


def test_who_may_not_read_what_decides_it_is_told_that_it_is_unknown(stage: Stage) -> None:
    personal = stage.client().create("personal-v1")
    personal.pause()
    assert personal.overview().lifecycle == "unknown"
    with pytest.raises(EventNotFound, match="you may not read"):
        fresh(stage, personal, "bob").overview()


def test_who_may_no_longer_read_what_decides_it_is_not_told_what_it_was(stage: Stage) -> None:
    """Although no closed bundle shows the lost right yet."""
    schema = [row("Manifest", "Any", "R"), row("*", "Member", "R"), row("Revoke", "Owner", "C", "Member")]
    schema += [row(type_, "Owner", "C") for type_ in ("Pause", "Resume", "Terminate")]
    team = stage.client().create(manifest(schema, initial(alice="Owner", bob="Member")))
    stage.close_bundle()
    bob = fresh(stage, team, "bob")
    assert bob.overview().lifecycle == "active"
    team.revoke(BOB, "Member")
    team.pause()
    assert bob.overview().lifecycle == "unknown"


def test_the_sequencer_reads_as_node(stage: Stage, team: Any) -> None:
    node = fresh(stage, team, "node")
    node.commit("Report", "all is well")
    assert [item.content for item in node.query()] == ["all is well"]


# The Manifest, for an identity that may not read it


def test_owners_find_the_manifest_in_the_log_that_they_may_export(stage: Stage) -> None:
    personal = stage.client().create("personal-v1")
    stage.close_bundle()
    again = fresh(stage, personal)
    assert again.manifest().seq == 0
    assert again.member(person("alice").public).traits == ("Owner",)
    assert again.overview().names == {"roles": ["Owner", "DataView"]}


def test_an_exported_manifest_is_checked(stage: Stage) -> None:
    personal = stage.client().create("personal-v1")
    again = fresh(stage, personal)
    stage.node.lie("Export", lambda answer: {**answer, "events": []})
    caught(stage, personal, Forgery, again.manifest)
    other = finalize(build_commit(person("alice"), personal.id, "public", "x", stage.clock.now, enc_v=1), NODE, 1, 0)
    stage.node.lie("Export", lambda answer: {**answer, "events": [wire_event(other)]})
    caught(stage, personal, Forgery, again.manifest)


def test_one_enclave_is_of_one_version(stage: Stage, team: Any) -> None:
    """An event signed by the other version's rules is not of this enclave, though both signatures are valid."""
    bob = fresh(stage, team, "bob")
    list(bob.query())
    alien = build_commit(person("bob"), team.id, "message", "x", stage.clock.now + LIFETIME, enc_v=2)
    shown = wire_event(finalize(alien, NODE, stage.clock.now, 1))
    stage.node.lie("Query", lambda answer: {**answer, "events": [{"event": shown, "status": "active"}]})
    caught(stage, team, Forgery, lambda: bob.query(type="message"))


def test_a_content_that_is_gone_without_cause_is_withheld(stage: Stage, team: Any) -> None:
    said = team.commit("Shared", "words")
    bob = fresh(stage, team, "bob")

    def lie(answer: Any) -> None:
        for item in answer["events"]:
            if item["event"]["seq"] == said.seq:
                item["event"].update(content=None, content_hash=content_hash("words").hex())

    stage.node.lie("Query", lie)
    assert "is missing" in caught(stage, team, Forgery, lambda: bob.query(type="Shared")).message


def test_two_events_in_one_place_are_evidence_that_convicts(stage: Stage, team: Any) -> None:
    team.commit("message", "to you", tags=[["k", "v"]])
    other = build_commit(person("bob"), team.id, "message", "to others", stage.clock.now + LIFETIME, enc_v=1)
    shown = wire_event(finalize(other, NODE, stage.clock.now, 1))
    stage.node.lie("Query", lambda answer: {**answer, "events": [{"event": shown, "status": "active"}]})
    lie = caught(stage, team, Equivocation, lambda: team.query(type="message"))
    assert check_evidence(load_evidence(lie.evidence.json())).convicts


# Files


def test_proof_files(stage: Stage, team: Any) -> None:
    said = team.commit("message", "words", tags=[["k", "v"]])
    stage.close_bundle()
    fact = fresh(stage, team, "bob").proof(said.id)
    proof = load_proof(Proof(team.id, NODE.public, fact).json())
    assert "event of type message" in check_proof(proof).proved[0]
    assert check_proof(load_proof(Proof(team.id, NODE.public, team.state("rbac", BOB)).json())).proved
    forged = json.loads(proof.json())
    forged["event"]["event"]["content"] = "other words"
    with pytest.raises(InvalidProof):
        check_proof(load_proof(json.dumps(forged).encode()))


def test_archives(stage: Stage, team: Any, tmp_path: Any) -> None:
    for i in range(5):
        last = team.commit("message", f"{i}", tags=[["k", "v"]])
    team.update(last.id, "new")
    team.pause()
    path = tmp_path / "team.enc"
    header = fresh(stage, team).archive(path)
    assert (header.enc_v, header.events) == (1, 8)
    assert summarise(*read_archive([path.read_bytes()])).bundles == header.sth.ts
    with pytest.raises(Unauthorized):
        fresh(stage, team, "carol").archive(tmp_path / "other.enc")


# The personal enclave


def test_the_template_is_the_document_s_schema() -> None:
    found = template("personal-v1", person("alice").public)
    assert found["enc_v"] == 1
    assert found["RBAC"] == {"use_temp": "none", "schema": PERSONAL_V1, "initial_state": {"Owner": [pub("alice")]}}
    assert found["meta"]["kinds"] == {type_: list(kinds) for type_, kinds in KINDS.items()}


def test_the_personal_enclave(stage: Stage) -> None:
    """Appendix A: who writes and reads each type."""
    mine = stage.client().create("personal-v1")
    bob = fresh(stage, mine, "bob")
    post = mine.commit("public", of_kind("post", text="Hello world"))
    mine.commit("private", of_kind("config", theme="dark"))
    bob.commit("inbox", of_kind("dm_request", text="hi"))
    assert [kind_of(item.content) for item in bob.query()] == ["post"]
    assert sorted(item.type for item in mine.query()) == ["inbox", "private", "public"]
    for type_ in ("public", "private"):
        with pytest.raises(Unauthorized):
            bob.commit(type_, "x")
    mine.update(post.id, of_kind("post", text="Hello, all"))
    mine.grant(DAVE, "DataView", endpoint=ENDPOINT)
    mine.revoke(DAVE, "DataView")
    mine.transfer(BOB, "Owner")
    with pytest.raises(Unauthorized):
        mine.pause()
    bob.pause()
    bob.resume()
    bob.terminate()


def test_kinds() -> None:
    assert of_kind("post", text="x") == {"kind": "post", "text": "x"}
    for content in (None, "", "no JSON", "[]", "{}", '{"kind":3}', '{"kind":"a","kind":"b"}'):
        assert kind_of(content) is None
    assert kind_of('{"kind":"mine"}') == "mine"
    with pytest.raises(MisuseError):
        of_kind("")


# Pushes


def push_to_dave(stage: Stage, team: Any) -> list[Any]:
    """Make one batch of all waiting events; dave, a DataView since the Manifest, pulls it."""
    stage.node.store.fan_out(stage.clock.now)
    return list(fresh(stage, team, "dave").pull(ENDPOINT))


@pytest.mark.parametrize("type_", ["Shared", "message"])
def test_a_pushed_content_that_was_erased_is_gone_by_this_version_s_types(stage: Stage, team: Any, type_: str) -> None:
    """In version 2 nothing erases a `Shared`; here it is a content event."""
    said = team.commit(type_, "words")
    team.update(said.id, "other words")
    (batch,) = push_to_dave(stage, team)
    assert [(event.type, event.content) for event in batch.events[team.id]] == [
        (type_, None),
        ("Update", "other words"),
    ]


@pytest.mark.parametrize("type_", ["Grant_Push", "Force_Move", "Transfer_Owner"])
def test_a_pushed_content_that_this_version_never_erases_is_withheld(stage: Stage, team: Any, type_: str) -> None:
    team.grant(BOB, "DataView", endpoint=ENDPOINT)
    team.move(BOB, "Member,DataView", "Member", force=True)
    team.transfer(CAROL, "Owner")

    def withhold(batches: list[Any]) -> None:
        for event in (event for batch in batches for event in batch["push"]["enclaves"][0]["events"]):
            if event["type"] == type_:
                event.update(content=None, content_hash=content_hash(event["content"]).hex())

    stage.node.lie("Pull", withhold)
    with pytest.raises(Forgery, match="is missing"):
        push_to_dave(stage, team)
