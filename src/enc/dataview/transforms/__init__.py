"""One table a file: DataFrame in, DataFrame out; no session, no writing."""
