"""One tree of errors.

    EncError
    ├── PeerError      the other side sent something wrong and must send something else
    │   ├── one class per wire code, below, with its HTTP status
    │   ├── InvalidProof     a proof, head or receipt does not verify
    │   ├── InvalidArchive   an archive, or a log in replay, breaks a rule of form
    │   └── ReplayFailed     an event of a log in replay breaks a rule; carries the rule's code and the seq
    ├── WorldError     temporary, neither side's fault: Unavailable, ReadOnly, UpstreamUnreachable, InternalError
    └── MisuseError    the calling program's fault: a key of the wrong length, a nonce too short

Every PeerError and WorldError has a `code`. WIRE_ERRORS lists the codes that are sent over the
wire; `to_wire` encodes an error, `from_wire` decodes one.
"""

from collections.abc import Mapping
from typing import Any, ClassVar


class EncError(Exception):
    """Base of every error of this project. `message` is for people, `code` for programs, `context`
    for both."""

    code: str = ""
    status: int = 500
    fields: ClassVar[tuple[str, ...]] = ()
    """Names of the context fields that this code may carry."""

    def __init__(self, message: str, **context: Any) -> None:
        super().__init__(message)
        self.message = message
        self.context = context
        unknown = set(context) - set(self.fields)
        if unknown:
            raise MisuseError(f"{self.code or type(self).__name__} has no context field {', '.join(sorted(unknown))}")

    def to_wire(self) -> dict[str, Any]:
        """Return the wire's error object: type, code, message, then the context fields."""
        return {"type": "Error", "code": self.code, "message": self.message, **self.context}


class PeerError(EncError):
    """The other side's fault."""

    status: int = 400


class WorldError(EncError):
    """Temporary and neither side's fault: the same request may succeed later."""


class MisuseError(EncError, ValueError):
    """The calling program's fault. Never sent over the wire."""


class InvalidProof(PeerError):
    """A proof, a signed head or a receipt does not verify. Local: a node never answers with it."""

    code = "INVALID_PROOF"


class InvalidArchive(PeerError):
    """An archive, or a log in replay, breaks a rule of form: shape, gaps, order, time."""

    code = "INVALID_ARCHIVE"


class ReplayFailed(PeerError):
    """Event `seq` of a log breaks a rule. `code` and `message` come from `cause`, the rule's own
    error."""

    def __init__(self, seq: int, cause: EncError) -> None:
        super().__init__(f"seq {seq}: {cause.message}")
        self.seq, self.cause = seq, cause
        self.code, self.status, self.context = cause.code, cause.status, {**cause.context, "seq": seq}


# 400: malformed


class InvalidCommit(PeerError):
    code = "INVALID_COMMIT"


class InvalidHash(PeerError):
    code = "INVALID_HASH"


class InvalidSignature(PeerError):
    code = "INVALID_SIGNATURE"


class InvalidQuery(PeerError):
    code = "INVALID_QUERY"


class InvalidSession(PeerError):
    code = "INVALID_SESSION"


class InvalidFilter(PeerError):
    code = "INVALID_FILTER"


class InvalidRange(PeerError):
    code = "INVALID_RANGE"


class InvalidNamespace(PeerError):
    code = "INVALID_NAMESPACE"


class InvalidTarget(PeerError):
    code = "INVALID_TARGET"


class InvalidTransferTarget(PeerError):
    code = "INVALID_TRANSFER_TARGET"


class InvalidEndpointUrl(PeerError):
    code = "INVALID_ENDPOINT_URL"


class DecryptFailed(PeerError):
    code = "DECRYPT_FAILED"


class Expired(PeerError):
    code = "EXPIRED"


# 401, 403: authentication and authorisation


class SessionExpired(PeerError):
    code, status = "SESSION_EXPIRED", 401


class Unauthorized(PeerError):
    code, status = "UNAUTHORIZED", 403


class GateClosed(PeerError):
    code, status, fields = "GATE_CLOSED", 403, ("alias",)


class RankInsufficient(PeerError):
    code, status = "RANK_INSUFFICIENT", 403


class EnclavePaused(PeerError):
    code, status = "ENCLAVE_PAUSED", 403


class Banned(PeerError):
    """The node's operator has banned the identity or the address."""

    code, status = "BANNED", 403


class EnclaveSuspended(PeerError):
    """The node's operator has suspended the enclave; `reason` is a code."""

    code, status, fields = "ENCLAVE_SUSPENDED", 403, ("reason",)


class OwnerSelfRevokeForbidden(PeerError):
    """Version 1 only."""

    code, status = "OWNER_SELF_REVOKE_FORBIDDEN", 403


class OwnerBitProtected(PeerError):
    """Version 1 only."""

    code, status = "OWNER_BIT_PROTECTED", 403


# 404: not found


class EnclaveNotFound(PeerError):
    code, status = "ENCLAVE_NOT_FOUND", 404


class NodeNotFound(PeerError):
    code, status = "NODE_NOT_FOUND", 404


class IdentityNotFound(PeerError):
    code, status = "IDENTITY_NOT_FOUND", 404


class EventNotFound(PeerError):
    code, status = "EVENT_NOT_FOUND", 404


class LeafNotFound(PeerError):
    code, status = "LEAF_NOT_FOUND", 404


class TreeSizeNotFound(PeerError):
    code, status = "TREE_SIZE_NOT_FOUND", 404


# 409: conflicts with the present state


class Duplicate(PeerError):
    code, status, fields = "DUPLICATE", 409, ("receipt",)


class EnclaveExists(PeerError):
    code, status = "ENCLAVE_EXISTS", 409


class StateMismatch(PeerError):
    code, status, fields = "STATE_MISMATCH", 409, ("expected", "actual")


class BitmaskMismatch(PeerError):
    """Version 1 only."""

    code, status, fields = "BITMASK_MISMATCH", 409, ("expected", "actual")


class InvalidStateForGrant(PeerError):
    code, status = "INVALID_STATE_FOR_GRANT", 409


class InvalidStateForTransfer(PeerError):
    code, status = "INVALID_STATE_FOR_TRANSFER", 409


class TraitAlreadyHeld(PeerError):
    code, status = "TRAIT_ALREADY_HELD", 409


class InvalidLifecycleState(PeerError):
    code, status = "INVALID_LIFECYCLE_STATE", 409


class ACBundleFailed(PeerError):
    code, status, fields = "AC_BUNDLE_FAILED", 409, ("failed_index", "reason")


class CheckpointMismatch(PeerError):
    code, status, fields = "CHECKPOINT_MISMATCH", 409, ("seq", "ct_root")


class EventPending(PeerError):
    code, status, fields = "EVENT_PENDING", 409, ("retry_after_ms",)


class RegistryConflict(PeerError):
    code, status = "REGISTRY_CONFLICT", 409


# 410, 413, 429


class EnclaveTerminated(PeerError):
    code, status = "ENCLAVE_TERMINATED", 410


class EnclaveMigrated(PeerError):
    code, status, fields = "ENCLAVE_MIGRATED", 410, ("new_sequencer",)


class EnclavePurged(PeerError):
    """The node's operator has deleted the enclave; this node never serves it again."""

    code, status = "ENCLAVE_PURGED", 410


class EventDeleted(PeerError):
    code, status = "EVENT_DELETED", 410


class BodyTooLarge(InvalidCommit):
    """A request body is over the limit. Has the code of InvalidCommit, but its own HTTP status."""

    status = 413


class NoSuchPath(InvalidQuery):
    """The path does not exist. Has the code of InvalidQuery, but its own HTTP status."""

    status = 404


class RateLimited(PeerError):
    code, status, fields = "RATE_LIMITED", 429, ("retry_after_ms",)


# 5xx: temporary failures


class InternalError(WorldError):
    code, status = "INTERNAL_ERROR", 500


class UpstreamUnreachable(WorldError):
    code, status = "UPSTREAM_UNREACHABLE", 502


class Unavailable(WorldError):
    code, status, fields = "UNAVAILABLE", 503, ("retry_after_ms",)


class ReadOnly(WorldError):
    """The node signs nothing: its store is a copy, and its operator has not adopted it."""

    code, status, fields = "READ_ONLY", 503, ("retry_after_ms",)


def _leaves(cls: type[EncError]) -> list[type[EncError]]:
    return [cls, *(leaf for sub in cls.__subclasses__() for leaf in _leaves(sub))]


_LOCAL = (InvalidProof, InvalidArchive, BodyTooLarge, NoSuchPath)
WIRE_ERRORS: Mapping[str, type[EncError]] = {c.code: c for c in _leaves(EncError) if c.code and c not in _LOCAL}
"""Every code that the wire may carry, with its class."""


def from_wire(error: Mapping[str, Any]) -> EncError:
    """Return the error that a peer's error object describes; for an unknown code, a plain PeerError
    with it."""
    code, message = str(error.get("code", "")), str(error.get("message", ""))
    cls = WIRE_ERRORS.get(code)
    if cls is None:
        unknown = PeerError(message)
        unknown.code = code
        return unknown
    return cls(message, **{name: error[name] for name in cls.fields if name in error})
