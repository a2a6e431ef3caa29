"""A standalone Spark cluster on this machine: a master and two workers, and drivers in processes of their own."""

import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

import pyspark

from enc.dataview.lake.session import LOCAL_JAVA

ROOT = Path(__file__).parents[1]
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
PATIENCE_S = 240
SMALL_JAVA = f"{LOCAL_JAVA} -XX:+UseSerialGC -XX:-UsePerfData"
"""Tests run for a short time with a small heap, so they use a garbage collector without threads."""
SMALL = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": SMALL_JAVA,
    "spark.driver.host": "127.0.0.1",
}
"""Settings of a driver on the cluster."""


def environment() -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    return {**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}


class Daemon:
    """The process of a master or a worker, and the lines that it has printed."""

    def __init__(self, home: Path, *words: str) -> None:
        home.mkdir(parents=True)
        small = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": SMALL_JAVA}
        env = environment() | small | {"SPARK_NO_DAEMONIZE": "1"}
        self.process = subprocess.Popen(
            [str(SPARK_CLASS), *words], env=env, cwd=home, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        self._lines, self._said = list[str](), threading.Condition()
        assert self.process.stderr is not None
        threading.Thread(target=self._read, args=(self.process.stderr,), daemon=True).start()

    def _read(self, stderr: IO[str]) -> None:
        with stderr:
            for line in stderr:
                with self._said:
                    self._lines.append(line)
                    self._said.notify_all()

    def says(self, pattern: str) -> str:
        """Wait until it prints a line that matches; return the pattern's group."""
        with self._said:
            found = self._said.wait_for(lambda: self._find(pattern), PATIENCE_S)
        assert found, self._lines[-20:]
        return str(found)

    def _find(self, pattern: str) -> str:
        return next((match[1] for line in self._lines if (match := re.search(pattern, line))), "")

    def executors(self) -> list[int]:
        """Return the processes that a worker has started: each of its threads has its own."""
        found = [path.read_text() for path in Path(f"/proc/{self.process.pid}/task").glob("*/children")]
        return [int(pid) for text in found for pid in text.split()]

    def stop(self) -> None:
        for pid in [*self.executors(), self.process.pid] if self.process.poll() is None else []:
            os.kill(pid, 9)
        self.process.wait()


class Cluster:
    def __init__(self, home: Path) -> None:
        self._home, self._daemons = home, list[Daemon]()
        self.url = ""

    @property
    def workers(self) -> list[Daemon]:
        return self._daemons[1:]

    def start(self) -> None:
        place = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        master = Daemon(self._home / "master", "org.apache.spark.deploy.master.Master", *place)
        self._daemons.append(master)
        self.url = master.says(r"(spark://127\.0\.0\.1:[1-9]\d*)")
        for name in ("one", "two"):
            size = ["--cores", "1", "--memory", "1g", "--work-dir", str(self._home / name / "work")]
            words = ("org.apache.spark.deploy.worker.Worker", *place, *size, self.url)
            self._daemons.append(Daemon(self._home / name, *words))
        for daemon in self.workers:
            daemon.says(r"(Successfully registered)")

    def stop(self) -> None:
        for daemon in reversed(self._daemons):
            daemon.stop()


class Driver:
    """A Python module run as a driver; its output goes into a file."""

    def __init__(self, log: Path, module: str, *words: str) -> None:
        self._log = log
        with log.open("wb") as file:
            command = [sys.executable, "-m", module, *words]
            self.process = subprocess.Popen(command, env=environment(), stdout=file, stderr=subprocess.STDOUT)

    def ends(self, code: int) -> None:
        try:
            found = self.process.wait(PATIENCE_S)
        finally:
            self.process.kill()
        assert found == code, self._log.read_text()[-4000:]
