"""JSON Schemas of registry lookups and of their parameters."""

from enc.core.registry import reg_entry
from enc.core.registry.ownership import MAX_FORCED
from enc.node.api.registry import MAX_PAGE_ENCLAVES, MAX_SEARCH
from enc.node.openapi.shapes import (
    HASH,
    INTEGER,
    KEY,
    Schema,
    array,
    enum,
    integer,
    ref,
    shape,
    text,
)

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
_EVIDENCE: Schema = {
    "proved_at": INTEGER,
    "proved_root": text("In hex. Empty: nothing was proved.", 0, 64),
    "moved_at": {"type": "integer", "minimum": -1},
    "moved_time": INTEGER,
}
_LEFT: Schema = {"sequencer": KEY, "holder": KEY, "proved_size": INTEGER, **_EVIDENCE}
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
    "evidence": ref("OwnershipEvidence"),
    "entry": ref("Entry"),
}
LOOKUP_SCHEMAS: Schema = {
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
    "LeftSequencer": shape("What was known before a forced Migrate, which a later proof may take back.", _LEFT),
    "OwnershipEvidence": shape(
        "The other values by which the next registration is judged (protocol.md, 23.1).",
        {**_EVIDENCE, "forced_from": array(ref("LeftSequencer"), MAX_FORCED)},
    ),
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
