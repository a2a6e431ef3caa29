"""With which keys notices are sealed: the registered sub-key of each side, or its identity where there is none."""

from enc.client import Client
from enc.core.errors import IdentityNotFound
from enc.core.signing import PrivateKey


def registered_sub_key(client: Client, identity: bytes, *, fresh: bool = False) -> bytes | None:
    """The key that somebody has registered to be sealed to. Where the registry is silent, its error is raised: to go on
    without would seal to another key than the one that was asked for."""
    if not client.has_registry:
        return None
    try:
        return client.lookup(identity, fresh=fresh).sub_pub
    except IdentityNotFound:
        return None


def recipient_key(client: Client, identity: bytes) -> bytes:
    return registered_sub_key(client, identity) or identity


def sender_key(client: Client) -> PrivateKey:
    """One's own sub-key where that is what the registry shows: others check `sender_pub` by it."""
    sub_key = client.identity.sub_key()
    is_known = registered_sub_key(client, client.identity.public) == sub_key.public
    return sub_key if is_known else client.identity.key


def own_keys(client: Client) -> tuple[PrivateKey, PrivateKey]:
    """The keys that others may have sealed to: whoever asked the registry at another time used the other one."""
    return client.identity.sub_key(), client.identity.key
