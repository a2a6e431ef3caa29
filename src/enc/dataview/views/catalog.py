"""Where views come from: `built_in/*.sql` of this package, and a user's folder.

The folder holds files of the same kind (view_file.py), and `.py` files with functions like this
one:

    from enc.dataview.views import view

    @view(key="author", tests=["not_null(author)"])
    def loud(timeline: DataFrame) -> DataFrame:
        "Posts in capitals."
        return timeline.where("content = upper(content)")

The parameters are named after the tables and views that the function reads.
"""

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from enc.core.errors import MisuseError
from enc.dataview.lake.lake import PUBLIC
from enc.dataview.views.python_views import RUN_NAME, function_version, run_file
from enc.dataview.views.typed_view import parse_typed_view
from enc.dataview.views.view_file import (
    MAX_FILE,
    View,
    check_view,
    parse_check,
    parse_refresh,
    parse_view,
    sort_by_dependency,
)

Function = TypeVar("Function", bound=Callable[..., Any])
_VIEW_ATTRIBUTE = "__enc_view__"
_BUILT_IN = Path(__file__).parent / "built_in"
_SILVER = ("tags",)
STATUS_VIEWS = ("pipeline",)
"""Views of the serving database that have no table (status.py). Their names are reserved."""


@cache
def built_in() -> tuple[View, ...]:
    """Return the views that every lake has."""
    files = sorted(_BUILT_IN.glob("*.sql"))
    return tuple(parse_view(_text(file), file.stem, "silver" if file.stem in _SILVER else "gold") for file in files)


def readable() -> tuple[str, ...]:
    """Return the names that a view may read: the pipeline's tables and the built-in views."""
    return tuple(dict.fromkeys((*PUBLIC, *(view.name for view in built_in()))))


def all_views(own: Sequence[View] = ()) -> list[View]:
    """Return the built-in views and the user's own, each after the views that it reads."""
    names = {view.name for view in built_in()}
    return sort_by_dependency(
        (*built_in(), *map(_with_basis, own)), (name for name in (*PUBLIC, *STATUS_VIEWS) if name not in names)
    )


def view(
    *,
    key: str | Sequence[str],
    name: str | None = None,
    description: str = "",
    refresh: str = "full",
    where: str = "",
    add: Sequence[str] = (),
    least: Sequence[str] = (),
    greatest: Sequence[str] = (),
    tests: Sequence[str] = (),
    version: str | int = "",
) -> Callable[[Function], Function]:
    """Make a function a view. Arguments have the form of a file's header.

    The view is built again when its file, a module beside it that the file imports, or a value that
    its functions use has changed; with a `version`, only when that has changed.
    """

    def mark(function: Function) -> Function:
        name_ = name or function.__name__
        made = View(
            name=name_,
            key=(key,) if isinstance(key, str) else tuple(key),
            description=description or inspect.getdoc(function) or "",
            refresh=parse_refresh(refresh, name_),
            where=where,
            add=tuple(add),
            least=tuple(least),
            greatest=tuple(greatest),
            reads=tuple(inspect.signature(function).parameters),
            tests=tuple(parse_check(test, name_) for test in tests),
            function=function,
            basis=f"version {version}" if version != "" else "",
        )
        check_view(made)
        setattr(function, _VIEW_ATTRIBUTE, made)
        return function

    return mark


def load_views(folder: Path | str) -> list[View]:
    """Load all views of a folder, each after the views that it reads.

    Python files are executed: they are the user's own.
    """
    path = Path(folder)
    if not path.is_dir():
        raise MisuseError(f"{path}: not a folder of views")
    found: list[View] = []
    for file in sorted(path.iterdir()):
        if file.suffix == ".sql":
            text = _text(file)
            found.append(parse_typed_view(text, file.stem, path) or parse_view(text, file.stem))
        elif file.suffix == ".py" and not file.name.startswith("_"):
            found += _from_python(file)
    return sort_by_dependency(found, (*readable(), *STATUS_VIEWS))


def _text(file: Path) -> str:
    try:
        if file.stat().st_size > MAX_FILE:
            raise MisuseError(f"{file}: larger than {MAX_FILE} bytes")
        return file.read_text("utf-8")
    except (OSError, UnicodeError) as e:
        raise MisuseError(f"{file}: cannot be read: {e}") from None


def _from_python(file: Path) -> list[View]:
    functions = [value for value in run_file(file).values() if inspect.isfunction(value)]
    marked = [getattr(each, _VIEW_ATTRIBUTE, None) for each in functions if each.__module__ == RUN_NAME]
    return [_with_basis(made) for made in marked if isinstance(made, View)]


def _with_basis(view: View) -> View:
    """Return a view whose definition covers its function."""
    if view.function is None or view.basis:
        return view
    return replace(view, basis=function_version(view.function))
