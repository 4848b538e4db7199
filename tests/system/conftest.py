# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the system tests.

    build       where the programs are: build.semel, build.shop, build.dir
    tmp         a fresh folder (a pathlib.Path; gone when the test passed)
    procs       starts processes: procs.start(argv), procs.run(argv); at the end it ends what still
                runs and fails the test when a log holds a sanitizer report
    semel       semel('keys', 'list', '--db', url) -> the ended Process (.returncode .out() .err())
    pg          a real PostgreSQL server, one for the whole run; leave it running
    pg_own      a PostgreSQL server for this test alone: stop it, break it
    pg_db       name of a fresh, empty database on `pg`
    pg_url      its URL
    store       a support.Store on store_url: its rows, its audit
    sqlite_url  URL of a SQLite file that does not exist yet
    store_url   each test runs twice: on SQLite, and on PostgreSQL after `semel migrate`
    pg_store_url  a fresh database on `pg`, migrated
    kafka       a real Kafka broker, one for the whole run: kafka.bootstrap, kafka.new_topic(6),
                kafka.consume_all(topic) (support/kafka.py); leave it running
    kafka_own   a Kafka broker for this test alone: kill(), restart(), pause(), resume()
    start_kafka start_kafka(Cluster): a running one of another kind; whoever starts it closes it
    outbox      a support.relay.Outbox on pg_store_url
    start_relay start_relay(mode='single', batch_rows=10) -> a running support.relay.Relay on pg_store_url
                and kafka; another database by url=
    upstream    a support.upstream.Upstream that is there
    start_gateway  start_gateway('--workers', '2', config='...') -> a running support.gateway.Gateway
                in front of upstream, on SQLite
    gateway     start_gateway()
    start_shop  start_shop(url, 'reserve', work_ms=300) -> a running support.shop.Shop

A missing program or server is an error, never a skip, but for Kafka on a developer's machine without a
JDK.  Tests wait by wait_until(), never by time.
"""
import os
import pathlib
import shutil
import signal
import sys
import tempfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from support import Binaries, Postgres, Processes, Store  # noqa: E402
from support.gateway import Gateway  # noqa: E402
from support.relay import Outbox, Relay  # noqa: E402
from support.shop import Shop  # noqa: E402
from support.upstream import Upstream  # noqa: E402


def pytest_configure(config):
    # Told to end, the run still ends what it started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    config.addinivalue_line('markers', 'kafka: semel must have been built with Kafka; implied by the '
                                       'fixtures kafka and kafka_own')
    config.addinivalue_line('markers', 'preload: loads a library before the program, where a sanitizer '
                                       'must come first')


def pytest_collection_modifyitems(config, items):
    """The thread sanitizer's build has no Kafka (tools/test-all), and no sanitizer takes a library
    before itself: such tests run in the other builds."""
    kind = os.environ.get('SEMEL_BUILD_KIND')
    if kind not in ('asan', 'tsan'):
        return
    out = [i for i in items if i.get_closest_marker('preload') or kind == 'tsan' and (
        i.get_closest_marker('kafka') or {'kafka', 'kafka_own'} & set(getattr(i, 'fixturenames', ())))]
    items[:] = [i for i in items if i not in out]
    config.hook.pytest_deselected(items=out)


@pytest.hookimpl(tryfirst=True, hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    setattr(item, 'report_' + outcome.get_result().when, outcome.get_result())


@pytest.fixture(scope='session')
def build():
    return Binaries()


@pytest.fixture
def tmp(request):
    path = pathlib.Path(tempfile.mkdtemp(prefix='semel-test-'))
    yield path
    report = getattr(request.node, 'report_call', None)
    if report is not None and report.failed:
        print(f'kept for a look: {path}')
    else:
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(autouse=True)
def state_dir(tmp, monkeypatch):
    """Nothing of a test goes to the real state directory."""
    monkeypatch.setenv('SEMEL_STATE_DIR', str(tmp / 'state'))
    monkeypatch.delenv('SEMEL_DB', raising=False)
    return tmp / 'state'


@pytest.fixture
def procs(tmp):
    logs = tmp / 'logs'
    logs.mkdir()
    p = Processes(logs)
    yield p
    complaints = p.close()
    assert not complaints, '\n'.join(complaints)


@pytest.fixture
def semel(build, procs):
    def run(*args, timeout=60.0, **kw):
        return procs.run([build.semel, *args], timeout=timeout, **kw)
    return run


@pytest.fixture(scope='session')
def pg():
    server = Postgres().start()
    yield server
    server.close()


@pytest.fixture
def pg_own():
    server = Postgres().start()
    yield server
    server.close()


def kafka_or_skip(make=None):
    from support.kafka import Kafka, NoKafka  # its client takes a moment to load
    try:
        return (make or Kafka)().start()
    except NoKafka as e:
        if os.environ.get('CI'):
            raise
        pytest.skip(str(e))


@pytest.fixture(scope='session')
def start_kafka():
    return kafka_or_skip


@pytest.fixture(scope='session')
def kafka():
    server = kafka_or_skip()
    yield server
    server.close()


@pytest.fixture
def kafka_own():
    server = kafka_or_skip()
    yield server
    server.close()


@pytest.fixture
def pg_db(pg):
    name = pg.new_database()
    yield name
    pg.drop_database(name)


@pytest.fixture
def pg_url(pg, pg_db):
    return pg.url(pg_db)


@pytest.fixture
def sqlite_url(tmp):
    return f'sqlite:{tmp}/semel.db'


@pytest.fixture
def pg_store_url(semel, pg_url):
    r = semel('migrate', '--db', pg_url)
    assert r.returncode == 0, r.logs()
    return pg_url


@pytest.fixture(params=['sqlite', 'postgres'])
def store_url(request):
    return request.getfixturevalue('sqlite_url' if request.param == 'sqlite' else 'pg_store_url')


@pytest.fixture
def start_shop(procs, build):
    return lambda url, mode='reserve', **options: Shop(procs, build.shop, url, mode, **options)


@pytest.fixture
def store(build, store_url):
    return Store(build, store_url)


@pytest.fixture
def outbox(pg_store_url):
    o = Outbox(pg_store_url)
    yield o
    o.close()


@pytest.fixture
def start_relay(procs, build, pg_store_url, kafka):
    def start(url=pg_store_url, **options):
        return Relay(procs, build, url, kafka.bootstrap, **options)
    return start


@pytest.fixture
def upstream():
    u = Upstream()
    yield u
    u.close()


@pytest.fixture
def start_gateway(procs, build, upstream, tmp, sqlite_url):
    def start(*options, config=None, url=None, prefix=()):
        if config is not None:
            (tmp / 'gateway.yaml').write_text(config)
            options += ('--config', str(tmp / 'gateway.yaml'))
        return Gateway(procs, build.semel, url or upstream.url, sqlite_url, *options, prefix=prefix)
    return start


@pytest.fixture
def gateway(start_gateway):
    return start_gateway()
