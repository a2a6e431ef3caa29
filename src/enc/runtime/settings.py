"""Settings of a program: from defaults, a TOML file, the environment and flags; later sources win.

The fields of a Struct are the settings; a field whose type is a Struct is a table of the file. Each
value is checked on its own, so that an error names its source, the setting and what was expected,
in the same words in every program:

    node.toml: limits.tags: expected a whole number from 2 to 64
    --prot: prot: there is no such setting
"""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar, get_args, get_origin

from msgspec import Meta, Struct, ValidationError, convert, structs

from enc.core.errors import MisuseError

MAX_FILE = 16 << 20
"""Most bytes of a file, unless a program sets another limit."""

SettingSource = Literal["default", "file", "environment", "flag"]
T = TypeVar("T", bound=Struct)


def read_file(path: Path, max_bytes: int = MAX_FILE, *, missing: bytes | None = None) -> bytes:
    """Return the file's bytes; raise MisuseError if it cannot be read or is too large.

    `missing`: what to return if there is no file.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(max_bytes + 1)
    except (OSError, ValueError) as e:
        if missing is not None and isinstance(e, FileNotFoundError):
            return missing
        raise MisuseError(f"{path}: cannot be read: {getattr(e, 'strerror', None) or e}") from None
    if len(raw) > max_bytes:
        raise MisuseError(f"{path}: over {max_bytes} bytes")
    return raw


def parse_toml(path: Path, raw: bytes) -> dict[str, Any]:
    """Return the tables in a file's content; raise MisuseError."""
    try:
        return tomllib.loads(raw.decode())
    except (ValueError, RecursionError) as e:
        raise MisuseError(f"{path}: not TOML: {e}") from None


class Given(Struct, frozen=True):
    """A value as it was given."""

    key: str
    """Name of the setting, such as `port` or `limits.content`."""
    value: Any
    source: SettingSource
    name: str
    """Name of the file, variable or flag."""

    def refused(self, why: str) -> MisuseError:
        key = self.key if self.key.isprintable() else ascii(self.key)
        return MisuseError(f"{self.name}: {key}: {why}")


class SettingsReader(Generic[T]):
    """Reads the settings of type `config`.

    `prefix`: of the variables; ENC_NODE_LIMITS_CONTENT is `limits.content` of the prefix ENC_NODE_;
    empty: no variables are read. `flags`: names of flags that do not follow from the setting's name.
    `strict`: a number in the file must not be written as text.
    """

    def __init__(
        self,
        config: type[T],
        *,
        prefix: str = "",
        flags: Mapping[str, str] | None = None,
        max_bytes: int = MAX_FILE,
        strict: bool = True,
    ) -> None:
        self._config, self._prefix, self._flags = config, prefix, flags or {}
        self._max_bytes, self._strict = max_bytes, strict
        self.sections: Mapping[str, type[Struct]] = {
            field.name: field.type for field in structs.fields(config) if _is_section(field)
        }
        self.fields: Mapping[str, structs.FieldInfo] = dict(_fields(config))
        """Every setting by its name."""
        self._by_variable = {self.variable(key): key for key in self.fields}

    def variable(self, key: str) -> str:
        """Return the name of the variable of a setting."""
        return self._prefix + key.replace(".", "_").upper()

    def load(
        self, path: Path | None, environ: Mapping[str, str], flags: Mapping[str, Any]
    ) -> tuple[T, Mapping[str, Given]]:
        """Return the settings, and what was given of each that is not a default.

        `flags` maps names of settings to values; None means that the flag was not given. Raises
        MisuseError for the first value that is invalid.
        """
        given: dict[str, Given] = {}
        values: dict[str, Any] = {}
        for found in (*self._in_file(path), *self._in_environment(environ), *self._in_flags(flags)):
            values[found.key], given[found.key] = self._checked(found), found
        return self._build(values), given

    def _in_file(self, path: Path | None) -> Iterator[Given]:
        if path is None:
            return
        for name, value in parse_toml(path, read_file(path, self._max_bytes)).items():
            found = Given(name, value, "file", str(path))
            if name not in self.sections:
                # A quoted key with a dot is not the setting of a table.
                yield found if "." not in name else structs.replace(found, key=repr(name))
            elif isinstance(value, dict):
                for inner, item in value.items():
                    yield Given(f"{name}.{inner}", item, "file", str(path))
            else:
                raise found.refused("expected a table")

    def _in_environment(self, environ: Mapping[str, str]) -> Iterator[Given]:
        if not self._prefix:
            return
        for name in sorted(name for name in environ if name.startswith(self._prefix)):
            key = self._by_variable.get(name)
            if key is None:
                raise MisuseError(f"{name}: there is no setting with this variable")
            value: Any = environ[name]
            if isinstance(self.fields[key].default, tuple):
                value = [item.strip() for item in value.split(",")] if value.strip() else []
            yield Given(key, value, "environment", name)

    def _in_flags(self, flags: Mapping[str, Any]) -> Iterator[Given]:
        for key, value in flags.items():
            if value is not None:
                flag = self._flags.get(key) or "--" + key.replace("_", "-")
                yield Given(key, value, "flag", flag)

    def _checked(self, given: Given) -> Any:
        """Return the value converted to its type, or raise MisuseError."""
        if given.key not in self.fields:
            raise given.refused("there is no such setting")
        type_ = self.fields[given.key].type
        expected = _expected(type_)
        try:
            value = convert(given.value, type_, strict=self._strict and given.source == "file")
        except ValidationError as e:
            raise given.refused(f"expected {expected}" if expected else str(e)) from None
        check = _extra(type_).get("check")
        if check and not all(check(item) for item in ((value,) if isinstance(value, str) else value)):
            raise given.refused(f"expected {expected}")
        return value

    def _build(self, values: Mapping[str, Any]) -> T:
        top = {key: value for key, value in values.items() if "." not in key}
        for name, section in self.sections.items():
            inner = {key.partition(".")[2]: v for key, v in values.items() if key.startswith(f"{name}.")}
            top[name] = section(**inner)
        return self._config(**top)


def _is_section(field: structs.FieldInfo) -> bool:
    return isinstance(field.type, type) and issubclass(field.type, Struct)


def _fields(config: type[Struct]) -> Iterator[tuple[str, structs.FieldInfo]]:
    for field in structs.fields(config):
        if _is_section(field):
            for inner in structs.fields(field.type):
                yield f"{field.name}.{inner.name}", inner
        else:
            yield field.name, field


def _extra(type_: Any) -> Mapping[str, Any]:
    """Return what the type's Meta says beyond msgspec: `expected`, and `check` for texts."""
    return next((meta.extra for meta in _metas(type_) if meta.extra), {})


def _metas(type_: Any) -> list[Meta]:
    return [each for each in get_args(type_)[1:] if isinstance(each, Meta)] if get_origin(type_) is Annotated else []


def _expected(type_: Any) -> str:
    """Return what a value must be, in words; empty for types without any."""
    if "expected" in (extra := _extra(type_)):
        return str(extra["expected"])
    plain = get_args(type_)[0] if get_origin(type_) is Annotated else type_
    if get_origin(plain) is Literal:
        return "one of " + ", ".join(get_args(plain))
    if plain in (int, float):
        kind, form = ("a whole number", "d") if plain is int else ("a number", "g")
        return kind + _range(_metas(type_), form)
    if get_origin(plain) is tuple:
        most = next((meta.max_length for meta in _metas(type_) if meta.max_length is not None), None)
        return "a list of texts" + (f", at most {most}" if most is not None else "")
    return {bool: "true or false", str: "text"}.get(plain, "")


def _range(metas: list[Meta], form: str) -> str:
    for meta in metas:
        if meta.ge is not None and meta.le is not None:
            return f" from {meta.ge:{form}} to {meta.le:{form}}"
        if meta.gt is not None and meta.le is not None:
            return f" above {meta.gt:{form}}, up to {meta.le:{form}}"
    return ""
