/* SPDX-License-Identifier: Apache-2.0
 *
 * consume: semel/consume.h over the engine of `semel consume`.
 */
#include <semel/consume.h>

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/registry.h"
#include "base/err.h"
#include "base/units.h"
#include "consume/consume.h"
#include "sys/clock.h"
#include "sys/notify.h"

enum { TEXTS_MAX = CONSUME_TOPICS_MAX + 2 * BUS_PROPERTIES_MAX + 16, LOOK_MS = 20 };

struct semel_consumer {
        struct consume_config config;
        const struct store_driver *driver;
        bool is_postgres;
        const char *topics[CONSUME_TOPICS_MAX];
        struct bus_property property[BUS_PROPERTIES_MAX];
        char *texts[TEXTS_MAX]; /* copies of what was given */
        size_t text_count;
};

struct semel_message {
        const struct inbox_event *event;
        char id[LIMIT_INBOX_NAME_BYTES + 1], topic[LIMIT_EVENT_TOPIC_BYTES + 1];
        char *headers; /* NULL: none */
};

/* -- messages --------------------------------------------------------------------------------------- */

const char *semel_message_id(const semel_message *msg)
{
        return msg->id;
}

const char *semel_message_topic(const semel_message *msg)
{
        return msg->topic;
}

static const void *bytes(struct span s, bool is_null, size_t *ret_n)
{
        *ret_n = is_null ? 0 : s.n;
        if (is_null)
                return NULL;
        return s.n ? (const void *)s.p : "";
}

const void *semel_message_key(const semel_message *msg, size_t *ret_n)
{
        return bytes(msg->event->key, msg->event->key_is_null, ret_n);
}

const void *semel_message_payload(const semel_message *msg, size_t *ret_n)
{
        return bytes(msg->event->payload, msg->event->payload_is_null, ret_n);
}

const char *semel_message_headers(const semel_message *msg)
{
        return msg->headers ? msg->headers : "[]";
}

int32_t semel_message_partition(const semel_message *msg)
{
        return msg->event->partition;
}

int64_t semel_message_offset(const semel_message *msg)
{
        return msg->event->offset;
}

int semel_consume_fail(semel_error *why, const char *reason)
{
        (void)err_set(why, SEMEL_ERR_REFUSED, "%s", reason ? reason : "the handler failed");
        return -1;
}

/* -- the object --------------------------------------------------------------------------------------- */

static char *keep(semel_consumer *c, const char *text, semel_error *err)
{
        char *copy = c->text_count < TEXTS_MAX ? strdup(text) : NULL;
        if (copy)
                c->texts[c->text_count++] = copy;
        else
                (void)err_set(err, SEMEL_ERR_NO_MEMORY, "no memory, or too many settings");
        return copy;
}

semel_consumer *semel_consumer_new(const char *db, const char *brokers, const char *group,
                                   semel_error *err)
{
        if (!db || !brokers || !*brokers || !group || !*group) {
                (void)err_set(err, SEMEL_ERR_ARGUMENT,
                              "a consumer needs a database's URL, brokers and a group");
                return NULL;
        }
        semel_consumer *c = calloc(1, sizeof *c);
        if (!c) {
                (void)err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a consumer");
                return NULL;
        }
        c->config.attempts_max = 10;
        c->config.batch_rows = 20; /* functions may take their time inside the transaction */
        c->config.workers = 4;
        c->config.retention_us = DEFAULT_INBOX_RETENTION_US;
        c->config.db = keep(c, db, err);
        c->config.bus.brokers = keep(c, brokers, err);
        c->config.group = keep(c, group, err);
        if (!c->config.db || !c->config.bus.brokers || !c->config.group ||
            semel_internal_driver_find(db, &c->driver, err) != SEMEL_OK) {
                semel_consumer_free(c);
                return NULL;
        }
        c->is_postgres = strcmp(c->driver->scheme, "postgres") == 0;
        c->config.inbox_open = c->driver->inbox_open;
        return c;
}

void semel_consumer_free(semel_consumer *c)
{
        if (!c)
                return;
        for (size_t i = 0; i < c->text_count; i++)
                free(c->texts[i]);
        free(c);
}

semel_code semel_consumer_add_topic(semel_consumer *c, const char *topic, semel_error *err)
{
        if (!topic || !*topic || strlen(topic) > LIMIT_EVENT_TOPIC_BYTES)
                return err_set(err, SEMEL_ERR_ARGUMENT, "a topic's name has 1 to %d characters",
                               LIMIT_EVENT_TOPIC_BYTES);
        if (c->config.topic_count == CONSUME_TOPICS_MAX)
                return err_set(err, SEMEL_ERR_ARGUMENT, "at most %d topics", CONSUME_TOPICS_MAX);
        char *copy = keep(c, topic, err);
        if (!copy)
                return SEMEL_ERR_NO_MEMORY;
        c->topics[c->config.topic_count++] = copy;
        c->config.topics = c->topics;
        return SEMEL_OK;
}

static semel_code set_number(const char *name, const char *value, long max, long *ret,
                             semel_error *err)
{
        char *end = NULL;
        long n = strtol(value, &end, 10);
        if (!*value || *end || n < 1 || n > max)
                return err_set(err, SEMEL_ERR_ARGUMENT, "%s is a number from 1 to %ld", name, max);
        *ret = n;
        return SEMEL_OK;
}

static semel_code set_property(semel_consumer *c, const char *value, semel_error *err)
{
        char *text = keep(c, value, err);
        char *equals = text ? strchr(text, '=') : NULL;
        if (!text)
                return SEMEL_ERR_NO_MEMORY;
        if (!equals || c->config.bus.property_count == BUS_PROPERTIES_MAX)
                return err_set(err, SEMEL_ERR_ARGUMENT, "kafka is name=value, at most %d times",
                               BUS_PROPERTIES_MAX);
        *equals = '\0';
        c->property[c->config.bus.property_count++] = (struct bus_property){text, equals + 1};
        c->config.bus.property = c->property;
        return SEMEL_OK;
}

semel_code semel_consumer_set(semel_consumer *c, const char *name, const char *value,
                              semel_error *err)
{
        const struct {
                const char *name;
                const char **at;
        } texts[] = {{"consumer", &c->config.consumer},
                     {"source", &c->config.source},
                     {"event-id-pointer", &c->config.event_id_pointer},
                     {"dead-topic", &c->config.dead_topic}};
        long n = 0;
        semel_code code;
        if (!name || !value)
                return err_set(err, SEMEL_ERR_ARGUMENT, "give a name and a value");
        for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
                if (strcmp(name, texts[i].name) != 0)
                        continue;
                char *copy = keep(c, value, err);
                if (!copy)
                        return SEMEL_ERR_NO_MEMORY;
                *texts[i].at = copy;
                return SEMEL_OK;
        }
        if (strcmp(name, "kafka") == 0)
                return set_property(c, value, err);
        if (strcmp(name, "inbox-retention") == 0) {
                int64_t ms = 0;
                enum units_result result = duration_parse_ms(value, &ms);
                if (result == UNITS_OK && ms > LIMIT_RETENTION_US / MS)
                        result = UNITS_TOO_BIG;
                if (result != UNITS_OK)
                        return err_set(err, SEMEL_ERR_ARGUMENT, "inbox-retention %s",
                                       duration_result_text(result));
                c->config.retention_us = ms * MS;
                return SEMEL_OK;
        }
        if (strcmp(name, "attempts-max") == 0) {
                code = set_number(name, value, 1000, &n, err);
                if (code == SEMEL_OK)
                        c->config.attempts_max = (int)n;
                return code;
        }
        if (strcmp(name, "batch-rows") == 0) {
                code = set_number(name, value, LIMIT_INBOX_BATCH_ROWS, &n, err);
                if (code == SEMEL_OK)
                        c->config.batch_rows = (size_t)n;
                return code;
        }
        if (strcmp(name, "workers") == 0) {
                code = set_number(name, value, CONSUME_WORKERS_MAX, &n, err);
                if (code == SEMEL_OK)
                        c->config.workers = (int)n;
                return code;
        }
        return err_set(err, SEMEL_ERR_ARGUMENT,
                       "a consumer has no setting %.64s: there are consumer, source, "
                       "event-id-pointer, attempts-max, batch-rows, dead-topic, inbox-retention, "
                       "workers and kafka",
                       name);
}

void semel_consumer_on_line(semel_consumer *c, void (*fn)(void *arg, const char *line), void *arg)
{
        c->config.say = fn;
        c->config.say_arg = arg;
}

/* -- run ------------------------------------------------------------------------------------------------ */

struct call {
        semel_consume_fn fn;
        void *arg;
        bool is_postgres;
};

static int call_handler(void *arg, void *conn, const struct inbox_event *event, semel_error *why)
{
        const struct call *call = arg;
        struct semel_message msg = {.event = event};
        (void)snprintf(msg.id, sizeof msg.id, "%.*s", (int)event->id.n, (const char *)event->id.p);
        (void)snprintf(msg.topic, sizeof msg.topic, "%.*s", (int)event->topic.n,
                       (const char *)event->topic.p);
        if (event->headers.n) {
                msg.headers = strndup((const char *)event->headers.p, event->headers.n);
                if (!msg.headers)
                        return semel_consume_fail(why, "no memory for the headers");
        }
        int rc = call->fn(call->arg, &msg, call->is_postgres ? conn : NULL,
                          call->is_postgres ? NULL : conn, why);
        free(msg.headers);
        return rc;
}

/* Sleep until the end is told, or a moment. */
static void wait_a_moment(const semel_shutdown *down, bool told)
{
        struct pollfd pfd = {.fd = down && !told ? semel_shutdown_fd(down) : -1, .events = POLLIN};
        (void)poll(&pfd, 1, LOOK_MS);
}

semel_code semel_consume(semel_consumer *c, semel_consume_fn fn, void *arg, semel_shutdown *down,
                         semel_error *err)
{
        struct call call = {.fn = fn, .arg = arg, .is_postgres = c->is_postgres};
        struct consume *engine = NULL;
        int64_t watchdog_us = down ? notify_watchdog_us() / 2 : 0, fed_us = clock_boot_us();
        bool draining = false;
        if (!fn)
                return err_set(err, SEMEL_ERR_ARGUMENT, "there is no handler");
        c->config.handler = (struct inbox_handler){.fn = call_handler, .arg = &call};
        semel_code code = consume_new(&c->config, &engine, err);
        if (code != SEMEL_OK)
                return code;
        while (!consume_ended(engine)) {
                semel_phase phase = down ? semel_shutdown_phase(down) : SEMEL_RUNNING;
                if (phase >= SEMEL_DRAINING && !draining) {
                        consume_drain(engine,
                                      clock_boot_us() + semel_shutdown_left_ms(down) * MS);
                        draining = true;
                }
                if (watchdog_us > 0 && clock_boot_us() - fed_us >= watchdog_us) {
                        fed_us = clock_boot_us();
                        if (consume_alive(engine))
                                notify_manager("WATCHDOG=1");
                }
                wait_a_moment(down, phase != SEMEL_RUNNING);
        }
        return consume_close(engine, err);
}
