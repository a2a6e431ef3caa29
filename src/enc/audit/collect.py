"""Collects archives and heads from nodes: of given enclaves, or of all that a registry lists.

An owner gets the whole log, unverified; it is audited like any other archive. An identity that may
only read everything gets all readable events, each with its signatures, and for each bundle the
proof that it is shown completely, under signed heads that extend each other (`Enclave.complete`).
Rules and state cannot be replayed from that; they are not judged, and the report says so. If a node
contradicts itself meanwhile, the error that the client raises is a finding with evidence.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

from enc.audit.collected_heads import CollectedHead
from enc.audit.enclave_verdict import EnclaveVerdict
from enc.audit.evidence_builder import ProvedFinding, convicts
from enc.audit.finding import Finding
from enc.core.errors import EncError, MisuseError, Unauthorized
from enc.core.machine.fault import FaultKind
from enc.core.primitives.types import Withheld

if TYPE_CHECKING:
    from enc.client import Client, Enclave
    from enc.client.errors import Distrust

MAX_PAGES = 100_000

_KINDS: Mapping[str, FaultKind] = {
    "FORK": "broken_consistency",
    "ROLLBACK": "broken_consistency",
    "EQUIVOCATION": "equivocation",
    "FOREIGN_SEQUENCER": "sequencer_change",
    "SPLIT_BRAIN": "old_sequencer",
    "FORGERY": "altered_content",
}
"""The finding for each code of a client's Distrust; a fork of two heads of one size is an
equivocation."""


class CollectedLogs(Struct):
    """What was collected from nodes."""

    paths: list[str] = field(default_factory=list)
    heads: dict[bytes, list[CollectedHead]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    proved: list[ProvedFinding] = field(default_factory=list)
    verdicts: list[EnclaveVerdict] = field(default_factory=list)
    """Of enclaves that could be read, but not replayed."""


def collect(
    client: "Client",
    enclaves: Sequence[str],
    folder: Path,
    progress: Callable[[str, int, int], None] = lambda step, done, total: None,
) -> CollectedLogs:
    """Collect the logs of these enclaves; of all that the registry lists if none is given."""
    folder.mkdir(parents=True, exist_ok=True)
    found = CollectedLogs()
    named = list(enclaves) or list(_listed(client, found))
    for i, enclave in enumerate(named):
        _one(client, enclave, folder, found)
        progress("pulling", i + 1, len(named))
    return found


def _listed(client: "Client", found: CollectedLogs) -> Iterator[str]:
    after: str | None = None
    try:
        for _ in range(MAX_PAGES):
            page, after = client.listing(after=after)
            yield from (str(each["enclave_id"]) for each in page)
            if after is None:
                return
    except EncError as e:
        found.problems.append(f"registry: {e.message}")


def _one(client: "Client", id_: str, folder: Path, found: CollectedLogs) -> None:
    from enc.client.errors import Distrust

    try:
        enclave = client.enclave(id_)
        path = folder / f"{enclave.hex}.enc"
        try:
            enclave.export(path, since=path if path.exists() else None)
            found.paths.append(str(path.absolute()))
        except Unauthorized:
            _read(enclave, found)
        head = enclave.head()
        found.heads.setdefault(enclave.id, []).append(
            CollectedHead(head=head, source=enclave.url, sequencer=enclave.sequencer())
        )
    except Distrust as e:
        found.proved.append(_caught(e))
    except MisuseError:
        raise
    except EncError as e:
        found.problems.append(f"{id_}: {e.code or 'error'}: {e.message}")


def _read(enclave: "Enclave", found: CollectedLogs) -> None:
    """Read all readable events, with the proof that none is missing."""
    events, withheld = 0, list[tuple[int, Withheld]]()
    for item in enclave.complete():
        events += 1
        if item.withheld is not None and item.updated_by is None:
            withheld.append((item.seq, item.withheld))
    size = enclave.head().ts
    found.notes.append(f"{enclave.hex}: read, but not replayed: only its owner may get the whole log")
    verdict = EnclaveVerdict(
        enclave=enclave.id, events=events, checked=events, bundles=size, heads=1, on_log=1, withheld=withheld
    )
    found.verdicts.append(verdict)


def _caught(error: "Distrust") -> ProvedFinding:
    evidence = error.evidence
    kind: FaultKind = "equivocation" if evidence.kind == "fork" else _KINDS.get(error.code, "altered_content")
    finding = Finding(
        kind=kind, enclave=evidence.enclave, seq=-1, what=error.message[:2000], sequencer=evidence.sequencer
    )
    return ProvedFinding(finding, evidence.json(), convicts=convicts(evidence))
