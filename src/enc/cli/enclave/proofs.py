"""`enc prove`, `enc verify` and `enc head`: proofs that can be verified offline."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from enc.cli.common import known_ids
from enc.cli.common.command import LOCAL, WITNESSED, command
from enc.cli.common.command_context import CommandContext, read
from enc.cli.common.exits import FAILED
from enc.cli.common.output import fields, visible
from enc.cli.common.prefixes import check_whole
from enc.cli.enclave.commands import text_head
from enc.core.errors import InvalidProof, MisuseError
from enc.core.primitives.encoding import decode_json

if TYPE_CHECKING:
    from enc.client import Enclave, Proof, StateFact
    from enc.core.primitives.types import TreeHead

app = typer.Typer()
PANEL = "Proofs"


@command(
    app,
    "enc head",
    "enc head --json > head.json",
    "enc head --witness https://w1.example=$KEY1 --witness https://w2.example=$KEY2 --witnesses 2",
    flags=WITNESSED,
    panel=PANEL,
)
def head(ctx: CommandContext) -> None:
    """Print the newest signed head. It extends every head you have seen before. Compare it with what others see.

    With witnesses, they must confirm it: if too few do, the exit code is 3; if one saw another log, it is 4, with
    evidence.
    """
    from enc.core.trees.tree_head import wire_head

    with ctx.enclave(anonymous=True) as enclave:
        found = enclave.head()
        wire, text = _witnessed(enclave, found)
    ctx.emit({**wire_head(found), "enclave": enclave.hex, **wire}, text_head(found) + text)


def _witnessed(enclave: "Enclave", head: "TreeHead") -> tuple[dict[str, Any], str]:
    """Return the witnesses' confirmation of a head, for programs and for people; empty without witnesses."""
    from enc.core.trees.cosigning import wire_cosigned

    found = enclave.witnessed(head)
    if found is None:
        return {}, ""
    cosigned = [wire_cosigned(each) for each in found.cosigned]
    wire = {"count": found.count, "needed": found.k, "of": found.n, "size": found.size, "cosigned": cosigned}
    return {"witnessed": wire}, f"\nwitnessed: {found}"


@command(app, "enc prove 7 -o proof.json", "enc prove --slot topic -o topic.json", flags=WITNESSED, panel=PANEL)
def prove(
    ctx: CommandContext,
    event: Annotated[
        str | None,
        typer.Argument(metavar="EVENT", help="An event: its seq, its id, or the first 8 or more digits of it."),
    ] = None,
    member: Annotated[
        str | None, typer.Option(metavar="WHO", help="Prove the State and traits of this identity.")
    ] = None,
    slot: Annotated[str | None, typer.Option(metavar="KEY", help="Prove the value of this slot.")] = None,
    own: Annotated[bool, typer.Option("--own", help="One of your own slots instead of a shared one.")] = False,
    file: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="The file to write. Default: stdout.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the event's bundle closes.")] = True,
) -> None:
    """Write a self-contained proof of an event, or of the state after the last closed bundle.

    Anyone who has the file can verify it with `enc verify`, offline and at any time.
    """
    if [event, member, slot].count(None) != 2:
        raise MisuseError("give exactly one of: an event, --member ID, --slot KEY")
    with ctx.client() as client:
        enclave = client.enclave(ctx.enclave_id())
        me = client.identity.public
        if member is not None:
            member = known_ids.identity(member, {me: "you"}, what="--member")
        proof = (
            _event(enclave, event, wait) if event is not None else _state(enclave, member, slot, me if own else None)
        )
        anchor = proof.fact.anchor
        witnessed, text = _witnessed(enclave, anchor.head)
    if file is None:
        typer.echo(proof.json(), nl=False)
        return
    proof.save(file)
    wire = {"file": str(file), "enclave": enclave.hex, "bundle": anchor.index}
    ctx.emit({**wire, **witnessed}, fields(**wire) + text)


def _event(enclave: "Enclave", event: str, wait: bool) -> "Proof":
    return enclave.proof(known_ids.event(enclave, event), wait=wait).file


def _state(enclave: "Enclave", member: str | None, slot: str | None, owner: bytes | None) -> "Proof":
    from enc.client.verify.proof_file import Proof

    fact, sequencer = _state_fact(enclave, member, slot, owner), enclave.sequencer()
    return Proof(enclave.id, sequencer, fact, enclave.sequencers().moves_to(sequencer))


def _state_fact(enclave: "Enclave", member: str | None, slot: str | None, owner: bytes | None) -> "StateFact":
    from enc.core.trees.state_key import own_slot, shared_slot

    if member is not None:
        return enclave.state("rbac", member)
    key = slot or ""
    return enclave.state("kv", shared_slot(key) if owner is None else own_slot(owner, key))


class _Header(msgspec.Struct):
    format: str


_header = msgspec.json.Decoder(_Header)


@command(app, "enc verify proof.json", "enc verify enc-evidence-fork-1.json --json", flags=LOCAL, panel=PANEL)
def verify(
    ctx: CommandContext,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A proof, or evidence against a node; - for stdin.")],
    sequencer: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="The expected sequencer, as a whole key; the proof of another one fails."),
    ] = None,
) -> None:
    """Verify a proof or evidence offline, and print exactly what it proves and what it does not.

    Exit code 0: the proof holds, the evidence convicts the sequencer, or the finding of an audit holds. 1: otherwise.
    """
    if sequencer is not None:
        check_whole(sequencer, "--sequencer")
    try:
        found = _check(read(file), sequencer)
    except InvalidProof as e:
        found = {"ok": False, "code": e.code, "message": e.message}
    ctx.emit(found, _text(found))
    if not found["ok"]:
        raise typer.Exit(FAILED)


def _check(data: bytes, sequencer: str | None) -> dict[str, Any]:
    try:
        format_ = decode_json(data, _header, InvalidProof).format
    except InvalidProof:
        format_ = ""
    if format_ not in _CHECKS:
        raise InvalidProof(f"neither a proof nor evidence: expected format {' or '.join(_CHECKS)}")
    found = {"format": format_, **_CHECKS[format_](data)}
    if sequencer is not None and found["sequencer"] != sequencer.lower():
        raise InvalidProof(f"signed by {found['sequencer']}, not by {sequencer}")
    return found if sequencer is None else _without_key_remark(found)


def _without_key_remark(found: dict[str, Any]) -> dict[str, Any]:
    """Remove the line that the key is not proved: the caller gave the expected key, and it matched."""
    from enc.client.evidence.verdict import KEY_OWNER
    from enc.client.verify.proof_file import KEY_UNKNOWN

    return {**found, "not_proved": [line for line in found["not_proved"] if line not in (KEY_OWNER, KEY_UNKNOWN)]}


def _proof(data: bytes) -> dict[str, Any]:
    from enc.client.verify.proof_file import check_proof, load_proof

    proof = load_proof(data)
    result = check_proof(proof)
    return {"ok": True, **_wire(proof.enclave, proof.sequencer, result.proved, result.not_proved)}


def _evidence(data: bytes) -> dict[str, Any]:
    from enc.client import check_evidence, load_evidence

    evidence = load_evidence(data)
    result = check_evidence(evidence)
    wire = _wire(evidence.enclave, evidence.sequencer, result.proved, result.not_proved)
    convicts = {"ok": result.convicts or result.holds, "convicts": result.convicts}
    return {**convicts, "kind": evidence.kind, "message": evidence.message, **wire}


_CHECKS = {"enc-proof": _proof, "enc-evidence": _evidence}


def _wire(enclave: bytes, sequencer: bytes, proved: tuple[str, ...], not_proved: tuple[str, ...]) -> dict[str, Any]:
    return {
        "enclave": enclave.hex(),
        "sequencer": sequencer.hex(),
        "proved": list(proved),
        "not_proved": list(not_proved),
    }


def _text(found: dict[str, Any]) -> str:
    if "proved" not in found:
        return visible(f"Nothing is proved: {found['message']}")
    verdict = "The proof holds."
    if found["format"] == "enc-evidence" and found["convicts"]:
        verdict = "The evidence convicts the sequencer."
    elif found["format"] == "enc-evidence":
        verdict = "The finding holds; the evidence convicts nobody." if found["ok"] else "The evidence convicts nobody."
    lists = [("Proved:", found["proved"]), ("Not proved:", found["not_proved"])]
    lines = [line for head, items in lists if items for line in (head, *(f"  {visible(item)}" for item in items))]
    return "\n".join([verdict, *lines])
