"""Errors of the client, in addition to the protocol's own errors in `enc.core.errors`.

WorldError
├── Unreachable        the node did not answer: whether it processed the request is unknown
├── TimedOut           the same, because the answer took too long
└── NotWitnessed       fewer witnesses than required confirm what the node shows
InvalidProof
└── Distrust           the node's answer cannot be true; `evidence` holds that answer
    ├── Fork               two signed heads that do not belong to one log
    ├── Rollback           a signed head older than one seen before
    ├── Equivocation       two signed events with the same seq
    ├── ForeignSequencer   signed by a key that is not the enclave's sequencer
    ├── SplitBrain         signed by a former sequencer after the enclave had moved
    └── Forgery            a receipt, an event or a proof that does not verify
PeerError
├── LostRange          the enclave continued from a copy without events that were seen before;
│                      the user decides whether to continue
└── TooManyMoves       the enclave has moved more often than a client follows; this is not a lie
"""

from typing import TYPE_CHECKING

from enc.core.errors import InvalidProof, PeerError, WorldError

if TYPE_CHECKING:
    from enc.client.evidence.evidence import Evidence


class Unreachable(WorldError):
    code, status = "UNREACHABLE", 503


class TimedOut(WorldError):
    code, status = "TIMED_OUT", 504


class NotWitnessed(WorldError):
    """`witnessed`: witnesses that confirm; `needed`: witnesses required. No answer was accepted."""

    code, status, fields = "NOT_WITNESSED", 503, ("witnessed", "needed")


class Distrust(InvalidProof):
    """Stop using this node until a person has examined the evidence."""

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
    """`first_seq`: the first lost event; `bundles`: first and end of the lost bundles, half-open."""

    code, status, fields = "LOST_RANGE", 409, ("first_seq", "bundles")


class TooManyMoves(PeerError):
    """`moves`: how often it has."""

    code, status, fields = "TOO_MANY_MOVES", 409, ("moves",)


class Forgery(Distrust):
    code = "FORGERY"
