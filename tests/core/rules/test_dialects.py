"""The dialects: the same operations in either version, whom a content is about, and the URLs that it would register."""

from typing import Any

import pytest

from enc.core.errors import InvalidCommit, InvalidHash, MisuseError
from enc.core.log.commit import build_commit, build_manifest, check_hash, version_of
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.types import PREDEFINED, PREDEFINED_V1, VERSIONS, Commit
from enc.core.rules.dialect import RolesUnknownError
from enc.core.rules.dialects import DialectV1, DialectV2, dialect_of
from enc.core.rules.parse_manifest import parse_manifest
from tests.core.world import GROUP, NO_POINT, START, give, move, person, pub
from tests.core.world_v1 import ENDPOINT, bundle, change, has, initial, manifest, row

ROLES = {"Admin": 1 << 32, "Member": 1 << 33, "a,b": 1 << 34}
ONE, TWO = DialectV1(ROLES), DialectV2()
BOB = pub("bob")


def commit(type_: str, content: Any, enc_v: int) -> Commit:
    text = content if isinstance(content, str) else compact_json(content)
    return build_commit(person("alice"), bytes(32), type_, text, START, enc_v=enc_v)


# Writing

SAID: dict[str, tuple[Any, Any, Any]] = {
    "grant": (
        lambda d: d.grant(BOB, "Admin", None),
        ("Grant", {"role": "Admin", "identity": BOB}),
        ("Grant", {"target": BOB, "trait": "Admin"}),
    ),
    "grant, pushed": (
        lambda d: d.grant(BOB, "Admin", ENDPOINT),
        ("Grant_Push", {"role": "Admin", "identity": BOB, "endpoint": ENDPOINT}),
        ("Grant", {"target": BOB, "trait": "Admin", "endpoint": ENDPOINT}),
    ),
    "revoke": (
        lambda d: d.revoke(BOB, "Admin"),
        ("Revoke", {"role": "Admin", "identity": BOB}),
        ("Revoke", {"target": BOB, "trait": "Admin"}),
    ),
    "revoke_self": (
        lambda d: d.revoke_self(BOB, "Admin"),
        ("Revoke_Self", {"role": "Admin"}),
        ("Revoke", {"target": BOB, "trait": "Admin"}),
    ),
    "transfer": (
        lambda d: d.transfer(BOB, "Owner"),
        ("Transfer_Owner", {"new_owner": BOB}),
        ("Transfer", {"target": BOB, "trait": "Owner"}),
    ),
    "move": (
        lambda d: d.move(BOB, "Member", "Admin,Member", force=False),
        ("Move", change("bob", 1 << 33, 3 << 32)),
        ("Move", {"target": BOB, "from": "Member", "to": "Admin,Member"}),
    ),
}


@pytest.mark.parametrize("what", SAID)
def test_the_same_words_in_either_version(what: str) -> None:
    say, one, two = SAID[what]
    assert say(ONE) == one
    assert say(TWO) == two


@pytest.mark.parametrize(
    ("roles", "bitmask"),
    [
        ("0x0", "0x0"),
        ("0x300000002", "0x300000002"),
        ("", "0x0"),
        ([], "0x0"),
        ("Owner", "0x2"),
        ("Admin", "0x100000000"),
        ("Member, Admin", "0x300000000"),
        (["Member", "Admin", "Owner"], "0x300000002"),
        ("a,b", "0x400000000"),
        (["a,b", "Admin"], "0x500000000"),
        (("Admin", "Admin"), "0x100000000"),
    ],
)
def test_roles_by_name_or_by_bit(roles: Any, bitmask: str) -> None:
    assert ONE.move(BOB, roles, roles, force=True) == ("Force_Move", {"identity": BOB, "from": bitmask, "to": bitmask})


@pytest.mark.parametrize("roles", ["King", "Admin,King", ["King"], "0X1", "0x01", "Self", "admin"])
def test_a_name_that_is_no_role_is_told_the_roles(roles: Any) -> None:
    with pytest.raises(MisuseError, match="not a role of this enclave; its roles are Owner, Admin, Member"):
        ONE.move(BOB, roles, "0x0", force=False)


@pytest.mark.parametrize("roles", [1 << 32, None, [1 << 32], [None], b"Admin"])
@pytest.mark.parametrize("dialect", [ONE, DialectV1()], ids=["known roles", "unknown roles"])
def test_what_is_neither_names_nor_a_bitmask_s_text(dialect: DialectV1, roles: Any) -> None:
    with pytest.raises(MisuseError, match="a bitmask as text"):
        dialect.move(BOB, roles, "0x0", force=False)
    with pytest.raises(MisuseError, match="a bitmask as text"):
        dialect.operation({"type": "Move", "target": BOB, "from": "0x0", "to": roles})


def test_without_the_manifest_names_mean_nothing_and_bitmasks_do() -> None:
    assert dialect_of(1).move(BOB, "0x2", "0x0", force=False)[0] == "Move"
    with pytest.raises(RolesUnknownError):
        dialect_of(1).move(BOB, "0x2", "Admin", force=False)


def test_operations_of_a_bundle() -> None:
    words = {"type": "Move", "target": BOB, "from": "Admin", "to": ""}
    assert ONE.operation(words) == {"type": "Move", "identity": BOB, "from": "0x100000000", "to": "0x0"}
    assert TWO.operation(words) == words
    words = {"type": "Grant", "target": BOB, "trait": "Admin", "endpoint": ENDPOINT}
    assert ONE.operation(words) == {"type": "Grant_Push", "identity": BOB, "role": "Admin", "endpoint": ENDPOINT}
    spelled = {"type": "Revoke_Self", "role": "Admin"}
    assert ONE.operation(spelled) == spelled


@pytest.mark.parametrize(
    "say",
    [
        lambda: TWO.move(BOB, "A", "B", force=True),
        lambda: TWO.move(BOB, ["A"], "B", force=False),
        lambda: ONE.transfer(BOB, "Admin"),
        lambda: ONE.gate("invites", "open"),
        lambda: ONE.slot("Shared", "topic", 1),
    ],
)
def test_what_a_version_has_no_words_for(say: Any) -> None:
    with pytest.raises(MisuseError):
        say()


def test_version_1_signs_with_schnorr_only() -> None:
    assert [ONE.alg("ecdsa"), TWO.alg("ecdsa"), TWO.alg("schnorr")] == ["schnorr", "ecdsa", "schnorr"]


# Reading

CONCERNED: list[tuple[int, str, Any, str]] = [
    (1, "Grant", has("bob", "Admin"), "bob"),
    (1, "Grant_Push", has("bob", "Admin", endpoint=ENDPOINT), "bob"),
    (1, "Revoke", has("bob", "Admin"), "bob"),
    (1, "Revoke_Self", {"role": "Admin", "identity": BOB}, "alice"),
    (1, "Move", change("bob", 0, 1 << 40), "bob"),
    (1, "Force_Move", change("bob", 0, 0), "bob"),
    (1, "Transfer_Owner", {"new_owner": BOB}, "alice bob"),
    (1, "AC_Bundle", bundle(("Revoke_Self", {"role": "Admin"}), ("Grant", has("bob", "Admin"))), "alice bob"),
    (2, "Move", move("bob", "OUTSIDER", "MEMBER"), "alice bob"),
    (2, "Transfer", give("bob", "owner"), "alice bob"),
    (2, "AC_Bundle", bundle(("Gate", {"alias": "a", "state": "open"}), ("Grant", give("bob", "x"))), "alice bob"),
]


@pytest.mark.parametrize(("enc_v", "type_", "content", "who"), CONCERNED)
def test_whom_a_content_is_about(enc_v: int, type_: str, content: Any, who: str) -> None:
    found = set(dialect_of(enc_v).affected_identities(commit(type_, content, enc_v)))
    assert found == {person(name).public for name in who.split()}


@pytest.mark.parametrize("enc_v", VERSIONS)
def test_a_content_without_form_is_refused(enc_v: int) -> None:
    dialect = dialect_of(enc_v)
    for type_ in dialect.access_types:
        for content in ("", "[]", "{}", {"operations": [3]}, {"role": "x", "identity": NO_POINT, "target": NO_POINT}):
            if (type_, content) == ("Revoke_Self", {"role": "x", "identity": NO_POINT, "target": NO_POINT}):
                continue  # the URLs that it names do not count
            with pytest.raises(InvalidCommit):
                list(dialect.affected_identities(commit(type_, content, enc_v)))


def test_the_access_types_are_those_that_change_who_is_what() -> None:
    """The other predefined types are about contents, slots, gates or the enclave's lifecycle."""
    others = {"Manifest", "Update", "Delete", "Pause", "Resume", "Terminate", "Migrate"}
    assert set(ONE.access_types) == PREDEFINED_V1 - others
    assert set(TWO.access_types) == PREDEFINED - others - {"Gate", "Shared", "Own"}
    assert [dialect_of(v).predefined for v in VERSIONS] == [PREDEFINED_V1, PREDEFINED]


@pytest.mark.parametrize(
    ("enc_v", "type_", "content", "count"),
    [
        (1, "Grant_Push", has("bob", "Admin", endpoint=ENDPOINT), 1),
        (1, "Grant", has("bob", "Admin", endpoint=ENDPOINT), 0),
        (1, "Grant_Push", has("bob", "Admin", endpoint=3), 0),
        (1, "Grant_Push", "no JSON", 0),
        (1, "message", has("bob", "Admin", endpoint=ENDPOINT), 0),
        (1, "AC_Bundle", bundle(*[("Grant_Push", has("bob", "Admin", endpoint=ENDPOINT))] * 2), 2),
        (1, "AC_Bundle", bundle(("Grant", has("bob", "Admin", endpoint=ENDPOINT))), 0),
        (1, "AC_Bundle", {"operations": 3}, 0),
        (2, "Grant", give("bob", "x", endpoint=ENDPOINT), 1),
        (2, "Grant", give("bob", "x"), 0),
        (2, "AC_Bundle", bundle(("Grant", give("bob", "x", endpoint=ENDPOINT)), ("Grant", give("bob", "x"))), 1),
        (2, "Grant_Push", give("bob", "x", endpoint=ENDPOINT), 0),
    ],
)
def test_which_urls_would_be_registered(enc_v: int, type_: str, content: Any, count: int) -> None:
    assert dialect_of(enc_v).endpoints(commit(type_, content, enc_v)) == [ENDPOINT] * count


# Other properties of a policy


def test_a_policy_s_dialect_knows_its_roles() -> None:
    schema = [row("Grant", "Owner", "C", "Admin", "Member"), row("note", "Any", "C")]
    policy = parse_manifest(compact_json(manifest(schema, initial(alice="Owner Admin", bob="Admin"))))
    assert policy.dialect == DialectV1({"Admin": 1 << 32, "Member": 1 << 33})
    assert policy.initial_members == (person("alice").public, person("bob").public)
    assert policy.names == {"roles": ["Owner", "Admin", "Member"]}


def test_the_same_of_version_2() -> None:
    policy = parse_manifest(compact_json(GROUP))
    assert policy.dialect == DialectV2()
    assert policy.initial_members == (person("alice").public,)
    assert policy.names == {"states": GROUP["states"], "traits": GROUP["traits"]}


# The version by which a commit was hashed


@pytest.mark.parametrize("tags", [(), (("k", "v"),), (("r", "00", "reply"), ("k",))])
@pytest.mark.parametrize("enc_v", VERSIONS)
def test_the_version_of_a_commit(enc_v: int, tags: Any) -> None:
    found = build_commit(person("alice"), bytes(32), "message", "x", START, tags, enc_v=enc_v)
    assert version_of(found) == enc_v
    with pytest.raises(InvalidHash):
        check_hash(found, 3 - enc_v)


def test_a_manifest_says_its_own_version_and_no_hash_is_of_neither() -> None:
    for enc_v in VERSIONS:
        content = compact_json({"enc_v": enc_v})
        assert version_of(build_manifest(person("alice"), content, START, enc_v=3 - enc_v)) == enc_v
    wrong = build_commit(person("alice"), bytes(32), "message", "x", START)
    with pytest.raises(InvalidHash):
        version_of(
            Commit(**{name: getattr(wrong, name) for name in wrong.__struct_fields__} | {"content_hash": bytes(32)})
        )
    ecdsa = build_commit(person("alice"), bytes(32), "message", "x", START, alg="ecdsa", enc_v=1)
    with pytest.raises(InvalidHash):
        version_of(ecdsa)
