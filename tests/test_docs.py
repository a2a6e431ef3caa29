"""What the documents say is true of the program."""

import ast
import importlib
import re
from pathlib import Path
from typing import get_args

import pytest

from enc.core import errors
from enc.node.config import SECTIONS
from enc.node.metrics import Metrics
from enc.node.openapi import document
from enc.node.subscriptions import Reason

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PROTOCOL = (ROOT / "docs/protocol.md").read_text()
SPEC_MAP = (ROOT / "docs/spec-map.md").read_text()
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]

ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")] for line in SPEC_MAP.splitlines() if re.match(r"\| \d", line)
]


def test_the_readme_s_lines_run(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})  # noqa: S102
    assert re.fullmatch(r"[0-9a-f]{64} [0-9a-f]{64}\n", capsys.readouterr().out)


def test_the_readme_names_every_module_of_the_kernel() -> None:
    modules = {path.stem for path in (ROOT / "src/enc/core").glob("*.py")} - {"__init__"}
    assert modules <= set(re.findall(r"`(\w+)`", README))


def test_the_readme_names_every_module_of_the_node() -> None:
    modules = {path.stem for path in (ROOT / "src/enc/node").glob("*.py")} - {"__init__", "openapi_schemas"}
    assert modules <= set(re.findall(r"`(\w+)`", README))


def test_the_node_s_document_names_every_path_and_every_reason() -> None:
    text = (ROOT / "docs/node-api.md").read_text()
    for path in document()["paths"]:
        assert f"{path}`" in text or f"{path}?" in text, path
    for reason in get_args(Reason):
        assert f"| `{reason}` |" in text, reason


def test_the_operator_s_document_names_every_metric_and_section() -> None:
    text = (ROOT / "docs/operations.md").read_text()
    for metric in Metrics().registry.collect():
        assert metric.name.startswith("process_") or metric.name in text, metric.name
    for section in SECTIONS:
        assert section in text, section


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    text = document.read_text()
    anchors = {
        re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    }
    for target in re.findall(r"\]\(([^)]+)\)", text):
        if target.startswith("#"):
            assert target[1:] in anchors, target
        else:
            assert (document.parent / target).exists(), target


def test_the_protocol_lists_exactly_the_wire_codes_with_their_statuses() -> None:
    listed: dict[str, int] = {}
    for status, codes in re.findall(r"^\| (\d{3}) \| ([^|]+) \|", PROTOCOL, re.MULTILINE):
        listed.update(dict.fromkeys(re.findall(r"`([A-Z_]+)`", codes), int(status)))
    assert listed == {code: cls.status for code, cls in errors.WIRE_ERRORS.items()}


def test_the_protocol_lists_the_context_fields_of_each_code() -> None:
    for codes, fields in re.findall(r"^\| \d{3} \| ([^|]+) \| ([^|]*) \|", PROTOCOL, re.MULTILINE):
        for code in re.findall(r"`([A-Z_]+)`", codes):
            assert tuple(re.findall(r"`(\w+)`", fields)) == errors.WIRE_ERRORS[code].fields, code


def test_the_map_covers_every_section_of_the_protocol() -> None:
    sections = set(re.findall(r"^## (\d+)\. ", PROTOCOL, re.MULTILINE))
    sections |= set(re.findall(r"^### (\d+\.\d+) ", PROTOCOL, re.MULTILINE))
    with_parts = {section.split(".")[0] for section in sections if "." in section}
    assert {row[0].split()[0] for row in ROWS} == sections - with_parts


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_everything_that_the_map_names_exists(row: list[str]) -> None:
    _, code, tests = row
    names = re.findall(r"`([\w.]+)`", code)
    for name in names:
        module, *attributes = name.split(".")
        found = importlib.import_module(f"enc.core.{module}")
        for attribute in attributes:
            found = getattr(found, attribute)
    cases = re.findall(r"`(\w+)(?:::(\w+))?`", tests)
    for file, case in cases:
        path = ROOT / "tests/core" / f"{file}.py"
        tree = ast.parse(path.read_text())
        defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        assert not case or case in defined, f"{file}::{case}"
    assert bool(names) == bool(cases), "a rule that is implemented is tested"
