"""Up to where a view is made, as its table's log says it: in the same commit as the rows."""

from msgspec import Struct
from pyspark.sql import SparkSession

from enc.dataview.tables import Table, Txn


class Mark(Struct, frozen=True):
    """Up to where a view is made: the `version` of its source; of a full view, the sum of all that it reads.

    Versions rise by one commit at a time, so that a sum is the same only if each of them is.
    """

    generation: int
    """Rises whenever the view is made from the beginning."""
    source: str
    text: str
    version: int

    def txn(self, name: str) -> Txn:
        return Txn(f"view {name}/{self.generation}/{self.source}/{self.text}", self.version)


def read_mark(spark: SparkSession, table: Table) -> Mark | None:
    """The mark of the last generation; None where the view was never made."""
    found = []
    for app, version in table.transactions(spark).items():
        name, *parts = app.split("/")
        if name == f"view {table.name}" and len(parts) == 3:
            found.append(Mark(int(parts[0]), parts[1], parts[2], version))
    return max(found, key=lambda mark: mark.generation, default=None)
