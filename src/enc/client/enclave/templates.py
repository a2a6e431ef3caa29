"""Ready-made manifests: the JSON files in `templates`, with `$owner` in place of the creator's key."""

import json
from importlib.resources import files
from typing import Any

from enc.core.errors import MisuseError
from enc.core.primitives.signing import is_public_key

_FILES = files("enc.client.enclave").joinpath("templates")


def names() -> list[str]:
    return sorted(file.name.removesuffix(".json") for file in _FILES.iterdir() if file.name.endswith(".json"))


def describe(name: str) -> str:
    """Return a short description of the template."""
    return str(unfilled(name)["meta"]["description"])


def unfilled(name: str) -> dict[str, Any]:
    """Return the template as it is stored, with `$owner` in place of the owner's key."""
    manifest: dict[str, Any] = json.loads(_read(name))
    return manifest


def template(name: str, owner: bytes) -> dict[str, Any]:
    """Return the manifest of a new enclave that belongs to `owner`.

    It is the same each time, and so would be the enclave's id. To create a second enclave from the
    same template, add something unique to `meta`.
    """
    if not is_public_key(owner):
        raise MisuseError("owner: expected a public key of 32 bytes")
    manifest: dict[str, Any] = json.loads(_read(name).replace('"$owner"', f'"{owner.hex()}"'))
    return manifest


def _read(name: str) -> str:
    if name not in names():
        raise MisuseError(f"no template is named {name}; choose from {', '.join(names())}")
    return _FILES.joinpath(f"{name}.json").read_text(encoding="utf-8")
