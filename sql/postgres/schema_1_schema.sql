-- Everything of semel lives in one schema.
CREATE SCHEMA IF NOT EXISTS semel
