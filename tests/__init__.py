"""The tests.

The processes that they start write bytecode; otherwise each of them would compile all of enc again.
"""

import os

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
