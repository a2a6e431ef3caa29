"""Enclaves that move between real nodes, with a registry: owners, readers, and an auditor with only the registry."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from enc.client import Client, Identity, LostRange, SplitBrain
from enc.client.enclave.backup import summarise
from enc.core.errors import EnclaveMigrated, EnclaveNotFound, IdentityNotFound, MisuseError, Unauthorized
from enc.core.machine.archive import read_archive
from enc.core.machine.replay import Replay
from tests.client.moved import Town, create_team, town


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    with town(tmp_path_factory.mktemp("town"), "a", "b", "c") as found:
        yield found


def test_an_enclave_goes_round_and_an_auditor_sees_all_of_it(place: Town, tmp_path: Path) -> None:
    """A -> B -> C -> A, by peace and by force, with commits between, paused, erased, and passed on to another owner."""
    alice, bob, auditor = Identity.new(), Identity.new(), Identity.new()
    with place.client(alice, "a") as mine, place.client(bob) as his:
        team = create_team(mine)
        team.move(bob.public, "OUTSIDER", "MEMBER")
        team.move(auditor.public, "OUTSIDER", "MEMBER")
        assert team.register(app="round") is not None
        first = team.commit("message", "at a")
        team.update(first.id, "at a, edited")
        gone = team.commit("message", "never mind")
        team.delete(gone.id)
        theirs = his.enclave(team.id)
        heard = theirs.subscribe(type="message")
        assert next(heard).content is None

        team.migrate(place.nodes["b"].url, tmp_path / "moves")
        assert theirs.commit("message", "at b").sequencer == place.nodes["b"].seq_pub
        assert next(heard).content == "at b"
        heard.close()
        team.transfer(bob.public, "owner")
        assert theirs.register() is not None

        theirs.pause()
        theirs.archive(tmp_path / "copy.enc")
        theirs.migrate(place.nodes["c"].url, tmp_path / "moves", archive=tmp_path / "copy.enc")
        theirs.resume()
        assert theirs.commit("message", "at c").sequencer == place.nodes["c"].seq_pub

        theirs.migrate(place.nodes["a"].url, tmp_path / "moves")
        assert theirs.commit("message", "home").sequencer == place.nodes["a"].seq_pub
    with place.client(alice, "b") as again, place.client(bob) as his:  # "b" has no record of the forced move
        assert again.enclave(team.id).commit("message", "welcome").sequencer == place.nodes["a"].seq_pub
        his.enclave(team.id).archive(tmp_path / "whole.enc")
    with place.client(auditor) as audit:
        log = audit.enclave(team.id)
        keys = [place.nodes[name].seq_pub for name in "abca"]
        assert [term.sequencer for term in log.sequencers().terms()] == keys
        assert log.proof(first.id).status == "updated"
        assert [item.content for item in log.query(type="message")][1:] == ["at b", "at c", "home", "welcome"]
        items = list(log.complete())
        assert {item.event.sequencer for item in items} == set(keys)
    chunks = [(tmp_path / "whole.enc").read_bytes()]
    assert [key for key, _ in summarise(*read_archive(chunks)).header.sequencers] == keys
    assert not list((tmp_path / "moves").iterdir())


def test_an_auditor_who_knows_the_registry_alone_replays_the_log(place: Town, tmp_path: Path) -> None:
    """An auditor who may read everything, without pins and a node's URL, replays the whole log.

    The replay ends at the head that the present node signs. Only an archive, which the owner may pull, also has
    deleted events: so nothing is deleted here.
    """
    alice, bob, auditor = Identity.new(), Identity.new(), Identity.new()
    with place.client(alice, "a") as mine, place.client(bob) as his:
        team = create_team(mine)
        for who in (bob, auditor):
            team.move(who.public, "OUTSIDER", "MEMBER")
        assert team.register(app="audited") is not None
        team.update(team.commit("message", "at a").id, "at a, edited")
        team.migrate(place.nodes["b"].url, tmp_path / "moves")
        team.commit("message", "at b")
        team.transfer(bob.public, "owner")
        theirs = his.enclave(team.id)
        assert theirs.register() is not None
        theirs.pause()
        theirs.archive(tmp_path / "copy.enc")
        theirs.migrate(place.nodes["c"].url, tmp_path / "moves", archive=tmp_path / "copy.enc")
        theirs.resume()
        theirs.commit("message", "at c")
        last = theirs.migrate(place.nodes["a"].url, tmp_path / "moves").migrate  # a peaceful one closes its bundle
    with place.client(auditor) as audit:
        log, replay = audit.enclave(team.id), Replay(team.id)
        for item in log.complete():
            replay.add(item.event)
        state, head = replay.finish(), log.head()
        assert [key for key, _ in replay.sequencers] == [place.nodes[name].seq_pub for name in "abc"]
        assert (state.seq, state.sequencer) == (last.seq, place.nodes["a"].seq_pub)
        assert (state.log.size, state.log.root()) == (head.ts, head.r)


def test_an_old_node_that_goes_on_is_refused_with_evidence(place: Town, tmp_path: Path) -> None:
    alice, bob = Identity.new(), Identity.new()
    with place.client(alice, "a") as mine, place.client(bob, "a", registry=None) as his:
        team = create_team(mine)
        team.register()
        team.move(bob.public, "OUTSIDER", "MEMBER")
        team.archive(tmp_path / "copy.enc")
        team.migrate(place.nodes["b"].url, tmp_path / "moves", archive=tmp_path / "copy.enc")
        old = his.enclave(team.id)
        old.commit("message", "nobody told me")
        assert team.commit("message", "at b").sequencer == place.nodes["b"].seq_pub
    with place.client(bob, "b", registry=None, pins=tmp_path / "new") as new:
        new.enclave(team.id).head()
    stays = {"registry": None, "uses_recorded": False}
    with place.client(alice, "a", **stays) as back, pytest.raises(SplitBrain) as found:  # type: ignore[arg-type]
        list(back.enclave(team.id).query(type="message"))
    found.value.evidence.save(tmp_path / "evidence.json")
    with place.client(alice, "a") as back:
        assert [item.content for item in back.enclave(team.id).query(type="message")] == ["at b"]


def test_what_a_reader_saw_and_is_lost(place: Town, tmp_path: Path) -> None:
    alice, bob = Identity.new(), Identity.new()
    with place.client(alice, "a") as mine, place.client(bob, "a", registry=None) as his:
        team = create_team(mine)
        team.register()
        team.move(bob.public, "OUTSIDER", "MEMBER")
        team.archive(tmp_path / "copy.enc")
        seen = his.enclave(team.id)
        lost = [seen.commit("message", f"lost {n}") for n in range(8)]
        seen.proof(lost[0].id)
        team.migrate(place.nodes["b"].url, tmp_path / "moves", archive=tmp_path / "copy.enc")
    with place.client(bob) as his, pytest.raises(LostRange) as told:
        his.enclave(team.id).head()
    assert told.value.context["first_seq"] == lost[0].seq
    with place.client(bob, accept_loss=True) as his:
        his.enclave(team.id).head()
    with place.client(bob) as his:
        assert list(his.enclave(team.id).query(type="message")) == []


def test_who_registers_what(place: Town) -> None:
    alice, bob = Identity.new(), Identity.new()
    with place.client(alice, "a") as mine, place.client(bob, "a") as his:
        team = create_team(mine)
        with pytest.raises(EnclaveNotFound):
            mine.resolve(team.id)
        team.register(app="mine", desc="Garden", meta={"name": "plans"})
        assert team.register() is None
        found = mine.resolve(team.id)
        assert (found.urls, found.record.entry.app) == ((place.nodes["a"].url,), "mine")
        assert (found.record.holder, found.origin) == (alice.public, place.nodes["a"].seq_pub)
        assert mine.listing(app="mine", q="garden")[0][0]["enclave_id"] == team.hex
        with pytest.raises(IdentityNotFound):
            mine.lookup(alice.public)
        mine.register_identity({"team": team.id})
        known = his.lookup(alice.public)
        assert (known.enclaves, known.sub_pub) == ({"team": team.id}, alice.sub_key().public)
        assert mine.register_identity({"team": team.id}) is None
        team.move(bob.public, "OUTSIDER", "MEMBER")
        with pytest.raises(MisuseError, match="you do not own the enclave"):
            his.enclave(team.id).register(desc="mine now")
        team.transfer(bob.public, "owner")
        his.enclave(team.id).register(desc="mine now")
        assert his.resolve(team.id, fresh=True).record.holder == bob.public
        assert his.resolve(team.id).record.entry.app == "mine"
        with pytest.raises((Unauthorized, MisuseError)):
            team.register(desc="still mine")


def test_a_new_owner_s_client_registers_by_itself(place: Town) -> None:
    """Neither of them calls `register` after the Transfer."""
    alice, bob = Identity.new(), Identity.new()
    with place.client(alice, "a") as mine, place.client(bob, "a") as his:
        team = create_team(mine, bundle={"size": 1})
        team.register(app="mine")
        team.move(bob.public, "OUTSIDER", "MEMBER")
        team.transfer(bob.public, "owner")
        theirs = his.enclave(team.id)
        assert [item.type for item in theirs.query(type="Transfer")] == ["Transfer"]
        found = his.resolve(team.id, fresh=True).record
        assert (found.holder, found.entry.app, theirs.unregistered) == (bob.public, "mine", "")
        assert found.known.proved_size == 3
        theirs.transfer(alice.public, "owner")
        assert [item.type for item in team.query(type="Transfer")] == ["Transfer", "Transfer"]
        assert mine.resolve(team.id, fresh=True).record.holder == alice.public


def test_a_registry_is_needed_to_ask_one(place: Town) -> None:
    with place.client(Identity.new(), "a", registry=None) as nobody:
        for work in (lambda: nobody.resolve(bytes(32)), nobody.registry, lambda: nobody.lookup(bytes(32))):
            with pytest.raises(MisuseError, match="no registry was given"):
                work()
    with pytest.raises(MisuseError, match="give a node's URL, or a registry"):
        Client()
    with place.client(Identity.new()) as found, pytest.raises(EnclaveNotFound):
        list(found.enclave(bytes(32)).query())


def test_a_move_that_has_happened_is_not_made_again(place: Town, tmp_path: Path) -> None:
    alice, steps = Identity.new(), list[str]()
    with place.client(alice, "a") as mine:
        team = create_team(mine)
        team.migrate(place.nodes["b"].url, tmp_path, tell=lambda step, what: steps.append(step))
        assert steps == ["copy", "hold", "sign", "migrate", "import", "wait", "verify", "register"]
        before = team.head()
        steps.clear()
        again = team.migrate(place.nodes["b"].url, tmp_path, tell=lambda step, what: steps.append(step))
        assert (steps, again.registered, team.head()) == (["import", "wait", "verify", "register"], None, before)
    with place.client(alice, "a", registry=None, uses_recorded=False) as old, pytest.raises(EnclaveMigrated):
        old.enclave(team.id).commit("message", "there is nobody here")
