"""The conversation: what opens, what is rejected, and the effect of edits, deletions and
reactions.
"""

import pytest

from enc.apps.group import GroupFold
from enc.apps.group.messages import REPEAT
from enc.core.errors import EventDeleted, Unauthorized
from enc.core.log.event import erase
from enc.core.primitives.types import Event
from enc.core.rules.content import revised_id
from enc.core.sealed_forms.group_message import seal_message
from tests.apps.group.circle import Circle, fresh, keys_of, pubkey
from tests.core.world import give, move, withheld


@pytest.fixture
def circle() -> Circle:
    return Circle("bob", "carol")


def test_everybody_reads_and_a_newcomer_reads_from_its_own_epoch_on(circle: Circle) -> None:
    circle.say("alice", "one")
    circle.say("bob", "two")
    circle.move("alice", "dave", "OUTSIDER", "MEMBER")
    circle.say("carol", "three")
    assert circle.texts("carol") == ["one", "two", "three"]
    assert circle.texts("dave") == [None, None, "three"]
    assert circle.texts("") == [None, None, None]


def test_who_is_removed_reads_nothing_later(circle: Circle) -> None:
    circle.say("bob", "before")
    circle.move("alice", "bob", "MEMBER", "OUTSIDER")
    circle.say("alice", "after")
    assert circle.texts("bob") == ["before", None]
    assert circle.texts("carol") == ["before", "after"]


def test_any_device_recovers_everything_from_the_log(circle: Circle) -> None:
    circle.say("bob", "one")
    circle.rotate("alice")
    circle.say("bob", "two")
    entry = circle.last("bob").entry
    assert entry is not None
    assert entry.text == "two"


def test_numbers_count_over_all_sealed_types_and_start_anew_with_an_epoch(circle: Circle) -> None:
    first = circle.say("alice", "one")
    circle.say("alice", "+1", ("r", first.id.hex()), type_="reaction")
    circle.edit("alice", first, "uno")
    circle.say("alice", "hear", type_="notice")
    fold = circle.fold("alice")
    n = fold.epochs.state.n
    assert fold.messages.next_sender_seq(pubkey("alice"), n, []) == 4
    assert fold.messages.next_sender_seq(pubkey("bob"), n, []) == 0
    circle.rotate("alice")
    assert circle.fold("alice").messages.next_sender_seq(pubkey("alice"), n + 1, []) == 0


def test_of_a_repeat_the_first_stands(circle: Circle) -> None:
    circle.say("bob", "first", sender_seq=0)
    circle.say("alice", "between")
    circle.say("bob", "second", sender_seq=0)
    for name in ("alice", "bob", "carol"):
        assert circle.texts(name) == ["first", "between"]
        assert circle.fold(name).messages.verdicts[circle.events[-1].id].why == REPEAT
    entry = circle.last("bob").entry
    assert entry is not None
    assert entry.why == REPEAT


def test_a_repeat_that_is_sent_again_is_shown_once_even_where_its_rival_is_gone(circle: Circle) -> None:
    first = circle.say("bob", "first", sender_seq=0)
    second = circle.say("bob", "second", sender_seq=0)
    circle.say("bob", "second", ("again", second.id.hex()))
    assert circle.texts("alice") == ["first", "second"]
    circle.edit("bob", first, "erased")
    late = _reading_now(circle, "carol")
    assert late == ["erased", "second"]


def test_a_reaction_that_is_sent_again_is_shown_once_even_where_its_rival_is_gone(circle: Circle) -> None:
    first = circle.say("bob", "first", sender_seq=0)
    to = ("r", first.id.hex())
    second = circle.say("bob", "+1", to, type_="reaction", sender_seq=0)
    circle.say("bob", "+1", to, ("again", second.id.hex()), type_="reaction")
    circle.edit("bob", first, "erased")
    for fold in (circle.fold("carol"), _fold_now(circle, "carol")):
        assert [reaction.text for entry in fold.messages.all() for reaction in entry.reactions] == ["+1"]


def test_nobody_takes_away_what_another_said_by_saying_it_again(circle: Circle) -> None:
    said = circle.say("bob", "mine")
    circle.say("carol", "not yours", ("again", said.id.hex()))
    assert circle.texts("alice") == ["mine", "not yours"]


def _reading_now(circle: Circle, name: str) -> list[str | None]:
    return [entry.text for entry in _fold_now(circle, name).messages.all() if not entry.is_deleted]


def _fold_now(circle: Circle, name: str) -> GroupFold:
    """Return the fold of a new reader: edited and deleted contents are erased, deleted events are
    not shown.
    """
    events = circle.events
    deleted = {revised_id(event) for event in events if event.type == "Delete"}
    edits: dict[bytes, bytes] = {}
    for event in events:
        if event.type == "Update":
            edits[revised_id(event)] = event.id
    fold = GroupFold(keys_of(name))
    for event in events:
        gone = event.id in edits or (event.type == "Update" and edits[revised_id(event)] != event.id)
        gone = gone or (event.type == "Update" and revised_id(event) in deleted)
        if event.id in deleted:
            fold.skip(event.seq)
        else:
            fold.apply(erase(event) if gone else event)
    assert fold.membership.withheld() is None
    return fold


def test_who_comes_later_sees_what_stands(circle: Circle) -> None:
    one, two = circle.say("bob", "one"), circle.say("bob", "two")
    three = circle.say("carol", "three")
    circle.edit("bob", one, "ein")
    circle.edit("bob", two, "zwei")
    circle.delete("bob", two)
    circle.edit("bob", one, "uno")
    circle.delete("alice", three)
    now = [entry.text for entry in circle.fold("alice").messages.all() if not entry.is_deleted]
    assert now == _reading_now(circle, "alice") == ["uno"]


def test_no_device_uses_a_number_again_that_it_cannot_see_any_more(circle: Circle) -> None:
    """One device wrote and deleted; the other sees an empty seq, and counts it as its own."""
    gone = circle.say("bob", "gone")
    circle.delete("bob", gone)
    late = GroupFold(keys_of("bob"))
    for event in circle.events:
        if event.id == gone.id:
            late.skip(event.seq)
        else:
            late.apply(event)
    n = late.epochs.state.n
    assert late.messages.next_sender_seq(pubkey("bob"), n, late.membership.gaps) == 1


def test_edits_that_were_edited_count_too(circle: Circle) -> None:
    said = circle.say("bob", "one")
    circle.edit("bob", said, "two")
    circle.edit("bob", said, "three")
    late = _fold_now(circle, "bob")
    assert late.messages.next_sender_seq(pubkey("bob"), late.epochs.state.n, late.membership.gaps) == 3


def test_a_number_beyond_the_log_is_refused_unopened(circle: Circle) -> None:
    """A counter at or above the number of events since the epoch: no key is derived for it."""
    circle.say("bob", "just so", sender_seq=0)
    room = circle.events[-1].seq + 1 - circle.public.epochs.counted[-1].seq
    circle.say("bob", "the last that fits", sender_seq=room - 1)
    circle.say("bob", "beyond", sender_seq=room + 1)
    assert circle.texts("alice") == ["just so", "the last that fits", None]
    assert "higher than" in circle.fold("alice").messages.verdicts[circle.events[-1].id].why


def test_an_older_epoch_is_opened_and_marked_late(circle: Circle) -> None:
    circle.rotate("alice")
    n = circle.public.epochs.state.n
    circle.say("bob", "late", n=n - 1)
    circle.say("bob", "in time")
    assert [entry.is_late for entry in circle.fold("carol").messages.all()] == [True, False]
    assert circle.texts("carol") == ["late", "in time"]


def test_an_epoch_that_does_not_count_is_refused(circle: Circle) -> None:
    fold = circle.fold("bob")
    chain = fold.epochs.chain(fold.epochs.state.n, pubkey("bob"))
    assert chain is not None
    circle.send("bob", "message", seal_message(chain, fold.epochs.state.n + 1, 0, "x", next(fresh(12))))
    assert "does not count" in circle.fold("alice").messages.verdicts[circle.events[-1].id].why
    circle.rotate("alice")
    assert circle.texts("alice") == [None]


@pytest.mark.parametrize(
    "content", ["plain", "{}", '{"epoch":0,"epoch":1}', '{"epoch":-1,"sender_seq":0,"ciphertext":""}']
)
def test_what_is_not_sealed_is_not_shown(circle: Circle, content: str) -> None:
    circle.send("bob", "message", content)
    (entry,) = circle.fold("alice").messages.all()
    assert entry.text is None
    assert entry.why


def test_the_words_of_one_are_not_passed_off_as_anothers(circle: Circle) -> None:
    said = circle.say("bob", "mine")
    circle.send("carol", "message", said.content)
    assert circle.texts("alice") == ["mine", None]


def test_edits_and_who_may(circle: Circle) -> None:
    said = circle.say("bob", "one")
    circle.edit("bob", said, "two")
    (entry,) = circle.fold("alice").messages.all()
    assert (entry.text, entry.is_edited) == ("two", True)
    with pytest.raises(Unauthorized):
        circle.edit("carol", said, "three")
    circle.delete("alice", said)
    with pytest.raises(EventDeleted):
        circle.edit("bob", said, "four")


def test_an_edit_that_does_not_open_leaves_nothing(circle: Circle) -> None:
    """The node has erased the former text: later readers could not see it either."""
    said = circle.say("bob", "one")
    circle.send("bob", "Update", "rubbish", tags=(("r", said.id.hex()),))
    assert circle.texts("alice") == _reading_now(circle, "alice") == [None]
    circle.edit("bob", said, "again")
    assert circle.texts("alice") == ["again"]


def test_replies_and_reactions(circle: Circle) -> None:
    said = circle.say("bob", "one")
    answer = circle.say("carol", "two", ("r", said.id.hex(), "reply"))
    up = circle.say("alice", "+1", ("r", said.id.hex()), type_="reaction")
    circle.say("carol", "-1", ("r", said.id.hex()), type_="reaction")
    first, second = circle.fold("bob").messages.all()
    assert second.id == answer.id
    assert second.reply_to == said.id
    assert [(r.author, r.text) for r in first.reactions] == [(pubkey("alice"), "+1"), (pubkey("carol"), "-1")]
    circle.delete("alice", up)
    assert [r.text for r in next(circle.fold("bob").messages.all()).reactions] == ["-1"]
    circle.say("carol", "!", ("r", "nonsense"), type_="reaction")
    circle.say("carol", "!", type_="reaction")
    assert [r.text for r in next(circle.fold("bob").messages.all()).reactions] == ["-1"]


def test_what_a_change_says(circle: Circle) -> None:
    circle.send("alice", "Grant", give("bob", "admin"))
    change = circle.last()
    assert (change.kind, change.target, change.what) == ("people", pubkey("bob"), "Grant admin")
    circle.send("carol", "Move", move("carol", "MEMBER", "OUTSIDER"))
    assert (circle.last().kind, circle.last().what) == ("people", "MEMBER -> OUTSIDER")
    circle.open("auto_join")
    assert (circle.last().kind, circle.last().what) == ("gate", "auto_join open")
    circle.rotate("bob")
    assert circle.last().kind == "epoch"
    assert circle.last().epoch is not None
    circle.send("alice", "Shared", {"key": "topic", "value": "plans"})
    assert circle.last().kind == "topic"
    assert circle.public.membership.topic == "plans"
    circle.send("bob", "Own", {"key": "profile", "value": {"name": "Bob"}})
    assert circle.public.membership.person(pubkey("bob")).profile == {"name": "Bob"}
    said = circle.say("bob", "x")
    assert circle.last("alice").kind == "message"
    circle.delete("bob", said)
    assert circle.last("alice").kind == "delete"
    circle.send("alice", "Pause")
    assert (circle.last().kind, circle.public.membership.lifecycle) == ("lifecycle", "paused")


def test_nobody_takes_back_their_own_words_without_a_trace(circle: Circle) -> None:
    said = circle.say("bob", "an insult")
    circle.say("bob", "have a nice day", ("again", said.id.hex()))
    assert circle.texts("carol") == ["an insult", "have a nice day"]


def read_with(circle: Circle, *shown: Event, name: str = "carol") -> GroupFold:
    fold, by_seq = GroupFold(keys_of(name)), {event.seq: event for event in shown}
    for event in circle.events:
        fold.apply(by_seq.get(event.seq, event))
    return fold


def test_a_withheld_message_stands_at_its_place_with_the_statement(circle: Circle) -> None:
    circle.say("alice", "before")
    said = withheld(circle.say("bob", "words"))
    circle.say("alice", "after")
    fold = read_with(circle, said)
    assert fold.membership.withheld() is None
    assert [entry.text for entry in fold.messages.all()] == ["before", None, "after"]
    entry = fold.messages.shown(said.id)
    assert entry is not None
    assert (entry.withheld, entry.why) == (said.withheld, "the node withholds its content")
    circle.edit("bob", said, "other words")
    edited = read_with(circle, said).messages.shown(said.id)
    assert edited is not None
    assert (edited.text, edited.withheld) == ("other words", None)
    update = withheld(circle.events[-1])
    hidden = read_with(circle, update).messages.shown(said.id)
    assert hidden is not None
    assert (hidden.text, hidden.withheld) == (None, update.withheld)
    circle.delete("bob", said)
    deleted = read_with(circle, said, update).messages.shown(said.id)
    assert deleted is not None
    assert (deleted.why, deleted.withheld) == ("deleted", None)


def test_a_message_under_an_epoch_that_is_withheld_names_its_event(circle: Circle) -> None:
    rotation = withheld(circle.rotate("alice"))
    said = circle.say("bob", "under the new epoch")
    fold = read_with(circle, rotation)
    view, entry = fold.epochs.views[-1], fold.messages.shown(said.id)
    assert (view.counts, view.withheld, view.why) == (False, rotation.withheld, "the node withholds its content")
    assert entry is not None
    why = f"sealed under an epoch that is unknown here: the node withholds the content of event {rotation.seq}"
    assert (entry.text, entry.why, entry.withheld) == (None, why, None)


def test_words_that_delete_themselves_are_missed_by_nobody(circle: Circle) -> None:
    said = circle.say("bob", "for now", ("auto-delete", str(2**52)))
    assert circle.texts("carol") == ["for now"]
    fold = GroupFold(keys_of("carol"))
    for event in circle.events:
        fold.apply(erase(event) if event is said else event)
    assert fold.membership.withheld() is None
    assert [entry.why for entry in fold.messages.all()] == ["its content was erased"]
