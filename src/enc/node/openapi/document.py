"""The OpenAPI 3.1 document of the HTTP API.

Statuses, codes and fields of errors come from the classes of enc.core.errors, sealed paths and types
from the routes, schemas and bounds from schemas. Written here by hand: which operation
returns which errors, and what they mean.
"""

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from enc.core import errors
from enc.core.errors import EncError
from enc.node.api.bulk_commits import COMMITS_MEDIA_TYPE
from enc.node.api.http_api import SEALED_PATHS
from enc.node.api.imports import ARCHIVE_MEDIA_TYPE
from enc.node.api.websocket import NORMAL, OVERLOADED
from enc.node.openapi.schemas import MESSAGES, SCHEMAS, request
from enc.node.openapi.shapes import Schema, ref
from enc.version import __version__

Errors = tuple[type[EncError], ...]

MEANINGS: Mapping[type[EncError], str] = {
    errors.InvalidCommit: "Malformed commit, tags, content or manifest, over a limit, or `exp` too far ahead.",
    errors.InvalidHash: "`hash` is not that of the fields.",
    errors.InvalidSignature: "The signature is invalid.",
    errors.InvalidQuery: "Malformed request, or one that this path does not accept.",
    errors.InvalidSession: "The token is invalid, or differs inside and outside.",
    errors.InvalidFilter: "Malformed filter, or over one of its maxima.",
    errors.InvalidRange: "Not 0 < from <= to <= the log's size.",
    errors.InvalidNamespace: "Unknown namespace, or one that the enclave's version lacks.",
    errors.InvalidTarget: "Update or Delete of a predefined type, or of a registry entry that cannot be changed so.",
    errors.InvalidTransferTarget: "Transfer to oneself.",
    errors.InvalidEndpointUrl: (
        "The node may not call the endpoint of a Grant, Grant_Push or Manifest, or the source of an import."
    ),
    errors.DecryptFailed: "The sealed content is too short, malformed or forged.",
    errors.Expired: "`exp` has passed.",
    errors.SessionExpired: "The token has expired.",
    errors.Unauthorized: "No entry of the manifest allows it, or this node's operator does not.",
    errors.GateClosed: "Only an entry with a closed gate, `alias`, would allow it.",
    errors.OwnerSelfRevokeForbidden: "Revoke_Self of Owner.",
    errors.OwnerBitProtected: "Move or Force_Move would change who is Owner.",
    errors.RankInsufficient: "The actor's rank is not strictly smaller than the target's.",
    errors.EnclavePaused: "Only Resume, Terminate and Migrate are accepted.",
    errors.EnclaveNotFound: "No such enclave here.",
    errors.NodeNotFound: "No such node is registered.",
    errors.IdentityNotFound: "No such identity is registered.",
    errors.NoSuchPath: "This node does not serve a registry.",
    errors.EventNotFound: "No such event, also as the target of an Update or Delete.",
    errors.LeafNotFound: "The leaf's index is not below the tree's size.",
    errors.TreeSizeNotFound: "The log has not had that many closed bundles; without tree_size: it has none.",
    errors.Duplicate: "Accepted before. For a commit with the same `sig`, the error carries the first `receipt`.",
    errors.EnclaveExists: "A Manifest for an enclave that exists.",
    errors.StateMismatch: "Move: the target is in State `actual`, not `expected`.",
    errors.BitmaskMismatch: "Move or Force_Move: the identity's bitmask is `actual`, not `expected`.",
    errors.InvalidStateForGrant: "Grant or Revoke: no authorising scope contains the target's State.",
    errors.InvalidStateForTransfer: "Transfer: no scope contains the target's State.",
    errors.TraitAlreadyHeld: "Transfer: the target has the trait.",
    errors.InvalidLifecycleState: "Resume while active.",
    errors.ACBundleFailed: "Operation `failed_index` failed with the code `reason`; none was done.",
    errors.CheckpointMismatch: "Migrate: the log ends at `seq` with the root `ct_root`.",
    errors.RegistryConflict: "Reg_Enclave: another log, or a sequencer that no chain of Migrate events leads to.",
    errors.EventPending: "Sequenced, but its bundle is open: no proof yet. See `retry_after_ms`.",
    errors.Banned: "The node's operator has banned the identity or the address.",
    errors.EnclaveSuspended: "The node's operator has suspended the enclave, for `reason`.",
    errors.EnclavePurged: "The node's operator has deleted the enclave.",
    errors.EnclaveTerminated: "The enclave was terminated.",
    errors.EnclaveMigrated: "The enclave is at the node with key `new_sequencer`.",
    errors.EventDeleted: "The target is deleted.",
    errors.BodyTooLarge: "The body is over the limit that /info shows.",
    errors.RateLimited: "Too many requests of this address or identity.",
    errors.InternalError: "An internal error of the node.",
    errors.UpstreamUnreachable: "The source's name cannot be resolved.",
    errors.ReadOnly: "The node's store is a copy that its operator has not adopted: the node signs nothing.",
    errors.Unavailable: "Busy, held for a Migrate, or not able to write.",
}
"""Every error that the node returns."""

ALWAYS: Errors = (
    errors.InvalidQuery,
    errors.Banned,
    errors.RateLimited,
    errors.InternalError,
    errors.Unavailable,
)
"""Errors of any request: it may be malformed HTTP, of a banned address, one too many, or hit an internal error."""

LOG: Errors = (errors.EnclaveNotFound, errors.EnclaveTerminated, errors.EnclavePurged)
"""A terminated enclave can be read until its data is purged."""

READ: Errors = (
    *LOG,
    errors.BodyTooLarge,
    errors.InvalidSession,
    errors.DecryptFailed,
    errors.SessionExpired,
    errors.Unauthorized,
    errors.EnclaveSuspended,
)

WRITE: Errors = (
    errors.BodyTooLarge,
    errors.InvalidCommit,
    errors.InvalidHash,
    errors.InvalidSignature,
    errors.InvalidTarget,
    errors.InvalidTransferTarget,
    errors.InvalidEndpointUrl,
    errors.Expired,
    errors.Unauthorized,
    errors.GateClosed,
    errors.OwnerSelfRevokeForbidden,
    errors.OwnerBitProtected,
    errors.RankInsufficient,
    errors.EnclavePaused,
    errors.EnclaveSuspended,
    errors.EnclaveNotFound,
    errors.EventNotFound,
    errors.Duplicate,
    errors.EnclaveExists,
    errors.StateMismatch,
    errors.BitmaskMismatch,
    errors.InvalidStateForGrant,
    errors.InvalidStateForTransfer,
    errors.TraitAlreadyHeld,
    errors.InvalidLifecycleState,
    errors.ACBundleFailed,
    errors.CheckpointMismatch,
    errors.RegistryConflict,
    errors.EnclaveTerminated,
    errors.EnclavePurged,
    errors.EnclaveMigrated,
    errors.EventDeleted,
    errors.ReadOnly,
)

IMPORT: Errors = (
    errors.BodyTooLarge,
    errors.InvalidCommit,
    errors.InvalidHash,
    errors.InvalidSignature,
    errors.InvalidEndpointUrl,
    errors.Expired,
    errors.Unauthorized,
    errors.EnclaveTerminated,
    errors.EnclavePurged,
    errors.EnclaveSuspended,
    errors.UpstreamUnreachable,
    errors.ReadOnly,
)
"""Errors that are returned before anything is fetched."""

SEALED_TYPES: Mapping[str, tuple[str, Errors]] = {
    "Query": ("Events, by a filter. Those that the caller may not read are left out.", (errors.InvalidFilter,)),
    "Pull": ("Batches of the caller's own pushes, with the events that the caller may read now.", ()),
    "Inclusion_Proof": ("A bundle is in the log.", (errors.LeafNotFound, errors.TreeSizeNotFound)),
    "Bundle_Proof": (
        "An event is in its bundle; or, by leaf_index, which events a bundle holds.",
        (errors.LeafNotFound, errors.EventNotFound, errors.EventPending),
    ),
    "State_Proof": (
        "What the enclave's state holds at a key. Anyone may ask for their own `rbac` key.",
        (errors.InvalidNamespace, errors.TreeSizeNotFound),
    ),
    "State_Batch": (
        "What the enclave's state holds at several keys, under one root.",
        (errors.InvalidNamespace, errors.TreeSizeNotFound),
    ),
    "Checkpoint": (
        "The end of the log, for identities that may Migrate. `hold` holds the enclave; accepted once.",
        (errors.Duplicate, errors.ReadOnly),
    ),
    "Export": (
        "The whole log, page by page, for those who may Migrate, and for its next node.",
        (),
    ),
    "Deliveries": (
        "Delivery status of an enclave's endpoints: its owner gets all of them, other callers their own.",
        (),
    ),
}
"""Types of sealed requests, with their meaning and their own errors."""

ABOUT = """A node hosts enclaves: append-only, access-controlled logs. Times are Unix milliseconds.

**Sealed requests.** `content` is sealed with keys derived from the session token and the node's key, `seq_pub` of
/info; so is that of the answer. The plaintexts of a request of type X are the schemas `X.body` and `X.answer`.

**Errors** are objects of the schema Error. An unknown path returns 404, another method 405, both with
INVALID_QUERY. HEAD works wherever GET does.
"""

WEBSOCKET = f"""One connection carries commits and subscriptions of any number of identities. Messages are text.

The peer sends a Commit, a sealed Query or a Close. A Commit is answered by a Receipt or an Error, in any order. A Query
subscribes: an Event for each stored event, EOSE, then an Event for each new one that matches and may be read. It may
offer a `sub_id` beside its other plain fields, which is used if it is free; otherwise the node picks one. When the last
subscription has ended the node closes the connection ({NORMAL}). A WebSocket above the limit is closed ({OVERLOADED}).
"""


class ApiOperation(Struct, frozen=True, kw_only=True):
    """One method of one path."""

    id: str
    summary: str
    answer: Schema
    errors: Errors = ()
    takes: tuple[str, ...] = ()
    """Names of the schemas of its body."""
    parameters: tuple[Schema, ...] = ()
    media_type: str = "application/json"
    failing: Schema | None = None
    """Schema that a 503 may have instead of an Error."""
    is_long: bool = False
    """Whether it returns 202 in the same form while it runs."""
    raw: str = ""
    """A media type of its body that is not JSON."""
    is_cached: bool = False
    """Whether it has an ETag, and returns 304 to a client that has the current one."""


def _parameter(name: str, where: str, meaning: str, schema: str, *, required: bool = True) -> Schema:
    return {"name": name, "in": where, "required": required, "description": meaning, "schema": ref(schema)}


def _post() -> ApiOperation:
    return ApiOperation(
        id="post",
        summary="Submit a commit (any object with `exp`), or a sealed Query or Pull.",
        takes=("Commit", "Query", "Pull"),
        answer={"anyOf": [ref("Receipt"), ref("Response")]},
        errors=(*WRITE, *READ, *SEALED_TYPES["Query"][1]),
    )


def _sealed(path: str, type_: str) -> ApiOperation:
    summary, own = SEALED_TYPES[type_]
    return ApiOperation(
        id=path.strip("/"), summary=summary, takes=(type_,), answer=ref("Response"), errors=(*READ, *own)
    )


def _log(prefix: str, name: str) -> dict[str, ApiOperation]:
    enclave = _parameter("enclave", "path", "The enclave's id.", "Hash")
    sizes = (
        _parameter("from", "query", "The earlier size, in closed bundles.", "Integer"),
        _parameter("to", "query", "The later size; without it, the present one.", "Integer", required=False),
    )
    return {
        f"{prefix}/{{enclave}}/sth": ApiOperation(
            id=f"{name}sth",
            summary="The log's signed head.",
            parameters=(enclave,),
            answer=ref("TreeHead"),
            errors=LOG,
        ),
        f"{prefix}/{{enclave}}/consistency": ApiOperation(
            id=f"{name}consistency",
            summary="The log only grew between two sizes.",
            parameters=(enclave, *sizes),
            answer=ref("Consistency"),
            errors=(*LOG, errors.InvalidRange),
        ),
    }


def _lookup(name: str, key: str, what: str, answer: str, *missing: type[EncError]) -> dict[str, ApiOperation]:
    """Return the operation of a lookup in the registry that this node serves."""
    parameters = (
        _parameter(key, "path", f"The {what}'s.", "Hash"),
        _parameter("proof", "query", "1: with proofs.", "Flag", required=False),
    )
    operation = ApiOperation(
        id=name, summary=f"The registry's entry of this {what}.", parameters=parameters, answer=ref(answer)
    )
    return {f"/{name}/{{{key}}}": replace(operation, errors=(*LOOKUP, *missing), is_cached=True)}


LOOKUP: Errors = (
    errors.NoSuchPath,
    errors.Unauthorized,
    errors.EnclaveSuspended,
    errors.EnclaveTerminated,
    errors.EnclavePurged,
    errors.EnclaveMigrated,
)
LOOKUPS: Mapping[str, ApiOperation] = {
    **_lookup("nodes", "seq_pub", "node", "NodeLookup", errors.NodeNotFound),
    **_lookup("enclaves", "enclave_id", "enclave", "EnclaveLookup", errors.EnclaveNotFound),
    **_lookup("resolve", "enclave_id", "enclave", "Resolved", errors.EnclaveNotFound, errors.NodeNotFound),
    **_lookup("identity", "id_pub", "identity", "IdentityLookup", errors.IdentityNotFound),
    "/enclaves": ApiOperation(
        id="list-enclaves",
        summary="The enclaves of the registry, page by page.",
        parameters=(
            _parameter("app", "query", "Only those of this app.", "App", required=False),
            _parameter("creator", "query", "Only those that this identity created.", "PublicKey", required=False),
            _parameter("q", "query", "Only those that contain this text, ignoring case.", "Words", required=False),
            _parameter("after", "query", "From the id after this one.", "Hash", required=False),
            _parameter("limit", "query", "How many at most.", "PageSize", required=False),
        ),
        answer=ref("EnclaveList"),
        errors=LOOKUP,
        is_cached=True,
    ),
}

GETS: Mapping[str, ApiOperation] = {
    **LOOKUPS,
    **_log("", ""),
    **_log("/enclave", "enclave-"),
    "/import/{migrate}": ApiOperation(
        id="import-status",
        summary="Status of an import.",
        parameters=(_parameter("migrate", "path", "The Migrate's hash.", "Hash"),),
        answer=ref("Import"),
        errors=(errors.EnclaveNotFound,),
    ),
    "/info": ApiOperation(id="info", summary="What this node is, and what it accepts.", answer=ref("Info")),
    "/health": ApiOperation(
        id="health",
        summary="Whether a commit of ordinary size would succeed.",
        answer=ref("Health"),
        failing=ref("Health"),
    ),
    "/metrics": ApiOperation(
        id="metrics", summary="Metrics for Prometheus.", answer={"type": "string"}, media_type="text/plain"
    ),
    "/openapi.json": ApiOperation(id="openapi", summary="This document.", answer={"type": "object"}),
}
POSTS: Mapping[str, ApiOperation] = {
    "/": _post(),
    "/commits": ApiOperation(
        id="commits",
        summary="Submit several commits, one on each line; each is judged and answered alone, in this order.",
        raw=COMMITS_MEDIA_TYPE,
        answer=ref("CommitResults"),
        errors=(errors.BodyTooLarge,),
    ),
    "/import": ApiOperation(
        id="import",
        summary="Import an enclave by its owner's Migrate: from a source or, with the other media type, an archive.",
        takes=("ImportOrder",),
        raw=ARCHIVE_MEDIA_TYPE,
        answer=ref("Import"),
        errors=IMPORT,
        is_long=True,
    ),
    "/warm-copies": ApiOperation(
        id="order-warm-copies",
        summary="Copy enclaves of another node, which orders it, ahead of their moves.",
        takes=("WarmCopyOrder",),
        answer=ref("WarmCopies"),
        errors=(errors.BodyTooLarge, errors.Unauthorized, errors.ReadOnly, errors.InvalidEndpointUrl),
    ),
    "/warm-copies/confirm": ApiOperation(
        id="confirm-warm-copy",
        summary="Whether this node has a copy of a log up to a checkpoint, after trying to catch up.",
        takes=("Confirmation",),
        answer=ref("Confirmed"),
        errors=(errors.BodyTooLarge, errors.EnclaveNotFound),
    ),
    **{path: _sealed(path, type_) for path, type_ in SEALED_PATHS.items()},
}


def document() -> dict[str, Any]:
    """Return the document that /openapi.json serves."""
    paths = {path: {"get": _operation(operation)} for path, operation in GETS.items()}
    paths |= {path: {"post": _operation(operation)} for path, operation in POSTS.items()}
    requests = {type_: request(type_, meaning) for type_, (meaning, _) in SEALED_TYPES.items()}
    return {
        "openapi": "3.1.0",
        "info": {"title": "ENC node", "version": __version__, "description": ABOUT},
        "servers": [{"url": "/"}],
        "paths": paths,
        "x-websocket": {"path": "/", "description": WEBSOCKET, "messages": [ref(name) for name in MESSAGES]},
        "components": {"schemas": SCHEMAS | requests},
    }


def _operation(operation: ApiOperation) -> Schema:
    described: Schema = {"operationId": operation.id, "summary": operation.summary}
    if operation.parameters:
        described["parameters"] = operation.parameters
    content = _content(_any(map(ref, operation.takes))) if operation.takes else {}
    if operation.raw:
        content[operation.raw] = {"schema": {"type": "string", "format": "binary"}}
    if content:
        described["requestBody"] = {"required": True, "content": content}
    if operation.takes:
        described["x-sealed"] = {type_: _plaintexts(type_) for type_ in operation.takes if f"{type_}.body" in SCHEMAS}
    answer = {"description": "Done.", "content": {operation.media_type: {"schema": operation.answer}}}
    accepted: Schema = {"202": {**answer, "description": "Running."}} if operation.is_long else {}
    kept: Schema = {"304": {"description": "If-None-Match is current."}} if operation.is_cached else {}
    return {**described, "responses": {"200": answer, **accepted, **kept, **_refusals(operation)}}


def _plaintexts(type_: str) -> Schema:
    return {"body": ref(f"{type_}.body"), "answer": ref(f"{type_}.answer")}


def _refusals(operation: ApiOperation) -> Schema:
    """Return a response for each status of an operation's errors."""
    found = sorted({*ALWAYS, *operation.errors}, key=lambda error: (error.status, error.code))
    responses: Schema = {}
    for status, classes in groupby(found, lambda error: error.status):
        failing = operation.failing if status == errors.Unavailable.status else None
        responses[str(status)] = _refusal(list(classes), failing)
    return responses


def _refusal(classes: list[type[EncError]], failing: Schema | None) -> Schema:
    """Return the response for these errors, which share a status."""
    codes = {"properties": {"code": {"enum": [error.code for error in classes]}}}
    schema = {"allOf": [ref("Error"), codes]}
    response: Schema = {
        "description": "\n".join(f"- `{error.code}`: {MEANINGS[error]}" for error in classes),
        "content": _content(_any([schema, failing] if failing else [schema])),
    }
    if classes[0].status in (errors.RateLimited.status, errors.Unavailable.status):
        seconds = {"type": "integer", "minimum": 1}
        response["headers"] = {
            "Retry-After": {"required": failing is None, "description": "Seconds.", "schema": seconds}
        }
    return response


def _any(schemas: Iterable[Schema]) -> Schema:
    found = list(schemas)
    return {"anyOf": found} if len(found) > 1 else found[0]


def _content(schema: Schema) -> Schema:
    return {"application/json": {"schema": schema}}
