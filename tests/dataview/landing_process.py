"""A landing receiver in a separate process that takes one push and may die on the way.

python -m tests.dataview.landing_process DIRECTORY POINT < push
"""

import os
import sys
from pathlib import Path

from enc.client import Identity, ReceiverSettings
from enc.core.errors import EncError
from enc.dataview.source.landing import LandingZone
from enc.dataview.source.receive import LandingReceiver
from tests.core.world import person
from tests.node.served import NODE

HOOK = "https://bob.test/hook"
POINTS = ("before landing", "after the draft", "after landing", "before the answer")
DIED = 9


def die() -> None:
    os._exit(DIED)


class Dying(LandingZone):
    point = ""

    def put(self, name: str, rows: object) -> bool:
        if self.point == "before landing":
            die()
        done = super().put(name, rows)
        if self.point == "after landing":
            die()
        return done


def main() -> None:
    directory, point = Path(sys.argv[1]), sys.argv[2]
    Dying.point = point
    if point == "after the draft":
        os.link = lambda *_: die()  # type: ignore[assignment]
    landing = Dying(directory / "landing")
    made = LandingReceiver(
        Identity(person("bob")),
        HOOK,
        dict[bytes | str, str]({NODE.public: "http://127.0.0.1:9"}),
        directory / "inbox.db",
        landing,
        settings=ReceiverSettings(pins=directory / "pins", timeout=0.2),
    )
    made.receiver.start()
    try:
        made.receiver.take(sys.stdin.buffer.read())
    except EncError as e:
        sys.exit(f"{e.code}: {e.message}")
    if point == "before the answer":
        die()
    made.receiver.close()


if __name__ == "__main__":
    main()
