"""ENC: verifiable, sovereign, access-controlled logs."""

from typing import TYPE_CHECKING, Any

from enc.version import __version__

__all__ = ["AsyncClient", "Client", "Identity", "PushReceiver", "Registry", "__version__"]

if TYPE_CHECKING:
    from enc.client import AsyncClient, Client, Identity, PushReceiver, Registry
else:  # type checkers would accept every name

    def __getattr__(name: str) -> Any:
        """Return a name of the client, imported on first access: the kernel and the node do not need it."""
        if name in ("AsyncClient", "Client", "Identity", "PushReceiver", "Registry"):
            from enc import client

            return getattr(client, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
