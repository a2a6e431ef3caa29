"""A lying node, and clients that detect it."""

from typing import Any

import pytest

from enc.client import Forgery
from enc.core.errors import MisuseError, Unavailable
from enc.testing import Identities, Liar, lying_node

ADA = Identities()["ada"]


def forge(answer: Any) -> None:
    answer["events"][-1]["event"]["content"] = "forged"


def test_it_tells_the_truth_until_it_is_told_to_lie() -> None:
    with lying_node() as liar, liar.client(ADA) as ada:
        notes = ada.create("notes")
        notes.commit("note", "true")
        liar.lie("Query", forge)
        with pytest.raises(Forgery):
            list(notes.query())
        liar.be_honest()
        assert [item.content for item in notes.query(type="note")] == ["true"]


def test_a_lie_may_be_an_error() -> None:
    def refuse(_: Any) -> None:
        raise Unavailable("not today")

    with lying_node() as liar, liar.client(ADA) as ada:
        notes = ada.create("notes")
        liar.lie("Query", refuse)
        with pytest.raises(Unavailable, match="not today"):
            list(notes.query())


def forge_event(item: Any) -> None:
    item["event"]["content"] = "forged"


def test_a_subscription_detects_a_forged_event() -> None:
    with lying_node() as liar, liar.client(ADA) as ada:
        notes = ada.create("notes")
        with notes.subscribe() as news:
            next(news)
            notes.commit("note", "true")
            assert next(news).content == "true"
            liar.lie("Event", forge_event)
            notes.commit("note", "true")
            with pytest.raises(Forgery):
                next(news)


def test_its_clock_moves_with_the_network(liar: Liar) -> None:
    with liar.client(ADA) as ada:
        notes = ada.create("notes")
        note = notes.commit("note", "true")
        liar.network.tick(10_000)
        assert notes.proof(note.id, wait=False).status == "active"
        liar.network.sites.clear()


@pytest.mark.parametrize("kind", ["Commit", "query", ""])
def test_it_refuses_to_lie_in_an_unknown_kind_of_answer(liar: Liar, kind: str) -> None:
    with pytest.raises(MisuseError, match=f"'{kind}' is not a kind of answer; expected one of info, .* Query, "):
        liar.lie(kind, forge)
