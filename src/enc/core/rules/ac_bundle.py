"""AC_Bundle: several access-control operations, applied all or none (docs/protocol.md, sections
14.7 and 21.11)."""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from enc.core.errors import ACBundleFailed, EncError, InvalidCommit
from enc.core.primitives.types import Commit
from enc.core.rules.content import content_object

MAX_OPERATIONS = 1000

T = TypeVar("T")


def judge_bundle(
    commit: Commit,
    types: frozenset[str],
    read: Callable[[str, dict[str, Any], str], T],
    operate: Callable[[T], None],
) -> Iterator[None]:
    """Parse every operation with `read`, given its type, fields and path; then judge each with
    `operate`, in order. Yields after each operation, so that callers with other work can pause.

    The form of all is checked before the rules of the first. `operate` writes into a draft, which
    is discarded after a failure. Raises ACBundleFailed with the index of the first operation that
    the rules reject.
    """
    operations = list[T]()
    for type_, fields, path in operations_of(commit, types):
        operations.append(read(type_, fields, path))
        yield
    for i, operation in enumerate(operations):
        try:
            operate(operation)
        except EncError as e:
            raise ACBundleFailed(f"operations[{i}]: {e.message}", failed_index=i, reason=e.code) from None
        yield


def operations_of(commit: Commit, types: frozenset[str]) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield each operation of an AC_Bundle: its type, its fields and its path. Their form is not
    checked yet."""
    found = content_object(commit).get("operations")
    if not isinstance(found, list) or not 1 <= len(found) <= MAX_OPERATIONS:
        raise InvalidCommit(f"operations: expected a list of 1 to {MAX_OPERATIONS}")
    for i, operation in enumerate(found):
        type_ = operation.get("type") if isinstance(operation, dict) else None
        if not isinstance(type_, str) or type_ not in types:
            raise InvalidCommit(f"operations[{i}]: expected one of {', '.join(sorted(types))}")
        yield type_, operation, f"operations[{i}]"
