# SPDX-License-Identifier: Apache-2.0
"""The shop in mode transaction, at 64 connections, beside pgbench with the same statements in one
transaction on the same server: claim, product, completion.  (The shop also sends a savepoint and
the limits of its wait; the second yardstick has them too.)  They take turns, since a shared machine
changes by the minute, and the ratio is that of the medians."""
import json
import os
import pathlib
import re
import statistics
import subprocess

SELLER = '01890000-0000-7000-8000-00000000ada0'
BODY = ('{"name":"Widget","price_minor_units":999,"currency":"EUR","seller_id":"' + SELLER + '"}')
ROUNDS = 5


def statement(path):
    """The SQL of a file on one line, without its comments."""
    return ' '.join(line for line in path.read_text().splitlines() if not line.startswith('--'))


def script(sql_dir, all_of_it):
    ident = "sha256(convert_to(:r::text, 'UTF8'))"
    values = {1: ident, 2: f'substr({ident}, 1, 16)', 3: ident, 4: 'true', 5: 'false',
              6: '60000000', 7: '60000000', 8: '86400000000', 9: '2::smallint', 10: "'shop'::bytea",
              11: "'POST /api/v1/products'::bytea", 12: "'bench-12345-67890'::bytea",
              13: "'pid=12345'::bytea"}
    claim = statement(sql_dir / 'tx_claim.sql')
    for i in sorted(values, reverse=True):
        claim = re.sub(rf'\${i}(?!\d)', lambda _: values[i], claim)
    product = ('INSERT INTO shop_product (id, name, price_minor_units, currency, seller_id, created_us, '
               f"updated_us) VALUES (gen_random_uuid(), 'Widget', 999, 'EUR', '{SELLER}', 1, 1) "
               'RETURNING id, name, price_minor_units, currency, seller_id, created_us, updated_us')
    complete = ('UPDATE semel.command c SET state = 2, expire_at = clock_timestamp() + c.retention_us * '
                "interval '1 microsecond', status = 201, flags = 0, headers = convert_to(repeat('h', 100), "
                f"'UTF8'), body = convert_to(repeat('b', 240), 'UTF8') WHERE c.id = {ident} AND "
                f'c.attempt = substr({ident}, 1, 16) AND c.state = 1')
    limits, restore = (statement(sql_dir / f'tx_{n}.sql') for n in ('limits', 'restore'))
    limits = limits.replace('$1', "'5000'").replace('$2', "'5250'")
    steps = ['BEGIN', claim, product, complete, 'COMMIT']
    if all_of_it:
        steps = ['BEGIN', 'SAVEPOINT semel_tx', limits, claim, restore, product, complete,
                 'RELEASE SAVEPOINT semel_tx', 'COMMIT']
    return '\\set r random(1, 9000000000000000000)\n' + ';\n'.join(steps) + ';\n'


def start(build, url, log):
    subprocess.run([build / 'src/cmd/semel', 'migrate', '--db', url], check=True, capture_output=True)
    with open(log, 'wb') as out:
        shop = subprocess.Popen([build / 'examples/shop/shop', '--store', url, '--mode', 'transaction',
                                 '--listen', '127.0.0.1:0'], stdout=out, stderr=out)
    while shop.poll() is None:
        m = re.search(r'listening on 127\.0\.0\.1:(\d+)', pathlib.Path(log).read_text())
        if m:
            return shop, m.group(1)
    raise RuntimeError(pathlib.Path(log).read_text())


def part_shop(report, seconds, build, server, pgbench, sql_dir):
    """report: .say(line), .bar(what, value, bar); server: tests/system's Postgres; pgbench(server,
    db, script, clients, seconds) -> transactions per second."""
    db = server.new_database()
    url = server.url(db)
    report.say('The shop, mode transaction, at 64 connections, beside pgbench')
    shop, port = start(build, url, pathlib.Path(server.dir) / 'shop.log')
    try:
        server.sql(db, f"INSERT INTO shop_seller VALUES ('{SELLER}', 'Ada', 0, 0)")
        rates = {'shop': [], 'same': [], 'all': []}
        for n in range(ROUNDS):
            out = subprocess.run([build / 'bench/http_load', port, '64', str(int(seconds)),
                                  f'seq:bench-{os.getpid()}-{n}', '0', '/api/v1/products', BODY],
                                 check=True, capture_output=True, text=True).stdout
            rates['shop'].append(json.loads(out)['per_s'])
            rates['same'].append(pgbench(server, db, script(sql_dir, False), 64, seconds))
            rates['all'].append(pgbench(server, db, script(sql_dir, True), 64, seconds))
    finally:
        shop.terminate()
        shop.wait(30)
    for name, text in (('shop', 'products created over HTTP'), ('same', 'pgbench: claim, product, completion'),
                       ('all', 'pgbench: and savepoint, limits')):
        report.say(f'  {statistics.median(rates[name]):>9.0f}/s  {text}   (of '
                   f'{" ".join(f"{r:.0f}" for r in rates[name])})')
    m = {name: statistics.median(r) for name, r in rates.items()}
    report.say(f'  beside all statements: {m["shop"] / m["all"]:.2f}')
    report.bar('the shop beside pgbench with the same statements', m['shop'] / m['same'], 0.75)
