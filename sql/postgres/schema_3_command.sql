-- One row per key.  Half-empty pages (fillfactor) keep the completing update in the row's own page
-- (HOT, rule B6): docs/adr/0007-one-table-for-row-and-reply.md has the numbers.  What users send is bytea, so
-- that no byte of theirs can fail a batch (rule B4); the view command_view shows it as text.
CREATE TABLE semel.command (
  id bytea PRIMARY KEY CHECK (octet_length(id) = 32),
  state smallint NOT NULL CHECK (state BETWEEN 0 AND 3),
  token bigint NOT NULL,
  attempt bytea NOT NULL CHECK (octet_length(attempt) = 16),
  fingerprint bytea NOT NULL CHECK (octet_length(fingerprint) = 32),
  retry boolean NOT NULL,
  idempotent boolean NOT NULL,
  maybe_executed boolean NOT NULL,
  lease_until timestamptz NOT NULL,
  lease_us bigint NOT NULL,
  claimed_at timestamptz NOT NULL,
  request_until timestamptz NOT NULL,
  retention_us bigint NOT NULL,
  expire_at timestamptz,
  created_at timestamptz NOT NULL,
  mode smallint NOT NULL,
  scope bytea NOT NULL,
  operation bytea NOT NULL,
  key bytea NOT NULL,
  holder bytea NOT NULL,
  status integer,
  flags integer,
  headers bytea,
  body bytea
) WITH (fillfactor = 30)
