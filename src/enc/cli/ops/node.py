"""`enc node`: run a node, show its settings, check and back up its data. See also `node_key` and `node_queues`."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from enc.cli.common import exits, passphrase
from enc.cli.common.exits import one_line
from enc.core.errors import MisuseError
from enc.node.config import SECTIONS, NodeConfig, Setting, describe, load_with_sources

if TYPE_CHECKING:
    from enc.node.fsck import Report

app = typer.Typer(
    name="node",
    help="Run a node, show its settings and its key, check and back up its data.\n\n"
    "Each setting comes from its default, the file of --config, the environment (for example ENC_NODE_PORT or "
    "ENC_NODE_LIMITS_CONTENT) or a flag; each overrides those before it.",
    epilog=exits.HELP,
    no_args_is_help=True,
)

NAME = "enc node"


def epilog_with(example: str) -> str:
    """Return the end of a command's help: an example and the exit codes."""
    return f"{example}\n\n{exits.HELP}"


ConfigFile = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="Settings in TOML.")]
Data = Annotated[str | None, typer.Option(metavar="DIR", help="Directory of the node's data. Default: ./enc-data.")]
Host = Annotated[str | None, typer.Option(metavar="ADDRESS", help="Address to listen on. Default: 127.0.0.1.")]
# Numbers and choices are read as text here, so that an invalid one is rejected as in the file.
Port = Annotated[str | None, typer.Option(metavar="PORT", help="Port; 0 takes a free one. Default: 7700.")]
Dev = Annotated[bool | None, typer.Option("--dev/--no-dev", help="Allow private endpoints, lift rate limits.")]
PassphraseFd = Annotated[
    str | None,
    typer.Option("--passphrase-fd", metavar="N", help="File descriptor with the passphrase of a sealed key file."),
]
PassphraseCommand = Annotated[
    str | None, typer.Option("--passphrase-command", metavar="CMD", help="Command that prints the passphrase.")
]
LogLevel = Annotated[str | None, typer.Option(metavar="LEVEL", help="debug, info, warning or error. Default: info.")]
LogFormatFlag = Annotated[str | None, typer.Option(metavar="FORMAT", help="json or console. Default: json.")]
RegistryId = Annotated[str | None, typer.Option("--registry", metavar="ID", help="Registry whose lookups to serve.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


@app.command(epilog=epilog_with("Example: enc node run --data /var/lib/enc --host 0.0.0.0 --port 7700"))
def run(
    config: ConfigFile = None,
    data: Data = None,
    host: Host = None,
    port: Port = None,
    dev: Dev = None,
    log_level: LogLevel = None,
    log_format: LogFormatFlag = None,
    registry: RegistryId = None,
    passphrase_fd: PassphraseFd = None,
    passphrase_command: PassphraseCommand = None,
) -> None:
    """Run a node until a signal. The first line on stdout holds its URL; logs are written to stderr.

    SIGTERM or Ctrl-C stops it gracefully, with exit code 0; a second one ends it at once. SIGHUP reloads the settings.
    """
    flags = {"key.passphrase_fd": passphrase_fd, "key.passphrase_command": passphrase_command}

    def settings() -> NodeConfig:
        return load(config, data, host, port, dev, log_level, log_format, registry, more=flags)[0]

    with exits.exit_on_error(NAME):
        first = settings()
        from enc.node import main

        code = main.run(first, settings, ask_passphrase)
    raise typer.Exit(code)


@app.command(epilog=epilog_with("Example: enc node config --port 8000 > node.toml"))
def config(
    config: ConfigFile = None,
    data: Data = None,
    host: Host = None,
    port: Port = None,
    dev: Dev = None,
    log_level: LogLevel = None,
    log_format: LogFormatFlag = None,
    registry: RegistryId = None,
    as_json: AsJson = False,
) -> None:
    """Print every setting in force, with its meaning and source, as a file for --config."""
    with exits.exit_on_error(NAME):
        settings = describe(*load(config, data, host, port, dev, log_level, log_format, registry))
    # Bytes: TOML and JSON are UTF-8, whatever the terminal is set to.
    typer.echo((_json(settings) if as_json else _toml(settings)).encode())


@app.command(epilog=epilog_with("Example: enc node fsck --data /var/lib/enc"))
def fsck(
    config: ConfigFile = None,
    data: Data = None,
    enclave: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="Check only this enclave; may be repeated.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Number of processes. Default: one for each core.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Derive a node's whole store from its logs again, and print each enclave's first difference.

    The node may run meanwhile. Then the counts over all enclaves are checked only if it writes nothing.
    Exit code 1: there are differences, or the store could not be checked.
    """
    with exits.exit_on_error(NAME):
        settings, _ = load(config, data)
        report = _check(settings, [enclave_id(text) for text in enclave or ()], jobs)
    typer.echo((_report_json if as_json else _report_text)(report))
    raise typer.Exit(exits.FAILED if report.differences else exits.DONE)


@app.command(epilog=epilog_with("Example: enc node backup --data /var/lib/enc --to /backup/enc.db"))
def backup(
    to: Annotated[Path, typer.Option(metavar="FILE", help="The copy to write. The file must not exist.")],
    damaged: Annotated[bool, typer.Option("--damaged", help="Copy a store with damaged pages, too.")] = False,
    config: ConfigFile = None,
    data: Data = None,
) -> None:
    """Copy the node's database in its present state, also while the node runs. The copy does not contain the key.

    The copy is one private file, checked for damage; a failure leaves no file.
    """
    from enc.node.ops.backup import backup as copy

    with exits.exit_on_error(NAME):
        size = copy(load(config, data)[0].store_path, to, damaged_too=damaged)
    typer.echo(f"{to}: {size:,} bytes")


@app.command(epilog=epilog_with("Example: enc node compact --data /var/lib/enc"))
def compact(config: ConfigFile = None, data: Data = None) -> None:
    """Return free space in the node's database to the disk, for example after purges. The node must not be running.

    Meanwhile the disk must have twice the size of the database free. An interruption changes nothing.
    """
    from enc.node.ops.compact import compact as run

    with exits.exit_on_error(NAME):
        path = load(config, data)[0].store_path
        done = run(path)
    typer.echo(f"{path}: {done.after:,} bytes, before {done.before:,}")


def ask_passphrase(path: Path) -> str:
    """Return the passphrase of the node's key file, if no setting names a place that has it."""
    from enc.node.ops.signer import HINT

    return passphrase.given() or passphrase.ask(f"Passphrase of {path}: ", f"key file {path}: is sealed; {HINT}")


def load(
    path: Path | None,
    data: str | None,
    host: str | None = None,
    port: str | None = None,
    dev: bool | None = None,
    log_level: str | None = None,
    log_format: str | None = None,
    registry: str | None = None,
    more: Mapping[str, Any] | None = None,
) -> tuple[NodeConfig, Any]:
    """Return the settings and their sources. `more`: further flags, by the names of their settings."""
    flags = {"data": data, "host": host, "port": port, "dev": dev, "log_level": log_level, "log_format": log_format}
    flags |= more or {}
    flags["registry.enclave"] = registry
    return load_with_sources(path, os.environ, flags)


# enc node config


def _toml(settings: list[Setting]) -> str:
    lines: list[str] = []
    for section, found in groupby(settings, lambda setting: setting.key.rpartition(".")[0]):
        if section:
            meaning = " ".join((SECTIONS[section].__doc__ or "").partition(": ")[2].split())
            lines += [f"# {meaning[:1].upper()}{meaning[1:]}", f"[{section}]", ""]
        for setting in found:
            lines += [*_comment(setting), f"{setting.key.rpartition('.')[2]} = {_value(setting.value)}", ""]
    return "\n".join(lines[:-1])


def _comment(setting: Setting) -> list[str]:
    unit = f"in {setting.unit}; " if setting.unit else ""
    default, source = _value(setting.default), setting.source
    return [f"# {setting.meaning}", f"# {unit}default {default}; variable {setting.variable}; here from: {source}"]


def _value(value: Any) -> str:
    """Format a value as TOML. JSON is the same here: no setting holds a control character."""
    return json.dumps(value, ensure_ascii=False)


def _json(settings: list[Setting]) -> str:
    shown = {
        setting.key: {
            "value": setting.value,
            "default": setting.default,
            "source": setting.source,
            "variable": setting.variable,
            "unit": setting.unit,
            "meaning": setting.meaning,
        }
        for setting in settings
    }
    return json.dumps(shown, ensure_ascii=False, indent=2)


# enc node fsck


def enclave_id(text: str, option: str = "--enclave") -> bytes:
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raw = b""
    if len(raw) != 32:
        raise MisuseError(f"{option}: expected 64 hex digits")
    return raw


def _check(settings: NodeConfig, chosen: list[bytes], jobs: int | None) -> "Report":
    from enc.node.fsck import check_file
    from enc.node.ops.signer import public_key
    from enc.node.store.sqlite.connection import open_existing

    open_existing(settings.store_path).close()  # the store's error comes before the key's
    seq_pub = public_key(settings)
    with _progress(settings.store_path, chosen) as advance:
        return check_file(settings.store_path, seq_pub, chosen, advance, jobs)


@contextmanager
def _progress(path: Path, chosen: Sequence[bytes]) -> Iterator[Callable[[int], None]]:
    """Show a bar if stderr is a terminal. Yields a function to call with the number of checked events."""
    if not sys.stderr.isatty():
        yield lambda more: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("events"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("events", total=_count(path, chosen))
        yield lambda more: bar.advance(task, more)


def _count(path: Path, chosen: Sequence[bytes]) -> int | None:
    """Count the events to check by the stored states; None if one cannot be read: the check reports that."""
    from enc.node.store.sqlite.store_snapshot import open_snapshot

    try:
        with open_snapshot(path) as store:
            states = [store.load(enclave) for enclave in chosen or store.enclaves()]
    except Exception:  # a damaged row can make its decoder raise anything
        return None
    return sum(state.seq + 1 for state in states if state is not None)


def _report_text(report: "Report") -> str:
    lines = [one_line(difference.message) for difference in report.differences]
    result = f"{len(lines)} difference{'s' * (len(lines) > 1)}" if lines else "clean"
    lines.append(f"{result}: {report.enclaves} enclaves, {report.events} events")
    if not report.is_whole:
        lines.append("not checked: the counts over all enclaves, because the node wrote meanwhile")
    return "\n".join(lines)


def _report_json(report: "Report") -> str:
    differences = [{"enclave": d.enclave.hex(), "seq": d.seq, "what": d.what} for d in report.differences]
    found = {"enclaves": report.enclaves, "events": report.events, "differences": differences}
    return json.dumps({**found, "whole": report.is_whole})
