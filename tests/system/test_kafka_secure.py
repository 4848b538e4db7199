# SPDX-License-Identifier: Apache-2.0
"""`semel relay` and `semel consume` on a Kafka that wants TLS and a password, or a certificate.  Who is
not let in says why in one sentence, is not ready, gives nothing up, and goes on when it is let in; the
secret is in nobody's output."""
import urllib.error
import urllib.request

import pytest

from support import wait_until
from support.relay import Relay, drained, in_order

pytestmark = pytest.mark.kafka

WRONG, KEY_SECRET = 'wrong-7Yp3nR1z', 'key-4Tb9wLm6'
ROWS = 300
EFFECT = 'INSERT INTO effect (id, key) VALUES ($3, $1)'
NOT_LET_IN = r'Kafka does not let us in: .*Authentication failed'
NOT_TRUSTED = r'no TLS with Kafka: .*certificate verify failed.*ssl.ca.location'


@pytest.fixture(scope='module')
def secure(start_kafka):
    from support.kafka_secure import SecureKafka
    server = start_kafka(SecureKafka)
    yield server
    server.close()


def by_password(secure, mechanism='PLAIN', password=None, trusts=None):
    from support.kafka_secure import PASSWORD, USER
    return secure.at('SASL'), {
        'security.protocol': 'SASL_SSL', 'sasl.mechanism': mechanism, 'sasl.username': USER,
        'sasl.password': password or PASSWORD, 'ssl.ca.location': trusts or secure.ca.cert}


def by_certificate(secure):
    cert, key = secure.ca.issue('client', KEY_SECRET)
    return secure.at('MUTUAL'), {
        'security.protocol': 'SSL', 'ssl.ca.location': secure.ca.cert, 'ssl.certificate.location': cert,
        'ssl.key.location': key, 'ssl.key.password': KEY_SECRET}


class World:
    def __init__(self, procs, build, url, outbox, tmp):
        self.procs, self.build, self.url, self.outbox, self.tmp = procs, build, url, outbox, tmp
        self.files = 0
        outbox.sql('CREATE TABLE effect (id text PRIMARY KEY, key text)')

    def given(self, properties, how):
        """The properties as options, in a file, or with the secret in the environment."""
        secrets = {k: v for k, v in properties.items() if k.endswith('password')}
        if how == 'options':
            return [a for k, v in properties.items() for a in ('--kafka', f'{k}={v}')], None
        shown = properties if how == 'file' else {k: v for k, v in properties.items() if k not in secrets}
        self.files += 1
        path = self.tmp / f'{self.files}.yaml'
        path.write_text('kafka:\n' + ''.join(f'  {k}: {v}\n' for k, v in shown.items()))
        env = {'SEMEL_KAFKA': ';'.join(f'{k}={v}' for k, v in secrets.items())} if how == 'environment' else None
        return ['--config', str(path)], env

    def relay(self, where, how='options', **options):
        args, env = self.given(where[1], how)
        return Relay(self.procs, self.build, self.url, where[0], args=args, env=env, **options)

    def consume(self, where, topic, how='options', group='g'):
        args, env = self.given(where[1], how)
        return Consumer(self.procs.start(
            [self.build.semel, 'consume', '--db', self.url, '--brokers', where[0], '--topic', topic,
             '--group', group, '--sql', EFFECT, '--admin', '127.0.0.1:0', *args], name='consume', env=env))

    def effects(self):
        return self.outbox.one('SELECT count(*) FROM effect')

    def wait_effects(self, n=ROWS):
        wait_until(lambda: self.effects() == n, 30, f'{n} effects')

    def all_is_done(self, secure, topic, how):
        """By a relay and a consumer that are let in."""
        relay = self.relay(by_password(secure), how)
        consumer = self.consume(by_password(secure), topic)
        self.outbox.wait_empty()
        self.wait_effects()
        drained(relay, consumer)
        assert in_order(secure.consume_all(topic)) == (ROWS, 0)

    def nothing_was_given_up(self, rows=ROWS):
        assert self.outbox.count() == self.outbox.count('PENDING') == rows
        assert self.outbox.one('SELECT max(attempts) FROM semel.outbox') == 0

    def secrets_are_kept(self, *secrets):
        for p in self.procs.all:
            for secret in secrets:
                assert secret not in p.logs(), f'{p.name} says {secret}'


class Consumer:
    def __init__(self, p):
        self.p = p
        self.port = p.wait_log(r'admin listener on port (\d+)', 20).group(1)

    def ready(self):
        try:
            with urllib.request.urlopen(f'http://127.0.0.1:{self.port}/readyz', timeout=10) as r:
                return r.status == 200
        except urllib.error.HTTPError as e:
            assert e.code == 503
            return False


@pytest.fixture
def world(procs, build, pg_store_url, outbox, tmp, secure):
    from support.kafka_secure import PASSWORD
    w = World(procs, build, pg_store_url, outbox, tmp)
    yield w
    w.secrets_are_kept(PASSWORD, WRONG, KEY_SECRET)


@pytest.mark.parametrize('mode,way,how', [('owned', 'PLAIN', 'options'), ('exactly-once', 'PLAIN', 'file'),
                                          ('owned', 'certificate', 'file')])
def test_events_go_there_and_back(world, secure, mode, way, how):
    topic = secure.new_topic(3)
    world.outbox.fill(topic, ROWS, keys=20)
    where = by_certificate(secure) if way == 'certificate' else by_password(secure, way)
    relay = world.relay(where, how, mode=mode, batch_rows=50)
    consumer = world.consume(where, topic, how)
    world.outbox.wait_empty()
    world.wait_effects()
    assert relay.ready() and consumer.ready()
    drained(relay, consumer)
    assert in_order(secure.consume_all(topic)) == (ROWS, 0)


def test_scram_works_or_says_that_this_librdkafka_cannot(world, secure):
    topic = secure.new_topic(3)
    world.outbox.fill(topic, ROWS, keys=20)
    relay = world.relay(by_password(secure, 'SCRAM-SHA-256'), 'environment')
    refused = 'librdkafka before 2.6.1 cannot log in to Kafka 4 by SCRAM'
    wait_until(lambda: world.outbox.count() == 0 or refused in relay.p.err(), 20, 'either of both')
    if refused in relay.p.err():
        world.nothing_was_given_up()
    else:
        assert in_order(secure.consume_all(topic)) == (ROWS, 0)
    drained(relay)


def test_a_wrong_password(world, secure):
    topic = secure.new_topic(3)
    world.outbox.fill(topic, ROWS, keys=20)
    wrong = by_password(secure, password=WRONG)
    relay = world.relay(wrong)
    relay.p.wait_log(f'no way to the broker.*{NOT_LET_IN}', 20)
    wait_until(lambda: not relay.ready())
    world.nothing_was_given_up()
    drained(relay)  # it ends as any other
    assert relay.p.logs().count('the broker answers again') == 0
    consumer = world.consume(wrong, topic, 'file')
    consumer.p.wait_log(NOT_LET_IN, 20)
    assert not consumer.ready()
    # the mode is of the database: the other relay has given it up
    strict = world.relay(wrong, 'environment', wait=False, mode='exactly-once')
    assert strict.p.wait(40) == 69
    assert len([s for s in strict.p.err().splitlines() if s.startswith('semel: Kafka does not let us in')]) == 1
    # some seconds of it, and it was said once
    assert consumer.p.logs().count('does not let us in') == 1
    assert not consumer.ready() and world.effects() == 0
    drained(consumer)
    world.nothing_was_given_up()
    # with the right one
    world.all_is_done(secure, topic, 'options')


def test_a_broker_that_is_not_trusted(world, secure):
    from support.kafka_secure import Authority
    topic = secure.new_topic(3)
    world.outbox.fill(topic, ROWS, keys=20)
    other = by_password(secure, trusts=Authority(world.tmp, 'stranger').cert)
    relay, consumer = world.relay(other, 'file'), world.consume(other, topic)
    relay.p.wait_log(f'no way to the broker.*{NOT_TRUSTED}', 20)
    consumer.p.wait_log(NOT_TRUSTED, 20)
    wait_until(lambda: not relay.ready())
    assert not consumer.ready()
    drained(relay, consumer)
    world.nothing_was_given_up()
    world.all_is_done(secure, topic, 'file')


def test_a_password_that_is_changed_and_changed_back(world, secure):
    """They run on meanwhile, and need no restart."""
    from support.kafka_secure import PASSWORD
    topic = secure.new_topic(3)
    where, properties = by_password(secure)
    soon = {'session.timeout.ms': 2000, 'heartbeat.interval.ms': 500}  # a member that cannot leave is missed
    relay, consumer = world.relay((where, properties)), world.consume((where, {**properties, **soon}), topic)
    world.outbox.fill(topic, ROWS, keys=20)
    world.wait_effects()
    world.outbox.wait_empty()
    secure.change_password(PASSWORD, WRONG)
    secure.restart()
    world.outbox.fill(topic, ROWS, keys=7)
    relay.p.wait_log(NOT_LET_IN, 30)
    consumer.p.wait_log(NOT_LET_IN, 30)
    wait_until(lambda: not relay.ready() and not consumer.ready(), 20)
    world.nothing_was_given_up()
    secure.change_password(WRONG, PASSWORD)
    secure.restart()
    world.outbox.wait_empty()
    world.wait_effects(2 * ROWS)
    wait_until(lambda: relay.ready() and consumer.ready(), 20)
    drained(relay, consumer)


def test_what_cannot_be_used_is_said_at_once(world, secure, semel):
    """A file that is not there, a secret that the key does not take."""
    _, properties = by_certificate(secure)
    for change, word in [({'ssl.ca.location': '/no/such/file'}, 'ssl.ca.location'),
                         ({'ssl.key.password': WRONG}, 'ssl.key')]:
        args, _ = world.given({**properties, **change}, 'options')
        r = semel('consume', '--db', world.url, '--brokers', secure.at('MUTUAL'), '--topic', 't', '--group',
                  'g', '--sql', EFFECT, *args)
        assert r.returncode == 64, r.logs()
        assert word in r.err()
