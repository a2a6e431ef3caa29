"""Makes personal.json: every sealed form of a personal enclave, with fixed nonces, and forms that
must not open.

The script shares no code with the kernel: see sealing_by_hand.py. The codes of rejected forms are
written down by hand. Every run gives the same bytes.
"""

import json
from pathlib import Path
from runpy import run_path
from typing import Any

FOLDER = Path(__file__).parent
HAND = run_path(str(FOLDER / "sealing_by_hand.py"))
KEYS, encrypt, hkdf, nonce, sha256 = (HAND[name] for name in ("KEYS", "encrypt", "hkdf", "nonce", "sha256"))
ALICE, BOB, CAROL = KEYS["alice"], KEYS["bob"], KEYS["carol"]
KEYS |= {"alice_sub": ALICE.sub_key(), "bob_sub": BOB.sub_key()}

Json = dict[str, Any]
ENCLAVE, GROUP, MOVE, MANIFEST = (sha256(word) for word in (b"personal", b"group", b"move", b"manifest"))
SECRET = sha256(b"root secret")


def spelled(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)


def sealed(key: bytes, plaintext: bytes, number: bytes) -> Json:
    return {"ciphertext": encrypt(key, plaintext, number).hex(), "nonce": number.hex()}


# Private documents


def private(owner: str, enclave: bytes, plaintext: str, label: str) -> Json:
    key = hkdf(KEYS[owner].secret, f"enc-personal-private:{enclave.hex()}")
    return {
        "owner": owner,
        "enclave": enclave.hex(),
        "key": key.hex(),
        "plaintext": plaintext,
        "nonce": nonce(label).hex(),
        "content": spelled(sealed(key, plaintext.encode(), nonce(label))),
    }


PRIVATE = [
    private("alice", ENCLAVE, spelled({"kind": "note", "name": "Diary", "text": "It rained."}), "diary"),
    private("alice", ENCLAVE, spelled({"kind": "note", "name": "Tëe", "text": "Grüße\n\U0001f343"}), "tea"),
    private("alice", GROUP, "the same owner, another enclave", "elsewhere"),
    private("bob", ENCLAVE, "", "nothing"),
]

# Notices


def handoff(sender: str, to: str, secret: bytes, label: str) -> Json:
    key = hkdf(KEYS[sender].ecdh(KEYS[to].pub), "enc:personal:notice:epoch")
    return {"recipient": KEYS[to].hex, "ecdh_pub": KEYS[sender].hex, **sealed(key, secret, nonce(label))}


def envelope(sender: str, to: str, payload: str, label: str, **changes: Any) -> str:
    key = hkdf(KEYS[sender].ecdh(KEYS[to].pub), "enc:personal:notice")
    outside = {"sender_pub": KEYS[sender].hex, "scheme": "personal:notice", "encrypted": True}
    return spelled({**sealed(key, payload.encode(), nonce(label)), **outside, **changes})


def notice(sender: str, to: str, payload: Json, label: str, **more: Any) -> Json:
    key = hkdf(KEYS[sender].ecdh(KEYS[to].pub), "enc:personal:notice")
    found = {"sender": sender, "to": to, "key": key.hex(), "nonce": nonce(label).hex(), "payload": payload}
    return {**found, "content": envelope(sender, to, spelled(payload), label), **more}


def payload(**more: Any) -> Json:
    required = {"kind": "group_invite", "enclave_id": GROUP.hex(), "enclave_kind": "group", "inviter": ALICE.hex}
    return {**required, **more}


WHOLE = payload(
    handoff=handoff("alice", "bob", SECRET, "handoff"),
    epoch_n=3,
    topic="Töpfern",
    greeting="hallo",
    manifest_hash=MANIFEST.hex(),
    move_ref=MOVE.hex(),
)
NOTICES = [
    notice("alice", "bob", payload(), "least"),
    notice("alice", "bob", WHOLE, "most", tags=[["enclave_id", GROUP.hex()], ["epoch_n", "3"], ["r", "anything"]]),
    notice("alice_sub", "bob_sub", payload(kind="dm_invite", enclave_kind="dm"), "sub-keys"),
    notice("alice", "bob_sub", payload(kind="x-poke", enclave_kind="x", epoch_n=0), "one sub-key"),
    notice("alice", "alice", payload(), "to oneself"),
]
HANDOFFS = [
    {"sender": sender, "to": to, "secret": SECRET.hex(), "nonce": nonce(label).hex(), "handoff": made}
    for sender, to, label in (("alice", "bob", "handoff"), ("alice_sub", "bob_sub", "handoff between sub-keys"))
    for made in [handoff(sender, to, SECRET, label)]
]

# Forms that must not open: by bob, from alice, with neither's sub-key known


def refused(why: str, code: str, content: str, tags: list[list[str]] | None = None) -> Json:
    return {"why": why, "code": code, "content": content, "tags": tags or []}


def bent(**fields: Any) -> str:
    changed = {name: value for name, value in payload(**fields).items() if value is not None}
    return envelope("alice", "bob", spelled(changed), "bent")


LEAST, MOST = (json.loads(each["content"]) for each in NOTICES[:2])
REFUSED = [
    refused("sealed by carol", "FOREIGN_SENDER", envelope("carol", "bob", spelled(payload()), "carol")),
    refused("sealed by a sub-key that nobody knows of", "FOREIGN_SENDER", NOTICES[2]["content"]),
    refused(
        "sealed by carol in alice's name", "DECRYPT_FAILED", envelope("carol", "bob", "{}", "c", sender_pub=ALICE.hex)
    ),
    refused("sealed to carol", "DECRYPT_FAILED", envelope("alice", "carol", spelled(payload()), "to carol")),
    refused("cut", "DECRYPT_FAILED", spelled({**LEAST, "ciphertext": LEAST["ciphertext"][:-2]})),
    refused("cut to less than a tag", "DECRYPT_FAILED", spelled({**LEAST, "ciphertext": LEAST["ciphertext"][:30]})),
    refused("another's ciphertext", "DECRYPT_FAILED", spelled({**LEAST, "ciphertext": MOST["ciphertext"]})),
    refused("another's nonce", "DECRYPT_FAILED", spelled({**LEAST, "nonce": MOST["nonce"]})),
    refused("a handoff's key", "DECRYPT_FAILED", spelled({**LEAST, **handoff("alice", "bob", SECRET, "handoff")})),
    refused("another scheme", "NO_NOTICE", spelled({**LEAST, "scheme": "dm:invite"})),
    refused("not encrypted", "NO_NOTICE", spelled({**LEAST, "encrypted": False})),
    refused("no sender", "NO_NOTICE", spelled({name: LEAST[name] for name in LEAST if name != "sender_pub"})),
    refused("plain", "NO_NOTICE", spelled(payload())),
    refused("no kind", "NO_NOTICE", bent(kind=None)),
    refused("an unknown kind", "NO_NOTICE", bent(kind="spam")),
    refused("an empty kind of one's own", "NO_NOTICE", bent(kind="x-")),
    refused("no enclave", "NO_NOTICE", bent(enclave_id=None)),
    refused("no kind of enclave", "NO_NOTICE", bent(enclave_kind="")),
    refused("no inviter", "NO_NOTICE", bent(inviter=None)),
    refused("a handoff without its epoch", "NO_NOTICE", bent(handoff=WHOLE["handoff"])),
    refused("a key twice", "NO_NOTICE", envelope("alice", "bob", spelled(payload())[:-1] + ',"kind":"x-a"}', "twice")),
    refused("a tag of another enclave", "CONTRADICTING_TAG", NOTICES[0]["content"], [["enclave_id", ENCLAVE.hex()]]),
    refused("a tag of another kind", "CONTRADICTING_TAG", NOTICES[0]["content"], [["kind", "dm_invite"]]),
    refused("a tag without a value", "CONTRADICTING_TAG", NOTICES[0]["content"], [["inviter"]]),
]


def text() -> str:
    found = {
        "sub_keys": {
            name: {"priv": KEYS[name].secret.hex(), "pub": KEYS[name].hex} for name in ("alice_sub", "bob_sub")
        },
        "private": PRIVATE,
        "notices": NOTICES,
        "handoffs": HANDOFFS,
        "refused": REFUSED,
    }
    return json.dumps(found, indent=1) + "\n"


if __name__ == "__main__":
    (FOLDER / "personal.json").write_text(text())
