"""Reloads at SIGHUP the settings that can change while the node runs."""

from collections.abc import Callable, Mapping
from typing import Any

import structlog
from msgspec import structs

from enc.core.errors import EncError
from enc.node.config import SECTIONS, NodeConfig, describe

RELOADABLE = frozenset(
    (
        "log_level",
        "access_log",
        *(f"{section}.{name}" for section in ("admission", "rates") for name in SECTIONS[section].__struct_fields__),
        *(f"imports.{name}" for name in SECTIONS["imports"].__struct_fields__ if name.startswith("ahead_")),
        "limits.connections",
        "limits.disk_keep_free_bytes",
        "limits.unsent_bytes",
        "limits.incoming_bytes",
        "limits.request_timeout_s",
    )
)
"""Settings that take effect without a restart."""

_log = structlog.get_logger("enc.node")


class SettingsReload:
    """Reads the settings again from where they came at the start. For the event loop's thread."""

    def __init__(self, config: NodeConfig, load: Callable[[], NodeConfig], apply: Callable[[NodeConfig], None]) -> None:
        """`config`: the settings in force. `apply` puts others into force."""
        self._config, self._load, self._apply = config, load, apply

    def run(self) -> None:
        """Put changed settings into force. If one is invalid, change nothing."""
        try:
            wanted = self._load()
        except EncError as e:
            _log.error("settings_not_reloaded", reason=e.message)
            return
        values = {setting.key: setting.value for setting in describe(wanted)}
        changed = [one.key for one in describe(self._config) if one.value != values[one.key]]
        taken = [key for key in changed if key in RELOADABLE]
        self._config = with_values(self._config, {key: values[key] for key in taken})
        self._apply(self._config)
        _log.info("settings_reloaded", changed=taken)
        if left := [key for key in changed if key not in RELOADABLE]:
            _log.warning("settings_need_restart", settings=left)


def with_values(config: NodeConfig, values: Mapping[str, Any]) -> NodeConfig:
    """Return the settings with other values, by name."""
    for key, value in values.items():
        section, _, name = key.rpartition(".")
        new = structs.replace(getattr(config, section), **{name: value}) if section else value
        config = structs.replace(config, **{section or name: new})
    return config
