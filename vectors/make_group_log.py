"""Makes group_log.json: the log of a group through ten epochs, with what each reader opens of it.

The script shares no code with the kernel; it takes keys from make_log_v1.py, which shares none
either. A tree follows the definition, sets of keys split at their first differing bit, and is
rebuilt each time. No rule is implemented: the members after each event, the epochs that count, and
the text shown of each message are written down by hand.
"""

import hmac
import json
from base64 import b64encode
from hashlib import sha256 as _sha256
from pathlib import Path
from runpy import run_path
from typing import Any

from coincurve import PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

FOLDER = Path(__file__).parent
SHARED = run_path(str(FOLDER / "make_log_v1.py"))
H, sha256, START, Key = (SHARED[name] for name in ("H", "sha256", "START", "Key"))
ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141

Json = dict[str, Any]
Set = frozenset[bytes]


# Keys


def hkdf(secret: bytes, label: str) -> bytes:
    """Compute HKDF (RFC 5869) with SHA-256, without salt, 32 bytes."""
    extracted = hmac.new(bytes(32), secret, _sha256).digest()
    return hmac.new(extracted, label.encode() + b"\1", _sha256).digest()


def even(secret: bytes) -> bytes:
    """Return the form of a private key whose point has even y."""
    number = int.from_bytes(secret, "big") % ORDER
    point = PublicKey.from_valid_secret(number.to_bytes(32, "big")).format()
    return (number if point[0] == 2 else ORDER - number).to_bytes(32, "big")


class Pair:
    def __init__(self, secret: bytes) -> None:
        self.secret = even(secret)
        self.pub = PublicKey.from_valid_secret(self.secret).format()[1:]

    def ecdh(self, pub: bytes) -> bytes:
        return PublicKey(b"\2" + pub).multiply(self.secret).format()[1:]


NAMES = ("ann", "ben", "cat", "dan", "eve", "fay")
PEOPLE = {name: Pair(sha256(b"group log: " + name.encode())) for name in NAMES}
NODE = Pair(sha256(b"group log: node"))
PUB = {name: pair.pub for name, pair in PEOPLE.items()}


def hexed(name: str) -> str:
    return PUB[name].hex()


class Chance:
    """Return bytes that are the same in every run."""

    def __init__(self) -> None:
        self._n = 0

    def __call__(self, size: int) -> bytes:
        self._n += 1
        return bytes(sha256(b"group log: chance %d" % self._n)[:size])


chance = Chance()


# The tree, by its definition


def parts(keys: Set) -> tuple[Set, Set]:
    """Return the two children of a node: its keys, split at the first bit in which they differ."""
    for bit in range(256):
        right = frozenset(key for key in keys if key[bit // 8] >> 7 - bit % 8 & 1)
        if right and right != keys:
            return keys - right, right
    raise ValueError("a leaf has no children")


def inner(keys: Set) -> list[Set]:
    """Return all inner nodes, children before parents, left before right."""
    if len(keys) == 1:
        return []
    left, right = parts(keys)
    return [*inner(left), *inner(right), keys]


def way_up(keys: Set, member: bytes) -> list[tuple[Set, Set]]:
    """Return, from the member's parent to the root, each node and its other child."""
    if len(keys) == 1:
        return []
    left, right = parts(keys)
    own, other = (left, right) if member in left else (right, left)
    return [*way_up(own, member), (keys, other)]


class Tree:
    """The public state: public keys and taints of inner nodes, by the sets of keys under them."""

    def __init__(self) -> None:
        self.n = -1
        self.pubs: dict[Set, bytes] = {}
        self.taints: dict[Set, Set] = {}

    def key(self, node: Set) -> bytes:
        return next(iter(node)) if len(node) == 1 else self.pubs[node]

    def taint(self, node: Set) -> Set:
        return self.taints.get(node, frozenset())

    def survivors(self, members: Set) -> "Tree":
        found = Tree()
        for node in inner(members):
            if node in self.pubs and self.taints[node] <= members:
                found.pubs[node], found.taints[node] = self.pubs[node], self.taints[node]
        return found


def commit(tree: Tree, author: str, members: Set) -> tuple[Json, Tree, bytes]:
    """Return the envelope, the tree after it, and the root secret."""
    eph, me = Pair(chance(32)), PUB[author]
    after = tree.survivors(members)
    after.n = tree.n + 1

    def wrap(to: bytes, secret: bytes) -> Json:
        nonce, key = chance(12), hkdf(eph.ecdh(to), "enc:mls:wrap")
        sealed = nonce + ChaCha20Poly1305(key).encrypt(nonce, secret, None)
        return {"to": to.hex(), "ct": b64encode(sealed).decode()}

    def put(node: Set, secret: bytes, taint: Set) -> str:
        pair = Pair(hkdf(secret, "enc:mls:node"))
        after.pubs[node], after.taints[node] = pair.pub, taint
        return pair.pub.hex()

    secret = chance(32)
    own, fills, path = wrap(me, secret), [], []
    for _, beside in way_up(members, me):
        for node in inner(beside):
            if node not in after.pubs:
                left, right = parts(node)
                filled = chance(32)
                taint = frozenset([me]) | after.taint(left) | after.taint(right)
                wraps = [wrap(after.key(child), filled) for child in (left, right)]
                fills.append({"pub": put(node, filled, taint), "wraps": wraps})
    below: Set = frozenset([me])
    for i, (node, beside) in enumerate(way_up(members, me)):
        secret = hkdf(secret, "enc:mls:path") if i else secret
        sealed = wrap(after.key(beside), secret)
        pub = put(node, secret, frozenset([me]) | after.taint(beside) | after.taint(below))
        path.append({"pub": pub, "wrap": sealed})
        below = node
    named = H("enc:mls:set", sorted(members)).hex()
    envelope = {"n": after.n, "eph": eph.pub.hex(), "members": named, "self": own, "fill": fills, "path": path}
    return envelope, after, secret


# The log


def spelled(content: Any) -> str:
    return content if isinstance(content, str) else json.dumps(content, separators=(",", ":"), sort_keys=True)


def sign(pair: Pair, digest: bytes) -> bytes:
    return bytes(Key(pair.secret).sign(digest))


class Log:
    def __init__(self) -> None:
        self.enclave = b""
        self.events: list[Json] = []
        self.after: list[Json] = []
        self.members: list[str] = []
        self.tree = Tree()
        self.epochs: list[Json] = []
        self.seals: dict[tuple[str, int], int] = {}

    def event(self, by: str, type_: str, content: Any = "", tags: list[list[str]] | None = None) -> Json:
        text, key, tags = spelled(content), PEOPLE[by], tags or []
        seq, digest = len(self.events), sha256(text.encode())
        exp, timestamp = START + 60_000 + seq, START + 10 * seq
        if type_ == "Manifest":
            self.enclave = H(0x12, key.pub, "Manifest", digest, tags)
        hash_ = H(0x10, self.enclave, key.pub, type_, digest, exp, tags)
        sig = sign(key, hash_)
        seq_sig = sign(NODE, H(0x11, timestamp, seq, NODE.pub, sig))
        event = {"hash": hash_.hex(), "enclave": self.enclave.hex(), "from": key.pub.hex(), "type": type_}
        event |= {"content": text, "exp": exp, "tags": tags, "sig": sig.hex(), "id": sha256(seq_sig).hex()}
        event |= {"timestamp": timestamp, "sequencer": NODE.pub.hex(), "seq": seq, "seq_sig": seq_sig.hex()}
        self.events.append(event)
        return event

    def send(self, by: str, type_: str, content: Any = "", tags: Any = None, **after: Any) -> Json:
        """Add an event, and what readers must make of it: whether its `epoch` counts, and which
        `text` they show."""
        event = self.event(by, type_, content, tags)
        self.after.append({"members": sorted(self.members), **after})
        return event

    def propose(self, by: str, members: list[str]) -> tuple[Json, Tree, bytes]:
        return commit(self.tree, by, frozenset(PUB[name] for name in members))

    def count(self, made: tuple[Json, Tree, bytes]) -> Json:
        """Record an epoch that counts."""
        envelope, self.tree, root = made
        secret = hkdf(root, "enc:mls:epoch")
        self.epochs.append({"n": self.tree.n, "root_secret": root.hex(), "epoch_secret": secret.hex()})
        self.epochs[-1]["members"] = sorted(self.members)
        return envelope

    def move(self, by: str, who: str, from_: str, to: str, *, epoch: bool = True) -> None:
        self.members = [*self.members, who] if to == "MEMBER" else [name for name in self.members if name != who]
        content: Json = {"target": hexed(who), "from": from_, "to": to}
        if epoch:
            content["epoch"] = self.count(self.propose(by, self.members))
        self.send(by, "Move", content, **({"epoch": "counts"} if epoch else {}))

    def seal(self, by: str, text: str, n: int | None = None, i: int | None = None) -> Json:
        n = self.tree.n if n is None else n
        i = self.seals.get((by, n), 0) if i is None else i
        self.seals[by, n] = max(self.seals.get((by, n), 0), i + 1)
        chain = hkdf(bytes.fromhex(self.epochs[n]["epoch_secret"]), f"enc:mls:sender:{hexed(by)}")
        for _ in range(i):
            chain = hkdf(chain, "enc:mls:ratchet:advance")
        nonce = chance(12)
        sealed = nonce + ChaCha20Poly1305(hkdf(chain, "enc:mls:ratchet:message")).encrypt(nonce, text.encode(), None)
        return {"epoch": n, "sender_seq": i, "ciphertext": b64encode(sealed).decode()}

    def say(
        self, by: str, text: str, *, type_: str = "message", tags: Any = None, shown: bool = True, **how: Any
    ) -> Json:
        """Add a sealed message. Members of its epoch can read it if `shown`; otherwise nobody
        can."""
        content = self.seal(by, text, how.pop("n", None), how.pop("i", None))
        after = {"text": text if shown else None, "readers": self.epochs[content["epoch"]]["members"] if shown else []}
        return self.send(by, type_, content, tags, **after, **how)


RULES = json.loads((FOLDER / "group_manifest.json").read_text())


def build_log() -> Log:
    log = Log()
    log.members = ["ann"]
    first = {"identity": hexed("ann"), "state": "MEMBER", "traits": ["owner", "admin"]}
    bundle = {"size": 256, "timeout": 5000}
    log.send("ann", "Manifest", {**RULES, "meta": {"name": "group log"}, "bundle": bundle, "init": [first]})
    log.send("ann", "Gate", {"alias": "auto_join", "state": "closed"})
    log.send("ann", "rotate", {"epoch": log.count(log.propose("ann", ["ann"]))}, epoch="counts")
    log.say("ann", "alone")
    for name in ("ben", "cat", "dan"):
        log.move("ann", name, "OUTSIDER", "MEMBER")
    hello = log.say("ben", "hello")
    log.say("cat", "\N{WAVING HAND SIGN}", type_="reaction", tags=[["r", hello["id"]]])
    log.say("ben", "hello, all", type_="Update", tags=[["r", hello["id"]]])
    log.say("dan", "hi", tags=[["r", hello["id"], "reply"]])
    log.say("ben", "the same key again", i=0, shown=False)
    log.say("cat", "a key for which there is no room", i=40, shown=False)
    log.seals["cat", log.tree.n] = 1
    log.send("ann", "Grant", {"target": hexed("ben"), "trait": "admin"})
    # Two admins at once: the first counts, the second has the same number.
    slower = log.propose("ann", log.members)[0]
    log.send("ben", "rotate", {"epoch": log.count(log.propose("ben", log.members))}, epoch="counts")
    log.send("ann", "rotate", {"epoch": slower}, epoch="ignored")
    log.say("dan", "sealed before, sent after", n=log.tree.n - 1, late=True)
    # dan leaves: the epoch that ben made for eve meanwhile is for the wrong members.
    outdated = log.propose("ben", [*log.members, "eve"])[0]
    log.move("dan", "dan", "MEMBER", "OUTSIDER", epoch=False)
    log.members.append("eve")
    log.send(
        "ben", "Move", {"target": hexed("eve"), "from": "OUTSIDER", "to": "MEMBER", "epoch": outdated}, epoch="ignored"
    )
    log.say("cat", "dan may read this, eve may not")
    log.send("ben", "rotate", {"epoch": log.count(log.propose("ben", log.members))}, epoch="counts")
    log.say("cat", "eve may read this, dan may not")
    log.say("ann", "everybody, please", type_="notice")
    # An epoch inside an operation is ignored; beside the operations it counts.
    inside = {"type": "Move", "target": hexed("fay"), "from": "OUTSIDER", "to": "MEMBER"}
    log.members.append("fay")
    made = log.propose("ann", log.members)
    log.send("ann", "AC_Bundle", {"operations": [{**inside, "epoch": made[0]}]})
    mute = {"type": "Grant", "target": hexed("fay"), "trait": "muted"}
    log.send("ann", "AC_Bundle", {"operations": [mute], "epoch": log.count(made)}, epoch="counts")
    gone = log.propose("ann", log.members)[0]
    log.send("ann", "rotate", {"epoch": gone}, [["auto-delete", str(START + 3_000_000)]], epoch="ignored")
    log.send("ann", "rotate", f'{{"epoch":{spelled(gone)},"x":1,"x":1}}', epoch="ignored")
    log.move("ben", "cat", "MEMBER", "BLOCKED")
    log.say("eve", "without cat")
    # ben has made keys of nodes that he is not below: they are dropped when he leaves.
    log.move("ann", "dan", "OUTSIDER", "MEMBER")
    log.move("ann", "ben", "MEMBER", "OUTSIDER")
    log.say("eve", "without ben")
    log.send("ann", "Delete", {"reason": "moderator"}, [["r", hello["id"]]])
    return log


def text() -> str:
    log = build_log()
    made = {
        "people": {name: {"priv": pair.secret.hex(), "pub": pair.pub.hex()} for name, pair in PEOPLE.items()},
        "enclave": log.enclave.hex(),
        "events": log.events,
        "after_each_event": log.after,
        "epochs": log.epochs,
    }
    return json.dumps(made, indent=1) + "\n"


if __name__ == "__main__":
    (FOLDER / "group_log.json").write_text(text())
