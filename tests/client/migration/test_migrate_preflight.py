"""Moves that are rejected before they begin, and clients that wait for the end of one."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.json import encode
from msgspec.structs import replace

from enc.client import Client, Forgery, Identity, LostRange, Unreachable
from enc.client.verify.pins import FilePins
from enc.core.errors import EncError, EnclaveExists, EnclaveNotFound, InvalidArchive, MisuseError, Unauthorized
from enc.core.log.commit import wire_commit
from enc.core.primitives.types import Commit
from tests.client.moved import Town, create_team, introduce, town
from tests.node.running import RunningNode, free_port


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    with town(tmp_path_factory.mktemp("town"), "a", "b") as found:
        yield found


# The new node is asked first

REFUSALS: dict[str, tuple[str, type[EncError], str]] = {
    "ADMISSION_CREATE": ("closed", Unauthorized, "accepts no enclaves"),
    "IMPORTS_AT_ONCE": ("0", Unauthorized, "accepts no imports"),
    "IMPORTS_TOTAL_BYTES": ("1024", InvalidArchive, "the node accepts 1024"),
    "LIMITS_MANIFEST": ("1024", InvalidArchive, "the node accepts 1024"),
}


@pytest.mark.parametrize("setting", REFUSALS)
def test_a_node_that_would_refuse_is_not_moved_to(place: Town, tmp_path: Path, setting: str) -> None:
    value, error, reason = REFUSALS[setting]
    with (
        RunningNode(tmp_path / "node", env={f"ENC_NODE_{setting}": value}) as node,
        place.client(Identity.new(), "a") as mine,
    ):
        team = create_team(mine)
        with pytest.raises(error, match=reason):
            team.migrate(node.url, tmp_path / "moves")
        assert team.commit("message", "still here").sequencer == place.nodes["a"].seq_pub
        assert list(team.query(type="Migrate")) == []


def test_nor_is_one_that_holds_another_log(place: Town, tmp_path: Path) -> None:
    """The node was left by force and continued."""
    alice = Identity.new()
    with place.client(alice, "a") as mine, Client(place.nodes["a"].url, alice, pins=None) as unaware:
        team = create_team(mine, bundle={"size": 1})
        team.archive(tmp_path / "copy.enc")
        team.migrate(place.nodes["b"].url, tmp_path / "moves", archive=tmp_path / "copy.enc")
        unaware.enclave(team.id).commit("message", "nobody told me")
        with pytest.raises(EnclaveExists, match="another log"):
            team.migrate(place.nodes["a"].url, tmp_path / "moves")
        assert team.commit("message", "here").sequencer == place.nodes["b"].seq_pub


# Loss


def test_what_a_takeover_would_lose_is_told_before_it(place: Town, tmp_path: Path) -> None:
    alice, told = Identity.new(), list[str]()
    with place.client(alice, "a") as mine, place.client(alice, "a", accept_loss=True) as bold:
        team = create_team(mine, bundle={"size": 1})
        team.archive(tmp_path / "copy.enc")
        last, *_ = [team.commit("message", f"lost {n}") for n in range(3)]
        team.head()
        with pytest.raises(LostRange, match="nothing was sent") as lost:
            team.migrate(place.nodes["b"].url, tmp_path / "moves", archive=tmp_path / "copy.enc")
        assert lost.value.context == {"first_seq": last.seq, "bundles": [0, 4]}
        with Client(place.nodes["b"].url, alice, pins=None) as there, pytest.raises(EnclaveNotFound):
            there.enclave(team.id).head()
        bold.enclave(team.id).migrate(
            place.nodes["b"].url,
            tmp_path / "moves",
            archive=tmp_path / "copy.enc",
            tell=lambda step, what: told.append(what) if step == "verify" else None,
        )
        assert "is lost" in told[0]
        assert "extends" not in told[0]


def test_whoever_registers_has_seen_a_head(place: Town, tmp_path: Path) -> None:
    """A former owner with an old copy is then seen to have lost something."""
    alice, bob = Identity.new(), Identity.new()
    with place.client(alice, "a") as mine, place.client(bob, "a") as his:
        team = create_team(mine, bundle={"size": 1})
        team.move(bob.public, "OUTSIDER", "MEMBER")
        team.archive(tmp_path / "copy.enc")
        team.transfer(bob.public, "owner")
        his.enclave(team.id).register()
        pin = FilePins(place.home / "pins" / bob.hex).load(team.id)
        assert pin is not None
        assert pin.head is not None
        assert pin.head.ts == 3
    with place.client(alice, "a", registry=None, pins=None) as thief:
        thief.enclave(team.id).migrate(place.nodes["b"].url, tmp_path / "moves", archive=tmp_path / "copy.enc")
    with place.client(bob, "b", registry=None) as his, pytest.raises(LostRange):
        his.enclave(team.id).head()


@pytest.mark.parametrize("way", ["a registry", "no registry", "a registry that is behind", "a silent registry"])
def test_a_former_owner_s_takeover_is_not_followed_for_being_told_to_accept_a_loss(
    place: Town, tmp_path: Path, way: str
) -> None:
    """In the old copy alice still owns the enclave; only the registry shows a reader that she does not."""
    alice, bob, carol = Identity.new(), Identity.new(), Identity.new()
    with place.client(alice, "a") as mine, place.client(bob, "a") as his, place.client(carol, "a") as hers:
        team = create_team(mine, bundle={"size": 1})
        for who in (bob, carol):
            team.move(who.public, "OUTSIDER", "MEMBER")
        team.archive(tmp_path / "copy.enc")
        team.transfer(bob.public, "owner")
        if way != "a registry that is behind":
            his.enclave(team.id).register()
        hers.enclave(team.id).head()
    with place.client(alice, "a", registry=None, pins=None) as thief:
        thief.enclave(team.id).migrate(place.nodes["b"].url, tmp_path / "moves", archive=tmp_path / "copy.enc")
        if way == "a registry":
            thief.enclave(team.id).transfer(bob.public, "owner")  # the transfer must not make the takeover valid
    silent = replace(place.registry, url=f"http://127.0.0.1:{free_port()}")
    options = {"no registry": {"registry": None}, "a silent registry": {"registry": silent, "patience": 0.0}}
    with place.client(carol, "b", accept_loss=True, **options.get(way, {})) as hers:  # type: ignore[arg-type]
        if way == "a silent registry":
            with pytest.raises(Unreachable):
                hers.enclave(team.id).head()
        elif way == "a registry":
            with pytest.raises(Forgery, match=f"the registry names {bob.hex}"):
                hers.enclave(team.id).head()
        else:
            assert hers.enclave(team.id).head().ts == 4
    pin = FilePins(place.home / "pins" / carol.hex).load(team.id)
    assert pin is not None
    assert (pin.sequencer == place.nodes["a"].seq_pub) == (way in ("a registry", "a silent registry"))


@pytest.mark.parametrize("is_registered", [False, True])
def test_a_loss_that_the_registry_has_taken_is_followed_under_its_next_owner_too(
    place: Town, tmp_path: Path, is_registered: bool
) -> None:
    """The entry contains the Migrate, or an earlier one did."""
    alice, bob, carol = Identity.new(), Identity.new(), Identity.new()
    with place.client(alice, "a", registry=None) as mine, place.client(carol, "a", registry=None) as hers:
        team = create_team(mine, bundle={"size": 1})
        for who in (bob, carol):
            team.move(who.public, "OUTSIDER", "MEMBER")
        team.archive(tmp_path / "copy.enc")
        hers.enclave(team.id).commit("message", "lost")
        hers.enclave(team.id).head()
    with place.client(alice, "b", **({} if is_registered else {"registry": None}), pins=None) as mine:
        team = mine.enclave(team.id)
        team.migrate(place.nodes["b"].url, tmp_path / "moves", archive=tmp_path / "copy.enc")
        team.transfer(bob.public, "owner")
    with place.client(bob, "b") as his:
        his.enclave(team.id).register()
        assert his.resolve(team.id, fresh=True).record.holder == bob.public
    with place.client(carol, "b", accept_loss=True) as hers:
        assert hers.enclave(team.id).commit("message", "on").sequencer == place.nodes["b"].seq_pub


# Where it is


def test_who_moved_it_knows_where_it_is(place: Town, tmp_path: Path) -> None:
    with place.client(Identity.new(), "a", registry=None) as mine:
        team = create_team(mine)
        team.migrate(place.nodes["b"].url, tmp_path / "moves")
        assert team.commit("message", "x").sequencer == place.nodes["b"].seq_pub
        assert mine.enclave(team.id).commit("message", "y").sequencer == place.nodes["b"].seq_pub


def test_a_node_that_the_registry_names_and_that_is_down(place: Town, tmp_path: Path) -> None:
    alice = Identity.new()
    with RunningNode(tmp_path / "node") as node:
        introduce(place, node)
        with Client(node.url, alice, registry=place.registry, pins=None) as mine:
            team = create_team(mine)
            team.register()
    with place.client(alice, patience=0) as mine, pytest.raises(Unreachable, match=node.url):
        mine.enclave(team.id).head()
    with place.client(alice, patience=0) as mine, pytest.raises(EnclaveNotFound):
        mine.enclave(bytes(32)).head()


@pytest.mark.parametrize("is_paused", [False, True])
def test_where_it_has_come_to_it_is_not_migrated(place: Town, tmp_path: Path, is_paused: bool) -> None:
    with place.client(Identity.new(), "a", registry=None) as mine:
        team = create_team(mine)
        if is_paused:
            team.pause()
        team.migrate(place.nodes["b"].url, tmp_path / "moves")
        assert team.overview().lifecycle == ("paused" if is_paused else "active")
    with Client(place.nodes["a"].url, mine.identity, pins=None) as old:
        assert old.enclave(team.id).overview().lifecycle == "migrated"


def test_two_moves_at_once(place: Town, tmp_path: Path) -> None:
    alice, refused = Identity.new(), list[Any]()
    with place.client(alice, "a") as mine:
        team = create_team(mine)

        def again() -> None:
            with place.client(alice, "a") as other, pytest.raises(MisuseError, match="another move") as found:
                other.enclave(team.id).migrate(place.nodes["b"].url, tmp_path / "moves")
            refused.append(found)

        def tell(step: str, _: str) -> None:
            if step == "copy":
                thread = threading.Thread(target=again)
                thread.start()
                thread.join()

        team.migrate(place.nodes["b"].url, tmp_path / "moves", tell=tell)
    assert refused
    assert list((tmp_path / "moves").iterdir()) == []


# Copies of the Manifest at the new node


def copied_to(place: Town, team: Any, name: str) -> None:
    """Send the Manifest of an enclave to another node, as anyone can who reads it."""
    manifest = next(iter(team.query(seq=0))).event
    commit = Commit(**{field: getattr(manifest, field) for field in Commit.__struct_fields__})
    answer = httpx.post(place.nodes[name].url, content=encode(wire_commit(commit)), trust_env=False)
    assert answer.status_code == 200, answer.text


def test_a_copy_of_the_manifest_at_the_new_node_does_not_strand_the_enclave(place: Town, tmp_path: Path) -> None:
    with place.client(Identity.new(), "a", registry=None) as mine:
        team = create_team(mine, bundle={"size": 2, "timeout": 3_600_000})
        team.commit("message", "one")
        copied_to(place, team, "b")
        assert team.migrate(place.nodes["b"].url, tmp_path / "moves").sequencer == place.nodes["b"].seq_pub
        assert team.commit("message", "two").sequencer == place.nodes["b"].seq_pub
        assert [item.content for item in team.query(type="message")] == ["one", "two"]


def test_a_short_log_waits_until_it_is_longer_than_the_copy(place: Town, tmp_path: Path) -> None:
    """The new node may have signed a head of size 1 of the copy."""
    with place.client(Identity.new(), "a", registry=None) as mine:
        team = create_team(mine, bundle={"size": 256, "timeout": 3_600_000})
        copied_to(place, team, "b")
        with pytest.raises(EnclaveExists, match="no closed bundle yet: nothing was moved"):
            team.migrate(place.nodes["b"].url, tmp_path / "moves")
        soon = create_team(mine, bundle={"size": 256, "timeout": 1})
        copied_to(place, soon, "b")
        assert soon.migrate(place.nodes["b"].url, tmp_path / "moves").head.ts > 1


def test_a_copy_with_another_event_is_told_before_the_migrate(place: Town, tmp_path: Path) -> None:
    alice = Identity.new()
    with place.client(alice, "a", registry=None) as mine, Client(place.nodes["b"].url, alice, pins=None) as there:
        team = create_team(mine)
        copied_to(place, team, "b")
        there.enclave(team.id).commit("message", "here, too")
        with pytest.raises(EnclaveExists, match="another log under this enclave's id"):
            team.migrate(place.nodes["b"].url, tmp_path / "moves")
        assert team.commit("message", "still here").sequencer == place.nodes["a"].seq_pub
