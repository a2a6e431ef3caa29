-- description: The latest profile of each identity, over all enclaves.
-- key: identity
-- refresh: by author as identity from slots
-- where: key = 'profile' AND value IS NOT NULL
-- A profile is the slot `profile`: an identity's Own, or an enclave's Shared one, which describes its author.
SELECT identity, now.enclave, now.kind, now.value, now.seq, now.timestamp
FROM (
  SELECT author AS identity,
    max_by(struct(enclave, kind, value, seq, timestamp), struct(timestamp, enclave, seq)) AS now
  FROM slots GROUP BY author
)
