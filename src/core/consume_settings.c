/* SPDX-License-Identifier: Apache-2.0
 *
 * consume_settings: see consume_settings.h.
 */
#include "core/consume_settings.h"

#include <stdio.h>
#include <string.h>

#include "core/limits.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define AT(field) offsetof(struct consume_setup, field)

const struct setting consume_settings[] = {
        {.name = "db", .type = SETTING_TEXT, .offset = AT(db), .max = CONSUME_URL_BYTES,
         .fallback = "", .secret = true,
         .text = "The database of the effect, where events are recorded: postgres://... or sqlite:PATH; "
                 "empty is SQLite in the state directory.  A password belongs into PGPASSFILE or the "
                 "environment."},
        {.name = "brokers", .type = SETTING_TEXT, .offset = AT(brokers), .max = CONSUME_URL_BYTES,
         .fallback = "",
         .text = "Kafka's bootstrap addresses: HOST:PORT, with commas between.  Must be given."},
        {.name = "topics", .type = SETTING_TEXT, .offset = AT(topics), .max = CONSUME_TOPICS_BYTES,
         .fallback = "", .text = "What is consumed, with commas between.  Must be given."},
        {.name = "group", .type = SETTING_TEXT, .offset = AT(group), .max = CONSUME_TEXT_BYTES,
         .fallback = "",
         .text = "The consumer group, and the name under which events are recorded.  Must be given."},
        {.name = "sql", .type = SETTING_TEXT, .offset = AT(sql), .max = CONSUME_SQL_BYTES, .fallback = "",
         .text = "What is done with an event, in the transaction that records it: $1 key, $2 payload, $3 "
                 "event id, $4 topic, $5 headers; ?1 to ?5 on SQLite."},
        {.name = "post", .type = SETTING_TEXT, .offset = AT(post), .max = CONSUME_URL_BYTES,
         .fallback = "",
         .text = "Instead of sql: POST the payload to this URL, always with the same key: at least once."},
        {.name = "payload", .type = SETTING_CHOICE, .offset = AT(payload), .choices = {"text", "bytea"},
         .fallback = "text", .text = "The type of $2; bytea for payloads that are no text."},
        {.name = "consumer", .type = SETTING_TEXT, .offset = AT(consumer), .max = CONSUME_TEXT_BYTES,
         .fallback = "", .text = "The name under which events are recorded, when it is not the group's."},
        {.name = "source", .type = SETTING_TEXT, .offset = AT(source), .max = CONSUME_TEXT_BYTES,
         .fallback = "", .text = "Where event ids are unique, when that is not the topic."},
        {.name = "event_id_pointer", .type = SETTING_TEXT, .offset = AT(event_id_pointer),
         .max = CONSUME_TEXT_BYTES, .fallback = "",
         .text = "A JSON pointer to the event's id in the payload, when it is not in the header event-id."},
        {.name = "attempts_max", .type = SETTING_INT, .offset = AT(attempts_max), .min = 1, .max = 1000,
         .fallback = "10",
         .text = "Tries before an event is a dead letter.  Deadlocks, lock waits and a database that is "
                 "away are no tries."},
        {.name = "dead_topic", .type = SETTING_TEXT, .offset = AT(dead_topic), .max = CONSUME_TEXT_BYTES,
         .fallback = "",
         .text = "Dead events go there too, through the outbox of this database (semel relay publishes "
                 "them)."},
        {.name = "batch_rows", .type = SETTING_INT, .offset = AT(batch_rows), .min = 1,
         .max = LIMIT_INBOX_BATCH_ROWS, .fallback = "500", .text = "Most events of one transaction."},
        {.name = "workers", .type = SETTING_INT, .offset = AT(workers), .min = 1, .max = 64,
         .fallback = "4", .text = "Partitions that are worked on at the same time, each with a connection."},
        {.name = "inbox_retention", .type = SETTING_DURATION, .offset = AT(inbox_retention_us), .min = 0,
         .max = LIMIT_RETENTION_US, .fallback = "360h", /* Kafka keeps an event for up to 336h */
         .text = "How long applied events are remembered: longer than the topic's retention.ms and "
                 "segment.ms together.  0 is for ever."},
        {.name = "admin", .type = SETTING_TEXT, .offset = AT(admin), .max = CONSUME_TEXT_BYTES,
         .fallback = "",
         .text = "Where /healthz, /readyz and /metrics are served; off unless given.  An address that "
                 "other machines reach needs admin_token_file."},
        {.name = "admin_token_file", .type = SETTING_TEXT, .offset = AT(admin_token_file),
         .max = CONSUME_TEXT_BYTES, .fallback = "",
         .text = "A file with the bearer token of the admin listener."},
        {.name = "drain_delay", .type = SETTING_DURATION, .offset = AT(drain_delay_us), .min = 0,
         .max = 300 * SECOND, .fallback = "0",
         .text = "After SIGTERM: how long events are still taken while /readyz fails."},
        {.name = "shutdown_deadline", .type = SETTING_DURATION, .offset = AT(shutdown_deadline_us),
         .min = 0, .max = 3600 * SECOND, .fallback = "25s",
         .text = "After SIGTERM: when a transaction that is still under way is cut off (exit code 75)."},
};
const size_t consume_setting_count = COUNT(consume_settings);

void consume_setup_defaults(struct consume_setup *setup)
{
        memset(setup, 0, sizeof *setup);
        setting_defaults(consume_settings, consume_setting_count, setup);
}

static bool refuse(char *why, const char *text)
{
        (void)snprintf(why, SETTING_ERROR_BYTES, "%s", text);
        return false;
}

bool consume_setup_check(const struct consume_setup *setup, char why[SETTING_ERROR_BYTES])
{
        if (!setup->brokers[0])
                return refuse(why, "give --brokers HOST:PORT, or set SEMEL_BROKERS");
        if (!setup->group[0])
                return refuse(why, "give --group NAME: the consumer group, and the name under which "
                                   "events are recorded");
        if (!setup->sql[0] == !setup->post[0])
                return refuse(why, "give --sql STATEMENT or --post URL: what is done with an event");
        if (setup->topics[strspn(setup->topics, ", ")] == '\0')
                return refuse(why, "give --topic NAME, once or more");
        if (setup->drain_delay_us > setup->shutdown_deadline_us)
                return refuse(why, "drain_delay must not be longer than shutdown_deadline");
        return true;
}
