"""Checks the sources of `enc dataview run` before Spark starts, so that errors appear as in any command."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from enc.cli.common.command_context import CommandContext
from enc.core.errors import EncError, MisuseError

if TYPE_CHECKING:
    from enc.dataview.source.options import SourceOptions

ASKED = 8
"""Enclaves of a source that are tried: if none of these can be read, the whole source is assumed to fail."""


def check_pulls(ctx: CommandContext, sources: Sequence[Mapping[str, str]], *, once: bool) -> None:
    """Raise MisuseError for wrong options. If a source cannot be read, raise with `once`.

    Without `once`, print a note: the pipeline retries for as long as it runs.
    """
    from enc.dataview.source.options import parse_options

    for source in sources:
        if source["format"] == "enc":
            options = parse_options({name: text for name, text in source.items() if name != "format"})
            try:
                _ask(replace(options, patience=0.0))
            except EncError as e:
                if once:
                    raise
                ctx.note(f"cannot read from {options.origin} yet: {e.code}: {e.message}")
        elif source["format"] == "enc_archive":
            _check_archives(source["path"], once)


def _check_archives(path: str, once: bool) -> None:
    from enc.dataview.source.archive_source import SUFFIXES, find_archives

    if not find_archives(path) and once:
        raise MisuseError(
            f"{path}: no archive found; in a folder, archives are files that end in {', '.join(SUFFIXES)}"
        )


def _ask(options: "SourceOptions") -> None:
    """Raise the first error if all tried enclaves fail. Enclaves that were not named need not be readable."""
    from enc.dataview.source.node_reader import enclave_for, enclaves_of
    from enc.dataview.source.options import ALL

    with options.client() as client:
        errors = list[EncError]()
        for enclave in enclaves_of(options, client)[:ASKED]:
            try:
                enclave_for(options, client, enclave).unverified_page({"limit": 1, "reverse": True})
            except EncError as e:
                errors.append(e)
            else:
                return
    if errors and options.enclaves not in ((), (ALL,)):
        raise errors[0]
