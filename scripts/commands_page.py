"""docs/commands.md: every command of `enc`, as the program itself tells of them."""

import re
from collections.abc import Iterator
from typing import Any

from typer import Context
from typer.main import get_command

from enc.cli import app
from enc.cli.shell.command import _PANEL as SHARED

TOP = """\
# Commands

Every command of `enc` with its arguments and flags, written by `make docs` from the program itself: do not edit it. A
tour with what they are for is [cli.md](cli.md), also for configuration, exit codes and what goes to stdout and stderr;
every command prints the same as here with `--help`.

**Flags that many commands share** are told once, here. Most can also be set in the environment or in a profile:
[configuration](cli.md#configuration).

| flag | |
|---|---|
{shared}

{contents}
"""
SPECIAL = ("--json", "--help")
"""Flags that nearly every command has, besides those of the shared panel."""


def page() -> str:
    program = get_command(app)
    leaves = list(_leaves(program, Context(program, info_name="enc")))
    groups = {name: sub for name, sub in program.commands.items() if hasattr(sub, "commands")}
    parts = [_section("enc", None, [leaf for leaf in leaves if len(leaf[0]) == 1])]
    parts += [
        _section(f"enc {name}", sub, [leaf for leaf in leaves if leaf[0][0] == name]) for name, sub in groups.items()
    ]
    contents = "\n".join(f"- [`{title}`](#{_anchor(title)}): {names}" for title, names in _contents(leaves, groups))
    return "\n".join([TOP.format(shared=_shared(leaves), contents=contents), *parts]).rstrip() + "\n"


Leaf = tuple[tuple[str, ...], Any, Context]


def _leaves(command: Any, ctx: Context, path: tuple[str, ...] = ()) -> Iterator[Leaf]:
    for name, sub in command.commands.items():
        below = Context(sub, parent=ctx, info_name=name)
        if hasattr(sub, "commands"):
            yield from _leaves(sub, below, (*path, name))
        else:
            yield (*path, name), sub, below


def _contents(leaves: list[Leaf], groups: dict[str, Any]) -> Iterator[tuple[str, str]]:
    def links(found: list[Leaf]) -> str:
        return ", ".join(f"[{path[-1]}](#{_anchor('enc ' + ' '.join(path))})" for path, *_ in found)

    yield "enc", links([leaf for leaf in leaves if len(leaf[0]) == 1])
    for name in groups:
        yield f"enc {name}", links([leaf for leaf in leaves if leaf[0][0] == name and len(leaf[0]) > 1])


def _anchor(title: str) -> str:
    return title.replace(" ", "-")


def _shared(leaves: list[Leaf]) -> str:
    """Of each shared flag one row: it has the same words wherever it is."""
    rows: dict[str, str] = {}
    for _, command, ctx in leaves:
        for param in _options(command):
            if _is_shared(param):
                flag, words = _record(param, ctx)
                rows.setdefault(flag, words)
    return "\n".join(f"| `{flag}` | {words} |" for flag, words in rows.items())


def _section(title: str, group: Any, leaves: list[Leaf]) -> str:
    about = f"\n{_prose(group.help)}\n" if group is not None and group.help else ""
    return "\n".join([f"## {title}\n{about}", *(_entry(*leaf) for leaf in leaves)])


def _entry(path: tuple[str, ...], command: Any, ctx: Context) -> str:
    lines = [f"### enc {' '.join(path)}", "", _prose(command.help or ""), "", "```sh"]
    lines += [*_examples(command), "```", "", f"Usage: `{_usage(path, command, ctx)}`", ""]
    rows = [_record(param, ctx) for param in (*_arguments(command), *_options(command)) if not _is_shared(param)]
    if rows:
        lines += ["| | |", "|---|---|", *(f"| `{name}` | {words} |" for name, words in rows), ""]
    shared = [f"`{param.opts[0]}`" for param in _options(command) if _is_shared(param)]
    if shared:
        lines += [f"Shared: {', '.join(shared)}", ""]
    return "\n".join(lines)


def _usage(path: tuple[str, ...], command: Any, ctx: Context) -> str:
    """An argument that must be given stands without braces."""
    pieces = (re.sub(r"^\{(.*)\}", r"\1", piece) for piece in command.collect_usage_pieces(ctx))
    return " ".join(["enc", *path, *pieces])


def _arguments(command: Any) -> list[Any]:
    return [param for param in command.params if param.param_type_name == "argument"]


def _options(command: Any) -> list[Any]:
    return [param for param in command.params if param.param_type_name == "option"]


def _is_shared(param: Any) -> bool:
    return getattr(param, "rich_help_panel", None) == SHARED or param.opts[0] in SPECIAL


def _record(param: Any, ctx: Context) -> tuple[str, str]:
    """How a parameter is given, and what it is for."""
    name, words = param.get_help_record(ctx) or (param.name, "")
    name = re.sub(r" <\w+>.*$", "", name) if param.param_type_name == "argument" else name
    return name.replace("|", "\\|"), _prose(words).replace("|", "\\|")


def _examples(command: Any) -> list[str]:
    """What the command's help ends with, but for the exit codes."""
    found = re.findall(r"^Example: (.*)$", command.epilog or "", re.MULTILINE)
    if not found:
        raise SystemExit(f"{command.name}: its help has no example")
    return found


def _prose(text: str) -> str:
    """One line for each paragraph; what looks like a tag to a reader of Markdown is none."""
    paragraphs = re.split(r"\n\s*\n", text.strip())
    return "\n\n".join(" ".join(each.split()) for each in paragraphs).replace("<", "&lt;")
