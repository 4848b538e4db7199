-- What each consumer has done.
SELECT n.consumer, n.source,
  (SELECT count(*) FROM semel.processed_event p
   WHERE p.consumer = n.consumer AND p.source = n.source),
  (SELECT count(*) FROM semel.dead_letter d
   WHERE d.consumer = n.consumer AND d.source = n.source AND d.state = 0),
  (SELECT count(*) FROM semel.dead_letter d
   WHERE d.consumer = n.consumer AND d.source = n.source AND d.state = 1),
  (SELECT count(*) FROM semel.inbox_alarm a
   WHERE a.consumer = n.consumer AND a.source = n.source),
  (SELECT min(p.processed_at) FROM semel.processed_event p
   WHERE p.consumer = n.consumer AND p.source = n.source),
  (SELECT max(p.processed_at) FROM semel.processed_event p
   WHERE p.consumer = n.consumer AND p.source = n.source)
FROM (SELECT consumer, source FROM semel.processed_event
      UNION SELECT consumer, source FROM semel.dead_letter) n
ORDER BY n.consumer, n.source
