"""Ways to sell a registered enclave, and to tamper with its proofs."""

from tests.core.registry_world import House
from tests.core.strategies import flip
from tests.core.world import Json

GONE = {"reason": "author"}


def sold(house: House, to: str = "bob", from_: str = "alice") -> House:
    house.transfer(from_, to)
    return house


def flipped(text: str) -> str:
    return flip(bytes.fromhex(text)).hex()


def keep(proof: Json) -> None:
    """Change nothing."""
