"""`enc audit`: verifies many archives at once, and writes evidence against nodes."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.exceptions import TyperException

from enc.cli.common import known_ids
from enc.cli.common.command import NODE, command
from enc.cli.common.command_context import CommandContext
from enc.cli.common.exits import FAILED, MISUSE, report_unexpected
from enc.cli.common.failures import report
from enc.cli.common.output import OutputRow, fields, withheld_text
from enc.core.errors import EncError, MisuseError

if TYPE_CHECKING:
    from enc.audit.audit import AuditRequest, ProgressCallback, Runner
    from enc.audit.collect import CollectedLogs

app = typer.Typer()
HERE = "here"
"""Value of --master for one process without Spark."""
MAX_WITHHELD = 20
"""Withheld contents that are printed; the report has all of them."""


@command(
    app,
    "enc audit archives/ --heads heads.jsonl",
    "enc audit backup.enc --master here --out audit-1",
    "enc audit --node https://enc.example.org --enclave 4be04e54",
    "enc audit --registry https://enc.example.org#4be0…",
    flags=NODE,
    panel="Proofs",
    codes="Exit codes: 0 no findings; 1 findings; 2 the audit is incomplete, or wrong use.",
)
def audit(
    ctx: CommandContext,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="PATH…", help="Archives, or folders of archives.", show_default=False),
    ] = None,
    heads: Annotated[
        list[Path] | None,
        typer.Option("--heads", metavar="FILE", help="Signed heads, one JSON object per line; may be repeated."),
    ] = None,
    enclave: Annotated[
        list[str] | None,
        typer.Option("--enclave", metavar="ID", help="An enclave to pull from the node; may be repeated."),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            "--out", metavar="DIR", help="Folder of the report, and of the state from which the next audit continues."
        ),
    ] = Path("audit"),
    master: Annotated[
        str, typer.Option("--master", metavar="URL", help=f"Spark's master; or {HERE}: this process, without Spark.")
    ] = "local[*]",
    afresh: Annotated[
        bool, typer.Option("--afresh", help="Ignore the results of earlier audits into DIR; verify everything.")
    ] = False,
) -> None:
    """Verify whole logs and all their signed heads, on all cores, and write evidence for each finding."""
    from enc.audit.audit import run_audit
    from enc.audit.result_folder import AuditRun, write_report

    start, began = time.time(), time.monotonic()
    sources = tuple(map(str, (*(paths or ()), *(enclave or ()))))
    with _failing_apart(ctx):
        with _bar(ctx.is_terminal) as progress:
            request, pulled = _request(ctx, paths or [], heads or [], enclave or [], out, afresh, progress)
            with _runner(master) as runner:
                found = run_audit(request, runner, progress)
                made = AuditRun(int(start * 1000), time.monotonic() - began, runner.name, sources)
        found.add(pulled)
        wire = write_report(out, found, made)
        _print_report(ctx, wire, out)
    if wire["findings"]:
        raise typer.Exit(FAILED)
    if not wire["complete"]:
        raise typer.Exit(MISUSE)


@contextmanager
def _failing_apart(ctx: CommandContext) -> Iterator[None]:
    """End failed audits with another exit code than audits with findings."""
    try:
        yield
    except (MisuseError, BrokenPipeError, typer.Exit, typer.Abort, TyperException):
        raise
    except (EncError, OSError) as e:
        _report(ctx, e.message if isinstance(e, EncError) else str(e))
    except Exception as e:
        if ctx.as_json:
            _report(ctx, type(e).__name__)
        else:
            report_unexpected(e)
    else:
        return
    raise typer.Exit(MISUSE)


def _report(ctx: CommandContext, why: str) -> None:
    report(ctx.as_json, "AUDIT_FAILED", f"the audit could not be completed: {why}", {})


def _request(
    ctx: CommandContext,
    paths: list[Path],
    files: list[Path],
    enclaves: list[str],
    out: Path,
    afresh: bool,
    progress: "ProgressCallback",
) -> tuple["AuditRequest", "CollectedLogs"]:
    from enc.audit.archive_reader import found_archives, found_heads
    from enc.audit.audit import AuditRequest
    from enc.audit.collect import CollectedLogs
    from enc.audit.collected_heads import collect_heads
    from enc.audit.progress import AuditProgress, load_progress

    missing = [str(path) for path in (*paths, *files) if not path.exists()]
    if missing:
        raise MisuseError(f"{missing[0]}: no such file")
    before = AuditProgress({}, {}) if afresh else load_progress(out)
    held = collect_heads([*files, *found_heads(paths)], before.heads)
    asks = bool(enclaves) or ctx.is_given("registry")
    if not (paths or files or asks):
        raise MisuseError("nothing to audit: give archives, --heads, --enclave ID with --node, or --registry")
    _prepare(out)
    pulled = _pulled(ctx, enclaves, out, progress) if asks else CollectedLogs()
    for id_, heads in pulled.heads.items():
        held.setdefault(id_, []).extend(heads)
    archives = sorted({*found_archives(paths), *pulled.paths})
    if paths and not archives and not asks:
        raise MisuseError(f"{paths[0]}: no archive found")
    return AuditRequest(paths=archives, heads=held, known=before.known), pulled


def _prepare(out: Path) -> None:
    """Create the report's folder first, so that a wrong --out fails before the work and not after it."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise MisuseError(f"--out {out}: {e.strerror}") from None
    if not os.access(out, os.W_OK | os.X_OK):
        raise MisuseError(f"--out {out}: not writable")


def _pulled(ctx: CommandContext, enclaves: list[str], out: Path, progress: "ProgressCallback") -> "CollectedLogs":
    from enc.audit.collect import collect

    with ctx.client() as client:
        ids = [known_ids.enclave(each, what="--enclave") for each in enclaves]
        return collect(client, ids, out / "archives", progress)


@contextmanager
def _runner(master: str) -> Iterator["Runner"]:
    from enc.audit.audit import InProcess

    if master == HERE:
        yield InProcess()
        return
    try:
        from enc.audit.spark_runner import OnSpark, last_line
        from enc.dataview.lake.session import spark_session
    except ModuleNotFoundError as e:
        raise MisuseError(
            f"an audit on Spark needs {e.name}: pip install 'enc-protocol[dataview]', or give --master {HERE}"
        ) from None
    try:
        spark = spark_session("enc audit", master)
    except MisuseError as e:
        raise MisuseError(f"{e.message}; or give --master {HERE}") from None
    except Exception as e:  # Spark's errors have no common base class
        raise MisuseError(f"--master {master}: Spark does not start: {last_line(e)}") from None
    try:
        yield OnSpark(spark)
    finally:
        spark.stop()


@contextmanager
def _bar(is_shown: bool) -> Iterator["ProgressCallback"]:
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), disable=not is_shown, transient=True) as bar:
        tasks: dict[str, Any] = {}

        def progress(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done, total=total)

        yield progress


def _print_report(ctx: CommandContext, wire: dict[str, Any], out: Path) -> None:
    if ctx.as_json:
        ctx.emit({**wire, "enclaves": len(wire["enclaves"]), "out": str(out)}, "")
        return
    ctx.rows(("kind", "enclave", "seq", "evidence", "what"), (_row(found, out) for found in wire["findings"]))
    for note in wire["notes"]:
        ctx.note(note)
    for each in wire["withheld"][:MAX_WITHHELD]:
        ctx.note(f"{each['enclave'][:8]}…: event {each['seq']}: {withheld_text(each['reason'], each['ts'])}")
    if (more := len(wire["withheld"]) - MAX_WITHHELD) > 0:
        ctx.note(f"{more} more withheld contents: see {out / 'report.json'}")
    for problem in wire["problems"]:
        ctx.note(f"not completed: {problem}")
    checked = wire["checked"]
    words = {name.replace("_", " "): f"{n:,}" for name, n in checked.items() if n}
    ctx.emit(
        wire, fields(**words, seconds=wire["took_s"], findings=sum(wire["counts"].values()), report=out / "report.html")
    )


def _row(found: dict[str, Any], out: Path) -> OutputRow:
    evidence = "" if found["evidence"] is None else str(out / found["evidence"])
    return found, (
        found["kind"],
        f"{found['enclave'][:8]}…",
        "" if found["seq"] is None else str(found["seq"]),
        evidence,
        found["what"] if evidence else f"{found['what']} (no file: {found['no_evidence']})",
    )
