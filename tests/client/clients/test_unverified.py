"""Unverified pages: the node's answer byte for byte; a malformed one is a Forgery."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from enc.client import Forgery
from enc.core.log.event import wire_event
from tests.client.scene import Scene, flip
from tests.client.stage import Stage


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    stage = Stage("sync", tmp_path, monkeypatch)
    yield Scene(stage)
    stage.close()


def test_events_come_as_the_node_says_them(scene: Scene) -> None:
    page = scene.enclave.unverified_page({"seq": {"start_at": 1}, "limit": 2})
    assert page.more
    assert [msgspec.json.decode(event)["seq"] for event in page.events] == [1, 2]
    assert msgspec.json.decode(page.events[0]) == msgspec.json.decode(
        msgspec.json.encode(wire_event(scene.event("one")))
    )


def test_what_is_in_a_page_is_not_judged(scene: Scene) -> None:
    sig = scene.event("one").sig.hex()
    scene.alter(1, sig=flip(sig))
    (event,) = scene.enclave.unverified_page({"seq": 1}).events
    assert msgspec.json.decode(event)["sig"] == flip(sig)


def _twice(answer: dict[str, Any]) -> None:
    answer["events"] *= 2


def _nothing(answer: dict[str, Any]) -> None:
    answer.update(events=[], more=True)


def _none(answer: dict[str, Any]) -> None:
    answer["events"] = "rubbish"


@pytest.mark.parametrize("lie", [_twice, _nothing, _none])
def test_an_answer_that_is_none_is_a_forgery(scene: Scene, lie: Any) -> None:
    scene.lie("Query", lie)
    with pytest.raises(Forgery):
        scene.enclave.unverified_page({"limit": 5})
