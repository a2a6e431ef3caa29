"""Bans: which targets there are, and whom they concern."""

import pytest

from enc.core.errors import Banned, MisuseError
from enc.node.limits.ban_list import BanList
from enc.node.limits.ban_target import format_target, parse_target
from enc.node.store.restrictions import Restriction
from enc.runtime.rate_limit import address_key

ALICE, BOB = b"\x0a" * 32, b"\x0b" * 32


def ban(target: str, until: int | None = None) -> Restriction:
    return Restriction(kind="ban", target=format_target(parse_target(target)), made_at=0, until=until)


def is_banned(bans: BanList, address: str) -> bool:
    try:
        bans.check_address(address_key(address))
    except Banned:
        return True
    return False


@pytest.mark.parametrize(
    ("text", "target"),
    [
        (ALICE.hex(), ALICE.hex()),
        (ALICE.hex().upper(), ALICE.hex()),
        ("203.0.113.7", "203.0.113.7"),
        ("203.0.113.7/32", "203.0.113.7"),
        ("203.0.113.7/24", "203.0.113.0/24"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:3::/80", "2001:db8:1:2::/64"),
        ("2001:db8::/32", "2001:db8::/32"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("::ffff:203.0.113.0/120", "203.0.113.0/24"),
    ],
)
def test_each_target_has_one_text(text: str, target: str) -> None:
    assert format_target(parse_target(text)) == target
    assert format_target(parse_target(target)) == target


@pytest.mark.parametrize(
    "text", ["", "ab" * 31, "zz" * 32, "example.com", "203.0.113.0/33", "203.0.113", "fe80::1%eth0/64"]
)
def test_what_is_no_target(text: str) -> None:
    with pytest.raises(MisuseError, match=r"expected an identity \(64 hex digits\), an IP address, or a network"):
        parse_target(text)


def test_networks_of_every_length_are_found() -> None:
    bans = BanList(lambda: 0)
    assert not is_banned(bans, "203.0.113.7")
    for target in ("203.0.113.0/24", "198.51.100.7", "2001:db8::/48", "2001:db8:ffff::1"):
        bans.add(ban(target))
    found = {
        "203.0.113.255": True,
        "203.0.114.0": False,
        "198.51.100.7": True,
        "198.51.100.8": False,
        "::ffff:198.51.100.7": True,
        "2001:db8::1": True,
        "2001:db8:0:ffff::1": True,
        "2001:db8:1::1": False,
        "2001:db8:ffff::9": True,
        "2001:db8:ffff:1::9": False,
        "no address": False,
    }
    assert {address: is_banned(bans, address) for address in found} == found


def test_the_whole_of_a_version_may_be_banned() -> None:
    bans = BanList(lambda: 0)
    bans.add(ban("0.0.0.0/0"))
    assert is_banned(bans, "192.0.2.1")
    assert not is_banned(bans, "2001:db8::1")


def test_an_identity_is_banned_alone() -> None:
    bans = BanList(lambda: 0)
    bans.add(ban(ALICE.hex()))
    with pytest.raises(Banned, match="the operator of this node has banned this identity"):
        bans.check_identity(ALICE)
    bans.check_identity(BOB)
    assert not bans.has_networks


def test_a_ban_ends_at_its_time() -> None:
    now = [0]
    bans = BanList(lambda: now[0])
    bans.add(ban(ALICE.hex(), until=10))
    bans.add(ban("203.0.113.7", until=10))
    bans.add(ban("203.0.113.8"))
    now[0] = 9
    assert (is_banned(bans, "203.0.113.7"), bans.is_identity_banned(ALICE), bans.ended()) == (True, True, [])
    now[0] = 10
    assert (is_banned(bans, "203.0.113.7"), bans.is_identity_banned(ALICE)) == (False, False)
    assert is_banned(bans, "203.0.113.8")
    assert sorted(each.target for each in bans.ended()) == [ALICE.hex(), "203.0.113.7"]


def test_a_ban_that_is_lifted_is_gone_and_its_neighbours_stay() -> None:
    bans = BanList(lambda: 0)
    for target in (ALICE.hex(), "203.0.113.7", "203.0.113.8", "10.0.0.0/8"):
        bans.add(ban(target))
    for target in (ALICE.hex(), "203.0.113.7", "10.0.0.0/8", "192.0.2.1"):
        bans.remove(target)
    assert not bans.is_identity_banned(ALICE)
    assert [is_banned(bans, each) for each in ("203.0.113.7", "203.0.113.8", "10.1.1.1")] == [False, True, False]
    bans.remove("203.0.113.8")
    assert (len(bans), bans.has_networks) == (0, False)


def test_the_same_target_again_replaces_the_first() -> None:
    bans = BanList(lambda: 5)
    bans.add(ban("203.0.113.7", until=1))
    assert not is_banned(bans, "203.0.113.7")
    bans.add(ban("203.0.113.7", until=9))
    assert is_banned(bans, "203.0.113.7")
    assert len(bans) == 1
