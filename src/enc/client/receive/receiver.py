"""A receiver of pushes to one identity at one URL: verifies events, delivers each once and in order.

    receiver = PushReceiver(identity, "https://me.example/push", {seq_pub: "https://node.example"}, "inbox.db", handle)
    app = receiver.app                      # for any ASGI server: `uvicorn module:app`

It accepts a push only if an expected node sealed it for this identity and this URL, and if each event
has its author's and that node's signature and fits what is known of its enclave. A push is on disk
before the node gets 200. A rejected push is answered with an error code and changes nothing. Before
a node pushes, it asks by a challenge whether this receiver is there; the receiver answers it.
"""

import logging
import re
import sqlite3
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Literal, Self
from urllib.parse import urlsplit

from msgspec import Struct

from enc.client.clients.wiring import open_pins
from enc.client.enclave.push_body import PushedBatch, check_batch, parse_batch
from enc.client.enclave.writes import Id, as_bytes
from enc.client.errors import Distrust
from enc.client.keys.identity import Identity
from enc.client.receive.app import MAX_BODY, ReceiverApp
from enc.client.receive.catch_up import CatchUp, Gap, OnDistrust, OnGap
from enc.client.receive.claims import Claim
from enc.client.receive.delivery_worker import Clock, DeliveryWorker, Handle, LogThrottle, OnNotice, error_text
from enc.client.receive.inbox import MAX_BYTES, MAX_EARLY, Accepts, Filing, PushInbox
from enc.client.receive.inbox_file import InboxFile
from enc.client.receive.move_finder import MoveFinder
from enc.client.registry.registry_client import Registry
from enc.client.verify.log_verifier import LogVerifier
from enc.client.verify.pins import Pins
from enc.client.wire.transport import base_url
from enc.core.errors import DecryptFailed, InternalError, MisuseError, PeerError, Unauthorized, Unavailable, WorldError
from enc.core.session.envelope import OpenedPush, challenge_answer, open_push
from enc.runtime.backoff import RetryPauses

__all__ = ["Gap", "PushReceiver", "ReceiverSettings"]

MAX_GROUP = 1000

_PLAIN = re.compile(r"[!\"$-\[\]-~]+")

logger = logging.getLogger("enc.client.receiver")


class _NotKnownYet(Unavailable):
    """The enclave may have moved to the node; the receiver checks that, and the node tries again."""


class ReceiverSettings(Struct, frozen=True, kw_only=True):
    """The rarely used settings of a receiver.

    `on_notice(notice)` is called for events of which this identity is only notified, `on_gap(gap)`
    for lost batches, `on_distrust(error)` for false statements of a node.

    `group`: most events that share one transaction. `filing(seq_pub, name, events)` is called with
    verified events before they are stored and before the node gets an answer; what it raises is
    answered instead. Repeated events come under the same name. `pins` and `timeout` as in a Client.
    `retries`: pauses before a failed handler or node is tried again. `max_body`: bytes of a push;
    `max_waiting`: bytes of events that wait for delivery; `max_early`: batches that wait for
    another.
    """

    on_notice: OnNotice | None = None
    on_gap: OnGap | None = None
    on_distrust: OnDistrust | None = None
    group: int = 1
    filing: Filing | None = None
    pins: Pins | Path | str | Literal["default"] | None = "default"
    timeout: float = 10.0
    retries: RetryPauses = RetryPauses()
    max_body: int = MAX_BODY
    max_waiting: int = MAX_BYTES
    max_early: int = MAX_EARLY
    clock: Clock = time.monotonic


class PushReceiver:
    """Receives pushes.

    `url`: as registered. `nodes`: who may push, by key; or URLs, asked for their keys. `state`: the
    file for received events and positions; `schema`: SQL for the handler's own tables in it.
    `handle(event, db)` is called with each event, once, in ascending order of seq in each enclave.
    `accepts(enclave)` selects the enclaves: anyone who creates an enclave on a node can register
    this identity and URL in it, and by default its events are delivered too. `enclave`: one on the
    node, or one on each, by which a receiver without events can ask for missed ones. `registry`:
    where to look when an enclave may have moved; nodes to which it names moves may push, too.
    `settings`: rarely used ones.
    """

    def __init__(
        self,
        identity: Identity,
        url: str,
        nodes: Mapping[Id, str] | Iterable[str],
        state: Path | str,
        handle: Handle,
        *,
        accepts: Accepts = lambda _: True,
        enclave: Id | Iterable[Id] = (),
        schema: str = "",
        registry: Registry | None = None,
        settings: ReceiverSettings = ReceiverSettings(),  # noqa: B008
    ) -> None:
        self.identity, self.url = _identity(identity), _checked(url)
        self.pins, self.timeout = open_pins(settings.pins), settings.timeout
        self.moves = MoveFinder(identity, self.pins, registry, settings.timeout)
        self.on_gap, self._on_distrust = settings.on_gap, settings.on_distrust
        self.enclaves, known = _enclaves(enclave), _nodes(nodes)
        if not callable(handle):
            raise MisuseError("handle: expected a function of an event and a database")
        if not 1 <= settings.group <= MAX_GROUP:
            raise MisuseError(f"group: expected 1 to {MAX_GROUP} events")
        self._throttle = LogThrottle(settings.clock)
        self._file = InboxFile(Path(state), identity.public, url, schema)
        self.inbox = PushInbox(
            self._file.db,
            wants_notices=settings.on_notice is not None,
            accepts=accepts,
            is_new_node=self._is_new_node,
            is_former_node=self._is_former_node,
            filing=settings.filing,
            max_bytes=settings.max_waiting,
            max_early=settings.max_early,
        )
        kept, retries, clock = self.inbox.keys(), settings.retries, settings.clock
        known = {node: kept.get(node) if key is None else key for node, key in known.items()}
        self.worker = DeliveryWorker(self.inbox, handle, settings.on_notice, settings.group, retries, clock)
        self._retries, self._clock = retries, clock
        self._catch_ups = {node: CatchUp(self, node, key, retries, clock) for node, key in known.items()}
        self._keys = {key: node for node, key in known.items() if key is not None}
        self._nodes_without_key = {node for node, key in known.items() if key is None}
        """Nodes whose key is not known yet."""
        self._is_started = self._is_closed = False
        self.app = ReceiverApp(self, urlsplit(url).path or "/", settings.max_body)

    # Start and stop

    def start(self) -> None:
        """Start delivering events and asking for missing ones. An ASGI server calls this by itself."""
        if self._is_closed:
            raise MisuseError("this receiver is closed: make a new one")
        if not self._is_started:
            self._is_started = True
            self.worker.start()
            for catch_up in self._catch_ups.values():
                catch_up.start()

    def close(self) -> None:
        """Stop after the handler's current call; waiting events stay in the state file."""
        if self._is_closed:
            return
        self._is_closed = True
        self.worker.close()
        for catch_up in self._catch_ups.values():
            catch_up.close()
        self.moves.close()
        self._file.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Pushes

    def take(self, body: bytes) -> dict[str, str]:
        """Process the body of a push or a challenge. Returns the JSON object to answer with status
        200, once a push is on disk; raises the error to answer instead.

        For non-ASGI servers; any thread may call it.
        """
        try:
            return self._take(body)
        except Distrust as e:
            self.report_distrust(e)
            raise
        except (PeerError, WorldError) as e:
            self._refuse(e)
            raise
        except Exception as e:  # also MisuseError, which is a fault of this program, not of the node
            logger.error("a push could not be processed: %s", error_text(e))
            raise InternalError("the push could not be processed") from None

    def _take(self, body: bytes) -> dict[str, str]:
        push = open_push(self.identity.key, body)
        node = self._keys.get(push.from_)
        if node is None:
            if self._nodes_without_key:
                raise Unavailable("from: not every node's key is known yet", retry_after_ms=1000)
            searches = [each.check_moves() for each in self._catch_ups.values()] if self.moves.has_registry else []
            if any(searches):
                raise _NotKnownYet(
                    "from: not a node that may push here; the receiver asks its registry", retry_after_ms=1000
                )
            raise Unauthorized("from: not a node that may push here")
        if push.url != self.url or push.body.get("url", self.url) != self.url:  # the one inside is sealed
            raise Unauthorized("url: not the URL of this receiver")
        if push.type == "Challenge":
            return challenge_answer(push)
        self._catch_ups[node].push_received(is_missing=self._file_push(push, body))
        return {"type": "Taken"}

    def _refuse(self, error: PeerError | WorldError) -> None:
        """Log a rejected push, so that its absence can be explained."""
        is_for_another = isinstance(error, DecryptFailed) and error.message.startswith("to: addressed")
        kind = error.message if is_for_another or isinstance(error, WorldError | Unauthorized) else error.code
        more = ""
        if is_for_another:
            more = f"; this receiver's is {self.identity.hex}"
        elif isinstance(error.__cause__, sqlite3.Error):
            more = f": {error.__cause__}"
        level = logging.ERROR if isinstance(error, WorldError) else logging.WARNING
        level = logging.INFO if isinstance(error, _NotKnownYet) else level
        self.log_throttled(level, kind, f"a push was rejected: {error_text(error)}{more}")

    def _is_new_node(self, enclave: bytes, seq_pub: bytes) -> bool:
        """Whether the enclave moved to this node, by a pushed Migrate or one seen by a client with
        these pins.
        """
        pin = self.pins.load(enclave)
        return pin is not None and bool(pin.moves) and pin.history.sequencer == seq_pub

    def _is_former_node(self, enclave: bytes, seq_pub: bytes) -> bool:
        """Whether the enclave left this node. Its events are still verified by their seq, like all."""
        pin = self.pins.load(enclave)
        return pin is not None and pin.history.departure(seq_pub) is not None

    def _file_push(self, push: OpenedPush, body: bytes) -> bool:
        """Verify and store a batch; return whether an earlier one is missing.

        Ignores repeated batches.
        """
        push_seq = push.body.get("push_seq")
        if isinstance(push_seq, int) and self.worker.submit(lambda: self.inbox.has(push.from_, push_seq)).result():
            return False
        own = LogVerifier(bytes(32), push.from_, self.pins)
        with own.blame_node("push", body):
            batch = parse_batch(push.body)
        self._check_nodes(batch, push.from_)
        batch = check_batch(batch, lambda enclave: LogVerifier(enclave, push.from_, self.pins), body)

        def file() -> bool:
            self.inbox.file(push.from_, batch)
            return self.inbox.position(push.from_, 0).until is not None

        return self.worker.submit(file).result()

    def _check_nodes(self, batch: PushedBatch, seq_pub: bytes) -> None:
        """Raise Unavailable if an enclave of the batch may have moved to this node, until that is
        known: the node tries again.
        """
        named = {*batch.events, *(notice.enclave for notice in batch.notices)}
        for enclave, known in ((each, self._other_sequencer(each, seq_pub)) for each in named):
            if known is not None:
                node = self._keys.get(known, self._keys[seq_pub])
                self._catch_ups[node].check_move(enclave, Claim(known, seq_pub))
                message = f"{enclave.hex()}: not known yet to have moved to this node; the receiver looks it up"
                raise _NotKnownYet(message, retry_after_ms=1000)

    def _other_sequencer(self, enclave: bytes, seq_pub: bytes) -> bytes | None:
        """Return the enclave's known sequencer; None if there is none, or if `seq_pub` is a known
        sequencer of the enclave, now or formerly.
        """
        pin = self.pins.load(enclave)
        known = pin.sequencer if pin else self.worker.submit(lambda: self.inbox.sequencer(enclave)).result()
        if known is None or known == seq_pub or (pin is not None and pin.history.knows(seq_pub)):
            return None
        return known

    # For the receiver's parts

    def log_throttled(self, level: int, kind: str, text: str) -> None:
        """Log a line, at most once per interval and kind, and not after `close`."""
        if not self._is_closed:
            self._throttle.log(level, kind, text)

    def key_found(self, node: str, seq_pub: bytes) -> None:
        """Store a node's key, once it is known."""
        self.worker.submit(lambda: self.inbox.keep_key(node, seq_pub)).result()
        self._keys = {**self._keys, seq_pub: node}
        self._nodes_without_key.discard(node)

    def node_found(self, url: str, seq_pub: bytes) -> None:
        """Accept pushes of a node to which an enclave has moved."""
        node = base_url(url)
        if self._is_closed or seq_pub in self._keys or node in self._catch_ups:
            return
        logger.info("%s may push too: an enclave has moved there", node)
        catch_up = CatchUp(self, node, seq_pub, self._retries, self._clock)
        self._catch_ups = {**self._catch_ups, node: catch_up}
        self._keys = {**self._keys, seq_pub: node}
        catch_up.start()

    def url_of(self, seq_pub: bytes) -> str | None:
        """Return the URL of a node that may push here."""
        return self._keys.get(seq_pub)

    def report_distrust(self, error: Distrust) -> None:
        logger.error("a node's statement cannot be true: %s", error_text(error))
        if self._on_distrust is not None:
            try:
                self._on_distrust(error)
            except Exception:  # a failing callback must not end this thread
                logger.exception("on_distrust failed")


def _identity(identity: object) -> Identity:
    if not isinstance(identity, Identity):
        raise MisuseError("identity: expected an Identity: Identity.load(path) or Identity.new()")
    return identity


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError as e:
        raise MisuseError(f"url: {e}") from None
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise MisuseError(f"url: expected the http:// or https:// URL that is registered, not {url!r}")
    if not _PLAIN.fullmatch(url):
        raise MisuseError(f"url: a node registers printable ASCII without backslashes and fragments, not {url!r}")
    return url


def _enclaves(enclave: Id | Iterable[Id]) -> tuple[bytes, ...]:
    named = [enclave] if isinstance(enclave, bytes | str) else enclave
    return tuple(as_bytes(each, "enclave") for each in named)


def _nodes(nodes: Mapping[Id, str] | Iterable[str]) -> dict[str, bytes | None]:
    """Return the keys by URL; None if the node must be asked for it."""
    if isinstance(nodes, str):
        raise MisuseError("nodes: expected {key: URL}, or a list of URLs")
    if isinstance(nodes, Mapping):
        found: dict[str, bytes | None] = {base_url(url): as_bytes(key, "nodes") for key, url in nodes.items()}
    else:
        found = {base_url(url): None for url in nodes}
    if not found:
        raise MisuseError("nodes: expected at least one node that may push")
    return found
