"""Audits of archives that someone changed, with honest heads and proofs: only holders of keys that
this one has are convicted, and the files say so to everyone."""

import json
from pathlib import Path
from random import Random

import pytest
from typer.testing import CliRunner

from enc.audit.audit import Audit, AuditRequest, InProcess, run_audit
from enc.audit.collected_heads import CollectedHead
from enc.cli import app
from enc.core.machine.archive import Header, write_archive
from enc.core.primitives.types import Event
from tests.framing.framer import Framer, replayed
from tests.framing.scenes import FORMS, MOVES, Scene, scene
from tests.tiers import rounds

pytestmark = pytest.mark.sweep
THIEVES: list[list[str]] = [[], ["bob"], ["alice", "olga"], ["node"], ["node2"], ["node3"]]


def archive(path: Path, one: Scene, events: list[Event], rng: Random) -> str:
    """Write a log as an archive whose header says anything."""
    sth = rng.choice([None, *(each.head for each in one.heads[:4])])
    root = replayed(one.enclave, events).root()
    header = Header(
        enclave=one.enclave,
        enc_v=one.enc_v,
        sequencers=((events[0].sequencer, 0),),
        events=len(events),
        sth=sth,
        checkpoint_seq=events[-1].seq,
        checkpoint_root=root or rng.randbytes(32),
    )
    path.write_bytes(b"".join(write_archive(header, events)))
    return str(path)


def audited(one: Scene, framer: Framer, logs: list[list[Event]], folder: Path) -> Audit:
    paths = [archive(folder / f"{i}.enc", one, log, framer.rng) for i, log in enumerate(logs) if log]
    heads = [CollectedHead(head=each.head, source="someone") for each in one.heads]
    bent = [framer.bent(*pair) for pair in one.claims]
    heads += [CollectedHead(head=over.head, source="someone", claim=claim) for claim, over in bent]
    return run_audit(AuditRequest(paths=paths, heads={one.enclave: heads}), InProcess())


@pytest.mark.parametrize("moves", MOVES)
def test_an_audit_convicts_only_holders_of_the_keys(moves: str, tmp_path: Path) -> None:
    runner, found = CliRunner(), 0
    for seed in range(rounds(10)):
        rng = Random(f"{moves} {seed}")
        one, other = scene(rng, FORMS[seed % len(FORMS)], moves), scene(rng, FORMS[0], "none")
        framer = Framer(rng, one, other, THIEVES[seed % len(THIEVES)])
        audit = audited(one, framer, [framer.log() for _ in range(rng.choice([1, 2]))], tmp_path)
        found += len(audit.proved)
        for each in audit.proved:
            assert not each.convicts or each.finding.sequencer in framer.own, (seed, each.finding)
        for each in [each for each in audit.proved if each.evidence][:1]:
            (tmp_path / "evidence.json").write_bytes(each.evidence)
            said = json.loads(runner.invoke(app, ["verify", str(tmp_path / "evidence.json"), "--json"]).stdout)
            assert said["convicts"] == each.convicts
    assert found


@pytest.mark.parametrize("moves", MOVES)
def test_an_audit_of_honest_logs_and_of_other_sizes_in_their_proofs_finds_nothing(moves: str, tmp_path: Path) -> None:
    for seed in range(rounds(len(FORMS))):
        rng = Random(f"{moves} {seed}")
        one = scene(rng, FORMS[seed % len(FORMS)], moves)
        framer = Framer(rng, one, one, [])
        found = audited(one, framer, [one.lines[0]], tmp_path).proved
        assert not [each for each in found if each.convicts], seed
        if moves in ("none", "peaceful", "there and back"):
            assert {each.finding.kind for each in found} <= {"wrong_log_root"}, found  # a head beyond the archive
