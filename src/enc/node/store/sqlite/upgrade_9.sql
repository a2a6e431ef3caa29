-- From version 8 to version 9: contents that the node withholds. schema.sql documents the columns.

ALTER TABLE events ADD COLUMN withheld BLOB;
CREATE INDEX events_withheld ON events (k) WHERE withheld IS NOT NULL;

CREATE TABLE withheld_contents (
  k INTEGER PRIMARY KEY,
  content TEXT,
  note TEXT NOT NULL
);

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
