"""Encodings, each with one accepted spelling: CBOR for hashing; hex, base64 and JSON for the
wire."""

import binascii
import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import cbor2
import msgspec

from enc.core.errors import InvalidCommit, MisuseError, PeerError

MAX_INT = 2**53 - 1
"""The largest integer that every JSON reader holds exactly."""

MAX_DEPTH = 64
"""Maximum nesting that strict_json accepts."""

NOT_JSON = "content: not JSON"
"""Begins strict_json's message about a text that is not JSON at all."""
TOO_DEEP = f"content: nested deeper than {MAX_DEPTH} levels"


def cbor(value: Any) -> bytes:
    """Return deterministic CBOR (RFC 8949 section 4.2)."""
    return cbor2.dumps(value, canonical=True)


def unhex(text: object, size: int, field: str, error: type[PeerError] = InvalidCommit) -> bytes:
    """Return the `size` bytes that `text` spells in lower-case hex; otherwise raise `error`, naming
    `field`."""
    try:
        raw = bytes.fromhex(text)  # type: ignore[arg-type]
    except (ValueError, TypeError):
        raw = b""
    if len(raw) != size or raw.hex() != text:
        raise error(f"{field}: expected {2 * size} lower-case hex characters")
    return raw


def check_numbers(error: type[PeerError], **numbers: int) -> None:
    """Check that each number is 0 to MAX_INT; otherwise raise `error`, naming the number."""
    for name, number in numbers.items():
        if not 0 <= number <= MAX_INT:
            raise error(f"{name}: must be 0 to 2^53 - 1")


def b64(raw: bytes) -> str:
    """Return standard base64 with padding."""
    return binascii.b2a_base64(raw, newline=False).decode("ascii")


def unb64(text: object, field: str, error: type[PeerError] = InvalidCommit) -> bytes:
    """Decode what `b64` encodes; reject any other spelling of the same bytes."""
    try:
        raw = binascii.a2b_base64(text, strict_mode=True)  # type: ignore[arg-type]
    except (ValueError, TypeError):
        raise error(f"{field}: expected standard base64") from None
    if b64(raw) != text:
        raise error(f"{field}: expected standard base64 with padding and no stray bits")
    return raw


def compact_json(value: Any) -> str:
    """Return JSON with sorted keys, without white space and without needless escapes."""
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        text.encode()
    except RecursionError:
        raise MisuseError("not JSON: nested too deeply") from None
    except (TypeError, ValueError) as e:
        raise MisuseError(f"not JSON: {e}") from None
    return text


Content = str | Mapping[str, Any] | Sequence[Any]
"""Text is written as it is, anything else as compact JSON."""


def content_text(content: Content) -> str:
    return content if isinstance(content, str) else compact_json(content)


T = TypeVar("T")


def decode_json(data: bytes | str, decoder: msgspec.json.Decoder[T], error: type[PeerError]) -> T:
    """Decode wire JSON in one pass of msgspec; if it is malformed, raise `error`, naming the
    field."""
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as e:
        raise error(_named(str(e))) from None
    except RecursionError:
        raise error("not JSON: nested too deeply") from None
    except (msgspec.DecodeError, UnicodeError) as e:
        raise error(f"not JSON: {e}") from None


def convert_json(value: Any, type_: type[T], error: type[PeerError]) -> T:
    """Do what `decode_json` does, for JSON that is decoded already."""
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as e:
        raise error(_named(str(e))) from None


def _named(message: str) -> str:
    # "Expected `int`, got `str` - at `$.exp`"  ->  "exp: expected `int`, got `str`"
    what, _, where = message.partition(" - at `")
    path = where.removesuffix("`").removeprefix("$").removeprefix(".")
    return f"{path}: {what[0].lower()}{what[1:]}" if path else f"{what[0].lower()}{what[1:]}"


def strict_json(text: str) -> Any:
    """Decode JSON that all parsers read alike, because rules depend on it (docs/protocol.md,
    section 3.4).

    Raises InvalidCommit for a repeated key, a lone surrogate, an integer beyond 2^53 − 1, NaN,
    Infinity, a number too large for a double, and nesting deeper than MAX_DEPTH.
    """
    try:
        value = _strict.decode(text)
        text.encode()
    except InvalidCommit:
        raise
    except RecursionError:
        raise InvalidCommit(TOO_DEEP) from None
    except ValueError as e:
        raise InvalidCommit(f"{NOT_JSON}: {e}") from None
    _check_texts(value)
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise InvalidCommit("content: a key is repeated")
    return found


def _integer(digits: str) -> int:
    if len(digits) > 17 or abs(number := int(digits)) > MAX_INT:
        raise InvalidCommit("content: an integer is above 2^53 - 1")
    return number


class FloatText(float):
    """A number that is not an integer, with its source text: programs differ in how they would
    write it."""

    text: str


def _float(digits: str) -> float:
    number = FloatText(digits)
    if number in (float("inf"), float("-inf")):
        raise InvalidCommit("content: a number is too large")
    number.text = digits
    return number


def compact_size(value: Any) -> int:
    """Return the size in bytes of a value from `strict_json` as compact UTF-8 JSON, with
    non-integers as spelled."""
    if isinstance(value, FloatText):
        return len(value.text)
    if isinstance(value, dict):
        return 1 + max(1, len(value)) + sum(compact_size(k) + 1 + compact_size(v) for k, v in value.items())
    if isinstance(value, list):
        return 1 + max(1, len(value)) + sum(compact_size(item) for item in value)
    return len(compact_json(value).encode())


def _constant(name: str) -> NoReturn:
    raise InvalidCommit(f"content: {name} is not JSON")


_strict = json.JSONDecoder(object_pairs_hook=_object, parse_int=_integer, parse_float=_float, parse_constant=_constant)
"""Built once: building it takes longer than decoding a short text with it."""


def _check_texts(value: Any) -> None:
    """Check the depth, and that no string contains half a surrogate pair, which an escape can
    produce."""
    level, depth = [value], 0
    while level:
        if depth > MAX_DEPTH:
            raise InvalidCommit(TOO_DEEP)
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item)
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
            elif isinstance(item, str) and not _is_text(item):
                raise InvalidCommit("content: a string holds a lone surrogate")
        level, depth = below, depth + 1


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
