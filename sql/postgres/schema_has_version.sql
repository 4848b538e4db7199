-- Whether anything was ever migrated here.
SELECT to_regclass('semel.schema_version') IS NOT NULL
