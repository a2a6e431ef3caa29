"""Node, identity, enclave, registry and witnesses: from the profile, the environment or a flag.

A flag overrides the environment, which overrides the profile.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from enc.cli.common import profiles
from enc.cli.common.profiles import DEFAULT, NAMES
from enc.core.errors import MisuseError

ProfileSource = Literal["flag", "environment", "file", "unset"]

_HINTS = {
    "node": "--node URL, ENC_NODE or `enc config set node URL`",
    "identity": "--identity FILE, ENC_IDENTITY, `enc config set identity FILE`, or make one with `enc key new`",
    "enclave": "--enclave ID, ENC_ENCLAVE, `enc config set enclave ID`, or create one with `enc enclave create --use`",
    "registry": "--registry URL#ID:KEY, ENC_REGISTRY or `enc config set registry URL#ID:KEY`",
    "witnesses": '--witness URL=KEY, ENC_WITNESSES or `enc config set witnesses "K URL=KEY …"`',
}


class ProfileSetting(Struct, frozen=True):
    value: str | None
    source: ProfileSource


class ProfileSettings(Struct, frozen=True):
    profile: str
    file: Path
    stored: profiles.Profile | None
    """The profile in the file; None if it is missing."""
    values: Mapping[str, ProfileSetting]

    def get(self, name: str) -> str:
        """Return a value; raises MisuseError if it is not set."""
        value = self.values[name].value
        if value is None:
            if self.stored is None and self.profile != DEFAULT:
                raise MisuseError(f"{self.file} has no profile {self.profile}")
            raise MisuseError(f"no {name} is set in profile {self.profile}: give {_HINTS[name]}")
        return value

    def store(self, name: str, value: str) -> None:
        profiles.store(self.file, self.profile, name, value)


def load(flags: Mapping[str, Any], environ: Mapping[str, str]) -> ProfileSettings:
    profile = profiles.check_name(flags.get("profile") or environ.get("ENC_PROFILE") or DEFAULT)
    file = profiles.config_path(environ)
    stored = profiles.read(file).get(profile)
    sources: list[tuple[ProfileSource, Mapping[str, Any]]] = [
        ("flag", flags),
        ("environment", {name: environ.get(f"ENC_{name.upper()}") for name in NAMES}),
        ("file", _resolve_identity(stored or {}, file)),
    ]
    return ProfileSettings(profile, file, stored, {name: _first(name, sources) for name in NAMES})


def _first(name: str, sources: list[tuple[ProfileSource, Mapping[str, Any]]]) -> ProfileSetting:
    found = (ProfileSetting(values[name], source) for source, values in sources if values.get(name))
    return next(found, ProfileSetting(None, "unset"))


def _resolve_identity(profile: profiles.Profile, file: Path) -> profiles.Profile:
    """Resolve the key file's path relative to the configuration file."""
    if "identity" not in profile:
        return profile
    path = profile["identity"]
    if path == "~" or path.startswith("~/"):
        return {**profile, "identity": str(profiles.home() / path[2:])}
    return {**profile, "identity": str(file.parent / path)}
