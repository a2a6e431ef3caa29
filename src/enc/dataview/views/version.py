"""How far a view has been built, stored in its table's log in the same commit as the rows."""

from msgspec import Struct
from pyspark.sql import SparkSession

from enc.dataview.lake.tables import Table, Txn


class ViewVersion(Struct, frozen=True):
    """Version of the inputs that a view was built from.

    `version` is the version of its source, or, for a full view, the sum of the versions of all
    inputs. Each commit increments one version, so two sums are equal only if all versions are.
    """

    generation: int
    """Incremented whenever the view is built from the beginning."""
    source: str
    text: str
    version: int

    def txn(self, name: str) -> Txn:
        return Txn(f"view {name}/{self.generation}/{self.source}/{self.text}", self.version)


def read_view_version(spark: SparkSession, table: Table) -> ViewVersion | None:
    """Return the version of the last generation; None if the view was never built."""
    found = []
    for app, version in table.transactions(spark).items():
        name, *parts = app.split("/")
        if name == f"view {table.name}" and len(parts) == 3:
            found.append(ViewVersion(int(parts[0]), parts[1], parts[2], version))
    return max(found, key=lambda mark: mark.generation, default=None)
