"""Makes registry.json: an enclave that is sold, moved and sold again, and the log of a registry
that follows it.

The script shares no code with the kernel; it takes the tree definitions of make_log_v1.py, which
shares none either. Proofs are read off whole trees. No rule is implemented: the active entries,
their holders, and the codes of rejected commits are written down by hand. Every run gives the same
bytes.
"""

import json
from pathlib import Path
from runpy import run_path
from typing import Any

FOLDER = Path(__file__).parent
TREES = run_path(str(FOLDER / "make_log_v1.py"))
H, sha256, Key, KEYS = (TREES[name] for name in ("H", "sha256", "Key", "KEYS"))
state_root, log_root, events_root, tree_key = (
    TREES[name] for name in ("state_root", "log_root", "events_root", "tree_key")
)
START, EMPTY, SIZE = TREES["START"], TREES["EMPTY"], 2
OWNER = (1 << 8).to_bytes(32, "big")
LIFECYCLE = tree_key(2, H("Shared", "lifecycle"))

Json = dict[str, Any]
for person in ("mallory", "registrar", "registry_node"):
    KEYS[person] = Key(sha256(person.encode()))


def pub(name: str) -> str:
    return KEYS[name].hex


def spelled(content: Any) -> str:
    return content if isinstance(content, str) else json.dumps(content, separators=(",", ":"), sort_keys=True)


# Proofs, by their definitions


def log_path(leaves: list[bytes], m: int) -> list[bytes]:
    """Return the path in a log, by RFC 9162, section 2.1.3.1."""
    if len(leaves) == 1:
        return []
    k = 1 << (len(leaves) - 1).bit_length() - 1
    if m < k:
        return [*log_path(leaves[:k], m), log_root(leaves[k:])]
    return [*log_path(leaves[k:], m - k), log_root(leaves[:k])]


def state_path(leaves: dict[bytes, bytes], key: bytes) -> Json:
    bitmap, siblings = bytearray(21), list[str]()
    for depth in range(168):
        sides: tuple[dict[bytes, bytes], dict[bytes, bytes]] = {}, {}
        for other, value in leaves.items():
            sides[other[depth // 8] >> 7 - depth % 8 & 1][other] = value
        own = key[depth // 8] >> 7 - depth % 8 & 1
        sibling = state_root(sides[1 - own], depth + 1)
        if sibling != EMPTY:
            bitmap[depth // 8] |= 1 << depth % 8
            siblings.append(sibling.hex())
        leaves = sides[own]
    value = leaves.get(key)
    return {"k": key.hex(), "v": value.hex() if value else None, "b": bitmap.hex(), "s": siblings}


# Logs


class Log:
    """The events so far, and the leaves after them, as the script states them."""

    def __init__(self) -> None:
        self.enclave = b""
        self.events: list[Json] = []
        self.leaves: dict[bytes, bytes] = {}
        self.closed: list[tuple[bytes, bytes]] = []
        self.states: list[dict[bytes, bytes]] = []
        self.open: list[bytes] = []
        self.times: list[int] = []

    def commit(self, name: str, type_: str, content: Any, tags: list[list[str]] | None = None) -> Json:
        text, key, exp, tags = spelled(content), KEYS[name], START + 60_000 + len(self.events), tags or []
        digest = sha256(text.encode())
        enclave = H(0x12, key.pub, "Manifest", digest, tags) if type_ == "Manifest" else self.enclave
        hash_ = H(0x10, enclave, key.pub, type_, digest, exp, tags)
        commit = {"hash": hash_.hex(), "enclave": enclave.hex(), "from": key.hex, "type": type_, "content": text}
        return {**commit, "exp": exp, "tags": tags, "sig": key.sign(hash_).hex()}

    def finalised(self, commit: Json, by: str, seq: int) -> Json:
        timestamp = START + 10 * seq
        seq_sig = KEYS[by].sign(H(0x11, timestamp, seq, KEYS[by].pub, bytes.fromhex(commit["sig"])))
        placed = {"timestamp": timestamp, "sequencer": pub(by), "seq": seq}
        return {**commit, "id": sha256(seq_sig).hex(), **placed, "seq_sig": seq_sig.hex()}

    def send(self, by: str, name: str, type_: str, content: Any = "", *, tags: Any = None, **leaves: Any) -> Json:
        """Add an event of the node `by`. `leaves`: an identity's bitmask, the lifecycle, the status
        of an event."""
        commit = self.commit(name, type_, content, tags)
        self.enclave = bytes.fromhex(commit["enclave"])
        event = self.finalised(commit, by, len(self.events))
        self.events.append(event)
        self.open.append(bytes.fromhex(event["id"]))
        for what, value in leaves.items():
            self.set_leaf(what, value, bytes.fromhex(event["id"]))
        if len(self.open) == SIZE or type_ == "Migrate":
            self.closed.append(self.bundle())
            self.times.append(event["timestamp"])
            self.states.append(dict(self.leaves))
            self.open = []
        return event

    def set_leaf(self, what: str, value: Any, event_id: bytes) -> None:
        if what == "lifecycle":
            key = LIFECYCLE
        elif what.startswith("status_of_"):
            key, value = tree_key(1, bytes.fromhex(self.events[int(what[10:])]["id"])), value or event_id
        else:
            key = tree_key(0, KEYS[what].pub)
        self.leaves.pop(key, None)
        if value is not None:
            self.leaves[key] = value

    def bundle(self) -> tuple[bytes, bytes]:
        return events_root(self.open), state_root(self.leaves)

    def checkpoint(self) -> bytes:
        bundles = [*self.closed, self.bundle()] if self.open else self.closed
        return log_root([H(0x00, *bundle) for bundle in bundles])

    def migrate(self, to: str) -> Json:
        return {"new_sequencer": pub(to), "prev_seq": len(self.events) - 1, "ct_root": self.checkpoint().hex()}

    # Proofs

    def head(self, by: str, size: int) -> Json:
        time, root = self.times[size - 1], log_root([H(0x00, *bundle) for bundle in self.closed[:size]])
        message = time.to_bytes(8, "big") + size.to_bytes(8, "big") + root
        plain = KEYS[by].sign(sha256(b"enc:sth:" + message))
        bound = KEYS[by].sign(sha256(b"enc:head:" + self.enclave + message))
        return {"t": time, "ts": size, "r": root.hex(), "sig": plain.hex(), "bound_sig": bound.hex()}

    def inclusion(self, leaf: int, size: int) -> Json:
        path = log_path([H(0x00, *bundle) for bundle in self.closed[:size]], leaf)
        return {"ts": size, "li": leaf, "p": [each.hex() for each in path]}

    def leaf(self, index: int) -> Json:
        return {"events_root": self.closed[index][0].hex(), "state_hash": self.closed[index][1].hex()}

    def owner_proof(self, name: str, by: str, size: int, *passage: Json) -> Json:
        second = self.events[1]["id"]  # bundles have two events: the Manifest's has one sibling
        return {
            "sth": self.head(by, size),
            "ct_proof": self.inclusion(size - 1, size),
            **self.leaf(size - 1),
            "smt_proof": state_path(self.states[size - 1], tree_key(0, KEYS[name].pub)),
            "origin": {
                "bundle": {"ei": 0, "s": [second], "size": 2},
                **self.leaf(0),
                "ct_proof": self.inclusion(0, size),
            },
            "passage": list(passage),
        }


def manifest(owner: str, **more: Any) -> Json:
    return {
        "enc_v": 2,
        "traits": ["owner(0)"],
        "transfers": [{"trait": "owner", "scope": "OUTSIDER"}],
        "init": [{"identity": pub(owner), "state": "OUTSIDER", "traits": ["owner"]}],
        "bundle": {"size": SIZE, "timeout": 3_600_000},
        **more,
    }


def sold_enclave() -> Log:
    """Return alice's enclave on `node`: sold to bob, moved by him to `node2`, sold to carol
    there."""
    log = Log()
    talk = [{"event": "message", "operator": "Public", "ops": ["C"]}]
    log.send("node", "alice", "Manifest", manifest("alice", customs=talk), alice=OWNER)
    log.send("node", "bob", "message", "one")
    log.send("node", "alice", "Transfer", {"target": pub("bob"), "trait": "owner"}, alice=None, bob=OWNER)
    log.send("node", "bob", "message", "two")
    log.send("node", "bob", "Migrate", log.migrate("node2"), lifecycle=sha256(b"migrated"))
    log.send("node2", "carol", "message", "three", lifecycle=None)
    log.send("node2", "bob", "Transfer", {"target": pub("carol"), "trait": "owner"}, bob=None, carol=OWNER)
    return log


def registry_manifest() -> Json:
    types = ("Reg_Node", "Reg_Enclave", "Reg_Identity")
    customs = [
        {"event": type_, "operator": operator, "ops": ops}
        for type_ in types
        for operator, ops in (("Public", ["C"]), ("Sender", ["U", "D"]))
    ]
    readers = [{"type": "Public", "reads": "*"}]
    return manifest("registrar", registry=True, customs=customs, readers=readers)


class RegistryLog:
    """The registry's log, the records after each event, and rejected commits in between."""

    def __init__(self) -> None:
        self.log, self.sold_enclave = Log(), sold_enclave()
        self.state_hashes: list[str] = []
        self.records: list[Json] = []
        self.refused: list[Json] = []
        self._now: Json = {}

    def entry(self, **more: Any) -> Json:
        return {"manifest_event": self.sold_enclave.events[0], **more}

    def send(self, name: str, type_: str, content: Any, *, tags: Any = None, leaves: Json, **records: Any) -> None:
        """Add an event. `records`: the new records of the node, the enclave and the identity;
        entries are seqs."""
        self.log.send("registry_node", name, type_, content, tags=tags, **leaves)
        self._now = {**self._now, **records}
        self.state_hashes.append(state_root(self.log.leaves).hex())
        self.records.append(dict(self._now))

    def refuse(self, name: str, type_: str, content: Any, code: str, why: str, tags: Any = None) -> None:
        commit = self.log.commit(name, type_, content, tags)
        self.refused.append({"after_seq": len(self.log.events) - 1, "commit": commit, "code": code, "message": why})

    def record(self, entry: int | None, holder: str, size: int, node: str, app: str = "") -> Json:
        proof = self.sold_enclave.head(node, size) if size else {"t": 0, "r": ""}
        named = {"entry": entry, "holder": pub(holder), "proved_size": size, "sequencer": pub(node)}
        named |= {"proved_at": proof["t"], "proved_root": proof["r"]}
        moved = self.sold_enclave.events[4]["timestamp"] if node == "node2" else 0
        named |= {"moved_at": 4 if moved else -1, "moved_time": moved}
        return {**named, "manifest": self.sold_enclave.events[0]["id"], "creator": pub("alice"), "app": app}


def build_registry() -> RegistryLog:
    it = RegistryLog()
    sold, _, moved, _, sold_on = it.sold_enclave.events[2:]
    it.send("registrar", "Manifest", registry_manifest(), leaves={"registrar": OWNER})
    node = {"seq_pub": pub("node"), "endpoints": [{"uri": "https://node.example:443", "priority": 1}], "enc_v": 2}
    it.refuse("mallory", "Reg_Node", node, "UNAUTHORIZED", "content.seq_pub: only its own key may register it")
    it.send("node", "Reg_Node", node, leaves={}, node={"entry": 1, "holder": pub("node")})
    nobody = "neither by the entry's holder nor with an owner proof"
    it.refuse("mallory", "Reg_Enclave", it.entry(), "UNAUTHORIZED", nobody)
    first = it.entry(app="chat")
    it.send("alice", "Reg_Enclave", first, leaves={}, enclave=it.record(2, "alice", 0, "node", "chat"))
    it.refuse(
        "alice",
        "Update",
        first,
        "INVALID_TARGET",
        "a Reg_Enclave cannot be updated: register a new entry instead",
        [["r", it.log.events[2]["id"]]],
    )
    bobs = it.sold_enclave.owner_proof("bob", "node", 2, sold)
    no_way = "owner_proof.passage: does not start at the holder, nor at an owner of that time"
    it.refuse("bob", "Reg_Enclave", it.entry(owner_proof={**bobs, "passage": []}), "UNAUTHORIZED", no_way)
    forged = it.sold_enclave.finalised(
        it.sold_enclave.commit("mallory", "Migrate", it.sold_enclave.migrate("mallory")), "mallory", 7
    )
    no_owner = "migrate_events[0]: neither by the holder nor with an owner proof of its author"
    it.refuse("mallory", "Reg_Enclave", it.entry(migrate_events=[forged]), "REGISTRY_CONFLICT", no_owner)
    it.send(
        "bob",
        "Reg_Enclave",
        it.entry(owner_proof=bobs),
        leaves={"status_of_2": None},
        enclave=it.record(3, "bob", 2, "node"),
    )
    it.refuse("alice", "Reg_Enclave", first, "UNAUTHORIZED", nobody)
    carols = it.sold_enclave.owner_proof("carol", "node2", 4, sold_on)
    whole = it.entry(owner_proof=carols, migrate_events=[moved])
    unmoved = "owner_proof.sth: not signed by this sequencer"
    it.refuse("carol", "Reg_Enclave", it.entry(owner_proof=carols), "UNAUTHORIZED", unmoved)
    it.send("carol", "Reg_Enclave", whole, leaves={"status_of_3": None}, enclave=it.record(4, "carol", 4, "node2"))
    elsewhere = "sequencer: another than the one on record needs migrate_events"
    it.refuse("carol", "Reg_Enclave", it.entry(), "REGISTRY_CONFLICT", elsewhere)
    gone, tags = {"reason": "author"}, [["r", it.log.events[4]["id"]]]
    it.send(
        "carol", "Delete", gone, tags=tags, leaves={"status_of_4": b"\0"}, enclave=it.record(None, "carol", 4, "node2")
    )
    identity = {"id_pub": pub("alice"), "enclaves": {"dm": it.sold_enclave.enclave.hex()}}
    it.send("alice", "Reg_Identity", identity, leaves={}, identity={"entry": 6, "holder": pub("alice")})
    again = it.entry(sequencer=pub("node2"))
    it.send("carol", "Reg_Enclave", again, leaves={}, enclave=it.record(7, "carol", 4, "node2"))
    return it


def text() -> str:
    it = build_registry()
    made = {
        "keys": {name: KEYS[name].hex for name in sorted(KEYS)},
        "enclave": it.sold_enclave.enclave.hex(),
        "enclave_events": it.sold_enclave.events,
        "registry": it.log.enclave.hex(),
        "registry_events": it.log.events,
        "state_hash_after_each_event": it.state_hashes,
        "records_after_each_event": it.records,
        "refused": it.refused,
    }
    return json.dumps(made, indent=1) + "\n"


if __name__ == "__main__":
    (FOLDER / "registry.json").write_text(text())
