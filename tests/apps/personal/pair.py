"""Two people on two nodes, one of whom invites the other."""

from typing import Any

from enc.apps.personal import Received
from enc.client import Client, Enclave, Identity
from enc.core.primitives.types import Receipt
from tests.apps.personal.conftest import AT_ONCE, Street

MAILBOX: dict[str, Any] = {
    "enc_v": 2,
    "bundle": AT_ONCE,
    "states": ["OWNER", "FRIEND", "BLOCKED"],
    "readers": [{"type": "OWNER", "reads": "*"}],
    "moves": [
        {"event": "Move", "from": "OUTSIDER", "to": "FRIEND", "operator": "OWNER", "ops": ["C"]},
        {"event": "Move", "from": "FRIEND", "to": "BLOCKED", "operator": "OWNER", "ops": ["C"]},
    ],
}
"""The part of a mailbox that confirms an invitation."""


def mailbox(owner: Client, **changes: Any) -> Enclave:
    init = [{"identity": owner.identity.hex, "state": "OWNER", "traits": []}]
    return owner.create({**MAILBOX, "init": init, "meta": {"n": Identity.new().hex}, **changes})


class Pair:
    """Ada invites, at node "a"; Bob is invited, and has his store at node "b"."""

    def __init__(self, street: Street, *, known: bool = True) -> None:
        self.street = street
        self.ada, self.bob = street.client(known=known), street.client(at="b", known=known)
        self.hers, self.his = street.store(self.ada), street.store(self.bob)

    def invited(self) -> tuple[Enclave, Receipt]:
        """Return a group of Ada's that Bob is a member of."""
        group = self.street.group(self.ada)
        return group, group.move(self.bob.identity.public, "OUTSIDER", "MEMBER")

    def notify(self, group: Enclave, **more: Any) -> Receipt:
        return self.hers.notify(self.bob.identity.public, "group_invite", group.id, "group", **more)

    def raw(self, content: str, tags: Any = ()) -> Receipt:
        """Write a notice that Ada's own program would not write."""
        return self.ada.enclave(self.his.enclave.id).commit("notice", content, tags=tags)

    def only(self, **more: Any) -> Received:
        (found,) = self.his.notices(**{"discard": False, **more})
        return found
