-- Does this file hold semel's tables?
SELECT count(*) FROM main.sqlite_schema WHERE type = 'table' AND name = 'semel_schema_version'
