/* SPDX-License-Identifier: Apache-2.0
 *
 * limits: every maximum of semel in one place, each with its reason.
 */
#ifndef CORE_LIMITS_H
#define CORE_LIMITS_H

#include <stdint.h>

#define MS INT64_C(1000)            /* one millisecond in microseconds */
#define SECOND (1000 * MS)          /* one second in microseconds */
#define HOUR (3600 * SECOND)

enum {
        /* A key longer than an index row can hold once gave another product a 500 at random
         * (H46); only its digest is indexed here, and 255 is what Stripe allows. */
        LIMIT_KEY_BYTES = 255,
        LIMIT_SCOPE_BYTES = 255,
        LIMIT_OPERATION_BYTES = 255,
        LIMIT_HOLDER_BYTES = 255,
        LIMIT_REASON_BYTES = 1024,

        /* Headers of one kept reply: nginx and node send at most 8..16 KiB by default. */
        LIMIT_REPLY_HEADERS_BYTES = 64 * 1024,
        LIMIT_REPLY_HEADERS = 256,
        LIMIT_REPLY_BODY_DEFAULT_BYTES = 1024 * 1024,
        LIMIT_REPLY_BODY_BYTES = 64 * 1024 * 1024,

        /* One batch of a store: more operations no longer raise the rate (measured with arrays of
         * 32 to 512), and more bytes would make a half-sent pipeline likelier (rule B3). */
        LIMIT_BATCH_OPS = 256,
        LIMIT_BATCH_BYTES = 1024 * 1024,

        /* Operations waiting in one store; past it, submit answers BUSY at once: a queue that is
         * not bounded is memory growth and latency without end. */
        LIMIT_QUEUE_OPS = 16384,

        /* Claims whose outcome is unknown because the store went away (rule A7); past it, the
         * oldest is dropped and ends as UNKNOWN when its lease is over. */
        LIMIT_ORPHAN_CLAIMS = 1024,

        /* Heads of HTTP messages.  nginx and Apache stop a client at 32 KiB and 8 KiB, and a head is
         * buffered whole; 128 lines are more than any browser behind three proxies sends. */
        LIMIT_HTTP_HEAD_BYTES = 32 * 1024,
        LIMIT_HTTP_HEADERS = 128,
        LIMIT_HTTP_METHOD_BYTES = 32,

        /* What a chunked body may carry besides its data: one chunk's line, and all extensions and
         * trailers together.  Without a bound a sender makes us read megabytes for one byte of
         * body.  Both are dropped. */
        LIMIT_HTTP_CHUNK_LINE_BYTES = 256,
        LIMIT_HTTP_CHUNK_EXTRA_BYTES = 16 * 1024,

        /* Interim (1xx) replies before the final one: each is a head that we read for nothing. */
        LIMIT_HTTP_INTERIM = 16,

        /* JSON in canonical form: deeper than any real document, and 17 digits say all that a number can
         * hold.  Past either, the body is compared as bytes. */
        LIMIT_JSON_DEPTH = 64,
        LIMIT_JSON_NUMBER_BYTES = 256,

        /* Multipart bodies compared by parts: browsers and HTTP libraries write two or three short
         * header lines for a part.  Past it, the body is compared as bytes. */
        LIMIT_PART_HEAD_BYTES = 8 * 1024,

        /* An outbound call: what it adds to its own headers, and what it sends.  The body is kept
         * in memory, since each attempt sends the same bytes. */
        LIMIT_CALL_HEADERS = 64,
        LIMIT_CALL_HEADER_BYTES = 8 * 1024,
        LIMIT_CALL_URL_BYTES = 8 * 1024,
        LIMIT_CALL_BODY_BYTES = 64 * 1024 * 1024,

        /* One purge or list step: short transactions, so that nobody waits behind them. */
        LIMIT_SWEEP_ROWS = 500,

        /* One batch of the relay: 5,000 rows reach the rate that reading, publishing and deleting
         * alone allow, and more bytes than this would only be memory. */
        LIMIT_OUTBOX_BATCH_ROWS = 5000,
        LIMIT_OUTBOX_BATCH_BYTES = 8 * 1024 * 1024,
        /* Keys that a lane remembers as blocked.  Past it no new rows are read of a slot with DEAD rows that
         * block; what only waits is remembered by the database. */
        LIMIT_OUTBOX_BLOCKED_KEYS = 4096,
        /* Prune, retry and republish go in short transactions. */
        LIMIT_OUTBOX_PRUNE_ROWS = 1000,
        /* One transaction of the inbox: past some hundred events the commit no longer matters, and
         * what fails is done again. */
        LIMIT_INBOX_BATCH_ROWS = 1000,
        LIMIT_INBOX_BATCH_BYTES = 4 * 1024 * 1024,
        LIMIT_INBOX_NAME_BYTES = 255, /* consumer, source, event id: together an index row */
        LIMIT_INBOX_REASON_BYTES = 1024,
        LIMIT_INBOX_PRUNE_ROWS = 1000,
        /* Messages that wait in a consumer, all partitions together. */
        LIMIT_CONSUME_QUEUED_BYTES = 64 * 1024 * 1024,
        LIMIT_CONSUME_QUEUED_ROWS = 20000, /* of one partition */
        LIMIT_CONSUME_PARTITIONS = 4096,
        /* Events as they are appended. */
        LIMIT_EVENT_TOPIC_BYTES = 249, /* Kafka's */
        LIMIT_EVENT_KEY_BYTES = 4096,
        LIMIT_EVENT_HEADERS = 64,
        LIMIT_EVENT_HEADERS_BYTES = 64 * 1024,
        LIMIT_EVENT_PAYLOAD_BYTES = 64 * 1024 * 1024,
};

#define LIMIT_LEASE_US (24 * HOUR)
#define LIMIT_RETENTION_US (INT64_C(3650) * 24 * HOUR)
#define LIMIT_WAIT_US (30 * SECOND)

#define DEFAULT_LEASE_US (60 * SECOND)
#define DEFAULT_CALL_DEADLINE_US (60 * SECOND)
#define DEFAULT_CALL_ATTEMPT_US (10 * SECOND)
#define DEFAULT_RETENTION_US (24 * HOUR)
/* Kafka keeps an event for retention.ms after the youngest one of its segment, which is segment.ms
 * younger at most: 7 days each, unless told.  The settings say it too: 360h, 15d. */
#define DEFAULT_INBOX_RETENTION_US (15 * 24 * HOUR)
#define DEFAULT_CALL_TIMEOUT_US (5 * SECOND)

#endif
