-- What each consumer has done.
SELECT n.consumer, n.source,
  (SELECT count(*) FROM semel_processed_event p
   WHERE p.consumer = n.consumer AND p.source = n.source),
  (SELECT count(*) FROM semel_dead_letter d
   WHERE d.consumer = n.consumer AND d.source = n.source AND d.state = 0),
  (SELECT count(*) FROM semel_dead_letter d
   WHERE d.consumer = n.consumer AND d.source = n.source AND d.state = 1),
  (SELECT count(*) FROM semel_inbox_alarm a
   WHERE a.consumer = n.consumer AND a.source = n.source),
  (SELECT min(p.processed_us) FROM semel_processed_event p
   WHERE p.consumer = n.consumer AND p.source = n.source),
  (SELECT max(p.processed_us) FROM semel_processed_event p
   WHERE p.consumer = n.consumer AND p.source = n.source)
FROM (SELECT consumer, source FROM semel_processed_event
      UNION SELECT consumer, source FROM semel_dead_letter) n
ORDER BY n.consumer, n.source
