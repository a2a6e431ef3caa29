"""Parses a version 2 Manifest into a Policy; an error names the path of the fault (docs/protocol.md, section 12)."""

import re
from collections.abc import Iterable
from typing import Any

from enc.core.primitives.encoding import MAX_INT, unhex
from enc.core.primitives.signing import check_public_key
from enc.core.primitives.types import PREDEFINED
from enc.core.rules.manifest_common import check_meta, check_template, quoted, read_bundle, refuse
from enc.core.rules.v2.access import PolicyV2
from enc.core.rules.v2.manifest_parts import CONTEXTS, OUTSIDER, InitialMember, RuleEntry, Trait

SECTIONS = "states traits readers init moves grants transfers slots lifecycle customs".split()
OPS = frozenset("CRUDPN")
MAX_STATES, MAX_TRAITS = 255, 248

_STATE = re.compile(r"[A-Z][A-Z0-9_]*")
_TRAIT = re.compile(r"([a-z][a-z0-9_]*)\((0|[1-9][0-9]{0,15})\)")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")


class ManifestV2:
    """Parser of one manifest. Each method reads one section or kind of value and checks its
    rules."""

    def __init__(self, manifest: dict[str, Any]) -> None:
        self.manifest = manifest
        self.states: tuple[str, ...] = ()
        self.traits: dict[str, Trait] = {}
        self.gates: dict[str, frozenset[str]] = {}
        self.sections, self.prefix = self._sections()

    def policy(self) -> PolicyV2:
        self.states = self._states()
        self.traits = self._traits()
        init = self._init()
        entries = [
            *self._readers(),
            *(moves := list(self._moves())),
            *self._grants(),
            *self._transfers(),
            *self._slots(),
            *self._lifecycle(),
            *self._customs(),
        ]
        self._check_reachable(init, moves)
        check_meta(self.manifest)
        return PolicyV2(
            manifest=self.manifest,
            states=self.states,
            traits=self.traits,
            entries=tuple(entries),
            gates=self.gates,
            init=init,
            bundle=read_bundle(self.manifest),
            registry=self.manifest.get("registry") is True,
        )

    def _sections(self) -> tuple[dict[str, Any], str]:
        """Return the ten sections, which are all at the top or all under `RBAC`, and the path
        prefix."""
        flat = [name for name in SECTIONS if name in self.manifest]
        sections, prefix = self.manifest, ""
        if "RBAC" in self.manifest:
            sections, prefix = self.manifest["RBAC"], "RBAC."
            if not isinstance(sections, dict):
                refuse("RBAC", "expected an object")
            if flat:
                refuse(flat[0], "conflicts with RBAC: put all sections at the top or all under RBAC")
        check_template(self.manifest, sections)
        return sections, prefix

    def _list(self, section: str) -> list[tuple[str, Any]]:
        """Return the items of a section, each with its path."""
        items = self.sections.get(section, [])
        if not isinstance(items, list):
            refuse(f"{self.prefix}{section}", "expected a list")
        return [(f"{self.prefix}{section}[{i}]", item) for i, item in enumerate(items)]

    def _entries(self, section: str) -> list[tuple[str, dict[str, Any]]]:
        for path, item in (items := self._list(section)):
            if not isinstance(item, dict):
                refuse(path, "expected an object")
        return items

    # Names

    def _states(self) -> tuple[str, ...]:
        found: dict[str, None] = {}
        for path, name in self._list("states"):
            if not isinstance(name, str) or not _STATE.fullmatch(name):
                refuse(path, "a State's name must match [A-Z][A-Z0-9_]*")
            if name == OUTSIDER:
                refuse(path, "OUTSIDER is predefined: do not declare it")
            if name in found:
                refuse(path, f"{name} is declared twice")
            found[name] = None
        if len(found) > MAX_STATES:
            refuse(f"{self.prefix}states", f"more than {MAX_STATES}")
        return tuple(found)

    def _traits(self) -> dict[str, Trait]:
        found: dict[str, Trait] = {}
        for path, text in self._list("traits"):
            match = _TRAIT.fullmatch(text) if isinstance(text, str) else None
            if match is None:
                refuse(path, "a trait must be declared as [a-z][a-z0-9_]*(rank), with a non-negative integer as rank")
            name, rank = match.groups()
            if int(rank) > MAX_INT:
                refuse(path, "a rank must be at most 2^53 - 1")
            if name in found:
                refuse(path, f"{name} is declared twice")
            found[name] = Trait(bit=8 + len(found), rank=int(rank))
        if len(found) > MAX_TRAITS:
            refuse(f"{self.prefix}traits", f"more than {MAX_TRAITS}")
        return found

    def _state(self, name: Any, path: str) -> str:
        if not isinstance(name, str) or (name not in self.states and name != OUTSIDER):
            refuse(path, f"no State named {quoted(name)}")
        return name

    def _trait(self, name: Any, path: str) -> str:
        if not isinstance(name, str) or name not in self.traits:
            refuse(path, f"no trait named {quoted(name)}")
        return name

    def _column(self, name: Any, path: str) -> str:
        if name == "Node":
            refuse(path, "Node is reserved")
        if not isinstance(name, str) or not (
            name in self.states or name == OUTSIDER or name in self.traits or name in CONTEXTS
        ):
            refuse(path, f"no State, trait or Context named {quoted(name)}")
        return name

    def _strings(self, entry: dict[str, Any], field: str, path: str) -> list[Any]:
        """Return the strings of a field that takes one or a list of at least one. Repeated ones
        count once."""
        value = entry.get(field)
        strings = value if isinstance(value, list) else [value]
        if not strings or not all(isinstance(each, str) for each in strings):
            refuse(f"{path}.{field}", "expected a string or a list of strings")
        return list(dict.fromkeys(strings))

    def _columns(self, entry: dict[str, Any], path: str, field: str = "operator") -> frozenset[str]:
        return frozenset(self._column(name, f"{path}.{field}") for name in self._strings(entry, field, path))

    def _ops(self, entry: dict[str, Any], path: str) -> tuple[frozenset[str], frozenset[str]]:
        """Return the ops that the entry gives, and those that it denies."""
        strings = self._strings(entry, "ops", path)
        for op in strings:
            if op.removeprefix("_") not in OPS:
                refuse(f"{path}.ops", f"unknown op {quoted(op)}")
        return frozenset(op for op in strings if op in OPS), frozenset(op[1:] for op in strings if op not in OPS)

    def _event(self, entry: dict[str, Any], path: str, allowed: list[str]) -> str:
        event = entry.get("event")
        if event not in allowed:
            refuse(f"{path}.event", f"expected {' or '.join(allowed)}")
        return str(event)

    def _gate(self, entry: dict[str, Any], path: str) -> str | None:
        """Return the alias of the entry's gate. Without a gate, an alias has no effect."""
        if "gate" not in entry:
            return None
        gate, alias = entry["gate"], entry.get("alias")
        if not isinstance(gate, dict):
            refuse(f"{path}.gate", "expected an object")
        if not isinstance(alias, str) or not _NAME.fullmatch(alias):
            refuse(f"{path}.alias", "a gate needs an alias, named [A-Za-z][A-Za-z0-9_.-]*")
        if alias in self.gates:
            refuse(f"{path}.alias", f"the gate {alias} is declared twice")
        self.gates[alias] = self._columns(gate, f"{path}.gate")
        return alias

    def _name(self, value: Any, path: str) -> str:
        if not isinstance(value, str) or not _NAME.fullmatch(value):
            refuse(path, "expected a name, [A-Za-z][A-Za-z0-9_.-]*")
        return value

    # Sections

    def _init(self) -> tuple[InitialMember, ...]:
        found: dict[bytes, InitialMember] = {}
        for path, entry in self._entries("init"):
            identity = unhex(entry.get("identity"), 32, f"{path}.identity")
            check_public_key(identity, f"{path}.identity")
            if identity in found:
                refuse(f"{path}.identity", "listed twice in init")
            traits = entry.get("traits")
            if not isinstance(traits, list):
                refuse(f"{path}.traits", "expected a list")
            found[identity] = InitialMember(
                identity,
                self._state(entry.get("state"), f"{path}.state"),
                tuple(self._trait(name, f"{path}.traits") for name in traits),
            )
        if not found:
            refuse(f"{self.prefix}init", "must name at least one identity")
        return tuple(found.values())

    def _readers(self) -> Iterable[RuleEntry]:
        for path, entry in self._entries("readers"):
            columns, alias = self._columns(entry, path, "type"), self._gate(entry, path)
            for event in self._strings(entry, "reads", path):
                if event != "*":
                    self._name(event, f"{path}.reads")
                yield RuleEntry(event=event, columns=columns, ops=frozenset("R"), alias=alias)

    def _moves(self) -> Iterable[RuleEntry]:
        for path, entry in self._entries("moves"):
            preserve = entry.get("preserve", False)
            if not isinstance(preserve, bool):
                refuse(f"{path}.preserve", "expected true or false")
            ops, denies = self._ops(entry, path)
            yield RuleEntry(
                event=self._event(entry, path, ["Move"]),
                columns=self._columns(entry, path),
                ops=ops,
                denies=denies,
                alias=self._gate(entry, path),
                from_state=self._state(entry.get("from"), f"{path}.from"),
                to_state=self._state(entry.get("to"), f"{path}.to"),
                preserve=preserve,
            )

    def _grants(self) -> Iterable[RuleEntry]:
        for path, entry in self._entries("grants"):
            ops, denies = self._ops(entry, path) if "ops" in entry else (frozenset("C"), frozenset())
            yield RuleEntry(
                event=self._event(entry, path, ["Grant", "Revoke"]),
                columns=self._columns(entry, path),
                ops=ops,
                denies=denies,
                alias=self._gate(entry, path),
                traits=frozenset(self._trait(name, f"{path}.trait") for name in self._strings(entry, "trait", path)),
                scope=self._scope(entry, path),
            )

    def _scope(self, entry: dict[str, Any], path: str) -> frozenset[str]:
        return frozenset(self._state(name, f"{path}.scope") for name in self._strings(entry, "scope", path))

    def _transfers(self) -> Iterable[RuleEntry]:
        for path, entry in self._entries("transfers"):
            alias, scope = self._gate(entry, path), self._scope(entry, path)
            for name in self._strings(entry, "trait", path):
                trait = self._trait(name, f"{path}.trait")
                yield RuleEntry(
                    event="Transfer",
                    columns=frozenset([trait]),
                    ops=frozenset("C"),
                    alias=alias,
                    traits=frozenset([trait]),
                    scope=scope,
                )

    def _slots(self) -> Iterable[RuleEntry]:
        for path, entry in self._entries("slots"):
            key = self._name(entry.get("key"), f"{path}.key")
            if key == "lifecycle":
                refuse(f"{path}.key", "lifecycle is reserved")
            ops, denies = self._ops(entry, path)
            yield RuleEntry(
                event=self._event(entry, path, ["Shared", "Own"]),
                columns=self._columns(entry, path),
                ops=ops,
                denies=denies,
                alias=self._gate(entry, path),
                key=key,
            )

    def _lifecycle(self) -> Iterable[RuleEntry]:
        owner = "owner" if "owner" in self.traits else "OWNER"
        for path, entry in self._entries("lifecycle"):
            event = self._event(entry, path, ["Pause", "Resume", "Terminate", "Migrate"])
            columns = self._columns(entry, path)
            if event == "Migrate" and columns != {owner}:
                refuse(f"{path}.operator", "only the owner may Migrate")
            ops, denies = self._ops(entry, path)
            yield RuleEntry(event=event, columns=columns, ops=ops, denies=denies, alias=self._gate(entry, path))

    def _customs(self) -> Iterable[RuleEntry]:
        for path, entry in self._entries("customs"):
            event = entry.get("event")
            if event != "*":
                self._name(event, f"{path}.event")
            ops, denies = self._ops(entry, path)
            if (event == "*" or event in PREDEFINED) and not (ops | denies) <= set("RPN"):
                refuse(f"{path}.ops", f"{event} takes only R, P, N and their denials here")
            yield RuleEntry(
                event=str(event),
                columns=self._columns(entry, path),
                ops=ops,
                denies=denies,
                alias=self._gate(entry, path),
            )

    # The whole

    def _check_reachable(self, init: Iterable[InitialMember], moves: list[RuleEntry]) -> None:
        reached: set[str | None] = {OUTSIDER, *(member.state for member in init)}
        while new := {m.to_state for m in moves if m.from_state in reached and "C" in m.ops} - reached:
            reached |= new
        for i, state in enumerate(self.states):
            if state not in reached:
                refuse(f"{self.prefix}states[{i}]", f"neither init nor a chain of moves leads to {state}")
