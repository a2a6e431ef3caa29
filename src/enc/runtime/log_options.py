"""What settings say about logs, apart from `logs`: to import structlog takes longer than most commands run."""

from typing import Literal

Level = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["json", "console"]
