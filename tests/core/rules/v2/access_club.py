"""A club with members of every State and trait, for tests of version 2's access control."""

from typing import Any

from hypothesis import strategies as st

from enc.core.errors import (
    EncError,
)
from enc.core.rules.policy_types import EndpointChange, Subject
from tests.core.world import Json, World, gated, give, grant, init, move, path, person, rule

STATES = ["PENDING", "MEMBER", "BLOCKED"]


PENDING, MEMBER, BLOCKED = 1, 2, 3


OWNER, ADMIN, MODERATOR, MUTED, DATAVIEW = (1 << 8 + i for i in range(5))


PEOPLE = {
    "olga": "MEMBER owner",
    "adam": "MEMBER admin",
    "anna": "MEMBER admin",
    "mona": "MEMBER moderator",
    "mute": "MEMBER muted",
    "mark": "MEMBER",
    "mary": "MEMBER",
    "pete": "PENDING",
    "blake": "BLOCKED",
    "dave": "OUTSIDER dataview",
}
"""Everybody else, such as otto, is OUTSIDER."""


def club(**sections: Any) -> World:
    manifest: Json = {
        "enc_v": 2,
        "states": STATES,
        "traits": ["owner(0)", "admin(1)", "moderator(1)", "muted(2)", "dataview(3)"],
        "init": init(**PEOPLE),
        **sections,
    }
    return World(manifest)


def ended(name: str, *traits: str) -> EndpointChange:
    return EndpointChange(person(name).public, traits, None)


def is_(error: EncError, kind: type[EncError], **context: Any) -> bool:
    return (type(error), error.context) == (kind, context)


GATED_NOTE = rule("note", "MEMBER", "C", **gated("notes", "admin", "PENDING"))


def turn(state: str, alias: str = "notes") -> Json:
    return {"alias": alias, "state": state}


EVERYTHING: Json = {
    "moves": [path(a, b, "owner") for a in ["OUTSIDER", *STATES] for b in ["OUTSIDER", *STATES] if a != b]
    + [path("MEMBER", "BLOCKED", "admin"), path("BLOCKED", "MEMBER", "admin", **gated("mercy", "owner", "admin"))],
    "grants": [
        grant(type_, operator, trait, "OUTSIDER PENDING MEMBER")
        for type_ in ("Grant", "Revoke")
        for operator, trait in [("owner", "owner admin dataview"), ("admin", "muted")]
    ],
    "transfers": [{"trait": ["owner", "muted"], "scope": ["MEMBER"]}],
}


def op(type_: str, content: Json) -> Json:
    return {"type": type_, **content}


def slot(key: str, value: Any) -> Json:
    return {"key": key, "value": value}


EDITABLE = [rule("note", "MEMBER", "C"), rule("note", "Sender", "U D"), rule("note", "admin", "U D")]


GONE = {"reason": "author"}


def event(type_: str, **selects: Any) -> Subject:
    return Subject(type_, **selects)


ops = st.lists(st.sampled_from([*"CRUDPN", "_C", "_U", "_R"]), min_size=1, max_size=4).map(" ".join)


KINDS = [
    event("note"),
    event("Manifest"),
    *(event(type_, key=key) for type_ in ("Shared", "Own") for key in ("k", "l")),
    *(event("Move", from_state=a, to_state=b) for a, b in [("OUTSIDER", "MEMBER"), ("MEMBER", "PENDING")]),
    *(event(type_, trait=trait) for type_ in ("Grant", "Revoke") for trait in ("muted", "admin")),
]


names = st.sampled_from(["olga", "adam", "anna", "mute", "mark", "pete", "dave", "otto"])


states = st.sampled_from(["OUTSIDER", *STATES])


traits = st.sampled_from(["owner", "admin", "muted", "dataview"])


operations = st.one_of(
    st.builds(lambda name, to: op("Move", move(name, "as it is", to)), names, states),
    st.builds(lambda name, from_, to: op("Move", move(name, from_, to)), names, states, states),
    st.builds(lambda type_, *what: op(type_, give(*what)), st.sampled_from(["Grant", "Revoke"]), names, traits),
    st.builds(lambda *what: op("Transfer", give(*what)), names, st.sampled_from(["owner", "muted"])),
    st.builds(lambda name: op("Grant", give(name, "dataview", endpoint="https://example.org/")), names),
    st.builds(lambda state: op("Gate", turn(state, "mercy")), st.sampled_from(["open", "closed"])),
)
