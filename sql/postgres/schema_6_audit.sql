-- What operators decided, by whom and why.
CREATE TABLE semel.audit (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at timestamptz NOT NULL DEFAULT clock_timestamp(),
  verb text NOT NULL,
  command_id bytea NOT NULL,
  attempt bytea NOT NULL,
  state_before smallint NOT NULL,
  who text NOT NULL,
  reason text NOT NULL
)
