-- From version 3 to version 4: what a registry knows of an enclave's ownership. schema.sql documents the columns.

ALTER TABLE records ADD COLUMN proved_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE records ADD COLUMN proved_root BLOB NOT NULL DEFAULT x'';
ALTER TABLE records ADD COLUMN moved_time INTEGER NOT NULL DEFAULT 0;
ALTER TABLE records ADD COLUMN forced_from BLOB NOT NULL DEFAULT x'90';
ALTER TABLE node ADD COLUMN records_due INTEGER NOT NULL DEFAULT 0;
UPDATE node SET records_due = 1;
