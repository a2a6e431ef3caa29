"""The group, as an app uses it: one face for everything that people do in it."""

import secrets
from collections.abc import Mapping
from typing import Any

from enc.apps.group.errors import NotAlone
from enc.apps.group.inviting import Inviting
from enc.apps.group.manifest import AUTO_JOIN, group_manifest
from enc.apps.group.rights import MAX_TOPIC, check_text
from enc.apps.group.talking import Talking
from enc.client import Client
from enc.core.errors import EncError

APP = "group"
"""What a registry lists it as."""


class Group(Inviting, Talking):
    """One group, seen by one identity through a blocking client.

    Nothing is asked when it is made; `sync` (or `follow`) reads the log, and everything that is shown comes from there.
    Every sending method syncs first. An admin's client heals: where the group is stale it makes a new epoch before
    anything else. All methods may be called from several threads; one `follow` at a time.

    Errors: `NotAMember`, `NotSealable` (no epoch to seal under: an admin must rotate first), `Distrust` with evidence
    (the node shows what the rules refuse, or withholds events), and whatever the node refuses.
    """

    unannounced: str = ""
    """Why the registry was not told of it when it was founded: `announce_place` tells it again."""

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
        """Found a group: the Manifest, the Gate that closes `auto_join`, the first epoch, the topic; then the registry.

        Until the Gate stands in the log nobody is told the group's id, and nothing else is sent. Whoever got in all the
        same (the node, which knows the id) is found in the log, and the group is given up: NotAlone.
        """
        if topic is not None:
            check_text(topic, MAX_TOPIC, "topic", least=0)
        named = {"nonce": secrets.token_hex(8), **(meta or {})}
        enclave = client.create(group_manifest(client.identity.public, meta=named, bundle=bundle))
        closed = enclave.gate(AUTO_JOIN, open=False)
        group = cls(client, enclave, **options)
        group._pull_to(closed)
        if group._fold.roll.members != {group.me}:
            raise NotAlone("somebody joined before the door was closed: the group is given up")
        group.rotate()
        if topic is not None:
            group.set_topic(topic)
        try:
            group.announce_place()
        except EncError as e:  # the group is there all the same, and its id must not be lost
            group.unannounced = e.message
        return group

    def announce_place(self) -> bool:
        """Tell the registry where the group is, as its owner; False without a registry.

        Whoever has the id then finds it, on any device and after a move. Nothing of who is in it is told.
        """
        if not self._client.has_registry:
            return False
        self._enclave.register(app=APP)
        return True
