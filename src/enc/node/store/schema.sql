-- One row a thing. An event's key is (number of its enclave << 40 | seq), so that a log lies in one piece and in order.
-- Random 32-byte hashes are found by their first eight bytes as an integer: indexes stay a fifth of the size.

CREATE TABLE node (
  clock INTEGER NOT NULL      -- the highest value that this node's own clock ever showed
);
INSERT INTO node VALUES (0);

CREATE TABLE enclaves (
  e INTEGER PRIMARY KEY,
  enclave BLOB NOT NULL UNIQUE,
  manifest TEXT NOT NULL,
  state BLOB NOT NULL,
  deadline INTEGER            -- of the open bundle
);
CREATE INDEX enclaves_deadline ON enclaves (deadline) WHERE deadline IS NOT NULL;

CREATE TABLE events (
  k INTEGER PRIMARY KEY,
  e INTEGER NOT NULL,
  id8 INTEGER NOT NULL,
  hash8 INTEGER NOT NULL,
  from8 INTEGER NOT NULL,
  type TEXT NOT NULL,
  subject TEXT NOT NULL,
  status BLOB,                -- NULL active, 00 deleted, else the id of the latest Update
  timestamp INTEGER NOT NULL,
  auto_delete INTEGER,        -- while the content is there
  target INTEGER,             -- of an Update: the key of its target
  content TEXT,
  fields BLOB NOT NULL        -- everything else, msgpack
);
CREATE INDEX events_id ON events (id8);
CREATE INDEX events_hash ON events (hash8);
CREATE INDEX events_type ON events (e, type);
CREATE INDEX events_from ON events (e, from8);
CREATE INDEX events_auto_delete ON events (auto_delete) WHERE auto_delete IS NOT NULL;
CREATE INDEX events_target ON events (target) WHERE target IS NOT NULL;

CREATE TABLE tags (
  e INTEGER NOT NULL,
  name TEXT NOT NULL,
  value TEXT,
  k INTEGER NOT NULL
);
CREATE INDEX tags_value ON tags (e, name, value, k);

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
