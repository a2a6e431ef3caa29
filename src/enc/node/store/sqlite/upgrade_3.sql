-- From version 2 to version 3: sealed requests that are accepted once. schema.sql documents the columns.

CREATE TABLE spent_requests (
  digest BLOB PRIMARY KEY,
  identity BLOB NOT NULL,
  until INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX spent_requests_identity ON spent_requests (identity, until);
CREATE INDEX spent_requests_until ON spent_requests (until);
