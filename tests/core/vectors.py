"""The worked examples of vectors/, the keys they use, and the folder of other projects' test data."""

import json
import os
from pathlib import Path
from typing import Any

from enc.core.primitives.signing import PrivateKey

FOLDER = Path(__file__).parents[2] / "vectors"
EXTERNAL = Path(os.environ.get("ENC_EXTERNAL_VECTORS") or Path(__file__).parents[3] / "shared" / "vectors" / "external")
"""Official test data of other projects, beside the checkout unless ENC_EXTERNAL_VECTORS names a folder."""


def load(name: str) -> Any:
    return json.loads((FOLDER / f"{name}.json").read_text())


KEYS = {name: PrivateKey(bytes.fromhex(pair["priv"])) for name, pair in load("keys").items()}
