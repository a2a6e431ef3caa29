-- description: What everybody says of themselves, the latest over all enclaves.
-- key: identity
-- refresh: by author as identity from slots
-- where: key = 'profile' AND value IS NOT NULL
-- A profile is the slot of this name: one's Own, or the Shared one of an enclave, whose author it then describes.
SELECT identity, now.enclave, now.kind, now.value, now.seq, now.timestamp
FROM (
  SELECT author AS identity,
    max_by(struct(enclave, kind, value, seq, timestamp), struct(timestamp, enclave, seq)) AS now
  FROM slots GROUP BY author
)
