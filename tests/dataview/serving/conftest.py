"""Databases of both kinds, and a server over one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from enc.dataview.serving.database import ServingDatabase
from tests.dataview.serving.postgres import new_database, postgres


@pytest.fixture(scope="session")
def postgres_home() -> Iterator[str]:
    with postgres() as home:
        yield home


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the location of a new database."""
    if request.param == "sqlite":
        return str(tmp_path / "serving.db")
    return new_database(request.getfixturevalue("postgres_home"))


@pytest.fixture
def database(place: str) -> Iterator[ServingDatabase]:
    database = ServingDatabase(place)
    yield database
    database.close()
