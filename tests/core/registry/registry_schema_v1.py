"""The registry's schema of the version 1 document."""

from tests.core.world import Json, pub
from tests.core.world_v1 import row

KINDS = ("Reg_Node", "Reg_Enclave", "Reg_Identity")


SCHEMA: Json = {
    "enc_v": 1,
    "registry": True,
    "RBAC": {
        "use_temp": "none",
        "schema": [
            row("*", "Any", "R"),
            row("*", "DataView", "P"),
            *(entry for kind in KINDS for entry in (row(kind, "Any", "C"), row(kind, "Self", "UD"))),
            row("Grant_Push", "Owner", "C", "DataView"),
            row("Revoke", "Owner", "C", "DataView"),
            *(row(type_, "Owner", "C") for type_ in ("Transfer_Owner", "Pause", "Resume", "Terminate")),
        ],
        "initial_state": {
            "Owner": [pub("olga")],
            "DataView": [{"identity": pub("dave"), "endpoint": "https://dataview.example/"}],
        },
    },
}
"""The schema exactly as in the document."""
