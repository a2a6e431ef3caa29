"""The contact card: a link in which people say who they are and where to reach them, signed with their key.

docs/protocol.md, section 25.7, defines its bytes.
"""

import base64
import binascii
from collections.abc import Mapping
from contextlib import suppress

from msgspec import Struct, structs

from enc.apps.people.book_file import Place
from enc.apps.people.names import check_name
from enc.client import Client, Enclave, Identity
from enc.client.verify.pins import Pin, Pins
from enc.client.wire.transport import base_url
from enc.core.errors import InvalidCommit, InvalidEndpointUrl, InvalidSignature, MisuseError, PeerError
from enc.core.primitives.encoding import check_numbers, compact_json, convert_json, strict_json, unhex
from enc.core.primitives.hashing import content_hash, enclave_id, sha256
from enc.core.primitives.signing import check_public_key, check_schnorr
from enc.runtime.endpoints import parse_endpoint, resolve_checked

PREFIX, DOMAIN = "enc:card:", b"enc:card:"
VERSION = 1
MAX_LINK = 16_384
"""Characters of a link."""
MAX_AHEAD_MS = 600_000
"""How far the signer's clock may be ahead of the reader's."""
SIG = 64
STORE, MAILBOX = "personal", "dm"
"""Labels of the two enclaves, as in a registry."""


class InvalidCard(PeerError):
    """The link is not a contact card, or its signature or one of its fields is wrong."""

    code = "INVALID_CARD"


class CardEnclave(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An enclave that the signer of the card created. All fields but the URL are hex."""

    enclave: str
    manifest: str
    """Hash of the Manifest's content: with the signer's key it gives the enclave's id."""
    node: str
    sequencer: str

    @property
    def place(self) -> Place:
        return Place(bytes.fromhex(self.enclave), self.node)


class CardRegistry(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The registry in which the signer's enclaves are registered."""

    enclave: str
    node: str
    sequencer: str

    def __str__(self) -> str:
        """Return the text that `enc config set registry` takes."""
        return f"{self.node}#{self.enclave}:{self.sequencer}"


class _Payload(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    card: int
    key: str
    name: str
    at: int
    store: CardEnclave | None = None
    mailbox: CardEnclave | None = None
    registry: CardRegistry | None = None


class ContactCard(Struct, frozen=True, kw_only=True):
    """What a person says about themselves. Only `key` is proved: the name is their own choice."""

    key: bytes
    name: str
    at: int
    """When it was signed, in Unix milliseconds by the signer's clock."""
    enclaves: Mapping[str, CardEnclave] = {}
    """By label: `personal`, `dm`."""
    registry: CardRegistry | None = None

    @property
    def places(self) -> dict[str, Place]:
        return {label: each.place for label, each in self.enclaves.items()}


def card_enclave(enclave: Enclave) -> CardEnclave:
    """Return an enclave of one's own as a card names it. Sends requests."""
    digest = content_hash(enclave.manifest().content or "")
    return CardEnclave(
        enclave=enclave.hex, manifest=digest.hex(), node=enclave.url, sequencer=enclave.sequencer().hex()
    )


def card_registry(client: Client) -> CardRegistry | None:
    """Return the client's registry as a card names it; None without one. Sends a request."""
    if not client.has_registry:
        return None
    found = client.registry()
    return CardRegistry(enclave=found.hex, node=found.url, sequencer=found.sequencer().hex())


def sign_card(
    identity: Identity,
    name: str,
    now: int,
    enclaves: Mapping[str, CardEnclave],
    registry: CardRegistry | None = None,
) -> str:
    """Return the link of a new card. Raise MisuseError if no reader would accept it."""
    payload = _Payload(
        card=VERSION,
        key=identity.hex,
        name=name,
        at=now,
        store=enclaves.get(STORE),
        mailbox=enclaves.get(MAILBOX),
        registry=registry,
    )
    raw = compact_json(_plain(payload)).encode()
    link = PREFIX + _b64url(identity.sign("schnorr", sha256(DOMAIN + raw)) + raw)
    try:
        parse_card(link, now)
    except InvalidCard as e:
        raise MisuseError(e.message) from None
    return link


def _plain(payload: _Payload) -> dict[str, object]:
    found = {name: value for name, value in structs.asdict(payload).items() if value is not None}
    return {name: structs.asdict(value) if isinstance(value, Struct) else value for name, value in found.items()}


def parse_card(link: str, now: int) -> ContactCard:
    """Parse a link and check its signature, its form and its time; raise InvalidCard."""
    if not link.startswith(PREFIX):
        raise InvalidCard(f"link: expected {PREFIX}…, a contact card")
    if len(link) > MAX_LINK:
        raise InvalidCard(f"link: {len(link)} characters; at most {MAX_LINK} are allowed")
    raw = _unb64url(link[len(PREFIX) :])
    sig, text = raw[:SIG], raw[SIG:]
    try:
        payload = _payload(text)
        key = unhex(payload.key, 32, "key")
        check_public_key(key, "key")
        check_schnorr(key, sha256(DOMAIN + text), sig)
        return _checked(payload, key, now)
    except InvalidSignature:
        raise InvalidCard("signature: not by the key in the card: the link was altered or cut") from None
    except (InvalidCommit, InvalidEndpointUrl, MisuseError) as e:
        raise InvalidCard(f"card: {e.message}") from None


def _payload(text: bytes) -> _Payload:
    try:
        value = strict_json(text.decode())
    except UnicodeDecodeError:
        raise InvalidCommit("not UTF-8") from None
    payload = convert_json(value, _Payload, InvalidCommit)
    if payload.card != VERSION:
        raise InvalidCommit(f"card: version {payload.card} is unknown: update this program")
    if compact_json(_plain(payload)).encode() != text:
        raise InvalidCommit("not compact JSON with sorted keys")
    return payload


def _checked(payload: _Payload, key: bytes, now: int) -> ContactCard:
    check_numbers(InvalidCommit, at=payload.at)
    if payload.at > now + MAX_AHEAD_MS:
        raise InvalidCommit("at: signed in the future: compare the clocks of both machines")
    if check_name(payload.name) != payload.name:
        raise InvalidCommit("name: must not begin or end with white space")
    given = {STORE: payload.store, MAILBOX: payload.mailbox}
    enclaves = {label: each for label, each in given.items() if each is not None}
    for each in enclaves.values():
        _check_enclave(each, key)
    if payload.registry is not None:
        unhex(payload.registry.enclave, 32, "registry.enclave")
        _check_node(payload.registry)
    return ContactCard(key=key, name=payload.name, at=payload.at, enclaves=enclaves, registry=payload.registry)


def _check_enclave(each: CardEnclave, key: bytes) -> None:
    """Check that the signer created the enclave: nobody can sign a card for another's enclave."""
    manifest = unhex(each.manifest, 32, "manifest")
    if unhex(each.enclave, 32, "enclave") not in (enclave_id(v, key, manifest, ()) for v in (1, 2)):
        raise InvalidCommit("enclave: the card's key did not create it")
    _check_node(each)


def _check_node(each: CardEnclave | CardRegistry) -> None:
    check_public_key(unhex(each.sequencer, 32, "sequencer"), "sequencer")
    parse_endpoint(each.node, allow_private=True)
    if base_url(each.node) != each.node:
        raise InvalidCommit("node: expected http:// or https:// and a host, without a slash at the end")


def check_nodes(card: ContactCard, own: str) -> None:
    """Check that every node of a card has a public address, unless your `own` node has none either.

    Raise InvalidCard. A card must not make a client call the machines of its user's network.
    """
    nodes = [each.node for each in (*card.enclaves.values(), card.registry) if each is not None]
    private = next((node for node in nodes if not _is_public(node)), None)
    if private is not None and (not own or _is_public(own)):
        raise InvalidCard(f"node: {private} is not https with a public address, and your own node is")


def _is_public(url: str) -> bool:
    try:
        endpoint = parse_endpoint(url)
        with suppress(OSError, UnicodeError):  # a name without an address reaches nothing
            resolve_checked(endpoint, allow_private=False)
    except InvalidEndpointUrl:
        return False
    return True


def pin_card(card: ContactCard, pins: Pins) -> None:
    """Pin the sequencers in a card, so that no other node can answer for them at the first contact.

    A pin with a head stays: what the client itself saw counts for more.
    """
    for each in card.enclaves.values():
        enclave, known = each.place.enclave, pins.load(each.place.enclave)
        if known is None or (known.head is None and not known.moves):
            pins.remove(enclave)
            pins.store(enclave, Pin(bytes.fromhex(each.sequencer), None))


def _b64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _unb64url(text: str) -> bytes:
    """Decode base64url without padding; reject any other spelling of the same bytes."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if _b64url(raw) != text:
        raise InvalidCard("link: not base64url without padding: it was altered or cut")
    return raw
