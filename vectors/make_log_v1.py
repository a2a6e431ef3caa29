"""Makes log_v1.json: a whole log of version 1, and rejected commits in between.

The script shares no code with the kernel. Trees are computed by their definitions, from the first
leaf each time. No access rule is implemented: the changes of every event, and the codes of rejected
commits, are written down by hand. Run it with Python, cbor2 and coincurve; every run gives the same
bytes.
"""

import json
from hashlib import sha256 as _sha256
from pathlib import Path
from typing import Any

import cbor2
from coincurve import PrivateKey, PublicKeyXOnly

FOLDER = Path(__file__).parent
START = 1_790_000_000_000
EMPTY = _sha256(b"").digest()
SIZE, TIMEOUT = 4, 5000

OWNER, ADMIN, MEMBER, DATAVIEW = 1 << 1, 1 << 32, 1 << 33, 1 << 34


def sha256(data: bytes) -> bytes:
    return _sha256(data).digest()


def H(*fields: Any) -> bytes:
    return sha256(cbor2.dumps(list(fields), canonical=True))


# Keys


class Key:
    def __init__(self, secret: bytes) -> None:
        self._key = PrivateKey(secret)
        self.pub = PublicKeyXOnly.from_secret(secret).format()
        self.hex = self.pub.hex()

    def sign(self, digest: bytes) -> bytes:
        return self._key.sign_schnorr(digest, bytes(32))


KEYS = {name: Key(bytes.fromhex(pair["priv"])) for name, pair in json.loads((FOLDER / "keys.json").read_text()).items()}
KEYS |= {name: Key(sha256(name.encode())) for name in ("dave", "erin")}


def pub(name: str) -> str:
    return KEYS[name].hex


# Trees


def state_root(leaves: dict[bytes, bytes], depth: int = 0) -> bytes:
    if not leaves:
        return EMPTY
    if depth == 168:
        ((key, value),) = leaves.items()
        return H(0x20, key, value)
    sides: tuple[dict[bytes, bytes], dict[bytes, bytes]] = {}, {}
    for key, value in leaves.items():
        sides[key[depth // 8] >> 7 - depth % 8 & 1][key] = value
    left, right = (state_root(side, depth + 1) for side in sides)
    return EMPTY if left == right == EMPTY else H(0x21, left, right)


def log_root(leaves: list[bytes]) -> bytes:
    if len(leaves) < 2:
        return leaves[0] if leaves else EMPTY
    k = 1 << (len(leaves) - 1).bit_length() - 1
    return H(0x01, log_root(leaves[:k]), log_root(leaves[k:]))


def events_root(ids: list[bytes]) -> bytes:
    level = ids + [ids[-1]] * ((1 << (len(ids) - 1).bit_length()) - len(ids))
    while len(level) > 1:
        level = [H(0x01, level[i], level[i + 1]) for i in range(0, len(level), 2)]
    return level[0]


def tree_key(namespace: int, raw: bytes) -> bytes:
    return bytes([namespace]) + sha256(raw)[:20]


# The log


def tag_text(tags: list[list[str]]) -> str:
    return ",".join(f"[{','.join(tag)}]" for tag in tags)


def spelled(content: Any) -> str:
    return content if isinstance(content, str) else json.dumps(content, separators=(",", ":"))


class Log:
    """The events so far, and the roles and statuses after them, as the script states them."""

    def __init__(self) -> None:
        self.enclave = b""
        self.events: list[dict[str, Any]] = []
        self.after: list[dict[str, Any]] = []
        self.bitmasks: list[dict[str, str]] = []
        self.refused: list[dict[str, Any]] = []
        self.sequencers: list[dict[str, Any]] = []
        self.roles: dict[str, int] = {}
        self.statuses: dict[bytes, bytes] = {}
        self.closed: list[tuple[bytes, bytes]] = []
        self.open: list[dict[str, Any]] = []

    # What is sent

    def commit(self, name: str, type_: str, content: Any, tags: list[list[str]], at: int) -> dict[str, Any]:
        text, key, exp = spelled(content), KEYS[name], START + at + 60_000
        digest = sha256(text.encode())
        enclave = H(0x12, key.pub, "Manifest", digest, tag_text(tags)) if type_ == "Manifest" else self.enclave
        hash_ = H(0x10, enclave, key.pub, type_, digest, exp, tag_text(tags))
        return {
            "hash": hash_.hex(),
            "enclave": enclave.hex(),
            "from": key.hex,
            "type": type_,
            "content": text,
            "exp": exp,
            "tags": tags,
            "sig": key.sign(hash_).hex(),
        }

    def send(
        self,
        name: str,
        type_: str,
        content: Any = "",
        *,
        tags: list[list[str]] | None = None,
        at: int,
        by: str = "node",
        roles: dict[str, int] | None = None,
        status: tuple[int, bytes | None] | None = None,
    ) -> None:
        """Add an event, finalised by the node `by`; `roles` and `status` (seq, value) are its
        changes."""
        commit = self.commit(name, type_, content, tags or [], at)
        self.enclave = bytes.fromhex(commit["enclave"])
        seq, timestamp = len(self.events), START + at
        sig = bytes.fromhex(commit["sig"])
        seq_sig = KEYS[by].sign(H(0x11, timestamp, seq, KEYS[by].pub, sig))
        event = {
            **commit,
            "id": sha256(seq_sig).hex(),
            "timestamp": timestamp,
            "sequencer": pub(by),
            "seq": seq,
            "seq_sig": seq_sig.hex(),
        }
        if self.open and (timestamp >= self.open[0]["timestamp"] + TIMEOUT or pub(by) != self.open[0]["sequencer"]):
            self.close()
        self.events.append(event)
        self.open.append(event)
        self.roles |= roles or {}
        if status:
            self.statuses[bytes.fromhex(self.events[status[0]]["id"])] = status[1] or sha256(seq_sig)
        checkpoint = self.checkpoint()
        if len(self.open) == SIZE or type_ == "Migrate":
            self.close()
        self.note(seq, pub(by), checkpoint)

    def note(self, seq: int, sequencer: str, checkpoint: bytes) -> None:
        if not self.sequencers or self.sequencers[-1]["seq_pub"] != sequencer:
            self.sequencers.append({"seq_pub": sequencer, "from_seq": seq})
        self.bitmasks.append({name: hex(mask) for name, mask in sorted(self.roles.items())})
        self.after.append(
            {
                "seq": seq,
                "state_hash": state_root(self.leaves()).hex(),
                "closed_bundles": len(self.closed),
                "ct_root": log_root([H(0x00, *bundle) for bundle in self.closed]).hex(),
                "checkpoint_root": checkpoint.hex(),
            }
        )

    def refuse(
        self, name: str, type_: str, content: Any, code: str, *, by: str = "node", r: str = "", **context: Any
    ) -> None:
        """Add a commit that the node `by` rejects at this point."""
        at = self.events[-1]["timestamp"] - START + 1
        commit = self.commit(name, type_, content, [["r", r]] if r else [], at)
        self.refused.append(
            {"after_seq": len(self.events) - 1, "by": pub(by), "commit": commit, "code": code, "context": context}
        )

    # What follows

    def leaves(self) -> dict[bytes, bytes]:
        found = {tree_key(0, KEYS[name].pub): mask.to_bytes(32, "big") for name, mask in self.roles.items() if mask}
        return found | {tree_key(1, event_id): value for event_id, value in self.statuses.items()}

    def bundle(self) -> tuple[bytes, bytes]:
        return events_root([bytes.fromhex(event["id"]) for event in self.open]), state_root(self.leaves())

    def close(self) -> None:
        self.closed.append(self.bundle())
        self.open = []

    def checkpoint(self) -> bytes:
        bundles = [*self.closed, self.bundle()] if self.open else self.closed
        return log_root([H(0x00, *bundle) for bundle in bundles])

    def id(self, seq: int) -> str:
        return str(self.events[seq]["id"])

    def migrate(self, to: str) -> dict[str, Any]:
        return {
            "new_sequencer": pub(to),
            "prev_seq": len(self.events) - 1,
            "ct_root": self.after[-1]["checkpoint_root"],
        }

    def erase(self, *seqs: int) -> None:
        for seq in seqs:
            content = self.events[seq]["content"]
            self.events[seq] |= {"content": None, "content_hash": sha256(content.encode()).hex()}


def row(event: str, role: str, ops: str, *targets: str) -> dict[str, Any]:
    return {"event": event, "role": role, "ops": list(ops), **({"target_roles": list(targets)} if targets else {})}


def has(name: str, role: str, **more: str) -> dict[str, str]:
    return {"role": role, "identity": pub(name), **more}


def move(name: str, from_: int, to: int) -> dict[str, str]:
    return {"identity": pub(name), "from": hex(from_), "to": hex(to)}


def op(type_: str, content: dict[str, str]) -> dict[str, str]:
    return {"type": type_, **content}


FEED = "https://dataview.example/feed"
MANIFEST = {
    "enc_v": 1,
    "RBAC": {
        "use_temp": "none",
        "schema": [
            row("Grant", "Owner", "C", "Admin", "Member", "DataView"),
            row("Grant", "Admin", "C", "Member"),
            row("Grant", "Member", "R"),
            row("Grant_Push", "Owner", "C", "DataView"),
            row("Revoke", "Owner", "C", "Admin", "Member", "DataView"),
            row("Revoke", "Admin", "C", "Member"),
            row("Revoke_Self", "Member", "C", "Member"),
            row("Move", "Owner", "C", "Admin", "Member"),
            row("Move", "Admin", "C", "Member"),
            row("Force_Move", "Owner", "C"),
            row("Transfer_Owner", "Owner", "C"),
            row("Pause", "Owner", "C"),
            row("Resume", "Owner", "C"),
            row("Terminate", "Owner", "C"),
            row("Chat_Message", "Member", "CR"),
            row("Chat_Message", "Self", "UD"),
            row("Chat_Message", "Admin", "D"),
            row("Report", "Node", "C"),
            row("*", "DataView", "P"),
        ],
        "initial_state": {
            "Owner": [pub("alice")],
            "Admin": [pub("bob")],
            "Member": [pub("bob"), pub("carol")],
            "DataView": [{"identity": pub("dave"), "endpoint": FEED}],
        },
    },
    "meta": {"description": "worked example, version 1"},
    "bundle": {"size": SIZE, "timeout": TIMEOUT},
}
MODERATED = {"reason": "moderator", "note": "off topic"}


def roles_and_contents(log: Log) -> None:
    """Add events 0 to 9."""
    start = {"alice": OWNER, "bob": ADMIN | MEMBER, "carol": MEMBER, "dave": DATAVIEW}
    log.send("alice", "Manifest", MANIFEST, at=0, roles=start)
    log.refuse("alice", "Resume", "", "INVALID_LIFECYCLE_STATE")
    log.refuse("alice", "Manifest", MANIFEST, "ENCLAVE_EXISTS")
    log.send("bob", "Grant", has("erin", "Member"), at=10, roles={"erin": MEMBER})
    log.send("alice", "Grant", has("carol", "Admin"), at=20, roles={"carol": ADMIN | MEMBER})
    refused_roles(log)
    log.send("erin", "Chat_Message", "first", tags=[["k", "ü", ""], ["z"]], at=20)
    log.send("erin", "Chat_Message", "second", tags=[["r", log.id(3), "reply"]], at=720)
    log.send("erin", "Update", "first, mended", tags=[["r", log.id(3)]], at=820, status=(3, None))
    log.send("erin", "Update", "", tags=[["r", log.id(3), "target"]], at=920, status=(3, None))
    log.refuse("carol", "Update", "not hers", "UNAUTHORIZED", r=log.id(4))
    log.send("bob", "Delete", MODERATED, tags=[["r", log.id(4)]], at=6920, status=(4, b"\x00"))
    log.refuse("erin", "Update", "too late", "EVENT_DELETED", r=log.id(4))
    log.refuse("erin", "Update", "of an Update", "INVALID_TARGET", r=log.id(5))
    log.refuse("alice", "Delete", MODERATED, "INVALID_TARGET", r=log.id(1))
    log.refuse("erin", "Delete", {"reason": "author"}, "EVENT_NOT_FOUND", r="00" * 32)
    log.send("alice", "Grant_Push", has("erin", "DataView", endpoint=FEED), at=6921, roles={"erin": MEMBER | DATAVIEW})
    log.send("alice", "Revoke", has("dave", "DataView"), at=6922, roles={"dave": 0})


def refused_roles(log: Log) -> None:
    """Add commits that fail while alice is Owner, bob and carol are Admin and Member, erin is
    Member."""
    both = ADMIN | MEMBER
    log.refuse("dave", "Chat_Message", "no Member", "UNAUTHORIZED")
    log.refuse("carol", "Grant", has("erin", "Admin"), "UNAUTHORIZED")
    log.refuse("alice", "Grant", has("erin", "Owner"), "UNAUTHORIZED")
    log.refuse("bob", "Grant_Push", has("erin", "DataView", endpoint=FEED), "UNAUTHORIZED")
    log.refuse("alice", "Grant_Push", has("erin", "DataView", endpoint=""), "INVALID_ENDPOINT_URL")
    log.refuse("alice", "Revoke_Self", {"role": "Owner"}, "OWNER_SELF_REVOKE_FORBIDDEN")
    log.refuse("bob", "Move", move("carol", 0, MEMBER), "BITMASK_MISMATCH", expected="0x0", actual=hex(both))
    log.refuse(
        "alice", "Force_Move", move("bob", MEMBER, 0), "BITMASK_MISMATCH", expected=hex(MEMBER), actual=hex(both)
    )
    log.refuse("bob", "Move", move("carol", both, MEMBER), "UNAUTHORIZED")
    log.refuse("bob", "Move", move("alice", OWNER, MEMBER), "OWNER_BIT_PROTECTED")
    log.refuse("alice", "Force_Move", move("alice", OWNER, OWNER | MEMBER), "OWNER_BIT_PROTECTED")
    log.refuse("alice", "Move", move("erin", MEMBER, MEMBER | 1 << 5), "INVALID_COMMIT")
    log.refuse("alice", "Move", {**move("erin", MEMBER, 0), "to": "0"}, "INVALID_COMMIT")
    log.refuse("bob", "Transfer_Owner", {"new_owner": pub("bob")}, "UNAUTHORIZED")
    log.refuse("bob", "Migrate", log.migrate("node2"), "UNAUTHORIZED")
    root = log.after[-1]["checkpoint_root"]
    wrong = {**log.migrate("node2"), "ct_root": "00" * 32}
    log.refuse("alice", "Migrate", wrong, "CHECKPOINT_MISMATCH", seq=2, ct_root=root)
    operations = [op("Grant", has("dave", "Member")), op("Move", move("dave", DATAVIEW, 0))]
    failed = {"failed_index": 1, "reason": "BITMASK_MISMATCH"}
    log.refuse("alice", "AC_Bundle", {"operations": operations}, "AC_BUNDLE_FAILED", **failed)
    log.refuse(
        "alice", "AC_Bundle", {"operations": [op("Transfer_Owner", {"new_owner": pub("bob")})]}, "INVALID_COMMIT"
    )


def moves_and_owner(log: Log) -> None:
    """Add events 10 to 15."""
    log.send("carol", "Revoke_Self", {"role": "Member"}, at=6923, roles={"carol": ADMIN})
    log.send("alice", "Move", move("carol", ADMIN, MEMBER), at=6924, roles={"carol": MEMBER})
    forced = move("erin", MEMBER | DATAVIEW, ADMIN | DATAVIEW)
    log.send("alice", "Force_Move", forced, at=6925, roles={"erin": ADMIN | DATAVIEW})
    owners = {"alice": 0, "bob": OWNER | ADMIN | MEMBER}
    log.send("alice", "Transfer_Owner", {"new_owner": pub("bob")}, at=6926, roles=owners)
    operations = [
        op("Grant", has("alice", "Member")),
        op("Move", move("alice", MEMBER, ADMIN | MEMBER)),
        op("Revoke", has("carol", "Member")),
        op("Force_Move", move("erin", ADMIN | DATAVIEW, MEMBER | DATAVIEW)),
        op("Revoke_Self", {"role": "Member"}),
        op("Grant_Push", has("dave", "DataView", endpoint=FEED)),
    ]
    after = {"alice": ADMIN | MEMBER, "carol": 0, "erin": MEMBER | DATAVIEW, "bob": OWNER | ADMIN, "dave": DATAVIEW}
    log.send("bob", "AC_Bundle", {"operations": operations}, at=6927, roles=after)
    log.send("node", "Report", "all is well", at=6928)
    log.refuse("node2", "Report", "not the sequencer", "UNAUTHORIZED")


def lifecycle(log: Log) -> None:
    """Add events 16 to 26."""
    log.send("bob", "Pause", at=6929)
    log.refuse("alice", "Chat_Message", "paused", "ENCLAVE_PAUSED")
    log.refuse("bob", "Pause", "", "ENCLAVE_PAUSED")
    log.send("bob", "Resume", {}, at=96_929)
    log.send("alice", "Grant", has("erin", "Member"), at=96_930)
    log.send("bob", "Transfer_Owner", {"new_owner": pub("bob")}, at=96_931)
    log.send("bob", "Migrate", log.migrate("node2"), at=96_932)
    log.refuse("bob", "Pause", "", "ENCLAVE_MIGRATED", new_sequencer=pub("node2"))
    delete_at = str(START + 10_000_000)
    log.send("erin", "Chat_Message", "for a while", tags=[["auto-delete", delete_at]], at=97_000, by="node2")
    log.send("bob", "Pause", at=97_001, by="node2")
    log.send("bob", "Migrate", log.migrate("node"), at=97_500)
    log.send("bob", "Resume", at=97_501)
    log.send("alice", "Move", move("erin", MEMBER | DATAVIEW, DATAVIEW), at=97_502, roles={"erin": DATAVIEW})
    log.send("bob", "Terminate", at=97_503)
    log.refuse("bob", "Migrate", log.migrate("node2"), "ENCLAVE_TERMINATED")


def text() -> str:
    log = Log()
    roles_and_contents(log)
    moves_and_owner(log)
    lifecycle(log)
    log.erase(3, 4, 5)
    made = {
        "enclave": log.enclave.hex(),
        "keys": {name: KEYS[name].hex for name in sorted(KEYS)},
        "sequencers": log.sequencers,
        "events": log.events,
        "after_each_event": log.after,
        "bitmasks_after_each_event": log.bitmasks,
        "bundles": [{"events_root": one.hex(), "state_hash": other.hex()} for one, other in log.closed],
        "final_leaves": [{"k": key.hex(), "v": value.hex()} for key, value in sorted(log.leaves().items())],
        "refused": log.refused,
    }
    return json.dumps(made, indent=1) + "\n"


if __name__ == "__main__":
    (FOLDER / "log_v1.json").write_text(text())
