"""The async table: reads events by an enclave's `query` and `subscribe`, and folds them into rows.

`scripts/blocking_client.py` generates the blocking table (`table.py`) from this file.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Self

from enc.client.enclave.table import Change, Row, TableState
from enc.client.enclave.validity import fetch_schemas
from enc.client.link.enclave_reader import EnclaveReader
from enc.client.subscribe.subscription import AsyncSubscription
from enc.client.verify.items import Item
from enc.client.wire.flow import Flow, work
from enc.core.errors import MisuseError

PAGE = 500
"""Most stored events that are folded, and saved, at once."""


class AsyncTable:
    """The events of some types as rows by id, with their Updates and Deletes applied.

    `refresh` folds what is stored, `changes` also what follows. Make one with
    `enclave.table(type=…)`, and close it.
    """

    def __init__(
        self,
        state: TableState,
        reader: EnclaveReader,
        query: Callable[..., AsyncIterator[Item]],
        subscribe: Callable[..., AsyncSubscription],
        run: Callable[[Flow[Any]], Awaitable[Any]],
    ) -> None:
        self._state, self._reader, self._query, self._subscribe, self._run = state, reader, query, subscribe, run
        self._live: AsyncSubscription | None = None

    @property
    def rows(self) -> Mapping[bytes, Row]:
        """The rows by id, in the order in which they were written; a view that shows later changes."""
        return self._state.rows

    @property
    def invalid(self) -> Mapping[bytes, Row]:
        """With `valid=True`: the rows that are left out, because their content violates its schema
        or cannot be read (`row.violations`). Save them with the others.
        """
        return self._state.invalid

    @property
    def seq(self) -> int:
        """The seq of the last folded event; -1 before the first."""
        return self._state.seq

    async def refresh(self) -> Mapping[bytes, Row]:
        """Fold all stored events after `seq`, and return the rows."""
        self._check_is_ready()
        async for _ in self._stored():
            pass
        return self.rows

    async def changes(self) -> AsyncIterator[Change]:
        """Yield each change after `seq`: of stored events, then live. Does not end by itself.

        Each is folded, and saved, before it is yielded. Raises what a subscription raises.
        """
        self._check_is_ready()
        async for stored in self._stored():
            for change in stored:
                yield change
        async with self._subscribe(type=self._state.all_types, after=self.seq) as live:
            self._live = live
            try:
                async for item in live:
                    for change in await self._take([item]):
                        yield change
            finally:
                self._live = None

    async def _stored(self) -> AsyncIterator[list[Change]]:
        if self._state.valid:
            self._state.schemas = await self._run(fetch_schemas(self._reader, self._state.types))
        page = list[Item]()
        async for item in self._query(type=self._state.all_types, seq={"start_at": self.seq + 1}):
            page.append(item)
            if len(page) == PAGE:
                yield await self._take(page)
                page = []
        yield await self._take(page)

    async def _take(self, items: list[Item]) -> list[Change]:
        found: list[Change] = await self._run(work(lambda: self._state.take(items)))
        return found

    def _check_is_ready(self) -> None:
        self._state.check_is_open()
        if self._live is not None:
            raise MisuseError("the table is live already: read its rows")

    async def close(self) -> None:
        """End `changes`, and close the file."""
        if self._live is not None:
            await self._live.close()
        self._state.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
