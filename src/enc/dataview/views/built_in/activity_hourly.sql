-- description: Number of events of each type, by enclave and hour.
-- key: enclave, hour, type
-- refresh: incremental from events
-- add: events
-- least: first_seq
-- greatest: last_seq
SELECT enclave, date_trunc('hour', timestamp) AS hour, type,
  count(*) AS events, min(seq) AS first_seq, max(seq) AS last_seq
FROM events GROUP BY enclave, date_trunc('hour', timestamp), type
