"""People talk: direct messages over two nodes, and a group; both end-to-end encrypted."""

from demo.places import holding
from demo.stage import Stage


def messages(stage: Stage) -> None:
    """Direct messages, end-to-end encrypted"""
    stage.explain(
        "Ada writes to Bob, whose mailbox is on the other node. The two agree on keys and renew them as they "
        "talk; the nodes carry sealed text. Edited and retracted texts are erased on both sides."
    )
    stage.enc("ada", "dm", "add", "Bob", "--yes", "--greeting", "Hi, it is Ada")
    stage.enc("bob", "dm", "invites")
    stage.enc("bob", "dm", "accept", "Ada", "--yes", quiet=True)
    stage.enc("bob", "dm", "send", "Ada", "Hello, Ada", quiet=True)
    stage.enc("ada", "dm", "send", "Bob", "Dinner at seven?")
    stage.enc("ada", "dm", "edit", "Bob", "Dinner at eight?")
    stage.enc("bob", "dm", "send", "Ada", "Wrong window, sorry", quiet=True)
    stage.enc("bob", "dm", "retract", "Ada")
    stage.enc("bob", "dm", "send", "Ada", "I bring dessert", quiet=True)
    thread = stage.enc("ada", "dm", "read", "Bob")
    is_edited = "Dinner at eight?" in thread and "seven" not in thread
    stage.holds("both see the edited text, and the retracted message is gone", is_edited and "Wrong" not in thread)
    stage.shell("operator", "grep", "-rl", "-e", "Dinner", "-e", "dessert", "north", "south", code=1)
    stage.holds("grep finds none of their texts in any file of either node", not holding(stage, "Dinner"))


def group(stage: Stage) -> None:
    """A group, end-to-end encrypted"""
    stage.explain(
        "A group has a secret that changes with its members: new members cannot read earlier messages, and former "
        "members cannot read later ones."
    )
    stage.enc("ada", "group", "create", "plans", "--topic", "the summer", quiet=True)
    stage.enc("ada", "group", "invite", "plans", "Bob", "--yes", quiet=True)
    _accept(stage, "bob")
    said = stage.ask("ada", "group", "say", "plans", "Where shall we go?")
    stage.enc("bob", "group", "say", "plans", "To the sea!", quiet=True)
    stage.enc("ada", "group", "edit", "plans", str(said["seq"]), "Where shall we go in June?", quiet=True)
    stage.enc("bob", "group", "react", "plans", str(said["seq"]), "👍", quiet=True)
    stage.enc("ada", "group", "invite", "plans", "Cleo", "--yes", quiet=True)
    _accept(stage, "cleo")
    stage.enc("ada", "group", "say", "plans", "Welcome, Cleo", quiet=True)
    bobs = stage.enc("bob", "group", "read", "plans")
    cleos = stage.enc("cleo", "group", "read", "plans")
    stage.holds("Bob reads all of it, as it was edited", "in June?" in bobs and "Welcome" in bobs)
    stage.holds("Cleo reads only messages since she joined", "Welcome" in cleos and "June" not in cleos)


def _accept(stage: Stage, who: str) -> None:
    """Accept the only invitation. The group's own log confirms it."""
    invited = stage.ask(who, "group", "invitations")
    stage.enc(who, "group", "accept", "plans", invited["enclave"], quiet=True)
