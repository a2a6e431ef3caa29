"""A personal store: a profile, a sealed diary on two devices, and an invitation that counts only once it is proved.

The node stores everything and can read nothing that is private.
"""

from local_node import local_node

from enc import Client, Identity
from enc.apps import Personal
from enc.apps.people import Place
from enc.apps.personal import NotConfirmed
from enc.client.enclave.templates import template

AT_ONCE = {"size": 1}  # each event is a bundle, and so is proved at once
ada, bob = Identity.new(), Identity.new()

with local_node() as node, Client(node, ada, pins=None) as hers, Client(node, bob, pins=None) as his:
    store = Personal.create(hers, display_name="Ada", bundle=AT_ONCE)
    store.set_profile(bio="I count.")
    store.post("Hello, world")
    diary = store.add("Diary", "It rained.")
    store.add("Soup", "Leek and potato", kind="recipe")

    # A second device has the identity's key and the enclave's id, and nothing else.
    with Client(node, ada, pins=None) as other:
        device = Personal(other, store.enclave.id)
        device.change(diary.id, text="It rained again.")
        print("The second device shows her profile:", device.profile().display_name, "-", device.profile().bio)
        print("and has her documents:", *(f"{each.name} ({each.kind})" for each in device.documents()))
    print("Found on the first by the word 'again':", *(each.text for each in store.documents("again")))
    print("What the node stores of it:", (store.enclave.content(store.enclave.event(diary.id)) or "")[:40], "…")

    # Ada notifies Bob that he is in the garden's group; he is not, yet.
    inbox = Personal.create(his, bundle=AT_ONCE)
    garden = hers.create(template("team", ada.public) | {"meta": {"title": "Garden"}, "bundle": AT_ONCE})
    there, secret = Place(inbox.enclave.id), bytes(range(32))
    store.notify(bob.public, "group_invite", garden.id, "group", topic="Garden", secret=secret, epoch_n=0, place=there)
    (notice,) = inbox.notices()
    try:
        inbox.handoff(notice)
    except NotConfirmed:
        print("Bob's notice is", notice.state, "and has no effect yet.")
    garden.move(bob.public, "OUTSIDER", "MEMBER")
    (notice,) = inbox.notices()
    print("Ada has admitted him. It is", notice.state, "by a proof:", notice.notice.topic)
    print("The secret in it opens:", inbox.handoff(notice) == secret)

    # Eve sends a notice in Ada's name, about a Move that the group does not have.
    with Client(node, pins=None) as eve:
        Personal(eve, inbox.enclave.id).notify(
            bob.public, "group_invite", garden.id, "group", topic="Free soup", inviter=ada.public,
            move_ref=store.enclave.manifest().id, place=there,
        )  # fmt: skip
    print("Eve's notice stays", inbox.notices()[-1].state, "- and is not an invitation.")
