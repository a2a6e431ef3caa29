"""The tables, made from logs by plain Python that uses neither the pipeline nor the kernel's rules.

It takes wire JSON of valid logs in order, and does not check it. Rows are dicts; times are milliseconds.
"""

import json
from collections.abc import Iterable
from typing import Any

Json = dict[str, Any]

V2 = "Manifest Move Grant Revoke Transfer Gate AC_Bundle Shared Own Pause Resume Terminate Migrate".split()
V1 = (
    "Manifest Grant Grant_Push Revoke Revoke_Self Move Force_Move Transfer_Owner AC_Bundle "
    "Pause Resume Terminate Migrate"
).split()
HOUR = 3_600_000


class Tables:
    """All tables computed from some enclaves' logs."""

    def __init__(self, logs: Iterable[Iterable[bytes]]) -> None:
        self.folds = [EnclaveFold(json.loads(line) for line in log) for log in logs]

    def rows(self, table: str) -> list[Json]:
        if table == "profiles":
            return self._profiles()
        return [row for fold in self.folds for row in getattr(fold, table)()]

    def _profiles(self) -> list[Json]:
        best: dict[str, Json] = {}
        for slot in sorted(self.rows("slots"), key=lambda s: (s["timestamp"], s["enclave"], s["seq"])):
            if slot["key"] == "profile":
                best[slot["author"]] = {
                    "identity": slot["author"],
                    "enclave": slot["enclave"],
                    "kind": slot["kind"],
                    "value": slot["value"],
                    "seq": slot["seq"],
                    "timestamp": slot["timestamp"],
                }
        return list(best.values())


class EnclaveFold:
    def __init__(self, events: Iterable[Json]) -> None:
        self.all = list(events)
        self.manifest = json.loads(self.all[0]["content"])
        self.enclave, self.v = self.all[0]["enclave"], self.manifest["enc_v"]
        self.mask: dict[str, Any] = {}
        self.intervals: list[Json] = []
        self.open: dict[str, Json] = {}
        self.gates: set[str] = set()
        self.kv: dict[tuple[str, str, str], Json] = {}
        self.life, self.life_seq = "active", None
        self.seqs = [(self.all[0]["sequencer"], 0)]
        for event in self.all:
            if event["type"] in (V1 if self.v == 1 else V2):
                self._control(event)

    # Control

    def _control(self, event: Json) -> None:
        type_, said = event["type"], json.loads(event["content"] or "{}")
        if type_ == "Manifest":
            self._init(event)
        elif type_ in ("Shared", "Own"):
            self._slot(event, said)
        elif type_ in ("Pause", "Resume", "Terminate"):
            self.life = {"Pause": "paused", "Resume": "active", "Terminate": "terminated"}[type_]
            self.life_seq = event["seq"]
        elif type_ == "Migrate":
            first = event["seq"] + (said["new_sequencer"] != event["sequencer"])
            self.seqs = [s for s in self.seqs if s[1] < first] + [(said["new_sequencer"], first)]
        else:
            operations = said["operations"] if type_ == "AC_Bundle" else [{**said, "type": type_}]
            draft = {who: (state, set(traits)) for who, (state, traits) in self.mask.items()}
            for operation in operations:
                (self._role if self.v == 1 else self._trait)(operation, event["from"], draft)
            self._settle(draft, event)

    def _init(self, event: Json) -> None:
        draft: dict[str, Any] = {}
        if self.v == 1:
            for role, people in self.manifest["RBAC"]["initial_state"].items():
                for who in people:
                    draft.setdefault(who, ("", set()))[1].add(role)
        else:
            for member in self.manifest["init"]:
                draft[member["identity"]] = (member["state"], set(member["traits"]))
        self._settle(draft, event)

    def _trait(self, op: Json, actor: str, draft: dict[str, Any]) -> None:
        if op["type"] == "Gate":
            (self.gates.add if op["state"] == "closed" else self.gates.discard)(op["alias"])
            return
        state, traits = draft.get(op["target"], ("OUTSIDER", set()))
        if op["type"] == "Move":
            keep = self._preserves(op, actor, draft)
            draft[op["target"]] = (op["to"], set(traits) if keep else set())
        elif op["type"] == "Grant":
            draft[op["target"]] = (state, traits | {op["trait"]})
        elif op["type"] == "Revoke":
            draft[op["target"]] = (state, traits - {op["trait"]})
        else:
            mine = draft[actor]
            draft[actor] = (mine[0], mine[1] - {op["trait"]})
            draft[op["target"]] = (state, traits | {op["trait"]})

    def _preserves(self, op: Json, actor: str, draft: dict[str, Any]) -> bool:
        state, traits = draft.get(actor, ("OUTSIDER", set()))
        am = {state, *traits, "Public"} | ({"Self"} if actor == op["target"] else set())
        for entry in self.manifest["moves"]:
            operator = entry["operator"] if isinstance(entry["operator"], list) else [entry["operator"]]
            fits = (entry["from"], entry["to"]) == (op["from"], op["to"]) and am & set(operator)
            if fits and entry.get("alias") not in self.gates and entry.get("preserve"):
                return True
        return False

    def _role(self, op: Json, actor: str, draft: dict[str, Any]) -> None:
        if op["type"] == "Transfer_Owner":
            draft[actor][1].discard("Owner")
            draft.setdefault(op["new_owner"], ("", set()))[1].add("Owner")
            return
        who = actor if op["type"] == "Revoke_Self" else op["identity"]
        roles = draft.setdefault(who, ("", set()))[1]
        if op["type"] in ("Move", "Force_Move"):
            names = {1 << 1: "Owner", 1 << 32: "Admin", 1 << 33: "Member"}
            roles.clear()
            roles.update(name for bit, name in names.items() if int(op["to"], 16) & bit)
        elif op["type"].startswith("Grant"):
            roles.add(op["role"])
        else:
            roles.discard(op["role"])

    def _settle(self, draft: dict[str, Any], event: Json) -> None:
        for who, (state, traits) in draft.items():
            nothing = state in ("", "OUTSIDER") and not traits
            if who in self.open and self.mask[who] == (state, traits):
                continue
            if who in self.open:
                self.open.pop(who).update(to_seq=event["seq"], until=event["timestamp"])
            if not nothing:
                row = {
                    "enclave": self.enclave,
                    "identity": who,
                    "state": state,
                    "traits": sorted(traits),
                    "owner": bool({"owner", "Owner"} & traits) or state == "OWNER",
                    "from_seq": event["seq"],
                    "to_seq": None,
                    "since": event["timestamp"],
                    "until": None,
                    "changed_by": event["from"],
                    "event": event["id"],
                }
                self.intervals.append(row)
                self.open[who] = row
        self.mask = {who: (state, set(traits)) for who, (state, traits) in draft.items()}

    def _slot(self, event: Json, said: Json) -> None:
        owner = event["from"] if event["type"] == "Own" else ""
        key = (event["type"], owner, said["key"])
        self.kv.pop(key, None)
        if said["value"] is not None:
            self.kv[key] = {
                "enclave": self.enclave,
                "kind": event["type"],
                "owner": owner,
                "key": said["key"],
                "value": json.dumps(said["value"], sort_keys=True, separators=(",", ":"), ensure_ascii=False),
                "author": event["from"],
                "seq": event["seq"],
                "id": event["id"],
                "timestamp": event["timestamp"],
            }

    # Tables

    def events(self) -> list[Json]:
        """Return the events; contents that were removed by the end are absent."""
        gone = {r["id"] for r in self.content_status() if r["status"] != "active"}
        latest = {r["revision"] for r in self.content_status()}
        rows = []
        for event in self.all:
            hidden = event["id"] in gone or (event["type"] == "Update" and event["id"] not in latest)
            rows.append(
                {
                    "enclave": self.enclave,
                    "seq": event["seq"],
                    "id": event["id"],
                    "type": event["type"],
                    "author": event["from"],
                    "content": None if hidden else event["content"],
                    "tags": event["tags"],
                }
            )
        return rows

    def access(self) -> list[Json]:
        return self.intervals

    def members(self) -> list[Json]:
        names = ("enclave", "identity", "state", "traits", "owner", "since")
        return [{**{n: row[n] for n in names}, "since_seq": row["from_seq"]} for row in self.open.values()]

    def slots(self) -> list[Json]:
        return list(self.kv.values())

    def enclaves(self) -> list[Json]:
        first = self.all[0]
        return [
            {
                "enclave": self.enclave,
                "enc_v": self.v,
                "creator": first["from"],
                "created": first["timestamp"],
                "manifest": first["content"],
                "registry": self.manifest.get("registry") is True,
                "lifecycle": self.life,
                "lifecycle_seq": self.life_seq,
                "closed_gates": sorted(self.gates),
                "sequencers": [{"sequencer": key, "from_seq": seq} for key, seq in self.seqs],
                "refused": 0,
            }
        ]

    def heads(self) -> list[Json]:
        last = self.all[-1]
        return [
            {
                "enclave": self.enclave,
                "next_seq": last["seq"] + 1,
                "events": len(self.all),
                "id": last["id"],
                "timestamp": last["timestamp"],
                "sequencer": self.seqs[-1][0],
            }
        ]

    def tags(self) -> list[Json]:
        return [
            {
                "enclave": self.enclave,
                "seq": event["seq"],
                "id": event["id"],
                "type": event["type"],
                "position": i,
                "name": tag[0],
                "value": tag[1] if len(tag) > 1 else None,
                "tag": list(tag),
            }
            for event in self.all
            for i, tag in enumerate(event["tags"])
        ]

    def content_status(self) -> list[Json]:
        rows: dict[str, Json] = {}
        for event in self.all:
            if event["type"] in ("Update", "Delete"):
                target = next(tag[1] for tag in event["tags"] if tag[0] == "r")
                row = rows[target]
                row.update(
                    status="updated" if event["type"] == "Update" else "deleted",
                    content=event["content"] if event["type"] == "Update" else None,
                    revision=event["id"],
                    revised_seq=event["seq"],
                    revised_by=event["from"],
                    revised_at=event["timestamp"],
                )
            elif event["type"] not in (V1 if self.v == 1 else V2):
                expires = [int(tag[1]) for tag in event["tags"] if tag[0] == "auto-delete"]
                rows[event["id"]] = {
                    "enclave": self.enclave,
                    "id": event["id"],
                    "seq": event["seq"],
                    "type": event["type"],
                    "author": event["from"],
                    "timestamp": event["timestamp"],
                    "status": "active",
                    "content": event["content"],
                    "revision": None,
                    "revised_seq": None,
                    "revised_by": None,
                    "revised_at": None,
                    "expires_at": expires[0] if expires else None,
                }
        return list(rows.values())

    def timeline(self) -> list[Json]:
        return [
            {
                "enclave": self.enclave,
                "id": row["id"],
                "seq": row["seq"],
                "author": row["author"],
                "content": row["content"],
                "posted_at": row["timestamp"],
                "edited_at": row["revised_at"],
            }
            for row in self.content_status()
            if row["type"] == "public" and row["status"] != "deleted"
        ]

    def activity_hourly(self) -> list[Json]:
        rows: dict[tuple[int, str], Json] = {}
        for event in self.all:
            hour = event["timestamp"] // HOUR * HOUR
            row = rows.setdefault(
                (hour, event["type"]),
                {
                    "enclave": self.enclave,
                    "hour": hour,
                    "type": event["type"],
                    "events": 0,
                    "first_seq": event["seq"],
                    "last_seq": 0,
                },
            )
            row["events"] += 1
            row["last_seq"] = event["seq"]
        return list(rows.values())
