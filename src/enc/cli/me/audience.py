"""Presentation of who can see a post: lines for people, an object for programs."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from enc.cli.common.output import short

if TYPE_CHECKING:
    from enc.apps.personal import Audience


def wire_audience(audience: "Audience") -> dict[str, Any]:
    return {
        "public": audience.is_public,
        "readers": [who.hex() for who in audience.readers],
        "pushed": [who.hex() for who in audience.pushed],
        "notified": [who.hex() for who in audience.notified],
        "complete": audience.is_complete,
    }


def audience_lines(audience: "Audience", url: str, names: Mapping[bytes, str]) -> list[str]:
    """Return lines that say who can see a post at the node `url`."""
    if audience.is_public:
        lines = [f"anybody can read it at {url}"]
    else:
        lines = [f"you and the operator of the node {url} can read it: a post is not sealed"]
        if audience.readers:
            lines.append(f"{_named(audience.readers, names)} can read it at the node")
        elif audience.is_complete:
            lines.append("nobody else can read it at the node")
    if audience.pushed:
        lines.append(
            f"the node pushes it to {_named(audience.pushed, names)}, and these services may show it to anybody"
        )
    if audience.notified:
        lines.append(f"the node tells {_named(audience.notified, names)} that there is a post, without its text")
    if not audience.is_complete and not audience.is_public:
        lines.append("others may see it, too: you may not read all events that give rights")
    return lines


def _named(people: Iterable[bytes], names: Mapping[bytes, str]) -> str:
    return ", ".join(f"{names[who]} ({short(who)})" if who in names else who.hex() for who in people)
