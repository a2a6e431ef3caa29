"""fsck: derives everything in a node's store from its logs again, and reports the first difference.

The only trusted part of the store is the log, and of the log only what proves itself. Each
enclave's events are replayed from the first (enc.core.machine.replay: hashes, signatures, ids, order,
rights, causes of erasure), and each result of the replay is compared with the store:

- `events`: each event by seq, by id, by commit hash and as a target; its status; that a content
  removed by an Update or a Delete is gone; and, at the end, the registered endpoints
- `searches`: what a Query finds, by type, author and tag, and by the type that decides read rights
- `trees`: each node of the sparse tree and of the log, each closed bundle, each head with both its
  signatures; a registry's records, by key, by entry and as they are listed
- `ending`: the state from which the node would continue, and that the node's clock has shown the
  times in its events
- `enclave`: all of that for one enclave; for a purged one, that only its tombstone is left
- `usage`: over the whole store, what each identity has used
- `report`: the differences found

The rows of a SQLite store are also checked column by column (enc.node.store.sqlite.check), and its
queues against each other and the logs (enc.node.store.sqlite.push.check): no log records whether an
endpoint answered.

- `file_check`: a store's file on all cores, also while its node runs

The check writes nothing. Its memory does not grow with the log: tree nodes and targets are read
back from the store after they were compared. What grows: about 400 bytes for each event that was
updated or deleted, the commit hashes of an hour of the log, a count for each identity, and a
registry's records. `check_store` needs a store that nobody writes meanwhile; `check_file` reads each
enclave as it is at one moment.
"""

from enc.node.fsck.difference import Difference
from enc.node.fsck.file_check import check_file
from enc.node.fsck.report import Report, check_enclave, check_store

__all__ = ["Difference", "Report", "check_enclave", "check_file", "check_store"]
