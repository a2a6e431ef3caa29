"""Which edits change the version of a view in Python, and which do not."""

import sys
from pathlib import Path
from typing import Any

import pytest

from enc.core.errors import MisuseError
from enc.dataview.views.catalog import all_views, load_views, view

HEAD = "from enc.dataview.views.catalog import view\n"
VIEW = """
@view(key="author")
def loud(timeline):
    return shout(timeline, LIMIT)
"""
HELPER = "LIMIT = 3\ndef shout(rows, limit):\n    return rows.limit(limit)\n"


def definition(folder: Path, **files: str) -> str:
    """Write files, named without `.py`, and return the definition of the folder's one view."""
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    (found,) = load_views(folder)
    return found.definition


def test_an_unchanged_view_keeps_its_version(tmp_path: Path) -> None:
    text = f"{HEAD}{HELPER}NAMES = {{'b', 'a', 'c'}}\n{VIEW.replace('LIMIT', 'len(NAMES)')}"
    assert definition(tmp_path, loud=text) == definition(tmp_path, loud=text)
    assert definition(tmp_path / "other", loud=text) == definition(tmp_path, loud=text), "wherever the folder is"


@pytest.mark.parametrize(
    ("old", "new"),
    [("limit(limit)", "limit(limit + 1)"), ("LIMIT = 3", "LIMIT = 4"), ("timeline, L", "timeline.distinct(), L")],
)
def test_an_edit_changes_the_version(tmp_path: Path, old: str, new: str) -> None:
    """Of the function, of a helper or of a constant."""
    text = f"{HEAD}{HELPER}{VIEW}"
    assert definition(tmp_path, loud=text) != definition(tmp_path, loud=text.replace(old, new))


@pytest.mark.parametrize(
    "import_", ["from _help import shout, LIMIT", "import _help\nshout, LIMIT = _help.shout, _help.LIMIT"]
)
def test_an_edit_of_a_module_changes_the_version(tmp_path: Path, import_: str) -> None:
    """Also if another module imports it, it is in a package, or the function itself imports it."""
    first = definition(tmp_path, loud=f"{HEAD}{import_}\n{VIEW}", _help=HELPER)
    second = definition(tmp_path, _help=HELPER.replace("limit(limit)", "limit(9)"))
    assert first != second
    inner = {"_help": "from _deep.er import LIMIT, shout\n", "_deep__er": HELPER}
    third = definition(tmp_path, **inner)
    assert third != second
    assert definition(tmp_path, _deep__er=HELPER.replace("3", "4")) != third


def test_an_import_within_the_function_counts(tmp_path: Path) -> None:
    text = f"{HEAD}@view(key='id')\ndef loud(timeline):\n    import _help\n    return _help.shout(timeline, 1)\n"
    assert definition(tmp_path, loud=text, _help=HELPER) != definition(tmp_path, _help=f"{HELPER}#")


def test_values_that_were_computed_count(tmp_path: Path) -> None:
    """What the file read from another file, directly, closed over, as a default or in a helper module."""
    (tmp_path / "words.txt").write_text("a b")
    read = f"WORDS = open({str(tmp_path / 'words.txt')!r}).read().split()\n"
    for number, text in enumerate(
        (
            f"{HEAD}{read}@view(key='id')\ndef loud(timeline):\n    return timeline.where(WORDS[0])\n",
            f"{HEAD}{read}def helper():\n    return WORDS\n@view(key='id')\ndef loud(timeline):\n    return helper()\n",
            f"{HEAD}{read}def make(words):\n    @view(key='id')\n    def loud(timeline):\n        return words\n"
            "    return loud\nloud = make({'x': tuple(WORDS)})\n",
            f"{HEAD}{read}from functools import cache\n@cache\ndef helper(words=WORDS):\n    return words\n"
            "@view(key='id')\ndef loud(timeline):\n    return [helper() for _ in 'a']\n",
            f"{HEAD}{read}from functools import partial\nhelper = partial(print, WORDS)\n"
            "@view(key='id')\ndef loud(timeline):\n    return helper()\n",
            f"{HEAD}import _read\n@view(key='id')\ndef loud(timeline):\n    return _read.WORDS\n",
        )
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        (tmp_path / "words.txt").write_text("a b")
        first = definition(folder, loud=text, **({"_read": read} if "_read" in text else {}))
        (tmp_path / "words.txt").write_text("a c")
        assert first != definition(folder), text


def test_a_declared_version_is_all_that_counts(tmp_path: Path) -> None:
    text = HEAD + HELPER + VIEW.replace('"author"', '"author", version=1')
    first = definition(tmp_path, loud=text)
    assert first == definition(tmp_path, loud=text.replace("limit(limit)", "limit(9)"))
    assert first != definition(tmp_path, loud=text.replace("version=1", "version=2"))


def test_a_function_without_a_file_has_a_version() -> None:
    """As in a notebook."""
    definitions: list[str] = []
    for limit in ("1", "2"):
        names: dict[str, Any] = {"view": view}
        exec(f"@view(key='id')\ndef loud(timeline):\n    return timeline.limit({limit})", names)  # noqa: S102
        definitions += [each.definition for each in all_views([names["loud"].__enc_view__]) if each.name == "loud"]
    assert definitions[0] != definitions[1]


def test_an_imported_view_is_one_view(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(f"{HEAD}{HELPER}{VIEW}")
    (tmp_path / "b.py").write_text(f"{HEAD}from a import shout, loud\n")
    assert [each.name for each in load_views(tmp_path)] == ["loud"]


def test_modules_of_one_folder_are_not_those_of_another(tmp_path: Path) -> None:
    before, path = set(sys.modules), list(sys.path)
    for name in ("one", "two"):
        definition(
            tmp_path / name, loud=f"{HEAD}from _help import shout, NAME\n{VIEW}", _help=f"{HELPER}NAME = {name!r}"
        )
        (found,) = load_views(tmp_path / name)
        assert found.function is not None
        assert found.function.__globals__["NAME"] == name  # type: ignore[attr-defined]
    assert (set(sys.modules), sys.path) == (before, path)
    assert not list(tmp_path.rglob("__pycache__"))


def test_a_module_that_does_not_run_is_named(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text("import _help")
    (tmp_path / "_help.py").write_text("x =")
    with pytest.raises(MisuseError, match=r"loud\.py: cannot be run: SyntaxError"):
        load_views(tmp_path)
