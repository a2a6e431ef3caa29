"""Runs the shell lines of the auditor's guide as they are written, and checks the guides' SQL views."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from enc.dataview.views.typed_view import parse_typed_view
from enc.dataview.views.view_file import check_view, parse_view
from tests.documents import GUIDES, ROOT, blocks, text_of

GUIDE = "docs/guide-auditor.md"
INSTALLS = ("python3 -m venv ", "pip install ")
"""Lines that install the package: the tests have it already."""
PATIENCE_S = 120
"""How long the lines may take before they count as stuck."""


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the output of sections 1 to 3, block by block; each block continues in the folder of the previous one."""
    home = tmp_path_factory.mktemp("auditor")
    end = text_of(GUIDE).index("\n## 4. ")
    found = [block for block in blocks(GUIDE, "sh") if block.line < text_of(GUIDE).count("\n", 0, end)]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    python = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("ENC_", "XDG_"))}
    outs = []
    for block in found:
        lines = "".join(line for line in block.text.splitlines(keepends=True) if not line.startswith(INSTALLS))
        where = home / "audits" if (home / "audits").exists() else home
        done = subprocess.run(
            ["/bin/bash", "-c", lines],
            cwd=where,
            env={**plain, "HOME": str(home), "PATH": path, "PYTHONPATH": python, "NO_COLOR": "1"},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        outs.append(f"{done.stdout}exit code {done.returncode}\n{done.stderr}")
    return outs


def test_it_finds_what_was_planted(outputs: list[str]) -> None:
    made, audited, planted, _ = outputs
    findings = next(blocks(GUIDE, "text")).text
    assert "exit code 0" in made
    assert audited.startswith(findings)
    assert "exit code 1" in audited
    for line in findings.splitlines():
        kind, _, seq, *_ = line.split("\t")
        assert f'"kind": "{kind}"' in planted
        assert f'"seq": {seq},' in planted


def test_the_verdicts_are_those_that_it_tells(outputs: list[str]) -> None:
    _, verdicts, *_ = (block.text for block in blocks(GUIDE, "text"))
    first = [line for line in outputs[3].splitlines() if line.endswith((" sequencer.", " nobody."))]
    assert first == verdicts.splitlines()


@pytest.mark.parametrize("name", GUIDES)
def test_a_guide_starts_with_the_installation_of_the_package(name: str) -> None:
    project = tomllib.loads(text_of("pyproject.toml"))["project"]
    venv, install, *rest = next(blocks(name, "sh")).text.splitlines()
    assert venv == "python3 -m venv .venv && . .venv/bin/activate"
    package, _, extras = install.removeprefix("pip install ").strip("']").partition("[")
    assert package == project["name"]
    assert set(filter(None, extras.split(","))) <= set(project["optional-dependencies"])
    assert not any("make " in line or ".venv/bin/enc" in line for line in rest)


@pytest.mark.parametrize("name", ["docs/guide-data-engineer.md", "docs/dataview.md"])
def test_views_in_sql_are_such_as_the_pipeline_takes(name: str) -> None:
    found = [
        parse_typed_view(block.text, f"view_{n}", ROOT) or parse_view(block.text, f"view_{n}", "gold")
        for n, block in enumerate(blocks(name, "sql"))
    ]
    assert found
    for view in found:
        check_view(view)
