-- $1 the mode that the slots are in from now on (rule C8a).
UPDATE semel.outbox_meta SET mode = $1::text WHERE outbox = 'semel.outbox'
