"""Kinds of events as Spark columns; `contents` has the same for Python."""

from pyspark.sql import Column
from pyspark.sql.functions import col, expr

from enc.dataview.fold.content_fold import REVISIONS


def is_revision() -> Column:
    """Return the condition for Updates and Deletes."""
    return col("type").isin(*REVISIONS)


def revised_id() -> Column:
    """Return the id that an Update's or Delete's `r` tag names."""
    return expr("get(get(filter(tags, tag -> size(tag) > 1 AND tag[0] = 'r'), 0), 1)")
