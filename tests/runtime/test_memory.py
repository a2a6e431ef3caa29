"""The memory that a process may use, as /proc and /sys report it."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from enc.runtime import memory
from enc.runtime.memory import available_memory, warn_if_little_memory

GIB = 1 << 30


@pytest.fixture
def root(tmp_path: Path) -> Path:
    put(tmp_path, "proc/meminfo", "MemTotal:       4194304 kB\nMemFree:         1 kB\n")
    put(tmp_path, "proc/self/cgroup", "0::/system.slice/enc.service\n")
    return tmp_path


def put(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def test_without_a_limit_it_is_the_machine_s(root: Path) -> None:
    put(root, "sys/fs/cgroup/system.slice/enc.service/memory.max", "max\n")
    assert available_memory(root) == 4 * GIB


@pytest.mark.parametrize("group", ["system.slice/enc.service", "system.slice", "."])
def test_a_limit_of_a_unit_or_of_a_container_above_it(root: Path, group: str) -> None:
    put(root, f"sys/fs/cgroup/{group}/memory.max", f"{GIB}\n")
    assert available_memory(root) == GIB


def test_the_least_limit_counts(root: Path) -> None:
    put(root, "sys/fs/cgroup/system.slice/enc.service/memory.max", f"{3 * GIB}\n")
    put(root, "sys/fs/cgroup/system.slice/memory.max", f"{2 * GIB}\n")
    assert available_memory(root) == 2 * GIB


def test_control_groups_of_version_1(root: Path) -> None:
    put(root, "proc/self/cgroup", "8:cpu,memory:/docker/abc\n7:pids:/docker\n1:name=systemd:/\n")
    put(root, "sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", f"{GIB}\n")
    put(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    assert available_memory(root) == GIB


def test_a_system_that_does_not_say(tmp_path: Path) -> None:
    assert available_memory(tmp_path) is None


@pytest.mark.parametrize(("available", "is_warned"), [(GIB - 1, True), (GIB, False), (None, False)])
def test_too_little_is_logged(available: int | None, is_warned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: available)
    with capture_logs() as logs:
        warn_if_little_memory(GIB)
    expected = {"event": "little_memory", "log_level": "warning", "available": available, "needed": GIB}
    assert logs == ([expected] if is_warned else [])
