"""The sources of a pipeline. Each is a stream with its own checkpoint, named after what it reads.

So a source may be added or removed between two starts without restarting the others.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from enc.core.errors import MisuseError
from enc.dataview.source.archive_source import ArchiveSource
from enc.dataview.source.landing import read_landing
from enc.dataview.source.source import EncSource
from enc.dataview.source.staging import stage_rows

StreamOptions = Mapping[str, str]
"""`format` is enc, enc_archive or landing (with `path`, and `clean` to remove files once they are
ingested); the other entries are the format's options.
"""

_HOW_OPTIONS = frozenset(
    "enclave enclaves maxenclaves maxeventspertrigger eventsperpartition notices pollseconds timeout patience pins "
    "onunreachable pushdown splits eventspersplit maxfilespertrigger clean".split()
)
"""Options that say how a source is read, and not what. Enclave ids are among them: offsets are per
enclave, and enclaves may be added.
"""


def sources_by_checkpoint(sources: Sequence[StreamOptions]) -> dict[str, StreamOptions]:
    """Return the sources by checkpoint name. MisuseError if there are none, or one is given twice."""
    if not sources:
        raise MisuseError("sources: name at least one: a node's enclaves, archives, or a landing zone")
    found: dict[str, StreamOptions] = {}
    for source in sources:
        what = {name.lower(): text for name, text in source.items() if name.lower() not in _HOW_OPTIONS}
        if "path" in what:
            what["path"] = ",".join(each if ":" in each else os.path.abspath(each) for each in what["path"].split(","))
        name = f"ingest-{hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]}"
        if name in found:
            raise MisuseError("sources: one is given twice; put several enclaves of one node into one source")
        found[name] = source
    return found


def register(spark: SparkSession) -> None:
    for source in (EncSource, ArchiveSource):
        spark.dataSource.register(source)


def open_stream(spark: SparkSession, source: StreamOptions, root: str, *, verify: bool) -> DataFrame:
    """Open a source as a stream of FILES: see staging.py."""
    options = {name: text for name, text in source.items() if name != "format"}
    if source["format"] == "landing":
        rows = read_landing(spark, options["path"], clean=options.get("clean") == "true")
        return stage_rows(rows, root, check=verify)
    options = {**options, "verify": "full" if verify else "form", "stage": root}
    return spark.readStream.format(source["format"]).options(**options).load()
