"""Opening an epoch of a group: a member derives the secrets that it is entitled to."""

from enc.core.errors import DecryptFailed, MisuseError
from enc.core.primitives.encoding import unhex
from enc.core.primitives.signer import Signer
from enc.core.sealed_forms.group_envelope import Envelope, Wrap, unwrap
from enc.core.sealed_forms.group_state import NO_SECRETS, HeldEpoch, PublicGroupState, Secrets, next_secret, node_key
from enc.core.sealed_forms.group_tree import is_one, path_to


def consume(
    after: PublicGroupState,
    author: bytes,
    envelope: Envelope,
    key: Signer,
    secrets: Secrets = NO_SECRETS,
    fitting: dict[bytes, bytes] | None = None,
) -> HeldEpoch:
    """Return the secrets of the epoch that made `after`, for the member with identity `key` and the
    earlier `secrets`.

    Raises DecryptFailed if the author left this member out, by mistake or not. The public state is
    valid all the same. Also then, `fitting` collects every secret that derives its announced key:
    later epochs may be sealed to such a key.
    """
    if after.tree is None or key.public not in after.members:
        raise MisuseError("key: only a member can open an epoch")
    eph = unhex(envelope.eph, 32, "epoch.eph")
    held = {} if fitting is None else fitting
    held |= secrets
    if key.public == author:
        return _from_self(after, envelope, unwrap(key, eph, envelope.self_), key.public, held)
    _open_fills(envelope, eph, key, held)
    path = path_to(after.tree, author)
    meeting = next(i for i, node in enumerate(path) if is_one(key.public, node.bit) != is_one(author, node.bit))
    rung = len(path) - 1 - meeting
    secret = _open_wrap(envelope.path[rung].wrap, eph, key, held)
    return _finish(after, envelope, rung, secret, key.public, held)


def _from_self(
    after: PublicGroupState, envelope: Envelope, secret: bytes, member: bytes, held: dict[bytes, bytes]
) -> HeldEpoch:
    if not envelope.path:
        return HeldEpoch(after.n, secret, {})
    return _finish(after, envelope, 0, secret, member, held)


def consume_handoff(envelope: Envelope, root_secret: bytes) -> HeldEpoch:
    """Return the epoch of a root secret that was handed over. Raises DecryptFailed unless it
    derives the announced root key."""
    if envelope.path and node_key(root_secret).public.hex() != envelope.path[-1].pub:
        raise DecryptFailed("handoff: not the root secret of this epoch")
    return HeldEpoch(envelope.n, root_secret, {})


def _open_fills(envelope: Envelope, eph: bytes, key: Signer, held: dict[bytes, bytes]) -> None:
    """Add the secrets of filled nodes above the member to `held`, each opened with the key of the
    node below."""
    for i, fill in enumerate(envelope.fill):
        for wrap in fill.wraps:
            if wrap.to == key.public.hex() or bytes.fromhex(wrap.to) in held:
                secret = _open_wrap(wrap, eph, key, held)
                held |= _announced(fill.pub, secret, f"epoch.fill[{i}]")
                break


def _open_wrap(wrap: Wrap, eph: bytes, key: Signer, held: Secrets) -> bytes:
    to = bytes.fromhex(wrap.to)
    if to == key.public:
        return unwrap(key, eph, wrap)
    if to not in held:
        raise DecryptFailed("epoch: sealed to a key that this member does not have")
    return unwrap(node_key(held[to]), eph, wrap)


def _announced(pub: str, secret: bytes, field: str) -> dict[bytes, bytes]:
    public = node_key(secret).public
    if public.hex() != pub:
        raise DecryptFailed(f"{field}: the secret does not derive the announced key")
    return {public: secret}


def _finish(
    after: PublicGroupState, envelope: Envelope, rung: int, secret: bytes, member: bytes, held: dict[bytes, bytes]
) -> HeldEpoch:
    """Derive the secrets from one node of the path up to the root. Of `held`, only keys above the
    member stay."""
    for i in range(rung, len(envelope.path)):
        secret = next_secret(secret) if i > rung else secret
        held |= _announced(envelope.path[i].pub, secret, f"epoch.path[{i}]")
    assert after.tree is not None  # noqa: S101  # the caller checked
    above = {node.key for node in path_to(after.tree, member)}
    return HeldEpoch(after.n, secret, {public: known for public, known in held.items() if public in above})
