# SPDX-License-Identifier: Apache-2.0
"""The shop when things die: the process, the database, the lease, one write."""
import concurrent.futures
import http.client
import itertools
import signal
import time

import pytest

from ports import free_port
from support.shop import COMPLETED, IN_FLIGHT, PRODUCTS, SELLERS
from support.wait import wait_until

BOTH = pytest.mark.parametrize('mode', ['reserve', 'transaction'])
GONE = (OSError, http.client.HTTPException)


def retry(shop, key, name='Widget', timeout=20, until=lambda r: r.status != 409):
    """As a client would: again while it is told 409; returns the last reply."""
    return wait_until(lambda: (lambda r: r if until(r) else None)(shop.create(name, key=key)),
                      timeout, f'{key} is answered', interval=0.05)


def kill_while_it_runs(start_shop, url, key, lease_ms):
    """A holder that claimed the key and died; returns when it had not claimed it yet."""
    shop = start_shop(url, 'reserve', work_ms=60000, lease_ms=lease_ms)
    asked = time.monotonic()
    running = shop.background(lambda: shop.create(key=key))
    shop.wait_claimed(key)
    shop.proc.kill()
    with pytest.raises(GONE):
        running.result(10)
    return asked


# --- SIGKILL ------------------------------------------------------------------------------------

def test_h8_killed_between_claim_and_completion_409_until_the_lease_is_over(start_shop, store_url):
    shop = start_shop(store_url, 'reserve', lease_ms=2500)
    assert shop.seller
    over = kill_while_it_runs(start_shop, store_url, 'k', 2500) + 2.5
    seen = 0
    while (r := shop.create(key='k')) and time.monotonic() < over:
        assert (r.status, r.problem) == (409, 'in-flight')
        assert 1 <= int(r.header('Retry-After')) <= 3
        assert shop.db.products('Widget') == 0
        seen += 1
    assert seen
    r = r if r.status == 201 else retry(shop, 'k')
    assert r.status == 201 and not r.replayed
    assert shop.db.products('Widget') == 1
    assert shop.create(key='k').kept() == r.kept()


def test_h7_h10_exactly_one_of_32_racing_callers_takes_over(start_shop, store_url):
    kill_while_it_runs(start_shop, store_url, 'k', 1000)
    shop = start_shop(store_url, 'reserve', work_ms=300, lease_ms=20000)
    _, token, _, _ = shop.db.command('k')
    replies = []

    def over():  # 32 at a time until one of them got through
        replies.extend(shop.create_parallel(32, key='k'))
        return any(r.status == 201 for r in replies)

    wait_until(over, 20, 'the take-over')
    assert {r.status for r in replies} <= {201, 409}
    assert sum(r.status == 201 and not r.replayed for r in replies) == 1
    assert shop.db.products('Widget') == 1
    assert shop.db.command('k')[:2] == (COMPLETED, token + 1), 'taken once, and the token rose'


def test_a_killed_transaction_leaves_nothing_and_the_retry_runs_at_once(start_shop, store_url):
    shop = start_shop(store_url, 'transaction', work_ms=60000, lease_ms=3600000)
    body = shop.product()
    running = shop.background(lambda: shop.request('POST', PRODUCTS, body, key='k'))
    shop.wait_running('transaction')
    shop.proc.kill()
    with pytest.raises(GONE):
        running.result(10)
    shop = start_shop(store_url, 'transaction', wait_ms=5000)
    assert shop.db.command('k') is None
    begin = time.monotonic()
    assert shop.create(key='k').status == 201
    assert time.monotonic() - begin < 3, 'no lease to wait for'
    assert shop.db.products('Widget') == 1


def test_crash_after_effect_in_reserve_runs_again_after_the_lease(start_shop, store_url):
    shop = start_shop(store_url, 'reserve', lease_ms=1000, crash_after_effect=True)
    with pytest.raises(GONE):
        shop.create(key='k')
    assert shop.proc.wait(10) == -signal.SIGKILL
    shop = start_shop(store_url, 'reserve', lease_ms=1000)
    assert shop.db.products('Widget') == 1
    assert retry(shop, 'k').status == 201
    assert shop.db.products('Widget') == 2, 'reserve with on_unknown = retry is at least once'


def test_crash_after_effect_in_transaction_takes_the_effect_with_it(start_shop, store_url):
    shop = start_shop(store_url, 'transaction', crash_after_effect=True)
    with pytest.raises(GONE):
        shop.create(key='k')
    assert shop.proc.wait(10) == -signal.SIGKILL
    shop = start_shop(store_url, 'transaction')
    assert shop.db.products('Widget') == 0
    assert shop.create(key='k').status == 201
    assert shop.db.products('Widget') == 1


# --- SIGSTOP ------------------------------------------------------------------------------------

def test_h9_h10_a_holder_that_wakes_late_changes_no_row(start_shop, store_url):
    """Takeover, release and a new claim by others happen while the first holder is stopped."""
    late = start_shop(store_url, 'reserve', work_ms=400, lease_ms=700)
    body = late.product(seller_id='01890000-0000-7000-8000-0000000000ff')
    keys = (f'k{i}' for i in itertools.count())

    def stopped():
        """Stopped while it runs; with another key when that came too late."""
        key = next(keys)
        running = late.background(lambda: late.request('POST', PRODUCTS, body, key=key))
        wait_until(lambda: late.db.command(key) or running.done(), what='the claim')
        late.proc.stop()
        row = late.db.command(key)
        if row and row[0] == IN_FLIGHT:
            return key, running, row[1]
        late.proc.cont()
        running.result(20)
        return None

    key, running, first_token = wait_until(stopped, 60, 'to be stopped in time')
    other = start_shop(store_url, 'reserve', lease_ms=20000)

    def post():
        r = other.request('POST', PRODUCTS, body, key=key)
        return r if r.status != 409 else None

    refused = wait_until(post, 20, 'the take-over')
    assert (refused.status, refused.problem) == (422, 'no-such-seller'), 'taken over, released'
    other.db.sql('INSERT INTO shop_seller VALUES (?, ?, 0, 0)', args=(body['seller_id'], 'Eve'))
    won = wait_until(post, 20, 'a new claim')
    assert won.status == 201 and not won.replayed
    before = other.db.command(key)
    assert before[0] == COMPLETED and before[1] > first_token + 1

    late.proc.cont()
    its = running.result(20)
    assert other.db.command(key) == before, 'the late completion changed nothing'
    assert its.status == 201 and its.header('Warning'), 'done, and told that it was not recorded'
    assert other.create('Widget', key=key, seller_id=body['seller_id']).kept() == won.kept()


# --- one failed write ---------------------------------------------------------------------------

def break_completions(db, ms):
    """For `ms` from now every write of COMPLETED raises.  By time and not by count, since what a
    trigger counts in the database is rolled back with the write it refuses."""
    until = db.sql("SELECT (julianday('now') - 2440587.5) * 86400000",
                   'SELECT extract(epoch FROM clock_timestamp()) * 1000')[0][0]
    until = int(until) + ms
    if db.is_sqlite:
        for event in ('UPDATE', 'INSERT'):
            db.sql(f'''CREATE TRIGGER break_{event} BEFORE {event} ON semel_command
                WHEN NEW.state = 2 AND (julianday('now') - 2440587.5) * 86400000 < {until}
                BEGIN SELECT RAISE(ABORT, 'one failed completion'); END''')
        return
    db.sql('', f'''CREATE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF NEW.state = 2 AND extract(epoch FROM clock_timestamp()) * 1000 < {until} THEN
                RAISE EXCEPTION 'one failed completion';
            END IF;
            RETURN NEW; END $$''')
    db.sql('', '''CREATE TRIGGER broken BEFORE INSERT OR UPDATE ON semel.command
            FOR EACH ROW EXECUTE FUNCTION broken()''')


def test_a_failed_completion_write_is_written_again_in_reserve(start_shop, store_url):
    shop = start_shop(store_url, 'reserve')
    body = shop.product()
    break_completions(shop.db, 400)
    first = shop.request('POST', PRODUCTS, body, key='k')
    assert first.status == 201 and first.header('Warning') is None
    again = shop.request('POST', PRODUCTS, body, key='k')
    assert again.replayed and again.kept() == first.kept()
    assert shop.db.products('Widget') == 1


def test_a_failed_completion_write_rolls_the_whole_transaction_back(start_shop, store_url):
    shop = start_shop(store_url, 'transaction')
    body = shop.product()
    break_completions(shop.db, 60000)
    r = shop.request('POST', PRODUCTS, body, key='k')
    assert r.status >= 500
    assert shop.db.products('Widget') == 0 and shop.db.command('k') is None
    for name in ('break_UPDATE', 'break_INSERT'):
        shop.db.sql(f'DROP TRIGGER {name}', 'DROP TRIGGER IF EXISTS broken ON semel.command')
    assert shop.request('POST', PRODUCTS, body, key='k').status == 201
    assert shop.db.products('Widget') == 1


# --- the tutorial's exercise: a lease of one millisecond ---------------------------------------------

def test_h8_a_lease_of_1_ms_breaks_the_promise_of_reserve(start_shop, store_url):
    shop = start_shop(store_url, 'reserve', lease_ms=1, work_ms=1500)
    body = shop.product()
    slow = shop.background(lambda: shop.request('POST', PRODUCTS, body, key='k'))
    shop.wait_claimed('k')
    second = shop.request('POST', PRODUCTS, body, key='k')
    assert second.status == 201 and not second.replayed, 'took over one that was merely slow'
    first = slow.result(10)
    assert first.status == 201 and first.header('Warning'), 'it had lost its claim'
    assert shop.db.products('Widget') == 2


def test_a_lease_of_1_ms_changes_nothing_in_transaction(start_shop, store_url):
    shop = start_shop(store_url, 'transaction', lease_ms=1, work_ms=100, wait_ms=20000)
    replies = shop.create_parallel(5, key='k')
    assert [r.status for r in replies] == [201] * 5
    assert len({r.body for r in replies}) == 1
    assert shop.db.products('Widget') == 1


# --- the database goes and comes back ----------------------------------------------------------------

@pytest.fixture
def own_url(pg_own, semel):
    url = pg_own.url(pg_own.new_database())
    r = semel('migrate', '--db', url)
    assert r.returncode == 0, r.logs()
    return url


@BOTH
def test_h70_postgres_stopped_503_nothing_runs_and_all_is_well_within_1_s(start_shop, pg_own,
                                                                         own_url, mode):
    shop = start_shop(own_url, mode, lease_ms=60000)
    body = shop.product()
    assert shop.request('POST', PRODUCTS, body, key='before').status == 201
    pg_own.stop('immediate')
    for key in ('before', 'during', None):
        asked = time.monotonic()
        r = shop.request('POST', PRODUCTS, body, key=key)
        assert (r.status, r.problem) == (503, 'store-down'), 'fails closed'
        assert int(r.header('Retry-After')) >= 1
        assert time.monotonic() - asked < 8
        assert b'/' not in r.json['detail'].encode(), 'no paths of ours'
    pg_own.start()
    back = time.monotonic()
    wait_until(lambda: shop.request('POST', PRODUCTS, body, key='during').status == 201, 10)
    assert time.monotonic() - back < 1.5
    assert shop.request('POST', PRODUCTS, body, key='before').replayed
    assert shop.db.products('Widget') == 2


@BOTH
def test_h15_postgres_restarted_under_running_commands_never_doubles(start_shop, pg_own, own_url,
                                                                     mode):
    shop = start_shop(own_url, mode, work_ms=3000, lease_ms=9000, wait_ms=5000)
    body = shop.product()
    keys = [f'k{i}' for i in range(8)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        runs = [pool.submit(shop.request, 'POST', PRODUCTS, {**body, 'name': k}, k) for k in keys]
        shop.wait_running(mode, 8)
        assert not any(r.done() for r in runs), 'the fault struck no unfinished work'
        pg_own.restart()
        replies = [r.result(30) for r in runs]
        assert {r.status for r in replies} <= {201, 409, 503}
    quick = start_shop(own_url, mode, lease_ms=9000, wait_ms=5000)
    for k in keys:
        retry(quick, k, k, until=lambda r: r.status == 201)
        assert shop.db.products(k) == 1, 'stopped before the business write: run once in the end'


@BOTH
def test_h62_an_answer_that_is_lost_in_the_business_write_never_doubles(start_shop, pg_own,
                                                                       own_url, mode):
    """The insert was sent, and the server died before it answered: nobody in the shop can know."""
    shop = start_shop(own_url, mode, lease_ms=3000)
    body = shop.product()
    shop.db.sql('', """CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_sleep(60); RETURN NEW; END $$""")
    shop.db.sql('', """CREATE TRIGGER slow BEFORE INSERT ON shop_product
        FOR EACH ROW EXECUTE FUNCTION slow()""")
    running = shop.background(lambda: shop.request('POST', PRODUCTS, body, key='k'))
    wait_until(lambda: shop.db.sql('', """SELECT count(*) FROM pg_stat_activity
        WHERE application_name = 'shop' AND wait_event = 'PgSleep'""")[0][0] == 1)
    pg_own.stop('immediate')
    r = running.result(20)
    assert (r.status, r.problem) == (503, 'store-down')
    assert r.header('Idempotency-Outcome') == 'unknown'
    pg_own.start()
    shop.db.sql('', 'DROP TRIGGER slow ON shop_product')
    assert retry(shop, 'k', until=lambda r: r.status == 201).status == 201
    assert shop.db.products('Widget') == 1


@BOTH
def test_h73_more_slow_commands_than_connections(start_shop, pg_store_url, mode):
    """Mode reserve pins no connection while a command works; mode transaction queues for one."""
    shop = start_shop(pg_store_url, mode, work_ms=400)
    assert shop.seller
    with concurrent.futures.ThreadPoolExecutor(100) as pool:
        replies = list(pool.map(lambda i: shop.create('Widget', key=f'k{i}'), range(100)))
    assert [r.status for r in replies] == [201] * 100


# --- start and end ---------------------------------------------------------------------------------

def test_ten_shops_start_at_once_on_a_fresh_database(start_shop, store_url):
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        shops = list(pool.map(lambda _: start_shop(store_url, 'transaction'), range(10)))
    assert shops[0].create(key='k').status == 201
    assert all(s.create(key='k').replayed for s in shops[1:])


def refused(shop):
    try:
        shop.request('GET', SELLERS)
    except (ConnectionRefusedError, ConnectionResetError):
        return True
    return False


@BOTH
def test_sigterm_finishes_what_runs_and_accepts_no_more(start_shop, store_url, mode):
    shop = start_shop(store_url, mode, work_ms=1200)
    body = shop.product()
    idle = http.client.HTTPConnection('127.0.0.1', shop.port, timeout=5)
    idle.request('GET', SELLERS)
    idle.getresponse().read()  # kept alive
    running = shop.background(lambda: shop.request('POST', PRODUCTS, body, key='k'))
    shop.wait_running(mode)
    shop.proc.send(signal.SIGTERM)
    wait_until(lambda: refused(shop), 2, 'no new connections')
    r = running.result(20)
    assert r.status == 201 and r.header('Connection').lower() == 'close'
    assert shop.proc.wait(5) == 0
    assert 'drained' in shop.proc.out()
    shop = start_shop(store_url, mode)
    assert shop.create(key='k').kept() == r.kept()


def test_sigterm_with_nothing_to_do_exits_0_at_once(start_shop, sqlite_url):
    shop = start_shop(sqlite_url)
    assert shop.proc.terminate(10) == 0  # its deadline is 25 s


def test_a_second_sigterm_exits_at_once(start_shop, sqlite_url):
    shop = start_shop(sqlite_url, 'reserve', work_ms=60000)
    running = shop.background(lambda: shop.create(key='k'))
    shop.wait_claimed('k')
    shop.proc.send(signal.SIGTERM)
    wait_until(lambda: refused(shop), 5, 'no new connections')
    assert shop.proc.alive(), 'it drains'
    shop.proc.send(signal.SIGTERM)
    assert shop.proc.wait(10) == 128 + signal.SIGTERM  # its command takes 60 s
    with pytest.raises(GONE):
        running.result(5)
    assert shop.db.command('k')[0] == IN_FLIGHT


def test_the_port_can_be_taken_again_at_once(build, procs, start_shop, sqlite_url):
    shop = start_shop(sqlite_url, port=free_port())
    client = http.client.HTTPConnection('127.0.0.1', shop.port, timeout=5)
    client.request('GET', SELLERS)  # the server closes first: TIME_WAIT stays on its side
    client.getresponse().read()
    assert shop.proc.terminate() == 0
    again = procs.start([build.shop, '--store', sqlite_url, '--listen', f'127.0.0.1:{shop.port}'])
    again.wait_log(f'listening on 127.0.0.1:{shop.port}')
