-- description: Rejected rows by origin and code, over all enclaves.
-- key: origin, code
-- refresh: incremental from quarantine
-- add: refused
-- greatest: latest
-- For archives, `origin` is their folder. `example` is the origin of the latest rejected row, `reason` its error.
SELECT regexp_replace(coalesce(origin, ''), '^(archive:.*/)[^/]*$', '$1') AS origin, coalesce(code, '') AS code,
  count(*) AS refused, max(received_at) AS latest,
  max_by(reason, received_at) AS reason, max_by(origin, received_at) AS example
FROM quarantine
GROUP BY regexp_replace(coalesce(origin, ''), '^(archive:.*/)[^/]*$', '$1'), coalesce(code, '')
