"""The browser, once for all tests of this folder. While it runs, no other test may run an event loop in this thread,
because Playwright has one there.

    def test_something(visit: Visiting, server: str) -> None:
        with visit(server, scheme="dark") as tab:
            page = tab.go("#/proof")            # a Playwright page, ready
            assert tab.heading() == "Proof inspector"
            assert tab.axe() == []
            tab.shot("proof-dark")
            tab.check()                         # no error in the console, no request to another host
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.dataview.page.browsing import Visit, chromium, visiting

if TYPE_CHECKING:
    from playwright.sync_api import Browser

Visiting = Callable[..., AbstractContextManager[Visit]]


@pytest.fixture(scope="package")
def browser() -> Iterator["Browser"]:
    with chromium() as found:
        yield found


@pytest.fixture
def visit(browser: "Browser") -> Visiting:
    """Return `visit(url, scheme=…, size=…)`, which opens a new tab on the page of the server at `url`."""
    return partial(visiting, browser)


@pytest.fixture(params=["light", "dark"])
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)
