"""The data pipeline: the events of many enclaves, checked, as tables. On Spark; only what is in here imports it."""
