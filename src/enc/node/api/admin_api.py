"""The pages of the admin listener, as an ASGI application."""

from collections.abc import Mapping

from starlette.types import Receive, Scope, Send

from enc.core.errors import EncError, InvalidQuery
from enc.node.api.http_api import Page, respond, respond_error
from enc.node.ops.internal_errors import internal_error


class AdminApi:
    """Answers GET and HEAD for a few paths."""

    def __init__(self, pages: Mapping[str, Page]) -> None:
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        page = self._pages.get(scope["path"])
        if page is None:
            await respond_error(send, InvalidQuery(f"no such path: expected {', '.join(self._pages)}"), 404)
            return
        if scope["method"] not in ("GET", "HEAD"):
            await respond_error(send, InvalidQuery("method: expected GET"), 405, (b"allow", b"GET, HEAD"))
            return
        try:
            status, media_type, body = await page()
        except Exception as e:
            await respond_error(send, e if isinstance(e, EncError) else internal_error(e, scope["path"]))
            return
        await respond(send, status, body, media_type=media_type.encode())
