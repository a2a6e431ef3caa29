"""Repeated moves: to the next node, by the next owner, with an outdated journal."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from enc.client import Identity, TooManyMoves
from enc.client.registry import register as registering
from enc.client.verify import sequencer_history
from enc.core.errors import MisuseError
from enc.core.machine.archive import read_archive, write_archive
from enc.core.primitives.encoding import compact_json
from tests.client.moved import Town, create_team, town


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    with town(tmp_path_factory.mktemp("town"), "a", "b", "c") as found:
        yield found


def test_back_to_a_node_left_by_force(place: Town, tmp_path: Path) -> None:
    alice = Identity.new()
    with place.client(alice, "c") as mine:
        team = create_team(mine)
        team.register()
        team.migrate(place.nodes["a"].url, tmp_path / "moves")
        team.commit("message", "one")
        team.archive(tmp_path / "copy.enc")
        team.migrate(place.nodes["b"].url, tmp_path / "moves", archive=tmp_path / "copy.enc")
        team.commit("message", "two")
        found = team.migrate(place.nodes["a"].url, tmp_path / "moves")
        assert found.sequencer == place.nodes["a"].seq_pub
        assert team.commit("message", "x").sequencer == place.nodes["a"].seq_pub


def test_self_migrate(place: Town, tmp_path: Path) -> None:
    alice, bob = Identity.new(), Identity.new()
    with place.client(alice, "a") as mine, place.client(bob, "a") as his:
        team = create_team(mine)
        team.move(bob.public, "OUTSIDER", "MEMBER")
        his.enclave(team.id).head()
        his.enclave(team.id).commit("message", "hi")
        team.migrate(place.nodes["b"].url, tmp_path / "moves")
        team.commit("message", "one")
        # at b: a Migrate to b itself
        team.archive(tmp_path / "c.enc")
        from enc.core.machine.archive import read_archive

        header, _ = read_archive([(tmp_path / "c.enc").read_bytes()])
        content = {
            "new_sequencer": place.nodes["b"].seq_pub.hex(),
            "prev_seq": header.checkpoint_seq,
            "ct_root": header.checkpoint_root.hex(),
        }
        team.commit("Migrate", compact_json(content))
        team.commit("message", "two")
        team.migrate(place.nodes["c"].url, tmp_path / "moves")
        assert team.commit("message", "three").sequencer == place.nodes["c"].seq_pub
    with place.client(bob, "c") as his:
        assert his.enclave(team.id).commit("message", "hello")
        names = [term.sequencer for term in his.enclave(team.id).sequencers().terms()]
        assert names == [place.nodes[name].seq_pub for name in "abc"]


def test_stale_journal(place: Town, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A accepted A -> B, but B never imported it; then C took over by force. Later C -> B."""
    from enc.client.migration.migrate import Mover
    from enc.core.errors import Unauthorized

    alice = Identity.new()

    def refuse(*what: Any) -> Any:
        raise Unauthorized("quota")
        yield

    with place.client(alice, "a") as mine:
        team = create_team(mine)
        team.register()
        with monkeypatch.context() as patch:
            patch.setattr(Mover, "_import", refuse)
            with pytest.raises(Unauthorized):
                team.migrate(place.nodes["b"].url, tmp_path / "moves")
    with place.client(alice, "c", accept_loss=True) as mine:
        team = mine.enclave(team.id)
        copies = list((tmp_path / "moves").glob("*/log.enc"))
        assert copies
        team.migrate(place.nodes["c"].url, tmp_path / "moves", archive=copies[0])
        team.commit("message", "at c")
    with place.client(alice, "c") as mine:
        team = mine.enclave(team.id)
        found = team.migrate(place.nodes["b"].url, tmp_path / "moves")
        assert found.sequencer == place.nodes["b"].seq_pub
        assert team.commit("message", "x").sequencer == place.nodes["b"].seq_pub
        assert [item.content for item in team.query(type="message")] == ["at c", "x"]


def test_a_fresh_client_at_the_first_node_moves_it_on(place: Town, tmp_path: Path) -> None:
    alice = Identity.new()
    with place.client(alice, "a") as mine:
        team = create_team(mine)
        team.register()
        team.migrate(place.nodes["b"].url, tmp_path / "moves")
    with place.client(alice, "a") as mine:
        team = mine.enclave(team.id)
        found = team.migrate(place.nodes["c"].url, tmp_path / "moves")
        assert found.sequencer == place.nodes["c"].seq_pub


def test_move_and_move_on(place: Town, tmp_path: Path) -> None:
    alice = Identity.new()
    with place.client(alice, "a") as mine:
        team = create_team(mine)
        team.register()
        team.migrate(place.nodes["b"].url, tmp_path / "moves")
        found = team.migrate(place.nodes["c"].url, tmp_path / "moves")
        assert found.sequencer == place.nodes["c"].seq_pub


def test_move_and_archive(place: Town, tmp_path: Path) -> None:
    alice = Identity.new()
    with place.client(alice, "a") as mine:
        team = create_team(mine)
        team.register()
        team.migrate(place.nodes["b"].url, tmp_path / "moves")
        team.archive(tmp_path / "x.enc")


def test_a_new_owner_moves_what_nobody_had_registered(place: Town, tmp_path: Path) -> None:
    alice, bob = Identity.new(), Identity.new()
    with place.client(alice, "a") as mine, place.client(bob, "a") as his:
        team = create_team(mine)
        team.move(bob.public, "OUTSIDER", "MEMBER")
        team.transfer(bob.public, "owner")
        his.enclave(team.id).migrate(place.nodes["b"].url, tmp_path / "moves")
        assert his.resolve(team.id, fresh=True).record.holder == bob.public


@pytest.mark.parametrize("entry", ["none", "by the owner before"])
def test_a_new_owner_takes_over_what_others_had_registered(place: Town, tmp_path: Path, entry: str) -> None:
    """The head in the archive shows who signed the log; the old node is not asked."""
    alice, bob = Identity.new(), Identity.new()
    with place.client(alice, "a") as mine, place.client(bob, "a", registry=None) as his:
        team = create_team(mine, bundle={"size": 1})
        if entry != "none":
            team.register(app="kept")
        team.move(bob.public, "OUTSIDER", "MEMBER")
        team.transfer(bob.public, "owner")
        his.enclave(team.id).archive(tmp_path / "copy.enc")
    with place.client(bob, "b", pins=tmp_path / "pins") as his:
        theirs = his.enclave(team.id)
        theirs.migrate(place.nodes["b"].url, tmp_path / "moves", archive=tmp_path / "copy.enc")
        record = his.resolve(team.id, fresh=True).record
        assert (record.holder, record.sequencer) == (bob.public, place.nodes["b"].seq_pub)
        assert record.entry.app == ("" if entry == "none" else "kept")


def test_a_pinned_head_shows_it_too(place: Town, tmp_path: Path) -> None:
    """The archive came without a head."""
    alice, bob = Identity.new(), Identity.new()
    with place.client(alice, "a") as mine, place.client(bob, "a", registry=None) as his:
        team = create_team(mine, bundle={"size": 1})
        team.register()
        team.move(bob.public, "OUTSIDER", "MEMBER")
        team.transfer(bob.public, "owner")
        his.enclave(team.id).archive(tmp_path / "copy.enc")
        his.enclave(team.id).head()
    header, events = read_archive([(tmp_path / "copy.enc").read_bytes()])
    (tmp_path / "bare.enc").write_bytes(b"".join(write_archive(replace(header, sth=None), events)))
    with place.client(bob, "b") as his:
        his.enclave(team.id).migrate(place.nodes["b"].url, tmp_path / "moves", archive=tmp_path / "bare.enc")
        assert his.resolve(team.id, fresh=True).record.holder == bob.public


def test_what_was_moved_unregistered_is_registered_later_with_an_archive(place: Town, tmp_path: Path) -> None:
    """Of several moves since then, the registry would reject the first."""
    alice, bob = Identity.new(), Identity.new()
    with place.client(alice, "a") as mine, place.client(bob, "a", registry=None) as his:
        team = create_team(mine, bundle={"size": 1})
        team.register()
        team.move(bob.public, "OUTSIDER", "MEMBER")
        mine.enclave(team.id).archive(tmp_path / "old.enc")
        team.transfer(bob.public, "owner")
        theirs = his.enclave(team.id)
        theirs.archive(tmp_path / "copy.enc")
        theirs.migrate(place.nodes["b"].url, tmp_path / "moves", archive=tmp_path / "copy.enc")
        theirs.migrate(place.nodes["c"].url, tmp_path / "moves")
    with place.client(bob, "c", pins=tmp_path / "pins") as his:
        theirs = his.enclave(team.id)
        for archive in (None, tmp_path / "old.enc"):
            with pytest.raises(MisuseError, match="is available under which the Migrate"):
                theirs.register(archive=archive)
        with pytest.raises(MisuseError, match="No such file"):
            theirs.register(archive=tmp_path / "missing.enc")
        assert theirs.register(archive=tmp_path / "copy.enc") is not None
        record = his.resolve(team.id, fresh=True).record
        assert (record.holder, record.sequencer) == (bob.public, place.nodes["c"].seq_pub)
        assert len(record.entry.links) == 2


def test_who_became_the_owner_at_a_node_in_between(place: Town, tmp_path: Path) -> None:
    """The enclave is back at the node that the registry names, whose head shows the owner. Which
    sequencer finalised the Transfer does not matter, so the moves are not submitted."""
    alice, bob = Identity.new(), Identity.new()
    with place.client(alice, "a") as mine:
        team = create_team(mine, bundle={"size": 1})
        team.register()
        team.move(bob.public, "OUTSIDER", "MEMBER")
    with place.client(alice, "a", registry=None) as mine:
        mine.enclave(team.id).migrate(place.nodes["b"].url, tmp_path / "moves")
        mine.enclave(team.id).transfer(bob.public, "owner")
    with place.client(bob, "b", registry=None) as his:
        his.enclave(team.id).migrate(place.nodes["a"].url, tmp_path / "moves")
    with place.client(bob, "a") as his:
        assert his.enclave(team.id).register() is not None
        record = his.resolve(team.id, fresh=True).record
        assert (record.holder, record.sequencer) == (bob.public, place.nodes["a"].seq_pub)
        assert record.known.proved_root
        assert not record.entry.links


def test_more_moves_than_one_entry_brings(place: Town, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alice = Identity.new()
    with place.client(alice, "a", registry=None) as mine:
        team = create_team(mine)
        for name in "bc":
            team.migrate(place.nodes[name].url, tmp_path / "moves")
    monkeypatch.setattr(registering, "MAX_LINKS", 1)
    with place.client(alice, "c") as mine:
        assert mine.enclave(team.id).register(app="late") is not None
        found = mine.resolve(team.id, fresh=True)
        assert (found.sequencer, len(found.migrates)) == (place.nodes["c"].seq_pub, 1)
        assert found.record.entry.app == "late"
        assert mine.enclave(team.id).register() is None


def test_more_moves_than_one_entry_brings_by_different_owners(
    place: Town, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, bob = Identity.new(), Identity.new()
    with place.client(alice, "a", registry=None) as mine:
        team = create_team(mine, bundle={"size": 1})
        team.move(bob.public, "OUTSIDER", "MEMBER")
        team.migrate(place.nodes["b"].url, tmp_path / "moves")
        team.transfer(bob.public, "owner")
    with place.client(bob, "b", registry=None) as his:
        his.enclave(team.id).migrate(place.nodes["c"].url, tmp_path / "moves")
    monkeypatch.setattr(registering, "MAX_LINKS", 1)
    with place.client(bob, "c") as his, pytest.raises(MisuseError, match=f"{alice.hex}, who must register"):
        his.enclave(team.id).register()


def test_more_moves_than_a_client_follows(place: Town, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This is not a lie, and is reported as what it is."""
    alice, bob = Identity.new(), Identity.new()
    with place.client(alice, "a", registry=None) as mine, place.client(bob, "a", registry=None) as his:
        team = create_team(mine)
        team.move(bob.public, "OUTSIDER", "MEMBER")
        his.enclave(team.id).head()
        for name in "bc":
            team.migrate(place.nodes[name].url, tmp_path / "moves")
    monkeypatch.setattr(sequencer_history, "MAX_MOVES", 1)
    for pins in (place.home / "pins" / bob.hex, None):
        with place.client(bob, "c", registry=None, pins=pins) as his, pytest.raises(TooManyMoves) as found:
            his.enclave(team.id).sequencers()
        assert found.value.context == {"moves": 2}
