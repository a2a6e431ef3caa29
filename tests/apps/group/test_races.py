"""Races: admins who make epochs at once, devices that seal with one key, members who leave
meanwhile.
"""

import pytest

from enc.apps.group import NotSealable
from tests.apps.group.party import Party, cross, pubkey


def test_two_admins_race_and_end_in_one_valid_epoch_without_help(party: Party) -> None:
    party.alice.make_admin(pubkey("bob"))
    bob = party.device("bob")
    bob.sync()
    alice = cross(party.alice, bob.rotate)
    alice.rotate()
    alice.say("after the race")
    counted = [view for view in alice.epochs() if view.counts]
    assert [view.n for view in counted] == list(range(len(counted)))
    assert not alice.epochs()[-1].counts
    for name in ("alice", "bob", "carol"):
        device = party.device(name)
        device.sync()
        assert not device.status().is_stale
        assert device.entries()[-1].text == "after the race"


def test_two_admins_let_somebody_in_at_once(party: Party) -> None:
    """Both Moves are valid; only the first one's epoch counts, and the other client makes a new
    one.
    """
    party.alice.make_admin(pubkey("bob"))
    bob = party.device("bob")
    bob.sync()
    cross(party.alice, lambda: bob.invite(pubkey("dave"), notify=False))
    party.alice.invite(pubkey("erin"), notify=False)
    assert not party.alice.status().is_stale
    bob.say("to all five")
    for name in ("alice", "carol", "dave", "erin"):
        assert party.texts(name) == ["to all five"]


def test_somebody_leaves_while_an_epoch_is_made(party: Party) -> None:
    carol = party.device("carol")
    cross(party.alice, carol.leave)
    party.alice.invite(pubkey("dave"), notify=False)
    assert not party.alice.status().is_stale
    assert [view.counts for view in party.alice.epochs()][-2:] == [False, True]
    party.alice.say("without carol")
    assert party.texts("dave") == ["without carol"]


def test_somebody_leaves_while_an_admin_rotates(party: Party) -> None:
    cross(party.alice, party.device("carol").leave)
    made = party.alice.rotate()
    assert made.counts
    assert made.seq == party.alice.status().seq
    assert not party.alice.status().is_stale


def test_what_is_said_while_the_epoch_changes_is_late_and_not_lost(party: Party) -> None:
    bob = party.device("bob")
    bob.sync()
    cross(bob, party.alice.rotate)
    bob.say("just too late")
    bob.say("in time")
    carol = party.device("carol")
    carol.sync()
    assert [(entry.text, entry.is_late) for entry in carol.entries()] == [("just too late", True), ("in time", False)]


def test_two_devices_with_one_key_and_nothing_is_lost_or_shown_twice(party: Party) -> None:
    one, two = party.device("bob"), party.device("bob")
    one.sync()
    two.sync()
    cross(one, lambda: two.say("from two"))
    sent = one.say("from one")
    assert party.texts("alice") == ["from two", "from one"]
    assert one.entry(sent.id) is not None
    assert party.texts("bob") == ["from two", "from one"]
    two.edit(two.entries()[0].id, "from two, edited")
    assert party.texts("carol") == ["from two, edited", "from one"]  # though the first try of "from one" opens now


def test_two_devices_edit_and_react_at_once(party: Party) -> None:
    one, two = party.device("bob"), party.device("bob")
    said = one.say("x")
    cross(one, lambda: two.react(said.id, "+1"))
    one.edit(said.id, "y")
    cross(one, lambda: two.say("z"))
    one.react(said.id, "-1")
    carol = party.device("carol")
    carol.sync()
    entry = carol.entry(said.id)
    assert entry is not None
    assert entry.text == "y"
    assert [reaction.text for reaction in entry.reactions] == ["+1", "-1"]
    assert [each.text for each in carol.entries()] == ["y", "z"]


def test_an_admins_client_mends_before_it_sends(party: Party) -> None:
    party.device("carol").leave()
    party.alice.say("carol is gone")
    epoch, said = party.alice.epochs()[-1], party.alice.entries()[-1]
    assert epoch.counts
    assert epoch.seq == said.seq - 1
    assert said.epoch == epoch.n


def test_a_members_client_says_that_it_is_stale_and_sends(party: Party) -> None:
    party.device("carol").leave()
    bob = party.device("bob")
    bob.sync()
    assert bob.status().is_stale
    assert bob.say("carol may read this").is_stale
    party.alice.sync()
    assert not bob.say("but not this").is_stale


def test_who_let_themselves_in_waits_for_an_epoch(party: Party) -> None:
    party.alice.set_gate("auto_join", open=True)
    dave = party.device("dave")
    dave.join()
    dave.sync()
    with pytest.raises(NotSealable, match="no epoch includes you"):
        dave.say("too early")
    party.alice.sync()
    dave.say("hello")
    assert party.texts("dave") == ["hello"]


def test_a_client_may_be_told_not_to_mend(party: Party) -> None:
    party.device("carol").leave()
    quiet = party.device("alice", heal=False)
    quiet.sync()
    assert quiet.status().is_stale


def test_nothing_is_mended_while_the_group_is_paused(party: Party) -> None:
    party.device("carol").leave()
    party.alice.enclave.pause()
    party.alice.sync()
    assert party.alice.status().is_stale
    assert party.alice.status().lifecycle == "paused"
    party.alice.enclave.resume()
    party.alice.sync()
    assert not party.alice.status().is_stale
