"""fsck reports any damage to a row, an index or a page of a SQLite store."""

# ruff: noqa: S608 - the SQL that damages a store is put together from parts

import sqlite3
from contextlib import closing

import pytest

from enc.node.store.sqlite.store import SqliteStore
from tests.core.world import pub
from tests.node.fsck.stores import (
    Damaged,
    check,
)
from tests.node.push_host import OTHER, URL


def test_the_store_to_be_damaged_is_clean_and_every_table_has_rows(damaged: Damaged) -> None:
    assert damaged.check().differences == []
    with closing(sqlite3.connect(damaged.path)) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        empty = [table for table in tables if not db.execute(f"SELECT 1 FROM {table}").fetchone()]
    assert empty == []


ROW = "auto_delete, target, updated_by, content_hash, head, content, withheld FROM events WHERE k = k(9)"
COPY = "SELECT {at}, c, from8, hash8, exp, timestamp, " + ROW
ROOT = "e = {life} AND hash = (SELECT state_hash FROM bundles WHERE e = {life} AND i = 4)"
SWAP = "UPDATE events SET k = CASE k WHEN -k(9) THEN k(10) ELSE k(9) END WHERE k < 0"
VERA = f"identity = x'{pub('vera')}' AND url = '{URL}'"
OF_VERA = f"q = (SELECT q FROM queues WHERE {VERA})"
WAITS = f"push_seq = 4 AND {OF_VERA}"
STRAY = "withheld_contents: a row without a withheld event"
NONE, LOG = "a row without an enclave", "not what the log implies"

# Enclave (none: the store), seq, part of the message, SQL
DAMAGE: list[tuple[str, int | None, str, str]] = [
    ("life", 19, "clock", "UPDATE node SET clock = clock - 3000"),
    ("", None, "the number of enclaves", "UPDATE node SET enclaves = enclaves + 1"),
    ("", None, f"tags: {NONE}", "UPDATE enclaves SET e = 1000 WHERE e = {life}"),
    ("life", None, "the store has no such enclave", "UPDATE enclaves SET e = 1000 WHERE e = {life}"),
    ("life", 0, f"manifest: {LOG}", "UPDATE enclaves SET manifest = manifest || ' ' WHERE e = {life}"),
    ("life", None, "cannot be read", "UPDATE enclaves SET manifest = 'x' WHERE e = {life}"),
    ("life", 19, f"terminated_at: {LOG}", "UPDATE enclaves SET terminated_at = 5 WHERE e = {life}"),
    ("terminated", 2, f"terminated_at: {LOG}", "UPDATE enclaves SET terminated_at = NULL WHERE e = {terminated}"),
    ("terminated", 2, f"terminated_at: {LOG}", "UPDATE enclaves SET terminated_at = 5 WHERE e = {terminated}"),
    ("purged", None, "terminated_at is missing", "UPDATE enclaves SET terminated_at = NULL WHERE e = {purged}"),
    ("life", None, "purged, but not terminated", "UPDATE enclaves SET purged = 1 WHERE e = {life}"),
    ("", None, "the number of enclaves", "UPDATE enclaves SET purged = 1 WHERE e = {terminated}"),
    ("terminated", None, "purged, but rows of kinds are left", "UPDATE enclaves SET purged = 2 WHERE e = {terminated}"),
    ("purged", 0, "the event is missing", "UPDATE enclaves SET purged = 0 WHERE e = {purged}"),
    ("", None, "the number of enclaves", "DELETE FROM enclaves WHERE e = {life}"),
    ("", None, f"states: {NONE}", "DELETE FROM enclaves WHERE e = {life}"),
    ("", None, "the number of enclaves", "INSERT INTO enclaves VALUES (1000, zeroblob(32), '', NULL, 0, NULL)"),
    # sizes
    ("life", None, "sizes: not the size of", "UPDATE sizes SET bytes = bytes + 1 WHERE e = {life}"),
    ("life", None, "sizes: not the size of", "DELETE FROM sizes WHERE e = {life}"),
    ("", None, f"sizes: {NONE}", "INSERT INTO sizes VALUES (1000, 1)"),
    ("purged", None, "purged, but rows of sizes are left", "INSERT INTO sizes VALUES ({purged}, 1)"),
    # withheld contents
    ("withheld", None, "sizes: not the size of", "UPDATE sizes SET bytes = bytes - 8 WHERE e = {withheld}"),
    (
        "withheld",
        1,
        "events.withheld: the statement's signature",
        "UPDATE events SET withheld = CAST(replace(withheld, 'court_order', 'abuse') AS BLOB) "
        "WHERE k = {withheld} << 40 | 1",
    ),
    (
        "withheld",
        1,
        "withheld_contents: not the content that was signed",
        "UPDATE withheld_contents SET content = 'lawful' WHERE k = {withheld} << 40 | 1",
    ),
    (
        "withheld",
        1,
        f"events.auto_delete: {LOG}",
        "UPDATE withheld_contents SET content = NULL WHERE k = {withheld} << 40 | 1",
    ),
    (
        "withheld",
        3,
        f"events.auto_delete: {LOG}",
        "UPDATE events SET auto_delete = 5 WHERE k = {withheld} << 40 | 3",
    ),
    ("life", 9, "cannot be read", "UPDATE events SET content = NULL, withheld = x'7b7d' WHERE k = k(9)"),
    ("life", 9, f"events.withheld: {LOG}", "UPDATE events SET withheld = x'7b7d' WHERE k = k(9)"),
    (
        "",
        None,
        STRAY,
        "INSERT INTO withheld_contents VALUES (k(9), 'x', '')",
    ),
    (
        "",
        None,
        STRAY,
        "INSERT INTO withheld_contents VALUES (5, 'x', '')",
    ),
    (
        "life",
        2,
        "withheld_contents: still present though event 3 removed",
        "INSERT INTO withheld_contents VALUES (k(2), 'first words', '')",
    ),
    # states
    ("life", None, "the store has no such enclave", "UPDATE states SET e = 1000 WHERE e = {life}"),
    ("", None, f"states: {NONE}", "UPDATE states SET e = 1000 WHERE e = {life}"),
    ("life", 19, f"state: seq: {LOG}", "UPDATE states SET state = flip(state, 1) WHERE e = {life}"),
    ("life", None, "cannot be read", "UPDATE states SET state = x'' WHERE e = {life}"),
    ("life", 19, f"states.deadline: {LOG}", "UPDATE states SET deadline = deadline + 1 WHERE e = {life}"),
    ("life", 19, f"states.deadline: {LOG}", "UPDATE states SET deadline = NULL WHERE e = {life}"),
    ("idle", 0, f"states.deadline: {LOG}", "UPDATE states SET deadline = 5 WHERE e = {idle}"),
    ("purged", None, "states.deadline is left", "UPDATE states SET deadline = 5 WHERE e = {purged}"),
    ("life", None, "the store has no such enclave", "DELETE FROM states WHERE e = {life}"),
    ("", None, f"states: {NONE}", "INSERT INTO states VALUES (1000, x'', NULL)"),
    # kinds
    ("life", 10, f"events.c: {LOG}", "UPDATE kinds SET c = 1000 WHERE e = {life} AND type = 'reaction'"),
    (
        "life",
        10,
        "kinds: the event's row is missing",
        "UPDATE kinds SET e = 1000 WHERE e = {life} AND type = 'reaction'",
    ),
    ("", None, f"kinds: {NONE}", "UPDATE kinds SET e = 1000 WHERE e = {life} AND type = 'reaction'"),
    (
        "life",
        10,
        "kinds: the event's row is missing",
        "UPDATE kinds SET type = 'x' WHERE e = {life} AND type = 'reaction'",
    ),
    ("life", 10, "kinds: the event's row is", "UPDATE kinds SET subject = 'x' WHERE e = {life} AND type = 'reaction'"),
    (
        "life",
        3,
        "kinds: the event's row is missing",
        "UPDATE kinds SET subject = 'x' WHERE e = {life} AND type = 'Update'",
    ),
    ("life", None, "kinds: message/message", "UPDATE kinds SET live = 9 WHERE e = {life} AND type = 'message'"),
    ("life", None, "kinds: message/message", "UPDATE kinds SET total = live WHERE e = {life} AND type = 'message'"),
    ("life", 10, "kinds: the event's row is missing", "DELETE FROM kinds WHERE e = {life} AND type = 'reaction'"),
    ("life", None, "kinds: new/new", "INSERT INTO kinds VALUES (1000, {life}, 'new', 'new', 0, 0)"),
    ("", None, f"kinds: {NONE}", "INSERT INTO kinds VALUES (1000, 1000, 'new', 'new', 0, 0)"),
    # events
    ("life", 9, "the event is missing", "UPDATE events SET k = k(100) WHERE k = k(9)"),
    ("life", 19, "the event is missing", "UPDATE events SET k = k(10000) WHERE k = k(19)"),
    ("life", 9, f"events.c: {LOG}", "UPDATE events SET c = c + 1 WHERE k = k(9)"),
    ("life", 9, f"status: {LOG}", "UPDATE events SET c = -c WHERE k = k(9)"),
    ("life", 5, "tags: a row is missing", "UPDATE events SET c = -c WHERE k = k(5)"),
    ("life", 9, f"events.from8: {LOG}", "UPDATE events SET from8 = from8 + 1 WHERE k = k(9)"),
    ("life", 9, "not found by its commit's hash", "UPDATE events SET hash8 = hash8 + 1 WHERE k = k(9)"),
    ("life", 9, "not found by its commit's hash", "UPDATE events SET exp = exp + 1 WHERE k = k(9)"),
    ("life", 9, f"events.timestamp: {LOG}", "UPDATE events SET timestamp = timestamp + 1 WHERE k = k(9)"),
    ("life", 18, f"events.auto_delete: {LOG}", "UPDATE events SET auto_delete = auto_delete + 1 WHERE k = k(18)"),
    ("life", 18, f"events.auto_delete: {LOG}", "UPDATE events SET auto_delete = NULL WHERE k = k(18)"),
    ("soon gone", 2, f"events.auto_delete: {LOG}", "UPDATE events SET auto_delete = 5 WHERE k = {soon_gone} << 40 | 2"),
    ("life", 6, f"events.auto_delete: {LOG}", "UPDATE events SET auto_delete = 5 WHERE k = k(6)"),
    ("life", 19, f"events.auto_delete: {LOG}", "UPDATE events SET auto_delete = 5 WHERE k = k(19)"),
    ("life", 4, f"events.target: {LOG}", "UPDATE events SET target = target + 1 WHERE k = k(4)"),
    ("life", 4, f"events.target: {LOG}", "UPDATE events SET target = NULL WHERE k = k(4)"),
    ("life", 8, f"events.target: {LOG}", "UPDATE events SET target = k(5) WHERE k = k(8)"),
    ("life", 2, f"status: {LOG}", "UPDATE events SET updated_by = flip(updated_by, 0) WHERE k = k(2)"),
    ("life", 2, f"status: {LOG}", "UPDATE events SET updated_by = NULL WHERE k = k(2)"),
    ("life", 5, f"events.updated_by: {LOG}", "UPDATE events SET updated_by = zeroblob(32) WHERE k = k(5)"),
    ("life", 9, f"status: {LOG}", "UPDATE events SET updated_by = zeroblob(32) WHERE k = k(9)"),
    *[
        ("life", 9, what, f"UPDATE events SET head = other(head, '{field}') WHERE k = k(9)")
        for field, what in [
            ("id", "INVALID_HASH: id"),
            ("hash", "INVALID_HASH: hash"),
            ("from", "INVALID_HASH: hash"),
            ("sequencer", "INVALID_SIGNATURE: seq_sig"),
            ("sig", "INVALID_SIGNATURE"),
            ("seq_sig", "INVALID_SIGNATURE: seq_sig"),
            ("enclave", "an event of another enclave"),
            ("type", "INVALID_HASH: hash"),
            ("seq", "another event is in its place"),
            ("timestamp", "INVALID_SIGNATURE: seq_sig"),
            ("exp", "INVALID_HASH: hash"),
            ("tags", "INVALID_HASH: hash"),
        ]
    ],
    ("life", 10, "cannot be read", "UPDATE events SET head = other(head, 'alg') WHERE k = k(10)"),
    ("life", 9, "cannot be read", "UPDATE events SET head = substr(head, 2) WHERE k = k(9)"),
    (
        "life",
        9,
        f"events.head: {LOG}",
        "UPDATE events SET head = CAST(replace(head, ':9,', ': 9,') AS BLOB) WHERE k = k(9)",
    ),
    ("life", 9, f"events.content_hash: {LOG}", "UPDATE events SET content_hash = flip(content_hash, 0) WHERE k = k(9)"),
    ("life", 5, "INVALID_HASH", "UPDATE events SET content_hash = flip(content_hash, 0) WHERE k = k(5)"),
    ("life", 9, "INVALID_HASH: hash", "UPDATE events SET content = content || '.' WHERE k = k(9)"),
    ("life", 9, "content: missing without", "UPDATE events SET content = NULL WHERE k = k(9)"),
    ("life", 1, "a Move is never erased", "UPDATE events SET content = NULL WHERE k = k(1)"),
    ("life", 9, "cannot be read", "UPDATE events SET content = CAST(x'ff' AS TEXT) WHERE k = k(9)"),
    ("life", 2, "event 3 removed it", "UPDATE events SET content = 'first words' WHERE k = k(2)"),
    ("life", 3, "event 4 removed it", "UPDATE events SET content = 'second words' WHERE k = k(3)"),
    ("life", 5, "event 8 removed it", "UPDATE events SET content = 'regretted' WHERE k = k(5)"),
    ("life", 9, "the event is missing", "DELETE FROM events WHERE k = k(9)"),
    ("life", 0, "the event is missing", "DELETE FROM events WHERE k = k(0)"),
    ("life", 19, "the event is missing", "DELETE FROM events WHERE k = k(19)"),
    ("life", 0, "the event is missing", "DELETE FROM events WHERE k BETWEEN k(0) AND k(19)"),
    ("life", 20, "another event is in its place", f"INSERT INTO events {COPY.replace('{at}', 'k(20)')}"),
    ("life", 9000, "beyond the end of the log", f"INSERT INTO events {COPY.replace('{at}', 'k(9000)')}"),
    ("", None, f"events: {NONE}", f"INSERT INTO events {COPY.replace('{at}', '1000 << 40')}"),
    ("purged", None, "rows of events are left", f"INSERT INTO events {COPY.replace('{at}', '{purged} << 40')}"),
    ("life", 9, "the event is missing", f"UPDATE events SET k = -k WHERE k IN (k(9), k(10)); {SWAP}"),
    # ids and recent_ids
    ("moved in", 0, "not found by its id", "UPDATE ids SET id8 = id8 + 1 WHERE k = {moved_in} << 40"),
    ("", None, "ids: a row without an event", "UPDATE ids SET id8 = id8 + 1 WHERE k = k(0)"),
    ("moved in", 0, "not found by its id", "UPDATE ids SET k = k + 1 WHERE k = {moved_in} << 40"),
    ("moved in", 0, "not found by its id", "DELETE FROM ids WHERE k = {moved_in} << 40"),
    ("", None, "ids: a row without an event", "INSERT INTO ids VALUES (5, k(9))"),
    ("", None, "ids: a row without an event", "INSERT INTO ids VALUES (5, k(90))"),
    ("life", 19, "not found by its id", "UPDATE recent_ids SET id = flip(id, 31) WHERE k = k(19)"),
    ("life", 19, "not found by its id", "UPDATE recent_ids SET k = k(18) WHERE k = k(19)"),
    ("life", 19, "not found by its id", "DELETE FROM recent_ids WHERE k = k(19)"),
    ("", None, "recent_ids: a row without an event", "INSERT INTO recent_ids VALUES (1000, zeroblob(32), k(9))"),
    ("", None, "recent_ids: a row without an event", "INSERT INTO recent_ids VALUES (1000, zeroblob(32), k(90))"),
    ("", None, "recent_ids: a row without an event", "INSERT INTO recent_ids VALUES (1000, zeroblob(32), 1000 << 40)"),
    # tags
    ("life", 9, "tags: a row is missing", "UPDATE tags SET e = 1000 WHERE e = {life} AND seq = 9"),
    ("", None, f"tags: {NONE}", "UPDATE tags SET e = 1000 WHERE e = {life} AND seq = 9"),
    ("life", 9, "tags: a row is missing", "UPDATE tags SET t8 = t8 + 1 WHERE e = {life} AND seq = 9"),
    ("life", 9, "tags: a row is missing", "UPDATE tags SET seq = 90 WHERE e = {life} AND seq = 9"),
    ("life", 9, "tags: a row is missing", "DELETE FROM tags WHERE e = {life} AND seq = 9"),
    ("life", 9, "tags: there are too many rows", "INSERT INTO tags VALUES ({life}, 5, 9)"),
    ("life", 90, "tags: there are too many rows", "INSERT INTO tags VALUES ({life}, 5, 90)"),
    ("life", 5, "too many rows", "INSERT INTO tags SELECT e, t8, 5 FROM tags WHERE e = {life} AND seq = 9"),
    ("purged", None, "rows of tags are left", "INSERT INTO tags VALUES ({purged}, 5, 0)"),
    # pending
    ("life", 19, f"state: pending: {LOG}", "UPDATE pending SET e = 1000 WHERE e = {life}"),
    ("", None, f"pending: {NONE}", "UPDATE pending SET e = 1000 WHERE e = {life}"),
    ("life", 19, f"state: pending: {LOG}", "UPDATE pending SET key = flip(key, 20) WHERE e = {life}"),
    ("life", 19, f"state: pending: {LOG}", "UPDATE pending SET value = zeroblob(32) WHERE e = {life}"),
    ("life", 19, f"state: pending: {LOG}", "DELETE FROM pending WHERE e = {life}"),
    ("life", 19, f"state: pending: {LOG}", "INSERT INTO pending VALUES ({life}, zeroblob(21), NULL)"),
    ("purged", None, "rows of pending are left", "INSERT INTO pending VALUES ({purged}, zeroblob(21), NULL)"),
    # tree_nodes
    ("life", 4, "missing", "UPDATE tree_nodes SET e = 1000 WHERE e = {life}"),
    ("", None, f"tree_nodes: {NONE}", "UPDATE tree_nodes SET e = 1000 WHERE e = {life}"),
    ("life", 17, "missing", f"UPDATE tree_nodes SET hash = flip(hash, 0) WHERE {ROOT}"),
    ("life", 17, LOG, f"UPDATE tree_nodes SET record = flip(record, 30) WHERE {ROOT}"),
    ("life", 17, "missing", f"DELETE FROM tree_nodes WHERE {ROOT}"),
    ("life", None, "not a node of a tree", "INSERT INTO tree_nodes VALUES ({life}, zeroblob(32), x'00')"),
    ("purged", None, "rows of tree_nodes are left", "INSERT INTO tree_nodes VALUES ({purged}, zeroblob(32), x'00')"),
    # log_nodes
    ("life", 11, "log node 0, 2: missing", "UPDATE log_nodes SET e = 1000 WHERE e = {life} AND level = 0 AND i = 2"),
    ("", None, f"log_nodes: {NONE}", "UPDATE log_nodes SET e = 1000 WHERE e = {life} AND level = 0 AND i = 2"),
    ("life", 11, "log node 0, 2: missing", "UPDATE log_nodes SET level = 9 WHERE e = {life} AND level = 0 AND i = 2"),
    ("life", 11, "log node 0, 2: missing", "UPDATE log_nodes SET i = 9 WHERE e = {life} AND level = 0 AND i = 2"),
    ("life", 13, f"log node 2, 0: {LOG}", "UPDATE log_nodes SET hash = flip(hash, 9) WHERE e = {life} AND level = 2"),
    ("life", 13, "log node 1, 1: missing", "DELETE FROM log_nodes WHERE e = {life} AND level = 1 AND i = 1"),
    ("life", None, "log_nodes: there are too many", "INSERT INTO log_nodes VALUES ({life}, 0, 5, zeroblob(32))"),
    ("purged", None, "rows of log_nodes are left", "INSERT INTO log_nodes VALUES ({purged}, 0, 5, zeroblob(32))"),
    # bundles
    ("life", 10, "bundle 2: missing", "UPDATE bundles SET e = 1000 WHERE e = {life} AND i = 2"),
    ("", None, f"bundles: {NONE}", "UPDATE bundles SET e = 1000 WHERE e = {life} AND i = 2"),
    ("life", 13, "bundle 4: missing", "UPDATE bundles SET i = 7 WHERE e = {life} AND i = 4"),
    ("life", 5, f"bundle 1: {LOG}", "UPDATE bundles SET first_seq = 6 WHERE e = {life} AND i = 1"),
    ("life", 5, f"bundle 1: {LOG}", "UPDATE bundles SET count = 4 WHERE e = {life} AND i = 1"),
    ("life", 5, f"bundle 1: {LOG}", "UPDATE bundles SET events_root = flip(events_root, 0) WHERE e = {life} AND i = 1"),
    ("life", 5, f"bundle 1: {LOG}", "UPDATE bundles SET state_hash = flip(state_hash, 0) WHERE e = {life} AND i = 1"),
    ("life", 5, "head of size 2: sth", "UPDATE bundles SET head = flip(head, 100) WHERE e = {life} AND i = 1"),
    ("life", 9, "cannot be read", "UPDATE bundles SET head = x'00' WHERE e = {life} AND i = 1"),
    ("life", 5, f"head of size 2: {LOG}", "UPDATE bundles SET head = (SELECT head FROM bundles WHERE e = {life})"),
    ("life", 5, "bundle 1: missing", "DELETE FROM bundles WHERE e = {life} AND i = 1"),
    ("idle", 0, "bundle 0: missing", "DELETE FROM bundles WHERE e = {idle}"),
    (
        "life",
        19,
        "bundle 5: must not",
        "INSERT INTO bundles SELECT e, 5, 18, 2, x'', x'', head FROM bundles WHERE e = {life} LIMIT 1",
    ),
    (
        "life",
        None,
        "bundles: there are",
        "INSERT INTO bundles SELECT e, 50, 90, 2, x'', x'', head FROM bundles WHERE e = {life} AND i = 4",
    ),
    ("purged", None, "rows of bundles are left", "INSERT INTO bundles VALUES ({purged}, 0, 0, 1, x'', x'', x'')"),
    ("purged", None, "rows of kinds are left", "INSERT INTO kinds VALUES (1000, {purged}, 'new', 'new', 0, 0)"),
    # records
    *[
        ("registry", 6, "record of enclave", f"UPDATE records SET {change} WHERE kind = 'enclave'")
        for change in (
            "entry = NULL",
            "holder = flip(holder, 0)",
            "proved_size = proved_size + 1",
            "moved_at = moved_at + 1",
            "proved_at = proved_at + 1",
            "proved_root = zeroblob(32)",
            "moved_time = moved_time + 1",
            "forced_from = x'9197c400c4000000c4000000'",
            "sequencer = flip(sequencer, 0)",
            "manifest = flip(manifest, 0)",
            "creator = flip(creator, 0)",
            "app = 'other'",
            "text = 'other'",
            "kind = 'node'",
            "key = flip(key, 31)",
        )
    ],
    ("registry", 6, "record of identity", "UPDATE records SET entry = zeroblob(32) WHERE kind = 'identity'"),
    ("registry", 6, "record of identity", "DELETE FROM records WHERE kind = 'identity'"),
    ("registry", 6, "record of node", "DELETE FROM records WHERE kind = 'node'"),
    (
        "registry",
        None,
        "records: there are too many",
        "INSERT INTO records SELECT e, kind, zeroblob(32), NULL, holder, 0, x'', -1, x'', x'', '', '', 0, x'', 0, "
        "x'90' FROM records LIMIT 1",
    ),
    (
        "registry",
        6,
        "listing of enclave",
        "INSERT INTO records SELECT e, kind, zeroblob(32), x'00', holder, 0, x'', -1, x'', x'', '', '', "
        "0, x'', 0, x'90' FROM records "
        "WHERE kind = 'enclave' LIMIT 1",
    ),
    ("", None, f"records: {NONE}", "UPDATE records SET e = 1000"),
    (
        "purged",
        None,
        "rows of records are left",
        "INSERT INTO records VALUES ({purged}, 'node', x'', x'', x'', 0, x'', -1, x'', x'', '', '', 0, x'', 0, x'90')",
    ),
    # charges
    ("", None, f"usage of {pub('dave')}", "UPDATE charges SET identity = flip(identity, 0) WHERE e = {taken_in}"),
    ("", None, f"usage of {pub('bob')}: events", "UPDATE charges SET last_seq = 1 WHERE e = {taken_in}"),
    ("", None, f"usage of {pub('dave')}: enclaves", "UPDATE charges SET first_seq = 1 WHERE e = {taken_in}"),
    ("", None, f"usage of {pub('dave')}", "DELETE FROM charges"),
    ("", None, f"charges: {NONE}", "UPDATE charges SET e = 1000"),
    ("purged", None, "rows of charges are left", "INSERT INTO charges VALUES ({purged}, 0, 1, x'')"),
    # usage
    ("", None, f"{pub('bob')}: events", "UPDATE usage SET identity = flip(identity, 0)"),
    ("", None, f"{pub('alice')}: enclaves", "UPDATE usage SET enclaves = enclaves + 1"),
    ("", None, f"{pub('alice')}: enclaves", "UPDATE usage SET enclaves = enclaves - 1"),
    ("", None, f"{pub('bob')}: events", "UPDATE usage SET events = events - 1"),
    ("", None, f"{pub('bob')}: bytes", "UPDATE usage SET bytes = 5"),
    ("", None, "cannot be read", "UPDATE usage SET events = 'x'"),
    ("", None, f"{pub('bob')}: events", "DELETE FROM usage"),
    ("", None, f"{'00' * 32}: enclaves", "INSERT INTO usage VALUES (zeroblob(32), 1, 0, 0)"),
    # endpoints
    ("pushed", None, f"as watch: {LOG}", f"UPDATE endpoints SET url = '{OTHER}' WHERE trait = 'watch'"),
    ("", None, "endpoints: a row without a queue", "UPDATE endpoints SET url = 'x' WHERE trait = 'watch'"),
    ("pushed", None, f"as ear: {LOG}", "UPDATE endpoints SET trait = 'ear' WHERE trait = 'watch'"),
    ("pushed", None, f"as watch: {LOG}", "UPDATE endpoints SET identity = flip(identity, 0) WHERE trait = 'watch'"),
    ("pushed", None, f"as watch: {LOG}", "DELETE FROM endpoints WHERE trait = 'watch'"),
    ("life", None, f"as watch: {LOG}", "UPDATE endpoints SET e = {life} WHERE trait = 'watch'"),
    ("", None, f"endpoints: {NONE}", "UPDATE endpoints SET e = 1000"),
    ("purged", None, "rows of endpoints are left", "INSERT INTO endpoints VALUES ({purged}, x'', 'x', 'x')"),
    # queues
    ("", None, "batches: a row without a queue", f"UPDATE queues SET q = 1000 WHERE {VERA}"),
    ("", None, "endpoints: a row without a queue", f"UPDATE queues SET identity = flip(identity, 0) WHERE {VERA}"),
    ("", None, "endpoints: a row without a queue", f"UPDATE queues SET url = 'x' WHERE {VERA}"),
    ("", None, "push_seq: not the sum", f"UPDATE queues SET push_seq = push_seq + 1 WHERE {VERA}"),
    ("", None, "push_seq: not the sum", f"UPDATE queues SET push_seq = push_seq - 1 WHERE {VERA}"),
    ("", None, "its counts of batches", f"UPDATE queues SET waiting = waiting + 1 WHERE {VERA}"),
    ("", None, "its counts of batches", f"UPDATE queues SET waiting_events = 5 WHERE {VERA}"),
    ("", None, "its counts of batches", f"UPDATE queues SET dead = 0, forgotten = 1 WHERE {VERA}"),
    ("", None, "push_seq: not the sum", f"UPDATE queues SET delivered = delivered + 1 WHERE {VERA}"),
    ("", None, "push_seq: not the sum", f"UPDATE queues SET forgotten = forgotten + 1 WHERE {VERA}"),
    ("", None, "delivered: more batches are stored", f"UPDATE queues SET delivered = 0, forgotten = 2 WHERE {VERA}"),
    ("", None, "batches: a row without a queue", f"DELETE FROM queues WHERE {VERA}"),
    ("", None, "outbox: a row for queue", f"DELETE FROM queues WHERE {VERA}"),
    ("", None, "confirmed_at: the endpoint", f"UPDATE queues SET confirmed_at = 1, suspended = 1 WHERE {VERA}"),
    ("", None, "the state of its endpoint", f"UPDATE queues SET suspended = 2 WHERE {VERA}"),
    ("", None, "the state of its endpoint", f"UPDATE queues SET held_until = -1 WHERE {VERA}"),
    ("", None, "the state of its endpoint", f"UPDATE queues SET failures = -1 WHERE {VERA}"),
    ("", None, "the state of its endpoint", f"UPDATE queues SET renew_at = x'00' WHERE {VERA}"),
    ("", None, "the state of its endpoint", f"UPDATE queues SET missing = x'00' WHERE {VERA}"),
    ("", None, "push_seq: not", "INSERT INTO queues (identity, url, push_seq) VALUES (x'', 'x', 1)"),
    # audiences and outbox
    ("", None, "outbox 1: cannot be read", "UPDATE audiences SET a = a + 1000"),
    ("", None, "outbox 1: cannot be read", "UPDATE audiences SET members = x'00'"),
    (
        "",
        None,
        "outbox: a row for queue 99",
        "UPDATE audiences SET members = x'92916390'; UPDATE outbox SET types = NULL",
    ),
    ("", None, "outbox 1: cannot be read", "DELETE FROM audiences"),
    ("", None, f"outbox: {NONE}", "UPDATE outbox SET e = 1000"),
    ("", None, "outbox 1: refers to an enclave that does not exist", "UPDATE outbox SET e = 1000"),
    ("", None, "outbox: an event twice", "UPDATE outbox SET first_seq = first_seq - 1"),
    ("", None, "outbox 1: refers to a missing event", "UPDATE outbox SET first_seq = first_seq + 1"),
    ("", None, "outbox 1: cannot be read", "UPDATE outbox SET a = 1000"),
    ("", None, "outbox 1: cannot be read", "UPDATE outbox SET sizes = x'c0'"),
    ("", None, "outbox 1: refers to no event", "UPDATE outbox SET sizes = x'90'"),
    ("", None, "outbox 1: refers to a missing event", "UPDATE outbox SET sizes = x'9401010101'"),
    ("", None, "outbox 1: type_seq: missing", "UPDATE outbox SET types = NULL"),
    ("", None, "outbox 1: type_seq: more events", "UPDATE outbox SET types = x'81a76d6573736167650e'"),
    ("", None, "outbox 1: type_seq: more events", "UPDATE outbox SET types = x'81a76d65737361676500'"),
    ("purged", None, "rows of outbox are left", "UPDATE outbox SET e = {purged}"),
    # batches
    ("", None, "batches: a row without a queue", f"UPDATE batches SET q = 1000 WHERE push_seq = 2 AND {OF_VERA}"),
    ("", None, "its counts of batches", f"UPDATE batches SET push_seq = 9, q = 1 WHERE push_seq = 5 AND {OF_VERA}"),
    ("", None, "push_seq: not the sum", f"UPDATE batches SET push_seq = 9 WHERE push_seq = 5 AND {OF_VERA}"),
    ("", None, "push_seq: not the sum", f"UPDATE batches SET push_seq = 0 WHERE push_seq = 5 AND {OF_VERA}"),
    ("", None, "batch 2: an event twice", f"UPDATE batches SET push_seq = 1 WHERE push_seq = 5 AND {OF_VERA}"),
    ("", None, "batch 4: cannot be read", f"UPDATE batches SET runs = x'00' WHERE push_seq = 4 AND {OF_VERA}"),
    ("", None, "batch 4: events: wrong count", f"UPDATE batches SET runs = x'929090' WHERE {WAITS}"),
    (
        "",
        None,
        "batch 4: refers to a missing event",
        f"UPDATE batches SET runs = runs({{pushed}}, 90, 2) WHERE {WAITS}",
    ),
    (
        "",
        None,
        "batch 4: refers to a missing event",
        f"UPDATE batches SET runs = runs({{pushed}}, 17, 2) WHERE {WAITS}",
    ),
    ("", None, "batch 4: refers to an enclave that", f"UPDATE batches SET runs = runs(1000, 1, 2) WHERE {WAITS}"),
    ("", None, "batch 4: an event twice", f"UPDATE batches SET runs = runs({{pushed}}, 8, 2) WHERE {WAITS}"),
    ("", None, "batch 4: events: wrong", f"UPDATE batches SET runs = runs({{pushed}}, 11, 1) WHERE {WAITS}"),
    (
        "",
        None,
        "batch 1: refers to a missing event",
        "UPDATE batches SET runs = notice({pushed}, 90, 1) WHERE NOT " + OF_VERA,
    ),
    (
        "",
        None,
        "batch 1: type_seq: more events",
        "UPDATE batches SET runs = notice({pushed}, 9, 99) WHERE NOT " + OF_VERA,
    ),
    ("", None, "its counts of batches", f"UPDATE batches SET events = 3 WHERE {WAITS}"),
    ("", None, "batch 3: events: wrong", f"UPDATE batches SET events = 3 WHERE push_seq = 3 AND {OF_VERA}"),
    ("", None, "its counts of batches", f"UPDATE batches SET state = 1, settled_at = 5 WHERE {WAITS}"),
    ("", None, "batch 2: neither", f"UPDATE batches SET state = 3 WHERE push_seq = 2 AND {OF_VERA}"),
    ("", None, "batch 2: neither", f"UPDATE batches SET settled_at = NULL WHERE push_seq = 2 AND {OF_VERA}"),
    ("", None, "batch 4: neither", f"UPDATE batches SET settled_at = 5 WHERE {WAITS}"),
    ("", None, "its counts of batches", f"DELETE FROM batches WHERE {WAITS}"),
    ("", None, "its counts of batches", f"DELETE FROM batches WHERE push_seq = 3 AND {OF_VERA}"),
]


@pytest.mark.parametrize(("name", "seq", "what", "sql"), DAMAGE, ids=[sql for *_, sql in DAMAGE])
def test_whatever_is_done_to_a_row_is_found(damaged: Damaged, name: str, seq: int | None, what: str, sql: str) -> None:
    damaged.run(sql)
    enclave = damaged.names[name] if name else b""
    found = damaged.check().differences
    assert [d for d in found if (d.enclave, d.seq) == (enclave, seq) and what in d.what], [str(d) for d in found]


INDEXES = [
    ("events_kind", "events", "c", "k = k(9)"),
    ("events_author", "events", "from8", "k = k(9)"),
    ("events_hash", "events", "hash8", "k = k(9)"),
    ("events_auto_delete", "events", "auto_delete", "k = k(18)"),
    ("events_target", "events", "target", "k = k(4)"),
    ("bundles_first_seq", "bundles", "first_seq", "e = {life} AND i = 1"),
    ("states_deadline", "states", "deadline", "e = {life}"),
    ("enclaves_terminated", "enclaves", "terminated_at", "e = {terminated}"),
    ("batches_waiting", "batches", "next_try", WAITS),
    ("batches_oldest", "batches", "made_at", WAITS),
    ("batches_settled", "batches", "settled_at", f"push_seq = 2 AND {OF_VERA}"),
    ("batches_dead", "batches", "q", "state = 2"),
]


@pytest.mark.parametrize(("index", "table", "column", "where"), INDEXES, ids=[index for index, *_ in INDEXES])
def test_an_index_that_disagrees_with_its_table(
    damaged: Damaged, index: str, table: str, column: str, where: str
) -> None:
    """The column is changed with the index and changed back without it: every row is right, but the index is not."""
    damaged.run(f"UPDATE {table} SET {column} = {column} + 1 WHERE {where}")
    with closing(sqlite3.connect(damaged.path, isolation_level=None)) as db:
        db.execute("PRAGMA writable_schema = ON")
        (row,) = db.execute("SELECT * FROM sqlite_master WHERE name = ?", (index,)).fetchall()
        db.execute("DELETE FROM sqlite_master WHERE name = ?", (index,))
    damaged.run(f"UPDATE {table} SET {column} = {column} - 1 WHERE {where}")
    with closing(sqlite3.connect(damaged.path, isolation_level=None)) as db:
        db.execute("PRAGMA writable_schema = ON")
        db.execute("INSERT INTO sqlite_master VALUES (?, ?, ?, ?, ?)", row)
    found = damaged.check().differences
    assert [d for d in found if d.enclave == b"" and "integrity_check" in d.what and index in d.what]


def test_a_file_with_a_page_that_is_none(damaged: Damaged) -> None:
    with closing(sqlite3.connect(damaged.path)) as db:
        ((page,),) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'events_author'")
    with damaged.path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 4096)
    found = damaged.check().differences
    assert "integrity_check" in found[0].what
    assert found[0].enclave == b""


def test_a_purge_that_has_begun_may_leave_rows(damaged: Damaged) -> None:
    store = SqliteStore(damaged.path)
    try:
        assert not store.purge(damaged.names["terminated"], limit=2)
        assert check(store).differences == []
    finally:
        store.close()
