-- Is `semel migrate --notify on` in force?
SELECT count(*) FROM pg_trigger t
WHERE t.tgrelid = to_regclass('semel.outbox') AND t.tgname = 'semel_outbox_notify'
  AND t.tgenabled <> 'D'
