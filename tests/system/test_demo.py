# SPDX-License-Identifier: Apache-2.0
"""The demo plays, and notices when an expectation does not hold."""
import pathlib
import re
import sqlite3

import pytest

from ports import free_port
from support.payd import Payd

SHOP = pathlib.Path(__file__).resolve().parents[2] / 'examples/shop'
DEMO, STORY, CHECK = SHOP / 'demo', SHOP / 'story', SHOP / 'ledger-check'
PROGRAMS = ('semel', 'shop', 'payd', 'billing')


def surroundings(tmp):
    """Its files in tmp; what the story kills and starts again has ports that nobody takes meanwhile."""
    return {'TMPDIR': tmp, 'shop_port': free_port(), 'pay_port': free_port()}


def has_kafka(build):
    try:
        return bool(build.path('billing'))
    except FileNotFoundError:
        return False


def test_the_demo_holds_and_cleans_up(build, procs, tmp):
    p = procs.run([DEMO, build.dir], timeout=120, env=surroundings(tmp))
    assert p.returncode == 0, p.logs()
    assert re.search(r'(?m)^demo: all \d\d expectations held in \d+ s$', p.out())
    assert p.out().splitlines()[-1] == (
        'ledger: 200 orders, 200 charges, 0 missing, 0 doubled' if has_kafka(build) else
        'demo: built without Kafka (-Dkafka=disabled): no outbox, no billing to show')
    assert 'FAIL' not in p.out() and p.err() == ''
    assert not list(tmp.glob('shop-*'))


def test_the_demo_fails_when_the_shop_does_not_keep_its_promise(build, procs, tmp):
    """A shop that is naive whatever it is told must be caught."""
    liar = tmp / 'shop'
    liar.write_text(f'#!/bin/bash\nargs=("${{@/#reserve/naive}}")\nexec {build.shop} "${{args[@]}}"\n')
    liar.chmod(0o755)
    (tmp / 'semel').symlink_to(build.semel)
    (tmp / 'payd').symlink_to(build.path('payd'))
    p = procs.run([DEMO, tmp], timeout=60, env={'TMPDIR': tmp})
    assert p.returncode == 1
    assert 'FAIL statuses: expected 201 409 409 409 409' in p.out()


def test_the_demo_says_what_to_do_without_a_build(procs, tmp):
    p = procs.run([DEMO, tmp], env={k: '' for k in ('SEMEL_BUILD',)})
    assert p.returncode == 1 and 'make build' in p.err()


# --- the ledger ------------------------------------------------------------------------------------

@pytest.fixture
def ledger(procs, build, tmp):
    """A ledger as payd makes it, with three charges; and the orders that they are for."""
    payd = Payd(procs, build, str(tmp / 'ledger.db'))
    for i in (1, 2, 3):
        r = procs.run([build.semel, 'call', 'POST', payd.url, '--key', f'o-{i}:charge:r', '--data',
                       f'{{"order_id": "o-{i}", "customer_id": "c", "amount": {i}00}}'])
        assert r.returncode == 0, r.logs()
    assert payd.process.terminate() == 0
    (tmp / 'orders').write_text('o-1 100\no-2 200\no-3 300\n')
    return payd.ledger


def check(procs, ledger, tmp):
    p = procs.run([CHECK, '--ledger', ledger, '--orders', tmp / 'orders'])
    return p.returncode, p.out().splitlines()


def plant(ledger, sql):
    conn = sqlite3.connect(ledger)
    conn.execute(sql)
    conn.commit()
    conn.close()


def test_the_ledger_is_right(procs, ledger, tmp):
    assert check(procs, ledger, tmp) == (0, ['ledger: 3 orders, 3 charges, 0 missing, 0 doubled'])


@pytest.mark.parametrize('sql, said, line', [
    ("INSERT INTO ledger (key, order_id, customer_id, amount) VALUES ('other', 'o-2', 'c', 200)",
     'o-2 was charged 2 times', '3 orders, 4 charges, 0 missing, 1 doubled'),
    ("DELETE FROM ledger WHERE order_id = 'o-3'",
     'o-3 is confirmed and was not charged', '3 orders, 2 charges, 1 missing, 0 doubled'),
    ("UPDATE ledger SET amount = 201 WHERE order_id = 'o-2'",
     'o-2 costs 200 and was charged [201]', '3 orders, 3 charges, 0 missing, 0 doubled'),
    ("INSERT INTO ledger (key, order_id, customer_id, amount) VALUES ('other', 'o-9', 'c', 1)",
     'o-9 was charged and is no confirmed order', '3 orders, 4 charges, 0 missing, 0 doubled'),
])
def test_a_planted_charge_is_seen(procs, ledger, tmp, sql, said, line):
    plant(ledger, sql)
    code, out = check(procs, ledger, tmp)
    assert code == 1 and f'ledger: {said}' in out and out[-1] == f'ledger: {line}'


@pytest.mark.kafka
def test_a_billing_that_charges_twice_fails_the_story(build, procs, tmp):
    """It charges one order again, with a key of its own."""
    for name in PROGRAMS:
        if name != 'billing':
            (tmp / name).symlink_to(build.path(name))
    liar = tmp / 'billing'
    liar.write_text(f"""#!/bin/bash
url=$(sed 's/.*--pay-url \\([^ ]*\\).*/\\1/' <<<"$*")
( for _ in $(seq 500); do
        order=$(curl -s "${{url%/charges}}/ledger" | sed -n 's/.*"order_id":"\\([^"]*\\)".*/\\1/p')
        [ -n "$order" ] && break
        sleep 0.05
  done
  {build.semel} call POST "$url" --key planted --data \
          "{{\\"order_id\\":\\"$order\\",\\"customer_id\\":\\"c\\",\\"amount\\":1}}" ) >/dev/null 2>&1 &
exec {build.path('billing')} "$@"
""")
    liar.chmod(0o755)
    p = procs.run([STORY, tmp], timeout=120, env={**surroundings(tmp), 'ORDERS': '48'})
    assert p.returncode == 1, p.logs()
    # the story waits for 48 charges: the planted one may be among them
    assert re.search(r'ledger: 48 orders, (49 charges, 0|48 charges, 1) missing, 1 doubled',
                     p.out().splitlines()[-1]), p.logs()


def test_the_story_says_what_to_do_without_a_build(procs, tmp):
    p = procs.run([STORY, tmp], env={k: '' for k in ('SEMEL_BUILD',)})
    assert p.returncode == 1 and 'make build' in p.err()
