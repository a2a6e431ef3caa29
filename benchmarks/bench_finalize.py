"""Finalising an event: event hash, sign, id. Floor: raw schnorrsig_sign32."""

from floors import best_by_turns, raw_sign, report

from enc.core.log.commit import build_commit
from enc.core.log.event import finalize
from enc.core.primitives.signing import PrivateKey

COUNT = 200


def main() -> None:
    author, node = PrivateKey(b"\x01" * 32), PrivateKey(b"\x02" * 32)
    commits = [build_commit(author, b"\x07" * 32, "message", "x" * 300, 1_790_000_000_000 + i) for i in range(COUNT)]

    def work() -> None:
        for seq, commit in enumerate(commits):
            finalize(commit, node, 1_790_000_000_000, seq)

    cost, floor = best_by_turns(work, raw_sign(node.secret, [commit.hash for commit in commits]))
    report("finalise an event (hash, sign, id)", cost / COUNT, floor / COUNT, "schnorrsig_sign32", 1.35)
