"""No node ever sees sealed plaintext: after a day of use, everything that the nodes store is
searched.
"""

import os

import pytest

from enc.core.primitives.sealing import shared_key
from enc.core.sealed_forms import personal
from tests.apps.personal.pair import Pair
from tests.apps.searching import found
from tests.client.moved import Town


@pytest.fixture
def pair(street) -> Pair:  # type: ignore[no-untyped-def]
    return Pair(street)


def test_the_nodes_keep_no_plaintext_and_no_secret(pair: Pair, place: Town) -> None:
    words = {name: f"{name}-{os.urandom(12).hex()}" for name in ("name", "text", "new", "topic", "greeting", "gone")}
    posted, root = os.urandom(12).hex(), os.urandom(32)
    pair.his.post(posted)
    kept = pair.his.add(words["name"], words["text"])
    pair.his.change(kept.id, text=words["new"])
    pair.his.remove(pair.his.add("x", words["gone"]).id)
    group, move = pair.invited()
    pair.notify(
        group,
        move_ref=move.id,
        secret=root,
        epoch_n=1,
        topic=words["topic"],
        greeting=words["greeting"],
        manifest_hash=group.manifest().content_hash,
    )
    (notice,) = pair.his.notices()
    assert pair.his.handoff(notice) == root
    assert pair.his.documents(words["new"])
    ada, bob = pair.ada.identity, pair.bob.identity
    secrets = {
        **{name: word.encode() for name, word in words.items()},
        "root secret": root,
        "inviter's key": ada.private_key().secret,
        "owner's key": bob.private_key().secret,
        "inviter's sub-key": ada.sub_key().secret,
        "owner's sub-key": bob.sub_key().secret,
        "key of documents": personal.private_key(bob.key, pair.his.enclave.id),
        "key of the notice": shared_key(bob.sub_key(), ada.sub_key().public, personal.NOTICE),
        "key of the handoff": shared_key(bob.sub_key(), ada.sub_key().public, personal.HANDOFF),
    }
    nodes = list(place.nodes.values())
    assert found(nodes, secrets) == set()
    assert found(nodes, {"what is public": posted.encode()}), "the search itself finds what is there"
    assert found(nodes, {"a public key": bob.public})


def test_which_group_it_was_the_recipient_s_node_does_not_learn(pair: Pair, place: Town) -> None:
    group, move = pair.invited()
    pair.notify(group, move_ref=move.id)
    assert found([place.nodes["b"]], {"the group": group.id, "the move": move.id, "kind": b"group_invite"}) == set()
    assert found([place.nodes["a"]], {"the group": group.id})
