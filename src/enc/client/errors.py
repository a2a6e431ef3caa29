"""What a client raises beyond the wire's own errors, which come as `enc.core.errors` has them.

WorldError
├── Unreachable        no answer from the node: nothing is known of what became of the request
├── TimedOut           the same, because it took too long
└── NotWitnessed       fewer witnesses than were asked for stand behind what the node shows
InvalidProof
└── Distrust           the node said what cannot be true; `evidence` is what it said
    ├── Fork               two signed heads that are not of one log
    ├── Rollback           a signed head older than one seen before
    ├── Equivocation       two signed events in one place of the log
    ├── ForeignSequencer   signed by another key than the enclave's sequencer
    ├── SplitBrain         signed by a former sequencer, after the enclave had moved
    └── Forgery            a receipt, an event or a proof that does not check
PeerError
├── LostRange          the enclave went on from a copy that lacks what was seen before: going on is the user's choice
└── TooManyMoves       the enclave has moved more often than a client follows: nobody lied
"""

from typing import TYPE_CHECKING

from enc.core.errors import InvalidProof, PeerError, WorldError

if TYPE_CHECKING:
    from enc.client.evidence import Evidence


class Unreachable(WorldError):
    code, status = "UNREACHABLE", 503


class TimedOut(WorldError):
    code, status = "TIMED_OUT", 504


class NotWitnessed(WorldError):
    """`witnessed`: how many do; `needed`: how many should. Nothing of what the node showed was believed."""

    code, status, fields = "NOT_WITNESSED", 503, ("witnessed", "needed")


class Distrust(InvalidProof):
    """Go no further with this node before a person has looked at the evidence."""

    code = "DISTRUST"

    def __init__(self, message: str, evidence: "Evidence") -> None:
        super().__init__(message)
        self.evidence = evidence


class Fork(Distrust):
    code = "FORK"


class Rollback(Distrust):
    code = "ROLLBACK"


class Equivocation(Distrust):
    code = "EQUIVOCATION"


class ForeignSequencer(Distrust):
    code = "FOREIGN_SEQUENCER"


class SplitBrain(Distrust):
    code = "SPLIT_BRAIN"


class LostRange(PeerError):
    """`first_seq`: the first event that is lost; `bundles`: from which to before which bundle of the old log."""

    code, status, fields = "LOST_RANGE", 409, ("first_seq", "bundles")


class TooManyMoves(PeerError):
    """`moves`: how often it has."""

    code, status, fields = "TOO_MANY_MOVES", 409, ("moves",)


class Forgery(Distrust):
    code = "FORGERY"
