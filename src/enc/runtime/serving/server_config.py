"""uvicorn's settings, with our protocol and its limits."""

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn

from enc.core.errors import MisuseError
from enc.runtime.serving.fast_response import Finish
from enc.runtime.serving.http_protocol import HttpProtocol
from enc.runtime.serving.limits import ServingLimits
from enc.runtime.serving.peers import Peers
from enc.runtime.serving.sites import SiteCheck, SiteRules

GRACE_S = 10
"""Time that connections have to close when a server stops."""


def server_config(
    app: Any,
    *,
    limits: ServingLimits = ServingLimits(),  # noqa: B008
    quick: Callable[[bytes, str, Finish], None] | None = None,
    cert: Path | str | None = None,
    key: Path | str | None = None,
    field: str = "",
    **options: Any,
) -> uvicorn.Config:
    """Return uvicorn's settings: those that all our servers share, and `options`. For one server.

    `quick` answers `POST /` on the fast path. Raises MisuseError, which begins with `field`, if the
    certificate and key cannot be used.
    """
    bounds = {
        "limits": limits,
        "peers": Peers(limits),
        "sites": SiteCheck(SiteRules(), ""),
        "quick": None if quick is None else staticmethod(quick),
    }
    try:
        config = uvicorn.Config(
            app,
            interface="asgi3",
            http=type("BoundedHttp", (HttpProtocol,), bounds),
            log_config=None,
            log_level="error",  # below it uvicorn logs every connection and every malformed request
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=GRACE_S,
            timeout_keep_alive=limits.idle_timeout_s,
            ws_max_size=limits.max_body,
            ssl_certfile=cert,
            ssl_keyfile=key,
            **{"ws": "none", **options},
        )
        config.load()
    except (OSError, ssl.SSLError) as e:
        raise MisuseError(f"{field}the certificate and key cannot be used: {e} ({cert}, {key})") from None
    return config
