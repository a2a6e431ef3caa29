"""Views in Python files: how they are loaded, and the version of what their rows depend on.

The version of a view is that of the text of its file and of the modules beside it that the file
imports, and of the values that its functions use. So an edit of any of them builds the view again,
even an edit of white space. What comes from elsewhere, such as an installed package or a file that
is read while the view is built, is not seen: `@view(version=…)` declares a version instead.
"""

import ast
import inspect
import runpy
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import CodeType
from typing import Any

from enc.core.errors import MisuseError

RUN_NAME = "<view>"
"""Name of the module that a file of views runs as."""
_PLAIN = (str, bytes, int, float, complex, bool, type(None))


def run_file(file: Path) -> Mapping[str, Any]:
    """Run a Python file and return its names. It may import modules beside it."""
    try:
        with _modules_beside(file):
            return runpy.run_path(str(file), run_name=RUN_NAME)
    except MisuseError:
        raise
    except Exception as e:
        raise MisuseError(f"{file}: cannot be run: {type(e).__name__}: {e}") from e


@contextmanager
def _modules_beside(file: Path) -> Iterator[None]:
    """Allow imports of modules in the file's folder, which are read again each time.

    The folder comes last: no file in it hides an installed module. Its modules are forgotten at the
    end. So a later run sees edits, and Spark sends their functions to executors by value.
    """
    before, wrote, folder = set(sys.modules), sys.dont_write_bytecode, str(file.parent.resolve())
    sys.path.append(folder)
    sys.dont_write_bytecode = True  # a file that is edited twice in a second must not be read from a cache
    try:
        yield
    finally:
        sys.dont_write_bytecode = wrote
        sys.path.remove(folder)
        for name in set(sys.modules) - before:
            if _is_inside(getattr(sys.modules[name], "__file__", None), folder):
                del sys.modules[name]


def function_version(function: Callable[..., Any]) -> str:
    """Return a hash of all that a view's function is known to depend on."""
    code = inspect.unwrap(function).__code__
    file = Path(code.co_filename)
    text = _texts(file) if file.is_file() else [repr(_code(code))]
    seen, values = set[int](), list[str]()
    _collect(function, str(file.parent.resolve()), seen, values)
    return sha256(repr((text, values)).encode("utf-8", "surrogatepass")).hexdigest()


def _texts(file: Path) -> list[str]:
    """Return the texts of a file and of the modules beside it that it imports, directly or not."""
    found, rest = dict[Path, str](), [file]
    while rest:
        each = rest.pop()
        if each in found:
            continue
        found[each] = each.read_text("utf-8", "surrogateescape")
        for name in sorted(_imported(found[each])):
            module, package = file.parent / f"{name}.py", file.parent / name
            rest += [module] if module.is_file() else sorted(package.rglob("*.py"))
    return [found[each] for each in sorted(found)]


def _imported(text: str) -> set[str]:
    """Return the first parts of the names of modules that a text imports."""
    found = set[str]()
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):  # not the file itself, which has run; nothing can import this one
        return found
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


def _code(code: CodeType) -> tuple[Any, ...]:
    """Return what a function without a file does."""
    consts = [_code(each) if isinstance(each, CodeType) else repr(each) for each in code.co_consts]
    return code.co_code.hex(), consts, code.co_names, code.co_varnames


# Values: constants that were computed when the file ran, such as what it read from another file.


def _collect(value: Any, folder: str, seen: set[int], values: list[str]) -> None:
    """Collect the plain values that a value holds or, if it is a function of the folder, uses."""
    if isinstance(value, _PLAIN):
        values.append(repr(value))
    elif id(value) not in seen:
        seen.add(id(value))
        for each in _parts(value, folder):
            _collect(each, folder, seen, values)


def _parts(value: Any, folder: str) -> list[Any]:
    if isinstance(value, Mapping):
        return [each for pair in value.items() for each in pair]
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    if isinstance(value, list | tuple):
        return list(value)
    if isinstance(value, partial):
        return [value.func, value.args, value.keywords]
    if inspect.ismodule(value):
        named = sorted(vars(value).items()) if _is_inside(getattr(value, "__file__", None), folder) else []
        return [each for name, each in named if not name.startswith("__")]
    return _parts_of_callable(value, folder) if callable(value) and not inspect.isclass(value) else []


def _parts_of_callable(value: Any, folder: str) -> list[Any]:
    """Return what a function uses, if it is of the folder, and what it or a decorator wraps."""
    more = getattr(value, "__dict__", {})
    inner = [more[name] for name in ("__wrapped__", "func") if name in more]
    if not inspect.isfunction(value):
        return inner
    file = value.__code__.co_filename
    return [*inner, *_used(value)] if _is_inside(file, folder) or not Path(file).exists() else inner


def _used(function: Any) -> list[Any]:
    """Return the defaults of a function, and the values of outer names in it."""
    outer = {**function.__globals__, **_closed_over(function)}
    names = sorted(name for name in _names(function.__code__) & set(outer) if not name.startswith("__"))
    return [function.__defaults__, function.__kwdefaults__, *((name, outer[name]) for name in names)]


def _closed_over(function: Any) -> dict[str, Any]:
    found = dict[str, Any]()
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # not assigned
            found[name] = cell.cell_contents
    return found


def _names(code: CodeType) -> set[str]:
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return {*code.co_names, *code.co_freevars}.union(*map(_names, inner))


def _is_inside(file: str | None, folder: str) -> bool:
    return file is not None and Path(file).resolve().is_relative_to(folder)
