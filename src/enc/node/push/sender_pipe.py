"""The messages between a node and its sender, over the sender's standard input and output.

    node    Start, first and once; Key, for each AskKey; ResultsStored, for each DeliveryResults;
            end of input: stop
    sender  AskKey, for an identity; DeliveryResults, the next only after the last was answered;
            Alive, regularly

A message is its length in four bytes, and MessagePack.
"""

from struct import Struct as Layout

from msgspec import Struct
from msgspec.msgpack import Decoder, Encoder

from enc.node.store.push_interface import PushResult
from enc.runtime.log_options import Level, LogFormat

LENGTH = Layout(">I")
MAX_MESSAGE = 1 << 20
MAX_RESULTS = 1024
"""Maximum number of results per message."""


class Start(Struct, frozen=True, kw_only=True, tag=True):
    """What a sender must know. It contains no key: the sender asks for each recipient's."""

    store: str
    seq_pub: bytes
    allow_private: bool
    timeout_s: float
    tries: int
    first_retry_s: float
    max_retry_s: float
    connections: int
    unsent_bytes: int
    host_per_s: float
    host_bytes_per_s: int
    host_connections: int
    confirmed_s: float | None
    """How long a confirmation counts; None: endpoints need none."""
    max_hold_s: float | None
    """For development: longest time that a queue is held, in place of limits on challenges."""
    interval_s: float
    alive_s: float
    """Seconds between two Alive."""
    ca_file: str
    log_level: Level
    log_format: LogFormat


class AskKey(Struct, frozen=True, tag=True):
    identity: bytes


class Key(Struct, frozen=True, tag=True):
    """The key that seals an identity's deliveries; empty if the identity is not a public key."""

    identity: bytes
    key: bytes


class DeliveryResults(Struct, frozen=True, tag=True):
    results: tuple[PushResult, ...]


class Alive(Struct, frozen=True, tag=True):
    """Shows that the sender's event loop runs. It has no answer."""


class ResultsStored(Struct, frozen=True, tag=True):
    is_durable: bool
    """False: the store cannot be written; the sender reports the same results again."""


ToSender = Start | Key | ResultsStored
FromSender = AskKey | DeliveryResults | Alive

read_to_sender = Decoder(ToSender).decode
read_from_sender = Decoder(FromSender).decode
_encode = Encoder().encode


def packed(message: ToSender | FromSender) -> bytes:
    body = _encode(message)
    return LENGTH.pack(len(body)) + body


def length(head: bytes) -> int:
    """Return the length of a message. Raises ValueError if it is too long."""
    (size,) = LENGTH.unpack(head)
    if size > MAX_MESSAGE:
        raise ValueError("message too long")
    return int(size)
