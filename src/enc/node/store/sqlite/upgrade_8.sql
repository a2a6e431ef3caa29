-- From version 7 to version 8: what the operator forbids. schema.sql documents the columns.

CREATE TABLE restrictions (
  kind TEXT NOT NULL,
  target TEXT NOT NULL,
  made_at INTEGER NOT NULL,
  until INTEGER,
  reason TEXT NOT NULL,
  is_full INTEGER NOT NULL,
  PRIMARY KEY (kind, target)
) WITHOUT ROWID;
