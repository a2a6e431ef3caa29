"""The Dockerfile and the compose file, checked without Docker. scripts/release runs the steps of the build stage."""

import json
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from enc.cli import app
from enc.node.config import load_config
from tests.deploy.dockerfile import DOCKERFILE, stages
from tests.deploy.tools import DEPLOY, ROOT
from tests.test_doc_commands import check

COMPOSE = DEPLOY / "docker" / "compose.yaml"
VALUES = {"ENC_NAME": "enc.example.org", "ENC_TLS": "/tls", "POSTGRES_PASSWORD": "secret", "ENC_ENCLAVE": "ab" * 32}
"""A file .env."""
IMAGES = ("node", "dataview")


def compose() -> Any:
    """Return the compose file with the variables of .env."""
    text = re.sub(r"\$\{(\w+)(:[?-][^}]*)?\}", lambda found: VALUES[found[1]], COMPOSE.read_text())
    return yaml.safe_load(text)


def services() -> Iterator[tuple[str, dict[str, Any]]]:
    yield from compose()["services"].items()


def test_whatever_a_stage_copies_is_there_and_in_the_context() -> None:
    patterns = DOCKERFILE.with_name("Dockerfile.dockerignore").read_text().split()
    allowed = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    assert patterns[0] == "*"
    for stage in stages().values():
        for path in stage.copied:
            assert (ROOT / path).exists(), path
            assert any(fnmatch(path, pattern) for pattern in allowed), path


def test_whatever_a_stage_takes_from_another_comes_from_an_earlier_one() -> None:
    earlier = list[str]()
    for name, stage in stages().items():
        for rest in stage.values("COPY"):
            for source in re.findall(r"--from=(\S+)", rest):
                assert source in earlier
        assert stage.base in earlier or "${PYTHON}" in stage.base
        earlier.append(name)


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_runs_as_a_user_without_rights_and_contains_no_build_tool(name: str) -> None:
    image = stages()[name]
    (user,) = image.values("USER")
    assert user.isdecimal()
    assert int(user) > 0
    assert any(f"useradd --system --uid {user} " in run for run in image.values("RUN"))
    assert not any("pip install" in run for run in image.values("RUN"))
    assert image.base == "python:${PYTHON}"  # no build stage


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_starts_enc(name: str) -> None:
    image = stages()[name]
    assert image.values("ENTRYPOINT") == ['["enc"]']
    for words in image.values("CMD"):
        check(tuple(json.loads(words)))


def test_the_extras_and_commands_of_the_build_exist() -> None:
    program: Any = get_command(app)
    runs = " ".join(run for stage in stages().values() for run in stage.values("RUN"))
    assert "'.[dataview]'" in runs
    for words in re.findall(r"/bin/enc (\w+ \w+)", runs):
        group, name = words.split()
        assert name in program.commands[group].commands


def test_the_constraints_have_every_version_of_the_lock_and_no_hash() -> None:
    (pattern,) = re.findall(r"sed -nE 's/(.*?)/\\1\\3/p'", stages()["build"].values("RUN")[0])
    lock = (ROOT / "requirements.lock").read_text()
    kept = "\n".join(re.sub(pattern, r"\1\3", line) for line in lock.splitlines() if re.search(pattern, line))
    pinned = re.findall(r"^([\w.-]+)(?:\[.*\])?==(\S+)", lock, re.MULTILINE)
    assert re.findall(r"^([\w.-]+)==(\S+)", kept, re.MULTILINE) == pinned
    assert not set("[\\") & set(kept)
    assert "hash" not in kept


def test_every_file_that_the_services_mount_is_there_or_belongs_to_the_operator() -> None:
    own = {"./reader.key", "/etc/machine-id", VALUES["ENC_TLS"]}
    volumes = compose()["volumes"]
    for _, service in services():
        for mount in service.get("volumes", ()):
            source = mount.split(":")[0]
            assert source in volumes or source in own or (COMPOSE.parent / source).is_file(), mount


def test_the_services_are_those_of_the_document_and_build_existing_images() -> None:
    assert {name for name, _ in services()} == {"node", "nginx", "witness", "dataview", "postgres"}
    for name, service in services():
        if "build" in service:
            assert service["build"]["target"] in stages()
            assert (
                COMPOSE.parent / service["build"]["context"] / service["build"]["dockerfile"]
            ).resolve() == DOCKERFILE
            assert service["read_only"]
            assert service["cap_drop"] == ["ALL"]
            check(tuple(service["command"]))
        for other in service.get("depends_on", ()):
            assert other in dict(services()), name


def test_the_node_accepts_its_settings_and_trusts_only_nginx(tmp_path: Path) -> None:
    found = dict(services())
    config = load_config(COMPOSE.with_name("node.toml"), found["node"]["environment"], {})
    assert config.hosts == (VALUES["ENC_NAME"], "node")
    assert config.public_url == f"https://{VALUES['ENC_NAME']}"
    assert list(config.proxy.trusted) == [found["nginx"]["networks"]["default"]["ipv4_address"]]
    assert config.limits.connections_per_address == 0


def test_only_nginx_is_reachable_from_other_machines() -> None:
    for name, service in services():
        for port in service.get("ports", ()):
            assert name == "nginx" or port.startswith("127.0.0.1:"), (name, port)
