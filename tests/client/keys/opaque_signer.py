"""A signer that offers the four operations and nothing else, as one in a device would."""

from collections import Counter

from enc.core.primitives.signing import Alg, PrivateKey


class OpaqueSigner:
    """`used` counts the operations."""

    def __init__(self, key: PrivateKey) -> None:
        self.__key, self.used = key, Counter[str]()

    @property
    def public(self) -> bytes:
        return self.__key.public

    def sign(self, alg: Alg, digest: bytes, /) -> bytes:
        self.used[alg] += 1
        return self.__key.sign(alg, digest)

    def ecdh(self, public: bytes, /) -> bytes:
        self.used["ecdh"] += 1
        return self.__key.ecdh(public)

    def derive(self, label: str, /) -> bytes:
        self.used["derive"] += 1
        return self.__key.derive(label)
