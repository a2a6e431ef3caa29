"""Builds and sends commits to an enclave whose version may not be known yet.

A CommitBuilder gives type, content and tags for a dialect. While the version is unknown, the commit
is sent in version 2 first. A node whose enclave has the other version rejects the hash and changes
nothing; then the commit is sent in that version. This needs no right to read and no choice by the
caller. The first receipt or event shows the version.
"""

from collections.abc import Callable

from enc.client.enclave.combined_reads import policy
from enc.client.link.enclave_reader import EnclaveReader
from enc.client.wire.flow import Flow
from enc.core.errors import EncError, EventNotFound, InvalidCommit, InvalidHash, MisuseError, Unauthorized
from enc.core.log.commit import version_of
from enc.core.primitives.types import VERSIONS, Commit, Receipt, Tags
from enc.core.rules.dialect import Dialect, RolesUnknownError
from enc.core.rules.dialects import dialect_of

CommitBuilder = Callable[[Dialect], tuple[str, str, Tags]]
"""Returns the type, the content and the tags of a commit in a dialect."""


def write(reader: EnclaveReader, build: CommitBuilder) -> Flow[Receipt]:
    """Write in the enclave's dialect. Raises, before anything is sent, if no version supports it."""
    verifier = yield from reader.session.current_verifier()
    if verifier.enc_v is not None:
        return (yield from reader.session.send((yield from _prepare(reader, build, verifier.dialect))))
    return (yield from _try(reader, build))


def send(reader: EnclaveReader, commit: Commit) -> Flow[Receipt]:
    """Send a commit from `prepare`; sign it again if it turns out to have the wrong version."""
    yield from reader.session.current_verifier()
    return (yield from deliver(reader, commit, reader.session.send))


def deliver(reader: EnclaveReader, commit: Commit, send: Callable[[Commit], Flow[Receipt]]) -> Flow[Receipt]:
    """Do what `send` does, by a function that sends one commit. A verifier must be known."""
    enc_v = reader.session.known_verifier().enc_v
    if enc_v is not None or not _is_mine(reader, commit):
        return (yield from send(in_version(reader, commit)))
    try:
        return (yield from send(commit))
    except (InvalidHash, InvalidCommit) as e:
        if not is_other_version(reader, commit, e):
            raise
        first = e
    try:
        return (yield from send(reader.session.resign(commit, _other(version_of(commit)))))
    except InvalidHash:
        raise first from None


def in_version(reader: EnclaveReader, commit: Commit) -> Commit:
    """Return the commit, signed again if it is known to have the wrong version."""
    verifier = reader.session.known_verifier()
    if verifier.enc_v is None or not _is_mine(reader, commit) or version_of(commit) == verifier.enc_v:
        return commit
    return reader.session.resign(commit, verifier.dialect)


def _is_mine(reader: EnclaveReader, commit: Commit) -> bool:
    return (commit.from_, commit.enclave) == (reader.identity.public, reader.enclave)


def _other(enc_v: int) -> Dialect:
    return dialect_of(next(each for each in VERSIONS if each != enc_v))


def is_other_version(reader: EnclaveReader, commit: Commit, error: EncError) -> bool:
    """Whether the refusal may mean another version: a wrong hash, or an `alg` that it lacks."""
    if not isinstance(error, InvalidHash | InvalidCommit) or not _is_mine(reader, commit):
        return False
    known = reader.session.known_verifier().enc_v  # a registrar may have learned it meanwhile
    if known is not None:
        return known != version_of(commit)
    return isinstance(error, InvalidHash) or commit.alg != "schnorr"


def _try(reader: EnclaveReader, build: CommitBuilder) -> Flow[Receipt]:
    """Try each version in turn; one may support what another does not.

    If none does, raises the error of the last one, which may have read the Manifest.
    """
    wrong, refused = list[EncError](), list[EncError]()
    for enc_v in sorted(VERSIONS, reverse=True):
        try:
            commit = yield from _prepare(reader, build, dialect_of(enc_v))
        except MisuseError as e:
            wrong.append(e)
            continue
        try:
            return (yield from reader.session.send(commit))
        except (InvalidHash, InvalidCommit) as e:
            if not is_other_version(reader, commit, e):
                raise
            refused.append(e)
    raise wrong[-1] if wrong else refused[0]


def _prepare(reader: EnclaveReader, build: CommitBuilder, dialect: Dialect) -> Flow[Commit]:
    """Return a signed commit; reads the Manifest if the meaning of a role's name depends on it."""
    try:
        parts = build(dialect)
    except RolesUnknownError:
        try:
            rules = yield from policy(reader)
        except (EventNotFound, Unauthorized) as e:
            message = "the Manifest defines the bits of roles, but you may not read it: give bitmasks, such as"
            raise MisuseError(f"{message} 0x100000000") from e
        dialect = rules.dialect
        parts = build(dialect)
    return reader.session.prepare(*parts, dialect)
