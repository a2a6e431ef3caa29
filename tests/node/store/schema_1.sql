-- One row a thing. An event's key is (number of its enclave << 40 | seq), so that a log lies in one piece and in order,
-- and so that every index that ends in the key keeps enclaves apart. Random 32-byte hashes are found by their first
-- eight bytes as an integer; whoever reads such a row compares the whole.

CREATE TABLE node (
  clock INTEGER NOT NULL,     -- the highest value that this node's own clock ever showed
  enclaves INTEGER NOT NULL,  -- how many are here, purged ones not counted
  ids_until INTEGER NOT NULL DEFAULT 0, -- the last of `recent_ids` that moves into `ids` now,
  ids_moved BLOB NOT NULL DEFAULT x''   -- and up to which id they have moved
);
INSERT INTO node (clock, enclaves) VALUES (0, 0);

CREATE TABLE enclaves (
  e INTEGER PRIMARY KEY,
  enclave BLOB NOT NULL UNIQUE,
  manifest TEXT NOT NULL,
  terminated_at INTEGER,
  purged INTEGER NOT NULL DEFAULT 0 -- 1: nothing of it is read any more, 2: nothing of it is left
);
CREATE INDEX enclaves_terminated ON enclaves (terminated_at) WHERE terminated_at IS NOT NULL AND purged < 2;

CREATE TABLE states (         -- written with every batch; apart from the manifest, which may be long
  e INTEGER PRIMARY KEY,
  state BLOB NOT NULL,        -- enc.node.store.sqlite.snapshot
  deadline INTEGER            -- of the open bundle
);
CREATE INDEX states_deadline ON states (deadline) WHERE deadline IS NOT NULL;

CREATE TABLE kinds (          -- what a search tells events apart by
  c INTEGER PRIMARY KEY,
  e INTEGER NOT NULL,
  type TEXT NOT NULL,
  subject TEXT NOT NULL,      -- the type that read rights are judged by
  live INTEGER NOT NULL,      -- events that are not deleted
  UNIQUE (e, type, subject)
);

CREATE TABLE events (
  k INTEGER PRIMARY KEY,
  c INTEGER NOT NULL,         -- the kind; of a deleted event, the kind negated: no search meets it
  from8 INTEGER NOT NULL,
  hash8 INTEGER NOT NULL,
  exp INTEGER NOT NULL,
  timestamp INTEGER NOT NULL,
  auto_delete INTEGER,        -- while the content is there; an Update's is at the latest its target's
  target INTEGER,             -- of an Update: the key of its target
  updated_by BLOB,            -- the id of the latest Update
  content_hash BLOB NOT NULL,
  head BLOB NOT NULL,         -- the wire JSON up to the content; the id, the hash and the author stand first in it
  content TEXT                -- NULL: erased
);
CREATE INDEX events_kind ON events (c);
CREATE INDEX events_author ON events (c, from8);
CREATE INDEX events_hash ON events (exp, hash8); -- by exp first: what comes at one time lies together
CREATE INDEX events_auto_delete ON events (auto_delete) WHERE auto_delete IS NOT NULL;
CREATE INDEX events_target ON events (target) WHERE target IS NOT NULL;

CREATE TABLE ids (            -- where an event stands, by its id
  id8 INTEGER NOT NULL,
  k INTEGER NOT NULL,
  PRIMARY KEY (id8, k)
) WITHOUT ROWID;

CREATE TABLE recent_ids (     -- the latest of them, in the order they came, until they go into `ids` (enc.node.store.sqlite.event_index)
  n INTEGER PRIMARY KEY,
  id BLOB NOT NULL,
  k INTEGER NOT NULL
);

CREATE TABLE tags (
  e INTEGER NOT NULL,
  t8 INTEGER NOT NULL,        -- the first eight bytes of a hash of name and value, or of the name alone
  seq INTEGER NOT NULL,
  PRIMARY KEY (e, t8, seq)
) WITHOUT ROWID;

CREATE TABLE pending (
  e INTEGER NOT NULL,
  key BLOB NOT NULL,
  value BLOB,
  PRIMARY KEY (e, key)
) WITHOUT ROWID;

CREATE TABLE tree_nodes (
  e INTEGER NOT NULL,
  hash BLOB NOT NULL,
  record BLOB NOT NULL,
  PRIMARY KEY (e, hash)
) WITHOUT ROWID;

CREATE TABLE log_nodes (
  e INTEGER NOT NULL,
  level INTEGER NOT NULL,
  i INTEGER NOT NULL,
  hash BLOB NOT NULL,
  PRIMARY KEY (e, level, i)
) WITHOUT ROWID;

CREATE TABLE bundles (
  e INTEGER NOT NULL,
  i INTEGER NOT NULL,
  first_seq INTEGER NOT NULL,
  count INTEGER NOT NULL,
  events_root BLOB NOT NULL,
  state_hash BLOB NOT NULL,
  head BLOB NOT NULL,         -- signed when the bundle closed, msgpack
  PRIMARY KEY (e, i)
) WITHOUT ROWID;
CREATE UNIQUE INDEX bundles_first_seq ON bundles (e, first_seq);

CREATE TABLE usage (          -- what each identity had accepted here, ever; a purged enclave is given back
  identity BLOB PRIMARY KEY,
  enclaves INTEGER NOT NULL,
  events INTEGER NOT NULL,
  bytes INTEGER NOT NULL
) WITHOUT ROWID;
