-- description: What was refused, by where it came from and why, over all enclaves.
-- key: origin, code
-- refresh: incremental from quarantine
-- add: refused
-- greatest: latest
-- `origin` of archives is their folder; `example` names who sent the latest, `reason` says what was wrong with it.
SELECT regexp_replace(coalesce(origin, ''), '^(archive:.*/)[^/]*$', '$1') AS origin, coalesce(code, '') AS code,
  count(*) AS refused, max(received_at) AS latest,
  max_by(reason, received_at) AS reason, max_by(origin, received_at) AS example
FROM quarantine
GROUP BY regexp_replace(coalesce(origin, ''), '^(archive:.*/)[^/]*$', '$1'), coalesce(code, '')
