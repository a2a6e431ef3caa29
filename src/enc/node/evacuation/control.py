"""The operations of an evacuation, for `enc node evacuate`."""

from typing import Any

from msgspec import Struct

from enc.core.errors import InvalidEndpointUrl, InvalidQuery, MisuseError
from enc.core.primitives.encoding import unhex
from enc.core.primitives.signing import check_public_key
from enc.core.registry.evacuation import wire_evacuation
from enc.node.control.operations import NoParams, Operations
from enc.node.evacuation.copy_orders import CopyOrders
from enc.node.evacuation.report import Report
from enc.node.evacuation.statement import EvacuationStatement
from enc.runtime.endpoints import parse_endpoint

MAX_PAGE = 500


class StartParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    to: str
    to_key: str
    source: str = ""
    deadline: int = 0


class PageParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    after: str = ""
    limit: int = MAX_PAGE


class EvacuationControl:
    """Starts, stops and reports an evacuation. For the thread of the control socket."""

    def __init__(
        self,
        statement: EvacuationStatement,
        orders: CopyOrders,
        report: Report,
        public_url: str,
        *,
        restored: str,
        allow_private: bool,
    ) -> None:
        """`restored`: why the node signs nothing; empty if it signs."""
        self._statement, self._orders, self._report, self._public_url = statement, orders, report, public_url
        self._restored, self._allow_private = restored, allow_private

    def add_to(self, operations: Operations) -> None:
        operations.add("evacuate", StartParams, self._start)
        operations.add("stop-evacuation", NoParams, lambda params: {"stopped": self._statement.stop()})
        operations.add("evacuation", PageParams, self._page, changes=False)

    def _start(self, params: StartParams) -> dict[str, Any]:
        if self._restored:
            raise MisuseError("the node is restored and signs nothing: see `enc node adopt`")
        to_key = unhex(params.to_key, 32, "to_key", InvalidQuery)
        check_public_key(to_key, "to_key", InvalidQuery)
        source = params.source or self._public_url
        if not source:
            raise MisuseError("--source: give the URL at which the destination reaches this node, or set public_url")
        self._check_url("--to", params.to)
        self._check_url("--source" if params.source else "public_url", source)
        found = self._statement.start(params.to, to_key, source, params.deadline)
        return wire_evacuation(found)

    def _check_url(self, name: str, url: str) -> None:
        try:
            parse_endpoint(url, allow_private=self._allow_private)
        except InvalidEndpointUrl as e:
            todo = "" if self._allow_private else "; endpoints.allow_private permits http and private addresses"
            raise MisuseError(f"{name} {url}: {e.message}{todo}") from None

    def _page(self, params: PageParams) -> dict[str, Any]:
        current = self._statement.current
        after = unhex(params.after, 32, "after", InvalidQuery) if params.after else b""
        limit = min(max(params.limit, 1), MAX_PAGE)
        enclaves, more = self._report.page(current, after, limit)
        return {
            "evacuation": None if current is None else wire_evacuation(current),
            "source": self._statement.source,
            "problem": self._orders.problem,
            "allow_private": self._allow_private,
            "enclaves": enclaves,
            "more": more,
        }
