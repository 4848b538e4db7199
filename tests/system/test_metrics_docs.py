# SPDX-License-Identifier: Apache-2.0
"""docs/relay.md and docs/consume.md name every metric that there is, with its labels, and no other (the
gateway's: test_gateway_docs.py)."""
import re
import urllib.request

import pytest

from support.binaries import ROOT
from support.metrics import metrics_documented, metrics_given
from support.wait import wait_until

pytestmark = pytest.mark.kafka


def page(name):
    return (ROOT / 'docs' / name).read_text(encoding='utf-8')


def test_the_relays_metrics(outbox, start_relay, kafka, pg, pg_db):
    """A row waits and a transaction is open, which give the two ages something to tell."""
    outbox.add(kafka.new_topic(1), [('a', b'a')])
    outbox.sql("UPDATE semel.outbox SET next_attempt_at = now() + interval '1 day'")
    late = pg.connect(pg_db, autocommit=False)
    late.cursor().execute('SELECT semel.publish(%s, %s, %s)', ('late', 'late', b''))
    relay = start_relay()
    wait_until(lambda: 'semel_outbox_rows{' in relay.get('/metrics')[1], 30, 'the table was counted')
    text = relay.get('/metrics')[1]
    late.close()
    assert metrics_given(text) == metrics_documented(page('relay.md'))
    row = re.search(r'^\| `semel_relay_rows_total.*$', page('relay.md'), re.M).group(0)
    assert set(re.findall(r'outcome="(\w+)"', text)) == set(re.findall(r'`(\w+)`', row))


def test_a_consumers_metrics(procs, build, kafka, pg_store_url):
    topic = kafka.new_topic(1)
    kafka.produce(topic, [('a', 'a', [('event-id', b'1')])])
    p = procs.start([build.semel, 'consume', '--db', pg_store_url, '--brokers', kafka.bootstrap, '--topic',
                     topic, '--group', 'metrics', '--admin', '127.0.0.1:0', '--sql', 'SELECT $1::text'],
                    name='consume')
    port = p.wait_log(r'admin listener on port (\d+)', 30).group(1)

    def text():
        with urllib.request.urlopen(f'http://127.0.0.1:{port}/metrics', timeout=10) as r:
            return r.read().decode()
    wait_until(lambda: 'semel_consume_lag{' in text(), 30, 'a partition is read')
    assert metrics_given(text()) == metrics_documented(page('consume.md'))
