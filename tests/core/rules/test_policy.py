"""Rules that the policies of all versions share."""

import json

import pytest

from enc.core.errors import InvalidCommit
from enc.core.log.commit import build_commit, build_manifest
from enc.core.machine.enclave import judge_manifest
from enc.core.primitives.types import RecordKind
from enc.core.rules.content import content_object
from enc.core.rules.policy_types import Draft, Effects, ReadScope, Subject, recipients
from enc.core.trees.state_key import status_key
from tests.core.vectors import KEYS

ALICE, BOB, CAROL = KEYS["alice"], KEYS["bob"], KEYS["carol"]

MANIFEST = {
    "enc_v": 2,
    "states": ["MEMBER"],
    "traits": ["dataview(1)", "watcher(2)", "off(3)"],
    "moves": [{"event": "Move", "from": "OUTSIDER", "to": "MEMBER", "operator": "MEMBER", "ops": ["C"]}],
    "customs": [
        {"event": "post", "operator": "dataview", "ops": ["P", "N"]},
        {"event": "post", "operator": "watcher", "ops": ["N"]},
        {"event": "post", "operator": "off", "ops": ["_P"]},
        {"event": "draft", "operator": "Sender", "ops": ["N"]},
        {"event": "draft", "operator": "dataview", "ops": ["P"], "alias": "drafts", "gate": {"operator": "MEMBER"}},
    ],
    "init": [{"identity": ALICE.public.hex(), "state": "MEMBER", "traits": []}],
}
POLICY = judge_manifest(build_manifest(ALICE, json.dumps(MANIFEST), 0))[0]
DATAVIEW, WATCHER, OFF = 1 << 8, 1 << 9, 1 << 10


def who(type_: str, *masks: int, closed: bool = False) -> list[str | None]:
    identities = [ALICE.public, BOB.public, CAROL.public][: len(masks)]
    shut = frozenset(["drafts"] if closed else [])
    found = recipients(
        POLICY,
        Subject(type_),
        ALICE.public,
        dict(zip(identities, masks, strict=True)),
        shut,
    )
    return [found.get(identity) for identity in identities]


def test_push_outranks_notify() -> None:
    assert who("post", DATAVIEW, WATCHER, 0) == ["P", "N", None]


def test_a_denied_push_leaves_the_notice() -> None:
    assert who("post", DATAVIEW | OFF, OFF) == ["N", None]


def test_the_author_is_a_recipient_by_context() -> None:
    assert who("draft", 0, 0) == ["N", None]


def test_a_closed_gate_stops_delivery_by_its_entry() -> None:
    assert who("draft", 0, DATAVIEW) == ["N", "P"]
    assert who("draft", 0, DATAVIEW, closed=True) == ["N", None]


def test_a_draft_reads_its_own_writes_and_leaves_the_state_alone() -> None:
    class Nothing:
        closed_gates = frozenset[str]()

        def leaf(self, key: bytes) -> bytes | None:
            return b"old"

        def target(self, event_id: bytes) -> None:
            return None

        def record(self, kind: RecordKind, key: bytes) -> None:
            return None

        def record_of(self, event_id: bytes) -> None:
            return None

    draft = Draft(Nothing())
    assert draft.leaf(b"k") == b"old"
    draft.writes[b"k"] = None
    assert draft.leaf(b"k") is None
    assert Draft(Nothing()).leaf(b"k") == b"old"


def test_effects_know_the_event_id_last() -> None:
    effects = Effects(writes={b"k": b"v"}, supersedes=(b"old" * 10,))
    assert effects.leaves(b"new") == {b"k": b"v", status_key(b"old" * 10): b"new"}


def test_a_read_scope_is_empty_only_if_nothing_could_be_read() -> None:
    assert not ReadScope({"a": "none"}, "none")
    assert ReadScope({"a": "own"}, "none")
    assert ReadScope({}, "all")
    assert ReadScope({"a": "none"}, "all").of("b") == "all"


def test_content_object_takes_objects_only() -> None:
    for text in ("[]", "1", "null", "", "{"):
        with pytest.raises(InvalidCommit):
            content_object(build_commit(ALICE, bytes(32), "Move", text, 0))
    assert content_object(build_commit(ALICE, bytes(32), "Pause", "", 0), empty=True) == {}
