-- description: The nodes listed in a registry.
-- key: enclave, seq_pub
-- refresh: by enclave from content_status
-- where: type = 'Reg_Node'
-- Each key has one entry: the latest, unless it was deleted.
WITH entries AS (
  SELECT enclave, get_json_object(content, '$.seq_pub') AS seq_pub,
    max_by(struct(id, author, seq, timestamp, content, status), seq) AS now
  FROM content_status LEFT SEMI JOIN (SELECT enclave FROM enclaves WHERE registry) USING (enclave)
  GROUP BY enclave, get_json_object(content, '$.seq_pub')
)
SELECT enclave, seq_pub,
  -- The preferred one first; one without a priority has its place in the list as such.
  sort_array(
    transform(
      from_json(get_json_object(now.content, '$.endpoints'), 'array<struct<priority: bigint, uri: string>>'),
      (each, i) -> struct(coalesce(each.priority, i) AS priority, i, each.uri AS uri)
    )
  ).uri AS endpoints,
  from_json(get_json_object(now.content, '$.protocols'), 'array<string>') AS protocols,
  try_cast(get_json_object(now.content, '$.enc_v') AS INT) AS enc_v,
  now.id AS event, now.author, now.seq, now.timestamp
FROM entries WHERE seq_pub IS NOT NULL AND now.status <> 'deleted'
