# SPDX-License-Identifier: Apache-2.0
"""What a broker wrote into its files: has it kept its own promise about transactions?

A transaction coordinator that has written PREPARE_COMMIT has committed; its markers must then come to each
partition of the transaction, whatever restarts.  Apache Kafka 4.4.0, killed in between, was seen to write
COMPLETE_COMMIT after its start without having sent them: the records stay open, and share the fate of the
next transaction of that producer, partition by partition.  No client can make that whole, and a test of
exactly-once says nothing on such a broker.

The formats: record batches of magic 2, and TransactionLogValue."""
import collections
import struct

PREPARE_COMMIT, COMPLETE_COMMIT = 2, 4
CONTROL, COMMIT = 0x20, 1
HEAD = struct.Struct('>qiibIhiqqqhii')  # a batch up to its records


def varint(data, at):
    """An unsigned one: (value, what follows)."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7f) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def signed(data, at):
    value, at = varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def batches(partition):
    """(attributes, producer id, epoch, number of records, their bytes) of each batch."""
    for path in sorted(partition.glob('*.log')):
        data, at = path.read_bytes(), 0
        while at + HEAD.size <= len(data):
            _, size, _, _, _, attributes, _, _, _, producer, epoch, _, count = HEAD.unpack_from(data, at)
            if size == 0:
                break  # room that was reserved
            yield attributes, producer, epoch, count, data[at + HEAD.size:at + 12 + size]
            at += 12 + size


def records(data, count):
    """(key, value) of each record of an uncompressed batch."""
    at = 0
    for _ in range(count):
        size, at = signed(data, at)
        end = at + size
        at += 1
        for _ in ('timestamp', 'offset'):
            _, at = signed(data, at)
        pieces = []
        for _ in ('key', 'value'):
            n, at = signed(data, at)
            pieces.append(data[at:at + max(n, 0)])
            at += max(n, 0)
        yield pieces
        at = end


def partitions_of(value, at):
    """The names of a transaction's partitions, as their folders are called."""
    topics, at = varint(value, at)
    for _ in range(topics - 1):
        n, at = varint(value, at)
        topic, at = value[at:at + n - 1].decode(), at + n - 1
        n, at = varint(value, at)
        for _ in range(n - 1):
            yield f'{topic}-{struct.unpack_from(">i", value, at)[0]}'
            at += 4
        _, at = varint(value, at)  # tagged fields: none that matter


def committed(data_dir):
    """How many transactions of (producer id, epoch) were committed, by partition."""
    counts, prepared = collections.defaultdict(collections.Counter), {}
    for state in sorted(data_dir.glob('__transaction_state-*')):
        for _, _, _, count, body in batches(state):
            for _, value in records(body, count):
                if len(value) < 17:
                    continue
                producer, epoch, _, status = struct.unpack_from('>qhib', value, 2)
                if status == PREPARE_COMMIT:
                    prepared[producer] = (epoch, list(partitions_of(value, 17)))
                elif status == COMPLETE_COMMIT and producer in prepared:
                    epoch, partitions = prepared.pop(producer)
                    for name in partitions:
                        counts[name][producer, epoch] += 1
    return counts


def lost_markers(data_dir, topics):
    """(partition, producer id, epoch, transactions committed, markers written) where they differ."""
    lost = []
    for name, expected in committed(data_dir).items():
        if name.rpartition('-')[0] not in topics:
            continue
        written = collections.Counter()
        for attributes, producer, epoch, count, body in batches(data_dir / name):
            if attributes & CONTROL:
                key, _ = next(records(body, count))
                written[producer, epoch] += struct.unpack_from('>h', key, 2)[0] == COMMIT
        lost += [(name, *who, n, written[who]) for who, n in expected.items() if written[who] < n]
    return lost
