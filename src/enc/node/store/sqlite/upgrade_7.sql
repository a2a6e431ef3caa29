-- From version 6 to version 7: how many bytes each enclave has. schema.sql documents the columns. The sums read all events.

CREATE TABLE sizes (
  e INTEGER PRIMARY KEY,
  bytes INTEGER NOT NULL
);

INSERT INTO sizes
SELECT e,
  (SELECT coalesce(sum(length(head) + coalesce(length(CAST(content AS BLOB)), 0)), 0)
   FROM events WHERE k BETWEEN enclaves.e << 40 AND enclaves.e << 40 | 0xffffffffff)
  + (SELECT coalesce(sum(length(hash) + length(record)), 0) FROM tree_nodes WHERE tree_nodes.e = enclaves.e)
FROM enclaves WHERE purged IN (0, -1);

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
