"""Settings of the server, from a TOML file.

    database = "serving.db"             # or postgresql://…
    listen = "127.0.0.1:7780"
    tokens = "tokens"                   # a NAME and a TOKEN on each line; chmod 600
    key = "server.key"                  # the server's own key, made by `enc key new`; for sessions
    node = "http://127.0.0.1:7700"      # the node that is asked for proofs
    identity = "reader.key"             # the identity that asks
    origins = ["https://app.example"]   # other web pages that may send requests; default: all
    hosts = ["views.example"]           # names under which it is reached, as by a proxy

    [views.timeline]
    public = true

    [views.members]
    tokens = ["analyst"]
    identities = ["ab…"]

Paths are relative to the file's own folder.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from enc.client.keys.identity import Identity
from enc.dataview.serving.rights import Rights, ViewRights, load_tokens
from enc.runtime.serving.limits import ServingLimits
from enc.runtime.settings import SettingsReader

LISTEN = "127.0.0.1:7780"
MAX_CONFIG = 1 << 20


class ServingConfig(Struct, frozen=True, kw_only=True):
    database: str = "serving.db"
    listen: str = LISTEN
    tokens: str = ""
    key: str = ""
    node: str = ""
    registry: str = ""
    identity: str = ""
    origins: tuple[str, ...] = ("*",)
    hosts: tuple[str, ...] = ()
    connections: Annotated[int, Meta(ge=1, le=1_048_576)] = 512
    connections_per_address: Annotated[int, Meta(ge=0, le=1_048_576)] = 128
    request_timeout_s: Annotated[float, Meta(ge=0.1, le=3600)] = 30.0
    query_timeout_s: Annotated[float, Meta(gt=0, le=600)] = 10.0
    views: dict[str, ViewRights] = {}

    @property
    def limits(self) -> ServingLimits:
        return ServingLimits(
            connections=self.connections,
            connections_per_address=self.connections_per_address,
            request_timeout_s=self.request_timeout_s,
        )

    def rights(self) -> Rights:
        tokens = load_tokens(Path(self.tokens)) if self.tokens else {}
        return Rights(self.views, tokens, Identity.load(self.key).key if self.key else None)


_READER = SettingsReader(ServingConfig, max_bytes=MAX_CONFIG)


def load(path: Path | None, flags: Mapping[str, str | None], public: Sequence[str] = ()) -> ServingConfig:
    """Return the file's settings, overridden by the flags, plus the views made public."""
    flags = {name: value for name, value in flags.items() if value}
    found, _ = _READER.load(path, {}, flags)
    if path is not None:
        found = replace(found, **_placed(found, path.absolute().parent, flags))
    views = dict(found.views)
    for name in public:
        views[name] = replace(views.get(name, ViewRights()), public=True)
    return replace(found, views=views)


def _placed(found: ServingConfig, folder: Path, flags: Collection[str]) -> dict[str, str]:
    """Return the paths that no flag gave, relative to the file's folder."""
    names = [name for name in ("tokens", "key", "identity") if getattr(found, name)]
    names += [] if "://" in found.database else ["database"]
    return {name: str(folder / getattr(found, name)) for name in names if name not in flags}
