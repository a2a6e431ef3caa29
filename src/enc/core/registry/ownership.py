"""What a registry knows of an enclave's ownership, and how accepted evidence changes it
(docs/protocol.md, sections 23.1, 23.4 and 23.5)."""

from typing import Self

from msgspec import Struct
from msgspec.structs import asdict, replace

from enc.core.errors import InvalidProof
from enc.core.log.commit import SKEW_MS
from enc.core.primitives.encoding import MAX_INT
from enc.core.primitives.types import Event, KeyRecord, Ownership, TreeHead
from enc.core.rules.content import Migrate
from enc.core.rules.policy_types import Policy
from enc.core.trees.tree_head import check_head

MAX_FORCED = 32
"""Maximum number of forced Migrates on record that may still be taken back. Each costs one check of
a signature, for an owner proof by none of these sequencers."""

_FIELDS = Ownership.__struct_fields__


class KnownOwnership(Struct, frozen=True):
    """The fields of a record, and the enclave's Manifest with the policy.

    `latest`: evidence with a later time is from the future.
    """

    manifest: Event
    policy: Policy
    holder: bytes
    proved_size: int
    sequencer: bytes
    moved_at: int = -1
    moved_time: int = 0
    proved_at: int = 0
    proved_root: bytes = b""
    forced_from: tuple[Ownership, ...] = ()
    latest: int = MAX_INT

    @classmethod
    def of(cls, manifest: Event, policy: Policy, record: KeyRecord | None, latest: int = MAX_INT) -> Self:
        """Return what the record says; before the first entry, what the Manifest says."""
        known = cls(manifest, policy, manifest.from_, 0, manifest.sequencer, latest=latest)
        if record is None:
            return known
        return replace(known, forced_from=record.forced_from, **{name: getattr(record, name) for name in _FIELDS})

    @property
    def current(self) -> Ownership:
        return Ownership(**{name: getattr(self, name) for name in _FIELDS})

    def signed(self, head: TreeHead) -> Self:
        """Return what counts for an owner proof under this head: without the forced Migrates that it
        takes back. InvalidProof unless the sequencer on record signed it, or one in `forced_from`.

        A forced Migrate may lead back to a sequencer that another one left. So a head from before a
        Migrate to its signer belongs to an earlier term, unless a proof under a later one is known.
        """
        terms = (*self.forced_from, self.current)
        keys = dict.fromkeys(term.sequencer for term in reversed(terms))
        signer = next((key for key in keys if _is_signed(head, key)), None)
        if signer is None:
            raise InvalidProof("sth: not signed by this sequencer")
        own = [i for i, term in enumerate(terms) if term.sequencer == signer]
        at = own[-1]
        for i in reversed(own):
            if head.ts <= terms[i].proved_size or head.t < terms[i].proved_at:
                break
            if head.t >= terms[i].moved_time:
                at = i
                break
        return self if at == len(self.forced_from) else self._before(at)

    def _before(self, number: int) -> Self:
        """Return what was known before this forced Migrate."""
        return replace(self, forced_from=self.forced_from[:number], **asdict(self.forced_from[number]))

    def check_time(self, time: int, field: str) -> None:
        """Raise InvalidProof for evidence from the future, which no honest evidence could outdate."""
        if time > self.latest + SKEW_MS:
            raise InvalidProof(f"{field}: in the future")

    def proved(self, owner: bytes, head: TreeHead) -> Self:
        """Return what is known after a valid owner proof."""
        return replace(self, holder=owner, proved_size=head.ts, proved_at=head.t, proved_root=head.r)

    def moved(self, event: Event, migrate: Migrate) -> Self:
        """Return what is known after a valid link."""
        new, back = migrate.new_sequencer, self.forced_from
        base: dict[str, bytes | int] = {}
        if event.sequencer != self.sequencer:
            if len(back) >= MAX_FORCED:
                raise InvalidProof(f"over {MAX_FORCED} forced Migrates on record")
            back = (*back, self.current)
            base = {"proved_root": migrate.ct_root, "proved_size": 0, "proved_at": event.timestamp}
        else:  # this sequencer itself continued the log after any forced Migrate that left it before
            back = tuple(left for left in back if left.sequencer != event.sequencer)
        for left in back:
            if left.sequencer == new:  # it came back: its log continues the one that was proved there
                base = {name: getattr(left, name) for name in ("proved_root", "proved_size", "proved_at")}
        after = {"sequencer": new, "moved_at": event.seq, "moved_time": event.timestamp}
        return replace(self, forced_from=back, **base, **after)


def _is_signed(head: TreeHead, sequencer: bytes) -> bool:
    try:
        check_head(head, sequencer)
    except InvalidProof:
        return False
    return True
