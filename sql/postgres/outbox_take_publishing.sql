-- Does a row wait in PUBLISHING?
SELECT EXISTS (SELECT 1 FROM semel.outbox o WHERE o.status = 'PUBLISHING')
