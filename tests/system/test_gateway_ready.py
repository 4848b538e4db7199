# SPDX-License-Identifier: Apache-2.0
"""/readyz of the gateway follows its store, and costs it next to nothing."""
import time

from support.gateway import Gateway
from support.upstream import Upstream
from support.wait import wait_until


def ready(g):
    return g.get_admin('/readyz')[0]


def own_store(pg_own, semel):
    db = pg_own.new_database()
    url = pg_own.url(db)
    assert semel('migrate', '--db', url).returncode == 0
    return url, db


def test_ready_as_long_as_the_store_answers(procs, build, pg_own, semel):
    url, _ = own_store(pg_own, semel)
    up = Upstream()
    g = Gateway(procs, build.semel, up.url, url)
    assert ready(g) == 200
    pg_own.stop('immediate')
    wait_until(lambda: ready(g) == 503, timeout=15)
    # never waits for the store, and the process itself is well
    begun = time.monotonic()
    assert ready(g) == 503 and time.monotonic() - begun < 1
    assert g.get_admin('/healthz')[0] == 200
    pg_own.start()
    wait_until(lambda: ready(g) == 200, timeout=15)
    assert g.post('k').status == 201
    assert g.process.terminate() == 0
    up.close()


def test_many_questions_ask_the_store_once_a_second(procs, build, pg_own, semel):
    url, db = own_store(pg_own, semel)
    up = Upstream()
    g = Gateway(procs, build.semel, up.url, url)

    def looked():
        pg_own.sql(db, 'SELECT pg_stat_clear_snapshot()')
        return pg_own.value(db, "SELECT coalesce(sum(seq_scan + coalesce(idx_scan, 0)), 0) FROM "
                                "pg_stat_user_tables WHERE relname = 'command'")
    before, begun = looked(), time.monotonic()
    asked = 0
    while time.monotonic() - begun < 3:
        assert ready(g) == 200
        asked += 1
    # the statistics of the gateway's own connection arrive when it is idle
    after = wait_until(lambda: (n := looked()) > before and n, timeout=20)
    assert after - before <= time.monotonic() - begun + 2 < asked
    up.close()


def test_who_passes_requests_without_the_store_is_ready(procs, build, pg_own, semel, tmp):
    url, _ = own_store(pg_own, semel)
    up = Upstream()
    (tmp / 'g.yaml').write_text('policy:\n  store_down: open\n')
    g = Gateway(procs, build.semel, up.url, url, '--config', tmp / 'g.yaml')
    pg_own.stop('immediate')
    wait_until(lambda: g.post('k').status == 201)
    for _ in range(20):
        assert ready(g) == 200
    up.close()
