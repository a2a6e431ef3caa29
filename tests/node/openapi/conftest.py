"""Fixtures shared by the tests of this folder."""

from collections.abc import Iterator

import pytest
import requests

from tests.node.openapi.openapi_document import ENCLAVES, Scene
from tests.node.running import RunningNode


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    data, flags = tmp_path_factory.mktemp("openapi") / "node", ("--registry", ENCLAVES["registry"].hex())
    with RunningNode(data, *flags) as node, requests.Session() as http:
        yield Scene(node, http)
        assert "internal_error" not in node.log()
