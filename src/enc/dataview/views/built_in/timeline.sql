-- description: Public posts with their current content.
-- key: enclave, id
-- refresh: by enclave, id from content_status
-- where: type = 'public' AND status <> 'deleted'
SELECT enclave, id, seq, author, content, timestamp AS posted_at, revised_at AS edited_at,
       withheld
FROM content_status
