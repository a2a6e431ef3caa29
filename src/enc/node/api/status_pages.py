"""Pages about the node itself: /info, /health and /metrics."""

import asyncio

from msgspec.json import encode

from enc.core.errors import EncError
from enc.core.primitives.types import VERSIONS
from enc.node.config import NodeConfig
from enc.node.ops.metrics import Metrics
from enc.node.sequence.sequencer import Sequencer
from enc.version import __version__

PROBE_S = 5
"""Seconds that the sequencer has for a write, in a health check or a checkpoint."""


class StatusPages:
    """The pages about the node itself: /info, /health and /metrics."""

    def __init__(
        self, config: NodeConfig, seq_pub: bytes, sequencer: Sequencer, metrics: Metrics, restored: str = ""
    ) -> None:
        """`restored`: why the node signs nothing; empty if it signs."""
        self._restored = restored
        self._config, self._seq_pub, self._sequencer, self._metrics = config, seq_pub, sequencer, metrics
        self._probe: asyncio.Task[str | None] | None = None
        """The last health check."""
        self._probe_until = 0.0
        """Loop time until which its result is reused."""
        self._metrics_page: asyncio.Task[bytes] | None = None
        """The page that is being made; requests that arrive meanwhile share it."""

    async def info(self) -> tuple[int, str, bytes]:
        limits = self._config.limits
        info = {
            "seq_pub": self._seq_pub.hex(),
            "software": {"name": "enc", "version": __version__},
            "enc_v": VERSIONS,
            "url": self._config.public_url or None,
            "restored": self._restored or None,
            "create": self._config.admission.create,
            "imports": {
                "at_once": self._config.imports.at_once,
                "archive_bytes": self._config.imports.archive_bytes,
                "total_bytes": self._config.imports.total_bytes,
            },
            "registry": self._config.registry.enclave or None,
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

    async def health(self) -> tuple[int, str, bytes]:
        """Report whether a write reaches the disk through the sequencer; tries at most once a
        second. A node whose store is a copy reports that.
        """
        if self._restored:
            return 503, "application/json", encode({"status": "restored", "reason": self._restored})
        loop = asyncio.get_running_loop()
        if self._probe is None or (self._probe.done() and loop.time() >= self._probe_until):
            self._probe = loop.create_task(self._try_write())
            self._probe_until = loop.time() + 1
        reason = await asyncio.shield(self._probe)
        if reason is None:
            return 200, "application/json", encode({"status": "ok"})
        return 503, "application/json", encode({"status": "failing", "reason": reason})

    async def _try_write(self) -> str | None:
        """Write through the sequencer; return the reason if that fails, else None."""
        try:
            await asyncio.wait_for(asyncio.wrap_future(self._sequencer.call(self._sequencer.probe)), PROBE_S)
        except EncError as e:
            return e.message
        except TimeoutError:
            return "the sequencer did not answer in time"
        return None

    async def prometheus(self) -> tuple[int, str, bytes]:
        """Return the page; it is made on another thread, since it counts all push queues."""
        if self._metrics_page is None or self._metrics_page.done():
            self._metrics_page = asyncio.get_running_loop().create_task(asyncio.to_thread(self._metrics.text))
        text = await asyncio.shield(self._metrics_page)
        return 200, "text/plain; version=0.0.4; charset=utf-8", text
