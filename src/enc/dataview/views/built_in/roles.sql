-- description: Number of members by role, over all enclaves.
-- key: state
-- reads: members
SELECT coalesce(state, '') AS state, count(*) AS members, count_if(owner) AS owners,
  count(DISTINCT enclave) AS enclaves
FROM members GROUP BY coalesce(state, '')
