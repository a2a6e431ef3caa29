"""docs/api.md: the public names of the library, with their signatures and docstrings as they stand in its source.

The source is read, and not the objects: types are then shown by the names that the code gives them, on every version
of Python.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

TOP = """\
# The library's names

The public names of the library, with their signatures and what their docstrings say, written by `make docs` from the
source: do not edit it. How they are used, with lines that run, is told in [client.md](client.md), [apps.md](apps.md),
[group.md](group.md) and [dataview.md](dataview.md); what a module is for, in [architecture.md](architecture.md). What
is not named here may change without notice.

`Id` is an id or a public key, as 32 bytes or 64 hex digits. Times are Unix milliseconds. `R` is a `Receipt`. Everything
that is raised is an `EncError`: [errors](client.md#errors).

{contents}
"""
MODULES = {
    "enc.client": "What an app imports. `from enc import Client, Identity`, and some more, gives the same.",
    "enc.client.enclave.templates": "Ready-made manifests.",
    "enc.client.verify.pins": "Where a client keeps what it remembers.",
    "enc.client.enclave.backup": "The whole log in one file.",
    "enc.apps": "Applications that seal what they write.",
    "enc.apps.people": "Names for keys, where people's enclaves are, and lookup by name.",
    "enc.apps.personal": "The personal store.",
    "enc.apps.dm": "Direct messages.",
    "enc.apps.group": "Groups.",
    "enc.core.primitives.types": "The protocol's nouns.",
    "enc.core.primitives.signing": "Keys and signatures.",
    "enc.core.log.commit": "Commits: build, parse, check.",
    "enc.core.log.event": "Events: finalise, parse, check, erase.",
    "enc.core.log.receipt": "Receipts: build, parse, check.",
    "enc.core.trees.proof": "Proofs: whole chains, from an event or a state to a head.",
    "enc.core.machine.enclave": "The state machine: judge, apply, seal.",
    "enc.core.machine.replay": "A whole log, read from its first event on.",
    "enc.core.machine.archive": "A log in one file.",
    "enc.core.errors": "Everything that is raised. Refusals have the code of the wire.",
    "enc.dataview.lake.session": "Spark, with Delta Lake.",
    "enc.dataview.pipeline.job": "The pipeline.",
    "enc.dataview.rows.verify": "Raw rows become events.",
    "enc.dataview.views.catalog": "Views in Python.",
    "enc.dataview.serving.session_auth": "Asking the views' API as somebody.",
}
ONLY = {
    "enc.client.verify.pins": ("FilePins", "MemoryPins", "Pin"),
    "enc.client.enclave.backup": ("summarise",),
    "enc.dataview.lake.session": ("spark_session",),
    "enc.dataview.pipeline.job": ("Job", "JobSettings"),
    "enc.dataview.rows.verify": ("verified",),
    "enc.dataview.views.catalog": ("view",),
}
"""Of these modules, what users need."""
TWINS = {"AsyncClient": "Client", "AsyncEnclave": "Enclave"}
"""The same calls, awaited: told once."""
TWIN = "The same calls as [`{name}`](#{anchor}): what returns is awaited, what iterates is iterated with `async for`."
WIDTH = 110

Function = ast.FunctionDef | ast.AsyncFunctionDef


def page() -> str:
    contents = "\n".join(f"- [`{name}`](#{name.replace('.', '')}): {words}" for name, words in MODULES.items())
    text = "\n".join([TOP.format(contents=contents), *map(_module, MODULES)])
    return re.sub(r"\n{3,}", "\n\n", text).rstrip() + "\n"


def names_of(module: ModuleType) -> list[str]:
    """What a module gives: what it says itself, or what it defines."""
    told = ONLY.get(module.__name__) or getattr(module, "__all__", None)
    if told is None:
        made = (name for name, each in vars(module).items() if getattr(each, "__module__", None) == module.__name__)
        told = [name for name in made if not name.startswith("_")]
    return sorted(told, key=str.lower)


def _module(name: str) -> str:
    module = import_module(name)
    found = [(each, getattr(module, each)) for each in names_of(module)]
    parts = [_entry(each, value) for each, value in found if not _is_error(value)]
    errors = [_error(each, value) for each, value in found if _is_error(value)]
    if errors:
        parts.append("\n".join(["| error | code | is a | |", "|---|---|---|---|", *errors]) + "\n")
    return "\n".join([f"## {name}", "", MODULES[name], "", *parts])


def _is_error(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, Exception)


def _error(name: str, value: type) -> str:
    code = getattr(value, "code", "")
    shown = f"`{code}`" if isinstance(code, str) and code else ""
    bases = ", ".join(f"`{base.__name__}`" for base in value.__bases__)
    return f"| `{name}` | {shown} | {bases} | {_first(_source(value))} |"


def _entry(name: str, value: Any) -> str:
    node = _source(value)
    if isinstance(node, ast.ClassDef):
        return "\n".join([f"### {name}", "", *_class(name, value, node), ""])
    if isinstance(node, Function):
        return "\n".join([f"### {name}", "", *_block(name + _signature(node)), _doc(node), ""])
    return f"### {name}\n\nA constant of type `{type(value).__name__}`.\n"


# The source


@cache
def _nodes(module: str) -> dict[str, ast.stmt]:
    """The classes and functions of a module, by name."""
    tree = ast.parse(inspect.getsource(import_module(module)))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef | Function)}


def _source(value: Any) -> ast.stmt | None:
    module, name = getattr(value, "__module__", "") or "", getattr(value, "__name__", "")
    return _nodes(module).get(name) if module.startswith("enc.") else None


def _doc(node: ast.stmt | None) -> str:
    text = ast.get_docstring(node) if isinstance(node, ast.ClassDef | Function) else None
    return (text or "").replace("<", "&lt;")


def _first(node: ast.stmt | None) -> str:
    return " ".join(_doc(node).split("\n\n")[0].split()).replace("|", "\\|")


# Classes


def _class(name: str, value: type, node: ast.ClassDef) -> Iterator[str]:
    fields = _all_fields(value)
    yield from _constructor(name, value, fields)
    yield _doc(node)
    members = _members(value)
    if name in TWINS:
        same = _members(getattr(import_module("enc.client"), TWINS[name]))
        members = {each: member for each, member in members.items() if each not in same}
        yield f"\n{TWIN.format(name=TWINS[name], anchor=TWINS[name].lower())}"
    told = [f"- `{shown}`: {words}" for shown, words in fields if words] + list(map(_member, members.values()))
    if told:
        yield "\n".join(["", *told])


def _lines(value: type) -> list[ast.ClassDef]:
    """The class and ours that it stands on, as they are written."""
    return [node for base in value.__mro__ if isinstance(node := _source(base), ast.ClassDef)]


def _constructor(name: str, value: type, fields: list[tuple[str, str]]) -> list[str]:
    for line in _lines(value):
        for each in line.body:
            if isinstance(each, Function) and each.name == "__init__":
                return _block(name + _signature(each, result=False))
    return _block(f"{name}({', '.join(shown for shown, _ in fields)})") if fields else []


def _all_fields(value: type) -> list[tuple[str, str]]:
    """Of a Struct, in the order in which they are given."""
    if not hasattr(value, "__struct_fields__"):
        return []
    return [field for line in reversed(_lines(value)) for field in _fields(line)]


def _fields(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Of a Struct: each field as it is given, and what the string below it says."""
    for at, each in enumerate(node.body):
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and not each.target.id.startswith("_"):
            if ast.unparse(each.annotation).startswith("ClassVar"):
                continue
            default = f" = {ast.unparse(each.value)}" if each.value is not None else ""
            below = node.body[at + 1] if at + 1 < len(node.body) else None
            yield f"{each.target.id}: {ast.unparse(each.annotation)}{default}", _string(below)


def _string(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return " ".join(node.value.value.split()).replace("<", "&lt;")
    return ""


def _members(value: type) -> dict[str, Function]:
    """What a class and ours that it stands on define, in the order of the code; an override in its own place."""
    found: dict[str, Function] = {}
    for node in _lines(value):
        for each in node.body:
            if isinstance(each, Function) and not each.name.startswith("_"):
                found.setdefault(each.name, each)
    return found


def _member(node: Function) -> str:
    marks = {ast.unparse(each).split("(")[0] for each in node.decorator_list}
    shown = f"{node.name}{_signature(node)}"
    if marks & {"property", "cached_property"}:
        shown = node.name + (f" -> {_text(node.returns)}" if node.returns else "")
    words = _first(node)
    return f"- `{'await ' if isinstance(node, ast.AsyncFunctionDef) else ''}{shown}`{f': {words}' if words else ''}"


# Signatures


def _signature(node: Function, *, result: bool = True) -> str:
    """Without self; as the code has it."""
    given = [each for each in _parameters(node.args) if each not in ("self", "cls")]
    returns = f" -> {_text(node.returns)}" if result and node.returns is not None else ""
    return f"({', '.join(given)}){returns}"


def _parameters(args: ast.arguments) -> Iterator[str]:
    plain = [*args.posonlyargs, *args.args]
    defaults = [None] * (len(plain) - len(args.defaults)) + list(args.defaults)
    for at, (each, default) in enumerate(zip(plain, defaults, strict=True)):
        yield _parameter(each, default)
        if at + 1 == len(args.posonlyargs):
            yield "/"
    if args.vararg is not None:
        yield f"*{_parameter(args.vararg)}"
    elif args.kwonlyargs:
        yield "*"
    for each, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        yield _parameter(each, default)
    if args.kwarg is not None:
        yield f"**{_parameter(args.kwarg)}"


def _parameter(arg: ast.arg, default: ast.expr | None = None) -> str:
    shown = f"{arg.arg}: {_text(arg.annotation)}" if arg.annotation else arg.arg
    return shown if default is None else f"{shown} = {ast.unparse(default)}"


def _text(node: ast.expr | None) -> str:
    """A type, without the quotes of one that is defined later."""
    return "" if node is None else ast.unparse(node).strip("'\"")


def _block(text: str) -> list[str]:
    """As code, one parameter a line where it is long."""
    if len(text) > WIDTH:
        head, _, rest = text.partition("(")
        inside, close, result = rest.rpartition(")" if ") ->" not in rest else ") ->")
        text = f"{head}(\n" + "".join(f"    {each},\n" for each in _split(inside)) + close + result
    return ["```py", text, "```", ""]


def _split(text: str) -> list[str]:
    """At commas that are not inside brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]
