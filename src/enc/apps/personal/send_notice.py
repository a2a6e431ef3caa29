"""Writes a notice to a person's personal store: an action elsewhere that concerns them."""

import os
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from enc.apps.people.address_book import Place
from enc.apps.people.lookup import Person, place_of
from enc.apps.personal.ledger import MAX_NOTICE, NOTICE
from enc.apps.personal.sealing_keys import recipient_key, sender_key
from enc.client import Client
from enc.client.enclave.writes import as_hex
from enc.core.errors import InvalidCommit, MisuseError, PeerError
from enc.core.primitives.encoding import convert_json
from enc.core.primitives.sealing import NONCE_SIZE
from enc.core.primitives.types import Receipt
from enc.core.sealed_forms.personal import OpenedNotice, check_notice, seal_handoff, seal_notice

_IDS = ("enclave_id", "inviter", "manifest_hash", "move_ref")


class NoPersonalStore(MisuseError):
    """It is not known where the recipient's personal store is."""


def make_notice(kind: str, fields: dict[str, Any], inviter: bytes) -> OpenedNotice:
    """Build a notice; ids may be bytes or hex. Raise MisuseError if no recipient would accept
    it.
    """
    given = {"kind": kind, "inviter": inviter, **{name: value for name, value in fields.items() if value is not None}}
    unknown = given.keys() - (set(OpenedNotice.__struct_fields__) - {"handoff"})
    if unknown:
        raise MisuseError(f"notice: unknown fields: {', '.join(sorted(unknown))}")
    ids = {name: as_hex(given[name], name) for name in _IDS if name in given}
    try:
        return convert_json({**given, **ids}, OpenedNotice, InvalidCommit)
    except PeerError as e:
        raise MisuseError(e.message) from None


def notify(
    client: Client,
    to: Person,
    notice: OpenedNotice,
    *,
    secret: bytes | None = None,
    place: Place | None = None,
    random: Callable[[int], bytes] = os.urandom,
) -> Receipt:
    """Seal a notice to the recipient and write it. `secret`: 32 bytes to hand over, sealed
    separately.
    """
    where = place or place_of(to, "personal", client)
    if where is None:
        who = to.identity.hex()
        raise NoPersonalStore(f"the personal store of {who} is unknown: give its id, or use a registry")
    key, recipient = sender_key(client), recipient_key(client, to.identity)
    if secret is not None:
        notice = replace(notice, handoff=seal_handoff(key, recipient, secret, random(NONCE_SIZE)))
    try:
        check_notice(notice)
    except PeerError as e:
        raise MisuseError(e.message) from None
    content = seal_notice(key, recipient, notice, random(NONCE_SIZE))
    if len(content) > MAX_NOTICE:
        raise MisuseError(f"notice: {len(content)} characters when sealed; at most {MAX_NOTICE} are allowed")
    return client.enclave(where.enclave, at=where.node).commit(NOTICE, content)
