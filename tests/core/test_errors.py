"""Every wire code with its status and fields, and errors encoded to the wire and parsed again."""

import pytest

from enc.core import errors
from enc.core.errors import (
    WIRE_ERRORS,
    BodyTooLarge,
    Duplicate,
    EncError,
    InvalidArchive,
    InvalidCommit,
    InvalidProof,
    MisuseError,
    PeerError,
    ReplayFailed,
    WorldError,
    from_wire,
)

STATUS = {
    "INVALID_COMMIT": 400,
    "INVALID_HASH": 400,
    "INVALID_SIGNATURE": 400,
    "INVALID_QUERY": 400,
    "INVALID_SESSION": 400,
    "INVALID_FILTER": 400,
    "INVALID_RANGE": 400,
    "INVALID_NAMESPACE": 400,
    "INVALID_TARGET": 400,
    "INVALID_TRANSFER_TARGET": 400,
    "INVALID_ENDPOINT_URL": 400,
    "DECRYPT_FAILED": 400,
    "EXPIRED": 400,
    "SESSION_EXPIRED": 401,
    "UNAUTHORIZED": 403,
    "GATE_CLOSED": 403,
    "RANK_INSUFFICIENT": 403,
    "ENCLAVE_PAUSED": 403,
    "ENCLAVE_SUSPENDED": 403,
    "BANNED": 403,
    "OWNER_SELF_REVOKE_FORBIDDEN": 403,
    "OWNER_BIT_PROTECTED": 403,
    "ENCLAVE_NOT_FOUND": 404,
    "NODE_NOT_FOUND": 404,
    "IDENTITY_NOT_FOUND": 404,
    "EVENT_NOT_FOUND": 404,
    "LEAF_NOT_FOUND": 404,
    "TREE_SIZE_NOT_FOUND": 404,
    "DUPLICATE": 409,
    "ENCLAVE_EXISTS": 409,
    "STATE_MISMATCH": 409,
    "BITMASK_MISMATCH": 409,
    "INVALID_STATE_FOR_GRANT": 409,
    "INVALID_STATE_FOR_TRANSFER": 409,
    "TRAIT_ALREADY_HELD": 409,
    "INVALID_LIFECYCLE_STATE": 409,
    "AC_BUNDLE_FAILED": 409,
    "CHECKPOINT_MISMATCH": 409,
    "EVENT_PENDING": 409,
    "REGISTRY_CONFLICT": 409,
    "ENCLAVE_TERMINATED": 410,
    "ENCLAVE_MIGRATED": 410,
    "ENCLAVE_PURGED": 410,
    "EVENT_DELETED": 410,
    "RATE_LIMITED": 429,
    "INTERNAL_ERROR": 500,
    "UPSTREAM_UNREACHABLE": 502,
    "UNAVAILABLE": 503,
    "READ_ONLY": 503,
}

FIELDS = {
    "GATE_CLOSED": ["alias"],
    "DUPLICATE": ["receipt"],
    "STATE_MISMATCH": ["expected", "actual"],
    "BITMASK_MISMATCH": ["expected", "actual"],
    "AC_BUNDLE_FAILED": ["failed_index", "reason"],
    "CHECKPOINT_MISMATCH": ["seq", "ct_root"],
    "ENCLAVE_SUSPENDED": ["reason"],
    "EVENT_PENDING": ["retry_after_ms"],
    "ENCLAVE_MIGRATED": ["new_sequencer"],
    "RATE_LIMITED": ["retry_after_ms"],
    "UNAVAILABLE": ["retry_after_ms"],
    "READ_ONLY": ["retry_after_ms"],
}


def test_the_wire_codes_are_exactly_these() -> None:
    assert set(WIRE_ERRORS) == set(STATUS)


@pytest.mark.parametrize("code", STATUS)
def test_status_and_fields_of_each_code(code: str) -> None:
    cls = WIRE_ERRORS[code]
    assert cls.code == code
    assert cls.status == STATUS[code]
    assert list(cls.fields) == FIELDS.get(code, [])


@pytest.mark.parametrize("code", STATUS)
def test_each_code_survives_the_wire_with_its_fields(code: str) -> None:
    context = {name: f"value of {name}" for name in FIELDS.get(code, [])}
    error = WIRE_ERRORS[code]("why", **context)
    wire = error.to_wire()
    assert wire == {"type": "Error", "code": code, "message": "why", **context}
    again = from_wire(wire)
    assert type(again) is type(error)
    assert (again.message, again.context, again.to_wire()) == ("why", context, wire)


@pytest.mark.parametrize("code", FIELDS)
def test_context_fields_may_be_absent(code: str) -> None:
    assert from_wire({"type": "Error", "code": code, "message": "why"}).context == {}


def test_fields_that_a_code_does_not_carry_are_dropped_from_the_wire() -> None:
    error = from_wire({"type": "Error", "code": "DUPLICATE", "message": "m", "receipt": {"seq": 1}, "surprise": 2})
    assert isinstance(error, Duplicate)
    assert error.context == {"receipt": {"seq": 1}}


@pytest.mark.parametrize("code", ["COMMIT_EXPIRED", "DUPLICATE_COMMIT", "", "invalid_commit", "INVALID_PROOF"])
def test_an_unknown_code_becomes_a_plain_peer_error_that_names_it(code: str) -> None:
    error = from_wire({"type": "Error", "code": code, "message": "why"})
    assert type(error) is PeerError
    assert (error.code, error.message) == (code, "why")
    assert error.to_wire()["code"] == code


@pytest.mark.parametrize("wire", [{}, {"code": 5, "message": None}, {"code": ["INVALID_COMMIT"], "message": {}}])
def test_a_malformed_error_object_still_becomes_an_error(wire: dict) -> None:
    assert type(from_wire(wire)) is PeerError


def test_an_unknown_context_field_is_misuse() -> None:
    with pytest.raises(MisuseError, match="INVALID_COMMIT has no context field seq"):
        InvalidCommit("why", seq=1)
    with pytest.raises(MisuseError, match="has no context field b, c"):
        Duplicate("why", receipt={}, c=1, b=2)


def test_an_oversized_body_is_invalid_commit_with_its_own_status() -> None:
    error = BodyTooLarge("over 2 MiB")
    assert isinstance(error, InvalidCommit)
    assert (error.code, error.status) == ("INVALID_COMMIT", 413)
    assert type(from_wire(error.to_wire())) is InvalidCommit
    assert WIRE_ERRORS["INVALID_COMMIT"] is InvalidCommit


def test_local_codes_do_not_travel() -> None:
    for cls in (InvalidProof, InvalidArchive):
        assert issubclass(cls, PeerError)
        assert cls.code not in WIRE_ERRORS


def test_families() -> None:
    world = {"INTERNAL_ERROR", "UPSTREAM_UNREACHABLE", "UNAVAILABLE", "READ_ONLY"}
    for code, cls in WIRE_ERRORS.items():
        assert issubclass(cls, WorldError if code in world else PeerError)
        assert not (issubclass(cls, WorldError) and issubclass(cls, PeerError))
        assert (cls.status >= 500) is (code in world)
    assert issubclass(MisuseError, EncError)
    assert issubclass(MisuseError, ValueError)
    assert not issubclass(MisuseError, PeerError | WorldError)


def test_every_error_class_is_an_enc_error() -> None:
    classes = [item for item in vars(errors).values() if isinstance(item, type) and issubclass(item, Exception)]
    assert len(classes) > len(STATUS)
    assert all(issubclass(cls, EncError) for cls in classes)


def test_an_error_reads_as_its_message() -> None:
    assert str(InvalidCommit("exp: missing")) == "exp: missing"


def test_a_replay_failure_carries_the_broken_rule_and_the_place() -> None:
    cause = Duplicate("the commit is already in the log")
    error = ReplayFailed(7, cause)
    assert (error.code, error.seq, error.cause) == ("DUPLICATE", 7, cause)
    assert isinstance(error, PeerError)
    assert "seq 7" in str(error)
    assert error.context == {"seq": 7}
