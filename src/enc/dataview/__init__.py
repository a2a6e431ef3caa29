"""The data pipeline: verifies the events of many enclaves and stores them in tables, on Spark."""
