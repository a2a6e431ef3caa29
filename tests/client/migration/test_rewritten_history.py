"""A valid successor that lies about the log before it."""

from typing import Any

import pytest

from enc.client import Distrust
from enc.testing.lying_node import Json
from tests.client.migration.moving import AT_B, B, C, Moving
from tests.core.world import person, pub


@pytest.fixture
def moving(stage: Any) -> Moving:
    return Moving(stage)


def hide(answer: Json) -> Json:
    shown = [item for item in answer["events"] if item["event"]["type"] not in ("Manifest", "Migrate")]
    return {**answer, "events": shown}


@pytest.mark.parametrize("lie", ["empty", "place"])
def test_a_true_successor_rewrites_the_log_before_it(moving: Moving, lie: str) -> None:
    """A's Migrate to B was seen. B hides the Migrates, and shows another log than the one that A signed."""
    twin = moving.node.copy()
    moving.grow(moving.node, "to you")
    moving.depart()
    moving.stage.close_bundle()
    assert [item.type for item in moving.enclave.query(type="Migrate")] == ["Migrate"]
    pinned = moving.enclave.head()
    moving.grow(twin, "to others")
    evil = moving.stage.others["b.test"] = moving.depart(node=twin)
    for n in range(5):
        moving.write(evil, f"{n}")
    evil.settle()
    if lie == "empty":
        evil.lie("Query", hide)
    else:
        evil.lie(
            "Bundle_Proof",
            lambda answer: (_ for _ in ()).throw(__import__("enc.core.errors").core.errors.EventNotFound("no")),
        )
    with pytest.raises(Distrust):
        moving.stranger(AT_B).head()
    assert moving.pinned().head == pinned


def test_a_former_owner_behind_a_detour(moving: Moving) -> None:
    """Alice gave it to bob, and bob gave it back: that is pinned. Bob then shows A -> C -> A -> B, all of it his own,
    with alice's old Transfer ordered once more by C."""
    from enc.core.log.event import finalize
    from enc.core.machine import enclave as machine
    from enc.core.rules.policy_types import Effects
    from enc.core.trees.state_key import identity_key
    from enc.node.store.steps import Step
    from tests.client.migration.moving import OWNS

    moving.enclave.transfer(pub("bob"), "owner")
    old = next(e for e in moving.node.store.events(moving.enclave.id, 0, 99) if e.type == "Transfer")
    moving.other().transfer(pub("alice"), "owner")
    moving.stage.close_bundle()
    base = moving.enclave.head()
    enclave = moving.enclave.id
    twin = moving.node.copy()
    twin.doctor(enclave, {identity_key(person("bob").public): OWNS})
    c = moving.taken_over(C, by="bob", node=twin)
    kept = c.store._all[enclave]
    event = finalize(old, C, moving.stage.clock.now, kept.state.seq + 1)
    transition = machine.apply(kept.state, event, Effects(), kept.memory)
    c.store.write([Step(transition=transition, event=event, effects=Effects(), subject="Transfer")], c.clock.now)
    c._states.forget(enclave)
    a = moving.depart(moving.node.key, by="bob", node=c)
    evil = moving.stage.others["b.test"] = moving.taken_over(B, by="bob", node=a)

    def hidden(answer: Json) -> Json:
        return {
            **answer,
            "events": [
                i for i in answer["events"] if not (i["event"]["type"] == "Transfer" and i["event"]["seq"] < event.seq)
            ],
        }

    evil.lie("Query", hidden)
    with pytest.raises(Distrust):
        moving.stranger(AT_B, "carol").head()
    assert moving.pinned().head == base
