"""A subscriber's WebSocket connection to a node that lies on request."""

import os
from collections import deque

from msgspec.json import decode, encode

from enc.core.errors import EncError
from enc.core.log.filter import Filter, parse_filter
from enc.core.primitives.sealing import NONCE_SIZE, seal_text
from enc.core.primitives.types import Event
from enc.core.session.envelope import open_request, parse_request
from enc.core.session.session import TransportKeys
from enc.node.read.steps import finish
from enc.node.store.events import search_item
from enc.testing.lying_node import MAX_PAGE, Json, LyingNode


class Socket:
    """A connection. `received`: messages from the client; `waiting`: messages not yet read."""

    def __init__(self, node: LyingNode) -> None:
        self.node, self.received, self.waiting = node, list[Json](), deque[Json]()
        self._live: dict[str, tuple[TransportKeys, Filter]] = {}
        node.sockets.append(self)

    def take(self, text: str) -> None:
        """Receive a message from the client."""
        message = decode(text)
        self.received.append(message)
        if message["type"] == "Close":
            del self._live[message["sub_id"]]
            return
        try:
            found = self._query(text.encode(), message["sub_id"])
        except EncError as e:
            found = [{**e.to_wire(), "sub_id": message["sub_id"]}]
        self.waiting += self.node.apply_lie("messages", found)

    def _query(self, body: bytes, sub_id: str) -> list[Json]:
        request = parse_request(body)
        opened = open_request(request, self.node.key, self.node.clock.now // 1000)
        self.node.asked, filter_ = opened.body, parse_filter(self.node.apply_lie("filter", opened.body["filter"]))
        access = self.node.answers.access(request.enclave, request.from_)
        access.check_reads()
        items, more = finish(self.node.answers.page(access, filter_, MAX_PAGE))
        self._live[sub_id] = (opened.keys, filter_)
        stored = [self._event(sub_id, opened.keys, item.json) for item in items]
        return [*stored, {"type": "EOSE", "sub_id": sub_id, **({"more": True} if more else {})}]

    def deliver(self, event: Event) -> None:
        for sub_id, (keys, filter_) in self._live.items():
            if filter_.matches(event):
                self.waiting.append(self._event(sub_id, keys, search_item(event).json))

    def end(self, reason: str) -> None:
        """End every subscription."""
        self.waiting += ({"type": "Closed", "sub_id": sub_id, "reason": reason} for sub_id in self._live)
        self._live.clear()

    def _event(self, sub_id: str, keys: TransportKeys, item: bytes) -> Json:
        text = encode(self.node.apply_lie("Event", decode(item)))
        return {"type": "Event", "sub_id": sub_id, "event": seal_text(keys.response, text, os.urandom(NONCE_SIZE))}

    def close(self) -> None:
        if self in self.node.sockets:
            self.node.sockets.remove(self)
