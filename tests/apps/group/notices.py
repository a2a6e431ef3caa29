"""dave's personal enclave, and the invitations in it."""

from typing import Any

from msgspec.structs import replace

from enc.apps.group import Invitation, invitations
from enc.client import Enclave
from enc.core.sealed_forms.personal import OpenedNotice, seal_notice
from tests.apps.group.party import Party, pubkey
from tests.core.world import person

PERSONAL: dict[str, Any] = {
    "enc_v": 2,
    "states": ["OWNER"],
    "readers": [{"type": "OWNER", "reads": "*", "retention": "current"}],
    "customs": [
        {"event": "notice", "operator": "OUTSIDER", "ops": ["C"], "alias": "notices", "gate": {"operator": ["OWNER"]}},
        {"event": "notice", "operator": "OWNER", "ops": ["D"]},
    ],
    "init": [{"identity": pubkey("dave").hex(), "state": "OWNER", "traits": []}],
}


def mail(party: Party, personal: Enclave) -> list[Invitation]:
    return invitations(personal._client, personal.id)


def forge(party: Party, personal: Enclave, by: str = "mallory", **changes: Any) -> None:
    """Write a notice with chosen fields."""
    key = person(by)
    notice = OpenedNotice(
        kind="group_invite", enclave_id=party.id.hex(), enclave_kind="group", inviter=key.public.hex()
    )
    sealed = seal_notice(key, pubkey("dave"), replace(notice, **changes), bytes(24))
    party.stage.client(by, pins=None).enclave(personal.id).commit("notice", sealed)
