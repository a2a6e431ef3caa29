"""Complete reads: every event of every closed bundle, with the proof that none is missing."""

from collections.abc import Sequence

from enc.client.link.enclave_reader import BundleIds, EnclaveReader
from enc.client.verify.items import Item
from enc.client.wire.flow import Flow
from enc.core.log.filter import MAX_LIMIT
from enc.core.trees.state_key import DELETED

BATCH = 256
"""Keys of one State_Batch."""


def complete_bundle(reader: EnclaveReader, index: int, first_seq: int) -> Flow[tuple[BundleIds, list[Item]]]:
    """Return all events of one closed bundle, proved complete: missing ones are proved deleted."""
    bundle = yield from reader.bundle(index)
    items = yield from _range(reader, first_seq, first_seq + len(bundle.ids))
    shown = {item.seq: item for item in items}
    missing = []
    for seq, id_ in enumerate(bundle.ids, first_seq):
        item = shown.get(seq)
        if item is None:
            missing.append(id_)
        elif item.id != id_:
            raise reader.session.known_verifier().forgery(
                f"event {seq}: differs from the event in the log", item.id.hex().encode()
            )
    for i in range(0, len(missing), BATCH):
        yield from _check_deleted(reader, missing[i : i + BATCH])
    return bundle, items


def _range(reader: EnclaveReader, first: int, end: int) -> Flow[list[Item]]:
    items: list[Item] = []
    while True:
        start = items[-1].seq + 1 if items else first
        page = yield from reader.page({"seq": {"start_at": start, "end_before": end}, "limit": MAX_LIMIT})
        items += page.items
        if not page.more:
            return items


def _check_deleted(reader: EnclaveReader, ids: Sequence[bytes]) -> Flow[None]:
    """Check by the state after the last closed bundle, or by a later Delete."""
    facts = yield from reader.state_facts([("event_status", id_) for id_ in ids])
    for fact in facts:
        if fact.value == DELETED:
            continue
        page = yield from reader.page({"type": "Delete", "tags": {"r": fact.key.hex()}})
        if all(item.event.timestamp < fact.anchor.head.t for item in page.items):
            message = f"event {fact.key.hex()}: in the log, but withheld, unless you may not read it"
            raise reader.session.known_verifier().forgery(message, fact.key.hex().encode())
