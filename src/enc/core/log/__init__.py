"""What a log holds and what a client gets for it: commits, events, receipts, filters."""
