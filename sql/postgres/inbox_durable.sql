-- For one statement of the inbox that is a transaction of its own: what it says is acted upon, so it must be
-- durable, whatever the database's default is (rule B7).
SELECT pg_catalog.set_config('synchronous_commit',
                             CASE pg_catalog.current_setting('synchronous_commit')
                             WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true)
