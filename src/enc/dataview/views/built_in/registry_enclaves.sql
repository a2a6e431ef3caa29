-- description: The enclaves listed in a registry.
-- key: enclave, enclave_id
-- refresh: by enclave from content_status
-- where: type = 'Reg_Enclave'
-- Each key has one entry: the latest, unless it was deleted.
WITH entries AS (
  SELECT enclave, get_json_object(content, '$.manifest_event.enclave') AS enclave_id,
    max_by(struct(id, author, seq, timestamp, content, status), seq) AS now
  FROM content_status LEFT SEMI JOIN (SELECT enclave FROM enclaves WHERE registry) USING (enclave)
  GROUP BY enclave, get_json_object(content, '$.manifest_event.enclave')
)
SELECT enclave, enclave_id,
  get_json_object(now.content, '$.app') AS app,
  get_json_object(now.content, '$.desc') AS description,
  get_json_object(now.content, '$.meta') AS meta,
  get_json_object(now.content, '$.manifest_event.from') AS creator,
  -- Whose log it is: by the last Migrate that the entry brings, else by its own word, else as it was at first.
  coalesce(
    get_json_object(
      try_element_at(
        from_json(
          coalesce(
            get_json_object(now.content, '$.migrate_events'),
            get_json_object(now.content, '$.owner_proof.migrate_events'),
            concat('[', get_json_object(now.content, '$.migrate_event'), ']'),
            concat('[', get_json_object(now.content, '$.owner_proof.migrate_event'), ']')
          ),
          'array<struct<content: string>>'
        ),
        -1
      ).content,
      '$.new_sequencer'
    ),
    get_json_object(now.content, '$.sequencer'),
    get_json_object(now.content, '$.manifest_event.sequencer')
  ) AS sequencer,
  now.id AS event, now.author, now.seq, now.timestamp
FROM entries WHERE enclave_id IS NOT NULL AND now.status <> 'deleted'
