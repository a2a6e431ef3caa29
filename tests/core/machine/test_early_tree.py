"""A tree that is computed before its event gives the same state as one that is not."""

import pytest

from enc.core.log.event import finalize
from enc.core.machine.early_tree import EarlyTree, build_early_tree
from enc.core.machine.enclave import apply
from enc.core.machine.state import Transition
from enc.core.trees import sparse_merkle
from tests.core.machine.enclave_town import town
from tests.core.world import START, World, move, person
from tests.steps import run_steps


def moves(count: int) -> dict[str, object]:
    return {"operations": [{"type": "Move", **move(f"guest {i}", "OUTSIDER", "GUEST")} for i in range(count)]}


def both(world: World, count: int, at: int, early_at: int | None = None) -> tuple[EarlyTree, Transition, Transition]:
    """Return the tree before an AC_Bundle, and the transition with its help and without."""
    state = world.state
    commit = world.commit("alice", "AC_Bundle", moves(count), at=at)
    effects = world.judge(commit)
    timestamp = START + (at if early_at is None else early_at)
    early = run_steps(build_early_tree(state, effects.writes, world.memory, timestamp))
    event = finalize(commit, person("node"), START + at, state.seq + 1)
    plain = apply(state, event, effects, world.memory)
    world.memory.tree_nodes.update(early.nodes)
    return early, apply(state, event, effects, world.memory, early), plain


@pytest.mark.parametrize(
    ("size", "count", "at"),
    [
        pytest.param(1, 40, 5, id="every event closes a bundle"),
        pytest.param(3, 40, 5, id="the event fills the bundle"),
        pytest.param(99, 300, 5, id="too many changes would be pending"),
        pytest.param(99, 300, 6_000, id="a bundle closes before the event"),
        pytest.param(2, 40, 6_000, id="bundles close before the event, but not after it"),
    ],
)
def test_the_transition_is_the_same_and_has_no_new_nodes(size: int, count: int, at: int) -> None:
    world = town(size)
    world.send("bob", "Own", {"key": "k", "value": 1})
    early, helped, plain = both(world, count, at)
    assert helped.state == plain.state
    assert (helped.closed, helped.log_nodes, helped.flushed) == (plain.closed, plain.log_nodes, plain.flushed)
    assert helped.tree_nodes == {}
    assert plain.tree_nodes.keys() == early.nodes.keys()
    assert (
        dict(sparse_merkle.leaves(world.memory, helped.state.root)).items()
        >= {
            key: value for key, value in helped.leaves.items() if value is not None and key not in helped.state.pending
        }.items()
    )


def test_nothing_is_computed_if_the_changes_stay_pending() -> None:
    early, helped, plain = both(town(), 40, 5)
    assert early == EarlyTree()
    assert helped == plain


def test_a_tree_for_another_time_is_not_used() -> None:
    world = town(99)
    early, helped, plain = both(world, 300, 6_000, early_at=5)
    assert early.updates
    assert helped == plain
