"""The worked examples of vectors/, and the keys they use."""

import json
from pathlib import Path
from typing import Any

from enc.core.primitives.signing import PrivateKey

FOLDER = Path(__file__).parents[2] / "vectors"


def load(name: str) -> Any:
    return json.loads((FOLDER / f"{name}.json").read_text())


KEYS = {name: PrivateKey(bytes.fromhex(pair["priv"])) for name, pair in load("keys").items()}
