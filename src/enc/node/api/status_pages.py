"""Pages about the node itself: information, health and metrics."""

import asyncio

import structlog
from msgspec.json import encode

from enc.core.primitives.types import VERSIONS
from enc.core.registry.evacuation import wire_evacuation
from enc.node.config import NodeConfig
from enc.node.evacuation.statement import EvacuationStatement
from enc.node.ops.metrics import Metrics
from enc.node.ops.readiness import Readiness
from enc.version import __version__

_log = structlog.get_logger("enc.health")


class StatusPages:
    """The pages about the node itself."""

    def __init__(
        self,
        config: NodeConfig,
        seq_pub: bytes,
        readiness: Readiness,
        metrics: Metrics,
        statement: EvacuationStatement,
        restored: str = "",
    ) -> None:
        """`restored`: why the node signs nothing; empty if it signs."""
        self._restored, self._statement = restored, statement
        self.config, self._seq_pub, self.readiness, self._metrics = config, seq_pub, readiness, metrics
        self._was_public_used = False
        self._metrics_page: asyncio.Task[bytes] | None = None
        """The page that is being made; requests that arrive meanwhile share it."""

    async def info(self) -> tuple[int, str, bytes]:
        limits, evacuation = self.config.limits, self._statement.current
        info = {
            "seq_pub": self._seq_pub.hex(),
            "software": {"name": "enc", "version": __version__},
            "enc_v": VERSIONS,
            "url": self.config.public_url or None,
            "restored": self._restored or None,
            "evacuation": None if evacuation is None else wire_evacuation(evacuation),
            "create": self.config.admission.create,
            "imports": {
                "at_once": self.config.imports.at_once,
                "archive_bytes": self.config.imports.archive_bytes,
                "total_bytes": self.config.imports.total_bytes,
            },
            "registry": self.config.registry.enclave or None,
            "limits": {
                "content": limits.content,
                "manifest": limits.manifest,
                "body": limits.body,
                "commits_per_request": limits.commits_per_request,
                "type": limits.type,
                "tags": limits.tags,
                "tag_strings": limits.tag_strings,
                "tag_string": limits.tag_string,
                "page_bytes": limits.page_bytes,
                "subscriptions_per_connection": limits.subscriptions_per_connection,
            },
        }
        return 200, "application/json", encode(info)

    async def live(self) -> tuple[int, str, bytes]:
        """Report that the event loop runs: otherwise there is no answer."""
        return 200, "application/json", encode({"status": "ok"})

    async def health(self) -> tuple[int, str, bytes]:
        """Report whether a commit of ordinary size would succeed, and if not, each reason."""
        reasons = await self.readiness.reasons()
        if not reasons:
            return 200, "application/json", encode({"status": "ok"})
        status = "restored" if reasons[0].code == "restored" else "failing"
        failing = {"status": status, "reason": reasons[0].message, "reasons": reasons}
        return 503, "application/json", encode(failing)

    async def prometheus(self) -> tuple[int, str, bytes]:
        """Return the page; it is made on another thread, since it counts all push queues."""
        await self.readiness.reasons()  # for its gauges
        if self._metrics_page is None or self._metrics_page.done():
            self._metrics_page = asyncio.get_running_loop().create_task(asyncio.to_thread(self._metrics.text))
        text = await asyncio.shield(self._metrics_page)
        return 200, "text/plain; version=0.0.4; charset=utf-8", text

    async def public_prometheus(self) -> tuple[int, str, bytes]:
        """Return the page for the public listener, where version 0.2 has none."""
        if not self._was_public_used:
            self._was_public_used = True
            _log.warning("public_metrics_used", todo="read /metrics of the admin listener")
        return await self.prometheus()
