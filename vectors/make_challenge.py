"""Makes challenge.json: a node asks whether an endpoint receives the pushes of its recipient, and
what must be answered.

The script shares no code with the kernel: see sealing_by_hand.py. Every run gives the same bytes.
"""

import json
from base64 import b64encode
from pathlib import Path
from runpy import run_path

FOLDER = Path(__file__).parent
HAND = run_path(str(FOLDER / "sealing_by_hand.py"))
KEYS, encrypt, hkdf, nonce, sha256 = (HAND[name] for name in ("KEYS", "encrypt", "hkdf", "nonce", "sha256"))

URL = "https://bob.example/push?of=enc"


def text() -> str:
    challenge, number = sha256(b"a challenge"), nonce("challenge")
    push_key = hkdf(KEYS["node"].ecdh(KEYS["bob"].pub), "enc:push")
    key = hkdf(push_key, "enc:challenge")
    plaintext = json.dumps({"url": URL, "challenge": challenge.hex()}, separators=(",", ":"))
    content = b64encode(number + encrypt(key, plaintext.encode(), number)).decode()
    found = {
        "push_key": push_key.hex(),
        "challenge_key": key.hex(),
        "challenge": challenge.hex(),
        "nonce": number.hex(),
        "plaintext": plaintext,
        "request": {
            "type": "Challenge",
            "from": KEYS["node"].hex,
            "to": KEYS["bob"].hex,
            "url": URL,
            "content": content,
        },
        "answer": {"type": "Challenge_Answer", "challenge": challenge.hex()},
    }
    return json.dumps(found, indent=1) + "\n"


if __name__ == "__main__":
    (FOLDER / "challenge.json").write_text(text())
