"""One message that is sent until its fate is known."""

from typing import Any

from msgspec import Struct

from enc.core.primitives.types import Commit


class SendAttempt(Struct, eq=False):
    """Give the same object to each call that sends the same message: it becomes one event.

    It keeps the signed commit. If an answer is lost, the next call sends the same bytes again, and
    the node answers with the first receipt. A commit that has expired without being accepted is
    signed again.
    """

    commit: Commit | None = None
    """The commit to send again, if there is one."""
    about: Any = None
    """What the app needs to know about the commit."""
