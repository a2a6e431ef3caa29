-- description: Current members of an enclave and their roles.
-- key: enclave, identity
-- refresh: by enclave, identity from access
-- where: to_seq IS NULL
SELECT enclave, identity, state, traits, owner, from_seq AS since_seq, since
FROM access
