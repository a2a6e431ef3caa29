"""Makes dm.json: every sealed form of direct messages, with fixed nonces, and forms that must not
open.

The script shares no code with the kernel: see sealing_by_hand.py. The codes of rejected forms are
written down by hand. Every run gives the same bytes.
"""

import json
from base64 import b64decode, b64encode
from pathlib import Path
from runpy import run_path
from typing import Any

FOLDER = Path(__file__).parent
HAND = run_path(str(FOLDER / "sealing_by_hand.py"))
KEYS, encrypt, hkdf, nonce, sha256 = (HAND[name] for name in ("KEYS", "encrypt", "hkdf", "nonce", "sha256"))

Json = dict[str, Any]
MAILBOX = sha256(b"alice's mailbox")
SECRETS = [sha256(b"epoch %d" % n) for n in range(2)]
"""Made by alice, for bob."""
OTHER = sha256(b"epoch 0, for carol")


def sealed(key: bytes, plaintext: bytes, label: str) -> str:
    return b64encode(nonce(label) + encrypt(key, plaintext, nonce(label))).decode()


def shared(one: str, other: str, label: str) -> bytes:
    return hkdf(KEYS[one].ecdh(KEYS[other].pub), label)


# Epochs: to oneself in a Move or a rotate, to the contact in a tag


def epoch(sender: str, to: str, n: int, secret: bytes) -> Json:
    label = f"epoch {n} from {sender} to {to}"
    encrypted = sealed(shared(sender, to, "enc:dm:epoch_dist"), secret, label)
    return {
        "sender": sender,
        "to": to,
        "n": n,
        "secret": secret.hex(),
        "nonce": nonce(label).hex(),
        "content": {"n": n, "encrypted_secret": encrypted, "ecdh_pub": KEYS[sender].hex},
        "tag": ["epoch", str(n), encrypted, KEYS[sender].hex],
    }


EPOCHS = [
    *(epoch("alice", to, n, secret) for n, secret in enumerate(SECRETS) for to in ("alice", "bob")),
    epoch("carol", "alice", 9_007_199_254_740_991, OTHER),
]

# Messages: from bob to alice


def message_keys(secret: bytes, many: int) -> list[bytes]:
    chain, found = hkdf(secret, "enc:dm:ratchet:init"), list[bytes]()
    for _ in range(many):
        found.append(hkdf(chain, "enc:dm:ratchet:message"))
        chain = hkdf(chain, "enc:dm:ratchet:advance")
    return found


def message(n: int, seq: int, text: str, *, secret: bytes | None = None, label: str = "") -> Json:
    key, label = message_keys(secret or SECRETS[n], seq + 1)[seq], label or f"message {n}.{seq}"
    content = {"epoch": n, "sender_seq": seq, "ciphertext": sealed(key, text.encode(), label)}
    found = {"epoch": n, "sender_seq": seq, "key": key.hex(), "nonce": nonce(label).hex(), "text": text}
    return {**found, "content": json.dumps(content, separators=(",", ":"))}


MESSAGES = [
    message(0, 0, "see you at 8"),
    message(0, 1, "Grüße, ☃\n\U0001f343"),
    message(0, 2, ""),
    message(0, 300, "much later"),
    message(1, 0, "after a rotation"),
    message(0, 1, "another device, the same number", label="another device"),
]

# Invitations, and own copies


def invite(sender: str, to: str, text: str) -> Json:
    label = f"invite from {sender} to {to}: {text}"
    key = shared(sender, to, "enc:dm:invite")
    found = {"sender": sender, "to": to, "key": key.hex(), "nonce": nonce(label).hex(), "text": text}
    return {**found, "sealed": sealed(key, text.encode(), label)}


def sent(owner: str, to: str, text: str) -> Json:
    label = f"sent by {owner} to {to}"
    key = hkdf(shared(owner, owner, "enc:dm:sent:root"), f"enc:dm:sent:{KEYS[to].hex}")
    found = {"owner": owner, "to": to, "key": key.hex(), "nonce": nonce(label).hex(), "text": text}
    return {**found, "sealed": sealed(key, text.encode(), label)}


INVITES = [invite("bob", "alice", text) for text in ("hi, it is Bob", MAILBOX.hex(), "")]
COPY = {"text": "see you at 8", "state": "delivered", "id": sha256(b"message").hex(), "at": 1_790_000_000_000}
SENT = [sent("alice", "bob", json.dumps(COPY, separators=(",", ":"))), sent("alice", "carol", "not JSON")]

# Forms that alice must not open: as bob's messages, as bob's epochs, as her own copy of a message to bob


def bent(made: Json, **changes: Any) -> str:
    return json.dumps({**json.loads(made["content"]), **changes}, separators=(",", ":"))


def cut(text: str, size: int) -> str:
    return b64encode(b64decode(text)[:size]).decode()


FIRST, SECOND = (json.loads(made["content"])["ciphertext"] for made in MESSAGES[:2])
REFUSED_MESSAGES = [
    ("cut below a nonce and a tag", "DM_TRUNCATED", bent(MESSAGES[0], ciphertext=cut(FIRST, 39))),
    ("cut within a group of base64", "DM_TRUNCATED", bent(MESSAGES[0], ciphertext=FIRST[:-3])),
    ("cut by its last byte", "DM_WRONG_KEY", bent(MESSAGES[0], ciphertext=cut(FIRST, -1))),
    ("the ciphertext of another message", "DM_SWAPPED", bent(MESSAGES[1], ciphertext=FIRST)),
    ("of an epoch that was never made", "DM_EPOCH_UNKNOWN", bent(MESSAGES[0], epoch=2)),
    ("with carol's epoch", "DM_SEALED_FOR_ANOTHER", message(0, 0, "x", secret=OTHER, label="to carol")["content"]),
    ("with nobody's epoch", "DM_WRONG_KEY", message(0, 0, "x", secret=bytes(32), label="to nobody")["content"]),
    ("past the end of an epoch", "INVALID_COMMIT", bent(MESSAGES[0], sender_seq=65_536)),
    ("no number", "INVALID_COMMIT", bent(MESSAGES[0], sender_seq="0")),
    ("no object", "INVALID_COMMIT", json.dumps(FIRST)),
]
TO_ALICE = epoch("bob", "alice", 3, SECRETS[0])
REFUSED_EPOCHS = [
    ("sealed by carol", "DM_EPOCH_FOREIGN", epoch("carol", "alice", 4, OTHER)["tag"]),
    ("sealed to carol", "DM_WRONG_KEY", epoch("bob", "carol", 4, OTHER)["tag"]),
    ("cut", "DM_TRUNCATED", ["epoch", "4", cut(TO_ALICE["tag"][2], 30), KEYS["bob"].hex]),
    ("number 3 again, with another secret", "DM_EPOCH_REPLAYED", epoch("bob", "alice", 3, OTHER)["tag"]),
    ("number 2 after 3", "DM_EPOCH_REPLAYED", epoch("bob", "alice", 2, OTHER)["tag"]),
    ("a number with a zero in front", "INVALID_COMMIT", ["epoch", "04", *TO_ALICE["tag"][2:]]),
]
REFUSED_COPIES = [
    ("of what went to carol", "DM_SEALED_FOR_ANOTHER", SENT[1]["sealed"]),
    ("a message's ciphertext", "DM_WRONG_KEY", FIRST),
    ("cut", "DM_TRUNCATED", cut(SENT[0]["sealed"], 20)),
]


def refused(cases: list[tuple[str, str, Any]]) -> list[Json]:
    return [{"why": why, "code": code, "sealed": what} for why, code, what in cases]


def text() -> str:
    found = {
        "epochs": EPOCHS,
        "messages": MESSAGES,
        "invites": INVITES,
        "sent": SENT,
        "refused_messages": refused(REFUSED_MESSAGES),
        "epoch_before": TO_ALICE,
        "refused_epochs": refused(REFUSED_EPOCHS),
        "refused_copies": refused(REFUSED_COPIES),
        "other_secret": OTHER.hex(),
    }
    return json.dumps(found, indent=1) + "\n"


if __name__ == "__main__":
    (FOLDER / "dm.json").write_text(text())
