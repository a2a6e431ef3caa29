"""fsck: derive everything that a node's store holds from its logs again, and name the first difference.

Of the store only the log is believed, and of the log only what proves itself. Each enclave's events are replayed from
the first (enc.core.replay: hashes, signatures, ids, order, rights, causes of erasure), and what the replay makes is
compared with what the store holds, as it is made:

 - `events`: each event by seq, by id, by commit hash and as a target; its status; that a content is gone which an
   Update or a Delete took away; and, at the end, the endpoints that are registered
 - `searches`: what a Query finds, by type, author and tag, and by the type that read rights are judged by
 - `trees`: each node of the sparse tree and of the log, each closed bundle, each head with both its signatures; a
   registry's records, by key, by entry and as they are listed
 - `ending`: the state that the node would go on from, and that the node's clock has shown the times it gave
 - `enclave`: all of that for one enclave; of a purged one, that nothing is left but its tombstone
 - `usage`: over the whole store, what each identity has used
 - `report`: what was found

A store in SQLite is also held to its rows, column by column (enc.node.store.sqlite_check), and its queues to each other
and to the logs (enc.node.store.push_check): whether an endpoint answered no log tells.

Nothing is written. Memory does not grow with the log: tree nodes and targets are read back from the store once they
were compared. What does grow is some 400 bytes for each event that was updated or deleted, the commit hashes of an hour
of the log, a count for each identity, and a registry's records. The node must stand still meanwhile: what it writes
during the check would be taken for a difference.
"""

from enc.node.fsck.difference import Difference
from enc.node.fsck.report import Report, check_enclave, check_store

__all__ = ["Difference", "Report", "check_enclave", "check_store"]
