"""The example of a DataView runs to its end and prints what it should."""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.dataview.pipeline_driver import SMALL

EXAMPLE = Path(__file__).parents[3] / "examples" / "dataview_activity.py"
ENC = Path(sys.executable).with_name("enc")
PATIENCE_S = 900


@pytest.mark.skipif(not ENC.exists(), reason="the example starts the installed `enc`")
def test_the_example(java: None, tmp_path: Path) -> None:
    """With settings for few rows, which Spark reads from its environment variable."""
    few = "".join(f"{name} {value}\n" for name, value in SMALL.items())
    (tmp_path / "spark-defaults.conf").write_text(few)
    env = {**os.environ, "SPARK_CONF_DIR": str(tmp_path)}
    command = [sys.executable, str(EXAMPLE)]
    done = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Complete up to: {'birds': 31, 'bread': 19, 'boats': 40}" in done.stdout.replace("\n", " ")
    assert "Drawn: activity.svg, 87 posts" in done.stdout
    assert "made it event 1" in done.stdout
    picture = ElementTree.parse(tmp_path / "activity.svg")  # noqa: S314 (our own)
    assert len(picture.getroot()) > 6
