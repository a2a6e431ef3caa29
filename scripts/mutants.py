"""The mutants of a module: small changes of its syntax tree, each of which a test should notice.

Not changed are docstrings, annotations, options of classes, and the texts of errors.
"""

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
    ast.Pow: ast.Mult,
}
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@dataclass
class Mutant:
    """One change. `apply` makes it in the tree from which the mutant was found; it is not undone."""

    name: str
    """The function, the code before and after; with a number if it is not the only such place."""
    lines: range
    """The lines of the changed code, from the beginning of its statement."""
    is_in_function: bool
    apply: Callable[[], None]


@dataclass
class Place:
    """Where a node is: the function, the lines of its statement, and how to replace it."""

    scope: str
    is_in_function: bool
    first_line: int
    put: Callable[[ast.AST], None]


def find_mutants(tree: ast.Module) -> list[Mutant]:
    """Return the mutants of a tree, in the order of the source."""
    found, counts = list[Mutant](), Counter[str]()
    for node, place in _places(tree, Place("", False, 1, lambda new: None)):
        for new in _replacements(node):
            name = f"{place.scope or 'module'}: {_text(node)} -> {_text(new)}"
            counts[name] += 1
            name += f" #{counts[name]}" if counts[name] > 1 else ""
            last = max(getattr(each, "end_lineno", 0) for each in ast.walk(node))
            lines = range(place.first_line, last + 1)
            found.append(Mutant(name, lines, place.is_in_function, _change(place, node, new)))
    return found


def _change(place: Place, node: ast.AST, new: ast.AST) -> Callable[[], None]:
    where = node if hasattr(node, "lineno") else next(each for each in ast.walk(node) if hasattr(each, "lineno"))
    return lambda: place.put(ast.fix_missing_locations(ast.copy_location(new, where)))


def _text(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 90 else f"{text[:60]}...{text[-27:]}"


def _places(node: ast.AST, place: Place) -> Iterator[tuple[ast.AST, Place]]:
    """Yield the nodes that may be changed."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns") or _is_left_alone(node, name):
            continue
        is_body = isinstance(node, FUNCTIONS) and name == "body"
        for index, child in enumerate(value if isinstance(value, list) else [value]):
            if not isinstance(child, ast.AST) or _is_unchanged(child):
                continue
            put = _putter(value, index) if isinstance(value, list) else _setter(node, name)
            scope = f"{place.scope}.{_name(node)}".strip(".") if name == "body" and _name(node) else place.scope
            first = child.lineno if isinstance(child, ast.stmt) else place.first_line
            there = Place(scope, place.is_in_function or is_body, first, put)
            yield child, there
            yield from _places(child, there)


def _putter(values: list[ast.AST], index: int) -> Callable[[ast.AST], None]:
    return lambda new: values.__setitem__(index, new)


def _setter(node: ast.AST, name: str) -> Callable[[ast.AST], None]:
    return lambda new: setattr(node, name, new)


def _name(node: ast.AST) -> str:
    return getattr(node, "name", "") if isinstance(node, (*FUNCTIONS, ast.ClassDef)) else ""


def _is_left_alone(node: ast.AST, field: str) -> bool:
    """Return whether a field holds what an error is made with, a text with values in it, or a class's
    options, such as `frozen`.
    """
    is_error = isinstance(node, ast.Raise) and field in ("exc", "cause")
    return is_error or isinstance(node, ast.JoinedStr) or (isinstance(node, ast.ClassDef) and field == "keywords")


def _is_unchanged(node: ast.AST) -> bool:
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    is_type = isinstance(node, ast.Subscript) and ast.unparse(node.value) in ("Literal", "Mapping", "Callable")
    return is_text or is_type or isinstance(node, (ast.Import, ast.ImportFrom))


def _replacements(node: ast.AST) -> Iterator[ast.AST]:
    yield from _expressions(node)
    yield from _conditions(node)
    match node:
        case ast.Return(value=value) if value is not None and not isinstance(value, ast.Constant):
            yield ast.Return(ast.Constant(None))
        case ast.Raise() | ast.AugAssign() | ast.Expr(value=ast.Call()) | ast.Delete():
            yield ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield ast.Pass()
        case ast.Continue():
            yield ast.Break()
        case ast.Break():
            yield ast.Continue()


def _expressions(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Compare():
            for index, op in enumerate(node.ops):
                for other in COMPARISONS[type(op)]:
                    changed = deepcopy(node)
                    changed.ops[index] = other()
                    yield changed
        case ast.BoolOp():
            yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
            for index in range(len(node.values)):
                rest = node.values[:index] + node.values[index + 1 :]
                yield rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
        case ast.UnaryOp(op=ast.Not()):
            yield node.operand
        case ast.BinOp():
            yield ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right)
        case ast.Constant(value=value):
            yield from _constants(value)
        case ast.Call(func=ast.Name(id=name)) if name in NAMES:
            yield ast.Call(ast.Name(NAMES[name], ast.Load()), node.args, node.keywords)


def _conditions(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the node with its condition inverted or, of a comprehension, without one of them.

    Comparisons and the like have mutants of their own.
    """
    changed_elsewhere = ast.Compare | ast.BoolOp | ast.UnaryOp
    if isinstance(node, ast.If | ast.While | ast.IfExp) and not isinstance(node.test, changed_elsewhere):
        changed = deepcopy(node)
        changed.test = ast.UnaryOp(ast.Not(), changed.test)
        yield changed
    if isinstance(node, ast.comprehension):
        for index in range(len(node.ifs)):
            yield ast.comprehension(node.target, node.iter, node.ifs[:index] + node.ifs[index + 1 :], node.is_async)


def _constants(value: object) -> Iterator[ast.Constant]:
    match value:
        case bool():
            yield ast.Constant(not value)
        case int():
            yield ast.Constant(value + 1)
        case str():
            yield ast.Constant(f"{value}_")
        case bytes():
            yield ast.Constant(value + b"_")
