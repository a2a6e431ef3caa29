"""What the serving API refuses with, beyond the wire's own errors."""

from enc.core.errors import PeerError


class Unauthenticated(PeerError):
    """Nobody is named whose rights could be asked for, or a token that is none of ours."""

    code, status = "UNAUTHENTICATED", 401


class ViewNotFound(PeerError):
    """No such view, or not this caller's to read: the two are not told apart."""

    code, status = "VIEW_NOT_FOUND", 404


class QueryTooSlow(PeerError):
    """The query was given up after its time: it needs an index, or a filter on the key."""

    code, status = "QUERY_TOO_SLOW", 422
