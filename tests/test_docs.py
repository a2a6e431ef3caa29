"""The documents agree with the program."""

import ast
import json
import re
from base64 import b64decode
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, get_args

import pytest
from msgspec import structs
from typer.main import get_command

from enc.apps import Mailbox, Personal
from enc.apps.dm import errors as dm_errors
from enc.bench.fault_kinds import KINDS
from enc.cli import app
from enc.cli.dm.slash_commands import MailboxCommands
from enc.cli.group.slash_commands import GroupCommands
from enc.client import Client, Enclave, Identity
from enc.client import errors as client_errors
from enc.client.enclave import templates
from enc.core import errors
from enc.core.primitives.derivation import hkdf
from enc.core.primitives.hashing import sha256
from enc.core.primitives.signing import PrivateKey
from enc.core.primitives.types import PREDEFINED_V1
from enc.core.rules.v1.manifest_parts import OPS, RESERVED
from enc.core.sealed_forms.group_state import node_key
from enc.dataview.serving.columns import Column, ViewSchema
from enc.dataview.serving.config import ServingConfig
from enc.dataview.serving.database import ServingDatabase
from enc.dataview.serving.rights import ViewRights
from enc.dataview.serving.server import ServingServer
from enc.node.api.subscriptions import Reason
from enc.node.config import SECTIONS
from enc.node.openapi.document import MEANINGS, document
from enc.node.openapi.schemas import MESSAGES
from enc.node.ops.metrics import Metrics
from enc.witness import api as witness_api
from enc.witness.config import WitnessConfig
from enc.witness.watcher import WatchState
from tests.documents import GUIDES, NAMES, prose
from tests.node.running import RunningNode
from tests.test_examples import HELPERS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PROTOCOL = (ROOT / "docs/protocol.md").read_text()
SPEC_MAP = (ROOT / "docs/spec-map.md").read_text()


def tables(text: str) -> dict[str, list[list[str]]]:
    """Return the rows of each heading's table, cell by cell, without the two header lines."""
    _, *parts = re.split(r"^#+ (.*)$", text, flags=re.MULTILINE)
    lines = ([line for line in part.splitlines() if line.startswith("|")][2:] for part in parts[1::2])
    rows = ([[cell.strip() for cell in line.strip("|").split("|")] for line in found] for found in lines)
    return dict(zip(parts[::2], rows, strict=True))


MAP = tables(SPEC_MAP)
PARTS = {
    "Paths": {f"{method.upper()} {path}" for path, methods in document()["paths"].items() for method in methods},
    "Messages": {"Commit", "Query", "Receipt", *(name.removeprefix("WebSocket.") for name in MESSAGES)},
    "Reasons": set(get_args(Reason)),
    "Codes": {error.code for error in MEANINGS},
    "Bounds": {
        f"{section}.{field.name}"
        for section in ("limits", "admission", "rates")
        for field in structs.fields(SECTIONS[section])
    },
}
"""The parts of the node, by the heading of the map that must have a row for each."""


WITH_LINES = ("README.md", "docs/client.md", "docs/concepts.md", "docs/apps.md", "docs/group.md", *GUIDES)
"""Documents whose Python blocks run as one program, in order."""
URL, SERVING = "http://127.0.0.1:7700", "http://127.0.0.1:7780"
"""The addresses of a node and of a server of views in the documents."""
TALKERS = ViewSchema("talkers", (Column("author", "string"), Column("said", "integer")), ("author",))
"""The view on that server."""
BLOCK = re.compile(r"```python\n(?P<code>.*?)```(?:\n\n```text\n(?P<says>.*?)```)?", re.DOTALL)
"""A Python block, and the block with its output."""


def printed(says: str) -> str:
    """Return the expected output as a pattern: "…" in a document stands for an id, a key or a time."""
    return re.escape(says).replace("…", "[0-9a-fTZ:.-]+")


@pytest.mark.parametrize("name", WITH_LINES)
def test_the_lines_of_a_document_run_and_print_what_it_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    text, names = (ROOT / name).read_text(), dict[str, Any]()
    with ExitStack() as stack:
        node = stack.enter_context(RunningNode(tmp_path / "node"))
        if SERVING in "".join(block["code"] for block in BLOCK.finditer(text)):
            text = text.replace(SERVING, stack.enter_context(serving_talkers(tmp_path / "serving.db")))
        for block in BLOCK.finditer(text):
            lines_above = "\n" * text.count("\n", 0, block.start("code"))
            code = lines_above + block["code"].replace(URL, node.url)
            exec(compile(code, name, "exec"), names)  # noqa: S102
            out = capsys.readouterr().out
            assert re.fullmatch(printed((block["says"] or "").replace(URL, node.url)), out), out
    if name not in WITHOUT:
        assert names, "there are no lines"


WITHOUT = ("docs/guide-operator.md",)
"""A guide that may have no Python; if it has some, it runs like that of the others."""


@contextmanager
def serving_talkers(path: Path) -> Iterator[str]:
    """Run a real server over a small database; yield its URL."""
    with closing(ServingDatabase(str(path))) as database:
        database.upsert(
            TALKERS, [{"author": each * 64, "said": said} for each, said in (("a", 5), ("b", 1), ("c", 3))], {}
        )
    server = ServingServer(
        ServingConfig(database=str(path), listen="127.0.0.1:0", views={"talkers": ViewRights(public=True)})
    )
    with server.running() as url:
        yield url


def test_the_readme_starts_the_node_that_its_lines_speak_to() -> None:
    assert f"enc node run --data ./enc-data --port {URL.rpartition(':')[2]}\n" in README
    assert URL in README


def test_the_map_of_documents_names_every_document_and_every_example() -> None:
    index = (ROOT / "docs/index.md").read_text()
    for path in (ROOT / "docs").glob("*.md"):
        assert path.name == "index.md" or f"({path.name})" in index, path.name
    for path in (ROOT / "examples").glob("*.py"):
        assert path.name in HELPERS or f"(../examples/{path.name})" in index, path.name


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 150


def test_the_command_line_s_document_names_every_fault_that_can_be_planted() -> None:
    rows = tables((ROOT / "docs/cli.md").read_text())["Logs to try things with"]
    assert [row[0].strip("`") for row in rows[-len(KINDS) :]] == list(KINDS)


def test_the_witness_s_document_names_every_path_setting_and_state() -> None:
    text = (ROOT / "docs/witness.md").read_text()
    paths = re.findall(r"^    (GET|POST) +(/\S*)", witness_api.__doc__ or "", re.MULTILINE)
    assert len(paths) == 7
    for method, path in paths:
        assert f"`{method} {path}`" in text, path
    for name in WitnessConfig.__struct_fields__:
        assert f"`{name}`" in text, name
    for state in get_args(WatchState):
        assert f"| `{state}` |" in text, state


def test_the_worked_co_signature_is_the_vector_s() -> None:
    example = json.loads((ROOT / "vectors/witness.json").read_text())["cosigned"][1]
    part = PROTOCOL.split("### 27.1 ")[1].split("### 27.2")[0]
    spelled = "".join(re.findall(r"\b[0-9a-f]{16,}\b", part))
    assert spelled == example["signed"] + example["wire"]["witness"] + example["wire"]["cosig"]


def test_the_worked_statement_about_a_withheld_content_is_the_vector_s() -> None:
    example = json.loads((ROOT / "vectors/withheld.json").read_text())["signed"][0]
    part = PROTOCOL.split("### 6.5 ")[1].split("## 7.")[0]
    spelled = "".join(re.findall(r"\b[0-9a-f]{16,}\b", part))
    assert spelled == example["signed"] + example["withheld"]["node"] + example["withheld"]["sig"]


@pytest.mark.parametrize("path", sorted((ROOT / "vectors").glob("*.json")), ids=lambda path: path.name)
def test_the_document_of_the_vectors_names_every_field(path: Path) -> None:
    _, *parts = re.split(r"^## (.*)$", (ROOT / "vectors/README.md").read_text(), flags=re.MULTILINE)
    (text,) = (text for heading, text in zip(parts[::2], parts[1::2], strict=True) if path.name in heading.split())
    if path.name == "log_v1.json":  # has the fields of log.json, too
        text += parts[parts.index("log.json and log_moved.json") + 1]
    found = json.loads(path.read_text())
    if path.name in ("keys.json", "group_manifest.json"):
        return  # names of people; fields of the protocol
    fields = set(found) if isinstance(found, dict) else {name for each in found for name in each}
    for name in fields:
        assert re.search(rf"[`.]{name}[`.]", text), name


def strings_in(value: Any) -> Iterator[str]:
    """Yield every string of decoded JSON, also of JSON in a string, and decoded base64 in hex."""
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from strings_in(each)
    elif isinstance(value, str):
        yield value
        if value.startswith("{"):
            yield from strings_in(json.loads(value))
        with suppress(ValueError):
            yield b64decode(value, validate=True).hex()


def derived_keys() -> Iterator[bytes]:
    """Yield the keys in the examples of sections 24 to 26 that no vector spells."""
    keys, dm, group = (json.loads((ROOT / f"vectors/{name}.json").read_text()) for name in ("keys", "dm", "group"))
    shared = PrivateKey(bytes.fromhex(keys["alice"]["priv"])).ecdh(bytes.fromhex(keys["bob"]["pub"]))
    chain = hkdf(bytes.fromhex(dm["epochs"][1]["secret"]), "enc:dm:ratchet:init")
    yield from (shared, chain, hkdf(chain, "enc:dm:ratchet:advance"))
    yield from (hkdf(shared, label) for label in ("enc:dm:epoch_dist", "enc:personal:notice:epoch"))
    epoch, people = group["epochs"][1], group["people"]
    eph, secret = (PrivateKey(bytes.fromhex(epoch["eph_priv"])), bytes.fromhex(epoch["fresh_secret"]))
    for name in ("p0", "p6"):
        shared = eph.ecdh(bytes.fromhex(people[name]["pub"]))
        yield from (shared, hkdf(shared, "enc:mls:wrap"))
    filled = bytes.fromhex(epoch["fills"][0])
    yield from (hkdf(filled, "enc:mls:node"), node_key(filled).secret)
    yield from (hkdf(secret, "enc:mls:node"), hkdf(secret, "enc:mls:path"), b"hello group")
    yield hkdf(bytes.fromhex(epoch["epoch_secret"]), f"enc:mls:sender:{people['p0']['pub']}")
    bob = bytes.fromhex(keys["bob"]["pub"])
    yield from (sha256(bob), dm["messages"][0]["text"].encode())


@pytest.mark.parametrize("section", ["23.8", "24.9", "25.6", "26.10"])
def test_the_values_of_a_worked_example_are_the_vectors(section: str) -> None:
    example = PROTOCOL.split(f"### {section} ")[1].split("\n## ")[0]
    known = [key.hex() for key in derived_keys()]
    for name in ("keys", "dm", "personal", "group", "registry"):
        known += strings_in(json.loads((ROOT / f"vectors/{name}.json").read_text()))
    values, text = re.findall(r"\b[0-9a-f]{20,}\b", example), " ".join(known)
    assert len(values) > 15
    assert [value for value in values if value not in text] == []


def test_the_apps_document_names_every_call_of_the_personal_store() -> None:
    text = (ROOT / "docs/apps.md").read_text()
    for name in (name for name in dir(Personal) if not name.startswith("_")):
        assert re.search(rf"[.`]{name}[`(]|\.{name}\b", text), name


def test_the_apps_document_names_every_call_of_the_mailbox_and_every_refusal() -> None:
    text = (ROOT / "docs/apps.md").read_text()
    for name in (name for name in dir(Mailbox) if not name.startswith("_")):
        assert re.search(rf"[.`]{name}[`(]|\.{name}\b", text), name
    for path in (ROOT / "docs/apps.md", ROOT / "docs/protocol.md"):
        codes = {each.code for each in vars(dm_errors).values() if getattr(each, "code", "").startswith("DM_")}
        assert codes <= set(re.findall(r"`(\w+)`", path.read_text()))


def test_the_command_line_s_document_names_every_command_and_what_is_typed_in_a_chat() -> None:
    text = (ROOT / "docs/cli.md").read_text()
    for name in commands(get_command(app)):
        assert re.search(rf"\benc {name}\b", text), name
    for word in MailboxCommands.commands:
        assert f"`/{word}" in text, word
    group = (ROOT / "docs/group.md").read_text()
    for word in GroupCommands.commands:
        assert f"`/{word}" in group, word


def commands(found: Any, *path: str) -> Iterator[str]:
    below = getattr(found, "commands", None)
    if below is None:
        yield " ".join(path)
    for name, each in (below or {}).items():
        yield from commands(each, *path, name)


def test_the_client_s_document_names_every_call_every_error_and_every_template() -> None:
    text = (ROOT / "docs/client.md").read_text()
    calls = {name for face in (Client, Enclave, Identity) for name in dir(face) if not name.startswith("_")}
    raised = {error.__name__ for error in vars(client_errors).values() if isinstance(error, type)}
    for name in calls | raised | set(templates.names()):
        assert re.search(rf"[.`]{name}[`(]|\.{name}\b", text), name


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


@cache
def anchors(path: Path) -> set[str]:
    """Return the anchors of a document: its headings, in the form that GitHub gives them."""
    found: dict[str, int] = {}
    names = set[str]()
    for heading in re.findall(r"^#+ (.*)$", prose(path.relative_to(ROOT).as_posix()), re.MULTILINE):
        name = re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-")
        names.add(f"{name}-{found[name]}" if name in found else name)
        found[name] = found.get(name, 0) + 1
    return names


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name: str) -> None:
    document = ROOT / name
    for target in re.findall(r"\]\(([^)]+)\)", prose(name)):
        path, _, anchor = target.partition("#")
        assert not path.startswith(("http:", "https:")), f"{target}: documents link only to each other"
        found = (document.parent / path).resolve() if path else document
        assert found.exists(), target
        assert not anchor or anchor in anchors(found), target


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
    assert {row[0].split()[0] for row in MAP["Where each rule lives"]} == sections - with_parts


@pytest.mark.parametrize("heading", PARTS)
def test_the_map_covers_every_part_of_the_node_and_no_other(heading: str) -> None:
    assert {row[0].split("`")[1] for row in MAP[heading]} == PARTS[heading]


@cache
def defined(file: str) -> set[str]:
    """Return the names of the functions and classes in a file of tests."""
    (path,) = (path for path in (ROOT / "tests").rglob("*.py") if path.with_suffix("").as_posix().endswith(f"/{file}"))
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)}


def test_the_map_covers_every_row_of_version_1() -> None:
    """It covers types, ops, reserved roles, the rules of the Manifest and the codes."""
    said = [row[0] for row in MAP["Version 1"]]
    words = [*PREDEFINED_V1, *RESERVED, *OPS, "0x00", "0x01", "event", "role", "ops", "target_roles"]
    words += ["OWNER_SELF_REVOKE_FORBIDDEN", "OWNER_BIT_PROTECTED", "BITMASK_MISMATCH", "AC_BUNDLE_FAILED"]
    words += ["INVALID_ENDPOINT_URL", "COMMIT_EXPIRED", "DUPLICATE_COMMIT", "UNAUTHORIZED", "ENCLAVE_PAUSED"]
    for word in words:
        assert any(f"`{word}`" in text for text in said), word
    for i in range(1, 9):
        assert any(text.startswith(f"Manifest: rule {i}: ") for text in said), i
    assert len(said) == len(set(said))
    assert all(row[1] and row[2] for row in MAP["Version 1"])


def test_the_worked_log_of_version_1_is_the_vector_s() -> None:
    example = json.loads((ROOT / "vectors/log_v1.json").read_text())
    _, part = PROTOCOL.split("### 21.15 ")
    lines = [line.strip("|").split("|") for line in re.findall(r"^\| \d.*$", part, re.MULTILINE)]
    told = [[cell.strip() for cell in (line[0], line[2], line[5], line[6], line[7])] for line in lines]
    start = example["events"][0]["timestamp"]
    assert told == [
        [
            str(after["seq"]),
            str(event["timestamp"] - start),
            after["state_hash"][:8],
            str(after["closed_bundles"]),
            after["checkpoint_root"][:8],
        ]
        for event, after in zip(example["events"], example["after_each_event"], strict=True)
    ]


def is_there(name: str) -> bool:
    """Return whether exactly one module, named by the end of its path, has this attribute."""
    first = name.split(".")[0]
    paths = ((ROOT / "src/enc").rglob(first), (ROOT / "src/enc").rglob(f"{first}.py"))
    return sum(is_importable(path, name) for path in {path.with_suffix("") for each in paths for path in each}) == 1


def is_importable(path: Path, name: str) -> bool:
    try:
        resolve_name(f"{'.'.join(path.parent.relative_to(ROOT / 'src').parts)}.{name}")
    except (ImportError, AttributeError):
        return False
    return True


@pytest.mark.parametrize("row", [row for rows in MAP.values() for row in rows], ids=lambda row: row[0])
def test_everything_that_the_map_names_exists(row: list[str]) -> None:
    names, cases = (re.findall(r"`([^`]+)`", cell) for cell in row[1:])
    for name in names:
        assert is_there(name), name
    for case in cases:
        file, _, test = case.partition("::")
        assert test in defined(file), case
    assert bool(names) == bool(cases), "a rule that is implemented needs a test"
    assert names or row in MAP["Where each rule lives"], "only the protocol's sections may be without code"
