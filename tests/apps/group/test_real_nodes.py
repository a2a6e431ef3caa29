"""Groups on real nodes: all actions, live; thirty people and a move; and what the node's disk
reveals.
"""

import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from enc.apps.group import Change, Group, Muted, NotAMember, NotAnAdmin, NotTheOwner, invitations
from enc.client import Client, Enclave, Identity
from enc.core.errors import EncError, GateClosed, Unauthorized
from tests.client.moved import Town, town
from tests.core.world import PERSONAL
from tests.node.running import RunningNode

PATIENCE_S = 60
QUICK = {"size": 64, "timeout": 200}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with RunningNode(tmp_path_factory.mktemp("node") / "node") as running:
        yield running


class People:
    """People, each with a client and a device in the group."""

    def __init__(self, node: RunningNode, *names: str) -> None:
        self.identities = {name: Identity.new() for name in names}
        self._url = node.url
        self._clients: list[Client] = []
        self.group = Group.create(self.client(names[0]), topic="plans", bundle=QUICK)
        self.devices = {names[0]: self.group} | {name: self.device(name) for name in names[1:]}

    def client(self, name: str) -> Client:
        self._clients.append(Client(self._url, self.identities[name], pins=None))
        return self._clients[-1]

    def device(self, name: str) -> Group:
        return Group(self.client(name), self.group.id)

    def __getitem__(self, name: str) -> Group:
        return self.devices[name]

    def key(self, name: str) -> bytes:
        return self.identities[name].public

    def close(self) -> None:
        for client in self._clients:
            client.close()


@pytest.fixture
def people(node: RunningNode) -> Iterator[People]:
    found = People(node, "ann", "ben", "cat", "dan", "eve")
    yield found
    found.close()


def texts(group: Group) -> list[str | None]:
    group.sync()
    return [entry.text for entry in group.entries() if not entry.is_deleted]


def refused(error: type[EncError], work: Any, *what: Any, **more: Any) -> None:
    with pytest.raises(error):
        work(*what, **more)


def test_every_way_in_and_out(people: People) -> None:
    ann, ben, cat, dan, eve = (people[name] for name in ("ann", "ben", "cat", "dan", "eve"))
    ann.invite(people.key("ben"), notify=False)
    assert ben.say("in by invitation").epoch == 1

    cat.apply()
    refused(NotAMember, cat.sync)
    ann.sync()
    assert [person.identity for person in ann.people() if person.state == "PENDING"] == [people.key("cat")]
    ann.approve(people.key("cat"), notify=False)
    cat.say("in by application")

    dan.apply()
    ann.decline(people.key("dan"))
    dan.apply()
    dan.withdraw()
    ann.set_gate("applications", open=False)
    refused(GateClosed, dan.apply)
    refused(GateClosed, dan.join)
    ann.set_gate("auto_join", open=True)
    dan.join()
    ann.sync()
    dan.say("in by oneself")
    assert texts(dan) == [None, None, "in by oneself"]
    assert texts(ann) == ["in by invitation", "in by application", "in by oneself"]

    dan.leave()
    ann.say("dan is gone")
    refused(NotAMember, dan.sync)
    ann.remove(people.key("cat"))
    refused(NotAMember, cat.sync)
    ann.block(people.key("ben"))
    ann.say("ben is out")
    refused(GateClosed, ben.apply)
    refused(Unauthorized, lambda: ben.enclave.move(ben.me, "BLOCKED", "MEMBER"))
    ann.unblock(people.key("ben"))
    ann.set_gate("applications", open=True)
    eve.apply()
    ann.block(people.key("eve"))
    refused(EncError, eve.join)
    ann.unblock(people.key("eve"))
    ben.join()
    ann.sync()
    ben.sync()
    assert ben.status().can_seal
    assert texts(ben) == ["in by invitation", "in by application", "in by oneself", "dan is gone", None]
    assert not ann.status().is_stale
    assert ann.status().members == 2


def test_standing_and_what_is_said_of_the_group(people: People) -> None:
    ann, ben, cat = (people[name] for name in ("ann", "ben", "cat"))
    for name in ("ben", "cat"):
        ann.invite(people.key(name), notify=False)
    ann.mute(people.key("cat"))
    refused(Muted, cat.say, "hush")
    assert cat.status().me.is_muted
    ann.unmute(people.key("cat"))
    cat.say("there")
    refused(NotAnAdmin, ben.rotate)
    ann.make_admin(people.key("ben"))
    ben.set_topic("better plans")
    ben.announce("hear, hear")
    ben.rotate()
    ben.invite(people.key("dan"), notify=False)
    ann.unmake_admin(people.key("ben"))
    refused(NotAnAdmin, ben.announce, "no more")
    ann.make_admin(people.key("ben"))
    ben.unmake_admin(people.key("ben"))
    ann.transfer(people.key("cat"))
    cat.make_admin(people.key("cat"))
    cat.set_profile({"name": "Cat"})
    cat.set_gate("auto_join", open=True)
    refused(NotTheOwner, ann.set_gate, "auto_join", open=False)
    ann.sync()
    assert ann.status().topic == "better plans"
    assert ann.status().gates == {"applications": True, "auto_join": True}
    assert ann.person(people.key("cat")).profile == {"name": "Cat"}
    assert {person.identity for person in ann.people() if person.is_owner} == {people.key("cat")}
    assert [entry.kind for entry in ann.entries()] == ["message", "notice"]


def listen(group: Group, heard: "Queue[Change | None]") -> Any:
    following = group.follow()

    def run() -> None:
        for change in following:
            heard.put(change)
        heard.put(None)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return following, thread


def test_a_conversation_live_while_others_and_oneself_speak(people: People) -> None:
    ann, ben = people["ann"], people["ben"]
    ann.invite(people.key("ben"), notify=False)
    said = ann.say("before")
    ben.sync()
    heard: Queue[Change | None] = Queue()
    following, thread = listen(ben, heard)
    got: list[Change] = []

    def act_and_read(work: Callable[[], Any]) -> Any:
        """Process the changes one by one: an edit that is deleted before it is read has lost its text."""
        done, change = work(), heard.get(timeout=PATIENCE_S)
        assert change is not None
        got.append(change)
        return done

    act_and_read(lambda: ann.say("live"))
    own = act_and_read(lambda: ben.say("own words", reply_to=said.id))
    act_and_read(lambda: ann.react(own.id, "+1"))
    act_and_read(lambda: ann.edit(said.id, "before, edited"))
    act_and_read(lambda: ann.delete(said.id))
    following.close()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert [change.kind for change in got] == ["message", "message", "reaction", "edit", "delete"]
    assert [change.entry and change.entry.text for change in got] == [
        "live",
        "own words",
        "own words",
        "before, edited",
        None,
    ]
    assert [entry.text for entry in ben.entries()] == [None, "live", "own words"]


def test_an_admin_who_listens_keeps_the_epoch_fresh(people: People) -> None:
    ann, ben, cat = people["ann"], people["ben"], people["cat"]
    for name in ("ben", "cat"):
        ann.invite(people.key(name), notify=False)
    ann.sync()
    heard: Queue[Change | None] = Queue()
    following, thread = listen(ann, heard)
    cat.leave()
    kinds = []
    while "epoch" not in kinds:
        change = heard.get(timeout=PATIENCE_S)
        assert change is not None
        kinds.append(change.kind)
    following.close()
    thread.join(PATIENCE_S)
    ben.sync()
    assert not ben.status().is_stale
    assert kinds == ["people", "epoch"]


def test_who_is_put_out_hears_so(people: People) -> None:
    ann, ben = people["ann"], people["ben"]
    ann.invite(people.key("ben"), notify=False)
    ben.sync()
    with ben.follow() as following:
        ann.say("last words")
        assert next(following).kind == "message"
        ann.remove(people.key("ben"))
        with pytest.raises(NotAMember):
            next(following)


def test_two_admins_at_once_in_threads(people: People) -> None:
    """They and a member write and admit people at once; in the end all share one epoch and every
    message.
    """
    ann, ben, cat = people["ann"], people["ben"], people["cat"]
    for name in ("ben", "cat"):
        ann.invite(people.key(name), notify=False)
    ann.make_admin(people.key("ben"))
    failures: list[BaseException] = []

    def work(group: Group, *steps: Any) -> None:
        try:
            for i, step in enumerate(steps):
                step() if callable(step) else group.say(f"{step} {i}")
        except BaseException as e:
            failures.append(e)

    threads = [
        threading.Thread(target=work, args=(ann, "ann", lambda: ann.invite(people.key("dan"), notify=False), "ann")),
        threading.Thread(
            target=work, args=(ben, ben.rotate, "ben", lambda: ben.invite(people.key("eve"), notify=False))
        ),
        threading.Thread(target=work, args=(cat, *["cat"] * 5)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not failures
    ann.sync()
    ben.sync()
    said = sorted(filter(None, texts(people.device("cat"))))
    assert said == sorted(["ann 0", "ann 2", "ben 1", *(f"cat {i}" for i in range(5))])
    views = {tuple((v.n, v.seq, v.counts) for v in group.epochs()) for group in (ann, ben)}
    assert len(views) == 1
    for name in ("dan", "eve"):
        device = people[name]
        device.sync()
        assert device.status().can_seal
        assert not device.status().is_stale


# Thirty people


def test_thirty_people_on_two_nodes_with_a_move_between(tmp_path: Path) -> None:
    with town(tmp_path / "town", "a", "b") as place:
        crowd = [Identity.new() for _ in range(30)]
        clients = [place.client(who, "a", pins=None) for who in crowd]
        try:
            _thirty(place, crowd, clients, tmp_path)
        finally:
            for client in clients:
                client.close()
        search(place, clients, tmp_path)


def _thirty(place: Town, crowd: list[Identity], clients: list[Client], tmp_path: Path) -> None:
    first = Group.create(clients[0], topic="the move", bundle=QUICK)
    groups = [first, *(Group(client, first.id) for client in clients[1:])]
    assert first.enclave.register(app="group") is None, "the registry knows it since it was created"
    for who in crowd[1:20]:
        first.invite(who.public, notify=False)
    first.make_admin(crowd[1].public)
    for i in range(0, 20, 4):
        groups[i].say(f"{SECRET_WORDS} {i} at a")
    gone = groups[4].say(f"{SECRET_WORDS} to be deleted")
    groups[4].delete(gone.id)
    first.announce(f"{SECRET_WORDS}, all of you")
    edited = groups[8].say("soon")
    groups[8].edit(edited.id, f"{SECRET_WORDS}, edited")
    groups[12].react(edited.id, SECRET_WORDS)
    groups[5].leave()
    assert clients[0].seq_pub() == place.nodes["a"].seq_pub

    first.enclave.migrate(place.nodes["b"].url, tmp_path / "moves")

    personal = at_home(clients[29])
    for i, who in enumerate(crowd[20:], 20):
        made = groups[i % 2].invite(who.public, greeting=SECRET_WORDS)
        assert (made.notice is not None) == (i == 29), made.why
    (found,) = invitations(clients[29], personal.id)
    assert found.is_confirmed, found.why
    assert (found.greeting, found.inviter) == (SECRET_WORDS, crowd[1].public)
    groups[29].accept(found)
    first.remove(crowd[7].public)
    said = [groups[i].say(f"{SECRET_WORDS} {i} at b") for i in (0, 1, 8, 25, 29)]
    assert {item.event.sequencer for item in first.enclave.query(type="message")} == {
        node.seq_pub for node in place.nodes.values()
    }
    present = [i for i in range(30) if i not in (5, 7)]
    for i in present:
        groups[i].sync()
        status = groups[i].status()
        assert (status.members, status.is_stale, status.can_seal) == (28, False, True)
        assert status.epoch == first.status().epoch
        for sent in said:
            entry = groups[i].entry(sent.id)
            assert entry is not None
            assert entry.text is not None, (i, entry.why)
    with pytest.raises(NotAMember):
        groups[5].sync()
    with pytest.raises(NotAMember):  # "a" still points to "b", which shows it nothing
        groups[7].sync()
    with place.client(crowd[29], pins=None) as client:
        fresh = Group(client, first.id)
        fresh.sync()
        assert fresh.epochs() == groups[29].epochs()
    SECRETS.clear()
    SECRETS.extend(_secrets(groups))


def at_home(client: Client) -> Enclave:
    """Create a personal enclave that the registry knows, with a registered sub-key."""
    owner = [{"identity": client.identity.hex, "state": "OWNER", "traits": []}]
    personal = client.create({**PERSONAL, "init": owner})
    personal.register()
    client.register_identity({"personal": personal.id}, sub_key=True)
    return personal


SECRET_WORDS = "what nobody else shall read"
SECRETS: list[bytes] = []


def _secrets(groups: list[Group]) -> list[bytes]:
    """Return every secret that a person's device holds: roots, nodes, epochs, messages, private
    keys.
    """
    found: set[bytes] = set()
    for group in groups:
        epochs = group._fold.epochs
        for made in epochs.counted:
            epoch = epochs.secret(made.n)
            if epoch is not None:
                found |= {epoch.root_secret, epoch.secret, *epoch.secrets.values()}
        for chain in epochs._chains.values():
            found |= {chain._link, *chain._keys}
        identity = group._client.identity
        found |= {identity.private_key().secret, identity.sub_key().secret}
    return sorted(found)


def search(place: Town, clients: list[Client], home: Path) -> None:
    """No file of a node or of a move, including databases and logs, holds a message's text or a
    secret.
    """
    words = SECRET_WORDS.encode()
    wanted = [words, words.hex().encode(), b64encode(words)[:32]]
    for secret in SECRETS:
        wanted += [secret, secret.hex().encode(), b64encode(secret)[:40]]
    assert len(SECRETS) > 100
    files = [path for path in home.rglob("*") if path.is_file()]
    assert any(path.suffix == ".db" for path in files)
    assert any(path.suffix == ".stderr" for path in files)
    assert first_plain(files, [b"the move"]), "what is in the open is found: the search looks in the right place"
    assert not first_plain(files, wanted)


def first_plain(files: list[Path], wanted: list[bytes]) -> str:
    for path in files:
        data = path.read_bytes()
        for text in wanted:
            if text in data:
                return str(path)
    return ""
