"""Random valid logs: events that the kernel rejects are left out. The same seed gives the same log."""

from collections.abc import Callable
from random import Random
from typing import Any

from enc.core.errors import EncError
from enc.core.log.event import erase
from enc.core.primitives.types import Event
from tests.core import world_v1
from tests.core.world import GROUP, PERSONAL, START, Json, World, about, gated, give, grant, move, path, pub, rule
from tests.core.world_v1 import ENDPOINT, change, has, initial, row
from tests.dataview.logs import Log

PEOPLE = "alice bob carol dave erin".split()
GONE = {"reason": "author"}

CLUB: Json = {
    **GROUP,
    "moves": [
        *GROUP["moves"],
        path("MEMBER", "PENDING", "owner", preserve=True),
        path("MEMBER", "PENDING", "Self"),
        path("OUTSIDER", "MEMBER", "PENDING", **gated("friends", "admin")),
    ],
    "customs": [*GROUP["customs"], rule("public", "MEMBER", "C"), rule("public", "Sender", "U D")],
    "slots": [*GROUP["slots"], rule("Shared", "MEMBER", "C U D", key="motto")],
    "grants": [*GROUP["grants"], grant("Grant", ["Self"], "muted")],
}
ROLES = [
    *(row(type_, "Owner", "C", "Admin", "Member") for type_ in ("Grant", "Grant_Push", "Revoke", "Move")),
    row("Grant", "Admin", "C", "Member"),
    row("Revoke_Self", "Member", "C", "Member"),
    *(row(type_, "Owner", "C") for type_ in ("Force_Move", "Transfer_Owner", "Pause", "Resume", "Terminate")),
    row("note", "Member", "CR"),
    row("note", "Self", "UD"),
    row("public", "Any", "C"),
    row("public", "Self", "UD"),
    row("Shared", "Member", "C"),
]
OWNER, ADMIN, MEMBER = 1 << 1, 1 << 32, 1 << 33

Attempt = tuple[str, Any, tuple[tuple[str, ...], ...]]


class RandomLog:
    """A growing log. `said`: its content events; `gone`: ids whose contents a node has erased by
    now.
    """

    def __init__(self, seed: int, kind: str, quiet: bool = False) -> None:
        self.random, self.kind = Random(seed), kind
        people = initial(alice="Owner Member", bob="Member")
        manifest = {
            "club": lambda: CLUB,
            "personal": lambda: PERSONAL,
            "v1": lambda: world_v1.manifest(ROLES, people),
        }[kind]()
        self.world = World({**manifest, "meta": {"description": f"log {seed}"}, "bundle": {"size": 8, "timeout": 5000}})
        self.said, self.gone, self.quiet = list[Event](), set[bytes](), quiet
        self.at = 0

    def grow(self, length: int) -> "RandomLog":
        while len(self.world.events) < length and self.world.state.lifecycle != "terminated":
            self.step()
        return self

    def step(self) -> None:
        """Try a random commit."""
        random, world = self.random, self.world
        name = random.choice(PEOPLE if random.random() < 0.4 else ["alice", "bob"])
        type_, content, tags = random.choice(self._attempts())(name)
        self.at = max(world.next, self.at + random.choice([1, 1, 5, 1_000, 700_000]))
        try:
            event = world.send(name, type_, content, tags=tags, at=self.at)
        except EncError:
            return
        self.gone.update(world.effects.erases)
        if event.type not in world.policy.predefined:
            self.said.append(event)

    def _attempts(self) -> list[Callable[[str], Attempt]]:
        content: list[Callable[[str], Attempt]] = [self._say, self._say, self._say, self._revise, self._revise]
        control = [self._operate, self._operate, self._bundle, self._slot, self._lifecycle]
        return content if self.quiet else [*content, *control]

    def _say(self, name: str) -> Attempt:
        type_ = self.random.choice(["public", "note" if self.kind == "v1" else "message"])
        later = str(START + self.at + 10_000_000)
        tags: tuple[tuple[str, ...], ...] = self.random.choice(
            [(), (("n", str(self.at)),), (("t", "x", "y"), ("lone",)), (("auto-delete", later),)]
        )
        return type_, f"{name} says {self.at} ‘ü’", tags

    def _revise(self, name: str) -> Attempt:
        if not self.said:
            return self._say(name)
        target = self.random.choice(self.said[-6:])
        if self.random.random() < 0.3:
            return "Delete", GONE, about(target)
        return "Update", f"{name} corrects {self.at}", about(target)

    def _operate(self, name: str) -> Attempt:
        return (*(self._role(name) if self.kind == "v1" else self._trait(name)), ())

    def _trait(self, name: str) -> tuple[str, Json]:
        pick, target = self.random.choice, self.random.choice([*PEOPLE, name])
        states = ["OUTSIDER", "PENDING", "MEMBER", "BLOCKED"]
        return pick(
            [
                ("Move", move(target, pick(states), pick(states))),
                ("Move", move(target, "OUTSIDER", "MEMBER")),
                ("Move", move(target, "MEMBER", "PENDING")),
                ("Grant", give(target, pick(["admin", "muted", "dataview"]))),
                ("Grant", give(target, "admin")),
                ("Revoke", give(target, pick(["admin", "muted"]))),
                ("Transfer", give(target, "owner")),
                ("Gate", {"alias": pick(["applications", "auto_join", "friends"]), "state": pick(["open", "closed"])}),
            ]
        )

    def _role(self, name: str) -> tuple[str, Json]:
        pick, target = self.random.choice, self.random.choice(PEOPLE)
        masks = [0, ADMIN, MEMBER, ADMIN | MEMBER]
        return pick(
            [
                ("Grant", has(target, pick(["Admin", "Member"]))),
                ("Grant_Push", has(target, pick(["Admin", "Member"]), endpoint=ENDPOINT)),
                ("Revoke", has(target, pick(["Admin", "Member"]))),
                ("Revoke_Self", {"role": "Member"}),
                ("Move", change(target, pick(masks), pick(masks))),
                ("Force_Move", change(target, pick(masks), pick(masks))),
                ("Transfer_Owner", {"new_owner": pub(target)}),
            ]
        )

    def _bundle(self, name: str) -> Attempt:
        operations = [self._role(name) if self.kind == "v1" else self._trait(name) for _ in range(2)]
        return "AC_Bundle", {"operations": [{"type": type_, **content} for type_, content in operations]}, ()

    def _slot(self, name: str) -> Attempt:
        value = self.random.choice([None, {"name": name, "at": self.at}, "text", 7])
        type_ = self.random.choice(["Shared", "Own"])
        key = "profile" if type_ == "Own" else self.random.choice(["topic", "motto", "profile"])
        return type_, {"key": key, "value": value}, ()

    def _lifecycle(self, name: str) -> Attempt:
        type_ = self.random.choice(["Pause", "Resume", "Resume", "Resume", "Migrate", "Terminate"])
        if type_ == "Migrate":
            return "Migrate", self.world.migrate(self.random.choice(["node", "node2"])), ()
        if type_ == "Terminate" and self.random.random() < 0.9:
            type_ = "Resume"
        return type_, {}, ()

    def log(self, *, erased: bool = False) -> Log:
        """Return the log as a node sent it live or, with `erased`, as it serves it now."""
        events = [erase(event) if erased and event.id in self.gone else event for event in self.world.events]
        return Log(self.world.state.enclave.hex(), self.world.policy.enc_v, events)


def random_log(seed: int, length: int = 60, kind: str = "club") -> RandomLog:
    return RandomLog(seed, kind).grow(length)
