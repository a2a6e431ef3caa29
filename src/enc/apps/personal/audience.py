"""Who can see events of a type: by the manifest, and by the rights that the log has given since."""

from collections.abc import Iterable
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from enc.client import Enclave
from enc.core.errors import PeerError
from enc.core.primitives.encoding import compact_json
from enc.core.rules.access_replay import AccessReplay
from enc.core.rules.parse_manifest import parse_manifest
from enc.core.rules.policy_types import Policy, Subject


class Audience(Struct, frozen=True):
    """Who can see an event of a type. The node itself sees every content that is not sealed."""

    is_public: bool
    """Whether anybody may read it from the node."""
    readers: tuple[bytes, ...]
    """Identities, besides the author, that may read it by a State, trait or role."""
    pushed: tuple[bytes, ...]
    """Identities to which the node pushes it."""
    notified: tuple[bytes, ...]
    """Identities that the node only tells that it exists."""
    is_complete: bool = True
    """False if the author may not read all events that give rights: others may have some."""


def audience(enclave: Enclave, type_: str, author: bytes) -> Audience:
    """Return who can see events of this type by `author`, now, as far as the node shows the log."""
    policy = parse_manifest(compact_json(enclave.overview().manifest))
    replay, known = AccessReplay(policy), dict.fromkeys(policy.initial_members)
    replay.start()
    types = [*policy.dialect.access_types, *({"Gate"} & policy.predefined)]
    for item in enclave.query(type=types):
        with suppress(PeerError):  # an honest node would have rejected it: it changes nothing
            known.update(dict.fromkeys(policy.dialect.affected_identities(item.event)))
            replay.apply(item.event)
    known.pop(author, None)
    scope = policy.read_scope(replay.bitmask(author), replay.closed_gates)
    found = _audience(policy, replay, Subject(type_), known, enclave.sequencer())
    return replace(found, is_complete=all(scope.of(each) == "all" for each in types))


def _audience(
    policy: Policy, replay: AccessReplay, subject: Subject, known: Iterable[bytes], sequencer: bytes
) -> Audience:
    def rights(identity: bytes) -> frozenset[str]:
        bitmask, closed, is_node = replay.bitmask(identity), replay.closed_gates, identity == sequencer
        return policy.rights(subject, bitmask, is_author=False, closed=closed, is_node=is_node)

    found = {identity: rights(identity) for identity in known}
    is_public = "R" in policy.rights(subject, 0, is_author=False, closed=replay.closed_gates)
    return Audience(
        is_public,
        tuple(who for who, ops in found.items() if "R" in ops),
        tuple(who for who, ops in found.items() if "P" in ops),
        tuple(who for who, ops in found.items() if "N" in ops and "P" not in ops),
    )
