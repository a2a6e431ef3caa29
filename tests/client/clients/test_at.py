"""An enclave at a node other than the client's: asked there first, and followed from there."""

from pathlib import Path

from enc.client import Client, Identity
from tests.client.moved import town


def test_an_enclave_is_asked_for_where_it_is_said_to_be_and_followed(tmp_path: Path) -> None:
    ada, bob = Identity.new(), Identity.new()
    with town(tmp_path, "a", "b") as place:
        here, there = place.nodes["a"].url, place.nodes["b"].url
        with place.client(ada, "a") as owner, Client(there, bob, pins=None) as visitor:
            feed = owner.create("feed")
            feed.register()
            post = feed.commit("post", "one")
            assert (owner.has_registry, visitor.has_registry) == (True, False)
            seen = visitor.enclave(feed.id, at=here)
            assert seen.url == here
            assert [item.content for item in seen.query(type="post")] == ["one"]
            with seen.subscribe(type="post") as live:
                assert next(live).id == post.id
            feed.migrate(there, tmp_path / "move")
            feed.commit("post", "two")
            with place.client(bob, None) as known:
                moved = known.enclave(feed.id, at=here)  # where it was
                assert [item.content for item in moved.query(type="post")][-1] == "two"
                assert moved.url == there
