"""A unit of systemd: its settings, and its restrictions of system calls for this process.

The restrictions are those that systemd makes for the same settings, with the same library.
"""

import errno
import os
import re
import subprocess
from ctypes import CDLL, POINTER, Structure, byref, c_char_p, c_int, c_uint, c_uint32, c_uint64, c_void_p, cast
from functools import cache
from mmap import PROT_EXEC, PROT_WRITE
from pathlib import Path
from socket import AF_INET, AF_INET6, AF_UNIX

from tests.deploy.tools import tool

ALLOW, REFUSE = 0x7FFF0000, 0x00050000
EQUAL, MASKED_EQUAL = 4, 7
FAMILIES = {"AF_INET": AF_INET, "AF_INET6": AF_INET6, "AF_UNIX": AF_UNIX}
MOST_FAMILIES = 64


class _Argument(Structure):
    _fields_ = (("index", c_uint), ("operator", c_int), ("a", c_uint64), ("b", c_uint64))


def settings(unit: Path) -> dict[str, list[str]]:
    """Return all values of each setting of a unit."""
    found = dict[str, list[str]]()
    for name, value in re.findall(r"^(\w+)=(.*)$", unit.read_text(), re.MULTILINE):
        found.setdefault(name, []).append(value)
    return found


def allowed_calls(unit: Path) -> set[str]:
    """Return the system calls that SystemCallFilter allows, @default always included."""
    calls = set(_group("@default"))
    for value in settings(unit)["SystemCallFilter"]:
        for name in value.removeprefix("~").split():
            calls = calls - _group(name) if value.startswith("~") else calls | _group(name)
    return calls


@cache
def _group(name: str) -> frozenset[str]:
    if not name.startswith("@"):
        return frozenset((name,))
    command = [tool("systemd-analyze"), "syscall-filter", name]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    names = re.findall(r"^ +([@\w-]+)$", said.stdout, re.MULTILINE)
    return frozenset().union(*map(_group, names))


class _Filter:
    def __init__(self, action: int) -> None:
        self._library = CDLL("libseccomp.so.2")
        self._library.seccomp_init.restype = c_void_p
        self._library.seccomp_init.argtypes = (c_uint32,)
        self._library.seccomp_syscall_resolve_name.argtypes = (c_char_p,)
        self._library.seccomp_load.argtypes = (c_void_p,)
        self._library.seccomp_rule_add_array.argtypes = (c_void_p, c_uint32, c_int, c_uint, POINTER(_Argument))
        self._context = self._library.seccomp_init(action)

    def add(self, action: int, call: str, argument: _Argument | None = None) -> None:
        number = self._library.seccomp_syscall_resolve_name(call.encode())
        if number < 0:  # unknown here, or of another architecture
            return
        given = None if argument is None else byref(argument)
        pointer = cast(given, POINTER(_Argument)) if given else None
        failed = self._library.seccomp_rule_add_array(self._context, action, number, int(given is not None), pointer)
        assert not failed, (call, os.strerror(-failed))

    def load(self) -> None:
        failed = self._library.seccomp_load(self._context)
        assert not failed, os.strerror(-failed)


def restrict(unit: Path) -> None:
    """Restrict this process, and those that it will start, as the unit does."""
    values, calls = settings(unit), allowed_calls(unit)
    others = _Filter(ALLOW)
    families = {FAMILIES[name] for name in values["RestrictAddressFamilies"][0].split()}
    for family in set(range(MOST_FAMILIES)) - families:
        others.add(REFUSE | errno.EAFNOSUPPORT, "socket", _Argument(0, EQUAL, family))
    if values.get("MemoryDenyWriteExecute") == ["yes"]:
        both = PROT_WRITE | PROT_EXEC
        others.add(REFUSE | errno.EPERM, "mmap", _Argument(2, MASKED_EQUAL, both, both))
        others.add(REFUSE | errno.EPERM, "mprotect", _Argument(2, MASKED_EQUAL, PROT_EXEC, PROT_EXEC))
    others.load()
    whole = _Filter(REFUSE | errno.EPERM)
    for call in calls:
        whole.add(ALLOW, call)
    whole.load()
