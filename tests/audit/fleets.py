"""Fleets to audit, and audits of them, in this process or on a given Spark master."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from enc.audit.archive_reader import found_archives
from enc.audit.audit import Audit, AuditRequest, InProcess, Runner, run_audit
from enc.audit.collected_heads import collect_heads
from enc.bench.fault_kinds import KINDS, Kind
from enc.bench.fleet import generate

Place = tuple[str, str, int]
"""Enclave, kind and seq of a fault."""


def fleet(out: Path, seed: int, plants: Sequence[Kind] = KINDS, events: int = 1300, enclaves: int = 15) -> Path:
    generate(out, enclaves=enclaves, events=events, seed=seed, plants=plants)
    return out


def planted(folder: Path) -> set[Place]:
    found = json.loads((folder / "planted.json").read_bytes())
    return {(each["enclave"], each["kind"], each["seq"]) for each in found}


def audited(folder: Path, runner: Runner | None = None, **more: Any) -> Audit:
    """Return all archives and heads of a folder."""
    heads = collect_heads([folder / "heads.jsonl"], {})
    request = AuditRequest(paths=found_archives([folder]), heads=heads, **more)
    return run_audit(request, runner or InProcess())


def places(audit: Audit) -> set[Place]:
    return {(finding.enclave.hex(), finding.kind, finding.seq) for finding in audit.findings}
