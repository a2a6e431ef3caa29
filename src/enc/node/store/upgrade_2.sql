-- From version 1 to version 2: pushing. What the columns mean is said in schema.sql.

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
