"""The group, as an app uses it: one face for everything that people do in it."""

import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any

from enc.apps.group.errors import NotAlone
from enc.apps.group.inviting import Inviting, confirm, read_invitation
from enc.apps.group.manifest import AUTO_JOIN, group_manifest
from enc.apps.group.talking import Talking
from enc.apps.group.views import Invitation
from enc.client import Client, Enclave


class Group(Inviting, Talking):
    """One group, seen by one identity through a blocking client.

    Nothing is asked when it is made; `sync` (or `follow`) reads the log, and everything that is shown comes from there.
    Every sending method syncs first. An admin's client heals: where the group is stale it makes a new epoch before
    anything else. All methods may be called from several threads; one `follow` at a time.

    Errors: `NotAMember`, `NotSealable` (no epoch to seal under: an admin must rotate first), `Distrust` with evidence
    (the node shows what the rules refuse, or withholds events), and whatever the node refuses.
    """

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
        """Found a group: the Manifest, the Gate that closes `auto_join`, the first epoch, then the topic.

        Until the Gate stands in the log nobody is told the group's id, and nothing else is sent. Whoever got in all the
        same (the node, which knows the id) is found in the log, and the group is given up: NotAlone.
        """
        named = {"nonce": secrets.token_hex(8), **(meta or {})}
        enclave = client.create(group_manifest(client.identity.public, meta=named, bundle=bundle))
        enclave.gate(AUTO_JOIN, open=False)
        group = cls(client, enclave, **options)
        group._pull()
        if group._fold.roll.members != {group.me}:
            raise NotAlone("somebody joined before the door was closed: the group is given up")
        group.rotate()
        if topic is not None:
            group.set_topic(topic)
        return group


def invitations(
    client: Client,
    personal: Enclave,
    *,
    group: Callable[[bytes], Inviting] | None = None,
    clock: Callable[[], int] | None = None,
) -> list[Invitation]:
    """The group invitations in one's personal enclave, oldest first, each looked up in its group's own log.

    `group` opens a group by its id, where the client does not reach it by itself.
    """
    now = (clock or (lambda: time.time_ns() // 1_000_000))()
    opened = group or (lambda id_: Group(client, id_, heal=False))
    found = list[Invitation]()
    for item in personal.query(type="notice"):
        invitation = read_invitation(client, item)
        if invitation is not None:
            found.append(confirm(invitation, opened, item.event.timestamp, now))
    return found
