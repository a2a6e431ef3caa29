"""Prefixes of keys and ids: what they may stand for, and where only a whole key counts."""

from collections.abc import Iterator

import pytest

from enc.cli.common import known_ids
from enc.cli.common.prefixes import MAX_LISTED, check_whole, is_prefix, pick, starting
from enc.client import Identity
from enc.core.errors import MisuseError, PeerError
from enc.core.primitives.signing import check_public_key
from tests.cli.people import Person
from tests.node.running import RunningNode

IDS = {bytes.fromhex(f"{start:<064}"): name for start, name in (("abcdef0123", "one"), ("abcdef0199", ""), ("77", "x"))}


def keys_starting(digits: str) -> Iterator[str]:
    """Yield public keys that start with these digits."""
    for n in range(1, 1000):
        key = f"{digits}{n:0{64 - len(digits)}x}"
        try:
            check_public_key(bytes.fromhex(key), "key")
        except PeerError:
            continue
        yield key


def test_a_prefix_stands_for_the_only_one_that_starts_with_it() -> None:
    assert pick("ABCDEF0123…", IDS, "key").hex().startswith("abcdef0123")
    assert [*starting("abcdef01", IDS).values()] == ["one", ""]


def test_a_prefix_of_several_is_refused_with_all_of_them() -> None:
    with pytest.raises(MisuseError, match="abcdef01: more than one key starts with this: abcdef0123") as error:
        pick("abcdef01", IDS, "key")
    assert "(one), abcdef0199" in error.value.message
    assert "x" not in error.value.message.removeprefix("abcdef01: ").replace("give more digits", "")


def test_few_of_many_candidates_are_listed() -> None:
    many = {bytes([7]) * 31 + bytes([n]): "" for n in range(100)}
    with pytest.raises(MisuseError, match=f" and {100 - MAX_LISTED} more; give more digits"):
        pick("07070707", many, "key")


def test_a_prefix_of_none_is_refused() -> None:
    with pytest.raises(MisuseError, match="12345678: no key starts with this: give all 64 hex digits"):
        pick("12345678", IDS, "key")


@pytest.mark.parametrize(
    ("word", "is_it"),
    [
        ("abcdef01", True),
        ("ABCDEF01…", True),
        ("a" * 63, True),
        ("a" * 64, False),
        ("abcdef0", False),
        ("abcdef0…", False),
        ("abcdefgh", False),
        ("", False),
    ],
)
def test_what_is_a_prefix(word: str, is_it: bool) -> None:
    assert is_prefix(word) is is_it


def test_where_a_key_is_trusted_a_prefix_is_not_enough() -> None:
    check_whole("aB" * 32, "--sequencer")
    with pytest.raises(MisuseError, match="not 'abcdef01'; a prefix is not enough"):
        check_whole("abcdef01", "--sequencer")
    with pytest.raises(MisuseError, match=r"^--sequencer: expected a whole key, 64 hex digits, not 'abc'$"):
        check_whole("abc", "--sequencer")


# In the commands


def test_an_enclave_is_named_by_a_prefix_of_one_that_was_used(reader: Person) -> None:
    whole = reader.ask_json("query", "--limit", "1")[0]["enclave"]
    for args in (["--enclave", whole[:8]], ["--enclave", f"{whole[:8].upper()}…"]):
        assert reader.ask_json("query", "--limit", "1", *args)[0]["enclave"] == whole
    assert reader.ask_json("config", "set", "enclave", whole[:10]) == [
        {"profile": "default", "file": str(reader.config), "enclave": whole}
    ]
    error = reader.refused("query", "--enclave", "00000000", code=2)
    assert error["message"].startswith("00000000: no enclave that you know starts with this: give all 64 hex digits")


def test_an_event_is_named_by_a_prefix_of_its_id(alice: Person) -> None:
    (first,) = alice.ask_json("commit", "message", "one")
    alice.ask("update", first["id"][:8], "two")
    (item,) = alice.ask_json("query", "--id", first["id"][:12])
    assert (item["id"], item["status"]) == (first["id"], "updated")
    alice.ask("prove", first["id"][:8], "-o", "p.json")
    assert first["id"] in (alice.home / "p.json").read_text()
    alice.ask("delete", first["id"][:8])
    missing = f"{first['id'][:8]}: no event that you may read starts with this"
    assert missing in alice.ask("delete", first["id"][:8], code=2).stderr


def test_a_seq_that_looks_like_a_prefix_is_a_seq_first(alice: Person) -> None:
    (made,) = alice.ask_json("commit", "message", "one")
    alice.ask("update", f"{made['seq']:08}", "two")
    error = alice.refused("update", "00000099", "two", code=2)
    assert error["message"].startswith("00000099: no event that you may read starts with this")
    assert alice.refused("update", "99", "two", code=1)["code"] == "EVENT_NOT_FOUND"


def test_the_prefix_of_an_event_is_not_searched_for_in_a_long_log(
    alice: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    (made,) = alice.ask_json("commit", "message", "one")
    monkeypatch.setattr(known_ids, "MAX_EVENTS", 1)
    error = alice.refused("update", made["id"][:8], "two", code=2)
    assert error["message"].endswith("the log has over 1 events: give the whole id, or the event's seq")
    alice.ask("update", made["id"], "two")


def test_a_person_is_named_by_a_contact_or_by_a_prefix_of_its_key(alice: Person) -> None:
    bob = Identity.new().hex
    error = alice.refused("move", bob[:8], "OUTSIDER", "MEMBER", code=2)
    assert error["message"].startswith(f"{bob[:8]}: no key that you know starts with this")
    alice.ask("me", "know", "bob", bob)
    moved = alice.ask("move", f"{bob[:8]}…", "OUTSIDER", "MEMBER")
    assert moved.stderr == f"{bob[:8]}… is {bob}\n"
    alice.ask("grant", "bob", "admin")
    assert {"identity": bob, "state": "MEMBER", "traits": ["admin"]}.items() <= {
        each["identity"]: each for each in alice.ask_json("enclave", "members")
    }[bob].items()
    alice.ask("prove", "--member", bob[:9], "-o", "bob.json")
    assert bob in (alice.home / "bob.json").read_text()


def test_your_own_key_is_one_that_you_know(alice: Person) -> None:
    me = alice.ask_json("key", "show")[0]["public"]
    assert {each["from"] for each in alice.ask_json("query", "--author", me[:8])} == {me}
    alice.ask("set", "nick", "al", "--own")
    assert alice.ask("get", "nick", "--owner", me[:8]).stdout == "al\n"


def test_a_prefix_of_two_contacts_is_refused_with_both(reader: Person) -> None:
    keys = keys_starting("abcdef01")
    for name in ("ann", "bob"):
        reader.ask("me", "know", name, next(keys))
    error = reader.refused("query", "--author", "abcdef01", code=2)
    assert "more than one key that you know starts with this: " in error["message"]
    assert all(name in error["message"] for name in ("(ann)", "(bob)"))


def test_a_contact_s_name_comes_before_a_prefix(anybody: Person) -> None:
    keys = keys_starting("abcdef01")
    one, other = next(keys), next(keys)
    anybody.ask("me", "know", "ann", one)
    anybody.ask("me", "know", "ABCDEF01", other)
    with_name = anybody.ask_json("me", "whois", "abcdef01", "--node", "http://127.0.0.1:1")
    assert with_name[0]["identity"] == other


def test_a_key_is_stored_and_trusted_only_whole(anybody: Person, running_node: RunningNode) -> None:
    error = anybody.refused("me", "know", "bob", "abcdef01", code=2)
    assert error["message"].startswith("KEY: expected a whole key, 64 hex digits, not 'abcdef01'; a prefix")
    seq_pub = running_node.seq_pub.hex()
    for key, reason in (("abc", "not 'abc'"), (seq_pub[:8], "a prefix is not enough")):
        error = anybody.refused("verify", "-", "--sequencer", key, code=2, stdin="{}")
        assert error["message"].startswith("--sequencer: expected a whole key, 64 hex digits")
        assert reason in error["message"]
