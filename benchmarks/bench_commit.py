"""Checking a commit of 300 bytes: parse, hash, verify. Floor: raw schnorrsig_verify."""

import msgspec
from floors import best_by_turns, raw_verify, report

from enc.core.log.commit import build_commit, check_commit, parse_commit, wire_commit
from enc.core.primitives.signing import PrivateKey

COUNT = 200


def main() -> None:
    authors = [PrivateKey(bytes([i + 1] * 32)) for i in range(10)]
    commits = [
        build_commit(authors[i % 10], b"\x07" * 32, "message", f"{i:03}" + "x" * 297, 1_790_000_000_000 + i)
        for i in range(COUNT)
    ]
    wires = [msgspec.json.encode(wire_commit(commit)) for commit in commits]

    def work() -> None:
        for wire in wires:
            check_commit(parse_commit(wire), 2)

    cost, floor = best_by_turns(work, raw_verify([(c.from_, c.hash, c.sig) for c in commits]))
    report("check a commit (parse, hash, verify)", cost / COUNT, floor / COUNT, "schnorrsig_verify", 1.35)
