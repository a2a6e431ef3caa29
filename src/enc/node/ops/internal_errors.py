"""Internal errors: logged in full, and reported to peers without details."""

import structlog

from enc.core.errors import InternalError

_log = structlog.get_logger("enc.internal")


def internal_error(error: BaseException, where: str, request: str = "") -> InternalError:
    """Log an internal error and return the one for the wire. `request`: the id of the request, if known.

    Neither the wire nor the log contains anything that the peer sent.
    """
    _log.error("internal_error", where=where, exc_info=error, **({"request": request} if request else {}))
    return InternalError(f"internal error: {type(error).__name__}")
