"""A client's work on a page of 1,000 events: decode, hash, check both signatures. Floor: these operations alone."""

import msgspec
from floors import best_by_turns, raw_verify, report

from enc.client.verify.decode_answers import page_decoder, read
from enc.client.verify.items import check_order, verify_items
from enc.client.verify.log_verifier import LogVerifier
from enc.client.verify.pins import MemoryPins
from enc.core.log.commit import build_commit
from enc.core.log.event import finalize, wire_event
from enc.core.log.filter import parse_filter
from enc.core.primitives.hashing import event_hash
from enc.core.primitives.signing import PrivateKey

COUNT, AT, ENCLAVE = 1000, 1_790_000_000_000, b"\x07" * 32


def main() -> None:
    authors, node = [PrivateKey(bytes([i + 1] * 32)) for i in range(10)], PrivateKey(b"\x77" * 32)
    events = [
        finalize(build_commit(authors[i % 10], ENCLAVE, "message", f"{i:04}" + "x" * 296, AT + i), node, AT + i, i + 1)
        for i in range(COUNT)
    ]
    page = msgspec.json.encode({"events": [{"event": wire_event(event), "status": "active"} for event in events]})
    filter_ = parse_filter({"limit": COUNT})

    def work() -> None:
        verifier = LogVerifier(ENCLAVE, node.public, MemoryPins())
        items = verify_items(verifier, read(page, page_decoder).events, filter_, page)
        check_order([item.event for item in items])
        assert len(items) == COUNT

    checks = [(event.from_, event.hash, event.sig) for event in events]
    checks += [
        (event.sequencer, event_hash(event.timestamp, event.seq, event.sequencer, event.sig), event.seq_sig)
        for event in events
    ]
    cost, floor = best_by_turns(work, raw_verify(checks), rounds=30)
    report("check a page of 1,000 events", cost, floor, "2,000 x schnorrsig_verify", 1.15)


if __name__ == "__main__":
    main()
