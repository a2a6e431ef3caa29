"""The event-operator matrix of a group on a node: everyone, every event, every operation, tried
over HTTP.
"""

import re
from collections.abc import Iterator
from itertools import permutations
from typing import Any

import pytest

from enc.apps.group import group_manifest
from enc.apps.group.manifest import RULES
from enc.core.log.commit import wire_commit
from tests.core.world import GROUP, give, move, person, pub
from tests.node.pushing import CONFIG, URL, pull, seqs, spread
from tests.node.served import Enclave, Served, about

TABLE = """
    event                     OUTSIDER  PENDING  MEMBER  BLOCKED  owner  admin  muted  dataview  Self  Sender
    Move(OUTSIDER, PENDING)   -         -        R       -        -      -      -      -         C     -
    Move(OUTSIDER, MEMBER)    -         -        R       -        -      C      -      -         C     -
    Move(OUTSIDER, BLOCKED)   -         -        R       -        -      C      -      -         -     -
    Move(PENDING, MEMBER)     -         -        R       -        -      C      -      -         -     -
    Move(PENDING, OUTSIDER)   -         -        R       -        -      C      -      -         C     -
    Move(PENDING, BLOCKED)    -         -        R       -        -      -      -      -         -     -
    Move(MEMBER, OUTSIDER)    -         -        R       -        -      C      -      -         C     -
    Move(MEMBER, BLOCKED)     -         -        R       -        -      C      -      -         -     -
    Move(MEMBER, PENDING)     -         -        R       -        -      -      -      -         -     -
    Move(BLOCKED, OUTSIDER)   -         -        R       -        -      C      -      -         -     -
    Move(BLOCKED, MEMBER)     -         -        R       -        -      -      -      -         -     -
    Move(BLOCKED, PENDING)    -         -        R       -        -      -      -      -         -     -
    Grant(muted)              -         -        R       -        -      C      -      -         -     -
    Revoke(muted)             -         -        R       -        -      C      -      -         -     -
    Grant(admin)              -         -        R       -        C      -      -      -         -     -
    Revoke(admin)             -         -        R       -        C      -      -      -         C     -
    Grant(dataview)           -         -        R       -        C      -      -      -         -     -
    Revoke(dataview)          -         -        R       -        C      -      -      -         -     -
    Transfer(owner)           -         -        R       -        C      -      -      -         -     -
    Gate(applications)        -         -        R       -        C      C      -      -         -     -
    Gate(auto_join)           -         -        R       -        C      -      -      -         -     -
    Shared(topic)             -         -        R       -        -      CUD    -      -         -     -
    Own(profile)              -         -        CRUD    -        -      -      -      -         -     -
    Pause                     -         -        R       -        C      -      -      -         -     -
    Resume                    -         -        R       -        C      -      -      -         -     -
    Terminate                 -         -        R       -        C      -      -      -         -     -
    Migrate                   -         -        R       -        C      -      -      -         -     -
    message                   _U        _U       CR      _U_D     -      D      _C_U   P         -     UD
    reaction                  -         -        CR      _D       -      -      _C     -         -     D
    notice                    _U        _U       R       _U       -      CD     -      -         -     U
    rotate                    -         -        R       -        -      C      -      -         -     -
    other                     -         -        R       -        -      -      -      -         -     -
"""
_HEAD, *_ROWS = [re.split(r"  +", line.strip()) for line in TABLE.strip().splitlines()]
MATRIX = {
    event: {column: frozenset(re.findall("_?[CRUDP]", cell)) for column, cell in zip(_HEAD[1:], cells, strict=True)}
    for event, *cells in _ROWS
}

PEOPLE = {
    "alice": "MEMBER owner admin",
    "adam": "MEMBER admin",
    "mona": "MEMBER",
    "mute": "MEMBER muted",
    "dora": "MEMBER dataview",
    "dirk": "OUTSIDER dataview",
    "otto": "OUTSIDER",
    "pete": "PENDING",
    "blake": "BLOCKED",
}
TARGETS = {"OUTSIDER": "tom", "PENDING": "tina", "MEMBER": "ted", "BLOCKED": "tess"}
CODES = {"UNAUTHORIZED", "STATE_MISMATCH", "RANK_INSUFFICIENT"}


def allowed(event: str, who: str, *contexts: str) -> frozenset[str]:
    given = frozenset().union(*(MATRIX[event][column] for column in (*PEOPLE[who].split(), *contexts)))
    return frozenset(op for op in "CRUDP" if op in given and f"_{op}" not in given)


def test_the_rules_are_those_of_the_design() -> None:
    """Compare with an independent transcription."""
    assert {name: GROUP[name] for name in RULES} == RULES


@pytest.fixture(scope="module")
def node() -> Iterator[Served]:
    with Served(CONFIG) as served:
        yield served


def create(node: Served) -> Enclave:
    manifest = group_manifest(person("alice").public)
    enclave = node.create(manifest, bundle={"size": 64, "timeout": 5000})
    for who, text in {**PEOPLE, **{name: state for state, name in TARGETS.items()}}.items():
        if who != "alice":
            settle_in(enclave, who, text)
    return enclave


def settle_in(enclave: Enclave, who: str, text: str) -> None:
    state, *traits = text.split()
    if state == "PENDING":
        enclave.send(who, "Move", move(who, "OUTSIDER", "PENDING"))
    elif state != "OUTSIDER":
        enclave.send("alice", "Move", move(who, "OUTSIDER", state))
    for trait in traits:
        enclave.send("alice", "Grant", give(who, trait))


class Place:
    """Return a group with everyone in it. After a change, the next try gets a new one."""

    def __init__(self, node: Served) -> None:
        self._node, self._fresh = node, None

    _fresh: Enclave | None

    def enclave(self) -> Enclave:
        self._fresh = self._fresh or create(self._node)
        return self._fresh

    def tries(self, who: str, type_: str, content: Any, *first: tuple[str, str, Any]) -> str:
        """Return the code of the refusal, or "" if it was done, after the necessary `first`
        steps.
        """
        enclave = self.enclave()
        for before in first:
            self._fresh = None
            enclave.send(*before)
        response = self._node.post(wire_commit(enclave.commit(who, type_, content)))
        if response.status_code == 200:
            self._fresh = None
            return ""
        return str(response.json()["code"])


@pytest.fixture(scope="module")
def place(node: Served) -> Place:
    return Place(node)


MOVES = list(permutations(TARGETS, 2))


@pytest.mark.parametrize(("from_", "to"), MOVES, ids=lambda state: str(state))
def test_every_move(place: Place, from_: str, to: str) -> None:
    """Moves of others, and of oneself."""
    event = f"Move({from_}, {to})"
    for who, text in PEOPLE.items():
        code = place.tries(who, "Move", move(TARGETS[from_], from_, to))
        assert (code == "") == ("C" in allowed(event, who)), (who, code)
        assert code in CODES | {""}
        if text.split()[0] == from_:
            code = place.tries(who, "Move", move(who, from_, to))
            assert (code == "") == ("C" in allowed(event, who, "Self")), (who, "Self", code)


GRANTS = [event for event in MATRIX if event.startswith(("Grant", "Revoke", "Transfer"))]


@pytest.mark.parametrize("event", GRANTS)
def test_every_grant(place: Place, event: str) -> None:
    type_, trait = event.rstrip(")").split("(")
    for who, text in PEOPLE.items():
        code = place.tries(who, type_, give("ted", trait))
        assert (code == "") == ("C" in allowed(event, who)), (who, code)
        holds = trait in text.split()
        if type_ == "Revoke" and holds:
            code = place.tries(who, type_, give(who, trait))
            assert (code == "") == ("C" in allowed(event, who, "Self")), (who, "Self", code)


@pytest.mark.parametrize("trait", ["admin", "muted", "dataview"])
@pytest.mark.parametrize("state", TARGETS)
def test_whom_a_grant_reaches(place: Place, trait: str, state: str) -> None:
    by = "adam" if trait == "muted" else "alice"
    reached = {"MEMBER", "OUTSIDER"} if trait == "dataview" else {"MEMBER"}
    code = place.tries(by, "Grant", give(TARGETS[state], trait))
    assert code == ("" if state in reached else "INVALID_STATE_FOR_GRANT")


@pytest.mark.parametrize("gate", ["applications", "auto_join"])
def test_every_gate(place: Place, gate: str) -> None:
    way = ("OUTSIDER", "PENDING" if gate == "applications" else "MEMBER")
    for state in ("closed", "open"):
        for who in PEOPLE:
            code = place.tries(who, "Gate", {"alias": gate, "state": state})
            assert (code == "") == ("C" in allowed(f"Gate({gate})", who)), (who, code)
    closed = ("alice", "Gate", {"alias": gate, "state": "closed"})
    assert place.tries("otto", "Move", move("otto", *way), closed) == "GATE_CLOSED"
    assert place.tries("otto", "Move", move("otto", *way)) == ""
    if gate == "auto_join":
        assert place.tries("adam", "Move", move("tom", *way), closed) == ""


@pytest.mark.parametrize(("event", "op"), [(e, op) for e in ("Shared(topic)", "Own(profile)") for op in "CUD"])
def test_every_slot(place: Place, event: str, op: str) -> None:
    type_, key = event.rstrip(")").split("(")
    for who in PEOPLE:
        setter = "alice" if type_ == "Shared" else who
        if type_ == "Own" and op != "C" and "C" not in allowed(event, who):
            continue  # nobody can set another person's slot, so there is none to change
        first = [] if op == "C" else [(setter, type_, {"key": key, "value": "before"})]
        code = place.tries(who, type_, {"key": key, "value": None if op == "D" else "now"}, *first)
        assert (code == "") == (op in allowed(event, who)), (who, code)
    assert place.tries("alice", type_, {"key": "other", "value": 1}) == "UNAUTHORIZED"


@pytest.mark.parametrize("event", ["Pause", "Resume", "Terminate", "Migrate"])
def test_every_turn_of_life(place: Place, event: str) -> None:
    first = [("alice", "Pause", "")] if event == "Resume" else []
    for who in PEOPLE:
        content: Any = ""
        if event == "Migrate":
            here = place.enclave().ask("alice", "Checkpoint")
            content = {"new_sequencer": pub("node2"), "prev_seq": here["seq"], "ct_root": here["ct_root"]}
        code = place.tries(who, event, content, *first)
        assert (code == "") == ("C" in allowed(event, who)), (who, code)


@pytest.mark.parametrize("event", ["message", "reaction", "notice", "rotate", "other"])
def test_who_creates(place: Place, event: str) -> None:
    for who in PEOPLE:
        code = place.tries(who, event, "sealed")
        assert (code == "") == ("C" in allowed(event, who)), (who, code)


@pytest.fixture(scope="module")
def revised(node: Served) -> dict[tuple[str, str], list[Any]]:
    """Write events by type and author, one for each try, while all authors are admins."""
    enclave = node.create(group_manifest(person("alice").public), bundle={"size": 64, "timeout": 5000})
    made: dict[tuple[str, str], list[Any]] = {("", ""): [enclave]}
    for who in PEOPLE:
        if who != "alice":
            enclave.send("alice", "Move", move(who, "OUTSIDER", "MEMBER"))
            enclave.send("alice", "Grant", give(who, "admin"))
        for type_ in ("message", "reaction", "notice"):
            made[type_, who] = [enclave.send(who, type_, "words") for _ in range(2 * len(PEOPLE))]
        if who != "alice":
            enclave.send("alice", "Move", move(who, "MEMBER", "OUTSIDER"))
            settle_in(enclave, who, PEOPLE[who])
    return made


@pytest.mark.parametrize("event", ["message", "reaction", "notice"])
def test_who_revises(node: Served, revised: dict[tuple[str, str], list[Any]], event: str) -> None:
    """Everyone tries it on an event of each author."""
    (enclave,) = revised["", ""]
    for author in PEOPLE:
        targets = iter(revised[event, author])
        for who in PEOPLE:
            may = allowed(event, who, *(["Self", "Sender"] if who == author else []))
            for op, type_, content in (("U", "Update", "new"), ("D", "Delete", {"reason": "author"})):
                response = node.post(wire_commit(enclave.commit(who, type_, content, about(next(targets)))))
                assert (response.status_code == 200) == (op in may), (author, who, op, response.text)


def test_who_reads(place: Place) -> None:
    enclave = place.enclave()
    for who in PEOPLE:
        may = all("R" in allowed(event, who) for event in MATRIX)
        if may:
            assert enclave.seqs(who) == list(range(enclave.seqs(who)[-1] + 1))
        else:
            assert enclave.denied(who, "Query", filter={}).code == "UNAUTHORIZED"


def test_what_is_pushed(node: Served) -> None:
    """Only messages and their edits are pushed, and only to holders of `dataview`."""
    enclave = create(node)
    enclave.send("alice", "Grant", give("dirk", "dataview", endpoint=URL))
    first = enclave.send("mona", "message", "sealed")
    for type_ in ("reaction", "notice", "rotate"):
        enclave.send("alice", type_, "sealed")
    enclave.send("alice", "Shared", {"key": "topic", "value": "x"})
    edit = enclave.send("mona", "Update", "sealed", about(first))
    spread(node)
    (batch,) = pull(enclave, "dirk", 1)
    assert seqs(batch, enclave) == [first.seq, edit.seq]
