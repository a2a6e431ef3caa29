"""Makes contacts.json: contact cards, links that readers must refuse, and logs of address books.

The script shares no code with the kernel: sealing_by_hand.py adds points with Python's integers,
make_witness.py has BIP-340 written out. What each log results in is written down by hand. Every run
gives the same bytes.
"""

import base64
import json
from pathlib import Path
from runpy import run_path
from typing import Any

FOLDER = Path(__file__).parent
HAND, WITNESS = (run_path(str(FOLDER / f"{name}.py")) for name in ("sealing_by_hand", "make_witness"))
KEYS, hkdf, sha256, schnorr = HAND["KEYS"], HAND["hkdf"], HAND["sha256"], WITNESS["schnorr"]
ALICE, BOB, CAROL, NODE = (KEYS[name] for name in ("alice", "bob", "carol", "node"))

Json = dict[str, Any]
AT = 1_790_000_000_000
AHEAD = 600_000


def spelled(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)


def enclave(owner: str, manifest: bytes) -> str:
    """Return the id by 5.5: the CBOR of an array of five, without tags."""
    parts = [b"\x85\x12", b"\x58\x20" + KEYS[owner].pub, b"\x68Manifest", b"\x58\x20" + manifest, b"\x80"]
    return sha256(b"".join(parts)).hex()


def place(owner: str, word: str, node: str = "https://enc.example.org") -> Json:
    manifest = sha256(word.encode())
    return {
        "enclave": enclave(owner, manifest),
        "manifest": manifest.hex(),
        "node": node,
        "sequencer": NODE.hex,
    }


REGISTRY = {"enclave": sha256(b"registry").hex(), "node": "https://registry.example", "sequencer": NODE.hex}
LEAST = {"card": 1, "key": ALICE.hex, "name": "Ada", "at": AT}
MOST = {
    **LEAST,
    "name": "Ada Lövelace",
    "store": place("alice", "store"),
    "mailbox": place("alice", "mailbox", "http://127.0.0.1:7700"),
    "registry": REGISTRY,
}


def link(text: str, signer: str = "alice", domain: bytes = b"enc:card:") -> str:
    raw = schnorr(signer, sha256(domain + text.encode())) + text.encode()
    return "enc:card:" + base64.urlsafe_b64encode(raw).decode().rstrip("=")


def card(payload: Json) -> Json:
    return {"payload": payload, "text": spelled(payload), "link": link(spelled(payload))}


def refused(why: str, text: str, *, now: int = AT) -> Json:
    return {"why": why, "now": now, "link": text}


def bent(**fields: Any) -> str:
    changed = {name: value for name, value in {**MOST, **fields}.items() if value is not None}
    return link(spelled(changed))


def mailbox(**fields: Any) -> str:
    return bent(mailbox={**MOST["mailbox"], **fields})


WHOLE = link(spelled(LEAST))
REFUSED = [
    refused("signed by bob", link(spelled(LEAST), "bob")),
    refused("another domain", link(spelled(LEAST), domain=b"enc:sth:")),
    refused("cut", WHOLE[:-4]),
    refused("padded", WHOLE + "="),
    refused("another scheme", WHOLE.replace("enc:card:", "enc:poke:")),
    refused("empty", "enc:card:"),
    refused("not sorted", link(json.dumps({"name": "Ada", **LEAST}, separators=(",", ":")))),
    refused("white space", link(spelled(LEAST).replace(":1,", ": 1,"))),
    refused("an escape", link(spelled(LEAST).replace("Ada", "\\u0041da"))),
    refused("a key twice", link(spelled(LEAST).replace('"card":1', '"card":1,"card":1'))),
    refused("another version", bent(card=2)),
    refused("an unknown field", bent(more=1)),
    refused("no name", bent(name=None)),
    refused("no time", bent(at=None)),
    refused("the future", WHOLE, now=AT - AHEAD - 1),
    refused("an empty name", bent(name="")),
    refused("a long name", bent(name="x" * 65)),
    refused("a name with a line break", bent(name="A\nda")),
    refused("a name with an escape sequence", bent(name="A\x1b[31mda")),
    refused("a name that turns the text around", bent(name="A\u202eda")),
    refused("a name that looks like a key", bent(name=BOB.hex)),
    refused("a name that looks like a flag", bent(name="--yes")),
    refused("a name that looks like a link", bent(name="enc:card:")),
    refused("a name that ends with a space", bent(name="Ada ")),
    refused("bob's enclave", bent(mailbox=place("bob", "mailbox"))),
    refused("an unknown field of an enclave", mailbox(more=1)),
    refused("an id in upper case", mailbox(enclave=MOST["mailbox"]["enclave"].upper())),
    refused("no key of a node", mailbox(sequencer="ff" * 32)),
    refused("another scheme of a node", mailbox(node="ftp://enc.example.org")),
    refused("a password", mailbox(node="https://a:b@enc.example.org")),
    refused("a query", mailbox(node="https://enc.example.org?x=1")),
    refused("a fragment", mailbox(node="https://enc.example.org#x")),
    refused("a slash at the end", mailbox(node="https://enc.example.org/")),
    refused("an address in another notation", mailbox(node="https://0x7f000001")),
    refused("a long URL", mailbox(node="https://enc.example.org/" + "x" * 2048)),
    refused("a registry without a key", bent(registry={**REGISTRY, "sequencer": ""})),
]

# Address books


def person(name: str, key: str, **more: Any) -> list[Any]:
    return ["person", name.casefold(), {"enclaves": {}, "identity": KEYS[key].hex, "name": name, **more}]


def gone(type_: str, key: str) -> list[Any]:
    return [type_, key, None]


def changes(*each: list[Any]) -> str:
    return spelled({"changes": list(each)})


def snapshot(upto: Any, *each: list[Any]) -> str:
    return spelled({"snapshot": list(each), "upto": upto})


def book(shows: str, events: list[tuple[int, str]], *entries: list[Any], deleted: list[int] | None = None) -> Json:
    return {
        "shows": shows,
        "deleted": deleted or [],
        "events": [{"seq": seq, "text": text} for seq, text in events],
        "entries": sorted(entries, key=lambda each: each[:2]),
    }


ROOM = {"enclave": sha256(b"room").hex(), "node": "https://enc.example.org"}
GROUP = ["group", "plans", {"name": "Plans", **ROOM}]
FOLLOW = ["follow", ROOM["enclave"], ROOM]
OWN = ["own", "dm", {"enclave": sha256(b"dm").hex()}]
BOB_1, BOB_2 = person("Bob", "bob"), person("Bob", "bob", card_at=AT, enclaves={"dm": ROOM})
CAROL_1 = person("Carol", "carol")
ODD = [
    ["poke", "x", {}],
    ["person", "bob"],
    ["person", "ann", BOB_1[2]],
    person("--bob", "bob"),
    person("Bo\nb", "bob"),
    ["person", "eve", {"name": "Eve", "identity": "ff" * 32}],
    ["group", "plans", {**ROOM, "name": "others"}],
    ["follow", ROOM["enclave"], {"enclave": ROOM["enclave"]}],
    ["follow", sha256(b"dm").hex(), ROOM],
    ["own", "personal", ROOM],
    ["group", "odd", {**ROOM, "name": "odd", "node": "ftp://enc.example.org"}],
]
BOOKS = [
    book("every type", [(2, changes(BOB_2, GROUP, FOLLOW, OWN))], BOB_2, GROUP, FOLLOW, OWN),
    book("the later change counts", [(2, changes(BOB_1)), (5, changes(BOB_2))], BOB_2),
    book("a removed entry", [(2, changes(BOB_1, CAROL_1)), (3, changes(gone("person", "bob")))], CAROL_1),
    book("removed and added again", [(2, changes(gone("person", "bob"))), (3, changes(BOB_1))], BOB_1),
    book("within one event the last one counts", [(2, changes(BOB_1, gone("person", "bob"), BOB_2))], BOB_2),
    book("invalid changes have no effect", [(2, changes(BOB_1, *ODD))], BOB_1),
    book("other events have no effect", [(2, changes(BOB_1)), (3, "[]"), (4, "{"), (5, '{"changes":1}')], BOB_1),
    book(
        "a snapshot",
        [(2, changes(CAROL_1, BOB_1)), (3, changes(gone("person", "carol"))), (4, snapshot(3, BOB_1))],
        BOB_1,
    ),
    book(
        "a change that a snapshot did not see",
        [(2, changes(BOB_1)), (3, changes(CAROL_1)), (4, snapshot(2, BOB_1)), (5, changes(BOB_2))],
        BOB_2,
        CAROL_1,
    ),
    book(
        "what a snapshot covers does not count again",
        [(2, changes(CAROL_1)), (4, snapshot(3, BOB_1))],
        BOB_1,
        deleted=[3],
    ),
    book(
        "the snapshot that covers most",
        [(2, changes(BOB_1)), (3, changes(CAROL_1)), (4, snapshot(3, BOB_1, CAROL_1)), (5, snapshot(2, BOB_1))],
        BOB_1,
        CAROL_1,
    ),
    book("a snapshot of what comes after it", [(2, changes(BOB_1)), (3, snapshot(3))], BOB_1),
]


def text() -> str:
    found = {
        "cards": [card(LEAST), card(MOST)],
        "refused_cards": REFUSED,
        "first_store": {
            "owner": "alice",
            "node": NODE.hex,
            "nonce": hkdf(ALICE.secret, f"enc:personal:store:{NODE.hex}")[:8].hex(),
        },
        "books": BOOKS,
    }
    return json.dumps(found, indent=1) + "\n"


if __name__ == "__main__":
    (FOLDER / "contacts.json").write_text(text())
