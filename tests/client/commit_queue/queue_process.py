"""A program that sends a queue and is killed at one of its steps.

python -m tests.client.commit_queue.queue_process URL KEY FILE METHOD WHEN: WHEN is `before` or `after` METHOD of
QueueFile, at its second call.
"""

import os
import signal
import sys
from itertools import count
from pathlib import Path
from typing import Any

from enc.client import Client, Identity
from enc.client.commit_queue.queue_file import QueueFile


def kill_at(method: str, when: str) -> None:
    work, numbers = getattr(QueueFile, method), count(1)

    def stop(*args: Any) -> Any:
        is_last = next(numbers) == 2
        if is_last and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        found = work(*args)
        if is_last:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    setattr(QueueFile, method, stop)


def main(url: str, key: str, file: str, method: str, when: str) -> None:
    kill_at(method, when)
    with Client(url, Identity.load(Path(key)), pins=None) as client, client.commit_queue(file) as queue:
        if method == "add":
            notes = client.enclave(queue.waiting()[0].commit.enclave)
            for text in "56":
                queue.add(notes.prepare("note", text))
        queue.send()


if __name__ == "__main__":
    main(*sys.argv[1:])
