"""Sends many commits, with few requests where the node takes several in one (docs/protocol.md, 7.4).

What such a request does not settle is sent as a single commit: that waits for a busy node, follows
the enclave to another one, or signs the commit in the enclave's version. The others then continue
in larger requests. Every commit may be sent twice: the node returns the first receipt again.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from enc.client.enclave.commit_builder import in_version, is_other_version, send
from enc.client.enclave.ownership_history import concerns_owners
from enc.client.errors import Distrust, LostRange, TooManyMoves
from enc.client.link.enclave_reader import EnclaveReader
from enc.client.link.enclave_session import first_receipt, verified_receipt
from enc.client.link.node_link import NodeLink
from enc.client.verify.decode_answers import read, results_decoder
from enc.client.verify.log_verifier import LogVerifier
from enc.client.wire.flow import Call, Flow, work
from enc.core.errors import (
    Duplicate,
    EncError,
    EnclaveMigrated,
    EnclaveNotFound,
    InvalidProof,
    MisuseError,
    RateLimited,
    WorldError,
    from_wire,
)
from enc.core.log.commit import wire_commit
from enc.core.primitives.types import Commit, Receipt

MAX_COMMITS, MAX_BYTES = 1024, 2 << 20
"""Most commits, and bytes of them, in one request, whatever the node accepts."""
NOT_NOW = (WorldError, RateLimited, EnclaveMigrated, EnclaveNotFound, LostRange, TooManyMoves)
"""Errors that any other commit to the same enclave would get, too."""

Result = Receipt | EncError


def send_many(reader_of: Callable[[bytes], EnclaveReader], commits: Sequence[Commit]) -> Flow[list[Result]]:
    """Return what `send` would return or raise for each commit, in their order.

    `reader_of` returns the reader of an enclave, always the same one. After an error that concerns
    all commits to an enclave (NOT_NOW), the later ones are not sent and get it, too. Raises Distrust
    and MisuseError.
    """
    return (yield from _Sending(reader_of, commits).run())


def checked_commits(commits: Iterable[Commit]) -> list[Commit]:
    """Return the commits; raise MisuseError if one of them is something else."""
    listed = list(commits)
    for number, each in enumerate(listed):
        check_is_commit(each, f"commits[{number}]")
    return listed


def check_is_commit(value: object, name: str) -> None:
    if not isinstance(value, Commit):
        raise MisuseError(f"{name}: expected a commit from `prepare`, not {type(value).__name__}")


class _Part(Struct):
    """A commit of a request, with what its answer is checked by."""

    commit: Commit
    line: bytes
    reader: EnclaveReader
    verifier: LogVerifier


class _Sending:
    def __init__(self, reader_of: Callable[[bytes], EnclaveReader], commits: Sequence[Commit]) -> None:
        self._reader_of, self._waiting = reader_of, deque(enumerate(commits))
        """The commits without a result, in order."""
        self._results: list[Any] = [None] * len(commits)
        self._unavailable = dict[bytes, EncError]()
        """Why an enclave takes no commits now."""
        self._most = MAX_COMMITS

    def run(self) -> Flow[list[Result]]:
        while self._waiting:
            commit = self._waiting[0][1]
            if commit.enclave in self._unavailable:
                self._settle_first(self._unavailable[commit.enclave])
                continue
            parts, node = yield from self._next_parts()
            if len(parts) < 2 or node is None or not (yield from self._send_parts(parts, node)):
                yield from self._send_first()
        return self._results

    def _settle_first(self, result: Result) -> None:
        number, _ = self._waiting.popleft()
        self._results[number] = result

    def _send_first(self) -> Flow[None]:
        """Send the first waiting commit as a single one."""
        commit = self._waiting[0][1]
        try:
            result: Result = yield from send(self._reader_of(commit.enclave), commit)
        except (Distrust, MisuseError):
            raise
        except EncError as e:
            if isinstance(e, NOT_NOW):
                self._unavailable[commit.enclave] = e
            result = e
        self._settle_first(result)

    def _next_parts(self) -> Flow[tuple[list[_Part], NodeLink | None]]:
        """Return the waiting commits that one request can take, from the first on, and its node."""
        parts, node, size, known = list[_Part](), None, 0, dict[bytes, LogVerifier]()
        for _, commit in self._waiting:
            if concerns_owners(commit) or commit.enclave in self._unavailable:
                break  # a change of owners may need a registration before it and after it
            reader = self._reader_of(commit.enclave)
            if commit.enclave not in known:
                verifier = yield from self._verifier(reader)
                if verifier is None or node not in (None, reader.session.node):
                    break
                known[commit.enclave], node = verifier, reader.session.node
            commit = in_version(reader, commit)
            line = msgspec.json.encode(wire_commit(commit))
            size += len(line) + 1
            limits = reader.session.node.limits
            if len(parts) >= min(limits.commits_per_request, self._most) or size > min(limits.body, MAX_BYTES):
                break
            parts.append(_Part(commit, line, reader, known[commit.enclave]))
        return parts, node

    def _verifier(self, reader: EnclaveReader) -> Flow[LogVerifier | None]:
        """Return the verifier for the current node; None if a single commit must find out more."""
        try:
            verifier = yield from reader.session.current_verifier()
            verifier.check_is_current()
        except (Distrust, MisuseError):
            raise
        except EncError:
            return None
        return verifier

    def _send_parts(self, parts: Sequence[_Part], node: NodeLink) -> Flow[bool]:
        """Send these commits in one request; return whether all have a result now."""
        try:
            answer = yield from node.without_retries().request(Call("/commits", b"\n".join(p.line for p in parts)))
        except EncError:
            self._most = max(2, len(parts) // 2)
            return False
        results = yield from work(lambda: _results(parts, answer))
        left = deque[tuple[int, Commit]]()
        for result in results:
            number, commit = self._waiting.popleft()
            if result is None:
                left.append((number, commit))
            else:
                self._results[number] = result
        self._waiting.extendleft(reversed(left))
        self._most = max(2, len(parts) - len(left)) if left else min(2 * self._most, MAX_COMMITS)
        return not left


def _results(parts: Sequence[_Part], answer: bytes) -> list[Result | None]:
    """Return the verified results; None for a commit that must be sent again."""
    first = parts[0].verifier
    with first.blame_node("results", answer):
        found = read(answer, results_decoder).results
        if len(found) != len(parts):
            raise InvalidProof(f"{len(found)} results of {len(parts)} commits")
    return [_result(part, each) for part, each in zip(parts, found, strict=True)]


def _result(part: _Part, wire: dict[str, Any]) -> Result | None:
    if wire.get("type") != "Error":
        return verified_receipt(part.verifier, part.commit, msgspec.json.encode(wire))
    error = from_wire(wire)
    if isinstance(error, NOT_NOW) or is_other_version(part.reader, part.commit, error):
        return None
    if isinstance(error, Duplicate):
        try:
            return verified_receipt(part.verifier, part.commit, first_receipt(error))
        except Duplicate:
            return error
    return error
