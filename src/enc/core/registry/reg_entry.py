"""The entries of a registry: Reg_Node, Reg_Enclave and Reg_Identity (docs/protocol.md, section
23.2).

`parse_*` parses a content and checks its limits, `wire_*` builds one. A missing, mistyped or
overlong field raises InvalidCommit, which names it. Extra fields are kept and ignored. The rules of
the registry are checked elsewhere.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from msgspec import Struct

from enc.core.errors import EncError, InvalidCommit
from enc.core.log.event import WireEvent, event_from_wire, wire_event
from enc.core.primitives.encoding import MAX_INT, compact_size, convert_json, unhex
from enc.core.primitives.signing import check_public_key
from enc.core.primitives.types import Commit, Event
from enc.core.registry.migrate_chain import Link, parse_chain, parse_link, wire_link
from enc.core.registry.owner_proof import MAX_PASSAGE, OwnerProof, parse_owner_proof, wire_owner_proof
from enc.core.rules.content import content_object, parse_migrate

MAX_ENDPOINTS = MAX_PROTOCOLS = 10
MAX_URI = 2048
MAX_ENCLAVES = 256
MAX_LABEL = 64
"""Maximum characters of a label, of a protocol's name and of an app's."""
MAX_DESC = 1024
MAX_META = 4096
MAX_MANIFEST = 256 << 10
"""Maximum bytes of the Manifest's content."""
MAX_TEXT = 256
"""Characters of each field that a search looks through, from its start."""

_URI = re.compile(r"[a-z][a-z0-9+.-]*://[^\s\x00-\x1f\x7f]+", re.ASCII)


class Endpoint(Struct, frozen=True):
    uri: str
    priority: int


class NodeEntry(Struct, frozen=True):
    seq_pub: bytes
    endpoints: tuple[Endpoint, ...]
    """The preferred one first."""
    protocols: tuple[str, ...]
    enc_v: int


class IdentityEntry(Struct, frozen=True):
    id_pub: bytes
    enclaves: Mapping[str, bytes]
    sub_pub: bytes | None = None
    """Key to which others seal."""


class EnclaveEntry(Struct, frozen=True):
    manifest_event: Event
    owner_proof: OwnerProof | None = None
    links: tuple[Link, ...] = ()
    sequencer: bytes | None = None
    """Sequencer of the log, if neither a link nor the Manifest's event names it."""
    app: str = ""
    desc: str = ""
    meta: Mapping[str, Any] = {}

    @property
    def declared_sequencer(self) -> bytes:
        """The sequencer by the entry alone. In a registry that follows the rules, the record has
        the same."""
        if self.links:
            return parse_migrate(self.links[-1].event).new_sequencer
        return self.sequencer or self.manifest_event.sequencer

    @property
    def text(self) -> str:
        """Text that a search looks through: `desc`, and `name` and `description` of `meta`,
        case-folded."""
        found = (self.desc, self.meta.get("name"), self.meta.get("description"))
        return "\n".join(each[:MAX_TEXT].casefold() for each in found if isinstance(each, str) and each)


def _wrong(path: str, why: str) -> NoReturn:
    raise InvalidCommit(f"{path}: {why}")


def _key(content: dict[str, Any], field: str) -> bytes:
    key = unhex(content.get(field), 32, f"content.{field}")
    check_public_key(key, f"content.{field}")
    return key


def _list(content: dict[str, Any], field: str, least: int, most: int) -> list[Any]:
    found = content.get(field, [])
    if not isinstance(found, list) or not least <= len(found) <= most:
        _wrong(f"content.{field}", f"expected a list of {least} to {most}")
    return found


def _short(value: Any, path: str, most: int = MAX_LABEL, least: int = 1) -> str:
    if not isinstance(value, str) or not least <= len(value) <= most:
        _wrong(path, f"expected a string of {least} to {most} characters")
    return value


# Reg_Node


def parse_node(commit: Commit) -> NodeEntry:
    content = content_object(commit)
    endpoints = [_endpoint(each, i) for i, each in enumerate(_list(content, "endpoints", 1, MAX_ENDPOINTS))]
    protocols = _list(content, "protocols", 0, MAX_PROTOCOLS)
    enc_v = content.get("enc_v")
    if type(enc_v) is not int or enc_v < 1:
        _wrong("content.enc_v", "expected a version of the protocol")
    return NodeEntry(
        _key(content, "seq_pub"),
        tuple(sorted(endpoints, key=lambda endpoint: endpoint.priority)),
        tuple(_short(name, f"content.protocols[{i}]") for i, name in enumerate(protocols)),
        enc_v,
    )


def _endpoint(value: Any, i: int) -> Endpoint:
    path = f"content.endpoints[{i}]"
    if not isinstance(value, dict):
        _wrong(path, "expected an object")
    uri = value.get("uri")
    if not isinstance(uri, str) or len(uri) > MAX_URI or not _URI.fullmatch(uri):
        _wrong(f"{path}.uri", f"expected scheme://…, at most {MAX_URI} characters")
    priority = value.get("priority", i)
    if type(priority) is not int or not 0 <= priority <= MAX_INT:
        _wrong(f"{path}.priority", "expected a non-negative integer")
    return Endpoint(uri, priority)


def wire_node(seq_pub: bytes, uris: Sequence[str], *, protocols: Sequence[str] = (), enc_v: int = 2) -> dict[str, Any]:
    """Return the content of a Reg_Node; the first URI is the preferred one."""
    endpoints = [{"uri": uri, "priority": i + 1} for i, uri in enumerate(uris)]
    return {"seq_pub": seq_pub.hex(), "endpoints": endpoints, "protocols": list(protocols), "enc_v": enc_v}


# Reg_Identity


def parse_identity(commit: Commit) -> IdentityEntry:
    content = content_object(commit)
    enclaves = content.get("enclaves", {})
    if not isinstance(enclaves, dict) or len(enclaves) > MAX_ENCLAVES:
        _wrong("content.enclaves", f"expected an object of at most {MAX_ENCLAVES} entries")
    for label in enclaves:
        _short(label, "content.enclaves: a label")
    return IdentityEntry(
        _key(content, "id_pub"),
        {label: unhex(value, 32, f"content.enclaves.{label}") for label, value in enclaves.items()},
        _key(content, "sub_pub") if "sub_pub" in content else None,
    )


def wire_identity(id_pub: bytes, enclaves: Mapping[str, bytes], sub_pub: bytes | None = None) -> dict[str, Any]:
    """Return the content of a Reg_Identity."""
    wire: dict[str, Any] = {"id_pub": id_pub.hex(), "enclaves": {name: id_.hex() for name, id_ in enclaves.items()}}
    return wire if sub_pub is None else {**wire, "sub_pub": sub_pub.hex()}


# Reg_Enclave


def parse_enclave(commit: Commit) -> EnclaveEntry:
    content = content_object(commit)
    proof = content.get("owner_proof")
    entry = EnclaveEntry(
        _manifest_event(content.get("manifest_event")),
        None if proof is None else parse_owner_proof(proof, "owner_proof"),
        _links(content),
        _key(content, "sequencer") if "sequencer" in content else None,
        _short(content["app"], "content.app") if "app" in content else "",
        _short(content["desc"], "content.desc", MAX_DESC, 0) if "desc" in content else "",
        _meta(content.get("meta", {})),
    )
    proofs = [entry.owner_proof, *(link.owner_proof for link in entry.links)]
    if sum(len(each.passage) for each in proofs if each is not None) > MAX_PASSAGE:
        _wrong("passage", f"over {MAX_PASSAGE} events in all")
    return entry


def _manifest_event(value: Any) -> Event:
    try:
        event = event_from_wire(convert_json(value, WireEvent, InvalidCommit))
    except EncError as e:
        _wrong("manifest_event", e.message)
    if event.type != "Manifest" or event.content is None:
        _wrong("manifest_event", "expected a Manifest with its content")
    if len(event.content.encode()) > MAX_MANIFEST:
        _wrong("manifest_event.content", f"over {MAX_MANIFEST} bytes")
    return event


def _links(content: dict[str, Any]) -> tuple[Link, ...]:
    """Return the links in `migrate_events`, or the one in `migrate_event`, which the documents put
    inside the owner proof."""
    proof = content.get("owner_proof")
    places = [("", content)] + ([("owner_proof.", proof)] if isinstance(proof, dict) else [])
    names = ("migrate_events", "migrate_event")
    found = [(f"{prefix}{name}", place[name]) for prefix, place in places for name in names if name in place]
    if len(found) > 1:
        _wrong(found[1][0], f"conflicts with {found[0][0]}: expected one chain")
    for path, value in found:
        return parse_chain(value, path) if path.endswith("s") else (parse_link(value, path),)
    return ()


def _meta(meta: Any) -> Mapping[str, Any]:
    if not isinstance(meta, dict):
        _wrong("content.meta", "expected an object")
    if compact_size(meta) > MAX_META:
        _wrong("content.meta", f"over {MAX_META} bytes")
    return meta


def wire_enclave(
    manifest_event: Event,
    *,
    owner_proof: OwnerProof | None = None,
    links: Sequence[Link] = (),
    sequencer: bytes | None = None,
    app: str = "",
    desc: str = "",
    meta: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the content of a Reg_Enclave. `sequencer`, the present one, is needed after a move
    that an earlier entry proved, and may always be given."""
    optional = {
        "owner_proof": owner_proof and wire_owner_proof(owner_proof),
        "migrate_events": [wire_link(link) for link in links],
        "sequencer": sequencer and sequencer.hex(),
        "app": app,
        "desc": desc,
        "meta": dict(meta) if meta else None,
    }
    found = {name: value for name, value in optional.items() if value}
    return {"manifest_event": wire_event(manifest_event), **found}
