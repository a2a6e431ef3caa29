"""`enc push status`: the state of pushes, for the owner and for their recipients."""

from enc.cli.common.command_context import CommandContext
from enc.cli.enclave import push
from enc.client import Delivery, Identity
from enc.client.enclave.deliveries import Queue
from tests.cli.people import Person

URL = "https://hooks.invalid/push"
BOB = Identity.from_secret(bytes(31) + b"\x07")


def member(alice: Person) -> None:
    """Return bob, who is an admin with an endpoint."""
    alice.ask("move", BOB.hex, "OUTSIDER", "MEMBER")
    alice.ask("grant", BOB.hex, "admin", "--endpoint", URL)


def test_nobody_is_pushed_to(alice: Person) -> None:
    assert alice.ask_json("push", "status") == []
    result = alice.ask("push", "status")
    assert (result.stdout, "no endpoint of yours is registered" in result.stderr) == ("", True)


def test_the_owner_sees_every_endpoint(alice: Person) -> None:
    member(alice)
    (found,) = alice.ask_json("push", "status")
    assert found == {
        "identity": BOB.hex,
        "trait": "admin",
        "url": URL,
        "state": "unconfirmed",
        "has_dead": False,
        "last_error": "",
        "last_error_at": None,
    }
    assert alice.ask("push", "status").stdout == f"{BOB.hex}\tadmin\t\t\t\t\t\t\t{URL}\tunconfirmed\n"


def test_anyone_else_sees_their_own(alice: Person) -> None:
    member(alice)
    other = Identity.new()
    for who, count in ((BOB, 1), (other, 0)):
        key = alice.home / f"{who.hex}.key"
        who.save(key)
        assert len(alice.ask_json("push", "status", "--identity", key)) == count


def test_a_queue_in_trouble() -> None:
    queue = Queue(9, 3, 1_800_000_000_000, 5, 1)
    delivery = Delivery(BOB.public, "admin", URL, "suspended", True, "status 503", 1_800_000_000_001, queue)
    wire, cells = push._row(CommandContext({}), delivery)
    assert (wire["queue"]["oldest"], wire["queue"]["dead"]) == (1_800_000_000_000, 1)
    assert (*cells[2:4], *cells[5:7], *cells[8:]) == ("9", "3", "5", "1", URL, "suspended")
    assert cells[4].startswith("2027-01-1")
    assert cells[7].startswith("status 503 at 2027-01-1")
    assert len(cells) == len(push._COLUMNS)
