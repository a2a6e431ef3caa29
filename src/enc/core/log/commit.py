"""Commits: build, parse and check (docs/protocol.md, section 5)."""

import re
from collections.abc import Callable
from typing import Any

from msgspec import Struct, field
from msgspec.json import Decoder

from enc.core.errors import Expired, InvalidCommit, InvalidHash, MisuseError, PeerError
from enc.core.primitives import hashing
from enc.core.primitives.encoding import MAX_INT, decode_json, strict_json, unhex
from enc.core.primitives.signer import Signer
from enc.core.primitives.signing import Alg, check_signature
from enc.core.primitives.types import VERSIONS, Commit, CommitLimits, Tags

SKEW_MS = 60_000
"""Maximum difference between two honest clocks."""

MAX_EXP_WINDOW_MS = 3_600_000
"""How far in the future a commit may expire."""

DEFAULT_LIMITS = CommitLimits()
UNLIMITED = CommitLimits(content=1 << 62, type=1 << 62, tags=1 << 62, tag_strings=1 << 62, tag_string=1 << 62)
"""For events that another node finalised: limits are each node's own and not part of the log's
rules."""

_DECIMAL = re.compile(r"0|[1-9][0-9]{0,15}", re.ASCII)


class WireCommit(Struct, kw_only=True):
    """A commit as JSON spells it."""

    hash: str
    enclave: str
    from_: str = field(name="from")
    type: str
    content: str | None
    exp: int
    tags: tuple[tuple[str, ...], ...] = ()
    alg: Alg = "schnorr"
    sig: str


class WireProposal(WireCommit, kw_only=True):
    content: str


_decoder = Decoder(WireProposal)


def build_commit(
    key: Signer,
    enclave: bytes,
    type_: str,
    content: str,
    exp: int,
    tags: Tags = (),
    *,
    alg: Alg = "schnorr",
    enc_v: int = 2,
) -> Commit:
    """Return a signed commit. `exp` is in Unix milliseconds; it also makes two commits of equal
    content differ."""
    if len(enclave) != 32:
        raise MisuseError("an enclave's id must be 32 bytes")
    tags = tuple(tuple(tag) for tag in tags)
    digest = _hashed(lambda: hashing.content_hash(content))
    hash_ = _hashed(lambda: hashing.commit_hash(enc_v, enclave, key.public, type_, digest, exp, tags))
    commit = Commit(
        hash=hash_,
        enclave=enclave,
        from_=key.public,
        type=type_,
        content=content,
        content_hash=digest,
        exp=exp,
        tags=tags,
        alg=alg,
        sig=key.sign(alg, hash_),
    )
    check_shape(commit, UNLIMITED)
    return commit


def build_manifest(
    key: Signer, content: str, exp: int, tags: Tags = (), *, alg: Alg = "schnorr", enc_v: int = 2
) -> Commit:
    """Return the commit that creates an enclave. Its `enclave` is the new enclave's id."""
    enclave = _hashed(lambda: hashing.enclave_id(enc_v, key.public, hashing.content_hash(content), tags))
    return build_commit(key, enclave, "Manifest", content, exp, tags, alg=alg, enc_v=enc_v)


def _hashed(hash_: Callable[[], bytes]) -> bytes:
    """Return a hash of the caller's values; raise MisuseError for invalid Unicode or a number out
    of range."""
    try:
        return hash_()
    except (UnicodeEncodeError, OverflowError) as e:
        raise MisuseError(f"cannot hash this commit: {e}") from None


def parse_commit(data: bytes | str, limits: CommitLimits = DEFAULT_LIMITS) -> Commit:
    """Parse a commit from wire JSON without verifying it; raise InvalidCommit, naming the field, if
    malformed."""
    wire = decode_json(data, _decoder, InvalidCommit)
    commit = Commit(**fields_from_wire(wire, limits))
    check_shape(commit, limits)
    return commit


def fields_from_wire(wire: WireCommit, limits: CommitLimits = UNLIMITED) -> dict[str, Any]:
    """Return a Commit's fields from the wire's. If the content is absent, the caller sets
    `content_hash`."""
    content, digest = wire.content, b""
    if content is not None:
        raw = content.encode()
        if len(raw) > limits.content:
            raise InvalidCommit(f"content: over {limits.content} bytes")
        digest = hashing.sha256(raw)
    return {
        "hash": unhex(wire.hash, 32, "hash"),
        "enclave": unhex(wire.enclave, 32, "enclave"),
        "from_": unhex(wire.from_, 32, "from"),
        "type": wire.type,
        "content": content,
        "content_hash": digest,
        "exp": wire.exp,
        "tags": wire.tags,
        "alg": wire.alg,
        "sig": unhex(wire.sig, 64, "sig"),
    }


def check_shape(commit: Commit, limits: CommitLimits) -> None:
    """Check sizes, ranges and the form of tags, as must be done before anything is hashed."""
    if not commit.type:
        raise InvalidCommit("type: must not be empty")
    if len(commit.type.encode()) > limits.type:
        raise InvalidCommit(f"type: must be 1 to {limits.type} bytes")
    if not 0 <= commit.exp <= MAX_INT:
        raise InvalidCommit("exp: must be Unix milliseconds, 0 to 2^53 - 1")
    if commit.tags:
        _check_tags(commit, limits)


def _check_tags(commit: Commit, limits: CommitLimits) -> None:
    if len(commit.tags) > limits.tags:
        raise InvalidCommit(f"tags: over {limits.tags} tags")
    for i, tag in enumerate(commit.tags):
        if not 1 <= len(tag) <= limits.tag_strings:
            raise InvalidCommit(f"tags[{i}]: must have 1 to {limits.tag_strings} strings")
        if any(len(text.encode()) > limits.tag_string for text in tag):
            raise InvalidCommit(f"tags[{i}]: a string is over {limits.tag_string} bytes")
    auto_delete_at(commit)


def auto_delete_at(commit: Commit) -> int | None:
    """Return when the content is to be erased (Unix ms) by the `auto-delete` tag; None without the
    tag."""
    found = [tag for tag in commit.tags if tag[0] == "auto-delete"]
    if not found:
        return None
    if len(found) > 1:
        raise InvalidCommit("tags: more than one auto-delete")
    if len(found[0]) < 2 or not _DECIMAL.fullmatch(found[0][1]) or int(found[0][1]) > MAX_INT:
        raise InvalidCommit("tags: auto-delete takes a decimal timestamp in milliseconds")
    when = int(found[0][1])
    if when <= commit.exp:
        raise InvalidCommit("tags: auto-delete must be after exp")
    return when


def manifest_version(commit: Commit) -> int:
    """Return `enc_v` of a Manifest. It must be known before the hash can be checked."""
    content = strict_json(commit.content or "")
    enc_v = content.get("enc_v") if isinstance(content, dict) else None
    if type(enc_v) is not int or enc_v not in VERSIONS:
        raise InvalidCommit("enc_v: must be 1 or 2")
    return enc_v


def version_of(commit: Commit) -> int:
    """Return the version by which a commit was hashed. A Manifest states it; for others both hashes
    are tried, of which at most one can match."""
    if commit.type == "Manifest":
        return manifest_version(commit)
    try:
        check_hash(commit, 2)
    except InvalidHash as other:
        try:
            check_hash(commit, 1)
        except PeerError:
            raise other from None
        return 1
    return 2


def check_hash(commit: Commit, enc_v: int) -> None:
    """Check that the hash is that of the fields, and that a Manifest's `enclave` is the id of what
    it creates."""
    if enc_v == 1 and commit.alg != "schnorr":
        raise InvalidCommit("alg: version 1 supports schnorr only")
    digest = hashing.commit_hash(
        enc_v, commit.enclave, commit.from_, commit.type, commit.content_hash, commit.exp, commit.tags
    )
    if digest != commit.hash:
        raise InvalidHash("hash: not the hash of this commit's fields")
    if commit.type == "Manifest" and commit.enclave != hashing.enclave_id(
        enc_v, commit.from_, commit.content_hash, commit.tags
    ):
        raise InvalidCommit("enclave: not the id of the enclave that this Manifest creates")


def check_author(commit: Commit) -> None:
    """Check that `from` signed the hash, by the algorithm that `alg` names."""
    check_signature(commit.alg, commit.from_, commit.hash, commit.sig)


def check_commit(commit: Commit, enc_v: int) -> None:
    """Check what needs neither the enclave's state nor the time: the hash, then the signature."""
    check_hash(commit, enc_v)
    check_author(commit)


def check_expiry(commit: Commit, now: int) -> None:
    """Check that a node may still accept this commit at time `now`."""
    if commit.exp < now:
        raise Expired("exp has passed")
    if commit.exp - now > MAX_EXP_WINDOW_MS + SKEW_MS:
        raise InvalidCommit("exp: more than an hour ahead")


def wire_commit(commit: Commit) -> dict[str, Any]:
    """Return the commit as a JSON object."""
    wire: dict[str, Any] = {
        "hash": commit.hash.hex(),
        "enclave": commit.enclave.hex(),
        "from": commit.from_.hex(),
        "type": commit.type,
        "content": commit.content,
        "exp": commit.exp,
        "tags": commit.tags,
        "sig": commit.sig.hex(),
    }
    if commit.alg != "schnorr":
        wire["alg"] = commit.alg
    return wire
