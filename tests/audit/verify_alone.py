"""A process that has only evidence files: it prints what each shows. A test runs it."""

import json
import sys
from pathlib import Path

from enc.client import check_evidence, load_evidence

for path in sorted(Path(sys.argv[1]).glob("*.json")):
    evidence = load_evidence(path.read_bytes())
    verdict = check_evidence(evidence)
    line = {
        "name": path.stem,
        "enclave": evidence.enclave.hex(),
        "convicts": verdict.convicts,
        "holds": verdict.holds,
        "proved": verdict.proved,
        "not_proved": verdict.not_proved,
    }
    sys.stdout.write(json.dumps(line) + "\n")
