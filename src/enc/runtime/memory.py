"""The memory that this process may use: the machine's, or less in a container or a systemd unit."""

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

import structlog

_TOTAL = re.compile(r"^MemTotal: +(\d+) kB$", re.MULTILINE)

_log = structlog.get_logger("enc.server")


def available_memory(root: Path = Path("/")) -> int | None:
    """Return the bytes that this process may use; None if the system does not say. `root`: the folder of
    /proc and /sys.
    """
    limits = list(_group_limits(root))
    with suppress(OSError):
        if found := _TOTAL.search((root / "proc/meminfo").read_text()):
            limits.append(int(found[1]) * 1024)
    return min(limits, default=None)


def _group_limits(root: Path) -> Iterator[int]:
    """Yield the limits of the control groups that this process is in, of both versions."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, names, path = line.split(":", 2)
        if names and "memory" not in names.split(","):
            continue
        folder, file = ("sys/fs/cgroup/memory", "memory.limit_in_bytes") if names else ("sys/fs/cgroup", "memory.max")
        group = PurePosixPath(path)
        for each in (group, *group.parents):
            with suppress(OSError, ValueError):  # "max", or not mounted here
                yield int((root / folder / str(each).lstrip("/") / file).read_text())


def warn_if_little_memory(needed: int) -> None:
    """Log a warning if this process may use less than it may need."""
    available = available_memory()
    if available is not None and available < needed:
        _log.warning("little_memory", available=available, needed=needed)
