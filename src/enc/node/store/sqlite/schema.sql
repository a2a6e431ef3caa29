-- An event's key is (number of its enclave << 40 | seq), so that a log is contiguous and in order,
-- and so that every index that ends in the key separates enclaves. 32-byte hashes are indexed by
-- their first eight bytes as an integer; code that reads such a row compares the whole hash.

CREATE TABLE node (
  clock INTEGER NOT NULL,     -- highest value of this node's own clock that a write recorded
  enclaves INTEGER NOT NULL,  -- number of enclaves, without purged ones
  ids_until INTEGER NOT NULL DEFAULT 0, -- last row of `recent_ids` that is being moved into `ids`
  ids_moved BLOB NOT NULL DEFAULT x'',  -- up to which id they have been moved
  endpoints_due INTEGER NOT NULL DEFAULT 0, -- 1: `endpoints` must still be filled from the logs, after an upgrade
  records_due INTEGER NOT NULL DEFAULT 0, -- 1: likewise `records` of registries
  writes INTEGER NOT NULL DEFAULT 0, -- counts transactions, so that one without a step writes to the disk, too
  shown INTEGER NOT NULL DEFAULT 0 -- highest value of `clock` before an operator repaired it
);
INSERT INTO node (clock, enclaves) VALUES (0, 0);

CREATE TABLE provenance (     -- of this file: enc.node.store.sqlite.provenance
  restored TEXT NOT NULL,     -- why the node signs nothing until its operator adopts the store; empty: it signs
  place TEXT NOT NULL         -- JSON: where the file was at the last start; empty: not known
);
INSERT INTO provenance VALUES ('', '');

CREATE TABLE enclaves (
  e INTEGER PRIMARY KEY,
  enclave BLOB NOT NULL UNIQUE,
  manifest TEXT NOT NULL,
  terminated_at INTEGER,
  purged INTEGER NOT NULL DEFAULT 0, -- 1: unreadable, 2: all rows deleted;
                              -- -1: not an enclave: staged or orphaned, -2: orphaned and all rows deleted
  became INTEGER              -- number of the log that replaced it when the enclave was imported again
);
CREATE INDEX enclaves_staged ON enclaves (e) WHERE purged = -1;
CREATE INDEX enclaves_terminated ON enclaves (terminated_at) WHERE terminated_at IS NOT NULL AND purged < 2;

CREATE TABLE states (         -- written with every batch; separate from the manifest, which may be long
  e INTEGER PRIMARY KEY,
  state BLOB NOT NULL,        -- enc.node.store.sqlite.snapshot
  deadline INTEGER            -- of the open bundle
);
CREATE INDEX states_deadline ON states (deadline) WHERE deadline IS NOT NULL;

CREATE TABLE kinds (          -- a type together with the type that decides its read rights
  c INTEGER PRIMARY KEY,
  e INTEGER NOT NULL,
  type TEXT NOT NULL,
  subject TEXT NOT NULL,      -- type that decides read rights
  live INTEGER NOT NULL,      -- events that are not deleted
  total INTEGER NOT NULL DEFAULT 0, -- events ever; the sum over all kinds of a type is its `type_seq`
  UNIQUE (e, type, subject)
);

CREATE TABLE events (
  k INTEGER PRIMARY KEY,
  c INTEGER NOT NULL,         -- the kind; negated for a deleted event, so that no search finds it
  from8 INTEGER NOT NULL,
  hash8 INTEGER NOT NULL,
  exp INTEGER NOT NULL,
  timestamp INTEGER NOT NULL,
  auto_delete INTEGER,        -- while the content exists; an Update's is at the latest its target's
  target INTEGER,             -- for an Update: key of its target
  updated_by BLOB,            -- id of the latest Update
  content_hash BLOB NOT NULL,
  head BLOB NOT NULL,         -- wire JSON up to the content; begins with the id, the hash and the author
  content TEXT,               -- NULL: erased or withheld
  withheld BLOB               -- JSON of a node's statement that it withholds the content
);
CREATE INDEX events_kind ON events (c);
CREATE INDEX events_author ON events (c, from8);
CREATE INDEX events_hash ON events (exp, hash8); -- by exp first: commits of one time are neighbours
CREATE INDEX events_auto_delete ON events (auto_delete) WHERE auto_delete IS NOT NULL;
CREATE INDEX events_target ON events (target) WHERE target IS NOT NULL;
CREATE INDEX events_withheld ON events (k) WHERE withheld IS NOT NULL;

CREATE TABLE withheld_contents ( -- of events that this node's operator withholds
  k INTEGER PRIMARY KEY,
  content TEXT,               -- kept aside until it is shown again or erased; NULL: destroyed
  note TEXT NOT NULL          -- the operator's
);

CREATE TABLE ids (            -- an event's key by its id
  id8 INTEGER NOT NULL,
  k INTEGER NOT NULL,
  PRIMARY KEY (id8, k)
) WITHOUT ROWID;

CREATE TABLE recent_ids (     -- the latest ids in order of arrival, until they are moved into `ids`
  n INTEGER PRIMARY KEY,
  id BLOB NOT NULL,
  k INTEGER NOT NULL
);

CREATE TABLE tags (
  e INTEGER NOT NULL,
  t8 INTEGER NOT NULL,        -- first eight bytes of a hash of name and value, or of the name alone
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

CREATE TABLE sizes (          -- bytes of each enclave's events and tree nodes, for its quota: kept by the triggers at the end
  e INTEGER PRIMARY KEY,
  bytes INTEGER NOT NULL
);

CREATE TABLE usage (          -- what was ever accepted from each identity; purged enclaves are subtracted
  identity BLOB PRIMARY KEY,
  enclaves INTEGER NOT NULL,
  events INTEGER NOT NULL,
  bytes INTEGER NOT NULL
) WITHOUT ROWID;

-- Pushing. An event enters the outbox once when it is finalised, whatever the number of its
-- recipients; from there it is moved into batches of their queues.

CREATE TABLE endpoints (      -- currently registered
  e INTEGER NOT NULL,
  identity BLOB NOT NULL,
  trait TEXT NOT NULL,
  url TEXT NOT NULL,
  PRIMARY KEY (e, identity, trait)
) WITHOUT ROWID;

CREATE TABLE queues (         -- one per identity and url; never deleted, so that no number is used twice
  q INTEGER PRIMARY KEY,
  identity BLOB NOT NULL,
  url TEXT NOT NULL,
  push_seq INTEGER NOT NULL DEFAULT 0,       -- of the latest batch
  waiting INTEGER NOT NULL DEFAULT 0,        -- batches
  waiting_events INTEGER NOT NULL DEFAULT 0, -- events in waiting batches
  dead INTEGER NOT NULL DEFAULT 0,           -- dead batches that are stored
  delivered INTEGER NOT NULL DEFAULT 0,      -- batches delivered ever
  forgotten INTEGER NOT NULL DEFAULT 0,      -- dead batches that were deleted
  last_error TEXT NOT NULL DEFAULT '',
  last_error_at INTEGER,
  confirmed_at INTEGER,                      -- when the endpoint last answered a challenge; NULL: it is not confirmed
  challenges INTEGER NOT NULL DEFAULT 0,     -- challenges that failed in a row
  held_until INTEGER NOT NULL DEFAULT 0,     -- nothing is sent before this time
  missing INTEGER NOT NULL DEFAULT 0,        -- deliveries in a row that were answered with 404
  suspended INTEGER NOT NULL DEFAULT 0,      -- 1: an answer 404 or 410 stopped deliveries; ends with a confirmation
  registrar INTEGER NOT NULL DEFAULT 0,      -- number of the enclave that registered it last; 0: an operator resumed it
  failures INTEGER NOT NULL DEFAULT 0,       -- deliveries in a row that failed, of any batches
  confirmed_to TEXT NOT NULL DEFAULT '',     -- address that answered the last challenge; an IPv6 /64
  renew_at INTEGER NOT NULL DEFAULT 0,       -- while it is confirmed, no challenge before this time
  UNIQUE (identity, url)
);

CREATE TABLE audiences (      -- recipient lists; only those that the outbox refers to are needed
  a INTEGER PRIMARY KEY,
  members BLOB NOT NULL       -- msgpack: queues that get the event, queues that get only a notice
);

CREATE TABLE outbox (         -- events that are not in a batch yet: runs of consecutive events of one enclave
  o INTEGER PRIMARY KEY,
  e INTEGER NOT NULL,
  first_seq INTEGER NOT NULL,
  a INTEGER NOT NULL,
  sizes BLOB NOT NULL,        -- msgpack: size of each event's JSON in bytes
  types BLOB                  -- msgpack: type_seq of each type's last event in the run; NULL if no recipient gets notices
);

CREATE TABLE batches (
  b INTEGER PRIMARY KEY,
  q INTEGER NOT NULL,
  push_seq INTEGER NOT NULL,
  made_at INTEGER NOT NULL,
  runs BLOB NOT NULL,         -- msgpack: [e, first seq, count] of each run, [e, seq, {type: type_seq}] of each notice
  events INTEGER NOT NULL,    -- number of events and notices
  bytes INTEGER NOT NULL,     -- approximate size of its body
  state INTEGER NOT NULL DEFAULT 0, -- 0: waiting, 1: delivered, 2: dead
  tries INTEGER NOT NULL DEFAULT 0, -- failed attempts
  next_try INTEGER NOT NULL,
  settled_at INTEGER,
  UNIQUE (q, push_seq)
);
CREATE INDEX batches_waiting ON batches (q, next_try, push_seq, made_at) WHERE state = 0;
CREATE INDEX batches_oldest ON batches (made_at) WHERE state = 0;
CREATE INDEX batches_settled ON batches (state, settled_at) WHERE state > 0;
CREATE INDEX batches_dead ON batches (q) WHERE state = 2;

CREATE TABLE records (        -- a registry's record of each key
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
  text TEXT NOT NULL,         -- text that a search matches
  proved_at INTEGER NOT NULL DEFAULT 0,
  proved_root BLOB NOT NULL DEFAULT x'', -- empty: nothing was proved
  moved_time INTEGER NOT NULL DEFAULT 0,
  forced_from BLOB NOT NULL DEFAULT x'90', -- what each forced Migrate left, as MessagePack
  PRIMARY KEY (e, kind, key)
) WITHOUT ROWID;
CREATE UNIQUE INDEX records_entry ON records (e, entry) WHERE entry IS NOT NULL;
CREATE INDEX records_listed ON records (e, key) WHERE kind = 'enclave' AND entry IS NOT NULL;
CREATE INDEX records_app ON records (e, app, key) WHERE kind = 'enclave' AND entry IS NOT NULL;
CREATE INDEX records_creator ON records (e, creator, key) WHERE kind = 'enclave' AND entry IS NOT NULL;

CREATE TABLE charges (        -- imported events are charged to this identity, not to their authors
  e INTEGER NOT NULL,
  first_seq INTEGER NOT NULL,
  last_seq INTEGER NOT NULL,
  identity BLOB NOT NULL,
  PRIMARY KEY (e, first_seq)
) WITHOUT ROWID;

CREATE TABLE spent_requests ( -- sealed requests that changed something; not accepted again
  digest BLOB PRIMARY KEY,
  identity BLOB NOT NULL,
  until INTEGER NOT NULL      -- then the session is over, and the row is no longer needed
) WITHOUT ROWID;
CREATE INDEX spent_requests_identity ON spent_requests (identity, until);
CREATE INDEX spent_requests_until ON spent_requests (until);

-- The triggers keep `sizes`, whatever writes the rows. Nothing but a purge deletes rows of these tables, and it deletes
-- the row in `sizes` as well.

CREATE TRIGGER sizes_begin AFTER INSERT ON enclaves BEGIN
  INSERT OR REPLACE INTO sizes VALUES (new.e, 0);
END;
CREATE TRIGGER sizes_event AFTER INSERT ON events BEGIN
  UPDATE sizes SET bytes = bytes + length(new.head) + coalesce(length(CAST(new.content AS BLOB)), 0)
  WHERE e = new.k >> 40;
END;
CREATE TRIGGER sizes_content AFTER UPDATE OF content ON events BEGIN
  UPDATE sizes SET bytes = bytes + coalesce(length(CAST(new.content AS BLOB)), 0)
    - coalesce(length(CAST(old.content AS BLOB)), 0)
  WHERE e = new.k >> 40;
END;
CREATE TRIGGER sizes_node AFTER INSERT ON tree_nodes BEGIN
  UPDATE sizes SET bytes = bytes + length(new.hash) + length(new.record) WHERE e = new.e;
END;

-- A content that is kept aside goes with the statement in its event, and counts in `sizes` until then.

CREATE TRIGGER withheld_ended AFTER UPDATE OF withheld ON events
WHEN old.withheld IS NOT NULL AND new.withheld IS NULL BEGIN
  DELETE FROM withheld_contents WHERE k = new.k;
END;
CREATE TRIGGER withheld_purged AFTER DELETE ON events WHEN old.withheld IS NOT NULL BEGIN
  DELETE FROM withheld_contents WHERE k = old.k;
END;
CREATE TRIGGER sizes_withheld AFTER INSERT ON withheld_contents BEGIN
  UPDATE sizes SET bytes = bytes + coalesce(length(CAST(new.content AS BLOB)), 0) WHERE e = new.k >> 40;
END;
CREATE TRIGGER sizes_destroyed AFTER UPDATE OF content ON withheld_contents BEGIN
  UPDATE sizes SET bytes = bytes + coalesce(length(CAST(new.content AS BLOB)), 0)
    - coalesce(length(CAST(old.content AS BLOB)), 0)
  WHERE e = new.k >> 40;
END;
CREATE TRIGGER sizes_withheld_ended AFTER DELETE ON withheld_contents BEGIN
  UPDATE sizes SET bytes = bytes - coalesce(length(CAST(old.content AS BLOB)), 0) WHERE e = old.k >> 40;
END;

CREATE TABLE restrictions (   -- what the operator forbids: enc.node.store.restrictions
  kind TEXT NOT NULL,         -- ban, suspension or purge
  target TEXT NOT NULL,       -- an identity or an enclave in hex digits, or a network
  made_at INTEGER NOT NULL,
  until INTEGER,              -- when a ban ends; NULL: never
  reason TEXT NOT NULL,
  is_full INTEGER NOT NULL,   -- of a suspension, 1: nobody gets content
  PRIMARY KEY (kind, target)
) WITHOUT ROWID;
