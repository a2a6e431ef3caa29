-- description: The tags of events, one per row, for joins.
-- key: enclave, seq, position
-- refresh: append from events
SELECT enclave, seq, id, type, position, tag[0] AS name, get(tag, 1) AS value, tag
FROM events LATERAL VIEW posexplode(tags) AS position, tag
