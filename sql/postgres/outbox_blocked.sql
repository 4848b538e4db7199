-- Keys that must wait, each by its first row that was tried and is not finished, or is dead.  The dead
-- come first: no fetch leaves them out by itself.
-- $1 slots, $2 dead rows block too, $3 at most so many.
SELECT b.slot, b.id, b.dead, b.wait_us, b.key
FROM (SELECT DISTINCT ON (a.slot, a.key) a.slot, a.id, a.dead, a.wait_us, a.key
      FROM (SELECT o.slot AS slot, o.id AS id, false AS dead, o.key AS key,
              greatest(0, coalesce((extract(epoch FROM o.next_attempt_at - clock_timestamp())
                                    * 1000000)::bigint, 0)) AS wait_us
            FROM semel.outbox o
            WHERE o.held AND o.slot = ANY ($1::smallint[]) AND o.key IS NOT NULL AND o.attempts > 0
            UNION ALL
            SELECT o.slot, o.id, true, o.key, 0
            FROM semel.outbox o
            WHERE $2::boolean AND o.slot = ANY ($1::smallint[]) AND o.key IS NOT NULL
              AND o.status = 'DEAD') a
      ORDER BY a.slot, a.key, a.id) b
ORDER BY b.dead DESC, b.slot, b.id LIMIT $3::bigint
