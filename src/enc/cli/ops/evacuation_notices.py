"""Notifies the owners of an evacuated node's enclaves: one sealed notice to each personal store."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from enc.apps.people.lookup import Person, place_of
from enc.apps.personal.sealing_keys import recipient_key
from enc.client import Client, Registry
from enc.core.errors import EncError, GateClosed, UpstreamUnreachable, WorldError
from enc.core.log.commit import UNLIMITED, parse_commit
from enc.core.primitives.types import Commit
from enc.node.control.client import call
from enc.runtime.checked_http import addresses_of
from enc.runtime.clock import utc_time
from enc.runtime.endpoints import parse_endpoint

TIMEOUT_S = PATIENCE_S = 10.0
MAX_REASON = 300
"""Characters of a reason: other nodes choose the text."""
REGISTRY = "the registry"

Fields = dict[str, Any]


class Holding(Struct):
    """What one owner has on the node: `named` is the enclave that the notice names, `store` the
    owner's newest personal store that the node knows, created at `created`.
    """

    owner: str
    count: int = 0
    named: str = ""
    store: str = ""
    created: int = 0


def holdings(reports: Iterable[Fields]) -> list[Holding]:
    """Return what each owner has, from the reports of all enclaves."""
    found, stores = dict[str, Holding](), list[Fields]()
    for each in reports:
        for owner in each.get("owners", ()):
            held = found.setdefault(owner, Holding(owner))
            held.count += 1
            held.named = held.named or each["enclave"]
        if "store_of" in each:
            stores.append(each)
    for each in stores:
        held = found.get(each["store_of"], Holding(""))
        if each["created"] >= held.created:
            held.store, held.created = each["enclave"], each["created"]
            held.named = each["enclave"] if held.owner in each.get("owners", ()) else held.named
    return list(found.values())


def outcomes(folder: Path) -> dict[str, Fields]:
    """Return what came of each notice so far, by owner."""
    found, after = dict[str, Fields](), ""
    while True:
        page = call(folder, "evacuation-notices", {"after": after})
        found |= {each["owner"]: each for each in page["notices"]}
        if not page["more"]:
            return found
        after = page["notices"][-1]["owner"]


class OwnerNotifier:
    """Sends the notices of the node that uses `folder`."""

    def __init__(self, folder: Path, client: Client, *, allow_private: bool) -> None:
        """`client`: of the node, perhaps with a registry. `allow_private`: other nodes may have
        private addresses.
        """
        self._folder, self._client, self._allow_private = folder, client, allow_private
        self._silent: dict[str, EncError] = {}
        """Why a node, by its URL, or the registry did not answer: it is not asked again."""

    def notify(self, held: Holding) -> Fields:
        """Send an owner's notice. Returns the outcome; raises what the node refuses to sign."""
        store = ""
        try:
            store, url = self._store(held)
            if not store:
                return {"result": "no_store"}
            recipient = self._recipient(held)
        except EncError as e:
            return _failed(store, e)
        asked = {"owner": held.owner, "count": held.count, "enclave": held.named}
        made = call(self._folder, "evacuation-notice", {**asked, "recipient": recipient, "store": store})
        try:
            self._send(parse_commit(msgspec.json.encode(made), UNLIMITED), url)
        except GateClosed:
            return {"result": "closed", "store": store}
        except EncError as e:
            return _failed(store, e)
        return {"result": "notified", "store": store}

    def _store(self, held: Holding) -> tuple[str, str]:
        """Return the owner's store and the URL of its node: as the registry has them, else a store
        that the node knows. Both are empty if there is none.
        """
        who = Person(bytes.fromhex(held.owner), None, "key")
        with self._asking(REGISTRY):
            place = place_of(who, "personal", self._client)
            if place is None or place.enclave.hex() == held.store:
                return held.store, self._client.url
            urls = self._client.resolve(place.enclave).urls
        if not urls:
            raise UpstreamUnreachable("the registry has no HTTP URL of the node that has the owner's store")
        self._check_address(urls[0])
        return place.enclave.hex(), urls[0]

    def _check_address(self, url: str) -> None:
        """Raise unless this command may call the URL. Anybody can register one."""
        if url != self._client.url:
            private = self._allow_private
            addresses_of(parse_endpoint(url, allow_private=private), allow_private=private)

    def _recipient(self, held: Holding) -> str:
        with self._asking(REGISTRY):
            return recipient_key(self._client, bytes.fromhex(held.owner)).hex()

    def _send(self, commit: Commit, url: str) -> None:
        with self._asking(url):
            self._client.enclave(commit.enclave, at=url).send(commit)

    @contextmanager
    def _asking(self, whom: str) -> Iterator[None]:
        """Note that a node or the registry does not answer. If it did not before, raise at once."""
        if whom in self._silent:
            raise UpstreamUnreachable(f"{whom} did not answer before: {self._silent[whom].message}")
        try:
            yield
        except WorldError as e:
            self._silent[whom] = e
            raise


def _failed(store: str, error: EncError) -> Fields:
    return {"result": "failed", "store": store, "reason": error.message[:MAX_REASON]}


def notify_owners(folder: Path, first: Fields, reports: Iterable[Fields], registry: Registry | None) -> None:
    """Notify every owner who was not notified yet. `first`: the first page of the report."""
    known = outcomes(folder)
    to = first["evacuation"]["to"]
    with Client(
        first["source"], pins=None, timeout=TIMEOUT_S, patience=PATIENCE_S, registry=registry, nodes=(to,)
    ) as client:
        notifier = OwnerNotifier(folder, client, allow_private=first["allow_private"])
        for held in holdings(reports):
            if known.get(held.owner, {}).get("result") != "notified":
                outcome = notifier.notify(held)
                call(folder, "record-evacuation-notice", {"owner": held.owner, **outcome})


# What is shown


def owner_reports(folder: Path, reports: Iterable[Fields]) -> list[Fields]:
    """Return for each owner with enclaves here their number and what came of the notice."""
    known = outcomes(folder)
    waiting = {"result": "waiting"}
    return [
        {"enclaves": each.count, **waiting, **known.get(each.owner, {}), "owner": each.owner}
        for each in holdings(reports)
    ]


def owner_line(report: Fields) -> str:
    at = utc_time(report["at"]) if "at" in report else ""
    what = {
        "notified": f"notified at {at}",
        "no_store": "not notified: no personal store found",
        "closed": "not notified: the owner's personal store accepts no notices",
        "failed": f"not notified: failed at {at}: {report.get('reason', '')}",
        "waiting": "not notified yet: --status --notify",
    }[report["result"]]
    return f"owner {report['owner']}  {report['enclaves']} here; {what}"
