"""The faults that can be planted, and what each changes on disk, which is all that an audit can
find.

A fleet is a folder:

    <enclave>.enc           the archive of each enclave, with a bound head of the log's end as `sth`
    <enclave>.earlier.enc   for some: an archive pulled earlier, with a shorter log and fewer erasures
    heads.jsonl             one {"enclave", "sth", "source"} per line: collected heads, in wire format; a few
                            lines also prove the last event of a bundle under that head: {"seq",
                            "membership": {"leaf_index", "ei", "s", "size", "events_root"},
                            "inclusion": {"ts", "li", "p", "events_root", "state_hash"}}
    planted.json            [{"kind", "enclave", "seq", "done"}]: the faults; `done` describes them

Each fault has an enclave of its own and is the only one there: the node's own key signs ids,
bundles and heads over it as a lying node would, and everything after it is consistent with the
fault.

Faults of sequencing. Every later bundle, head and checkpoint covers the fault:

invalid_signature      Event `seq`, a content event. `sig` is made with another key than `from`'s, over the
                       right hash; `seq_sig` and `id` are made over that `sig`. Or `seq_sig` is made with
                       another key than `sequencer`'s, and `id` is its hash. `done` says which.
unauthorised_event     Event `seq`, a content event that its author signed and had no right to. It changes no state.
gap                    The log has no event `seq`: its line has `seq` + 1, and later ones count from there.
                       The header's `events` is the number of lines, `checkpoint.seq` the last event's seq.
reordering             Line `seq` has the event with `seq` + 1, and the next line the one with `seq`: two
                       content events of one timestamp, in one bundle, whose ids are in the order of the
                       lines.
falling_timestamp      Event `seq` has a smaller timestamp than the event before it.
wrong_bundle_boundary  A bundle was closed early, or took an event past its deadline. `seq` is the first
                       event in another bundle than 8.1 requires. A line of heads.jsonl proves the last
                       event of that bundle: that line's `seq` − `ei` and `size` are the node's boundaries,
                       and `events_root` covers exactly these ids. Later boundaries follow 8.1 from there,
                       and with this one all heads and the checkpoint are right.
wrong_state_root       The leaf of one bundle has a state_hash in which a stranger holds rights. `seq` is the last event
                       of that bundle. A line of heads.jsonl proves it: `inclusion` has the right `events_root` and
                       the wrong `state_hash`. With that leaf all heads and the checkpoint are right.
sequencer_change       From event `seq` on, another node finalises events. No Migrate names it, and it never
                       was the sequencer.
old_sequencer          Event `seq` − 1 is a valid Migrate. The node it takes the enclave from finalises event
                       `seq` and all later ones.

Faults of the archive, which differs from what was signed:

altered_content        The content of event `seq`, a content event, is another text. All else is as it was signed.
erasure_without_cause  The content of event `seq`, a content event, is null with its hash; no Update, no Delete, no
                       auto-delete, no statement of the node.

Faults of a head, over a valid log. `seq` is the last event that a head of that size covers:

wrong_log_root         `sth` in the archive's header has another root than the log at that size. heads.jsonl has no head
                       of that size.
head_not_on_log        One head of heads.jsonl has another root than the log at that size. It is the only one of its
                       size, and there is no other archive.
equivocation           heads.jsonl has two bound heads by one sequencer of one size with different roots. One of them is
                       the log's.
broken_consistency     Two archives, each valid alone: event `seq` is the last of the earlier one, and the log
                       continued without it. So `sth` of the earlier one, also in heads.jsonl, is not a
                       prefix of that of the later: the node has rewritten what it had signed. There are no
                       two heads of one size.
"""

from msgspec import Struct

from enc.core.errors import MisuseError
from enc.core.machine.fault import FAULT_KINDS, FaultKind

Kind = FaultKind
KINDS = FAULT_KINDS
"""The faults that an audit can find are those that can be planted."""


class Planted(Struct, frozen=True):
    """A fault in a fleet: an entry of planted.json."""

    kind: Kind
    enclave: str
    seq: int
    done: str


def parse_kind(text: str) -> Kind:
    for kind in KINDS:
        if kind == text:
            return kind
    raise MisuseError(f"{text}: not a kind of fault; expected one of {', '.join(KINDS)}")
