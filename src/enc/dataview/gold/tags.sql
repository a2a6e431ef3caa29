-- description: One tag of an event, to join by.
-- key: enclave, seq, position
-- refresh: append from events
SELECT enclave, seq, id, type, position, tag[0] AS name, get(tag, 1) AS value, tag
FROM events LATERAL VIEW posexplode(tags) AS position, tag
