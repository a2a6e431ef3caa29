"""Random histories of an enclave, and registrations with any old evidence in any order."""

from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from enc.core.errors import EncError
from enc.core.primitives.types import Event, Ownership
from enc.core.registry.migrate_chain import Link, check_chain
from enc.core.registry.owner_proof import OwnerProof, find_passage
from enc.core.registry.ownership import KnownOwnership
from enc.core.rules.content import parse_migrate
from tests.core.registry.thief import forced
from tests.core.registry_world import BY_STATE, House, Registry, name_of
from tests.core.strategies import examples
from tests.core.world import NODES, move, person

PEOPLE = ("alice", "bob", "carol")
MOST = 1
"""Most entries that the owner needs."""


class Evidence(Struct, frozen=True):
    """What somebody was given when they owned the enclave: a proof without passage, and its place."""

    name: str
    proof: OwnerProof


class History:
    """An enclave with honest nodes, everything that was ever provable about it, and a registry."""

    def __init__(self) -> None:
        self.house, self.registry = House(BY_STATE), Registry()
        self.kept, self.links = list[Evidence](), list[Link]()
        self.best = 0
        self.note()

    def owners(self) -> list[str]:
        return [name for name in PEOPLE if self.house.policy.is_owner(self.house.bitmask(name))]

    def note(self) -> None:
        self.kept += [Evidence(name, self.house.proof(name, passage=())) for name in self.owners()]

    # The enclave

    def change(self, name: str, number: int) -> None:
        owners, by = self.owners(), self.owners()[number % len(self.owners())]
        if name not in owners:
            self.house.send(by, "Move", move(name, "OUTSIDER", "OWNER"))
        elif len(owners) > 1:
            by = next(each for each in owners if each != name)
            self.house.send(by, "Move", move(name, "OWNER", "OUTSIDER"))

    def migrate(self, number: int) -> None:
        by = self.owners()[number % len(self.owners())]
        nodes = [node for node in ("node", "node2", "node3") if node != NODES[self.house.state.sequencer]]
        self.house.talk(1)  # the mover alone keeps the last head
        proof = self.house.proof(by, passage=())
        event = self.house.move_to(nodes[number % 2], by=by, forced=number % 3 == 0)
        self.links.append(Link(event, proof))

    # Registering

    def bases(self) -> list[Ownership]:
        """Return what a proof may be judged by: the values now, then those before each forced Migrate."""
        record = self.registry.memory.records.get(("enclave", self.house.state.enclave))
        if record is None:
            manifest = self.house.manifest
            return [Ownership(sequencer=manifest.sequencer, holder=manifest.from_)]
        names = Ownership.__struct_fields__
        return [Ownership(**{name: getattr(record, name) for name in names}), *reversed(record.forced_from)]

    def completed(self, proof: OwnerProof, name: str, base: Ownership, before: Event | None = None) -> OwnerProof:
        """Return the proof with the passage and the start that suit the values, if there are any."""
        house, owner = self.house, person(name).public
        end = before.seq if before else house.state.seq + 1
        since = [event for event in house.events if base.proved_at <= event.timestamp and event.seq < end]
        sizes = [size for size in range(1, house.state.log.size + 1) if house.root(size) == base.proved_root]
        starts = house.policy.new_owners(house.manifest) if not base.proved_root else set()
        for start in [base.holder, *sorted(starts)]:
            way = find_passage(house.policy, since, start, owner)
            if way is not None:
                return replace(proof, passage=way)
        for start in PEOPLE if sizes else ():
            way = find_passage(house.policy, since, person(start).public, owner)
            shown = house.start(start, sizes[-1])
            if way is not None and house.policy.is_owner(int.from_bytes(shown.smt_proof.v or b"", "big")):
                return replace(proof, passage=way, start=shown)
        return proof

    def register(self, name: str, **more: Any) -> bool:
        links = more.get("links")
        new = parse_migrate(links[-1].event).new_sequencer if links else more.pop("at", self.bases()[0].sequencer)
        try:
            self.registry.register(name, self.house, sequencer=new, **more)
        except EncError:
            return False
        return True

    def attack(self, name: str, number: int) -> None:
        """Somebody registers whatever they have; check that no older proof than before counted."""
        holder = self.bases()[0].holder
        base = self.bases()[number % len(self.bases())]
        own = [each.proof for each in self.kept if each.name == name]
        proof = own[number % len(own)] if own and number % 5 else None
        links = [self.links[number % len(self.links)]] if self.links and number % 4 == 0 else []
        if number % 7 == 0:
            links = [forced(self.house, name, "evil", at=self.house.next + number)]
        more: dict[str, Any] = {"links": links} if links else {"at": base.sequencer}
        if links and number % 2:
            author = name_of(links[0].event.from_)
            more["links"] = (
                [Link(links[0].event, self.completed(links[0].owner_proof or own[0], author, base))]
                if (links[0].owner_proof or own)
                else links
            )
        if proof is not None:
            more["owner_proof"] = self.completed(proof, name, base)
        if self.register(name, **more):
            used = [link.owner_proof for link in more.get("links", ())] + [more.get("owner_proof")]
            sizes = [each.sth.ts for each in used if each is not None]
            assert sizes or self.bases()[0].holder == holder
            self.accepted(sizes)

    def accepted(self, sizes: list[int]) -> None:
        """All honest heads are of one log, so the larger one is the newer evidence.

        While a forced Migrate is on record that an attacker registered, evidence after it may be taken back with it: a
        later Migrate that the attacker left out may lead back to the sequencer that it left.
        """
        for size in sizes:
            assert size > self.best
            if len(self.bases()) == 1:
                self.best = size

    # Recovering

    def recover(self, owner: str) -> None:
        """The owner has all that was ever provable, and one new event to prove anything by."""
        for _ in range(MOST):
            if self.is_right(owner):
                return
            self.house.talk(1)
            assert any(self.register(owner, **more) for more in self.ways(owner)), self.bases()
        assert self.is_right(owner)

    def is_right(self, owner: str) -> bool:
        now = self.bases()[0]
        return (now.holder, now.sequencer) == (person(owner).public, self.house.state.sequencer)

    def ways(self, owner: str) -> Iterator[dict[str, Any]]:
        """Yield entries with no link, or with all links from one on, each with its author's proof if that counts.

        As clients do, it prefers all links since the sequencer on record: a forced Migrate with a proof under the
        latest head of the node that it left outdates older heads of that node.
        """
        house = self.house
        proof = house.proof(owner, passage=())
        record = self.registry.memory.records.get(("enclave", house.state.enclave))
        for base in self.bases():
            if base.sequencer == house.state.sequencer:
                yield {"owner_proof": self.completed(proof, owner, base), "at": base.sequencer}
            for i in range(len(self.links)):
                known = KnownOwnership.of(house.manifest, house.policy, record)
                try:
                    links, known = self.chain(self.links[i:], known, base)
                except EncError:
                    continue
                yield {"links": links, "owner_proof": self.completed(proof, owner, known.current)}

    def chain(self, links: list[Link], known: KnownOwnership, base: Ownership) -> tuple[list[Link], KnownOwnership]:
        made = list[Link]()
        for link in links:
            assert link.owner_proof is not None
            shown = self.completed(link.owner_proof, name_of(link.event.from_), base, link.event)
            try:
                now, known = Link(link.event, shown), check_chain([Link(link.event, shown)], known)
            except EncError:
                now, known = Link(link.event), check_chain([Link(link.event)], known)
            made.append(now)
            base = known.current
        return made, known


acts = st.lists(
    st.tuples(st.sampled_from(["change", "migrate", "attack", "recover"]), st.sampled_from(PEOPLE), st.integers(0, 99)),
    max_size=20,
)


@examples(300)
@given(acts)
def test_old_evidence_never_beats_newer_and_the_owner_always_recovers(sequence: list[tuple[str, str, int]]) -> None:
    history = History()
    for what, name, number in sequence:
        if what == "change":
            history.change(name, number)
            history.note()
        elif what == "migrate":
            history.migrate(number)
            history.note()
        elif what == "attack":
            history.attack(name, number)
        else:
            history.recover(history.owners()[0])
            history.best = max(history.best, history.bases()[0].proved_size)
    history.recover(history.owners()[-1])
