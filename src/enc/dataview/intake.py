"""A pipeline's sources: each is a stream with a checkpoint of its own, which it has by what it reads.

So a source may be added or left out from one start to the next, and no other begins again.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from enc.core.errors import MisuseError
from enc.dataview.archive_source import ArchiveSource
from enc.dataview.landing import landed
from enc.dataview.source import EncSource
from enc.dataview.staging import staged

Source = Mapping[str, str]
"""`format`: enc, enc_archive or landing (with `path`, and `clean` to remove what was taken in); the rest are its
options.
"""

_HOW = frozenset(
    "enclave enclaves maxeventspertrigger eventsperpartition notices pollseconds timeout patience pins onunreachable "
    "splits eventspersplit maxfilespertrigger clean".split()
)
"""Options that say how something is read, and not what. Nor do the names of enclaves: offsets are by enclave, and more
of them may come.
"""


def checkpoints(sources: Sequence[Source]) -> dict[str, Source]:
    """The sources by the names of their checkpoints."""
    if not sources:
        raise MisuseError("sources: name at least one: a node's enclaves, archives, or a landing zone")
    found: dict[str, Source] = {}
    for source in sources:
        what = {name.lower(): text for name, text in source.items() if name.lower() not in _HOW}
        if "path" in what:
            what["path"] = ",".join(each if ":" in each else os.path.abspath(each) for each in what["path"].split(","))
        name = f"ingest-{hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]}"
        if name in found:
            raise MisuseError("sources: one is named twice; several enclaves of one node go into one source")
        found[name] = source
    return found


def register(spark: SparkSession) -> None:
    for source in (EncSource, ArchiveSource):
        spark.dataSource.register(source)


def incoming(spark: SparkSession, source: Source, root: str, *, verify: bool) -> DataFrame:
    """A source's rows as a stream of FILES: see staging.py."""
    options = {name: text for name, text in source.items() if name != "format"}
    if source["format"] == "landing":
        rows = landed(spark, options["path"], clean=options.get("clean") == "true")
        return staged(rows, root, check=verify)
    options = {**options, "verify": "full" if verify else "form", "stage": root}
    return spark.readStream.format(source["format"]).options(**options).load()
