"""The pipeline from raw rows to published views, and the job that runs it."""
