"""The generator is a distribution of its own: the wheel that apps install does not contain it."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILD = (
    "import sys; from hatchling.builders.wheel import WheelBuilder; "
    "print(*WheelBuilder(sys.argv[1]).build(directory=sys.argv[2], versions=['standard']))"
)


def build(project: Path, out: Path) -> zipfile.ZipFile:
    made = subprocess.run(
        [sys.executable, "-c", BUILD, str(project), str(out)], cwd=project, capture_output=True, text=True, check=True
    )
    return zipfile.ZipFile(made.stdout.split()[-1])


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the contents of the main wheel."""
    out = tmp_path_factory.mktemp("main")
    build(ROOT, out).extractall(out / "site")
    return out / "site"


def enc(site: Path, *args: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(site), "COLUMNS": "120"}
    call = [sys.executable, "-c", "from enc.cli import main; main()", *args]
    return subprocess.run(call, cwd=site, env=env, capture_output=True, text=True, check=False)


def test_the_main_wheel_has_no_generator(installed: Path) -> None:
    assert (installed / "enc" / "audit").is_dir()
    assert not (installed / "enc" / "bench").exists()


def test_the_main_wheel_has_the_files_for_operators(installed: Path) -> None:
    (data,) = installed.glob("*.data/data/share/enc/deploy")
    files = {path.relative_to(ROOT / "deploy") for path in (ROOT / "deploy").rglob("*") if path.is_file()}
    assert {path.relative_to(data) for path in data.rglob("*") if path.is_file()} == files


def test_without_the_generator_the_command_is_not_listed_and_names_the_extra(installed: Path) -> None:
    listed = enc(installed, "--help")
    assert listed.returncode == 0
    assert "bench" not in listed.stdout
    refused = enc(installed, "bench", "generate", "--enclaves", "1", "--events", "10")
    assert refused.returncode == 2
    assert "pip install 'enc-protocol[bench]'" in refused.stderr


def test_the_wheel_of_the_generator_has_nothing_else_and_completes_the_main_one(
    installed: Path, tmp_path: Path
) -> None:
    wheel = build(ROOT / "packaging" / "bench", tmp_path)
    names = [name for name in wheel.namelist() if ".dist-info/" not in name]
    sources = (ROOT / "src" / "enc" / "bench").glob("**/*.py")
    assert sorted(names) == sorted(str(path.relative_to(ROOT / "src")) for path in sources)
    wheel.extractall(tmp_path / "both")
    with zipfile.ZipFile(next(installed.parent.glob("*.whl"))) as main:
        main.extractall(tmp_path / "both")
    made = enc(tmp_path / "both", "bench", "generate", "--enclaves", "1", "--events", "10", "--jobs", "1")
    assert made.returncode == 0, made.stderr
    assert (tmp_path / "both" / "fleet" / "planted.json").exists()
