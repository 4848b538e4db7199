# SPDX-License-Identifier: Apache-2.0
"""The reader of a broker's files that the storm of exactly-once rests on (support/kafka_log.py) sees what
is there, and what is not."""
import shutil

import confluent_kafka
import pytest

from support.kafka import quiet
from support.kafka_log import HEAD, committed, lost_markers
from support.wait import wait_until

pytestmark = pytest.mark.kafka


def last_batch(data):
    """Where it begins."""
    at = last = 0
    while at < len(data):
        last, at = at, at + 12 + HEAD.unpack_from(data, at)[1]
    return last


def test_a_marker_that_is_not_there_is_lost(kafka, tmp):
    topic = kafka.new_topic(1)
    partition = f'{topic}-0'
    p = confluent_kafka.Producer(quiet(kafka.bootstrap, transactional_id=topic))
    p.init_transactions(30)
    for value in 'ab':
        p.begin_transaction()
        p.produce(topic, value)
        p.commit_transaction(30)
    wait_until(lambda: sum(committed(kafka.data)[partition].values()) == 2, what='COMPLETE_COMMIT, twice')
    assert lost_markers(kafka.data, (topic,)) == []

    copy = tmp / 'data'
    for folder in kafka.data.glob('__transaction_state-*'):
        shutil.copytree(folder, copy / folder.name)
    shutil.copytree(kafka.data / partition, copy / partition)
    log, = (copy / partition).glob('*.log')
    data = log.read_bytes()
    log.write_bytes(data[:last_batch(data)])
    (where, _, _, transactions, markers), = lost_markers(copy, (topic,))
    assert (where, transactions, markers) == (partition, 2, 1)
