"""Requests whose answer is lost: the client sends the same bytes again, which a node may reject."""

from typing import Any

import httpx
import pytest

from enc.client.errors import TimedOut, Unreachable
from enc.core.errors import Duplicate, Unavailable
from tests.client.scene import Scene


def ask_for_a_hold(scene: Scene, patience: float) -> bytes:
    enclave = scene.stage.client(patience=patience).enclave(scene.enclave.id)
    enclave.head()
    flow = scene.stage.reader(enclave).session.ask("/checkpoint", "Checkpoint", {"hold": 30})
    found: bytes = enclave._run(flow)
    return found


def lose(scene: Scene, count: int) -> list[bytes]:
    """Lose the answers to the next holds; return the bodies that the node gets."""
    got = list[bytes]()

    def lose_answer(request: httpx.Request, response: httpx.Response) -> httpx.Response:
        if request.url.path == "/checkpoint":
            got.append(request.read())
            if len(got) <= count:
                raise httpx.ReadError("connection reset")
        return response

    scene.node.wire = lose_answer
    return got


def test_a_hold_whose_answer_is_lost_is_sealed_again(scene: Scene) -> None:
    got = lose(scene, 1)
    assert b"ct_root" in ask_for_a_hold(scene, patience=60.0)
    first, again, new = got
    assert first == again != new
    assert isinstance(scene.node.take(scene.commit("held")), Unavailable)


def test_not_without_end(scene: Scene) -> None:
    """A node that answers every hold like this."""
    got = list[bytes]()

    def always(request: httpx.Request, response: httpx.Response) -> Any:
        got.append(request.read())
        return httpx.Response(409, json=Duplicate("accepted before").to_wire())

    enclave = scene.stage.client().enclave(scene.enclave.id)
    enclave.head()
    scene.node.wire = always
    flow = scene.stage.reader(enclave).session.ask("/checkpoint", "Checkpoint", {"hold": 30})
    with pytest.raises(Duplicate):
        enclave._run(flow)
    assert len(got) == 2


def test_without_patience_the_loss_is_reported(scene: Scene) -> None:
    lose(scene, 1)
    with pytest.raises((TimedOut, Unreachable)):
        ask_for_a_hold(scene, patience=0.0)
