"""Ready-made manifests, by name: the JSON files in `templates`, with `$owner` where the founder's key goes."""

import json
from importlib.resources import files
from typing import Any

from enc.core.errors import MisuseError
from enc.core.signing import is_public_key

_FILES = files("enc.client").joinpath("templates")


def names() -> list[str]:
    return sorted(file.name.removesuffix(".json") for file in _FILES.iterdir() if file.name.endswith(".json"))


def describe(name: str) -> str:
    """What the template is for, in a sentence or two."""
    return str(json.loads(_read(name))["meta"]["description"])


def template(name: str, owner: bytes) -> dict[str, Any]:
    """The manifest of a new enclave that belongs to `owner`.

    It is the same each time, and so would be the enclave's id: who founds a second one of a kind puts something of its
    own into `meta`.
    """
    if not is_public_key(owner):
        raise MisuseError("an owner is a public key, 32 bytes")
    manifest: dict[str, Any] = json.loads(_read(name).replace('"$owner"', f'"{owner.hex()}"'))
    return manifest


def _read(name: str) -> str:
    if name not in names():
        raise MisuseError(f"no template is named {name}; there are {', '.join(names())}")
    return _FILES.joinpath(f"{name}.json").read_text(encoding="utf-8")
