"""Settings of the server, from a TOML file.

    database = "serving.db"             # or postgresql://…
    listen = "127.0.0.1:7780"
    tokens = "tokens"                   # a NAME and a TOKEN on each line; chmod 600
    key = "server.key"                  # the server's own key, made by `enc key new`; for sessions
    node = "http://127.0.0.1:7700"      # the node that is asked for proofs
    identity = "reader.key"             # the identity that asks
    origins = ["https://app.example"]   # other web pages that may send requests; default: all

    [views.timeline]
    public = true

    [views.members]
    tokens = ["analyst"]
    identities = ["ab…"]

Paths are relative to the file's own folder.
"""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from enc.client.keys.identity import Identity
from enc.core.errors import MisuseError
from enc.dataview.serving.rights import Rights, ViewRights, load_tokens

LISTEN = "127.0.0.1:7780"
MAX_CONFIG = 1 << 20


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    database: str = "serving.db"
    listen: str = LISTEN
    tokens: str = ""
    key: str = ""
    node: str = ""
    registry: str = ""
    identity: str = ""
    origins: tuple[str, ...] = ("*",)
    query_timeout_s: float = 10.0
    views: dict[str, ViewRights] = {}

    def rights(self) -> Rights:
        tokens = load_tokens(Path(self.tokens)) if self.tokens else {}
        return Rights(self.views, tokens, Identity.load(self.key).key if self.key else None)


def load(path: Path | None, flags: Mapping[str, str | None], public: Sequence[str] = ()) -> Config:
    """Return the file's settings, overridden by the flags, plus the views made public."""
    found = Config() if path is None else _read(path)
    found = replace(found, **{name: value for name, value in flags.items() if value})
    views = dict(found.views)
    for name in public:
        views[name] = replace(views.get(name, ViewRights()), public=True)
    if not 0 < found.query_timeout_s <= 600:
        raise MisuseError("query_timeout_s: expected more than 0 and at most 600")
    return replace(found, views=views)


def _read(path: Path) -> Config:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_CONFIG + 1)
        if len(raw) > MAX_CONFIG:
            raise MisuseError(f"{path}: larger than {MAX_CONFIG} bytes")
        found = msgspec.convert(tomllib.loads(raw.decode()), Config)
    except OSError as e:
        raise MisuseError(f"{path}: cannot be read: {e.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise MisuseError(f"{path}: not TOML: {e}") from None
    except msgspec.ValidationError as e:
        raise MisuseError(f"{path}: {e}") from None
    folder = path.absolute().parent
    placed = {name: str(folder / value) for name in ("tokens", "key", "identity") if (value := getattr(found, name))}
    if "://" not in found.database:
        placed["database"] = str(folder / found.database)
    return replace(found, **placed)
