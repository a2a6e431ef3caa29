"""JSON Schemas, by name, of all messages on the wire and of the plaintexts sealed inside them.

Where the node decodes or encodes a message with a msgspec struct, the schema is derived from it: its
fields, which of them are required, and whether others are allowed. Python types say less than the
kernel checks, so `shapes.FIELDS` adds the format of a field by its name, and single fields are overridden
with their bounds, which are read from the code that enforces them.

Written by hand are the messages without a struct: errors, whose fields come from the error's class;
answers that handlers assemble from stored JSON and proofs as dicts (/info, /health, registry
lookups, Query, proofs, Pull and Deliveries); and the node's own WebSocket messages. The node sends
no fields but those listed; what a peer sends may have more, which the node ignores, except in
filters, ranges and import orders.
"""

from typing import get_args

from enc.core.errors import WIRE_ERRORS
from enc.core.log.commit import WireProposal
from enc.core.log.event import WireEvent
from enc.core.log.receipt import WireReceipt
from enc.core.log.withheld import WireWithheld
from enc.core.primitives.sealing import NONCE_SIZE, TAG_SIZE
from enc.core.registry.evacuation import WireEvacuation
from enc.core.registry.warm_copy_order import MAX_ENCLAVES, WireOrder
from enc.core.session.envelope import WireAnswer, WireRequest
from enc.core.session.session import TOKEN_SIZE
from enc.core.trees.proof import WireConsistency
from enc.core.trees.sparse_merkle import KEY_SIZE
from enc.core.trees.tree_head import WireHead
from enc.node import config
from enc.node.api.subscriptions import Reason
from enc.node.api.warm_copies import WireConfirmation
from enc.node.api.websocket import MAX_SUB_ID
from enc.node.imports.orders import ImportStatus, WireImportOrder
from enc.node.openapi.lookup_schemas import LOOKUP_SCHEMAS
from enc.node.openapi.sealed_schemas import PARTS, PLAINTEXTS
from enc.node.openapi.shapes import (
    HASH,
    INTEGER,
    KEY,
    NULLABLE_INTEGER,
    SEALED,
    STH,
    Schema,
    array,
    base64_pattern,
    derived,
    enum,
    hex_string,
    integer,
    properties_of,
    ref,
    shape,
    text,
)
from enc.node.ops import readiness

INFO_LIMITS = (
    "content manifest body commits_per_request type tags tag_strings tag_string page_bytes subscriptions_per_connection"
).split()
"""The limits that /info shows."""


LIMITS, IMPORTS = properties_of(config.LimitSettings)[0], properties_of(config.ImportSettings)[0]
"""What an operator may limit, with its meaning and the bounds of the limit."""


def _most(limit: str) -> int:
    most: int = LIMITS[limit]["maximum"]
    return most


_BASIC: Schema = {
    "Hash": hex_string(32, "32 bytes in lower-case hex: a hash, or an id."),
    "PublicKey": hex_string(32, "An identity: an x-only secp256k1 public key."),
    "Signature": hex_string(64, "64 bytes in lower-case hex."),
    "Token": hex_string(TOKEN_SIZE, "A session token: r, session_pub, expires."),
    "TreeKey": hex_string(KEY_SIZE, "A key of the sparse tree: its namespace, and 20 bytes of a hash."),
    "Bitmap": hex_string(KEY_SIZE, "One bit for each depth of the sparse tree: whether `s` has a sibling for it."),
    "Integer": integer("A time in Unix milliseconds, a sequence number or a size; without fraction or exponent."),
    "Sealed": {
        "type": "string",
        "contentEncoding": "base64",
        "pattern": base64_pattern(NONCE_SIZE + TAG_SIZE),
        "description": "Standard base64 with padding of nonce (24 bytes), XChaCha20-Poly1305 ciphertext and tag (16).",
    },
    "Code": enum("An error code of the protocol.", *sorted(WIRE_ERRORS)),
    "SubscriptionId": text("Identifies a subscription on its connection.", 1, MAX_SUB_ID),
}

_PAYLOAD: Schema = {
    "type": text("The event's type.", 1, _most("type")),
    "content": text("The payload, stored byte for byte.", 0, _most("content")),
    "tags": array(array(text("", 0, _most("tag_string")), _most("tag_strings"), least=1), _most("tags")),
}

_ERROR: Schema = {
    "type": {"const": "Error"},
    "code": ref("Code"),
    "message": text("For people; names the field that is wrong."),
    "receipt?": ref("Receipt"),
    "expected?": text("With STATE_MISMATCH: the State that the Move names."),
    "actual?": text("With STATE_MISMATCH: the State that the target is in."),
    "failed_index?": integer("With AC_BUNDLE_FAILED: which operation failed, by `reason`."),
    "reason?": ref("Code"),
    "alias?": text("With GATE_CLOSED: the gate."),
    "seq?": integer("With CHECKPOINT_MISMATCH, as `ct_root`: the end of the log."),
    "ct_root?": HASH,
    "new_sequencer?": KEY,
    "retry_after_ms?": integer("With EVENT_PENDING, RATE_LIMITED and UNAVAILABLE: when to try again."),
}

_PLAIN: Schema = {
    "Commit": shape(
        "What a client proposes and signs. Lengths are counted in bytes of UTF-8; /info has this node's own limits.",
        derived(WireProposal, _PAYLOAD),
        is_open=True,
    ),
    "Receipt": shape(
        "The commit is now an event, and durable. It does not name the enclave.",
        {"type": {"const": "Receipt"}, **derived(WireReceipt)},
    ),
    "CommitResults": shape(
        "What a Commit alone would be answered, for each line of the request, in its order.",
        {"results": array({"anyOf": [ref("Receipt"), ref("Error")]}, _most("commits_per_request"), least=1)},
    ),
    "Event": shape(
        "A commit that the sequencer ordered and signed. An erased one has a null content, and its hash; a withheld "
        "one has the statement of a node, too.",
        derived(WireEvent, {**_PAYLOAD, "content": {"type": ["string", "null"]}, "withheld": ref("Withheld")}),
    ),
    "Withheld": shape(
        "The signed statement of a node that it withholds the content of the event.",
        derived(WireWithheld, {"reason": text("A code such as court_order.", 1, 32), "node": KEY}),
    ),
    "Error": shape("An error: `code` for programs, `message` for people, further fields by code.", _ERROR),
    "Response": shape("A sealed answer.", derived(WireAnswer, {"type": {"const": "Response"}, "content": SEALED})),
    "TreeHead": shape(
        "The signed root of the closed bundles. `t` is when the log reached that size; only `bound_sig` binds the "
        "enclave.",
        derived(WireHead, always=("bound_sig",)),
    ),
    "Consistency": shape(
        "The log of `ts1` bundles is a prefix of that of `ts2`, whose head is `sth`.", derived(WireConsistency, STH)
    ),
    "Info": shape(
        "What this node is, and what it accepts.",
        {
            "seq_pub": KEY,
            "software": shape("What runs here.", {"name": {"const": "enc"}, "version": text("Its version.")}),
            "enc_v": {**array(integer("", 1)), "description": "Versions of the enclaves that it hosts."},
            "url": {"type": ["string", "null"], "description": "Its URL from outside, if configured."},
            "restored": {
                "type": ["string", "null"],
                "description": "If its store is a copy: where the copy is from. The node then serves reads, and signs "
                "nothing until its operator adopts the store.",
            },
            "evacuation": {
                "anyOf": [ref("Evacuation"), {"type": "null"}],
                "description": "That it asks owners to move their enclaves to another node.",
            },
            "create": enum("Who may create enclaves here.", *get_args(config.Creation)),
            "imports": shape(
                "What it accepts of enclaves that are moved to it.",
                {name: IMPORTS[name] for name in ("at_once", "archive_bytes", "total_bytes")},
            ),
            "registry": {
                "anyOf": [HASH, {"type": "null"}],
                "description": "The registry that it answers lookups from.",
            },
            "limits": shape("Most that a peer may send or open.", {name: LIMITS[name] for name in INFO_LIMITS}),
        },
    ),
    "Health": shape(
        "Whether a commit of ordinary size would succeed.",
        {
            "status": enum("`ok` with 200; `restored`: the store is a copy.", "ok", "failing", "restored"),
            "reason?": text("Why it fails: the first message of `reasons`."),
            "reasons?": array(
                shape("A reason.", {"code": enum("What fails.", *get_args(readiness.Code)), "message": text("Why.")})
            ),
        },
    ),
}

_IMPORTS: Schema = {
    "Evacuation": shape(
        "The node's signed request that owners move their enclaves. `to_key`: the key of the node at `to`.",
        derived(
            WireEvacuation,
            {
                "node": KEY,
                "to": text("The other node's URL."),
                "to_key": KEY,
                "since": INTEGER,
                "deadline": NULLABLE_INTEGER,
            },
            always=("deadline",),
        ),
    ),
    "WarmCopyOrder": shape(
        "An order by the node `node` to copy enclaves ahead of their moves, or with `ends` to drop the copies.",
        derived(
            WireOrder,
            {
                "node": KEY,
                "to_key": KEY,
                "at": INTEGER,
                "source": text("The URL of `node`."),
                "enclaves": array(shape("An enclave.", {"enclave": HASH, "seq": INTEGER}), MAX_ENCLAVES),
            },
        ),
    ),
    "WarmCopies": shape(
        "The copies that were ordered.",
        {
            "copies": array(
                shape(
                    "`events`: how many the copy has. `reason`: why there is none, or why it is not continued.",
                    {
                        "enclave": HASH,
                        "status": enum("", "copying", "warm", "failed", "refused"),
                        "events": INTEGER,
                        "reason?": text("For people."),
                    },
                )
            )
        },
    ),
    "Confirmation": shape(
        "The last seq and the checkpoint root of the log, as its owner has them.",
        derived(WireConfirmation, {"enclave": HASH, "seq": INTEGER, "ct_root": HASH}),
    ),
    "Confirmed": shape("Whether the copy is exactly that.", {"confirmed": {"type": "boolean"}}),
    "ImportOrder": shape(
        "The owner's Migrate to this node, finalised, and the node that has the log. As `application/x-enc-import` the "
        "first line of the body is this without a source, with the Migrate final or not, and the archive is the rest.",
        derived(
            WireImportOrder,
            {"migrate": {"anyOf": [ref("Event"), ref("Commit")]}, "source": text("The other node's URL.")},
        ),
    ),
    "Import": shape(
        "Status of an import. `receipt`: the Migrate's, once it is done. `error`: why it failed.",
        derived(
            ImportStatus,
            {
                "status": enum("", "running", "done", "failed"),
                "events": integer("Events replayed."),
                "total": integer("Events of the whole log, with the Migrate."),
                "receipt": ref("Receipt"),
                "error": shape(
                    "The rule that was broken, and where.",
                    {"code": text("Of the rule."), "message": text("For people."), "seq?": INTEGER},
                    is_open=True,
                ),
            },
            always=("events", "total"),
        ),
    ),
}

MESSAGES: Schema = {
    f"WebSocket.{type_}": shape(meaning, {"type": {"const": type_}, **fields}, is_open=type_ == "Close")
    for type_, meaning, fields in (
        ("Close", "Ends a subscription.", {"sub_id": ref("SubscriptionId")}),
        ("Event", "An Item, sealed as answers are.", {"sub_id": ref("SubscriptionId"), "event": SEALED}),
        (
            "EOSE",
            "All stored events were sent. `more`: the filter's limit, or the page's size, cut them.",
            {"sub_id": ref("SubscriptionId"), "more?": {"const": True}},
        ),
        (
            "Closed",
            "The node ended a subscription.",
            {"sub_id": ref("SubscriptionId"), "reason": enum("Why.", *get_args(Reason))},
        ),
        ("Notice", "For people.", {"message": text("The notice.")}),
        (
            "Error",
            "An error; for a commit with its `hash`, for a Query with the `sub_id` that it offered.",
            {**_ERROR, "hash?": HASH, "sub_id?": {"type": "string"}},
        ),
    )
}


def request(type_: str, meaning: str) -> Schema:
    """Return the schema of the plain outside of a sealed request."""
    return shape(meaning, derived(WireRequest, {"type": {"const": type_}, "content": SEALED}), is_open=True)


SCHEMAS: Schema = _BASIC | _IMPORTS | _PLAIN | PARTS | PLAINTEXTS | MESSAGES | LOOKUP_SCHEMAS
