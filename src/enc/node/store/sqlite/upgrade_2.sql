-- From version 1 to version 2: pushing. schema.sql documents the columns.

ALTER TABLE node ADD COLUMN endpoints_due INTEGER NOT NULL DEFAULT 0;
UPDATE node SET endpoints_due = 1;

ALTER TABLE kinds ADD COLUMN total INTEGER NOT NULL DEFAULT 0;
UPDATE kinds SET total = (SELECT count(*) FROM events WHERE events.c IN (kinds.c, -kinds.c));

CREATE TABLE endpoints (
  e INTEGER NOT NULL,
  identity BLOB NOT NULL,
  trait TEXT NOT NULL,
  url TEXT NOT NULL,
  PRIMARY KEY (e, identity, trait)
) WITHOUT ROWID;

CREATE TABLE queues (
  q INTEGER PRIMARY KEY,
  identity BLOB NOT NULL,
  url TEXT NOT NULL,
  push_seq INTEGER NOT NULL DEFAULT 0,
  waiting INTEGER NOT NULL DEFAULT 0,
  waiting_events INTEGER NOT NULL DEFAULT 0,
  dead INTEGER NOT NULL DEFAULT 0,
  delivered INTEGER NOT NULL DEFAULT 0,
  forgotten INTEGER NOT NULL DEFAULT 0,
  last_error TEXT NOT NULL DEFAULT '',
  last_error_at INTEGER,
  UNIQUE (identity, url)
);

CREATE TABLE audiences (
  a INTEGER PRIMARY KEY,
  members BLOB NOT NULL
);

CREATE TABLE outbox (
  o INTEGER PRIMARY KEY,
  e INTEGER NOT NULL,
  first_seq INTEGER NOT NULL,
  a INTEGER NOT NULL,
  sizes BLOB NOT NULL,
  types BLOB
);

CREATE TABLE batches (
  b INTEGER PRIMARY KEY,
  q INTEGER NOT NULL,
  push_seq INTEGER NOT NULL,
  made_at INTEGER NOT NULL,
  runs BLOB NOT NULL,
  events INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  state INTEGER NOT NULL DEFAULT 0,
  tries INTEGER NOT NULL DEFAULT 0,
  next_try INTEGER NOT NULL,
  settled_at INTEGER,
  UNIQUE (q, push_seq)
);
CREATE INDEX batches_waiting ON batches (q, next_try, push_seq, made_at) WHERE state = 0;
CREATE INDEX batches_oldest ON batches (made_at) WHERE state = 0;
CREATE INDEX batches_settled ON batches (state, settled_at) WHERE state > 0;
CREATE INDEX batches_dead ON batches (q) WHERE state = 2;

-- Version 1 had no registry and no imports.
CREATE TABLE records (
  e INTEGER NOT NULL,
  kind TEXT NOT NULL,
  key BLOB NOT NULL,
  entry BLOB,
  holder BLOB NOT NULL,
  proved_size INTEGER NOT NULL,
  sequencer BLOB NOT NULL,
  moved_at INTEGER NOT NULL,
  manifest BLOB NOT NULL,
  creator BLOB NOT NULL,
  app TEXT NOT NULL,
  text TEXT NOT NULL,
  PRIMARY KEY (e, kind, key)
) WITHOUT ROWID;
CREATE UNIQUE INDEX records_entry ON records (e, entry) WHERE entry IS NOT NULL;
CREATE INDEX records_listed ON records (e, key) WHERE kind = 'enclave' AND entry IS NOT NULL;
CREATE INDEX records_app ON records (e, app, key) WHERE kind = 'enclave' AND entry IS NOT NULL;
CREATE INDEX records_creator ON records (e, creator, key) WHERE kind = 'enclave' AND entry IS NOT NULL;

ALTER TABLE enclaves ADD COLUMN became INTEGER;
CREATE INDEX enclaves_staged ON enclaves (e) WHERE purged = -1;
CREATE TABLE charges (
  e INTEGER NOT NULL,
  first_seq INTEGER NOT NULL,
  last_seq INTEGER NOT NULL,
  identity BLOB NOT NULL,
  PRIMARY KEY (e, first_seq)
) WITHOUT ROWID;
