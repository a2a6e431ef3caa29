"""Random histories of version 1 through a node's stores: each store holds what a replay of the log gives."""

import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.json import decode

from enc.core.errors import EncError
from enc.core.log.commit import build_commit
from enc.core.log.filter import Filter
from enc.core.machine.replay import Replay
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.types import Receipt
from enc.node.fsck import check_store
from enc.node.store.sqlite.store import SqliteStore
from enc.node.store.store_interface import Store
from enc.testing.memory_store import MemoryStore
from tests.core.world import person, pub
from tests.core.world_v1 import bundle, change, has
from tests.node.small_v1 import ADMIN, DATAVIEW, ENDPOINT, MEMBER, OWNER, SMALL_V1
from tests.node.store_host import EVERYTHING, NODE, Host

PEOPLE = ("alice", "bob", "carol", "dave", "mallory", "node")
ROLES = ("Admin", "Member", "DataView", "Owner")
names, roles = st.sampled_from(PEOPLE), st.sampled_from(ROLES)
masks = st.sampled_from([0, MEMBER, ADMIN, ADMIN | MEMBER, DATAVIEW, OWNER | MEMBER, OWNER])

operations = st.one_of(
    st.tuples(st.sampled_from(["Grant", "Revoke"]), st.builds(has, names, roles)),
    st.tuples(st.just("Grant_Push"), st.builds(lambda name, role: has(name, role, endpoint=ENDPOINT), names, roles)),
    st.tuples(st.just("Revoke_Self"), st.builds(lambda role: {"role": role}, roles)),
    st.tuples(st.sampled_from(["Move", "Force_Move"]), st.builds(change, names, masks, masks)),
)
words = st.tuples(st.sampled_from(["message", "Shared", "note", "Report"]), st.text(max_size=20))
said = st.one_of(
    operations,
    operations,
    words,
    words,
    st.tuples(st.just("Transfer_Owner"), st.builds(lambda name: {"new_owner": pub(name)}, names)),
    st.tuples(st.just("AC_Bundle"), st.lists(operations, min_size=1, max_size=3).map(lambda all_: bundle(*all_))),
    st.tuples(st.sampled_from(["Pause", "Resume"]), st.just("")),
    st.tuples(st.just("Update"), st.text(max_size=20)),
    st.tuples(st.just("Delete"), st.just({"reason": "author"})),
)
steps = st.lists(
    st.tuples(names, said, st.integers(0, 40), st.sampled_from([1, 7, 3000, 6000])), min_size=5, max_size=40
)


def play(host: Host, history: list[Any]) -> bytes:
    """Send all commits in small batches; those that break a rule must be rejected."""
    enclave = host.create(**SMALL_V1)
    batch = list[Any]()
    for name, (type_, content), which, ms in history:
        host.now += ms
        events = host.store.events(enclave, 0, 100)
        tags = (("r", events[which % len(events)].id.hex()),) if type_ in ("Update", "Delete") else (("k", str(which)),)
        text = content if isinstance(content, str) else compact_json(content)
        batch.append(build_commit(person(name), enclave, type_, text, host.now + 60_000 + len(batch), tags, enc_v=1))
        if which % 3 == 0:
            assert all(isinstance(each, Receipt | EncError) for each in host.run(*batch))
            batch.clear()
    host.run(*batch)
    host.now += 6000
    host.run()
    return enclave


def shown(store: Store, enclave: bytes) -> list[Any]:
    return [decode(item.json) for item in store.find(enclave, Filter(), EVERYTHING)]


@settings(max_examples=40, deadline=None)
@given(steps)
def test_what_is_stored_is_what_a_replay_gives(history: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as place, closing(SqliteStore(Path(place) / "enc.db")) as store:
        memory = MemoryStore()
        enclave, other = play(Host(store), history), play(Host(memory), history)
        assert enclave == other
        events = store.events(enclave, 0, 1000)
        assert events == memory.events(enclave, 0, 1000)
        replay = Replay(enclave)
        for event in events:
            replay.add(event)
        replay.finish()
        for each in (store, memory):
            state = each.load(enclave)
            assert state is not None
            assert (state.seq, state.sequencer, state.lifecycle) == (
                *(replay.state.seq, replay.state.sequencer, replay.state.lifecycle),
            )
            assert shown(each, enclave) == shown(memory, enclave)
            assert check_store(each, NODE.public, None, lambda more: None).differences == []
            head = each.head(enclave)
            assert head is not None
            assert head.r == replay.checkpoint_root()
