"""Every kind of fault, planted in twenty places each: found with its kind and seq, and proved to
others.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import enc
from enc.bench.fault_kinds import KINDS
from tests.audit.fleets import audited, fleet, places, planted
from tests.tiers import rounds

pytestmark = pytest.mark.sweep
TIMES = rounds(20)
CONVICTS_NOBODY = {
    "invalid_signature",
    "altered_content",
    "erasure_without_cause",
    "wrong_log_root",
    "sequencer_change",
}
"""Kinds that contradict no signature of the sequencer: anyone with a copy, or an earlier signer,
may have caused them.
"""


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the evidence of all findings, and nothing else."""
    return tmp_path_factory.mktemp("evidence")


@pytest.mark.parametrize("seed", range(TIMES))
def test_what_was_planted_is_found_and_nothing_else(seed: int, tmp_path: Path, evidence: Path) -> None:
    folder = fleet(tmp_path / "fleet", seed)
    audit = audited(folder)
    assert not audit.problems
    assert places(audit) == planted(folder)
    for proved in audit.proved:
        assert proved.evidence, (proved.finding.kind, proved.missing)
        (evidence / f"{seed}-{proved.finding.kind}-{proved.finding.seq}.json").write_bytes(proved.evidence)


def test_a_process_that_has_nothing_but_the_evidence_verifies_it(evidence: Path) -> None:
    environment = {"PYTHONPATH": str(Path(enc.__file__).resolve().parents[1]), "PATH": os.environ["PATH"]}
    script = Path(__file__).with_name("verify_alone.py")
    done = subprocess.run(
        [sys.executable, script, evidence], capture_output=True, text=True, cwd=evidence, env=environment, check=True
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    counts = Counter(line["name"].split("-")[1] for line in lines)
    assert counts == dict.fromkeys(KINDS, TIMES)
    for line in lines:
        kind = line["name"].split("-")[1]
        assert line["convicts"] or (line["holds"] and kind in CONVICTS_NOBODY), line
        assert line["proved"], line
        assert line["convicts"] or line["not_proved"], line


@pytest.mark.parametrize("first", range(0, 40, 4))
def test_clean_fleets_have_no_finding(first: int, tmp_path: Path) -> None:
    for seed in range(first * TIMES // 20, (first + 4) * TIMES // 20):
        audit = audited(fleet(tmp_path / str(seed), 1000 + seed, plants=(), events=130 + seed % 40, enclaves=3))
        assert not audit.findings, (seed, audit.findings)
        assert not audit.problems
        assert sum(each.heads for each in audit.verdicts) == sum(each.on_log for each in audit.verdicts)
