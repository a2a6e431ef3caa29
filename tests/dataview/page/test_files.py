"""The page's files, without a browser: all are served, with headers that forbid everything else."""

import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest

from enc.dataview.serving import page
from enc.dataview.serving.database import ServingDatabase
from tests.dataview.serving.asking import refused, serving

ROOT = Path(__file__).parents[3]
PATHS = sorted(path.relative_to(page.FOLDER).as_posix() for path in page.FOLDER.rglob("*") if path.is_file())
OWN = [path for path in PATHS if path.endswith(".js") and not path.startswith("vendor/")]
IMPORT = re.compile(
    r"""^(?:import|(?:import|export)\b[^;"'()=]*?\bfrom)\s*["']([^"'\n]+)["']\s*;|\bimport\(\s*["']([^"'\n]+)["']\s*\)""",
    re.MULTILINE,
)
SINKS = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\s*\(|new Function|createContextualFragment"
)


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Serve no public views: the page is served anyway."""
    place = str(tmp_path_factory.mktemp("page") / "serving.db")
    ServingDatabase(place).close()
    with serving(place, {}) as client:
        yield client


def check_headers(answer: httpx.Response) -> None:
    assert answer.headers["content-security-policy"].startswith("default-src 'self';")
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert "*" not in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"


def test_the_page_is_at_the_root(http: httpx.Client) -> None:
    answer = http.get("/")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.content == (page.FOLDER / "index.html").read_bytes()
    check_headers(answer)
    assert http.head("/").headers["etag"] == answer.headers["etag"]


@pytest.mark.parametrize("path", PATHS)
def test_every_file_is_served(http: httpx.Client, path: str) -> None:
    answer = http.get(f"/page/{path}")
    assert answer.content == (page.FOLDER / path).read_bytes()
    assert answer.headers["content-type"] == page.MEDIA.get(Path(path).suffix, page.PLAIN)
    check_headers(answer)
    again = http.get(f"/page/{path}", headers={"if-none-match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    "path",
    [
        "/page",
        "/page/",
        "/page/js",
        "/page/nothing.js",
        "/page/js/../style.css/",
        "/page/%2e%2e/serving/api.py",
        "/page/..%2fserving%2fapi.py",
        "/page//etc/passwd",
        "/page/js%00/main.js",
        "/index.html",
        "/favicon.ico",
    ],
)
def test_there_is_nothing_else(http: httpx.Client, path: str) -> None:
    refused(http.get(path), 404, "INVALID_QUERY")


def test_the_page_takes_no_parameters_and_nothing_is_written(http: httpx.Client) -> None:
    refused(http.get("/?token=x"), 400, "INVALID_QUERY")
    refused(http.post("/"), 405, "INVALID_QUERY")
    refused(http.put("/page/style.css", content=b""), 405, "INVALID_QUERY")


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found, self.inline = list[str](), list[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        for name in ("href", "src"):
            if name in given and not (given[name] or "").startswith("#"):
                self.found.append(given[name] or "")
        if tag == "script" and "src" not in given:
            self.inline.append(tag)
        self.inline += [name for name in given if name == "style" or name.startswith("on")]


def test_the_index_names_files_of_ours_alone_and_has_no_code_in_it() -> None:
    links = _Links()
    links.feed((page.FOLDER / "index.html").read_text())
    assert links.found
    assert {path.removeprefix("page/") for path in links.found} <= set(PATHS)
    assert links.inline == []


@pytest.mark.parametrize("path", [path for path in PATHS if path.endswith(".js")])
def test_modules_stand_on_files_of_ours_alone(path: str) -> None:
    """Relative names, so that no build step, no import map and no other host is needed."""
    code = re.sub(r"/\*.*?\*/|^\s*//.*$", "", (page.FOLDER / path).read_text(), flags=re.DOTALL | re.MULTILINE)
    for name in map("".join, IMPORT.findall(code)):
        assert name.startswith("."), name
        assert ((page.FOLDER / path).parent / name).resolve().is_relative_to(page.FOLDER.resolve())
        assert ((page.FOLDER / path).parent / name).is_file(), name


@pytest.mark.parametrize("path", OWN)
def test_what_a_log_says_is_never_taken_for_markup_or_code(path: str) -> None:
    assert SINKS.findall((page.FOLDER / path).read_text()) == []


def test_styles_load_nothing() -> None:
    for path in PATHS:
        if path.endswith(".css"):
            assert not re.search(r"@import|url\(", (page.FOLDER / path).read_text()), path


def test_all_of_it_is_in_the_package(tmp_path: Path) -> None:
    build = (
        "import sys; from hatchling.builders.wheel import WheelBuilder; "
        "print(*WheelBuilder(sys.argv[1]).build(directory=sys.argv[2], versions=['standard']))"
    )
    made = subprocess.run(
        [sys.executable, "-c", build, str(ROOT), str(tmp_path)], capture_output=True, text=True, check=True
    )
    names = set(zipfile.ZipFile(made.stdout.split()[-1]).namelist())
    assert {f"enc/dataview/page/{path}" for path in PATHS} <= names
