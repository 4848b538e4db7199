-- An operator's decision and its audit row in one statement, if the row is still as it was read.
-- guard: $1 id, $2 token, $3 attempt, $4 state, $5 lease_until, $6 expire_at;
-- new: $7 state, $8 token, $9 attempt, $10 expire_at; reply, or NULLs: $11 status, $12 flags,
-- $13 headers, $14 body; audit: $15 verb, $16 who, $17 reason (UTF-8).
WITH resolved AS (
  UPDATE semel.command c
  SET state = $7, token = $8, attempt = $9, expire_at = $10,
      status = $11, flags = $12, headers = $13, body = $14
  WHERE c.id = $1 AND c.token = $2 AND c.attempt = $3 AND c.state = $4 AND c.lease_until = $5
    AND c.expire_at IS NOT DISTINCT FROM $6
  RETURNING c.id)
INSERT INTO semel.audit (verb, command_id, attempt, state_before, who, reason)
SELECT $15, r.id, $3, $4, convert_from($16, 'UTF8'), convert_from($17, 'UTF8') FROM resolved r
RETURNING id
