-- Completions of claims that are in flight: nearly all writes.  A row that is not found so (taken
-- over, completed before, UNKNOWN) is read and decided on its own, and write.sql does what is to
-- be done.  The guard is in the UPDATE itself, so it holds for the row as it is under its lock.
-- Rows are locked as the list has them, by id (rule B1): the settings of the session, or of the
-- transaction, leave the planner nothing but a nested loop over it.  An id is asked for as a range: with = the
-- planner may walk the whole primary key first, and does while it takes the table for empty.  Columns of
-- the arrays:
-- $1 id, $2 token, $3 attempt, $4 status, $5 flags, $6 headers, $7 body.
UPDATE semel.command c
SET state = 2, expire_at = clock_timestamp() + c.retention_us * interval '1 microsecond',
    status = u.status, flags = u.flags, headers = u.headers, body = u.body
FROM (SELECT *
      FROM unnest($1::bytea[], $2::bigint[], $3::bytea[], $4::integer[], $5::integer[],
                  $6::bytea[], $7::bytea[]) WITH ORDINALITY
           AS o(id, token, attempt, status, flags, headers, body, n)
      ORDER BY id
      OFFSET 0) u
WHERE c.id >= u.id AND c.id <= u.id AND c.token = u.token AND c.attempt = u.attempt AND c.state = 1
RETURNING u.n
