-- From version 4 to version 5: challenges to endpoints. schema.sql documents the columns.

ALTER TABLE queues ADD COLUMN confirmed_at INTEGER;
ALTER TABLE queues ADD COLUMN challenges INTEGER NOT NULL DEFAULT 0;
ALTER TABLE queues ADD COLUMN held_until INTEGER NOT NULL DEFAULT 0;
ALTER TABLE queues ADD COLUMN missing INTEGER NOT NULL DEFAULT 0;
ALTER TABLE queues ADD COLUMN suspended INTEGER NOT NULL DEFAULT 0;
ALTER TABLE queues ADD COLUMN registrar INTEGER NOT NULL DEFAULT 0;
ALTER TABLE queues ADD COLUMN failures INTEGER NOT NULL DEFAULT 0;
ALTER TABLE queues ADD COLUMN confirmed_to TEXT NOT NULL DEFAULT '';
ALTER TABLE queues ADD COLUMN renew_at INTEGER NOT NULL DEFAULT 0;

UPDATE queues SET registrar = registered.e
FROM (SELECT identity, url, min(e) AS e FROM endpoints GROUP BY identity, url) AS registered
WHERE queues.identity = registered.identity AND queues.url = registered.url;
