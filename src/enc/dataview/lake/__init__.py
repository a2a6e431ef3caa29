"""Delta tables: the lake's layout, its lock, small cached tables, Spark's session."""
