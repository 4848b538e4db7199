/* SPDX-License-Identifier: Apache-2.0
 *
 * consume: `semel consume`.
 */
#include <stdio.h>
#include <string.h>

#include "app/consume.h"
#include "base/err.h"
#include "cmd/daemon_settings.h"
#include "cmd/open_store.h"
#include "cmd/say.h"
#include "cmd/subcommand.h"
#include "core/consume_settings.h"

static const struct option_setting option_settings[] = {
        {OPT_BROKERS, "brokers"},
        {OPT_GROUP, "group"},
        {OPT_SQL, "sql"},
        {OPT_POST, "post"},
        {OPT_PAYLOAD, "payload"},
        {OPT_CONSUMER, "consumer"},
        {OPT_SOURCE, "source"},
        {OPT_EVENT_ID_POINTER, "event_id_pointer"},
        {OPT_CONSUME_ATTEMPTS_MAX, "attempts_max"},
        {OPT_CONSUME_BATCH_ROWS, "batch_rows"},
        {OPT_CONSUME_WORKERS, "workers"},
        {OPT_DEAD_TOPIC, "dead_topic"},
        {OPT_CONSUME_RETENTION, "inbox_retention"},
        {OPT_ADMIN, "admin"},
        {OPT_ADMIN_TOKEN_FILE, "admin_token_file"},
        {OPT_DRAIN_DELAY, "drain_delay"},
        {OPT_SHUTDOWN_DEADLINE, "shutdown_deadline"},
};

/* --topic T or T,T, as often as one likes, replace what the file says. */
static bool topics_from_options(const struct options *o, struct consume_setup *setup)
{
        size_t n = 0;
        for (size_t i = 0; i < o->many_count; i++) {
                if (o->many_id[i] != OPT_CONSUME_TOPIC)
                        continue;
                int len = snprintf(setup->topics + n, sizeof setup->topics - n, "%s%s", n ? "," : "",
                                   o->many[i]);
                if (len < 0 || (size_t)len >= sizeof setup->topics - n) {
                        say_error("the names of the topics are longer than %d bytes together",
                                  CONSUME_TOPICS_BYTES);
                        return false;
                }
                n += (size_t)len;
        }
        return true;
}

static const char *or_null(const char *text)
{
        return text[0] ? text : NULL;
}

/* What the engine borrows of the setup, in its own terms. */
struct borrowed {
        struct bus_property property[PROPERTIES_MAX];
        const char *topic[CONSUME_TOPICS_MAX];
};

static semel_code lend(struct consume_setup *setup, struct borrowed *b,
                       struct consume_run_config *config, semel_error *err)
{
        struct consume_config *c = &config->engine;
        char *rest = NULL;
        for (char *t = strtok_r(setup->topics, ", ", &rest); t; t = strtok_r(NULL, ", ", &rest)) {
                if (c->topic_count == CONSUME_TOPICS_MAX)
                        return err_set(err, SEMEL_ERR_ARGUMENT, "at most %d topics", CONSUME_TOPICS_MAX);
                b->topic[c->topic_count++] = t;
        }
        for (size_t i = 0; i < setup->kafka.n; i++)
                b->property[i] = (struct bus_property){setup->kafka.property[i].name,
                                                       setup->kafka.property[i].value};
        c->topics = b->topic;
        c->bus.brokers = setup->brokers;
        c->bus.property = b->property;
        c->bus.property_count = setup->kafka.n;
        c->group = setup->group;
        c->handler.sql = or_null(setup->sql);
        c->handler.payload_is_bytea = setup->payload == 1;
        c->consumer = or_null(setup->consumer);
        c->source = or_null(setup->source);
        c->event_id_pointer = or_null(setup->event_id_pointer);
        c->dead_topic = or_null(setup->dead_topic);
        c->attempts_max = (int)setup->attempts_max;
        c->batch_rows = (size_t)setup->batch_rows;
        c->workers = (int)setup->workers;
        c->retention_us = setup->inbox_retention_us;
        config->post_url = or_null(setup->post);
        config->daemon.admin = or_null(setup->admin);
        config->daemon.admin_token_file = or_null(setup->admin_token_file);
        config->daemon.drain_delay_us = setup->drain_delay_us;
        config->daemon.shutdown_deadline_us = setup->shutdown_deadline_us;
        return SEMEL_OK;
}

static int consume_command(const struct options *o)
{
        static struct consume_setup setup; /* large: properties */
        static struct borrowed borrowed;
        const struct daemon_settings settings = {
                consume_settings, consume_setting_count, option_settings,
                sizeof option_settings / sizeof option_settings[0]};
        struct consume_run_config config = {.daemon = {.say = say_line}};
        struct semel_error err = {0};
        char space[STORE_URL_BYTES_MAX], why[SETTING_ERROR_BYTES];
        int rc = EXIT_CODE_USAGE;
        if (o->positional_count > 0 || o->rest) {
                say_error("consume takes options only");
                return EXIT_CODE_USAGE;
        }
        consume_setup_defaults(&setup);
        if (!daemon_settings_read(&settings, o, &setup, &setup.kafka) ||
            !topics_from_options(o, &setup))
                return EXIT_CODE_USAGE;
        if (!consume_setup_check(&setup, why)) {
                say_error("%s", why);
                return EXIT_CODE_USAGE;
        }
        if (daemon_store_url(o, setup.db, &config.engine.db, space, &err) != SEMEL_OK)
                return say_failure(&err);
        if (lend(&setup, &borrowed, &config, &err) == SEMEL_OK)
                rc = consume_run(&config, &err);
        if (err.code != SEMEL_OK)
                say_error("%s", err.text);
        return rc;
}

static const enum option_id consume_options[] = {
        OPT_BROKERS, OPT_CONSUME_TOPIC, OPT_GROUP, OPT_DB, OPT_SQL, OPT_POST, OPT_PAYLOAD,
        OPT_CONSUMER, OPT_SOURCE, OPT_EVENT_ID_POINTER, OPT_CONSUME_ATTEMPTS_MAX,
        OPT_CONSUME_BATCH_ROWS, OPT_CONSUME_WORKERS, OPT_DEAD_TOPIC, OPT_CONSUME_RETENTION, OPT_KAFKA,
        OPT_CONFIG, OPT_ADMIN, OPT_ADMIN_TOKEN_FILE, OPT_DRAIN_DELAY, OPT_SHUTDOWN_DEADLINE, OPT_QUIET};

const struct subcommand subcommand_consume = {
        .name = "consume",
        .usage = "--topic T --group G (--sql STATEMENT | --post URL) [--db URL] [--brokers LIST] [--config FILE]",
        .summary = "apply each event of a Kafka topic once, in your own database",
        .text = "One transaction records the event's id and runs the statement; the offset is\n"
                "committed after it.  So an event that is delivered again (a crash, a rebalance, lost\n"
                "offsets) finds its id recorded and is not applied again: exactly once, for what the\n"
                "statement does in this database.\n"
                "\n"
                "The statement's parameters: $1 the key, $2 the payload (text; --payload bytea for\n"
                "bytes), $3 the event's id, $4 the topic, $5 the headers (jsonb, a list of [name,\n"
                "value]); ?1 to ?5 on SQLite.  It may use any of them; one that does not prepare\n"
                "stops the program at start.\n"
                "\n"
                "The id is the header event-id, as `semel relay` sends it, or what\n"
                "--event-id-pointer names in a JSON payload.  An event whose handler fails is tried\n"
                "again; after --attempts-max tries it is a dead letter (`semel inbox dead list`), and\n"
                "the events behind it go on.  Deadlocks, lock waits and a database that is away are\n"
                "no tries.  Events of one partition are applied in order, partitions in parallel.\n"
                "\n"
                "--post URL sends each event as POST with `Idempotency-Key: source:event-id:consumer`\n"
                "instead: at least once, always with the same key and bytes.\n"
                "\n"
                "Every setting is in `semel config reference consume`, and may be given as SEMEL_<NAME> in\n"
                "the environment.\n",
        .examples = "semel migrate --db postgres://owner@db/billing\n"
                    "semel consume --db postgres://billing@db/billing --brokers kafka:9092 \\\n"
                    "    --topic orders --group billing-service --sql 'SELECT billing.apply($1, $2)'\n"
                    "semel consume --db sqlite:billing.db --topic orders --group billing \\\n"
                    "    --sql \"INSERT INTO charge SELECT ?2 ->> '$.order', ?2 ->> '$.amount'\"\n"
                    "semel consume --topic orders --group mailer --post http://127.0.0.1:9000/events\n"
                    "semel consume --config /etc/semel/consume.yaml --admin 127.0.0.1:9903\n",
        .exits = "64  the statement does not prepare\n"
                 "75  the shutdown deadline cut a transaction off: its events come again\n",
        .options = OPTION_SET(consume_options),
        .run = consume_command,
};
