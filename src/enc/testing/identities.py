"""Identities by name."""

from enc.client import Identity
from enc.core.primitives.hashing import sha256


class Identities(dict[str, Identity]):
    """`identities["ada"]` is the same identity in every test and every run. Anybody can compute its
    key: never use it outside tests.
    """

    def __missing__(self, name: str) -> Identity:
        self[name] = identity = Identity.from_secret(sha256(b"enc.testing:" + name.encode()))
        return identity
