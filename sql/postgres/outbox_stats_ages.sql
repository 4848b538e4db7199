-- How long the oldest unfinished row has waited (the first of each slot is enough), and how long the
-- oldest transaction has been open (O43); NULL: none, or not for this role to see.
SELECT
  (SELECT (extract(epoch FROM clock_timestamp() - min(r.created_at)) * 1000000)::bigint
   FROM generate_series(0, 15) AS q (slot)
   CROSS JOIN LATERAL (
     SELECT o.created_at AS created_at FROM semel.outbox o
     WHERE o.slot = q.slot AND o.status IN ('PENDING', 'PUBLISHING')
     ORDER BY o.id LIMIT 1) r),
  (SELECT (extract(epoch FROM clock_timestamp() - min(a.xact_start)) * 1000000)::bigint
   FROM pg_stat_activity a
   WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
     AND (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL))
