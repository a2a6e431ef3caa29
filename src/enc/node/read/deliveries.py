"""Answers to Deliveries: how pushes of an enclave's events are doing, for its owner and for their
recipients.

The owner sees every endpoint that is registered in the enclave, any other identity only its own. A
queue spans all enclaves of the node, and so do its figures: only its recipient sees them. Otherwise
anyone could create an enclave, register somebody's endpoint in it, and learn how busy that
recipient is elsewhere.
"""

import re
from typing import Any

from msgspec import UNSET
from msgspec.json import encode

from enc.core.errors import InvalidQuery
from enc.core.primitives.encoding import convert_json, unhex
from enc.core.session.envelope import OpenedBody
from enc.node.read.access import Access
from enc.node.read.request_bodies import DeliveriesBody
from enc.node.store.push_interface import QueueReport
from enc.node.store.store_interface import Store

MAX_ENDPOINTS = 1000
"""Most endpoints of one answer."""

FAILED = "failed"
_SAFE = re.compile(r"[A-Za-z ]{1,80}(?<! )( [0-9]{3})?")


def deliveries(store: Store, opened: OpenedBody, access: Access) -> bytes:
    """Return `{"endpoints": […], "more"?}` by identity and trait; `after` is the last of the
    previous page.
    """
    body = convert_json(opened.body, DeliveriesBody, InvalidQuery)
    after = (b"", "")
    if body.after is not UNSET:
        after = unhex(body.after.identity, 32, "after.identity", InvalidQuery), body.after.trait
    enclave, everybody = access.state.enclave, access.is_owner
    registered = store.endpoints(enclave)
    urls = {key: url for key, url in registered.items() if key > after and (everybody or key[0] == access.identity)}
    shown = sorted(urls)[:MAX_ENDPOINTS]
    whose = None if everybody else access.identity
    reports = store.queue_reports(enclave, whose, limit=max(len(registered), 1)) if shown else []
    queues = {(report.identity, report.url): report for report in reports}
    wire: dict[str, Any] = {
        "endpoints": [
            _wire(key, urls[key], queues.get((key[0], urls[key])), key[0] == access.identity) for key in shown
        ]
    }
    return encode(wire | ({"more": True} if len(urls) > len(shown) else {}))


def _wire(key: tuple[bytes, str], url: str, queue: QueueReport | None, is_own: bool) -> dict[str, Any]:
    """Return an endpoint and its state; there is no queue before the first event."""
    wire = {
        "identity": key[0].hex(),
        "trait": key[1],
        "url": url,
        "state": queue.state if queue else "unconfirmed",
        "has_dead": bool(queue and queue.dead),
        "last_error": public_error(queue.last_error) if queue else "",
        "last_error_at": queue.last_error_at if queue else None,
    }
    if is_own:
        wire["queue"] = {
            "push_seq": queue.push_seq if queue else 0,
            "waiting": queue.waiting if queue else 0,
            "oldest": queue.oldest if queue else None,
            "delivered": queue.delivered if queue else 0,
            "dead": queue.dead if queue else 0,
        }
    return wire


def public_error(error: str) -> str:
    """Return an error in plain words with a status, or `failed`: other text could reveal the node's
    network.
    """
    return error if not error or _SAFE.fullmatch(error) else FAILED
