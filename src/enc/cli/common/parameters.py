"""Values of arguments and flags, from text.

typer does this with pydantic, whose import takes longer than most commands; and its errors are not
about commands.
"""

from pathlib import Path
from typing import Any, get_args, get_origin

import typer
from typer import BadParameter
from typer._coercion import RuntimeParam, TypeDescriptor, build_runtime_param

PLAIN: tuple[Any, ...] = (bool, str, int, float, Path, list[str], list[Path])


class PlainParameter(RuntimeParam):
    """Converts the values of a parameter whose type is in PLAIN."""

    def _coerce_value(self, value: Any, param: Any, ctx: Any) -> Any:
        kind: Any = self.annotation
        if get_origin(kind) is list:
            return [self._convert(get_args(kind)[0], each, param, ctx) for each in value]
        return self._convert(kind, value, param, ctx)

    def _convert(self, kind: type, value: Any, param: Any, ctx: Any) -> Any:
        if isinstance(value, kind):
            return value
        if kind is Path:
            return Path(value)
        try:
            number = int(value) if kind is int else float(value)
        except ValueError:
            wanted = "a whole number" if kind is int else "a number"
            raise BadParameter(f"expected {wanted}, not {value!r}", ctx, param) from None
        least, most = self.parameter_info.min, self.parameter_info.max
        if least is not None and not number >= least:
            raise BadParameter(f"expected at least {least}, not {value}", ctx, param)
        if most is not None and not number <= most:
            raise BadParameter(f"expected at most {most}, not {value}", ctx, param)
        return number


def _build(descriptor: TypeDescriptor) -> RuntimeParam:
    if descriptor.annotation in PLAIN:
        return PlainParameter(descriptor.parameter_info, descriptor.annotation)
    return build_runtime_param(descriptor)


def use_plain_parameters() -> None:
    """Let the commands of this process convert their parameters without pydantic."""
    typer.core.build_runtime_param = _build  # type: ignore[attr-defined]  # internal: the version is pinned
