"""Direct messages: two people on two nodes, each with a mailbox; what a node can see, and what a new device gets."""

from local_node import local_node

from enc import Client, Identity
from enc.apps import Mailbox
from enc.apps.people import Place
from enc.core.errors import Unauthorized

with local_node() as node_a, local_node() as node_b:
    ada, bob = Identity.new(), Identity.new()
    with Client(node_a, ada, pins=None) as at_a, Client(node_b, bob, pins=None) as at_b:
        hers, his = Mailbox.create(at_a), Mailbox.create(at_b)
        names = {ada.public: "Ada", bob.public: "Bob"}

        def show(mailbox: Mailbox, with_whom: Identity) -> None:
            mailbox.sync()
            for entry in mailbox.thread(with_whom.public):
                text = entry.text if entry.text is not None else f"({entry.state})"
                mark = f" [{entry.state}{': ' + entry.code if entry.code else ''}]" if entry.state == "refused" else ""
                print(f"  {names[entry.author]}: {text}{' (edited)' if entry.is_edited else ''}{mark}")

        # With a registry, Bob's mailbox is found by his key.
        hers.add(bob.public, Place(his.enclave.id, node_b), greeting="Hi, it is Ada")
        his.sync()
        print("Bob is invited:", his.invites()[0].greeting)
        his.accept(ada.public)
        his.send(ada.public, "Hello, Ada")
        dinner = hers.send(bob.public, "Dinner at 7?")
        hers.edit(bob.public, dinner.ref, "Dinner at 8?")
        oops = his.send(ada.public, "Wrong window, sorry")
        his.retract(ada.public, oops.ref)
        hers.rotate(bob.public)  # new keys, which he gets with her next message
        hers.send(bob.public, "I bring dessert")
        his.send(ada.public, "Splendid")
        print("Both see:")
        show(his, ada)

        sealed = next(his.enclave.query(type="message", reverse=True))
        print("What the node stores of her last message:", (sealed.content or "")[:46] + "…")

        hers.block(bob.public)
        try:
            his.send(ada.public, "Are you there?")
        except Unauthorized as refusal:
            print("She has blocked him:", refusal.message)
        print("He sees that:")
        show(his, ada)

        phone = Mailbox(at_b, his.enclave.id)  # has only his key and the mailbox's id
        phone.sync()
        print("His new phone has the same thread:", phone.thread(ada.public) == his.thread(ada.public))
