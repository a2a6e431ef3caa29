"""Which events are queued for whom: endpoints, rights, gates, and the counts in notices."""

from typing import Any

import pytest

from enc.core.log.commit import build_commit, build_manifest
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.types import Receipt
from enc.node.store.push_interface import (
    BatchNotice,
    PushTotals,
)
from enc.node.store.store_interface import Store
from tests.core import world_v1
from tests.core.world import give, init, move, person, pub, rule
from tests.node.push_host import OTHER, PUSHED, URL, create, listen, notices, pushed, say, spread
from tests.node.store_host import Host


def test_an_endpoint_hears_from_the_next_event_on_and_by_its_rights(host: Host) -> None:
    enclave = create(host)
    listen(host, enclave, "vera")
    listen(host, enclave, "nick", "watch")
    say(host, enclave, 2)
    say(host, enclave, 1, "silent")
    say(host, enclave, 1)
    assert pushed(host, "vera") == [3, 4, 6]
    assert pushed(host, "nick") == []
    assert notices(host, "nick") == [BatchNotice(enclave, 6, {"message": 3})]
    assert host.store.endpoints(enclave) == {
        (person("vera").public, "view"): URL,
        (person("nick").public, "watch"): URL,
    }
    assert host.store.endpoints(bytes(32)) == {}


def test_an_enclave_without_endpoints_queues_nothing(host: Host) -> None:
    enclave = create(host)
    host.send(enclave, "alice", "Grant", give("vera", "view"))
    say(host, enclave, 3)
    spread(host)
    assert host.store.queue_reports() == []
    assert host.store.totals() == PushTotals()


def test_the_grant_itself_goes_by_the_endpoints_before_it_and_a_new_url_takes_over(host: Host) -> None:
    enclave = create(host)
    first = listen(host, enclave, "vera", "ear")
    second = listen(host, enclave, "vera", "ear", OTHER)
    third = listen(host, enclave, "nick", "view")
    assert (first.seq, second.seq, third.seq) == (1, 2, 3)
    assert pushed(host, "vera") == [2]
    assert pushed(host, "vera", OTHER) == [3]
    assert host.store.endpoints(enclave)[person("vera").public, "ear"] == OTHER
    assert [(each.url, each.push_seq) for each in host.store.queue_reports(identity=person("vera").public)] == [
        (URL, 1),
        (OTHER, 1),
    ]


def test_within_one_transaction_each_event_sees_the_endpoints_before_it(host: Host) -> None:
    enclave = create(host)
    commits = [
        host.commit(enclave, "bob", "message", "nobody hears"),
        host.commit(enclave, "alice", "Grant", give("vera", "view", endpoint=URL)),
        host.commit(enclave, "bob", "message", "vera hears"),
        host.commit(enclave, "alice", "Grant", give("vera", "view", endpoint=OTHER)),
        host.commit(enclave, "bob", "message", "elsewhere"),
        host.commit(enclave, "alice", "Revoke", give("vera", "view")),
        host.commit(enclave, "bob", "message", "nobody hears"),
    ]
    assert all(isinstance(outcome, Receipt) for outcome in host.run(*commits))
    assert pushed(host, "vera") == [3]
    assert pushed(host, "vera", OTHER) == [5]
    assert host.store.endpoints(enclave) == {}


def test_an_identity_hears_once_at_each_of_its_urls(host: Host) -> None:
    enclave = create(host)
    listen(host, enclave, "vera", "view", URL)
    listen(host, enclave, "vera", "watch", URL)
    listen(host, enclave, "vera", "ear", OTHER)
    say(host, enclave, 1)
    assert pushed(host, "vera") == [3, 4]  # she gets the last Grant by the right that it gives
    assert pushed(host, "vera", OTHER) == [4]
    assert notices(host, "vera") == []  # P outranks N


def test_events_with_several_audiences_stay_in_order(host: Host) -> None:
    enclave = create(host)
    listen(host, enclave, "vera")
    listen(host, enclave, "nick", "watch")
    for type_ in ("message", "gated", "message", "gated"):
        say(host, enclave, 1, type_)
    assert pushed(host, "vera") == [3, 4, 5, 6]


def test_the_author_may_hear_what_others_do_not(host: Host) -> None:
    enclave = create(host)
    for name in ("vera", "nick"):
        listen(host, enclave, name)
    for name in ("vera", "nick", "vera", "bob"):
        say(host, enclave, 1, "mine", name)
    assert pushed(host, "vera") == [3, 5]
    assert pushed(host, "nick") == [4]


def test_a_gate_ends_and_opens_delivery_from_its_own_event_on(host: Host) -> None:
    enclave = create(host)
    listen(host, enclave, "vera")
    say(host, enclave, 1, "gated")
    host.send(enclave, "alice", "Gate", {"alias": "feed", "state": "closed"})
    say(host, enclave, 1, "gated")
    operations = [{"type": "Gate", "alias": "feed", "state": "open"}]
    host.send(enclave, "alice", "AC_Bundle", {"operations": operations})
    say(host, enclave, 1, "gated")
    assert pushed(host, "vera") == [2, 6]


def test_rights_that_change_without_an_endpoint(host: Host) -> None:
    """An endpoint belongs to its trait, but gets the events that all traits of its identity give."""
    enclave = create(host)
    listen(host, enclave, "vera", "ear")
    say(host, enclave, 1)
    host.send(enclave, "alice", "Grant", give("vera", "view"))
    say(host, enclave, 1)
    host.send(enclave, "alice", "Shared", {"key": "topic", "value": "x"})
    say(host, enclave, 1)
    host.send(enclave, "alice", "Revoke", give("vera", "view"))
    say(host, enclave, 1)
    assert pushed(host, "vera") == [3, 4, 6]
    assert [notice.seq for notice in notices(host, "vera")] == [7]


def ending(*what: Any) -> Any:
    return pytest.param(what, id=what[1])


@pytest.mark.parametrize(
    "what",
    [
        ending("alice", "Revoke", give("vera", "view")),
        ending("vera", "Revoke", give("vera", "view")),
        ending("carol", "Move", move("vera", "MEMBER", "OUTSIDER")),
        ending("alice", "AC_Bundle", {"operations": [{"type": "Revoke", **give("vera", "view")}]}),
    ],
)
def test_who_loses_the_trait_loses_the_endpoint(host: Host, what: tuple[Any, ...]) -> None:
    enclave = create(host, init=init(alice="MEMBER owner", bob="MEMBER", carol="MEMBER admin", vera="MEMBER"))
    listen(host, enclave, "vera")
    say(host, enclave, 1)
    last = host.send(enclave, *what).seq
    host.send(enclave, "alice", "Grant", give("vera", "view"))  # the trait comes back, the endpoint does not
    say(host, enclave, 1)
    assert pushed(host, "vera") == [2]
    assert host.store.endpoints(enclave) == {}
    listen(host, enclave, "vera")
    say(host, enclave, 1)
    assert pushed(host, "vera") == [2, last + 4]


def test_a_move_that_keeps_traits_keeps_the_endpoint(host: Host) -> None:
    enclave = create(host, init=init(alice="MEMBER owner", bob="MEMBER", vera="MEMBER"))
    listen(host, enclave, "vera")
    host.send(enclave, "alice", "Move", move("vera", "MEMBER", "OUTSIDER"))
    say(host, enclave, 1)
    assert pushed(host, "vera") == [3]


def test_version_1_registers_and_revokes_by_roles(store: Store) -> None:
    host = Host(store)
    schema = [
        *world_v1.PERSONAL_V1,
        world_v1.row("Revoke_Self", "DataView", "C", "DataView"),
        world_v1.row("Grant_Push", "Owner", "C", "DataView"),
    ]
    state = world_v1.initial(alice="Owner")
    state["DataView"] = [{"identity": pub("nick"), "endpoint": OTHER}]
    content = world_v1.manifest(schema, state)
    manifest = build_manifest(person("alice"), compact_json(content), host.now + 60_000, enc_v=1)

    def send(name: str, type_: str, content: Any) -> None:
        host.now += 1
        text = content if isinstance(content, str) else compact_json(content)
        exp = host.now + 60_000
        (receipt,) = host.run(build_commit(person(name), manifest.enclave, type_, text, exp, enc_v=1))
        assert isinstance(receipt, Receipt), receipt

    host.run(manifest)
    send("alice", "public", "nick hears")
    send("alice", "Grant_Push", world_v1.has("vera", "DataView", endpoint=URL))
    send("alice", "public", "both hear")
    send("vera", "Revoke_Self", {"role": "DataView"})
    send("alice", "public", "nick hears")
    assert pushed(host, "nick", OTHER) == [1, 3, 5]
    assert pushed(host, "vera") == [3]


def test_a_terminate_goes_out_and_ends_all_endpoints(host: Host) -> None:
    enclave = create(host)
    listen(host, enclave, "vera")
    last = host.send(enclave, "alice", "Terminate").seq
    assert host.store.endpoints(enclave) == {}
    assert host.store.queue_reports(enclave) == []
    assert pushed(host, "vera") == [last]


def test_after_a_migrate_what_is_queued_still_goes(host: Host) -> None:
    enclave = create(host)
    listen(host, enclave, "vera")
    say(host, enclave, 1)
    checkpoint = host.sequencer.checkpoint(enclave, 0)
    content = {"new_sequencer": pub("node2"), "prev_seq": checkpoint.seq, "ct_root": checkpoint.ct_root.hex()}
    host.send(enclave, "alice", "Migrate", content)
    (refused,) = host.run(host.commit(enclave, "bob", "message", "too late"))
    assert not isinstance(refused, Receipt)
    assert pushed(host, "vera") == [2, 3]


def test_a_purge_takes_what_was_not_in_a_batch(host: Host) -> None:
    enclave, other = create(host), create(host, "other")
    for each in (enclave, other):
        listen(host, each, "vera")
        say(host, each, 2)
    spread(host)
    say(host, enclave, 1)
    say(host, other, 1)
    host.send(enclave, "alice", "Terminate")
    while not host.store.purge(enclave, 2):
        pass
    assert host.store.endpoints(enclave) == {}
    assert pushed(host, "vera", enclave=enclave) == [2, 3]
    assert pushed(host, "vera", enclave=other) == [2, 3, 4]


# type_seq


def test_type_seq_counts_every_event_of_a_type_also_across_batches_of_a_transaction(host: Host) -> None:
    enclave = create(host)
    say(host, enclave, 3)  # before anybody has an endpoint
    listen(host, enclave, "nick", "watch")
    commits = [
        host.commit(enclave, "bob", "message", "4"),
        host.commit(enclave, "bob", "note", "1"),
        host.commit(enclave, "bob", "silent", "unheard"),
        host.commit(enclave, "bob", "message", "5"),
    ]
    host.run(*commits)
    assert notices(host, "nick") == [BatchNotice(enclave, 8, {"message": 5, "note": 1})]
    say(host, enclave, 2, "note")
    assert notices(host, "nick")[1:] == [BatchNotice(enclave, 10, {"note": 3})]


def test_updates_and_deletes_count_under_their_own_types(host: Host) -> None:
    enclave = create(host)
    listen(host, enclave, "nick", "watch")
    first = host.send(enclave, "bob", "message", "one")
    second = host.send(enclave, "bob", "message", "two")
    update = host.commit(enclave, "bob", "Update", "one, again", ("r", first.id.hex()))
    delete = host.commit(enclave, "bob", "Delete", {"reason": "author"}, ("r", second.id.hex()))
    host.run(update, delete, host.commit(enclave, "bob", "message", "three"))
    assert notices(host, "nick") == [BatchNotice(enclave, 6, {"message": 3, "Update": 1, "Delete": 1})]


def test_a_type_is_counted_over_all_that_its_events_are_about(host: Host) -> None:
    """An Update of a message and one of a note are of one type; the one of a `silent` has no recipient."""
    rules = [*PUSHED["customs"], rule("note", "Sender", "U"), rule("silent", "Sender", "U")]
    enclave = create(host, customs=rules)
    listen(host, enclave, "nick", "watch")
    targets = [host.send(enclave, "bob", type_, "x") for type_ in ("message", "note", "silent")]
    updates = [host.commit(enclave, "bob", "Update", "y", ("r", each.id.hex())) for each in targets]
    host.run(*updates)
    assert notices(host, "nick")[-1].type_seq["Update"] == 2
    host.run(host.commit(enclave, "bob", "Update", "z", ("r", targets[2].id.hex())))
    host.send(enclave, "bob", "Update", "z", ("r", targets[0].id.hex()))
    assert notices(host, "nick")[-1] == BatchNotice(enclave, 9, {"Update": 5})
