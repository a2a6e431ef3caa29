"""Writes an audit's results: `report.json`, a page for people, and an evidence file per finding."""

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from enc.audit.audit import Audit
from enc.audit.evidence_builder import ProvedFinding
from enc.audit.finding import Finding
from enc.audit.html_report import page
from enc.audit.progress import save_progress
from enc.core.errors import MisuseError
from enc.core.log.withheld import wire_withheld
from enc.core.machine.fault import FAULT_KINDS
from enc.core.primitives.types import Withheld
from enc.runtime.files import write_atomic

EVIDENCE, EARLIER, REPORT, PAGE = "evidence", "earlier", "report.json", "report.html"
_NAME = re.compile(rf"\d{{4,}}-((?:{'|'.join(FAULT_KINDS)})-[0-9a-f]{{8}}(?:-\d+)?)\.json")


class AuditRun(Struct, frozen=True):
    """When and how an audit ran."""

    at: int
    """Its start, in Unix milliseconds."""
    took_s: float
    runner: str
    sources: tuple[str, ...] = ()


def write_report(folder: Path, audit: Audit, made: AuditRun) -> dict[str, Any]:
    """Write all results to the folder; return the contents of `report.json`."""
    try:
        (folder / EVIDENCE).mkdir(parents=True, exist_ok=True)
        _keep_earlier(folder, {_label(found) for found in audit.findings})
        names = [_save(folder, each, i) for i, each in enumerate((*audit.proved, *audit.caught), 1)]
        if kept := len(list((folder / EARLIER).glob("*.json"))):
            audit.notes.append(f"{EARLIER}/: evidence of earlier audits that this one did not find again: {kept} files")
        wire = report(audit, names, made)
        _write(folder / REPORT, msgspec.json.format(msgspec.json.encode(wire)) + b"\n")
        _write(folder / PAGE, page(wire).encode())
        save_progress(folder, audit.kept)
    except OSError as e:
        raise MisuseError(f"{e.filename or folder}: {e.strerror}") from None
    return wire


def _keep_earlier(folder: Path, found: Collection[str]) -> None:
    """Move evidence that this audit does not find again aside: it may be the only evidence."""
    for old in sorted((folder / EVIDENCE).glob("*.json")):
        if (named := _NAME.fullmatch(old.name)) is None:
            continue  # not written by an audit
        if named[1] in found:
            old.unlink()
            continue
        (folder / EARLIER).mkdir(exist_ok=True)
        with old.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        old.rename(folder / EARLIER / f"{named[1]}-{digest[:8]}.json")


def _save(folder: Path, each: ProvedFinding, number: int) -> str | None:
    if not each.evidence:
        return None
    found = each.finding
    name = f"{EVIDENCE}/{number:04}-{_label(found)}.json"
    _write(folder / name, each.evidence)
    return name


def _label(found: Finding) -> str:
    """Return a file label of kind, enclave and seq, if known."""
    label = f"{found.kind}-{found.enclave.hex()[:8]}"
    return label if found.seq < 0 else f"{label}-{found.seq}"


def _write(path: Path, data: bytes) -> None:
    write_atomic(path, data, draft=path.with_name(path.name + ".draft"), durable=False)


def report(audit: Audit, evidence: list[str | None], made: AuditRun) -> dict[str, Any]:
    findings = [
        {**each.finding.wire(), "convicts": each.convicts, "evidence": name, "no_evidence": each.missing or None}
        for each, name in zip((*audit.proved, *audit.caught), evidence, strict=True)
    ]
    return {
        "format": "enc-audit-report",
        "version": 1,
        "at": made.at,
        "took_s": round(made.took_s, 3),
        "runner": made.runner,
        "sources": list(made.sources),
        "clean": not findings,
        "complete": not audit.problems,
        "checked": checked(audit),
        "counts": counts(audit),
        "findings": findings,
        "problems": audit.problems,
        "notes": audit.notes,
        "withheld": [_withheld(each.enclave, *one) for each in audit.verdicts for one in each.withheld],
        "enclaves": [_enclave(each) for each in audit.verdicts],
        "days": _days(audit),
    }


def checked(audit: Audit) -> dict[str, int]:
    """Return how much was checked."""
    each = audit.verdicts
    events = sum(one.checked for one in each)
    return {
        "enclaves": len(each),
        "archives": sum(one.archives for one in each),
        "events": sum(one.events for one in each),
        "signatures": 2 * events,
        "events_verified": events,
        "events_verified_before": audit.skipped,
        "bundles": sum(one.bundles for one in each),
        "heads": sum(one.heads for one in each),
        "heads_on_log": sum(one.on_log for one in each),
        "heads_not_judged": sum(one.beyond for one in each),
        "heads_of_nobody": sum(one.unsigned for one in each),
        "contents_withheld": sum(len(one.withheld) for one in each),
    }


def counts(audit: Audit) -> dict[str, int]:
    """Return the number of findings by kind, including unlisted ones; 0 for kinds without any."""
    found: Counter[str] = Counter()
    for each in audit.verdicts:
        found.update(each.counts)
    found.update(each.finding.kind for each in audit.caught)
    return {kind: found[kind] for kind in FAULT_KINDS}


def _enclave(each: Any) -> dict[str, Any]:
    return {
        "enclave": each.enclave.hex(),
        "events": each.events,
        "bundles": each.bundles,
        "archives": each.archives,
        "heads": each.heads,
        "findings": sum(each.counts.values()),
        "sequencers": [key.hex() for key in each.sequencers],
    }


def _withheld(enclave: bytes, seq: int, statement: Withheld) -> dict[str, Any]:
    return {"enclave": enclave.hex(), "seq": seq, **wire_withheld(statement)}


def _days(audit: Audit) -> Mapping[str, int]:
    """Return the number of events by day, counted from 1970."""
    found: Counter[int] = Counter()
    for each in audit.verdicts:
        found.update(each.days)
    return {str(day): n for day, n in sorted(found.items())}
