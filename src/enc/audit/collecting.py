"""Archives and heads from nodes: of enclaves that are named, or of all that a registry knows.

An owner gets the whole log, unjudged, and it is audited like any other archive. Who may only read everything gets all
that can be read, each event with its signatures, each bundle proved to be shown whole under signed heads that extend
each other (`Enclave.complete`); what cannot be replayed so, the rules and the state, is not judged, and the report says
so. A node that contradicts itself meanwhile is caught in the act: what the client raises is a finding with evidence.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

from enc.audit.finding import Finding
from enc.audit.heads import HeldHead
from enc.audit.proving import Proved, convicts
from enc.audit.verdict import Verdict
from enc.core.errors import EncError, MisuseError, Unauthorized
from enc.core.fault import FaultKind

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
"""What a client's distrust is called here; a fork of two heads of one size is an equivocation."""


class Pulled(Struct):
    """What nodes gave."""

    paths: list[str] = field(default_factory=list)
    heads: dict[bytes, list[HeldHead]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    proved: list[Proved] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    """Of enclaves that could only be read."""


def collect(
    client: "Client",
    enclaves: Sequence[str],
    folder: Path,
    told: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> Pulled:
    """The logs of these enclaves; of all that the registry knows, if none is named."""
    folder.mkdir(parents=True, exist_ok=True)
    found = Pulled()
    named = list(enclaves) or list(_listed(client, found))
    for i, enclave in enumerate(named):
        _one(client, enclave, folder, found)
        told("pulling", i + 1, len(named))
    return found


def _listed(client: "Client", found: Pulled) -> Iterator[str]:
    after: str | None = None
    try:
        for _ in range(MAX_PAGES):
            page, after = client.listing(after=after)
            yield from (str(each["enclave_id"]) for each in page)
            if after is None:
                return
    except EncError as e:
        found.problems.append(f"the registry: {e.message}")


def _one(client: "Client", id_: str, folder: Path, found: Pulled) -> None:
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
            HeldHead(head=head, source=enclave.url, sequencer=enclave.sequencer())
        )
    except Distrust as e:
        found.proved.append(_caught(e))
    except MisuseError:
        raise
    except EncError as e:
        found.problems.append(f"{id_}: {e.code or 'error'}: {e.message}")


def _read(enclave: "Enclave", found: Pulled) -> None:
    """All that can be read, proved to be all."""
    events = sum(1 for _ in enclave.complete())
    size = enclave.head().ts
    found.notes.append(f"{enclave.hex}: read, and not replayed: only its owner may have the whole log")
    verdict = Verdict(enclave=enclave.id, events=events, checked=events, bundles=size, heads=1, on_log=1)
    found.verdicts.append(verdict)


def _caught(error: "Distrust") -> Proved:
    evidence = error.evidence
    kind: FaultKind = "equivocation" if evidence.kind == "fork" else _KINDS.get(error.code, "altered_content")
    finding = Finding(
        kind=kind, enclave=evidence.enclave, seq=-1, what=error.message[:2000], sequencer=evidence.sequencer
    )
    return Proved(finding, evidence.json(), convicts=convicts(evidence))
