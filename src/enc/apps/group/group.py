"""The class that apps use: everything people do in a group."""

import secrets
from collections.abc import Mapping
from typing import Any

from enc.apps.group.errors import NotAlone
from enc.apps.group.invite_actions import InviteActions
from enc.apps.group.manifest import AUTO_JOIN, group_manifest
from enc.apps.group.message_actions import MessageActions
from enc.apps.group.rights import MAX_TOPIC, check_text
from enc.client import Client
from enc.core.errors import EncError

APP = "group"
"""The app name under which a registry lists groups."""


class Group(InviteActions, MessageActions):
    """One group, seen by one identity through a blocking client.

    Creating the object sends no request. `sync` or `follow` reads the log, from which everything
    shown is computed. Every sending method syncs first. An admin's client heals: if the group is
    stale, it makes a new epoch before anything else. All methods may be called from several
    threads, but there may be only one `follow` at a time.

    Errors: `NotAMember`, `NotSealable` (no epoch to seal under: an admin must rotate first),
    `Distrust` with evidence (the node shows events that the rules forbid, or withholds events), and
    those of the node.
    """

    unannounced: str = ""
    """Why the group could not be registered when it was created; `announce_place` tries again."""

    @classmethod
    def create(
        cls,
        client: Client,
        *,
        topic: str | None = None,
        meta: Mapping[str, Any] | None = None,
        bundle: Mapping[str, int] | None = None,
        **options: Any,
    ) -> "Group":
        """Create a group: the Manifest, the Gate that closes `auto_join`, the first epoch and the
        topic; then register it.

        Until the Gate is in the log, the group's id is given to nobody and nothing else is sent. If
        someone joined before (the node knows the id), the group is abandoned: NotAlone.
        """
        if topic is not None:
            check_text(topic, MAX_TOPIC, "topic", least=0)
        named = {"nonce": secrets.token_hex(8), **(meta or {})}
        enclave = client.create(group_manifest(client.identity.public, meta=named, bundle=bundle))
        closed = enclave.gate(AUTO_JOIN, open=False)
        group = cls(client, enclave, **options)
        group._pull_to(closed)
        if group._fold.membership.members != {group.me}:
            raise NotAlone("someone joined before the gate was closed: the group is abandoned; create another one")
        group.rotate()
        if topic is not None:
            group.set_topic(topic)
        try:
            group.announce_place()
        except EncError as e:  # the group exists all the same, and its id must not be lost
            group.unannounced = e.message
        return group

    def announce_place(self) -> bool:
        """Register where the group is, as its owner; return False if the client has no registry.

        Then anyone with the id finds the group, on any device and after a move. The registry learns
        nothing about the members.
        """
        if not self._client.has_registry:
            return False
        self._enclave.register(app=APP)
        return True
