"""Registers commands: adds the shared flags, examples in the help, and the error handling."""

import sys
from collections.abc import Callable, Iterable, Iterator
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer
from msgspec import Struct, structs
from typer.core import TyperGroup
from typer.exceptions import TyperException

from enc.cli.common import failures
from enc.cli.common.command_context import TIMEOUT_S, CommandContext
from enc.cli.common.exits import FAILED

SHARED_PANEL = "Connection and identity"


def _option(flag: str, metavar: str | None, help_: str, **more: Any) -> Any:
    return typer.Option(flag, metavar=metavar, help=help_, rich_help_panel=SHARED_PANEL, show_default=False, **more)


_FLAGS: dict[str, Any] = {
    "node": Annotated[str | None, _option("--node", "URL", "The node's URL. Default: ENC_NODE, or the profile's.")],
    "identity": Annotated[
        str | None, _option("--identity", "FILE", "Your key file. Default: ENC_IDENTITY, or the profile's.")
    ],
    "enclave": Annotated[
        str | None,
        _option("--enclave", "ID", "The enclave's id, or its first digits. Default: ENC_ENCLAVE, or the profile's."),
    ],
    "registry": Annotated[
        str | None,
        _option(
            "--registry", "URL#ID:KEY", "The registry that locates enclaves. Default: ENC_REGISTRY, or the profile's."
        ),
    ],
    "witness": Annotated[
        list[str] | None,
        _option("--witness", "URL=KEY", "A witness; may be repeated. Default: ENC_WITNESSES, or the profile's."),
    ],
    "needed": Annotated[
        int | None, _option("--witnesses", "K", "How many witnesses must confirm the head. Default: all.", min=1)
    ],
    "profile": Annotated[
        str | None, _option("--profile", "NAME", "The profile. Default: ENC_PROFILE, or the profile named default.")
    ],
    "timeout": Annotated[
        float | None,
        _option(
            "--timeout", "SECONDS", f"How long to keep trying to reach the node. Default: {TIMEOUT_S:g}.", min=0.001
        ),
    ],
    "evidence": Annotated[
        Path | None, _option("--evidence", "DIR", "Directory for evidence against the node. Default: the current one.")
    ],
    "as_json": Annotated[bool, typer.Option("--json", help="Print JSON, for programs.", show_default=False)],
}

LOCAL = ("as_json",)
PROFILE = ("profile", "as_json")
NODE = ("as_json", "node", "identity", "registry", "profile", "timeout", "evidence")
ENCLAVE = ("enclave", *NODE)
WITNESSED = (*ENCLAVE, "witness", "needed")
"""Sets of shared flags that commands have."""

Work = TypeVar("Work", bound=Callable[..., None])


def command(
    app: typer.Typer,
    *examples: str,
    flags: tuple[str, ...] = ENCLAVE,
    name: str | None = None,
    panel: str | None = None,
    codes: str = failures.HELP,
) -> Callable[[Work], Work]:
    """Return a decorator that adds a command to `app`.

    The decorated function takes a CommandContext before its own arguments and flags. A parameter that
    is a Struct stands for its fields: each one is an argument or a flag. `codes` is the text about exit
    codes in the command's help.
    """

    def register(work: Work) -> Work:
        _, *own = signature(work, eval_str=True).parameters.values()
        options = {each.name: each.annotation for each in own if _is_struct(each.annotation)}

        def run(**given: Any) -> None:
            shared = {flag: given.pop(flag) for flag in flags}
            for name_, struct in options.items():
                given[name_] = struct(**{field: given.pop(field) for field in struct.__struct_fields__})
            with failures.report_errors(bool(shared["as_json"]), shared.get("evidence") or Path()):
                work(CommandContext(shared), **given)

        run.__doc__ = work.__doc__
        run.__signature__ = Signature([*_expand(own), *map(_parameter, flags)])  # type: ignore[attr-defined]
        ends = "\n\n".join([*(f"Example: {example}" for example in examples), codes])
        app.command(name or work.__name__, epilog=ends, rich_help_panel=panel)(run)
        return work

    return register


def _is_struct(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Struct)


def _expand(parameters: Iterable[Parameter]) -> Iterator[Parameter]:
    """Yield the parameters, with one for each field instead of a Struct."""
    for each in parameters:
        if not _is_struct(each.annotation):
            yield each.replace(kind=Parameter.KEYWORD_ONLY)
            continue
        hints = get_type_hints(each.annotation, include_extras=True)
        for field in structs.fields(each.annotation):
            default = Parameter.empty if field.required else field.default
            yield Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=hints[field.name])


def _parameter(flag: str) -> Parameter:
    default = False if flag == "as_json" else None
    return Parameter(flag, Parameter.KEYWORD_ONLY, default=default, annotation=_FLAGS[flag])


class CommandGroup(TyperGroup):
    """With --json, reports wrong usage as JSON, too."""

    def main(self, args: Any = None, prog_name: Any = None, *more: Any, **extra: Any) -> Any:
        args = list(sys.argv[1:] if args is None else args)
        if "--json" not in args:
            return super().main(args, prog_name, *more, **extra)
        try:
            sys.exit(super().main(args, prog_name, *more, **{**extra, "standalone_mode": False}))
        except TyperException as e:
            failures.report(True, "MISUSE", e.format_message(), {})
            sys.exit(e.exit_code)
        except typer.Abort:
            failures.report(True, "ABORTED", "nothing was done", {})
            sys.exit(FAILED)
