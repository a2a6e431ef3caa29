"""Steps of the demo: a registry and two nodes, and the people who use them."""

import json
import urllib.request

from demo.stage import Stage, free_port


def nodes(stage: Stage) -> None:
    """A registry and two nodes"""
    stage.explain(
        "A node stores logs, called enclaves, and orders the events in them. It is not trusted: clients verify every "
        "answer. A registry, itself an enclave, lists which node has which enclave. Here are two nodes; the first one "
        "also hosts the registry."
    )
    for name in ("north", "south"):
        _start(stage, name, free_port())
    stage.enc("operator", "key", "new", "--no-passphrase", quiet=True)
    stage.enc("operator", "config", "set", "node", stage.known["north"], quiet=True)
    stage.known["registry"] = stage.enc("operator", "registry", "init", "--use").split()[0]
    id_ = stage.known["registry"].partition("#")[2].partition(":")[0]
    stage.explain("The first node is started again, now with the registry's id: from then on it answers lookups.")
    stage.stop("north")
    _start(stage, "north", stage.known["north"].rpartition(":")[2], "--registry", id_)
    for name in ("north", "south"):
        stage.enc("operator", "registry", "register-node", stage.known[name], "--key", f"{name}/node.key", quiet=True)
    found = [_endpoint(stage, name) for name in ("north", "south")]
    stage.holds("both nodes run, and the registry lists them", found == [stage.known["north"], stage.known["south"]])


def _start(stage: Stage, name: str, port: str, *more: str) -> None:
    ready = stage.start("operator", name, "node", "run", "--data", name, "--port", port, "--dev", *more)
    stage.known[name], stage.known[f"{name} key"] = ready["url"], ready["seq_pub"]


def _endpoint(stage: Stage, name: str) -> str:
    """Return a node's URL from the registry."""
    url = f"{stage.known['north']}/nodes/{stage.known[f'{name} key']}"
    with urllib.request.urlopen(url) as answer:  # noqa: S310
        return str(json.load(answer)["endpoints"][0]["uri"])


def people(stage: Stage) -> None:
    """Three people"""
    stage.explain(
        "An identity is a key pair, created on this machine and stored in a file; no authority issues or revokes it. "
        "Ada and Cleo use the first node, Bob the second."
    )
    for who, node in (("ada", "north"), ("bob", "south"), ("cleo", "north")):
        stage.enc(who, "config", "set", "node", stage.known[node], quiet=True)
        stage.enc(who, "config", "set", "registry", stage.known["registry"], quiet=True)
        stage.known[who] = stage.enc(who, "key", "new", "--no-passphrase").split()[1]
    stage.holds("each has a separate key", len({stage.known[who] for who in ("ada", "bob", "cleo")}) == 3)


def stores(stage: Stage) -> None:
    """Personal stores and mailboxes"""
    stage.explain(
        "Each creates a personal store, and Ada and Bob mailboxes: enclaves that belong to their key, whichever node "
        "hosts them. A post is public; the diary is encrypted on this machine: the node cannot read it."
    )
    for who, name in (("ada", "Ada"), ("bob", "Bob"), ("cleo", "Cleo")):
        stage.enc(who, "me", "create", "--name", name, quiet=True)
        if who != "cleo":
            stage.enc(who, "dm", "create", "--name", name, quiet=True)
    stage.enc("ada", "me", "post", "Hello from Ada")
    stage.enc("bob", "me", "post", "Bob is here, too", quiet=True)
    stage.enc("ada", "me", "add", "Diary", "It rained.", quiet=True)
    listed = stage.enc("ada", "me", "list")
    stage.holds("Ada can read the diary", "Diary" in listed)
    stage.holds("no file of any node contains its text", not holding(stage, "It rained."))
    stage.holds("the search finds the public post, which is not sealed", holding(stage, "Hello from Ada"))


def holding(stage: Stage, words: str) -> list[str]:
    """Return the nodes' files that contain these words, as `grep -rl` would."""
    folders = [stage.folder / name for name in ("north", "south")]
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return [path.name for path in files if words.encode() in path.read_bytes()]
