"""`format("enc")` in a SparkSession that this package did not build: a notebook's or a cluster's."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.dataview.logs import Log
from tests.dataview.served import create_enclave, serving

ROOT = Path(__file__).parents[3]
PATIENCE_S = 240


def read(url: str, enclave: str, folder: Path, *settings: str) -> Any:
    """Read with a session that has these settings and no others."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("ENC_", "SPARK_"))}
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    words = [sys.executable, "-m", "tests.dataview.foreign_session", url, enclave, str(folder)]
    done = subprocess.run(
        [*words, "spark.master=local[2]", "spark.ui.enabled=false", *settings],
        cwd=folder,
        env={**plain, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


ROWS = {"rows": 5, "posts": [2, 3, 4], "verified": 5, "typed": 5, "streamed": 5, "archived": [40, 1]}


def test_batch_and_stream_need_no_setting(java: None, tmp_path: Path, log: Log) -> None:
    """Filter pushdown, which needs one, is refused by its name."""
    log.archive(tmp_path / "small.enc")
    with serving() as node:
        enclave = create_enclave(node, "read", posts=4)
        assert read(node.url, enclave.hex, tmp_path) == {**ROWS, "pushed": True}


def test_filters_of_one_query_do_not_reach_the_next(java: None, tmp_path: Path, log: Log) -> None:
    """Also where pushdown is switched on for other sources."""
    log.archive(tmp_path / "small.enc")
    with serving() as node:
        enclave = create_enclave(node, "read", posts=4)
        found = read(node.url, enclave.hex, tmp_path, "spark.sql.python.filterPushdown.enabled=true")
        assert found == {**ROWS, "pushed": 2}
