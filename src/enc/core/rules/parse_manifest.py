"""Parses a Manifest's content into a Policy; an error names the path of the fault
(docs/protocol.md, section 12).

`enc_v` selects the parser: v2.manifest or v1.manifest.
"""

from msgspec.structs import replace

from enc.core.errors import InvalidCommit
from enc.core.primitives.encoding import strict_json
from enc.core.rules.policy_types import Policy
from enc.core.rules.v1.manifest import read_manifest_v1
from enc.core.rules.v2.manifest import ManifestV2


def parse_manifest(content: str) -> Policy:
    """Return the Policy of the enclave that a Manifest with this content creates, or raise
    InvalidCommit."""
    manifest = strict_json(content)
    if not isinstance(manifest, dict):
        raise InvalidCommit("content: expected a JSON object")
    enc_v = manifest.get("enc_v")
    if type(enc_v) is not int or enc_v not in (1, 2):
        raise InvalidCommit("enc_v: only versions 1 and 2 are supported")
    policy = read_manifest_v1(manifest) if enc_v == 1 else ManifestV2(manifest).policy()
    return replace(policy, size=len(content))
