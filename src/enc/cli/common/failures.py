"""Reports of failed commands, and their exit codes."""

import errno
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.exceptions import TyperException

from enc.cli.common.exits import FAILED, MISUSE, one_line
from enc.core.errors import EncError, MisuseError, WorldError

if TYPE_CHECKING:
    from enc.client.evidence.evidence import Evidence

NO_ANSWER = 3
"""The node cannot be reached, did not answer in time, or cannot answer now: try again later."""
DISTRUST = 4
"""The node's answers contradict each other or its signatures."""
HELP = (
    "Exit codes: 0 done; 1 the check failed, or the node refused; 2 wrong use or configuration; "
    "3 no answer from the node; 4 the node's answer cannot be true: evidence is saved to a file."
)


_CLOCK = "the clock of this machine or of the node is wrong: compare `date -u` on both, and set the wrong one"
_HINTS = {
    "BANNED": (
        "ask the node's operator; an owner may still leave: `enc archive pull` saves an enclave, `enc migrate` moves it"
    ),
    "ENCLAVE_EXISTS": "to create another one of this kind, give another --name; `enc enclave list` lists yours",
    "ENCLAVE_MIGRATED": (
        "with a registry (--registry) its new node is found automatically; without one, give the new node's URL: "
        "`enc follow ENCLAVE --at URL`"
    ),
    "ENCLAVE_NOT_FOUND": (
        "`enc config show` shows the enclave and the node in use; `enc enclave list` lists the enclaves you have used"
    ),
    "ENCLAVE_PURGED": "this node never serves the enclave again; an archive of it can be imported by another node",
    "ENCLAVE_SUSPENDED": (
        "ask the node's operator, who may still let its owner move it to another node with `enc migrate`; if it has "
        "moved: `enc follow ENCLAVE --at URL`"
    ),
    "EXPIRED": _CLOCK,
    "SESSION_EXPIRED": _CLOCK,
    "UNAUTHORIZED": (
        "`enc key show` prints your identity, `enc enclave info` what the enclave allows; to use another identity: "
        "--identity FILE (for a DataView: keyFile=FILE in --pull)"
    ),
    "UNREACHABLE": "is the node running? `enc config show` shows its URL; `enc up` starts one on this machine",
}
"""Hints for people, by error code."""
_NARROWER_HINTS = (
    (
        "BANNED",
        "this address",
        "ask the node's operator, or use another network: the node answers nobody at this address",
    ),
    (
        "UNAUTHORIZED",
        "quota",
        "ask the node's operator for more, or use another node: `enc migrate` moves an enclave; `enc delete` frees "
        "bytes of an enclave, but neither events nor the quota of an identity",
    ),
)
"""Hints by error code and a part of the message."""


def hint(code: str, message: str, more: Mapping[str, Any]) -> str | None:
    """Return what a person may do about an error."""
    if "contact" in more:  # the hints are about one's own node
        return None
    is_ahead = (code, message[:5]) == ("INVALID_COMMIT", "exp: ") or message.startswith("session: expires more")
    narrower = (advice for name, part, advice in _NARROWER_HINTS if name == code and part in message)
    return _CLOCK if is_ahead else next(narrower, _HINTS.get(code))


@contextmanager
def report_errors(as_json: bool, evidence_in: Path) -> Iterator[None]:
    """Report errors raised in the block on stderr, and end the program with their exit code.

    Unexpected errors are reported here only as JSON; otherwise `exits.report_unexpected` reports them.
    """
    try:
        yield
    except (typer.Exit, typer.Abort, TyperException):
        raise
    except EncError as e:
        code, more = _exit_code(e, evidence_in)
        report(as_json, e.code or "MISUSE", e.message, {**e.context, **more})
    except OSError as e:
        if e.errno == errno.EPIPE:  # the reader of the output has closed it
            raise
        code = FAILED
        report(as_json, "OS_ERROR", f"{e.filename}: {e.strerror}" if e.filename else str(e), {})
    except Exception as e:
        if not as_json:
            raise
        code = FAILED
        report(as_json, "UNEXPECTED", type(e).__name__, {})
    else:
        return
    raise typer.Exit(code)


def report(as_json: bool, code: str, message: str, more: Mapping[str, Any]) -> None:
    """Print an error on stderr: an object for programs; for people a line, a hint, and the evidence's file."""
    if as_json:
        _print(json.dumps({"error": {"code": code, "message": message, **more}}))
        return
    _print(f"enc: {one_line(message if code == 'MISUSE' else f'{code}: {message}')}")
    if (advice := hint(code, message, more)) is not None:
        _print(f"enc: {advice}")
    if "evidence" in more:
        _print(f"enc: the evidence is in {one_line(more['evidence'])}; `enc verify` shows what it proves")
    if "evidence_lost" in more:
        _print(f"enc: the evidence could not be saved: {one_line(more['evidence_lost'])}")


def _print(line: str) -> None:
    typer.echo(line.encode(errors="backslashreplace"), err=True)


def _exit_code(error: EncError, evidence_in: Path) -> tuple[int, dict[str, Any]]:
    """Return the exit code, and more fields for the report."""
    if isinstance(error, MisuseError):
        from enc.core.rules.manifest_schemas import InvalidContent

        return FAILED if isinstance(error, InvalidContent) else MISUSE, {}
    if isinstance(error, WorldError):
        return NO_ANSWER, {}
    from enc.client.errors import Distrust

    if isinstance(error, Distrust):
        return DISTRUST, _save(error.evidence, evidence_in)
    return FAILED, {}


def is_distrust(error: EncError) -> bool:
    """Return whether the error means that no answer of this node can be trusted any more."""
    from enc.client.errors import Distrust

    return isinstance(error, Distrust)


def _save(evidence: "Evidence", directory: Path) -> dict[str, str]:
    """Save the evidence to a new numbered file; return its path, or why it could not be saved."""
    for n in count(1):
        path = directory / f"enc-evidence-{evidence.kind}-{n}.json"
        try:
            with path.open("xb") as file:
                file.write(evidence.json())
        except FileExistsError:
            continue
        except OSError as e:
            return {"evidence_lost": f"{path}: {e.strerror}"}
        return {"evidence": str(path)}
    raise AssertionError
