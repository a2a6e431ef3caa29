"""Salvage: copies every enclave of a damaged store that still replays into a new store.

SQLite gives up a table at its first damaged page. This package does not use SQLite to read the
damaged file: a row is found by the form of its page and of its columns, wherever the page is.
Nothing that is found is trusted. Each log is replayed from its Manifest, as an import replays it,
and everything that can be derived is derived again: trees, bundles, statuses, indexes, endpoints,
records, counters. What cannot be derived is copied where it can be read: heads, and the queues of
endpoints.

- `pages`: the pages of the file and of its write-ahead log
- `records`: the rows in a page
- `found_rows`: a database of what was found, of which table and where
- `found_log`: the events of one log
- `log_replay`: replays one log into the new store; `log_staging` writes it
- `deliveries`: queues and batches
- `enclaves`: which logs there are, and what became of each
- `salvage`: the whole
"""
