"""JSON Schemas, by name, of what stands on the wire and of what is sealed inside it.

Bounds are read from the code that enforces them. What the node sends has no field but those listed; what a peer sends
may have more, which is ignored, but for filters and ranges.
"""

from typing import Any, get_args

import msgspec

from enc.core import filter as filters
from enc.core import reg_entry
from enc.core.encoding import MAX_INT
from enc.core.errors import WIRE_ERRORS
from enc.core.proof import MAX_PATH
from enc.core.sealing import NONCE_SIZE, TAG_SIZE
from enc.core.session import TOKEN_SIZE
from enc.core.signing import Alg
from enc.core.sparse_merkle import DEPTH, KEY_SIZE
from enc.core.state_key import Namespace
from enc.node import config
from enc.node.answers import MAX_KEYS
from enc.node.api_ws import MAX_SUB_ID
from enc.node.deliveries import MAX_ENDPOINTS
from enc.node.pulls import MAX_BATCHES, MAX_NUMBERS
from enc.node.registry_api import MAX_PAGE_ENCLAVES, MAX_SEARCH
from enc.node.sequencer import MAX_HOLD_MS
from enc.node.subscriptions import Reason

Schema = dict[str, Any]

IMPORTS: dict[str, Schema] = msgspec.json.schema(config.Imports)["$defs"]["Imports"]["properties"]
LIMITS: dict[str, Schema] = msgspec.json.schema(config.Limits)["$defs"]["Limits"]["properties"]
"""What an operator may limit, with its meaning and the bounds of the limit."""

SHOWN = "content manifest body type tags tag_strings tag_string page_bytes subscriptions_per_connection".split()
"""The limits that /info shows."""


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def shape(meaning: str, fields: Schema, *, is_open: bool = False) -> Schema:
    """An object. A field whose name ends in `?` may be absent; an open object may have further fields."""
    schema: Schema = {
        "type": "object",
        "description": meaning,
        "properties": {name.removesuffix("?"): field for name, field in fields.items()},
        "required": [name for name in fields if not name.endswith("?")],
    }
    return schema if is_open else {**schema, "additionalProperties": False}


def _hex(size: int, meaning: str) -> Schema:
    return {"type": "string", "pattern": f"^[0-9a-f]{{{2 * size}}}$", "description": meaning}


def _base64(least: int) -> str:
    """A pattern for `least` bytes or more, with padding and no stray bits."""
    last = "[A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=|[A-Za-z0-9+/][AQgw]=="
    return f"^([A-Za-z0-9+/]{{4}}){{{(least + 2) // 3 - 1},}}({last})$"


def _integer(meaning: str, low: int = 0, high: int = MAX_INT) -> Schema:
    return {"type": "integer", "minimum": low, "maximum": high, "description": meaning}


def _text(meaning: str, least: int = 0, most: int | None = None) -> Schema:
    schema: Schema = {"type": "string", "minLength": least, "description": meaning}
    return schema if most is None else {**schema, "maxLength": most}


def _word(meaning: str, *words: str) -> Schema:
    return {"type": "string", "enum": list(words), "description": meaning}


def _list(of: Schema, most: int | None = None, least: int = 0) -> Schema:
    schema: Schema = {"type": "array", "items": of, "minItems": least}
    return schema if most is None else {**schema, "maxItems": most}


def _one_or_list(of: Schema, most: int, *others: Schema) -> Schema:
    return {"anyOf": [of, _list(of, most), *others]}


def _most(limit: str) -> int:
    most: int = LIMITS[limit]["maximum"]
    return most


HASH, KEY, SIGNATURE, INTEGER, SEALED = map(ref, ("Hash", "PublicKey", "Signature", "Integer", "Sealed"))
PATH = _list(HASH, MAX_PATH)
STH = {"sth": ref("TreeHead")}

_WORDS: Schema = {
    "Hash": _hex(32, "32 bytes in lower-case hex: a hash, or an id."),
    "PublicKey": _hex(32, "An identity: an x-only secp256k1 public key."),
    "Signature": _hex(64, "64 bytes in lower-case hex."),
    "Token": _hex(TOKEN_SIZE, "A session token: r, session_pub, expires."),
    "TreeKey": _hex(KEY_SIZE, "A key of the sparse tree: its namespace, and 20 bytes of a hash."),
    "Bitmap": _hex(KEY_SIZE, "One bit for each depth of the sparse tree: whether `s` has a sibling for it."),
    "Integer": _integer("A time in Unix milliseconds, a sequence number or a size; without fraction or exponent."),
    "Sealed": {
        "type": "string",
        "contentEncoding": "base64",
        "pattern": _base64(NONCE_SIZE + TAG_SIZE),
        "description": "Standard base64 with padding of nonce (24 bytes), XChaCha20-Poly1305 ciphertext and tag (16).",
    },
    "Code": _word("A code of the protocol.", *sorted(WIRE_ERRORS)),
    "SubscriptionId": _text("Names a subscription on its connection.", 1, MAX_SUB_ID),
}

_COMMIT: Schema = {
    "hash": HASH,
    "enclave": HASH,
    "from": KEY,
    "type": _text("The event's type.", 1, _most("type")),
    "content": _text("The payload, kept byte for byte.", 0, _most("content")),
    "exp": INTEGER,
    "tags?": _list(_list(_text("", 0, _most("tag_string")), _most("tag_strings"), least=1), _most("tags")),
    "alg?": _word("The algorithm of `sig`; absent: schnorr.", *get_args(Alg)),
    "sig": SIGNATURE,
}
_SEQUENCED: Schema = {"id": HASH, "timestamp": INTEGER, "sequencer": KEY, "seq": INTEGER, "seq_sig": SIGNATURE}

_ERROR: Schema = {
    "type": {"const": "Error"},
    "code": ref("Code"),
    "message": _text("For people; a refusal names the field."),
    "receipt?": ref("Receipt"),
    "expected?": _text("With STATE_MISMATCH: the State that the Move names."),
    "actual?": _text("With STATE_MISMATCH: the State that the target is in."),
    "failed_index?": _integer("With AC_BUNDLE_FAILED: which operation failed, by `reason`."),
    "reason?": ref("Code"),
    "alias?": _text("With GATE_CLOSED: the gate."),
    "seq?": _integer("With CHECKPOINT_MISMATCH, as `ct_root`: where the log stands."),
    "ct_root?": HASH,
    "new_sequencer?": KEY,
    "retry_after_ms?": _integer("With EVENT_PENDING, RATE_LIMITED and UNAVAILABLE: when to try again."),
}

_PLAIN: Schema = {
    "Commit": shape(
        "What a client proposes and signs. Lengths are counted in bytes of UTF-8; /info has this node's own limits.",
        _COMMIT,
        is_open=True,
    ),
    "Receipt": shape(
        "The commit is now an event, and durable. It names no enclave.",
        {"type": {"const": "Receipt"}, "hash": HASH, "sig": SIGNATURE, "alg?": _COMMIT["alg?"], **_SEQUENCED},
    ),
    "Error": shape("A refusal: `code` for programs, `message` for people, further fields by code.", _ERROR),
    "Response": shape("A sealed answer.", {"type": {"const": "Response"}, "content": SEALED}),
    "TreeHead": shape(
        "The signed root of the closed bundles. `t` is when the log reached that size; only `bound_sig` binds the "
        "enclave.",
        {"t": INTEGER, "ts": INTEGER, "r": HASH, "sig": SIGNATURE, "bound_sig": SIGNATURE},
    ),
    "Consistency": shape(
        "The log of `ts1` bundles is a prefix of that of `ts2`, whose head is `sth`.",
        {"ts1": INTEGER, "ts2": INTEGER, "p": PATH, **STH},
    ),
    "Info": shape(
        "What this node is, and what it takes.",
        {
            "seq_pub": KEY,
            "software": shape("What runs here.", {"name": {"const": "enc"}, "version": _text("Its version.")}),
            "enc_v": {**_list(_integer("", 1)), "description": "Versions of the enclaves that it hosts."},
            "url": {"type": ["string", "null"], "description": "Where it is reached from outside, if it was told."},
            "create": _word("Who may found enclaves here.", *get_args(config.Creation)),
            "imports": shape(
                "What it takes in of enclaves that are moved to it.",
                {name: IMPORTS[name] for name in ("at_once", "archive_bytes", "total_bytes")},
            ),
            "registry": {
                "anyOf": [HASH, {"type": "null"}],
                "description": "The registry that it answers lookups from.",
            },
            "limits": shape("No peer may send or open more.", {name: LIMITS[name] for name in SHOWN}),
        },
    ),
    "Health": shape(
        "Whether a write reaches the disk.",
        {"status": _word("As the status of the response.", "ok", "failing"), "reason?": _text("Why it fails.")},
    ),
}

# What is sealed: `X.body` inside a request of type X, `X.answer` inside the answer to it.

_INCLUSION: Schema = {"ts": INTEGER, "li": INTEGER, "p": PATH, "events_root": HASH, "state_hash": HASH}
_MEMBER: Schema = {"leaf_index": INTEGER, "ei": INTEGER, "s": PATH, "size": INTEGER, "events_root": HASH}
_VALUE: Schema = {"type": ["string", "null"], "pattern": "^(00|[0-9a-f]{64})$", "description": "null: no leaf."}
_STATE: Schema = {"k": ref("TreeKey"), "v": _VALUE, "b": ref("Bitmap"), "s": _list(HASH, DEPTH)}
_GROUND: Schema = {
    "state_hash": HASH,
    "leaf_index": {"type": ["integer", "null"], "minimum": 0, "description": "null: the root is in no bundle yet."},
    "inclusion?": ref("Inclusion"),
    **STH,
}
_STATE_KEY: Schema = {"namespace": _word("What the key names.", *get_args(Namespace)), "key": HASH}
_WHEN: Schema = {
    "tree_size?": INTEGER,
    "mode?": _word("Without tree_size: after the last closed bundle (default), or now.", "verified", "current"),
}
_BODY: Schema = {"session": ref("Token"), "type?": _text("As outside.")}


def _body(meaning: str, fields: Schema) -> Schema:
    return shape(meaning, {**_BODY, **fields}, is_open=True)


_PARTS: Schema = {
    "Range": shape(
        "Numbers that satisfy all that is given.",
        dict.fromkeys(("start_at?", "start_after?", "end_at?", "end_before?"), INTEGER),
    ),
    "Filter": shape(
        "Fields are joined by AND, the values of a list by OR; an absent field matches everything.",
        {
            "id?": _one_or_list(HASH, filters.MAX_IDS),
            "seq?": _one_or_list(INTEGER, filters.MAX_SEQS, ref("Range")),
            "type?": _one_or_list(_text("A type."), filters.MAX_TYPES),
            "from?": _one_or_list(KEY, filters.MAX_AUTHORS),
            "tags?": {
                "type": "object",
                "maxProperties": filters.MAX_TAGS,
                "additionalProperties": _one_or_list(_text("A value."), filters.MAX_TAG_VALUES, {"const": True}),
                "description": "By a tag's name: its value, one of several, or true for its presence.",
            },
            "timestamp?": ref("Range"),
            "limit?": {**_integer("Most events.", 1, filters.MAX_LIMIT), "default": filters.DEFAULT_LIMIT},
            "reverse?": {"type": "boolean", "default": False, "description": "By falling seq."},
        },
    ),
    "Event": shape(
        "A commit that the sequencer ordered and signed. An erased one has a null content, and its hash.",
        {**_COMMIT, "content": {"type": ["string", "null"]}, **_SEQUENCED, "content_hash?": HASH},
    ),
    "Inclusion": shape("Leaf `li`, made of the two roots, is in the log of `ts` leaves.", _INCLUSION),
    "Membership": shape("An event is number `ei` of the `size` events of bundle `leaf_index`.", _MEMBER),
    "State": shape("The sparse tree holds `v` at `k`, or nothing.", _STATE),
    "EventProof": shape(
        "Ties an event and its status to the answer's head.",
        {"bundle": ref("Membership"), "inclusion": ref("Inclusion"), "status": ref("State")},
    ),
    "Item": shape(
        "An event as it stands now. `proof` is there if it was asked for, and null while the event's bundle is open.",
        {
            "event": ref("Event"),
            "status": _word("Deleted events are left out.", "active", "updated"),
            "updated_by?": HASH,
            "proof?": {"anyOf": [ref("EventProof"), {"type": "null"}]},
        },
    ),
    "PushedNotice": shape(
        "The latest event told of in an enclave, and the number of the latest of each type told of.",
        {
            "enclave": HASH,
            "seq": INTEGER,
            "event_id": HASH,
            "type": _text("A type."),
            "timestamp": INTEGER,
            "type_seq": {"type": "object", "additionalProperties": _integer("From 1.", 1)},
        },
    ),
    "Batch": shape(
        "What one delivery holds, sealed in a Push; the same again in the answer to a Pull.",
        {
            "push_seq": _integer("Its number in the queue of an identity and a URL.", 1),
            "push?": shape(
                "Whole events.",
                {
                    "enclaves": _list(
                        shape(
                            "Of one enclave, by rising seq.", {"enclave": HASH, "events": _list(ref("Event"), least=1)}
                        ),
                        least=1,
                    )
                },
            ),
            "notify?": shape("Events that are only told of.", {"enclaves": _list(ref("PushedNotice"), least=1)}),
        },
    ),
    "Delivery": shape(
        "An endpoint and how it fares; for its recipient alone its queue, which is one for all enclaves of the node.",
        {
            "identity": KEY,
            "trait": _text("For which it is registered."),
            "url": _text("Where it is."),
            "has_dead": {"type": "boolean"},
            "last_error": _text("A few words, or nothing."),
            "last_error_at": {"type": ["integer", "null"]},
            "queue?": shape(
                "Of batches.",
                {
                    "push_seq": _integer("Of the newest batch; 0: none yet.", 0),
                    "waiting": INTEGER,
                    "oldest": {"type": ["integer", "null"], "description": "When the oldest that waits was made."},
                    "delivered": INTEGER,
                    "dead": INTEGER,
                },
            ),
        },
    ),
}

_IMPORTS: Schema = {
    "ImportOrder": shape(
        "The owner's Migrate to this node, final, and the node that has the log. As `application/x-enc-import` the "
        "first line of the body is this without a source, with the Migrate final or not, and the archive is the rest.",
        {"migrate": {"anyOf": [ref("Event"), ref("Commit")]}, "source?": _text("The other node's URL.")},
    ),
    "Import": shape(
        "How an import stands. `receipt`: the Migrate's, once it is done. `error`: why it failed.",
        {
            "import": HASH,
            "enclave": HASH,
            "status": _word("", "running", "done", "failed"),
            "events": _integer("Those that were replayed."),
            "total": _integer("Those of the whole log, with the Migrate."),
            "receipt?": ref("Receipt"),
            "error?": shape(
                "The rule that was broken, and where.",
                {"code": _text("Of the rule."), "message": _text("For people."), "seq?": INTEGER},
                is_open=True,
            ),
        },
    ),
}

_SEALED: Schema = {
    "Query.body": _body(
        "Which events, and whether with proofs.", {"filter": ref("Filter"), "proof?": {"type": "boolean"}}
    ),
    "Query.answer": shape(
        "The events that match and may be read. `more`: the limit, or the page's size, cut it. With proofs: the head, "
        "and the leaf whose state the statuses are proved under.",
        {"events": _list(ref("Item"), filters.MAX_LIMIT), "sth?": ref("TreeHead"), "state?": ref("Inclusion")}
        | {"more?": {"const": True}},
    ),
    "Inclusion_Proof.body": _body(
        "Which leaf, of a log of which size.", {"leaf_index": INTEGER, "tree_size?": INTEGER}
    ),
    "Inclusion_Proof.answer": shape("An inclusion proof with the head of its size.", {**_INCLUSION, **STH}),
    "Bundle_Proof.body": {
        **_body("One of both.", {"event_id?": HASH, "leaf_index?": INTEGER}),
        "oneOf": [{"required": ["event_id"]}, {"required": ["leaf_index"]}],
    },
    "Bundle_Proof.answer": {
        "anyOf": [
            shape("Asked by event_id: its place in its bundle.", {**_MEMBER, **STH}),
            shape(
                "Asked by leaf_index: the ids of all events of the bundle.",
                {"leaf_index": INTEGER, "first_seq": INTEGER, "ids": _list(HASH, least=1), "events_root": HASH, **STH},
            ),
        ]
    },
    "State_Proof.body": _body("Which key, and as of when.", {**_STATE_KEY, **_WHEN}),
    "State_Proof.answer": shape("A state proof, and what ties its root to the head.", {**_STATE, **_GROUND}),
    "State_Batch.body": _body(
        "Which keys, and as of when.", {"keys": _list(shape("", _STATE_KEY, is_open=True), MAX_KEYS, least=1), **_WHEN}
    ),
    "State_Batch.answer": shape(
        "State proofs under one root, in the order of the keys.",
        {"proofs": _list(ref("State"), MAX_KEYS, least=1), **_GROUND},
    ),
    "Checkpoint.body": _body(
        "For how long to hold the enclave for a Migrate.", {"hold?": _integer("Seconds.", 0, MAX_HOLD_MS // 1000)}
    ),
    "Checkpoint.answer": shape("What a Migrate must name.", {"seq": INTEGER, "ct_root": HASH}),
    "Export.body": _body(
        "From which event on, and how many at most.",
        {"from_seq?": INTEGER, "limit?": _integer("Events.", 1, filters.MAX_LIMIT)},
    ),
    "Export.answer": shape(
        "Events by rising seq, deleted ones without their contents. `seq`: the log's last; there is more before it.",
        {"events": _list(ref("Event"), filters.MAX_LIMIT), "seq": INTEGER, **STH},
    ),
    "Pull.body": _body(
        "Which batches of the asker's queue for a URL; with `enclave`, only what is of that one.",
        {
            "url": _text("As it was registered."),
            "push_seq": {
                "anyOf": [
                    INTEGER,
                    _list(INTEGER, MAX_NUMBERS, least=1),
                    shape("Those after one number, up to another.", {"start_after?": INTEGER, "end_at?": INTEGER}),
                ]
            },
            "enclave?": HASH,
        },
    ),
    "Pull.answer": {
        **_list(ref("Batch"), MAX_BATCHES),
        "description": "Those that are kept, by rising push_seq, as many as one page holds; ask again after the last.",
    },
    "Deliveries.body": _body(
        "From the first endpoint on, or after one.",
        {
            "after?": shape(
                "The last of the page before.", {"identity": KEY, "trait": _text("Its trait.")}, is_open=True
            )
        },
    ),
    "Deliveries.answer": shape(
        "Endpoints by identity and trait. `more`: there are others after them.",
        {"endpoints": _list(ref("Delivery"), MAX_ENDPOINTS), "more?": {"const": True}},
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
            {"sub_id": ref("SubscriptionId"), "reason": _word("Why.", *get_args(Reason))},
        ),
        ("Notice", "For people.", {"message": _text("What the node has to say.")}),
        (
            "Error",
            "A refusal; of a commit with its `hash`, of a Query with the `sub_id` that it offered.",
            {**_ERROR, "hash?": HASH, "sub_id?": {"type": "string"}},
        ),
    )
}


def request(type_: str, meaning: str) -> Schema:
    """The plain outside of a sealed request."""
    fields = {"type": {"const": type_}, "enclave": HASH, "from": KEY, "session": ref("Token"), "content": SEALED}
    return shape(meaning, fields, is_open=True)


_PROVED: Schema = {"proof?": ref("LookupProof")}
_NODE: Schema = {
    "seq_pub": KEY,
    "endpoints": {
        **_list(
            shape("Where it is reached.", {"uri": _text("", 1, reg_entry.MAX_URI), "priority": INTEGER}),
            reg_entry.MAX_ENDPOINTS,
            1,
        ),
        "description": "The preferred one first: lower is preferred.",
    },
    "protocols": _list(_text("", 1, reg_entry.MAX_LABEL), reg_entry.MAX_PROTOCOLS),
    "enc_v": _integer("Version of the protocol.", 1),
    "entry": ref("Entry"),
}
_ENCLAVE: Schema = {
    "enclave_id": HASH,
    "sequencer": KEY,
    "creator": KEY,
    "created_at": INTEGER,
    "app": _text("Empty: none was given.", 0, reg_entry.MAX_LABEL),
    "desc": _text("", 0, reg_entry.MAX_DESC),
    "meta": {"type": "object", "description": f"At most {reg_entry.MAX_META} bytes, the application's own."},
    "holder": KEY,
    "proved_size": INTEGER,
    "entry": ref("Entry"),
}
_LOOKUPS: Schema = {
    "Entry": shape(
        "The event of the registry, an enclave too, that an answer rests on.",
        {"enclave": HASH, "id": HASH, "seq": INTEGER, "timestamp": INTEGER},
    ),
    "LookupProof": shape(
        "The entries with their proofs, as a Query with `proof` answers them.",
        {"events": _list(ref("Item"), 2, 1), "sth": ref("TreeHead"), "state?": ref("Inclusion")},
    ),
    "NodeEntry": shape("A node that is registered.", _NODE),
    "EnclaveEntry": shape(
        "An enclave that is registered: `sequencer` has it, `holder` may replace the entry.", _ENCLAVE
    ),
    "NodeLookup": shape("A node that is registered.", {**_NODE, **_PROVED}),
    "EnclaveLookup": shape("An enclave that is registered.", {**_ENCLAVE, **_PROVED}),
    "Resolved": shape(
        "An enclave and the node that has it.",
        {"enclave": ref("EnclaveEntry"), "node": ref("NodeEntry"), **_PROVED},
    ),
    "IdentityLookup": shape(
        "An identity that is registered, with its enclaves by label, and the key that others seal to.",
        {
            "id_pub": KEY,
            "enclaves": {"type": "object", "additionalProperties": HASH, "maxProperties": reg_entry.MAX_ENCLAVES},
            "sub_pub?": KEY,
            "entry": ref("Entry"),
            **_PROVED,
        },
    ),
    "EnclaveList": shape(
        "Enclaves by rising id. `next` is the `after` of the next page, which may be there though this one is short.",
        {"enclaves": _list(ref("EnclaveEntry"), MAX_PAGE_ENCLAVES), "next?": HASH},
    ),
    "Flag": _word("Whether to bring proofs.", "0", "1"),
    "App": _text("An app's identifier.", 1, reg_entry.MAX_LABEL),
    "Words": _text("What to look for.", 1, MAX_SEARCH),
    "PageSize": _integer("Most enclaves of a page.", 1, MAX_PAGE_ENCLAVES),
}

SCHEMAS: Schema = _WORDS | _IMPORTS | _PLAIN | _PARTS | _SEALED | MESSAGES | _LOOKUPS
