"""An end-to-end encrypted group: three people, one of whom leaves, and what each of them can decrypt.

Ann creates the group and is its admin. Every change of members makes a new epoch, with a secret that only the members
of that time can open; her client makes it automatically. Bob joins early and leaves, Cleo joins late.
"""

from local_node import local_node

from enc import Client, Identity
from enc.apps.group import Group, NotAMember

ann, bob, cleo = (Identity.new() for _ in range(3))
NAMES = {ann.public: "Ann", bob.public: "Bob", cleo.public: "Cleo"}


def show(whose: str, group: Group) -> None:
    print(f"{whose} reads:")
    for entry in group.entries():
        reactions = "".join(f" [{reaction.text} {NAMES[reaction.author]}]" for reaction in entry.reactions)
        print(f"  {NAMES[entry.author]}: {entry.text or f'({entry.why})'}{reactions}")


with (
    local_node() as url,
    Client(url, ann, pins=None) as at_ann,
    Client(url, bob, pins=None) as at_bob,
    Client(url, cleo, pins=None) as at_cleo,
):
    anns = Group.create(at_ann, topic="the summer")
    anns.invite(bob.public, notify=False)  # with a registry, a notice in his personal store would inform him
    bobs, cleos = Group(at_bob, anns.id), Group(at_cleo, anns.id)

    hello = anns.say("Hello, Bob.")
    bobs.say("Hello, Ann.", reply_to=hello.id)
    bobs.react(hello.id, "👋")
    bobs.leave()
    anns.invite(cleo.public, notify=False)
    status = anns.status()
    print(f"Bob has left and Cleo has joined: epoch {status.epoch.n}, {'stale' if status.is_stale else 'fresh'}.")
    with cleos.follow() as changes:
        anns.say("Welcome, Cleo.")
        print("Cleo receives:", next(change.entry.text for change in changes if change.entry and change.entry.text))

    anns.sync()
    show("Ann", anns)
    show("Cleo", cleos)
    stored = " ".join(item.content or "" for item in at_ann.enclave(anns.id).query(type="message"))
    print(f"What the node stores: {stored[:44]}…; any plaintext: {'Hello' in stored or 'Welcome' in stored}")
    try:
        bobs.sync()
    except NotAMember as refusal:
        print(f"Bob: {refusal.message}.")
