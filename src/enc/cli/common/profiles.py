"""The configuration file: named profiles with the settings of commands: node, identity, enclave, …

[default]
node = "http://127.0.0.1:7700"
identity = "~/.local/share/enc/keys/default.key"
enclave = "5c1f…"
registry = "http://127.0.0.1:7701#8e02…:03ab…"
witnesses = "1 http://127.0.0.1:7800=a03c… http://127.0.0.1:7801=77f0…"
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from enc.core.errors import MisuseError
from enc.runtime.settings import Given, parse_toml, read_file

NAMES = ("node", "identity", "enclave", "registry", "witnesses")
"""Settings of a profile."""
DEFAULT = "default"

Profile = dict[str, str]

_PROFILE = re.compile(r"[A-Za-z0-9_-]+")


def config_path(environ: Mapping[str, str]) -> Path:
    """Return ENC_CONFIG, or enc/config.toml in XDG_CONFIG_HOME or in ~/.config."""
    if environ.get("ENC_CONFIG"):
        return Path(environ["ENC_CONFIG"])
    base = Path(environ.get("XDG_CONFIG_HOME", ""))
    if not base.is_absolute():  # the XDG specification ignores relative paths
        base = home() / ".config"
    return base / "enc" / "config.toml"


def home() -> Path:
    try:
        return Path.home()
    except RuntimeError:
        raise MisuseError("no home directory found: set HOME") from None


def check_name(profile: str) -> str:
    if not _PROFILE.fullmatch(profile):
        raise MisuseError(f"profile {profile!r}: a name may hold letters, digits, _ and -")
    return profile


def read(path: Path) -> dict[str, Profile]:
    """Return the profiles in a file; an empty dict if the file is missing."""
    profiles = parse_toml(path, read_file(path, missing=b""))
    for name, profile in profiles.items():
        _check(path, name, profile)
    return profiles


def _check(path: Path, name: str, profile: Any) -> None:
    if not isinstance(profile, dict):
        raise Given(name, profile, "file", str(path)).refused(f"expected a profile such as [{DEFAULT}]")
    for key, value in profile.items():
        given = Given(f"{name}.{key}", value, "file", str(path))
        if key not in NAMES:
            raise given.refused(f"there is no such setting; expected one of {', '.join(NAMES)}")
        if not isinstance(value, str) or not value:
            raise given.refused("expected a non-empty string")


def store(path: Path, profile: str, name: str, value: str) -> None:
    """Set one value of one profile. The rest of the file, with its comments, does not change."""
    from enc.runtime import private_file

    profiles, text = read(path), read_file(path, missing=b"").decode()
    profiles.setdefault(check_name(profile), {})[name] = value
    changed = _changed(text, profile, name, value)
    if not value.isprintable() or parse_toml(path, changed.encode()) != profiles:
        raise MisuseError(f"{path}: cannot change {name} of [{profile}] automatically: use an editor")
    private_file.make_directory(path.resolve().parent)
    private_file.write(path.resolve(), changed.encode(), overwrite=True)


def _changed(text: str, profile: str, name: str, value: str) -> str:
    """Return the file's text with one line added or changed."""
    lines, line = text.splitlines(), f"{name} = {json.dumps(value, ensure_ascii=False)}"
    start = _find(lines, rf"\s*\[\s*{profile}\s*\]\s*(#.*)?", 0, len(lines))
    if start is None:
        lines += [*([""] if lines else []), f"[{profile}]", line]
        return "\n".join(lines) + "\n"
    end = _find(lines, r"\s*\[.*", start + 1, len(lines)) or len(lines)
    old = _find(lines, rf"\s*{name}\s*=.*", start, end)
    if old is None:
        old = next(i + 1 for i in range(end - 1, start - 1, -1) if lines[i].strip())
        lines.insert(old, "")
    lines[old] = line
    return "\n".join(lines) + "\n"


def _find(lines: list[str], pattern: str, start: int, end: int) -> int | None:
    return next((i for i in range(start, end) if re.fullmatch(pattern, lines[i])), None)
