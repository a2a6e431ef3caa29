"""Reads an enclave, and the archive small.enc of a folder, with a SparkSession that this package did not build.

Prints what it reads as JSON.

    python -m tests.dataview.foreign_session URL ENCLAVE FOLDER [NAME=VALUE …]     settings of the session

With SPARK_REMOTE in the environment, the session is one of Spark Connect.
"""

import json
import sys
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from enc.dataview.pipeline.sources import register
from enc.dataview.rows.verify import verified


def main(url: str, enclave: str, folder: str, *settings: str) -> None:
    builder = SparkSession.builder
    for name, value in (each.split("=", 1) for each in settings):
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    options = {"node": url, "enclaves": enclave}
    raw = spark.read.format("enc").options(**options).load()
    found = {
        "rows": raw.count(),
        "posts": [row.seq for row in raw.where("type = 'post' AND seq > 1").orderBy("seq").collect()],
        "verified": verified(raw).where("code IS NULL").count(),
        "typed": spark.read.format("enc").options(**options, verify="full").load().where("code IS NULL").count(),
    }
    try:
        pushed = spark.read.format("enc").options(**options, pushdown="true").load().where("seq > 2")
        found["pushed"] = pushed.count()
    except PySparkException as e:
        found["pushed"] = "spark.sql.python.filterPushdown.enabled" in str(e)
    stream = spark.readStream.format("enc").options(**options, verify="full").load()
    out = str(Path(folder, "rows"))
    query = stream.writeStream.format("parquet").option("checkpointLocation", str(Path(folder, "checkpoint")))
    query.option("path", out).trigger(availableNow=True).start().awaitTermination()
    found["streamed"] = spark.read.parquet(out).where("code IS NULL").count()
    archived = spark.read.format("enc_archive").load(str(Path(folder, "small.enc")))
    found["archived"] = [archived.count(), archived.where("seq = 0").count()]
    sys.stdout.write(f"{json.dumps(found)}\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
