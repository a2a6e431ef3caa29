"""Writing to an enclave whose version may not be known yet.

What is said becomes a commit by the enclave's dialect. Who has seen nothing of the enclave says it by version 2 first:
a node whose enclave is of the other version refuses its hash, and changes nothing; then it is said by that one. Neither
a right to read nor a choice of the caller's is needed for it. From the first receipt or event on, the version is known.
"""

from collections.abc import Callable

from enc.client.flow import Flow
from enc.client.link import EnclaveReader
from enc.client.reads import policy
from enc.core.commit import version_of
from enc.core.dialect import Dialect, RolesUnknownError
from enc.core.dialects import dialect_of
from enc.core.errors import EncError, EventNotFound, InvalidCommit, InvalidHash, MisuseError, PeerError, Unauthorized
from enc.core.types import VERSIONS, Commit, Receipt, Tags

CommitBuilder = Callable[[Dialect], tuple[str, str, Tags]]
"""The type, the content and the tags of what is said, in a dialect."""


def write(reader: EnclaveReader, saying: CommitBuilder) -> Flow[Receipt]:
    """Say it, in the dialect of the enclave. What no version has words for raises before anything is sent."""
    verifier = yield from reader.session.current_verifier()
    if verifier.enc_v is not None:
        return (yield from reader.session.send((yield from _prepare(reader, saying, verifier.dialect))))
    return (yield from _try(reader, saying))


def send(reader: EnclaveReader, commit: Commit) -> Flow[Receipt]:
    """Send a commit that `prepare` made, perhaps before the enclave's version was known: then it is signed anew."""
    verifier = yield from reader.session.current_verifier()
    is_mine = (commit.from_, commit.enclave) == (reader.identity.public, reader.enclave)
    if verifier.enc_v is not None:
        is_other = is_mine and version_of(commit) != verifier.enc_v
        return (yield from reader.session.send(reader.session.resign(commit, verifier.dialect) if is_other else commit))
    try:
        return (yield from reader.session.send(commit))
    except (InvalidHash, InvalidCommit) as e:
        if not is_mine or not _is_other(reader, commit, e):
            raise
        first = e
    try:
        return (yield from reader.session.send(reader.session.resign(commit, _other(version_of(commit)))))
    except InvalidHash:
        raise first from None


def _other(enc_v: int) -> Dialect:
    return dialect_of(next(each for each in VERSIONS if each != enc_v))


def _is_other(reader: EnclaveReader, commit: Commit, error: PeerError) -> bool:
    """Whether the refusal may mean that the enclave is of another version: by its hash, or by an `alg` it has not."""
    if reader.session.known_verifier().enc_v is not None:
        return False
    return isinstance(error, InvalidHash) or commit.alg != "schnorr"


def _try(reader: EnclaveReader, saying: CommitBuilder) -> Flow[Receipt]:
    """By each version in turn. What has no words in one may have some in another.

    Where none has, the last to be tried is the one that may have read the Manifest; its complaint is told.
    """
    wrong, refused = list[EncError](), list[EncError]()
    for enc_v in sorted(VERSIONS, reverse=True):
        try:
            commit = yield from _prepare(reader, saying, dialect_of(enc_v))
        except MisuseError as e:
            wrong.append(e)
            continue
        try:
            return (yield from reader.session.send(commit))
        except (InvalidHash, InvalidCommit) as e:
            if not _is_other(reader, commit, e):
                raise
            refused.append(e)
    raise wrong[-1] if wrong else refused[0]


def _prepare(reader: EnclaveReader, saying: CommitBuilder, dialect: Dialect) -> Flow[Commit]:
    """A signed commit; where it takes the Manifest to know what a role's name means, that is read."""
    try:
        said = saying(dialect)
    except RolesUnknownError:
        try:
            rules = yield from policy(reader)
        except (EventNotFound, Unauthorized) as e:
            message = "the bits of roles stand in the Manifest, which is not yours to read: give bitmasks, such as"
            raise MisuseError(f"{message} 0x100000000") from e
        dialect = rules.dialect
        said = saying(dialect)
    return reader.session.prepare(*said, dialect)
