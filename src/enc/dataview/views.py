"""Where views come from: `gold/*.sql` of this package, and a user's folder of the same kind of file (view_file.py)
and of `.py` files with functions like this one.

    from enc.dataview.views import view

    @view(key="author", tests=["not_null(author)"])
    def loud(timeline: DataFrame) -> DataFrame:
        "Posts that shout."
        return timeline.where("content = upper(content)")

Its parameters are named after the tables and views that it reads.
"""

import inspect
import runpy
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from enc.core.errors import MisuseError
from enc.dataview.lake import PUBLIC
from enc.dataview.view_file import MAX_FILE, View, check_view, in_order, parse_check, parse_refresh, parse_view

Function = TypeVar("Function", bound=Callable[..., Any])
_MARK = "__enc_view__"
_GOLD = Path(__file__).parent / "gold"
_SILVER = ("tags",)
TOLD = ("pipeline",)
"""Views of the serving database that no table stands behind (status.py): their names are taken too."""


@cache
def built_in() -> tuple[View, ...]:
    """The views that every lake has."""
    files = sorted(_GOLD.glob("*.sql"))
    return tuple(parse_view(_text(file), file.stem, "silver" if file.stem in _SILVER else "gold") for file in files)


def readable() -> tuple[str, ...]:
    """What a view may read, beside other views of the user's own: the pipeline's tables and the built-in views."""
    return tuple(dict.fromkeys((*PUBLIC, *(view.name for view in built_in()))))


def all_views(own: Sequence[View] = ()) -> list[View]:
    """The built-in views and the user's own, each after those that it reads."""
    names = {view.name for view in built_in()}
    return in_order((*built_in(), *own), (name for name in (*PUBLIC, *TOLD) if name not in names))


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
) -> Callable[[Function], Function]:
    """Make a view of a function; all but the key is said as in a file's header."""

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
        )
        check_view(made)
        setattr(function, _MARK, made)
        return function

    return mark


def load_views(folder: Path | str) -> list[View]:
    """All views of a folder, each after those that it reads. Python files are run: they are the user's own."""
    path = Path(folder)
    if not path.is_dir():
        raise MisuseError(f"{path}: no folder of views")
    found: list[View] = []
    for file in sorted(path.iterdir()):
        if file.suffix == ".sql":
            found.append(parse_view(_text(file), file.stem))
        elif file.suffix == ".py" and not file.name.startswith("_"):
            found += _from_python(file)
    return in_order(found, (*readable(), *TOLD))


def _text(file: Path) -> str:
    try:
        if file.stat().st_size > MAX_FILE:
            raise MisuseError(f"{file}: over {MAX_FILE} bytes")
        return file.read_text("utf-8")
    except (OSError, UnicodeError) as e:
        raise MisuseError(f"{file}: cannot be read: {e}") from None


def _from_python(file: Path) -> list[View]:
    try:
        names = runpy.run_path(str(file))
    except MisuseError:
        raise
    except Exception as e:
        raise MisuseError(f"{file}: cannot be run: {type(e).__name__}: {e}") from e
    marked = (getattr(value, _MARK, None) for value in names.values() if inspect.isfunction(value))
    return [made for made in marked if isinstance(made, View)]
