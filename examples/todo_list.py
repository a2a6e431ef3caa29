"""A to-do list that three people share. The manifest defines their rights, and the node enforces them.

Alice owns the list. Bob is a member, who adds tasks and ticks off any. Carol is a guest, who can only read.
"""

from local_node import local_node

from enc import Client, Identity
from enc.core.errors import Unauthorized

alice, bob, carol = (Identity.new() for _ in range(3))
NAMES = {alice.public: "Alice", bob.public: "Bob", carol.public: "Carol"}
ADMIT = {"event": "Move", "from": "OUTSIDER", "operator": "owner", "ops": ["C"]}
MANIFEST = {
    "enc_v": 2,
    "states": ["GUEST", "MEMBER"],
    "traits": ["owner(0)"],
    "readers": [{"type": "GUEST", "reads": "*"}, {"type": "MEMBER", "reads": "*"}],
    "moves": [{**ADMIT, "to": "GUEST"}, {**ADMIT, "to": "MEMBER"}],
    "customs": [
        {"event": "task", "operator": "MEMBER", "ops": ["C", "U"]},
        {"event": "task", "operator": ["owner", "Sender"], "ops": ["D"]},
    ],
    "init": [{"identity": alice.hex, "state": "MEMBER", "traits": ["owner"]}],
    "bundle": {"size": 1},  # close a bundle with each event, so that everything can be proved at once
}

with (
    local_node() as url,
    Client(url, alice, pins=None) as at_alice,
    Client(url, bob, pins=None) as at_bob,
    Client(url, carol, pins=None) as at_carol,
):
    alices = at_alice.create(MANIFEST)
    alices.move(bob.public, "OUTSIDER", "MEMBER")
    alices.move(carol.public, "OUTSIDER", "GUEST")
    bobs, carols = (client.enclave(alices.id) for client in (at_bob, at_carol))
    print("The members, each proved:", ", ".join(f"{NAMES[m.identity]} {m.state}" for m in alices.members()))

    milk = alices.commit("task", "[ ] milk")
    bread, typo = (bobs.commit("task", text) for text in ("[ ] bread", "[ ] bred"))
    bobs.update(milk.id, "[x] milk")
    bobs.delete(typo.id)
    print("Alice adds one task and Bob two; Bob ticks off Alice's, and deletes one of his own.")

    for what, attempt in {
        "Carol adds a task": lambda: carols.commit("task", "[ ] sleep"),
        "Bob deletes Alice's": lambda: bobs.delete(milk.id),
    }.items():
        try:
            attempt()
            raise SystemExit(f"{what}, which should be rejected")
        except Unauthorized as error:
            print(f"{what}: rejected: {error}")

    print("Carol sees, with each event checked:")
    for item in carols.query(type="task"):
        print(f"  {carols.content(item)}, by {NAMES[item.author]}")
    print("The status of the three, proved:", ", ".join(carols.status(task.id) for task in (milk, bread, typo)))
