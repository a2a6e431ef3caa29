"""A witness's settings, and how many heads may be submitted."""

from pathlib import Path
from typing import Any

import pytest

from enc.core.errors import MisuseError
from enc.witness.config import MAX_ENCLAVES, load_config
from tests.core.world import pub

ID, KEY = "ab" * 32, pub("node")


def test_defaults_and_flags() -> None:
    config = load_config(None, {"enclaves": [f"{ID}@http://node/"], "listen": None})
    (listed,) = config.followed()
    assert (listed.enclave.hex(), listed.node, listed.sequencer) == (ID, "http://node", None)
    assert (config.listen, config.interval_s, config.key_path) == (
        "127.0.0.1:7800",
        10.0,
        Path("witness-data/witness.key"),
    )


def test_a_file_and_flags_over_it(tmp_path: Path) -> None:
    file = tmp_path / "witness.toml"
    file.write_text(
        f'enclaves = ["{ID}@http://node#{KEY}"]\ndata = "data"\nkey = "w.key"\ninterval_s = 3\nnodes = ["http://b"]\n'
    )
    config = load_config(file, {"interval_s": 5, "enclaves": None, "nodes": []})
    assert config.followed()[0].sequencer == bytes.fromhex(KEY)
    assert (config.folder, config.key_path) == (tmp_path / "data", tmp_path / "w.key")
    assert (config.interval_s, config.nodes) == (5.0, ("http://b",))


def test_the_limits_of_its_server(tmp_path: Path) -> None:
    file = tmp_path / "witness.toml"
    file.write_text(
        f'enclaves = ["{ID}@http://node"]\nhosts = ["w.example"]\nconnections = 9\n'
        "connections_per_address = 0\nrequest_timeout_s = 2\n"
    )
    config = load_config(file, {})
    limits = config.limits
    assert (limits.connections, limits.connections_per_address, limits.request_timeout_s) == (9, 0, 2)
    assert config.hosts == ("w.example",)


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ({}, "enclaves: none given"),
        ({"enclaves": [ID]}, "or set a registry"),
        ({"enclaves": ["xyz@http://node"]}, "id"),
        ({"enclaves": [f"{ID}@ftp://node"]}, "URL"),
        ({"enclaves": [f"{ID}@http://node#12"]}, "key"),
        ({"enclaves": [f"{ID}@http://node"] * 2}, "twice"),
        ({"enclaves": [f"{ID}@http://node"], "interval_s": 0}, "interval_s"),
        ({"enclaves": [f"{ID}@http://node"], "interval_s": "x"}, "interval_s"),
        ({"enclaves": [f"{ID}@http://node"], "registry": "http://r"}, "registry"),
        ({"enclaves": [f"{ID}@http://node"], "nodes": ["nowhere"]}, "URL"),
        ({"enclaves": [f"{ID}@http://node"], "log_level": "loud"}, "log_level"),
        ({"enclaves": [f"{ID}@http://node"], "keep_heads": 0}, "keep_heads"),
        ({"enclaves": [f"{n:064x}@http://node" for n in range(MAX_ENCLAVES + 1)]}, "enclaves"),
        ({"enclaves": [f"{ID}@http://node"], "port": 1}, "port"),
    ],
)
def test_what_is_wrong_is_named(flags: dict[str, Any], why: str) -> None:
    with pytest.raises(MisuseError, match=why):
        load_config(None, flags)


@pytest.mark.parametrize("text", [b"enclaves = [", b"\xff", b"surprise = 1", b"x" * (1 << 20) + b"x"])
def test_a_file_that_is_none(tmp_path: Path, text: bytes) -> None:
    file = tmp_path / "witness.toml"
    file.write_bytes(text)
    with pytest.raises(MisuseError, match=r"witness\.toml"):
        load_config(file, {})
    with pytest.raises(MisuseError, match="cannot be read"):
        load_config(tmp_path / "nothing", {})


def test_a_registry_may_say_where() -> None:
    config = load_config(None, {"enclaves": [ID], "registry": f"http://r#{'cd' * 32}:{KEY}"})
    registry = config.known_registry()
    assert registry is not None
    assert (config.followed()[0].node, registry.url, registry.seq_pub) == (None, "http://r", bytes.fromhex(KEY))
