"""Errors of the serving API, in addition to those of the protocol."""

from enc.core.errors import PeerError


class Unauthenticated(PeerError):
    """The request has no credentials, or an unknown token."""

    code, status = "UNAUTHENTICATED", 401


class ViewNotFound(PeerError):
    """The view does not exist, or the caller may not read it; the response does not tell which."""

    code, status = "VIEW_NOT_FOUND", 404


class QueryTooSlow(PeerError):
    """The query was cancelled after its time limit: it needs an index, or a filter on the key."""

    code, status = "QUERY_TOO_SLOW", 422
