"""A small enclave of version 1: alice owns it, bob writes, carol is an admin, dave gets pushes, mallory has no role."""

from tests.core.world import pub
from tests.core.world_v1 import OWNER, initial, manifest, row

__all__ = ["ADMIN", "DATAVIEW", "ENDPOINT", "MEMBER", "OWNER", "SCHEMA", "SMALL_V1"]

ADMIN, MEMBER, DATAVIEW = 1 << 32, 1 << 33, 1 << 34
ENDPOINT = "https://dataview.example/hook"

SCHEMA = [
    row("Grant", "Owner", "C", "Admin", "Member", "DataView"),
    row("Grant", "Admin", "C", "Member"),
    row("Grant_Push", "Owner", "C", "DataView"),
    row("Revoke", "Owner", "C", "Admin", "Member", "DataView"),
    row("Revoke", "Admin", "C", "Member"),
    row("Revoke_Self", "Member", "C", "Member"),
    row("Move", "Owner", "C", "Admin", "Member", "DataView"),
    row("Move", "Admin", "C", "Member"),
    *(row(type_, "Owner", "C") for type_ in ("Force_Move", "Transfer_Owner", "Pause", "Resume", "Terminate")),
    row("message", "Member", "C"),
    row("message", "Self", "UD"),
    row("message", "Admin", "D"),
    row("Shared", "Member", "C"),
    row("Shared", "Self", "U"),
    row("note", "Any", "C"),
    row("note", "Self", "R"),
    row("Report", "Node", "CR"),
    row("*", "Member", "R"),
    row("*", "DataView", "P"),
]
"""The types of content events: here `Shared` is one."""

SMALL_V1 = manifest(
    SCHEMA,
    {
        **initial(alice="Owner Member", carol="Admin Member", bob="Member"),
        "DataView": [{"identity": pub("dave"), "endpoint": ENDPOINT}],
    },
    bundle={"size": 4, "timeout": 5000},
)
