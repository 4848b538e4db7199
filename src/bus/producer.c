/* SPDX-License-Identifier: Apache-2.0
 *
 * producer: an idempotent producer whose records are either reported or may be sent again, in
 * their order.
 *
 * It never gives up a record by itself (message.timeout.ms=0): the caller's own deadline does, by
 * bus_producer_abandon() (rule C7).  One request is in flight per broker, so that a rejected record is
 * not overtaken by those of the next request (rule C7a).
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "bus/producer.h"
#include "bus/report.h"
#include "core/limits.h"
#include "sys/clock.h"

/* How long an abandoned producer may take to report what it had: it is memory work. */
#define ABANDON_US (10 * SECOND)

/* librdkafka's batch.size; a topic that takes less is sent less at a time (see has_room). */
enum { BATCH_BYTES = 1000000 };

/* Of a record batch; of the first record in it: attributes, and two differences that are 0. */
enum { BATCH_HEAD_BYTES = 61, RECORD_HEAD_BYTES = 3 };

static const char header_event_id[] = "event-id", header_traceparent[] = "traceparent";

/* -- reports ----------------------------------------------------------------------------------- */

bool bus_producer_is_fatal(struct bus_producer *p, semel_error *err)
{
        char why[256];
        rd_kafka_resp_err_t e = rd_kafka_fatal_error(p->rk, why, sizeof why);
        if (e && !p->broken) {
                p->broken = true;
                (void)err_set(&p->why, SEMEL_ERR_INTERNAL, "the Kafka producer is finished: %s (%s)",
                              why, rd_kafka_err2name(e));
        }
        if (p->broken)
                (void)err_copy(err, &p->why);
        return p->broken;
}

void bus_producer_explain(const struct bus_producer *p, semel_error *err)
{
        (void)bus_client_explain(&p->client, err->code, err);
}

static void on_delivery(rd_kafka_t *rk, const rd_kafka_message_t *m, void *opaque)
{
        const struct bus_client *client = opaque;
        struct bus_producer *p = client->owner;
        struct topic *t = rd_kafka_topic_opaque(m->rkt);
        struct bus_report report = {.opaque = m->_private, .partition = m->partition,
                                    .offset = m->offset};
        if (m->err) {
                report.kind = bus_report_kind_of(m->err, rd_kafka_message_status(m),
                                                 rd_kafka_fatal_error(rk, NULL, 0) != 0);
                report.cause = bus_report_cause_of(m->err);
                report.text = rd_kafka_err2str(m->err);
                report.name = rd_kafka_err2name(m->err);
        }
        if (report.kind == BUS_BROKEN && !bus_producer_is_fatal(p, NULL)) {
                p->broken = true;
                (void)err_set(&p->why, SEMEL_ERR_INTERNAL,
                              "a record of topic \"%s\" may or may not have been written: %s (%s)",
                              t->name, report.text, report.name);
        }
        if (!m->err)
                bus_client_forget_trouble(&p->client);
        p->unreported--;
        if (--t->unreported == 0)
                t->bytes = 0;
        p->on_report(p->arg, &report);
        /* The caller decides before another request is answered, and the one behind it sent (rule C7a). */
        if (report.kind != BUS_DELIVERED && report.kind != BUS_PURGED && !p->abandoned)
                rd_kafka_yield(rk);
}

/* -- opening and closing ----------------------------------------------------------------------- */

/* Then only the broker knows what a batch measures. */
static bool is_compressed(const struct bus_config *config)
{
        bool compressed = false;
        for (size_t i = 0; i < config->property_count; i++)
                if (strncmp(config->property[i].name, "compression.", strlen("compression.")) == 0 &&
                    strcmp(config->property[i].name, "compression.level") != 0)
                        compressed = strcmp(config->property[i].value, "none") != 0;
        return compressed;
}

semel_code bus_producer_open(const struct bus_config *config, const char *transactional_id,
                             int64_t transaction_timeout_us,
                             void (*on_report)(void *arg, const struct bus_report *report),
                             void *arg, struct bus_producer **ret, semel_error *err)
{
        char rows[16], kbytes[16], tx_ms[16];
        (void)snprintf(rows, sizeof rows, "%d", LIMIT_OUTBOX_BATCH_ROWS + 64);
        (void)snprintf(kbytes, sizeof kbytes, "%d",
                       (LIMIT_OUTBOX_BATCH_BYTES + LIMIT_EVENT_PAYLOAD_BYTES) / 1024 + 1024);
        (void)snprintf(tx_ms, sizeof tx_ms, "%d", bus_ms(transaction_timeout_us));
        const struct bus_fixed defaults[] = {
                /* The whole wave is queued first, and flushed then: with less, the first record of
                 * each partition is a request of its own, and the others wait for its answer. */
                {"linger.ms", "20"},
                {"retry.backoff.ms", "50"},
                {"queue.buffering.max.messages", rows},
                {"queue.buffering.max.kbytes", kbytes},
                {"message.max.bytes", "100000000"}, /* the topic's own limit decides */
                {NULL, NULL}};
        const struct bus_fixed fixed[] = {
                {"acks", "all"},
                {"enable.idempotence", "true"},
                {"max.in.flight", "1"},
                {"partitioner", "murmur2_random"},
                /* A transaction has one deadline for all its records, its own. */
                {"message.timeout.ms", transactional_id ? tx_ms : "0"},
                {transactional_id ? "transactional.id" : NULL, transactional_id},
                {"transaction.timeout.ms", tx_ms},
                {NULL, NULL}};

        struct bus_producer *p = calloc(1, sizeof *p);
        if (!p)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "out of memory");
        rd_kafka_conf_t *conf;
        semel_code rc = bus_conf_new(config, defaults, fixed, &p->client, &conf, err);
        if (rc != SEMEL_OK) {
                free(p);
                return rc;
        }
        p->client.owner = p;
        p->compressed = is_compressed(config);
        p->on_report = on_report;
        p->arg = arg;
        rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
        rd_kafka_conf_set_error_cb(conf, bus_client_on_error);
        rc = bus_client_open(conf, RD_KAFKA_PRODUCER, &p->rk, err);
        if (rc != SEMEL_OK) {
                bus_client_release(&p->client);
                free(p);
                return rc;
        }
        *ret = p;
        return SEMEL_OK;
}

void bus_producer_abandon(struct bus_producer *p)
{
        p->abandoned = true;
        if (!p->broken) {
                p->broken = true;
                (void)err_set(&p->why, SEMEL_ERR_INTERNAL, "the Kafka producer was abandoned; open another");
        }
        int64_t deadline = clock_boot_us() + ABANDON_US;
        while (p->unreported > 0 && clock_boot_us() < deadline) {
                (void)rd_kafka_purge(p->rk, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
                (void)rd_kafka_poll(p->rk, 10);
        }
}

void bus_producer_close(struct bus_producer *p)
{
        if (!p)
                return;
        bus_producer_abandon(p);
        topics_free(p);
        rd_kafka_destroy(p->rk);
        bus_client_release(&p->client);
        free(p);
}

/* -- producing --------------------------------------------------------------------------------- */

/* Kafka's numbers of lengths: 7 bits a byte, zigzag. */
static size_t varint_bytes(size_t n)
{
        size_t bytes = 1;
        for (n <<= 1; n >= 0x80; n >>= 7)
                bytes++;
        return bytes;
}

static size_t sized(size_t n)
{
        return varint_bytes(n) + n;
}

size_t bus_record_bytes_max(const struct event *event)
{
        size_t n = RECORD_HEAD_BYTES + sized(event->key.n) + sized(event->payload.n);
        size_t headers = event->header_count + 1;
        n += sized(sizeof header_event_id - 1) + sized(EVENT_ID_TEXT_BYTES - 1);
        if (event->traceparent.n > 0) {
                n += sized(sizeof header_traceparent - 1) + sized(event->traceparent.n);
                headers++;
        }
        for (size_t i = 0; i < event->header_count; i++)
                n += sized(event->headers[i].name.n) + sized(event->headers[i].value.n);
        return BATCH_HEAD_BYTES + sized(n + varint_bytes(headers));
}

/* A broker refuses a whole batch when it is larger than the topic allows, though each record
 * would fit.  So a topic that takes less than our batches is sent less at a time.  (That each record
 * counts with a batch's head is more than its larger differences take.) */
static bool has_room(const struct topic *t, const struct event *event)
{
        if (t->bytes_max == 0 || t->bytes_max >= BATCH_BYTES + BATCH_HEAD_BYTES ||
            t->unreported == 0)
                return true;
        return t->bytes + bus_record_bytes_max(event) <= (size_t)t->bytes_max;
}

static rd_kafka_headers_t *headers_of(const struct event *event)
{
        char id[EVENT_ID_TEXT_BYTES];
        rd_kafka_headers_t *h = rd_kafka_headers_new(event->header_count + 2);
        event_id_format(event->id, id);
        (void)rd_kafka_header_add(h, header_event_id, sizeof header_event_id - 1, id,
                                  EVENT_ID_TEXT_BYTES - 1);
        if (event->traceparent.n > 0)
                (void)rd_kafka_header_add(h, header_traceparent, sizeof header_traceparent - 1,
                                          event->traceparent.p, (ssize_t)event->traceparent.n);
        for (size_t i = 0; i < event->header_count; i++) {
                const struct event_header *own = &event->headers[i];
                const void *value = own->value.n > 0 ? (const void *)own->value.p : "";
                (void)rd_kafka_header_add(h, (const char *)own->name.p, (ssize_t)own->name.n,
                                          own->value_is_null ? NULL : value,
                                          (ssize_t)own->value.n);
        }
        return h;
}

static enum bus_produced refused(struct bus_producer *p, struct topic *t, rd_kafka_error_t *e,
                                 semel_error *err)
{
        rd_kafka_resp_err_t code = rd_kafka_error_code(e);
        enum bus_produced what = BUS_REFUSED;
        if (code == RD_KAFKA_RESP_ERR__QUEUE_FULL)
                what = BUS_FULL;
        else if (bus_producer_is_fatal(p, err) || code == RD_KAFKA_RESP_ERR__STATE ||
                 code == RD_KAFKA_RESP_ERR__FATAL || code == RD_KAFKA_RESP_ERR__FENCED)
                what = BUS_FATAL;
        if (what == BUS_REFUSED || (what == BUS_FATAL && !p->broken))
                (void)err_set(err, what == BUS_FATAL ? SEMEL_ERR_INTERNAL : SEMEL_ERR_ARGUMENT,
                              "Kafka does not take the record for topic \"%s\": %s (%s)", t->name,
                              rd_kafka_error_string(e), rd_kafka_error_name(e));
        rd_kafka_error_destroy(e);
        return what;
}

enum bus_produced bus_produce(struct bus_producer *p, const struct event *event, void *opaque,
                              semel_error *err)
{
        if (p->broken) {
                (void)err_copy(err, &p->why);
                return BUS_FATAL;
        }
        struct topic *t = topic_get(p, event->topic, err);
        if (!t)
                return BUS_REFUSED;
        if (!has_room(t, event))
                return BUS_FULL;
        rd_kafka_headers_t *headers = headers_of(event);
        /* A NULL payload is a tombstone, an empty one is not. */
        const void *payload = event->payload.n > 0 ? (const void *)event->payload.p : "";
        const void *key = event->key.n > 0 ? (const void *)event->key.p : "";
        rd_kafka_vu_t vu[6] = {
                {.vtype = RD_KAFKA_VTYPE_RKT, .u.rkt = t->rkt},
                {.vtype = RD_KAFKA_VTYPE_PARTITION,
                 .u.i32 = topic_partition(t, event)},
                {.vtype = RD_KAFKA_VTYPE_VALUE},
                {.vtype = RD_KAFKA_VTYPE_KEY},
                {.vtype = RD_KAFKA_VTYPE_OPAQUE, .u.ptr = opaque},
                {.vtype = RD_KAFKA_VTYPE_HEADERS, .u.headers = headers}};
        vu[2].u.mem.ptr = event->payload_is_null ? NULL : (void *)(uintptr_t)payload;
        vu[2].u.mem.size = event->payload_is_null ? 0 : event->payload.n;
        vu[3].u.mem.ptr = event->key_is_null ? NULL : (void *)(uintptr_t)key;
        vu[3].u.mem.size = event->key_is_null ? 0 : event->key.n;
        rd_kafka_error_t *e = rd_kafka_produceva(p->rk, vu, sizeof vu / sizeof vu[0]);
        if (e) {
                rd_kafka_headers_destroy(headers); /* ours until it went well */
                return refused(p, t, e, err);
        }
        p->unreported++;
        t->unreported++;
        if (t->bytes_max != 0)
                t->bytes += bus_record_bytes_max(event);
        return BUS_QUEUED;
}

size_t bus_producer_poll(struct bus_producer *p, int64_t timeout_us)
{
        if (p->unreported > 0)
                (void)rd_kafka_poll(p->rk, bus_ms(timeout_us));
        return p->unreported;
}

size_t bus_producer_flush(struct bus_producer *p, int64_t timeout_us)
{
        if (p->unreported > 0)
                (void)rd_kafka_flush(p->rk, bus_ms(timeout_us));
        return p->unreported;
}

size_t bus_producer_unreported(const struct bus_producer *p)
{
        return p->unreported;
}
