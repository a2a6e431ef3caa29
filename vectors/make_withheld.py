"""Makes withheld.json: statements with which nodes withhold contents of log.json and
log_moved.json, and what readers must not accept as such a statement.

The script shares no code with the kernel; it signs as make_witness.py does. Every run gives the
same bytes.
"""

import json
from pathlib import Path
from runpy import run_path
from typing import Any

FOLDER = Path(__file__).parent
HAND = run_path(str(FOLDER / "make_witness.py"))
KEYS, be64, schnorr, sha256 = (HAND[name] for name in ("KEYS", "be64", "schnorr", "sha256"))

Json = dict[str, Any]
LOGS = {name: json.loads((FOLDER / f"{name}.json").read_text()) for name in ("log", "log_moved")}
TS = 1_791_000_000_123


def event_of(log: str, seq: int) -> Json:
    return dict(LOGS[log]["events"][seq])


def message(enclave: str, event_id: str, ts: int, reason: str) -> bytes:
    return b"enc:withheld:" + bytes.fromhex(enclave) + bytes.fromhex(event_id) + be64(ts) + reason.encode()


def statement(node: str, event: Json, reason: str = "court_order", ts: int = TS, enclave: str = "") -> Json:
    signed = message(enclave or event["enclave"], event["id"], ts, reason)
    return {"reason": reason, "ts": ts, "node": KEYS[node].hex, "sig": schnorr(node, sha256(signed)).hex()}


def line(event: Json, withheld: Any) -> Json:
    """Return the event without its content, as it is written in an archive and in every answer."""
    content = event["content"]
    digest = event["content_hash"] if content is None else sha256(content.encode()).hex()
    told = {} if withheld is None else {"withheld": withheld}
    return {**event, "content": None, "content_hash": digest, **told}


# Valid statements


def signed(log: str, seq: int, node: str, reason: str, ts: int = TS) -> Json:
    event = event_of(log, seq)
    wire = statement(node, event, reason, ts)
    hashed = message(event["enclave"], event["id"], ts, reason).hex()
    return {"log": log, "seq": seq, "node": node, "signed": hashed, "withheld": wire}


SIGNED = [
    signed("log_moved", 7, "node2", "court_order"),
    signed("log_moved", 9, "node", "illegal", 0),
    signed("log", 5, "node", "copyright", 2**53 - 1),
    signed("log", 5, "node", "privacy"),
    signed("log", 5, "node", "abuse"),
    signed("log", 5, "node", "malware"),
    signed("log", 5, "node", "other"),
]

THREE, FOUR, UPDATE, SHARED = (
    event_of("log_moved", 7),
    event_of("log_moved", 9),
    event_of("log", 5),
    event_of("log", 6),
)
VALID = statement("node2", THREE)


def bent(**changes: Any) -> Json:
    return {**VALID, **changes}


# Events that no reader may parse


def malformed(why: str, withheld: Any) -> Json:
    return {"why": why, "event": line(THREE, withheld)}


MALFORMED = [
    {"why": "a statement beside a content", "event": {**THREE, "withheld": VALID}},
    malformed("no reason", {name: VALID[name] for name in ("ts", "node", "sig")}),
    malformed("an empty reason", bent(reason="")),
    malformed("a reason of 33 characters", bent(reason="a" * 33)),
    malformed("a reason in upper case", bent(reason="Abuse")),
    malformed("a reason with a line feed", bent(reason="abuse\n")),
    malformed("a reason with a letter that is not ASCII", bent(reason="abus\u00e9")),
    malformed("a time below zero", bent(ts=-1)),
    malformed("a time of 2^53", bent(ts=2**53)),
    malformed("a key in upper case", bent(node=VALID["node"].upper())),
    malformed("a signature that is too short", bent(sig=VALID["sig"][:-2])),
    malformed("a statement that is a text", "court_order"),
]


# Lines of archives: with `line` instead of the event of its seq, a replay of the log finds `fault`


def case(why: str, log: str, event: Json, withheld: Any, fault: int | None) -> Json:
    return {"why": why, "log": log, "line": line(event, withheld), "fault": fault}


def accepted(why: str, event: Json, withheld: Any, log: str = "log_moved") -> Json:
    return case(why, log, event, withheld, None)


def refused(why: str, withheld: Any, event: Json = THREE, log: str = "log_moved") -> Json:
    return case(why, log, event, withheld, event["seq"])


LINES = [
    accepted("withheld by the event's own sequencer", THREE, VALID),
    accepted("withheld by the node that took the log over", THREE, statement("node", THREE)),
    accepted("withheld by a former sequencer", FOUR, statement("node2", FOUR)),
    accepted("an Update", UPDATE, statement("node", UPDATE), "log"),
    accepted("a reason that is not in the list", THREE, statement("node2", THREE, "a_reason_of_a_later_version")),
    accepted("an auto-delete, with a statement that does not count", event_of("log_moved", 2), VALID),
    accepted("deleted, too", event_of("log_moved", 1), statement("node", event_of("log_moved", 1))),
    refused("no statement", None),
    refused("by a key that is not a sequencer's", statement("bob", THREE)),
    refused("another node's key, under this signature", bent(node=KEYS["node"].hex)),
    refused("a statement about another event", statement("node2", FOUR)),
    refused("a statement for another enclave", statement("node2", THREE, enclave=sha256(b"another").hex())),
    refused("another reason", bent(reason="abuse")),
    refused("another time", bent(ts=TS + 1)),
    refused("a changed signature", bent(sig=VALID["sig"][:-2] + f"{int(VALID['sig'][-2:], 16) ^ 1:02x}")),
    refused("an event that is never withheld", statement("node", SHARED), SHARED, "log"),
]


def text() -> str:
    return json.dumps({"signed": SIGNED, "malformed": MALFORMED, "lines": LINES}, indent=1) + "\n"


if __name__ == "__main__":
    (FOLDER / "withheld.json").write_text(text())
