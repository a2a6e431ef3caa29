"""JSON Schemas of the plaintexts of sealed requests and answers, and of their parts."""

from typing import get_args

from msgspec import Struct

from enc.core.log import filter as filters
from enc.core.log.filter import WireFilter, WireRange
from enc.core.trees.proof import WireBundleProof, WireInclusion, WireStateProof
from enc.core.trees.sparse_merkle import DEPTH
from enc.node.openapi.shapes import (
    HASH,
    INTEGER,
    KEY,
    NULLABLE_INTEGER,
    PATH,
    STH,
    TOKEN,
    Schema,
    array,
    derived,
    enum,
    integer,
    one_or_array,
    ref,
    shape,
    text,
)
from enc.node.read import request_bodies
from enc.node.read.deliveries import MAX_ENDPOINTS
from enc.node.read.pulls import MAX_BATCHES, MAX_NUMBERS
from enc.node.read.request_handlers import MAX_KEYS
from enc.node.sequence.checkpoint import MAX_HOLD_MS
from enc.node.store.push_interface import EndpointState

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


PARTS: Schema = {
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
    "OwnSlot": shape(
        "An identity's Own slot; `key` beside it must be the hash of both.",
        derived(request_bodies.OwnSlot, {"key": text("As in the slot's content.")}),
        is_open=True,
    ),
    "Delivery": shape(
        "An endpoint and its state; `queue`, which spans all enclaves of the node, only for its recipient.",
        {
            "identity": KEY,
            "trait": text("For which it is registered."),
            "url": text("Where it is."),
            "state": enum("Whether the node delivers to it.", *get_args(EndpointState)),
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

PLAINTEXTS: Schema = {
    "Query.body": _body("Which events, and whether with proofs.", request_bodies.QueryBody, {"filter": ref("Filter")}),
    "Query.answer": shape(
        "The events that match and may be read. `more`: the limit, or the page's size, cut it. With proofs: the head, "
        "and the leaf whose state the statuses are proved under.",
        {"events": array(ref("Item"), filters.MAX_LIMIT), "sth?": ref("TreeHead"), "state?": ref("Inclusion")}
        | {"more?": {"const": True}},
    ),
    "Inclusion_Proof.body": _body("Which leaf, of a log of which size.", request_bodies.InclusionBody),
    "Inclusion_Proof.answer": shape("An inclusion proof with the head of its size.", {**_INCLUSION, **STH}),
    "Bundle_Proof.body": {
        **_body("One of both.", request_bodies.BundleBody),
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
    "State_Proof.body": _body("Which key, and as of when.", request_bodies.StateBody),
    "State_Proof.answer": shape("A state proof, and what ties its root to the head.", {**_STATE, **_ROOT}),
    "State_Batch.body": _body(
        "Which keys, and as of when.",
        request_bodies.StateBatchBody,
        {"keys": array(shape("", derived(request_bodies.StateKey), is_open=True), MAX_KEYS, least=1)},
    ),
    "State_Batch.answer": shape(
        "State proofs under one root, in the order of the keys.",
        {"proofs": array(ref("State"), MAX_KEYS, least=1), **_ROOT},
    ),
    "Checkpoint.body": _body(
        "For how long to hold the enclave for a Migrate.",
        request_bodies.CheckpointBody,
        {"hold": integer("Seconds.", 0, MAX_HOLD_MS // 1000)},
    ),
    "Checkpoint.answer": shape("What a Migrate must name.", {"seq": INTEGER, "ct_root": HASH}),
    "Export.body": _body(
        "From which event on, and how many at most.",
        request_bodies.ExportBody,
        {"limit": integer("Events.", 1, filters.MAX_LIMIT)},
    ),
    "Export.answer": shape(
        "Events by rising seq, deleted ones without their contents. `seq`: the log's last; there is more before it.",
        {"events": array(ref("Event"), filters.MAX_LIMIT), "seq": INTEGER, **STH},
    ),
    "Pull.body": _body(
        "Which batches of the caller's queue for a URL; with `enclave`, only the events of that enclave.",
        request_bodies.PullBody,
        {
            "push_seq": {
                "anyOf": [
                    INTEGER,
                    array(INTEGER, MAX_NUMBERS, least=1),
                    shape("Those after one number, up to another.", derived(request_bodies.PushSeqRange)),
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
        request_bodies.DeliveriesBody,
        {"after": shape("The last of the previous page.", derived(request_bodies.EndpointKey), is_open=True)},
    ),
    "Deliveries.answer": shape(
        "Endpoints by identity and trait. `more`: there are others after them.",
        {"endpoints": array(ref("Delivery"), MAX_ENDPOINTS), "more?": {"const": True}},
    ),
}
