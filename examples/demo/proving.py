"""Steps of the demo: edits and deletions that leave a trace, a proof in a file, and a node that lies."""

import json

from demo.stage import Stage, free_port
from enc.client.enclave.templates import template

TALK = ("--type", "message", "--type", "Update", "--type", "Delete")
AT_ONCE = {"size": 1}
"""Bundle settings: every event closes a bundle, so that it can be proved at once."""


def edits(stage: Stage) -> None:
    """Write, edit, delete"""
    stage.explain(
        "Ada creates an enclave for a team from a manifest, harbour.json, which defines everybody's rights, and admits "
        "Bob. Deleted or replaced content is erased; the log keeps that it existed, and who removed it."
    )
    _create(stage, "harbour")
    stage.enc("ada", "registry", "register-enclave", "--app", "demo", "--desc", "harbour", quiet=True)
    first = str(stage.ask("bob", "commit", "message", "The boat leaves at nine")["seq"])
    stage.known["boat"] = str(stage.ask("bob", "update", first, "The boat leaves at ten")["seq"])
    rude = str(stage.ask("ada", "commit", "message", "Eve owes me money")["seq"])
    stage.enc("ada", "delete", rude, "--note", "never mind", quiet=True)
    found = stage.enc("ada", "query", *TALK)
    stage.holds("the new text is stored, and the deleted message is not", "at ten" in found and "Eve" not in found)


def _create(stage: Stage, name: str) -> None:
    """Create an enclave of Ada's with Bob as a member, and set it in both their profiles."""
    manifest = {**template("team", bytes.fromhex(stage.known["ada"])), "meta": {"name": name}, "bundle": AT_ONCE}
    (stage.folder / f"{name}.json").write_text(json.dumps(manifest, indent=2))
    stage.known[name] = stage.enc("ada", "enclave", "create", f"./{name}.json", "--use").strip()
    stage.enc("ada", "move", stage.known["bob"], "OUTSIDER", "MEMBER", quiet=True)
    stage.enc("bob", "config", "set", "enclave", stage.known[name], quiet=True)


def proof(stage: Stage) -> None:
    """A proof, checked offline"""
    stage.explain(
        "A proof is a file: the event with its author's signature, its path to the root of the log, and the root as "
        "the node signed it. `enc verify` needs no node and no key. A proof with one changed letter is invalid."
    )
    stage.enc("bob", "prove", stage.known["boat"], "-o", "proof.json")
    stage.enc("bob", "verify", "proof.json")
    stage.shell("bob", "cp", "proof.json", "forged.json")
    stage.shell("bob", "sed", "-i", "s/The boat leaves at/The boat leaves by/", "forged.json")
    refused = stage.enc("bob", "verify", "forged.json", code=1)
    stage.holds("the proof is valid, and the forged one is not", "Nothing is proved" in refused)


def lie(stage: Stage) -> None:
    """A node that lies is caught"""
    stage.explain(
        "The first node's operator copies its key and its data, and runs a second node with them: Ada gets one "
        "ledger, Bob another. A copy signs nothing until its operator vouches that nothing is missing in it; this "
        "operator does so, and lies. Each log alone is valid. But Ada's client stores the head that was signed for "
        "her; it rejects the other log, and saves both signed heads as evidence."
    )
    _create(stage, "ledger")
    _copy(stage, "north", "liar")
    stage.enc("ada", "commit", "message", "Bob has paid 100", quiet=True)
    stage.enc("ada", "head")
    stage.enc("operator", "node", "adopt", "--data", "liar", "--yes")
    liar = stage.start("operator", "liar", "node", "run", "--data", "liar", "--port", free_port(), "--dev")["url"]
    stage.enc("bob", "commit", "message", "Bob has paid 200", "--node", liar, quiet=True)
    refused = stage.enc("ada", "head", "--node", liar, "--evidence", ".", code=4)
    (evidence,) = stage.folder.glob("enc-evidence-*.json")
    says = stage.enc("cleo", "verify", evidence.name)
    stage.stop("liar")
    stage.holds("Ada's client rejects the other log", "FORK" in refused)
    stage.holds("the evidence file alone convicts the node", "convicts the sequencer" in says)


def _copy(stage: Stage, name: str, to: str) -> None:
    """Copy a node: the same key, and the same log."""
    stage.shell("operator", "mkdir", "-m", "700", to)
    stage.enc("operator", "node", "backup", "--data", name, "--to", f"{to}/enc.db", quiet=True)
    stage.shell("operator", "cp", f"{name}/node.key", f"{to}/node.key")


def moving(stage: Stage) -> None:
    """An enclave moves to the other node"""
    stage.explain(
        "A node hosts an enclave but does not own it. Ada moves the harbour's log to the other node: the old one signs "
        "its last event, the new one replays everything, the registry is updated, and Bob's client follows by itself."
    )
    harbour = stage.known["harbour"]
    stage.enc("bob", "config", "set", "enclave", harbour, quiet=True)
    stage.enc("ada", "migrate", harbour, "--to", stage.known["south"])
    stage.enc("bob", "commit", "message", "We have moved", quiet=True)
    found = stage.enc("bob", "query", *TALK)
    where = stage.enc("bob", "registry", "resolve", harbour, quiet=True)
    stage.holds("the registry names the other node", stage.known["south"] in where)
    stage.holds("no event is lost, and the log continues there", "at ten" in found and "We have moved" in found)
