-- description: Number of events by hour, by type and by origin, over all enclaves.
-- key: kind, name
-- refresh: incremental from events
-- add: events, enclaves, delay_ms
-- greatest: latest, received_at
-- reads: events
-- `kind` is all, hour, type or origin (for archives, their folder). `enclaves` counts new enclaves.
-- `delay_ms` is the sum of the delays between the sequencer's timestamp and the receipt.
SELECT kind, name, count(*) AS events,
  count_if(type = 'Manifest') AS enclaves,
  sum(greatest(0, unix_millis(received_at) - unix_millis(timestamp))) AS delay_ms,
  max(timestamp) AS latest, max(received_at) AS received_at
FROM events LATERAL VIEW explode(map(
  'all', '',
  'hour', date_format(date_trunc('hour', timestamp), "yyyy-MM-dd'T'HH:mm:ss'Z'"),
  'type', type,
  'origin', regexp_replace(coalesce(origin, ''), '^(archive:.*/)[^/]*$', '$1')
)) AS kind, name
GROUP BY kind, name
