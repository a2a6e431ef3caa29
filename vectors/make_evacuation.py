"""Makes evacuation.json: statements of a node that is evacuated, its orders for warm copies, and
forms that must be rejected.

The script shares no code with the kernel: the signatures are those of make_witness.py. Every run
gives the same bytes.
"""

import json
from pathlib import Path
from runpy import run_path
from typing import Any

FOLDER = Path(__file__).parent
HAND = run_path(str(FOLDER / "make_witness.py"))
KEYS, schnorr, be64, sha256 = (HAND[name] for name in ("KEYS", "schnorr", "be64", "sha256"))

Json = dict[str, Any]
SINCE, DEADLINE = 1_795_000_000_123, 1_797_000_000_000
HERE, THERE = "https://old.example", "https://new.example:8443/enc"


def statement(node: str, to: str, to_key: str, since: int = SINCE, deadline: int | None = None) -> Json:
    signed = b"enc:evacuate:" + KEYS[node].pub + KEYS[to_key].pub + be64(since) + be64(deadline or 0) + to.encode()
    wire = {
        "node": KEYS[node].hex,
        "to": to,
        "to_key": KEYS[to_key].hex,
        "since": since,
        "deadline": deadline,
        "sig": schnorr(node, sha256(signed)).hex(),
    }
    return {"node": node, "signed": signed.hex(), "wire": wire}


def order(node: str, to_key: str, seqs: list[int], ends: bool = False) -> Json:
    enclaves = [(sha256(b"enclave %d" % number), seq) for number, seq in enumerate(seqs)]
    signed = b"enc:warm-copy:" + KEYS[node].pub + KEYS[to_key].pub + be64(SINCE) + bytes([ends])
    signed += be64(len(HERE)) + HERE.encode() + b"".join(id_ + be64(seq) for id_, seq in enclaves)
    wire = {
        "node": KEYS[node].hex,
        "to_key": KEYS[to_key].hex,
        "at": SINCE,
        "source": HERE,
        "enclaves": [{"enclave": id_.hex(), "seq": seq} for id_, seq in enclaves],
        "ends": ends,
        "sig": schnorr(node, sha256(signed)).hex(),
    }
    return {"node": node, "signed": signed.hex(), "wire": wire}


STATEMENTS = [
    statement("node", THERE, "node2"),
    statement("node", THERE, "node2", deadline=DEADLINE),
    statement("node2", "http://[::1]:7700", "node", 0, 2**53 - 1),
]
ORDERS = [order("node", "node2", [0, 7]), order("node", "node2", [2**53 - 1]), order("node", "node2", [], ends=True)]


def refused(whole: Json, why: str, **changes: Any) -> Json:
    return {"why": why, "wire": {**whole["wire"], **changes}}


FIRST, SECOND = STATEMENTS[:2]
REFUSED = [
    refused(FIRST, "the signature of another statement", sig=SECOND["wire"]["sig"]),
    refused(FIRST, "another node", node=KEYS["carol"].hex),
    refused(FIRST, "another address", to="https://new.example:8443/end"),
    refused(FIRST, "another key", to_key=KEYS["carol"].hex),
    refused(FIRST, "another time", since=SINCE + 1),
    refused(SECOND, "another deadline", deadline=DEADLINE + 1),
    refused(SECOND, "no deadline", deadline=None),
    refused(FIRST, "a time below zero", since=-1),
    {"why": "a space in the address", "wire": statement("node", "https://new.example/ x", "node2")["wire"]},
    {"why": "another scheme", "wire": statement("node", "file:///etc/passwd", "node2")["wire"]},
    {"why": "signed by another node", "wire": statement("bob", THERE, "node2")["wire"]},
]
ORDERS_REFUSED = [
    refused(ORDERS[0], "the signature of another order", sig=ORDERS[1]["wire"]["sig"]),
    refused(ORDERS[0], "another source", source="https://bad.example"),
    refused(ORDERS[0], "the end of the copies", ends=True),
    refused(ORDERS[0], "another time", at=SINCE + 1),
    refused(ORDERS[0], "fewer enclaves", enclaves=ORDERS[0]["wire"]["enclaves"][:1]),
    refused(ORDERS[0], "another node", node=KEYS["carol"].hex),
    {"why": "an order to another node", "wire": order("node", "carol", [0])["wire"]},
]


def text() -> str:
    found = {"statements": STATEMENTS, "refused": REFUSED, "orders": ORDERS, "orders_refused": ORDERS_REFUSED}
    return json.dumps(found, indent=1) + "\n"


if __name__ == "__main__":
    (FOLDER / "evacuation.json").write_text(text())
