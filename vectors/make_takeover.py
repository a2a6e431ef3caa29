"""Makes registry_takeover.json: former owners who take the entries of four enclaves by old evidence,
owners who get them back, and old evidence that is refused afterwards.

The script shares no code with the kernel; it takes the logs and proofs of make_registry.py, which
shares none either. No rule is implemented: records and the codes of rejected commits are written
down by hand. Every run gives the same bytes.
"""

import json
from pathlib import Path
from runpy import run_path
from typing import Any

FOLDER = Path(__file__).parent
MADE = run_path(str(FOLDER / "make_registry.py"))
Log, KEYS, pub, OWNER, H, sha256 = (MADE[name] for name in ("Log", "KEYS", "pub", "OWNER", "H", "sha256"))
spelled, state_path, tree_key, manifest = (MADE[name] for name in ("spelled", "state_path", "tree_key", "manifest"))
START, registry_manifest = MADE["START"], MADE["registry_manifest"]
OWNER_V1, STATE_OWNER = (1 << 1).to_bytes(32, "big"), (1).to_bytes(32, "big")
Json = dict[str, Any]


class LogV1(Log):  # type: ignore[misc,valid-type]
    """A log of version 1, whose hashes contain tags as text."""

    def commit(self, name: str, type_: str, content: Any, tags: list[list[str]] | None = None) -> Json:
        text, key, exp = spelled(content), KEYS[name], START + 60_000 + len(self.events)
        digest = sha256(text.encode())
        enclave = H(0x12, key.pub, "Manifest", digest, "") if type_ == "Manifest" else self.enclave
        hash_ = H(0x10, enclave, key.pub, type_, digest, exp, "")
        commit = {"hash": hash_.hex(), "enclave": enclave.hex(), "from": key.hex, "type": type_, "content": text}
        return {**commit, "exp": exp, "tags": [], "sig": key.sign(hash_).hex()}


# Enclaves of alice's on `node`: bob is an owner after event 2, and no longer after event 4


def sold() -> Any:
    """Return one of version 2: sold to bob, and given back."""
    log, talk = Log(), [{"event": "message", "operator": "Public", "ops": ["C"]}]
    log.send("node", "alice", "Manifest", manifest("alice", customs=talk), alice=OWNER)
    log.send("node", "dave", "message", "one")
    log.send("node", "alice", "Transfer", {"target": pub("bob"), "trait": "owner"}, alice=None, bob=OWNER)
    log.send("node", "dave", "message", "two")
    log.send("node", "bob", "Transfer", {"target": pub("alice"), "trait": "owner"}, bob=None, alice=OWNER)
    log.send("node", "dave", "message", "three")
    return log


def sold_v1() -> Any:
    """Return one of version 1: sold to bob, and given back."""
    log = LogV1()
    rows = [("Transfer_Owner", "Owner"), ("message", "Any")]
    schema = [{"event": event, "role": role, "ops": ["C"]} for event, role in rows]
    rbac = {"use_temp": "none", "schema": schema, "initial_state": {"Owner": [pub("alice")]}}
    content = {"enc_v": 1, "RBAC": rbac, "bundle": {"size": 2, "timeout": 3_600_000}}
    log.send("node", "alice", "Manifest", content, alice=OWNER_V1)
    log.send("node", "dave", "message", "one")
    log.send("node", "alice", "Transfer_Owner", {"new_owner": pub("bob")}, alice=None, bob=OWNER_V1)
    log.send("node", "dave", "message", "two")
    log.send("node", "bob", "Transfer_Owner", {"new_owner": pub("alice")}, bob=None, alice=OWNER_V1)
    log.send("node", "dave", "message", "three")
    return log


def shared() -> Any:
    """Return one of which bob was a co-owner, until alice put him out: no event leads from him to
    her."""
    log = Log()
    paths = [("OUTSIDER", "OWNER"), ("OWNER", "OUTSIDER")]
    content = {
        "enc_v": 2,
        "states": ["OWNER"],
        "moves": [{"event": "Move", "from": a, "to": b, "operator": "OWNER", "ops": ["C"]} for a, b in paths],
        "customs": [{"event": "message", "operator": "Public", "ops": ["C"]}],
        "init": [{"identity": pub("alice"), "state": "OWNER", "traits": []}],
        "bundle": {"size": 2, "timeout": 3_600_000},
    }
    log.send("node", "alice", "Manifest", content, alice=STATE_OWNER)
    log.send("node", "dave", "message", "one")
    log.send("node", "alice", "Move", {"target": pub("bob"), "from": "OUTSIDER", "to": "OWNER"}, bob=STATE_OWNER)
    log.send("node", "dave", "message", "two")
    log.send("node", "alice", "Move", {"target": pub("bob"), "from": "OWNER", "to": "OUTSIDER"}, bob=None)
    log.send("node", "dave", "message", "three")
    return log


class Takeover:
    """The registry's log for one enclave."""

    def __init__(self, house: Any) -> None:
        self.house, self.log = house, Log()
        self.state_hashes: list[str] = []
        self.records: list[Json] = []
        self.refused: list[Json] = []
        self._send("registrar", "Manifest", registry_manifest(), {}, registrar=OWNER)

    def _send(self, name: str, type_: str, content: Any, record: Json, **leaves: Any) -> None:
        self.log.send("registry_node", name, type_, content, **leaves)
        self.state_hashes.append(MADE["state_root"](self.log.leaves).hex())
        self.records.append(record)

    def enter(self, name: str, record: Json, **more: Any) -> None:
        """Add an entry, which supersedes the one before."""
        seq = len(self.log.events)
        leaves = {f"status_of_{seq - 1}": None} if seq > 1 else {}
        named = {"holder": pub(name), "manifest": self.house.events[0]["id"], "creator": pub("alice"), "app": ""}
        content = {"manifest_event": self.house.events[0], **more}
        self._send(name, "Reg_Enclave", content, {"enclave": {"entry": seq, **named, **record}}, **leaves)

    def refuse(self, name: str, code: str, why: str, **more: Any) -> None:
        commit = self.log.commit(name, "Reg_Enclave", {"manifest_event": self.house.events[0], **more})
        self.refused.append({"after_seq": len(self.log.events) - 1, "commit": commit, "code": code, "message": why})

    def known(self, size: int, **more: Any) -> Json:
        """Return what is known after a proof under the head of this size."""
        head = self.house.head("node", size) if size else {"t": 0, "r": ""}
        proved = {"proved_size": size, "proved_at": head["t"], "proved_root": head["r"]}
        return {**proved, "sequencer": pub("node"), "moved_at": -1, "moved_time": 0, "forced_from": [], **more}

    def start(self, name: str, size: int) -> Json:
        smt = state_path(self.house.states[size - 1], tree_key(0, KEYS[name].pub))
        return {"ct_proof": self.house.inclusion(size - 1, size), **self.house.leaf(size - 1), "smt_proof": smt}

    def forced(self) -> Json:
        """Return bob's Migrate to a node of his own, as of the time when he was an owner."""
        bundles = self.house.closed[:2]
        root = MADE["log_root"]([H(0x00, *bundle) for bundle in bundles])
        content = {"new_sequencer": pub("node2"), "prev_seq": 3, "ct_root": root.hex()}
        return self.house.finalised(self.house.commit("bob", "Migrate", content), "node2", 4)

    def led_back(self) -> Json:
        """Return bob's Migrate from there to the true node, dated later than all that alice has."""
        content = {"new_sequencer": pub("node"), "prev_seq": 499, "ct_root": bytes(32).hex()}
        return self.house.finalised(self.house.commit("bob", "Migrate", content), "node2", 500)

    def text(self) -> Json:
        return {
            "enclave": self.house.enclave.hex(),
            "enclave_events": self.house.events,
            "registry": self.log.enclave.hex(),
            "registry_events": self.log.events,
            "state_hash_after_each_event": self.state_hashes,
            "records_after_each_event": self.records,
            "refused": self.refused,
        }


def taken(house: Any, *, is_shared: bool, is_led_back: bool = False) -> Json:
    it, events = Takeover(house), house.events
    it.enter("alice", it.known(0))
    bobs = house.owner_proof("bob", "node", 2, events[2])
    it.enter("bob", it.known(2), owner_proof=bobs)
    link = it.forced()
    root = json.loads(link["content"])["ct_root"]
    before = {**it.known(2), "holder": pub("bob")}
    del before["forced_from"]
    away = {"proved_size": 0, "proved_at": link["timestamp"], "proved_root": root, "sequencer": pub("node2")}
    away |= {"moved_at": 4, "moved_time": link["timestamp"], "forced_from": [before]}
    if is_led_back:
        back = it.led_back()
        at_last = {"moved_at": 500, "moved_time": back["timestamp"], "forced_from": [before]}
        it.enter("bob", it.known(2, **at_last), migrate_events=[link, back])
    else:
        it.enter("bob", away, migrate_events=[link])
    alices = house.owner_proof("alice", "node", 3, *([] if is_shared else [events[4]]))
    nobody = "neither by the entry's holder nor with an owner proof"
    it.refuse("alice", "UNAUTHORIZED", nobody)
    if is_shared:
        no_way = "owner_proof.passage: does not start at the holder, nor at an owner of that time"
        it.refuse("alice", "UNAUTHORIZED", no_way, owner_proof=alices)
        daves = {**alices, "start": it.start("dave", 2)}
        it.refuse(
            "alice", "UNAUTHORIZED", "owner_proof.start.smt_proof.k: the key of another identity", owner_proof=daves
        )
        alices = {**alices, "start": it.start("alice", 2)}
    it.enter("alice", it.known(3), owner_proof=alices)
    attacks(it, bobs, link)
    it.enter("alice", it.known(3), sequencer=pub("node"))
    attacks(it, bobs, link)
    return it.text()


def attacks(it: Takeover, bobs: Json, link: Json) -> None:
    """Old evidence, which never beats newer."""
    old = "owner_proof.sth.ts: must be above 3, the size that was proved before"
    it.refuse("bob", "UNAUTHORIZED", old, owner_proof=bobs)
    late = "migrate_events[0]: not later than what was submitted before"
    it.refuse("bob", "REGISTRY_CONFLICT", late, migrate_events=[link])
    named = {**link, "owner_proof": bobs}
    again = "migrate_events[0].owner_proof.sth.ts: must be above 3, the size that was proved before"
    it.refuse("bob", "REGISTRY_CONFLICT", again, migrate_events=[named])


def text() -> str:
    cases = {
        "version 2": taken(sold(), is_shared=False),
        "version 1": taken(sold_v1(), is_shared=False),
        "a co-owner": taken(shared(), is_shared=True),
        "led back": taken(sold(), is_shared=False, is_led_back=True),
    }
    return json.dumps({"keys": {name: KEYS[name].hex for name in sorted(KEYS)}, "cases": cases}, indent=1) + "\n"


if __name__ == "__main__":
    (FOLDER / "registry_takeover.json").write_text(text())
