-- Writes by holders.  Rows are locked in order first (rule B1); what is done to each is the answer
-- of command_write_effect() for the state it is found in, handed over as $1: one byte per
-- (kind, state, retry, idempotent, maybe_executed).  The bytes are enum command_effect:
-- up to 2 nothing, 3 complete, 4 free, 5 end the lease, 7 unknown (extending is claim_take's: it
-- depends on times).  Columns of the arrays:
-- (Ids as ranges: see complete.sql.)
-- $2 id, $3 token, $4 attempt, $5 kind, $6 status, $7 flags, $8 headers, $9 body.
WITH locked AS MATERIALIZED (
  SELECT c.id AS locked_id, c.state AS was_state, c.retention_us,
         u.kind * 32 + c.state * 8 + c.retry::integer * 4 + c.idempotent::integer * 2
         + c.maybe_executed::integer AS cell,
         u.status, u.flags, u.headers, u.body, u.n
  FROM unnest($2::bytea[], $3::bigint[], $4::bytea[], $5::smallint[], $6::integer[],
              $7::integer[], $8::bytea[], $9::bytea[]) WITH ORDINALITY
       AS u(id, token, attempt, kind, status, flags, headers, body, n)
  JOIN semel.command c ON c.id >= u.id AND c.id <= u.id
  WHERE c.token = u.token AND c.attempt = u.attempt
  ORDER BY u.id
  FOR UPDATE OF c),
decided AS MATERIALIZED (
  SELECT k.*, get_byte($1, k.cell) AS effect, clock_timestamp() AS t FROM locked k),
written AS (
  UPDATE semel.command c
  SET state = CASE d.effect WHEN 3 THEN 2 WHEN 4 THEN 0 WHEN 7 THEN 3 ELSE c.state END,
      expire_at = CASE WHEN d.effect IN (3, 4) THEN d.t + d.retention_us * interval '1 microsecond'
                  ELSE c.expire_at END,
      lease_until = CASE d.effect WHEN 5 THEN d.t ELSE c.lease_until END,
      maybe_executed = c.maybe_executed OR d.effect = 5,
      status = CASE d.effect WHEN 3 THEN d.status ELSE c.status END,
      flags = CASE d.effect WHEN 3 THEN d.flags ELSE c.flags END,
      headers = CASE d.effect WHEN 3 THEN d.headers ELSE c.headers END,
      body = CASE d.effect WHEN 3 THEN d.body ELSE c.body END
  FROM decided d
  WHERE c.id >= d.locked_id AND c.id <= d.locked_id AND d.effect IN (3, 4, 5, 7))
SELECT n, effect, was_state FROM decided
