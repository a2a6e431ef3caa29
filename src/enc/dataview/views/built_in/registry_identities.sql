-- description: The identities listed in a registry.
-- key: enclave, id_pub
-- refresh: by enclave from content_status
-- where: type = 'Reg_Identity'
-- Each key has one entry: the latest, unless it was deleted.
WITH entries AS (
  SELECT enclave, get_json_object(content, '$.id_pub') AS id_pub,
    max_by(struct(id, author, seq, timestamp, content, status), seq) AS now
  FROM content_status LEFT SEMI JOIN (SELECT enclave FROM enclaves WHERE registry) USING (enclave)
  GROUP BY enclave, get_json_object(content, '$.id_pub')
)
SELECT enclave, id_pub,
  from_json(get_json_object(now.content, '$.enclaves'), 'map<string, string>') AS enclaves,
  get_json_object(now.content, '$.sub_pub') AS sub_pub,
  now.id AS event, now.author, now.seq, now.timestamp
FROM entries WHERE id_pub IS NOT NULL AND now.status <> 'deleted'
