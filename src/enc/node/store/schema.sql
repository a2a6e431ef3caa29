-- One row a thing. An event's key is (number of its enclave << 40 | seq), so that a log lies in one piece and in order,
-- and so that every index that ends in the key keeps enclaves apart. Random 32-byte hashes are found by their first
-- eight bytes as an integer; whoever reads such a row compares the whole.

CREATE TABLE node (
  clock INTEGER NOT NULL,     -- the highest value that this node's own clock ever showed
  enclaves INTEGER NOT NULL,  -- how many are here, purged ones not counted
  ids_until INTEGER NOT NULL DEFAULT 0, -- the last of `recent_ids` that moves into `ids` now,
  ids_moved BLOB NOT NULL DEFAULT x'',  -- and up to which id they have moved
  endpoints_due INTEGER NOT NULL DEFAULT 0 -- 1: `endpoints` is still to be made from the logs (enc.node.store.upgrade)
);
INSERT INTO node (clock, enclaves) VALUES (0, 0);

CREATE TABLE enclaves (
  e INTEGER PRIMARY KEY,
  enclave BLOB NOT NULL UNIQUE,
  manifest TEXT NOT NULL,
  terminated_at INTEGER,
  purged INTEGER NOT NULL DEFAULT 0, -- 1: nothing of it is read any more, 2: nothing of it is left;
                              -- -1: no enclave's, on its way in or left over, -2: nothing of that is left
  became INTEGER              -- the number of the log that took its place, whole, when the enclave came back
);
CREATE INDEX enclaves_staged ON enclaves (e) WHERE purged = -1;
CREATE INDEX enclaves_terminated ON enclaves (terminated_at) WHERE terminated_at IS NOT NULL AND purged < 2;

CREATE TABLE states (         -- written with every batch; apart from the manifest, which may be long
  e INTEGER PRIMARY KEY,
  state BLOB NOT NULL,        -- enc.node.store.snapshot
  deadline INTEGER            -- of the open bundle
);
CREATE INDEX states_deadline ON states (deadline) WHERE deadline IS NOT NULL;

CREATE TABLE kinds (          -- what a search tells events apart by
  c INTEGER PRIMARY KEY,
  e INTEGER NOT NULL,
  type TEXT NOT NULL,
  subject TEXT NOT NULL,      -- the type that read rights are judged by
  live INTEGER NOT NULL,      -- events that are not deleted
  total INTEGER NOT NULL DEFAULT 0, -- events ever: all kinds of a type together are its `type_seq`
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

CREATE TABLE recent_ids (     -- the latest of them, in the order they came, until they go into `ids` (enc.node.store.ids)
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

-- Pushing. An event enters the outbox as it is finalised, whatever the number of its recipients; from there it goes into
-- batches of their queues (enc.node.store.push_tables).

CREATE TABLE endpoints (      -- registered now
  e INTEGER NOT NULL,
  identity BLOB NOT NULL,
  trait TEXT NOT NULL,
  url TEXT NOT NULL,
  PRIMARY KEY (e, identity, trait)
) WITHOUT ROWID;

CREATE TABLE queues (         -- all that goes to one identity at one url; never deleted, so that no number comes twice
  q INTEGER PRIMARY KEY,
  identity BLOB NOT NULL,
  url TEXT NOT NULL,
  push_seq INTEGER NOT NULL DEFAULT 0,       -- of the latest batch
  waiting INTEGER NOT NULL DEFAULT 0,        -- batches
  waiting_events INTEGER NOT NULL DEFAULT 0, -- in them
  dead INTEGER NOT NULL DEFAULT 0,           -- batches that are kept
  delivered INTEGER NOT NULL DEFAULT 0,      -- batches ever
  forgotten INTEGER NOT NULL DEFAULT 0,      -- dead batches that are not kept any more
  last_error TEXT NOT NULL DEFAULT '',
  last_error_at INTEGER,
  UNIQUE (identity, url)
);

CREATE TABLE audiences (      -- who hears of an event; only what the outbox names is needed
  a INTEGER PRIMARY KEY,
  members BLOB NOT NULL       -- msgpack: queues that get the event, queues that are only told of it
);

CREATE TABLE outbox (         -- events that are in no batch yet: those of one enclave that follow each other, in runs
  o INTEGER PRIMARY KEY,
  e INTEGER NOT NULL,
  first_seq INTEGER NOT NULL,
  a INTEGER NOT NULL,
  sizes BLOB NOT NULL,        -- msgpack: for each event the bytes of its JSON
  types BLOB                  -- msgpack: type_seq of each type's last event in the run; NULL where nobody is told it
);

CREATE TABLE batches (
  b INTEGER PRIMARY KEY,
  q INTEGER NOT NULL,
  push_seq INTEGER NOT NULL,
  made_at INTEGER NOT NULL,
  runs BLOB NOT NULL,         -- msgpack: [e, first seq, count] of each run, [e, seq, {type: type_seq}] of each notice
  events INTEGER NOT NULL,    -- and notices
  bytes INTEGER NOT NULL,     -- about those of its body
  state INTEGER NOT NULL DEFAULT 0, -- 0: waiting, 1: delivered, 2: dead
  tries INTEGER NOT NULL DEFAULT 0, -- that failed
  next_try INTEGER NOT NULL,
  settled_at INTEGER,
  UNIQUE (q, push_seq)
);
CREATE INDEX batches_waiting ON batches (q, next_try, push_seq, made_at) WHERE state = 0;
CREATE INDEX batches_oldest ON batches (made_at) WHERE state = 0;
CREATE INDEX batches_settled ON batches (state, settled_at) WHERE state > 0;
CREATE INDEX batches_dead ON batches (q) WHERE state = 2;

CREATE TABLE records (        -- what a registry holds of each key (enc.core.types.Record)
  e INTEGER NOT NULL,
  kind TEXT NOT NULL,
  key BLOB NOT NULL,
  entry BLOB,                 -- id of the active entry; NULL: deregistered
  holder BLOB NOT NULL,
  proved_size INTEGER NOT NULL,
  sequencer BLOB NOT NULL,
  moved_at INTEGER NOT NULL,
  manifest BLOB NOT NULL,
  creator BLOB NOT NULL,
  app TEXT NOT NULL,
  text TEXT NOT NULL,         -- what a search looks through
  PRIMARY KEY (e, kind, key)
) WITHOUT ROWID;
CREATE UNIQUE INDEX records_entry ON records (e, entry) WHERE entry IS NOT NULL;
CREATE INDEX records_listed ON records (e, key) WHERE kind = 'enclave' AND entry IS NOT NULL;
CREATE INDEX records_app ON records (e, app, key) WHERE kind = 'enclave' AND entry IS NOT NULL;
CREATE INDEX records_creator ON records (e, creator, key) WHERE kind = 'enclave' AND entry IS NOT NULL;

CREATE TABLE charges (        -- events that came with a whole log count as this identity's, not as their authors'
  e INTEGER NOT NULL,
  first_seq INTEGER NOT NULL,
  last_seq INTEGER NOT NULL,
  identity BLOB NOT NULL,
  PRIMARY KEY (e, first_seq)
) WITHOUT ROWID;
