-- From version 5 to version 6: where the file was, and whether it is a copy. schema.sql documents the columns.
-- A backup of version 5 may have the table already. And a counter and a repair of the node's clock.

ALTER TABLE node ADD COLUMN writes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE node ADD COLUMN shown INTEGER NOT NULL DEFAULT 0;

CREATE TABLE IF NOT EXISTS provenance (
  restored TEXT NOT NULL,
  place TEXT NOT NULL
);
INSERT INTO provenance SELECT '', '' WHERE NOT EXISTS (SELECT 1 FROM provenance);
