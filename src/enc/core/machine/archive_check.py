"""Checks of a whole archive: its events by replay, and its header against them."""

from collections.abc import Iterable

from enc.core.errors import EncError, InvalidArchive, InvalidProof
from enc.core.machine.archive import Header
from enc.core.machine.replay import Replay
from enc.core.primitives.types import Event, TreeHead
from enc.core.trees.tree_head import check_bound_head, check_head


def header_of(replay: Replay, sth: TreeHead | None) -> Header:
    """Return the header for a replayed log."""
    return Header(
        enclave=replay.state.enclave,
        enc_v=replay.state.policy.enc_v,
        sequencers=tuple(replay.sequencers),
        events=replay.events,
        sth=sth,
        checkpoint_seq=replay.state.seq,
        checkpoint_root=replay.checkpoint_root(),
    )


def verify_archive(header: Header, events: Iterable[Event], replay: Replay | None = None) -> Replay:
    """Replay all events and check the header against them. Raises ReplayFailed for an event, else
    InvalidArchive.

    If `sth` counts the trailing bundle, a node that continues the log first seals it at its
    deadline (enclave.seal).
    """
    replay = replay or Replay(header.enclave)
    for event in events:
        replay.add(event)
    check_header(header, replay)
    return replay


def check_header(header: Header, replay: Replay) -> None:
    """Check that the header matches the replay of all events; otherwise raise InvalidArchive."""
    state = replay.finish()
    if header.enclave != state.enclave:
        raise InvalidArchive("header: enclave is not that of the events")
    if header.events != replay.events:
        raise InvalidArchive(f"header: states {header.events} events, but the archive has {replay.events}")
    if header.enc_v != state.policy.enc_v:
        raise InvalidArchive("header: enc_v is not the Manifest's")
    if header.sequencers != tuple(replay.sequencers):
        raise InvalidArchive("header: sequencers are not those of the events")
    if (header.checkpoint_seq, header.checkpoint_root) != (state.seq, replay.checkpoint_root()):
        raise InvalidArchive("header: not the log's checkpoint")
    if header.sth is not None:
        check_sth(header.sth, replay)


def _closing_sequencer(size: int, replay: Replay) -> bytes:
    """Return the sequencer of the last event in a log of this size, which signed that size's
    head."""
    bundle = replay.state.bundle
    seq = bundle.first_seq - 1 if bundle is not None and 0 < size == replay.state.log.size else replay.state.seq
    return [key for key, first in replay.sequencers if first <= seq][-1]


def check_sth(sth: TreeHead, replay: Replay) -> None:
    """Check that the head is on this log, with the trailing bundle open or closed, and that a
    sequencer at its end signed it."""
    state = replay.state
    roots = {state.log.size: state.log.root()}
    if state.bundle is not None:
        roots[state.log.size + 1] = replay.checkpoint_root()
    if roots.get(sth.ts) != sth.r:
        raise InvalidArchive("header: sth is not the head of this log")
    failure: EncError | None = None
    for sequencer in dict.fromkeys([_closing_sequencer(sth.ts, replay), replay.sequencers[-1][0], state.sequencer]):
        try:
            if sth.bound_sig is None:
                check_head(sth, sequencer)
            else:
                check_bound_head(sth, sequencer, state.enclave)
        except InvalidProof as e:
            failure = e
        else:
            return
    raise InvalidArchive(f"header: {failure.message if failure else 'sth'}")
