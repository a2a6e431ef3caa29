"""The generated pages are up to date and complete."""

import re
from importlib import import_module
from typing import Any

import pytest
from scripts import api_page
from scripts.pages import DOCS, PAGES
from typer.main import get_command

from enc.cli import app


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_up_to_date(name: str) -> None:
    assert (DOCS / name).read_text() == PAGES[name](), f"docs/{name} is stale: run `make docs`"


def test_every_command_has_its_heading() -> None:
    headings = re.findall(r"^### (enc .*)$", (DOCS / "commands.md").read_text(), re.MULTILINE)
    program: Any = get_command(app)
    found = {f"enc {name}" for name, each in program.commands.items() if not hasattr(each, "commands")}
    for name, each in program.commands.items():
        found |= {f"enc {name} {below}" for below in getattr(each, "commands", ())}
    assert sorted(headings) == sorted(found)


@pytest.mark.parametrize("name", ["enc.client", "enc.apps", "enc.apps.group", "enc.apps.dm", "enc.apps.personal"])
def test_every_public_name_is_told_of(name: str) -> None:
    part = (DOCS / "api.md").read_text().split(f"\n## {name}\n")[1].split("\n## ")[0]
    told = set(re.findall(r"^### (\w+)$", part, re.MULTILINE)) | set(re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE))
    assert told == set(import_module(name).__all__)


def test_a_page_names_no_place_in_memory() -> None:
    assert " at 0x" not in api_page.page()
