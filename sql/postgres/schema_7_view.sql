-- For people: names for numbers, text for bytes (what is not ASCII is escaped).
CREATE VIEW semel.command_view AS
SELECT encode(key, 'escape') AS key,
       (ARRAY['FREE', 'IN_FLIGHT', 'COMPLETED', 'UNKNOWN'])[state + 1] AS state,
       (ARRAY['gateway', 'run', 'tx', 'call'])[mode + 1] AS mode,
       encode(scope, 'escape') AS scope,
       encode(operation, 'escape') AS operation,
       encode(holder, 'escape') AS holder,
       token, retry, idempotent, maybe_executed, claimed_at, lease_until, expire_at, created_at,
       status, octet_length(body) AS body_bytes,
       encode(id, 'hex') AS id, encode(attempt, 'hex') AS attempt
FROM semel.command
