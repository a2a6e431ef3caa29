"""The part of the SQLite store that queues events for pushing and records their delivery."""
