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

from msgspec import Struct

from enc.core.errors import WIRE_ERRORS
from enc.core.log import filter as filters
from enc.core.log.commit import WireProposal
from enc.core.log.event import WireEvent
from enc.core.log.filter import WireFilter, WireRange
from enc.core.log.receipt import WireReceipt
from enc.core.primitives.sealing import NONCE_SIZE, TAG_SIZE
from enc.core.registry import reg_entry
from enc.core.session.envelope import WireAnswer, WireRequest
from enc.core.session.session import TOKEN_SIZE
from enc.core.trees.proof import WireBundleProof, WireConsistency, WireInclusion, WireStateProof
from enc.core.trees.sparse_merkle import DEPTH, KEY_SIZE
from enc.core.trees.tree_head import WireHead
from enc.node import config
from enc.node.api.registry import MAX_PAGE_ENCLAVES, MAX_SEARCH
from enc.node.api.subscriptions import Reason
from enc.node.api.websocket import MAX_SUB_ID
from enc.node.imports.orders import ImportStatus, WireImportOrder
from enc.node.openapi.shapes import (
    HASH,
    INTEGER,
    KEY,
    NULLABLE_INTEGER,
    PATH,
    SEALED,
    STH,
    TOKEN,
    Schema,
    array,
    base64_pattern,
    derived,
    enum,
    hex_string,
    integer,
    one_or_array,
    properties_of,
    ref,
    shape,
    text,
)
from enc.node.read import bodies
from enc.node.read.deliveries import MAX_ENDPOINTS, DeliveriesBody, EndpointKey
from enc.node.read.pulls import MAX_BATCHES, MAX_NUMBERS, PullBody, PushSeqRange
from enc.node.read.sealed_requests import MAX_KEYS
from enc.node.sequence.checkpoint import MAX_HOLD_MS

INFO_LIMITS = "content manifest body type tags tag_strings tag_string page_bytes subscriptions_per_connection".split()
"""The limits that /info shows."""


LIMITS, IMPORTS = properties_of(config.Limits)[0], properties_of(config.Imports)[0]
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
        "Whether a write reaches the disk.",
        {"status": enum("As the status of the response.", "ok", "failing"), "reason?": text("Why it fails.")},
    ),
}

# Sealed plaintexts: `X.body` inside a request of type X, `X.answer` inside the answer to it.

_INCLUSION = derived(WireInclusion, {"events_root": HASH, "state_hash": HASH})
_MEMBER = derived(WireBundleProof, {"leaf_index": INTEGER, "s": PATH, "events_root": HASH})
_VALUE: Schema = {"type": ["string", "null"], "pattern": "^(00|[0-9a-f]{64})$", "description": "null: no leaf."}
_STATE = derived(WireStateProof, {"k": ref("TreeKey"), "v": _VALUE, "b": ref("Bitmap"), "s": array(HASH, DEPTH)})
_ROOT: Schema = {
    "state_hash": HASH,
    "leaf_index": {**NULLABLE_INTEGER, "description": "null: the root is in no bundle yet."},
    "inclusion?": ref("Inclusion"),
    **STH,
}


def _body(meaning: str, struct: type[Struct], overrides: Schema | None = None) -> Schema:
    """Return the schema of a sealed body: the fields of its struct, and those that every body has."""
    common = {"session": TOKEN, "type?": text("As outside.")}
    return shape(meaning, {**common, **derived(struct, overrides)}, is_open=True)


_PARTS: Schema = {
    "Range": shape("Numbers that satisfy all given bounds.", derived(WireRange)),
    "Filter": shape(
        "Fields are joined by AND, the values of a list by OR; an absent field matches everything.",
        derived(
            WireFilter,
            {
                "id": one_or_array(HASH, filters.MAX_IDS),
                "seq": one_or_array(INTEGER, filters.MAX_SEQS, ref("Range")),
                "type": one_or_array(text("A type."), filters.MAX_TYPES),
                "from": one_or_array(KEY, filters.MAX_AUTHORS),
                "tags": {
                    "type": "object",
                    "maxProperties": filters.MAX_TAGS,
                    "additionalProperties": one_or_array(text("A value."), filters.MAX_TAG_VALUES, {"const": True}),
                    "description": "By a tag's name: its value, one of several, or true for its presence.",
                },
                "timestamp": ref("Range"),
                "limit": {**integer("Most events.", 1, filters.MAX_LIMIT), "default": filters.DEFAULT_LIMIT},
                "reverse": {"type": "boolean", "default": False, "description": "By falling seq."},
            },
        ),
    ),
    "Event": shape(
        "A commit that the sequencer ordered and signed. An erased one has a null content, and its hash.",
        derived(WireEvent, {**_PAYLOAD, "content": {"type": ["string", "null"]}}),
    ),
    "Inclusion": shape("Leaf `li`, made of the two roots, is in the log of `ts` leaves.", _INCLUSION),
    "Membership": shape("An event is number `ei` of the `size` events of bundle `leaf_index`.", _MEMBER),
    "State": shape("The sparse tree holds `v` at `k`, or nothing.", _STATE),
    "EventProof": shape(
        "Ties an event and its status to the answer's head.",
        {"bundle": ref("Membership"), "inclusion": ref("Inclusion"), "status": ref("State")},
    ),
    "Item": shape(
        "An event and its current status. `proof` is there if requested, and null while the event's bundle is open.",
        {
            "event": ref("Event"),
            "status": enum("Deleted events are left out.", "active", "updated"),
            "updated_by?": HASH,
            "proof?": {"anyOf": [ref("EventProof"), {"type": "null"}]},
        },
    ),
    "PushedNotice": shape(
        "The latest event in an enclave that is only announced, and the number of the latest of each such type.",
        {
            "enclave": HASH,
            "seq": INTEGER,
            "event_id": HASH,
            "type": text("A type."),
            "timestamp": INTEGER,
            "type_seq": {"type": "object", "additionalProperties": integer("From 1.", 1)},
        },
    ),
    "Batch": shape(
        "The content of one delivery, sealed in a Push; the answer to a Pull repeats it.",
        {
            "push_seq": integer("Its number in the queue of an identity and a URL.", 1),
            "push?": shape(
                "Whole events.",
                {
                    "enclaves": array(
                        shape(
                            "Of one enclave, by rising seq.", {"enclave": HASH, "events": array(ref("Event"), least=1)}
                        ),
                        least=1,
                    )
                },
            ),
            "notify?": shape(
                "Events that are announced without content.", {"enclaves": array(ref("PushedNotice"), least=1)}
            ),
        },
    ),
    "Delivery": shape(
        "An endpoint and its state; `queue`, which spans all enclaves of the node, only for its recipient.",
        {
            "identity": KEY,
            "trait": text("For which it is registered."),
            "url": text("Where it is."),
            "has_dead": {"type": "boolean"},
            "last_error": text("A few words, or empty."),
            "last_error_at": {"type": ["integer", "null"]},
            "queue?": shape(
                "Of batches.",
                {
                    "push_seq": integer("Of the newest batch; 0: none yet.", 0),
                    "waiting": INTEGER,
                    "oldest": {"type": ["integer", "null"], "description": "When the oldest waiting batch was made."},
                    "delivered": INTEGER,
                    "dead": INTEGER,
                },
            ),
        },
    ),
}

_IMPORTS: Schema = {
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

_SEALED: Schema = {
    "Query.body": _body("Which events, and whether with proofs.", bodies.QueryBody, {"filter": ref("Filter")}),
    "Query.answer": shape(
        "The events that match and may be read. `more`: the limit, or the page's size, cut it. With proofs: the head, "
        "and the leaf whose state the statuses are proved under.",
        {"events": array(ref("Item"), filters.MAX_LIMIT), "sth?": ref("TreeHead"), "state?": ref("Inclusion")}
        | {"more?": {"const": True}},
    ),
    "Inclusion_Proof.body": _body("Which leaf, of a log of which size.", bodies.InclusionBody),
    "Inclusion_Proof.answer": shape("An inclusion proof with the head of its size.", {**_INCLUSION, **STH}),
    "Bundle_Proof.body": {
        **_body("One of both.", bodies.BundleBody),
        "oneOf": [{"required": ["event_id"]}, {"required": ["leaf_index"]}],
    },
    "Bundle_Proof.answer": {
        "anyOf": [
            shape("By event_id: its place in its bundle.", {**_MEMBER, **STH}),
            shape(
                "By leaf_index: the ids of all events of the bundle.",
                {"leaf_index": INTEGER, "first_seq": INTEGER, "ids": array(HASH, least=1), "events_root": HASH, **STH},
            ),
        ]
    },
    "State_Proof.body": _body("Which key, and as of when.", bodies.StateBody),
    "State_Proof.answer": shape("A state proof, and what ties its root to the head.", {**_STATE, **_ROOT}),
    "State_Batch.body": _body(
        "Which keys, and as of when.",
        bodies.StateBatchBody,
        {"keys": array(shape("", derived(bodies.StateKey), is_open=True), MAX_KEYS, least=1)},
    ),
    "State_Batch.answer": shape(
        "State proofs under one root, in the order of the keys.",
        {"proofs": array(ref("State"), MAX_KEYS, least=1), **_ROOT},
    ),
    "Checkpoint.body": _body(
        "For how long to hold the enclave for a Migrate.",
        bodies.CheckpointBody,
        {"hold": integer("Seconds.", 0, MAX_HOLD_MS // 1000)},
    ),
    "Checkpoint.answer": shape("What a Migrate must name.", {"seq": INTEGER, "ct_root": HASH}),
    "Export.body": _body(
        "From which event on, and how many at most.",
        bodies.ExportBody,
        {"limit": integer("Events.", 1, filters.MAX_LIMIT)},
    ),
    "Export.answer": shape(
        "Events by rising seq, deleted ones without their contents. `seq`: the log's last; there is more before it.",
        {"events": array(ref("Event"), filters.MAX_LIMIT), "seq": INTEGER, **STH},
    ),
    "Pull.body": _body(
        "Which batches of the asker's queue for a URL; with `enclave`, only what is of that one.",
        PullBody,
        {
            "push_seq": {
                "anyOf": [
                    INTEGER,
                    array(INTEGER, MAX_NUMBERS, least=1),
                    shape("Those after one number, up to another.", derived(PushSeqRange)),
                ]
            }
        },
    ),
    "Pull.answer": {
        **array(ref("Batch"), MAX_BATCHES),
        "description": "Batches that are kept, by rising push_seq, as many as fit a page; ask again after the last.",
    },
    "Deliveries.body": _body(
        "From the first endpoint on, or after one.",
        DeliveriesBody,
        {"after": shape("The last of the previous page.", derived(EndpointKey), is_open=True)},
    ),
    "Deliveries.answer": shape(
        "Endpoints by identity and trait. `more`: there are others after them.",
        {"endpoints": array(ref("Delivery"), MAX_ENDPOINTS), "more?": {"const": True}},
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


_WITH_PROOF: Schema = {"proof?": ref("LookupProof")}
_NODE: Schema = {
    "seq_pub": KEY,
    "endpoints": {
        **array(
            shape("Where it is reached.", {"uri": text("", 1, reg_entry.MAX_URI), "priority": INTEGER}),
            reg_entry.MAX_ENDPOINTS,
            1,
        ),
        "description": "The preferred one first: lower is preferred.",
    },
    "protocols": array(text("", 1, reg_entry.MAX_LABEL), reg_entry.MAX_PROTOCOLS),
    "enc_v": integer("Version of the protocol.", 1),
    "entry": ref("Entry"),
}
_ENCLAVE: Schema = {
    "enclave_id": HASH,
    "sequencer": KEY,
    "creator": KEY,
    "created_at": INTEGER,
    "app": text("Empty: none was given.", 0, reg_entry.MAX_LABEL),
    "desc": text("", 0, reg_entry.MAX_DESC),
    "meta": {"type": "object", "description": f"At most {reg_entry.MAX_META} bytes, defined by the application."},
    "holder": KEY,
    "proved_size": INTEGER,
    "entry": ref("Entry"),
}
_LOOKUPS: Schema = {
    "Entry": shape(
        "The event of the registry, itself an enclave, that an answer rests on.",
        {"enclave": HASH, "id": HASH, "seq": INTEGER, "timestamp": INTEGER},
    ),
    "LookupProof": shape(
        "The entries with their proofs, as in the answer to a Query with `proof`.",
        {"events": array(ref("Item"), 2, 1), "sth": ref("TreeHead"), "state?": ref("Inclusion")},
    ),
    "NodeEntry": shape("A registered node.", _NODE),
    "EnclaveEntry": shape("A registered enclave: `sequencer` hosts it, `holder` may replace the entry.", _ENCLAVE),
    "NodeLookup": shape("A registered node.", {**_NODE, **_WITH_PROOF}),
    "EnclaveLookup": shape("A registered enclave.", {**_ENCLAVE, **_WITH_PROOF}),
    "Resolved": shape(
        "An enclave and the node that hosts it.",
        {"enclave": ref("EnclaveEntry"), "node": ref("NodeEntry"), **_WITH_PROOF},
    ),
    "IdentityLookup": shape(
        "A registered identity, with its enclaves by label, and the key that others seal to.",
        {
            "id_pub": KEY,
            "enclaves": {"type": "object", "additionalProperties": HASH, "maxProperties": reg_entry.MAX_ENCLAVES},
            "sub_pub?": KEY,
            "entry": ref("Entry"),
            **_WITH_PROOF,
        },
    ),
    "EnclaveList": shape(
        "Enclaves by rising id. `next` is the `after` of the next page, which may exist though this one is short.",
        {"enclaves": array(ref("EnclaveEntry"), MAX_PAGE_ENCLAVES), "next?": HASH},
    ),
    "Flag": enum("Whether to include proofs.", "0", "1"),
    "App": text("An app's identifier.", 1, reg_entry.MAX_LABEL),
    "Words": text("What to search for.", 1, MAX_SEARCH),
    "PageSize": integer("Most enclaves of a page.", 1, MAX_PAGE_ENCLAVES),
}

SCHEMAS: Schema = _BASIC | _IMPORTS | _PLAIN | _PARTS | _SEALED | MESSAGES | _LOOKUPS
