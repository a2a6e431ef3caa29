"""The tests. The processes that they start write bytecode, or each of the many would compile all of enc again."""

import os

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
