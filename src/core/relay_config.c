/* SPDX-License-Identifier: Apache-2.0
 *
 * relay_config: see relay_config.h.
 */
#include "core/relay_config.h"

#include <stdio.h>
#include <string.h>

#include "core/limits.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define MIB (INT64_C(1024) * 1024)
#define AT(field) offsetof(struct relay_config, field)

const struct setting relay_settings[] = {
        {.name = "db", .type = SETTING_TEXT, .offset = AT(db), .max = RELAY_URL_BYTES,
         .fallback = "", .secret = true,
         .text = "Where the outbox is: postgres://... or sqlite:PATH; empty is SQLite in the state "
                 "directory.  A password belongs into PGPASSFILE or the environment."},
        {.name = "brokers", .type = SETTING_TEXT, .offset = AT(brokers), .max = RELAY_URL_BYTES,
         .fallback = "",
         .text = "Kafka's bootstrap addresses: HOST:PORT, with commas between.  Must be given."},
        {.name = "mode", .type = SETTING_CHOICE, .offset = AT(mode),
         .choices = {"owned", "single", "two-phase", "exactly-once"}, .fallback = "owned",
         .text = "owned: read, publish, mark, by the one owner of each slot.  single: the same inside "
                 "one transaction.  two-phase: rows are PUBLISHING meanwhile, and no transaction is "
                 "open.  These three publish at least once.  exactly-once: inside Kafka transactions, so "
                 "that read_committed consumers see each row once."},
        {.name = "order", .type = SETTING_CHOICE, .offset = AT(order), .choices = {"key", "strict"},
         .fallback = "key",
         .text = "key: rows of one key go in order, many at a time; a row that the broker itself rejects "
                 "can be overtaken by younger ones under way, which is counted and said.  strict: one "
                 "row of a key at a time, so that it cannot."},
        {.name = "done", .type = SETTING_CHOICE, .offset = AT(done), .choices = {"delete", "keep"},
         .fallback = "delete",
         .text = "What becomes of published rows.  Kept ones can be published again by `semel outbox "
                 "republish`."},
        {.name = "keep", .type = SETTING_DURATION, .offset = AT(keep_us), .min = SECOND,
         .max = 3650 * 86400 * SECOND, .fallback = "168h",
         .text = "With done: keep: for how long; then they are deleted, in small transactions."},
        {.name = "on_dead", .type = SETTING_CHOICE, .offset = AT(on_dead),
         .choices = {"skip", "block"}, .fallback = "skip",
         .text = "When a row of a key is DEAD: skip publishes the younger rows of the key, block lets "
                 "them wait until an operator retries or discards it."},
        {.name = "attempts_max", .type = SETTING_INT, .offset = AT(attempts_max), .min = 1,
         .max = 1000000, .fallback = "10",
         .text = "Tries before a row is DEAD.  A broker that is away does not count as one."},
        {.name = "retry_min", .type = SETTING_DURATION, .offset = AT(retry_min_us), .min = MS,
         .max = 3600 * SECOND, .fallback = "200ms",
         .text = "The longest wait before the second try; it doubles with each, and each wait is a "
                 "random part of it."},
        {.name = "retry_max", .type = SETTING_DURATION, .offset = AT(retry_max_us), .min = MS,
         .max = 86400 * SECOND, .fallback = "30s", .text = "The longest wait between two tries."},
        {.name = "unknown_topic", .type = SETTING_DURATION, .offset = AT(unknown_topic_us), .min = 0,
         .max = 86400 * SECOND, .fallback = "60s",
         .text = "How long a topic must have been unknown, with the brokers up, before its rows may "
                 "become DEAD: a cluster that restarts does not know all of its topics at once."},
        {.name = "stuck_after", .type = SETTING_DURATION, .offset = AT(stuck_after_us),
         .min = SECOND, .max = 86400 * SECOND, .fallback = "60s",
         .text = "two-phase: when a row that a dead relay left PUBLISHING is sent again."},
        {.name = "lanes", .type = SETTING_INT, .offset = AT(lanes), .min = 1, .max = RELAY_LANES_MAX,
         .fallback = "4",
         .text = "Batches under way at the same time, each with a database connection and a producer: "
                 "one reads or marks while another publishes.  It bounds what a fault sends twice.  "
                 "exactly-once has one for each of its four groups of slots."},
        {.name = "slot_lease", .type = SETTING_DURATION, .offset = AT(slot_lease_us),
         .min = 500 * MS, .max = 3600 * SECOND, .fallback = "5s",
         .text = "How long slots stay ours without a sign of life; renewed each third of it."},
        {.name = "batch_rows", .type = SETTING_INT, .offset = AT(batch_rows), .min = 1,
         .max = RELAY_BATCH_ROWS_MAX, .fallback = "2500", .text = "Most rows of one batch."},
        {.name = "batch_bytes", .type = SETTING_SIZE, .offset = AT(batch_bytes), .min = 1024,
         .max = 1024 * MIB, .fallback = "4MiB",
         .text = "Most bytes of one batch, about: at least one row is read, whatever its size."},
        {.name = "batch_timeout", .type = SETTING_DURATION, .offset = AT(batch_timeout_us),
         .min = 100 * MS, .max = 3600 * SECOND, .fallback = "30s",
         .text = "How long the broker may take for a batch; then the producer is thrown away and what "
                 "had no report is sent again by a new one."},
        {.name = "poll_min", .type = SETTING_DURATION, .offset = AT(poll_min_us), .min = MS,
         .max = 3600 * SECOND, .fallback = "5ms",
         .text = "How soon a table that was found empty is looked at again; it doubles."},
        {.name = "poll_max", .type = SETTING_DURATION, .offset = AT(poll_max_us), .min = MS,
         .max = 3600 * SECOND, .fallback = "60ms",
         .text = "The longest time between two looks at an empty table, where nothing wakes us."},
        {.name = "listen", .type = SETTING_CHOICE, .offset = AT(listen),
         .choices = {"auto", "on", "off"}, .fallback = "auto",
         .text = "Be woken by the database (`semel migrate --notify on`): auto polls where that cannot "
                 "work, on refuses to start there, off always polls."},
        {.name = "preset", .type = SETTING_TEXT, .offset = AT(preset), .max = 31, .fallback = "semel",
         .text = "How the table looks: semel, tutorial (outbox_event of the tutorial) or debezium."},
        {.name = "table", .type = SETTING_TEXT, .offset = AT(table), .max = RELAY_TEXT_BYTES,
         .fallback = "", .text = "The outbox table, when it is not the preset's: SCHEMA.NAME, or NAME as the search_path "
                                 "finds it.  It is the same outbox however it is spelled, and another one "
                                 "once it is renamed (`semel migrate --renamed-from`)."},
        {.name = "topic", .type = SETTING_TEXT, .offset = AT(topic), .max = RELAY_TEXT_BYTES,
         .fallback = "",
         .text = "The topic of every row, where the table has no column for it; with the preset "
                 "debezium, what comes before the aggregate type."},
        {.name = "unordered", .type = SETTING_BOOL, .offset = AT(unordered), .fallback = "false",
         .text = "Go on with a table that has no order column: events of one key may be published out "
                 "of order."},
        {.name = "marker_topic", .type = SETTING_TEXT, .offset = AT(marker_topic), .max = 249,
         .fallback = "semel.outbox.marker",
         .text = "exactly-once: the compacted topic that says which rows the last transaction had."},
        {.name = "admin", .type = SETTING_TEXT, .offset = AT(admin), .max = RELAY_TEXT_BYTES,
         .fallback = "",
         .text = "Where /healthz, /readyz and /metrics are served; off unless given.  An address "
                 "that other machines reach needs admin_token_file."},
        {.name = "admin_token_file", .type = SETTING_TEXT, .offset = AT(admin_token_file),
         .max = RELAY_TEXT_BYTES, .fallback = "",
         .text = "A file with the bearer token of the admin listener."},
        {.name = "drain_delay", .type = SETTING_DURATION, .offset = AT(drain_delay_us), .min = 0,
         .max = 300 * SECOND, .fallback = "0",
         .text = "After SIGTERM: how long batches are still begun while /readyz fails."},
        {.name = "shutdown_deadline", .type = SETTING_DURATION, .offset = AT(shutdown_deadline_us),
         .min = 0, .max = 3600 * SECOND, .fallback = "25s",
         .text = "After SIGTERM: when a batch that is still under way is cut off (exit code 75)."},
};
const size_t relay_setting_count = COUNT(relay_settings);

void relay_config_defaults(struct relay_config *config)
{
        memset(config, 0, sizeof *config);
        setting_defaults(relay_settings, relay_setting_count, config);
}

static bool refuse(char *why, const char *text)
{
        (void)snprintf(why, SETTING_ERROR_BYTES, "%s", text);
        return false;
}

bool relay_config_check(const struct relay_config *config, char why[SETTING_ERROR_BYTES])
{
        if (!config->brokers[0])
                return refuse(why, "where is Kafka?  Give --brokers HOST:PORT, or SEMEL_BROKERS; `semel "
                                   "dev-broker` starts one for a first look");
        if (config->retry_min_us > config->retry_max_us)
                return refuse(why, "retry_min must not be longer than retry_max");
        if (config->poll_min_us > config->poll_max_us)
                return refuse(why, "poll_min must not be longer than poll_max");
        if (config->drain_delay_us > config->shutdown_deadline_us)
                return refuse(why, "drain_delay must not be longer than shutdown_deadline");
        return true;
}
