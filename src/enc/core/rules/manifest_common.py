"""The parts of a manifest besides the access rules, in either version: template, meta, bundle; and
how to reject one."""

import json
from typing import Any, NoReturn

from enc.core.errors import InvalidCommit
from enc.core.primitives.encoding import compact_size
from enc.core.trees.bundle import BundleConfig

MAX_META = 4096


def refuse(path: str, why: str) -> NoReturn:
    """Raise InvalidCommit with the path of the faulty entry."""
    raise InvalidCommit(f"{path}: {why}")


def quoted(value: Any) -> str:
    """Return a peer's JSON value for an error message, cut to 61 characters if it is long."""
    text = repr(value) if isinstance(value, str) else json.dumps(value, default=repr)
    return text if len(text) <= 64 else f"{text[:60]}…"


def check_template(*places: dict[str, Any]) -> None:
    """Check that `use_temp` is absent or `none`, at the top and under RBAC."""
    for where in places:
        if where.get("use_temp", "none") != "none":
            refuse("use_temp", 'only "none" is supported')


def check_meta(manifest: dict[str, Any]) -> None:
    meta = manifest.get("meta", {})
    if not isinstance(meta, dict):
        refuse("meta", "expected an object")
    if compact_size(meta) > MAX_META:
        refuse("meta", f"over {MAX_META} bytes")


def read_bundle(manifest: dict[str, Any]) -> BundleConfig:
    bundle, default = manifest.get("bundle", {}), BundleConfig()
    if not isinstance(bundle, dict):
        refuse("bundle", "expected an object")
    size, timeout = bundle.get("size", default.size), bundle.get("timeout", default.timeout)
    if type(size) is not int or not 1 <= size <= 65_536:
        refuse("bundle.size", "must be 1 to 65536")
    if type(timeout) is not int or not 1 <= timeout <= 3_600_000:
        refuse("bundle.timeout", "must be 1 to 3600000")
    return BundleConfig(size, timeout)
