"""The faults that can be planted, and what each one changes on disk: all that an auditor can be expected to find.

A fleet is a folder:

    <enclave>.enc           the archive of each enclave, with a bound head of the log's end as `sth`
    <enclave>.earlier.enc   of some: an archive that was pulled earlier: a shorter log, less of it erased
    heads.jsonl             {"enclave", "sth", "source"} a line: heads that people collected, the wire's form; a few
                            lines also have what a node proves of the last event of a bundle under that head: {"seq",
                            "membership": {"leaf_index", "ei", "s", "size", "events_root"},
                            "inclusion": {"ts", "li", "p", "events_root", "state_hash"}}
    planted.json            [{"kind", "enclave", "seq", "done"}]: what is wrong, and `done`, in words

Each fault has an enclave of its own, and is the only thing wrong there: the node's own key signs ids, bundles and
heads over it as a lying node would, and whatever comes after is right again for who takes the lie for granted.

The node lies as it orders. Every later bundle, head and checkpoint stands over the lie:

invalid_signature      Event `seq`, a content event. `sig`: another key's than `from`'s, signed over the right hash;
                       `seq_sig` and `id` are made over that `sig`. Or `seq_sig` is another key's than `sequencer`'s,
                       and `id` its hash. `done` says which.
unauthorised_event     Event `seq`, a content event that its author signed and had no right to. It changes no state.
gap                    The log has no event `seq`: the place holds `seq` + 1, and all later ones count on from there.
                       The header's `events` is the number of lines, `checkpoint.seq` the last event's seq.
reordering             In place `seq` stands the event that says `seq` + 1, and after it the one that says `seq`: two
                       content events of one timestamp, in one bundle, whose ids stand in the order of the lines.
falling_timestamp      Event `seq` has a smaller timestamp than the event before it.
wrong_bundle_boundary  A bundle was closed early, or took an event past its deadline. `seq` is the first event that
                       stands in another bundle than 8.1 says. A line of heads.jsonl proves the last event of that
                       bundle: that line's `seq` − `ei` and `size` are what the node drew, and `events_root` is over
                       just these ids. Later boundaries follow 8.1 from there, and with this one all heads and the
                       checkpoint are right.
wrong_state_root       The leaf of one bundle has a state_hash in which a stranger holds rights. `seq` is the last event
                       of that bundle. A line of heads.jsonl proves it: `inclusion` has the right `events_root` and
                       the wrong `state_hash`. With that leaf all heads and the checkpoint are right.
sequencer_change       From event `seq` on another node finalises: no Migrate names it. It never was the sequencer.
old_sequencer          Event `seq` − 1 is a valid Migrate. The node that it takes the enclave from finalises event
                       `seq` and all later ones.

The archive shows something else than what was signed:

altered_content        The content of event `seq`, a content event, is another text. All else is as it was signed.
erasure_without_cause  The content of event `seq`, a content event, is null with its hash; no Update, no Delete, no
                       auto-delete.

The log is right, and a head is not. `seq` is the last event that the log has under a head of that size:

wrong_log_root         `sth` in the archive's header has another root than the log at that size. heads.jsonl has no head
                       of that size.
head_not_on_log        One head of heads.jsonl has another root than the log at that size. It is the only one of its
                       size, and there is no other archive.
equivocation           heads.jsonl has two bound heads by one sequencer of one size with different roots. One of them is
                       the log's.
broken_consistency     Two archives, each right by itself: in the earlier one event `seq` is the last, and the log went
                       on without it. So `sth` of the earlier one, also in heads.jsonl, is no prefix of that of the
                       later: the node has rewritten what it had signed. There are no two heads of one size.
"""

from msgspec import Struct

from enc.core.errors import MisuseError
from enc.core.fault import FAULT_KINDS, FaultKind

Kind = FaultKind
KINDS = FAULT_KINDS
"""What is planted is what an audit can find."""


class Planted(Struct, frozen=True):
    """A fault that is in a fleet: a line of planted.json."""

    kind: Kind
    enclave: str
    seq: int
    done: str


def parse_kind(text: str) -> Kind:
    for kind in KINDS:
        if kind == text:
            return kind
    raise MisuseError(f"{text}: no such fault; there are {', '.join(KINDS)}")
