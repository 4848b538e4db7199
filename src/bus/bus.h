/* SPDX-License-Identifier: Apache-2.0
 *
 * bus: Kafka, as the relay and the consumer use it.  The only folder that knows librdkafka.
 *
 * Blocking calls with a timeout; a producer or consumer belongs to one thread.
 */
#ifndef BUS_BUS_H
#define BUS_BUS_H

#include "base/buf.h"
#include "base/err.h"
#include "core/event.h"

/* -- settings -------------------------------------------------------------------------------- */

enum { BUS_PROPERTIES_MAX = 128 };

struct bus_property {
        const char *name, *value;
};

/* librdkafka's properties, later ones win over earlier ones; borrowed.  Ours (acks=all,
 * enable.idempotence, murmur2_random, message.timeout.ms=0, max.in.flight ...) come last where a
 * promise rests on them: setting one of them to something else is an error that says why. */
struct bus_config {
        const char *brokers; /* HOST:PORT,... */
        const struct bus_property *property;
        size_t property_count;
        /* librdkafka's own log lines (already without secrets); from any thread.  NULL: dropped */
        void (*log)(void *arg, int level, const char *line);
        void *log_arg;
};

/* Check the properties without connecting.  Errors: SEMEL_ERR_ARGUMENT, which names the property. */
semel_code bus_config_check(const struct bus_config *config, semel_error *err);

/* -- producer -------------------------------------------------------------------------------- */

/* What became of a message. */
enum bus_report_kind {
        BUS_DELIVERED,
        BUS_REJECTED,  /* the broker says no to this message (too large, policy, authorisation,
                          invalid record): it was not written, and will not be */
        BUS_TRANSIENT, /* not written as far as is known; the same message may succeed later
                          (unknown topic, broker away) */
        BUS_PURGED,    /* by bus_producer_abandon(): it may or may not have been written */
        BUS_BROKEN,    /* fatal or ambiguous: it may have been written; the producer is finished */
};

/* A broker answers for a record batch, and librdkafka reads no further: each message of the batch gets that
 * answer. */
enum bus_report_cause {
        BUS_CAUSE_MESSAGE, /* this message, its topic, or the way to it */
        BUS_CAUSE_BATCH,   /* some message of the batch; nobody knows which */
        BUS_CAUSE_SIZE,    /* the batch's bytes; each message may be small enough */
};

struct bus_report {
        void *opaque; /* the message's */
        enum bus_report_kind kind;
        enum bus_report_cause cause; /* REJECTED, TRANSIENT: what the answer is about */
        const char *text; /* not DELIVERED: librdkafka's words; valid inside the callback */
        const char *name; /* a short stable name, "MSG_SIZE_TOO_LARGE" */
        int32_t partition;
        int64_t offset;
};

struct bus_producer;

/* transactional_id NULL: an idempotent producer without transactions.
 * on_report called inside bus_producer_poll(), bus_producer_flush(), bus_producer_abandon(),
 *           bus_topic_look() and bus_tx_*().
 * For strict order the caller sends one message of a key at a time. */
semel_code bus_producer_open(const struct bus_config *config, const char *transactional_id,
                             int64_t transaction_timeout_us,
                             void (*on_report)(void *arg, const struct bus_report *report),
                             void *arg, struct bus_producer **ret, semel_error *err);

enum bus_produced {
        BUS_QUEUED,   /* a report will come */
        BUS_FULL,     /* queue full, or the topic takes no larger batch (bus_topic_look): poll, then
                         try again */
        BUS_REFUSED,  /* never: err says why (larger than message.max.bytes, bad partition) */
        BUS_FATAL,    /* the producer is finished: close it and open another.  Inside a transaction,
                         where bus_producer_is_fatal() says no, only this transaction is: abort it */
};

/* Queue one message.  event->payload and key are BORROWED until its report (no copy); headers are
 * copied.  The header `event-id` is added first, then `traceparent`, then the event's own. */
enum bus_produced bus_produce(struct bus_producer *p, const struct event *event, void *opaque,
                              semel_error *err);

/* Serve reports for up to timeout_us, returning as soon as some came.  Returns how many messages are
 * still unreported. */
size_t bus_producer_poll(struct bus_producer *p, int64_t timeout_us);
/* The same when nothing more will be queued for now: batches do not wait to become fuller (linger.ms),
 * and it returns when all reports have come, or in the middle when the time is over.  Both return behind the
 * report of a message that was not taken, too: whoever wants no more sent throws the producer away. */
size_t bus_producer_flush(struct bus_producer *p, int64_t timeout_us);
size_t bus_producer_unreported(const struct bus_producer *p);

/* There was no report: *err says so, and here why, if that is known. */
void bus_producer_explain(const struct bus_producer *p, semel_error *err);

/* Is it fatal by now?  *err then says why. */
bool bus_producer_is_fatal(struct bus_producer *p, semel_error *err);

/* Throw the queue and what is in flight away: every unreported message gets its report (PURGED), here.
 * The producer can only be closed after it. */
void bus_producer_abandon(struct bus_producer *p);
void bus_producer_close(struct bus_producer *p); /* abandons first; NULL is fine */
/* An open transaction stays open at the broker, and holds up all that read committed records behind it,
 * until its timeout or the next bus_tx_init() with its id: abort it before, where that is possible. */

/* Does the topic exist, and how large may a record be?  Also fetches the metadata, so that the
 * first record does not wait (measured: 1 s).  Cached by the producer for a minute; that a topic
 * does not exist, for a second.
 * *ret_exists false: not now (it may be made later; auto-creation is tried).
 * *ret_bytes_max: of the record batch, from the topic's max.message.bytes; 0: not known, or records are
 * compressed, so that only the broker can tell.
 * Errors: SEMEL_ERR_STORE_DOWN (no broker answers within the timeout), SEMEL_ERR_ACCESS (the same, and it
 * is known that the password or a certificate is refused). */
semel_code bus_topic_look(struct bus_producer *p, const char *topic, int64_t timeout_us,
                          bool *ret_exists, int64_t *ret_bytes_max, semel_error *err);

/* At the last look: why it does not exist, or is as good as none: the broker's name for that and its text, both
 * for ever valid.  A topic that we may not see is asked about in vain too. */
void bus_topic_why_not(struct bus_producer *p, const char *topic, const char **ret_name, const char **ret_text);

/* At the last look: how many partitions of the topic have no leader, or fewer replicas in sync than
 * min.insync.replicas?  What goes to one of them waits inside, without a report and without an end.  Such a
 * topic is looked at again after a second. */
size_t bus_topic_stuck(struct bus_producer *p, const char *topic);
/* Does this message go there?  (One without a key goes to another partition, where there is one.) */
bool bus_is_stuck(struct bus_producer *p, const struct event *event);

/* The bytes of a record batch of this message alone, to the byte; before compression. */
size_t bus_record_bytes_max(const struct event *event);

/* -- transactions -------------------------------------------------------------------------------- */

enum bus_tx_result {
        BUS_TX_OK,
        BUS_TX_AGAIN,   /* call the same function again (a commit that timed out) */
        BUS_TX_ABORT,   /* abort it; then another may begin.  (After one with a rejected record the
                           next may be aborted once more: librdkafka 2.0.2 leaves a gap in its
                           sequence numbers.  It is nobody's fault, and no row's.) */
        BUS_TX_UNKNOWN, /* fenced, fatal or ambiguous: close the producer, open another, recover.
                           It does not prove that another relay exists (rule C9) */
};

enum bus_tx_result bus_tx_init(struct bus_producer *p, int64_t timeout_us, semel_error *err);
enum bus_tx_result bus_tx_begin(struct bus_producer *p, semel_error *err);
enum bus_tx_result bus_tx_commit(struct bus_producer *p, int64_t timeout_us, semel_error *err);
enum bus_tx_result bus_tx_abort(struct bus_producer *p, int64_t timeout_us, semel_error *err);

/* The last committed record with this key in a compacted topic of one partition, read to its end
 * (read_committed).  The topic is made (cleanup.policy=compact, 1 partition) when it is missing.
 * *ret_found false: none.  The value is copied into `value`. */
semel_code bus_marker_read(const struct bus_config *config, const char *topic, struct span key,
                           int64_t timeout_us, bool *ret_found, struct buf *value,
                           semel_error *err);

/* Is this librdkafka's mock cluster (`semel dev-broker`)?  It keeps nothing and does not isolate
 * transactions, so exactly-once refuses it. */
semel_code bus_is_mock(const struct bus_config *config, int64_t timeout_us, bool *ret_mock,
                       semel_error *err);

/* -- consumer -------------------------------------------------------------------------------- */

struct bus_message {
        struct event event;  /* topic, key, payload, headers; id and traceparent are not filled in */
        int32_t partition;
        int64_t offset;
        int64_t timestamp_us; /* 0: none */
        void *driver;
};
void bus_message_free(struct bus_message *m);

struct bus_partition {
        const char *topic;
        int32_t partition;
        int64_t offset; /* the next one to be read */
};

struct bus_consumer;

/* Both run inside bus_consume(), bus_consumer_leave() and bus_consumer_close(), on the caller's thread.  When
 * `revoked` returns, the partitions are given up: finish, commit in the database, store the
 * offsets (bus_consumer_commit) inside it.  `lost`: they are somebody else's already; committing
 * is useless. */
struct bus_consumer_hooks {
        void (*assigned)(void *arg, const struct bus_partition *p, size_t n);
        void (*revoked)(void *arg, const struct bus_partition *p, size_t n, bool lost);
        void *arg;
};

/* Manual commits, auto.offset.reset=earliest, the eager range assignor, session.timeout.ms=6000
 * unless given, max.poll.interval.ms as given; topics that do not exist yet are waited for. */
semel_code bus_consumer_open(const struct bus_config *config, const char *group,
                             const char *const *topics, size_t topic_count,
                             const struct bus_consumer_hooks *hooks, struct bus_consumer **ret,
                             semel_error *err);

/* The next message, or *ret NULL when none came in time.  Errors: SEMEL_ERR_STORE_DOWN (goes on by
 * itself; for the log), SEMEL_ERR_LOST (put out of the group, since max.poll.interval.ms is over; comes
 * back by itself, after `revoked` with lost), SEMEL_ERR_ACCESS, SEMEL_ERR_INTERNAL (fatal: close, open
 * another). */
semel_code bus_consume(struct bus_consumer *c, int64_t timeout_us, struct bus_message **ret,
                       semel_error *err);

/* Stop or go on delivering one partition; what was fetched but not delivered is not lost. */
semel_code bus_consumer_pause(struct bus_consumer *c, const char *topic, int32_t partition,
                              bool paused, semel_error *err);

/* Commit "the next offset to read" of these partitions and wait for the answer.  A generation that
 * is over is SEMEL_ERR_LOST: never fatal, the database's record covers it (O73). */
semel_code bus_consumer_commit(struct bus_consumer *c, const struct bus_partition *p, size_t n,
                               semel_error *err);

/* End offset minus p->offset; 0 when no message is left before the end; -1: not known.  It counts offsets,
 * of which those that transactions leave behind are no messages. */
int64_t bus_consumer_lag(struct bus_consumer *c, const struct bus_partition *p);

/* How long an event may stay in a topic: retention.ms and segment.ms together, since Kafka deletes whole
 * segments, by their youngest record.  0 when unknown, -1 when for ever (rule D5). */
semel_code bus_topic_retention(struct bus_consumer *c, const char *topic, int64_t timeout_us,
                               int64_t *ret_ms, semel_error *err);

/* Leave the group (revokes first); only close comes after it. */
void bus_consumer_leave(struct bus_consumer *c);
/* Leaves the group, if need be, and frees.  Waits until every message is freed.  NULL is fine. */
void bus_consumer_close(struct bus_consumer *c);

/* -- the mock cluster -------------------------------------------------------------------------- */

enum { BUS_MOCK_BROKERS_MAX = 8, BUS_MOCK_PARTITIONS_MAX = 64, BUS_MOCK_PARTITIONS_DEFAULT = 4 };

struct bus_mock;
/* A topic that is made by its first use has BUS_MOCK_PARTITIONS_DEFAULT partitions: librdkafka 2.0.2
 * has no knob for it.  Make it before with bus_mock_topic() to have another number. */
semel_code bus_mock_new(int brokers, struct bus_mock **ret, semel_error *err);
semel_code bus_mock_topic(struct bus_mock *mock, const char *topic, int partitions,
                          semel_error *err);
const char *bus_mock_bootstrap(const struct bus_mock *mock);
/* For tests: the next `count` requests of this Kafka API key answer with this error code. */
void bus_mock_fail(struct bus_mock *mock, int16_t api_key, int16_t error, size_t count);
/* For tests: no broker can be reached; every answer takes so long. */
void bus_mock_set_down(struct bus_mock *mock, bool down);
void bus_mock_set_rtt(struct bus_mock *mock, int64_t rtt_us);
void bus_mock_free(struct bus_mock *mock);

#endif
