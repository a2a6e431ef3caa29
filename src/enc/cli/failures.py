"""What a command says when it fails, and the code it ends with."""

import errno
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.exceptions import TyperException

from enc.cli.exits import FAILED, MISUSE, one_line
from enc.core.errors import EncError, MisuseError, WorldError

if TYPE_CHECKING:
    from enc.client.evidence import Evidence

NO_ANSWER = 3
"""The node cannot be reached, did not answer in time, or cannot answer now: try again later."""
DISTRUST = 4
"""The node said what cannot be true."""
HELP = (
    "Exit codes: 0 done; 1 the check failed, or the node refused; 2 wrong use or configuration; "
    "3 no answer from the node; 4 the node said what cannot be true, and the evidence is in a file."
)


_CLOCK = "this machine's clock or the node's is off: compare what `date -u` says on both, and set the wrong one"
_HINTS = {
    "ENCLAVE_EXISTS": "another one of the kind needs another --name; `enc enclave list` says which you have",
    "ENCLAVE_MIGRATED": (
        "with a registry (--registry) it is found by itself; else `enc follow ENCLAVE --at URL` goes to the node "
        "that you were told"
    ),
    "ENCLAVE_NOT_FOUND": (
        "`enc config show` says which enclave is meant, and on which node; `enc enclave list` which you have dealt with"
    ),
    "EXPIRED": _CLOCK,
    "SESSION_EXPIRED": _CLOCK,
    "UNAUTHORIZED": (
        "`enc key show` says who you are here, `enc enclave info` what the enclave allows; --identity FILE (of a "
        "DataView: keyFile=FILE in --pull) is somebody else"
    ),
    "UNREACHABLE": "is the node running? `enc config show` says where it is looked for; `enc up` runs one here",
}
"""What to do about some errors, for people."""


def _hint(code: str, message: str) -> str | None:
    is_ahead = (code, message[:5]) == ("INVALID_COMMIT", "exp: ") or message.startswith("session: expires more")
    return _CLOCK if is_ahead else _HINTS.get(code)


@contextmanager
def told(as_json: bool, evidence_in: Path) -> Iterator[None]:
    """Whatever fails inside is told on stderr, and ends the program with its code.

    What nobody foresaw is told in JSON here, and else left to `exits.unexpected`.
    """
    try:
        yield
    except (typer.Exit, typer.Abort, TyperException):
        raise
    except EncError as e:
        code, more = _judge(e, evidence_in)
        tell(as_json, e.code or "MISUSE", e.message, {**e.context, **more})
    except OSError as e:
        if e.errno == errno.EPIPE:  # whoever read the output has heard enough
            raise
        code = FAILED
        tell(as_json, "OS_ERROR", f"{e.filename}: {e.strerror}" if e.filename else str(e), {})
    except Exception as e:
        if not as_json:
            raise
        code = FAILED
        tell(as_json, "UNEXPECTED", type(e).__name__, {})
    else:
        return
    raise typer.Exit(code)


def tell(as_json: bool, code: str, message: str, more: Mapping[str, Any]) -> None:
    """One line for people, and another that says where the evidence is; one object for programs."""
    if as_json:
        _say(json.dumps({"error": {"code": code, "message": message, **more}}))
        return
    _say(f"enc: {one_line(message if code == 'MISUSE' else f'{code}: {message}')}")
    if (hint := _hint(code, message)) is not None:
        _say(f"enc: {hint}")
    if "evidence" in more:
        _say(f"enc: the evidence is in {one_line(more['evidence'])}; `enc verify` says what it proves")
    if "evidence_lost" in more:
        _say(f"enc: the evidence could not be saved: {one_line(more['evidence_lost'])}")


def _say(line: str) -> None:
    typer.echo(line.encode(errors="backslashreplace"), err=True)


def _judge(error: EncError, evidence_in: Path) -> tuple[int, dict[str, Any]]:
    """The exit code, and what else is to be told."""
    if isinstance(error, MisuseError):
        return MISUSE, {}
    if isinstance(error, WorldError):
        return NO_ANSWER, {}
    from enc.client.errors import Distrust

    if isinstance(error, Distrust):
        return DISTRUST, _saved(error.evidence, evidence_in)
    return FAILED, {}


def is_distrust(error: EncError) -> bool:
    """Nothing that goes on with this node can be believed."""
    from enc.client.errors import Distrust

    return isinstance(error, Distrust)


def _saved(evidence: "Evidence", directory: Path) -> dict[str, str]:
    """Where the evidence is now: in a file of its own, beside those of other times."""
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
