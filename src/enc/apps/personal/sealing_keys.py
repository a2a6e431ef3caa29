"""The keys that notices are sealed with: each side's registered sub-key, or else its identity."""

from enc.client import Client
from enc.core.errors import IdentityNotFound
from enc.core.primitives.signer import Signer


def registered_sub_key(client: Client, identity: bytes, *, fresh: bool = False) -> bytes | None:
    """Return the sub-key that an identity has registered; None if it has none.

    If the registry does not answer, its error is raised: continuing would seal to another key.
    """
    if not client.has_registry:
        return None
    try:
        return client.lookup(identity, fresh=fresh).sub_pub
    except IdentityNotFound:
        return None


def recipient_key(client: Client, identity: bytes) -> bytes:
    return registered_sub_key(client, identity) or identity


def sender_key(client: Client) -> Signer:
    """Return our sub-key if it is registered, since others check `sender_pub` by it; else our
    key.
    """
    sub_key = client.identity.sub_key()
    is_known = registered_sub_key(client, client.identity.public) == sub_key.public
    return sub_key if is_known else client.identity.key


def own_keys(client: Client) -> tuple[Signer, Signer]:
    """Return both keys that others may have sealed to: which one depends on when they asked the
    registry."""
    return client.identity.sub_key(), client.identity.key
