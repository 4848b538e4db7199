/* SPDX-License-Identifier: Apache-2.0
 *
 * consume: `semel consume`.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/consume.h"
#include "base/err.h"
#include "base/units.h"
#include "cmd/open_store.h"
#include "cmd/say.h"
#include "cmd/subcommand.h"
#include "core/limits.h"

struct lists {
        struct bus_property property[OPTIONS_MANY_MAX];
        char *owned[OPTIONS_MANY_MAX];
        size_t owned_count;
        const char *topic[CONSUME_TOPICS_MAX];
};

static char *own(struct lists *l, const char *text)
{
        char *copy = l->owned_count < OPTIONS_MANY_MAX ? strdup(text) : NULL;
        if (copy)
                l->owned[l->owned_count++] = copy;
        return copy;
}

/* --kafka NAME=VALUE and --topic T or T,T */
static semel_code read_many(const struct options *o, struct lists *l, struct consume_config *c,
                            semel_error *err)
{
        for (size_t i = 0; i < o->many_count; i++) {
                char *text = own(l, o->many[i]);
                if (!text)
                        return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for options");
                if (o->many_id[i] == OPT_KAFKA) {
                        char *equals = strchr(text, '=');
                        if (!equals)
                                return err_set(err, SEMEL_ERR_ARGUMENT,
                                               "--kafka is NAME=VALUE, such as "
                                               "--kafka fetch.wait.max.ms=100");
                        *equals = '\0';
                        l->property[c->bus.property_count++] =
                                (struct bus_property){text, equals + 1};
                        continue;
                }
                char *rest = NULL;
                for (char *t = strtok_r(text, ",", &rest); t; t = strtok_r(NULL, ",", &rest)) {
                        if (c->topic_count == CONSUME_TOPICS_MAX)
                                return err_set(err, SEMEL_ERR_ARGUMENT, "at most %d topics",
                                               CONSUME_TOPICS_MAX);
                        l->topic[c->topic_count++] = t;
                }
        }
        c->bus.property = l->property;
        c->topics = l->topic;
        return SEMEL_OK;
}

static const char *brokers_of(const struct options *o)
{
        const char *brokers = option_text(o, OPT_BROKERS);
        return brokers ? brokers : getenv("SEMEL_BROKERS");
}

static semel_code duration(const struct options *o, enum option_id id, int64_t fallback_us,
                           int64_t *ret_us, semel_error *err)
{
        const char *text = option_text(o, id);
        int64_t ms = 0;
        *ret_us = fallback_us;
        if (!text)
                return SEMEL_OK;
        enum units_result result = duration_parse_ms(text, &ms);
        if (result != UNITS_OK)
                return err_set(err, SEMEL_ERR_ARGUMENT, "--%s %s", option_def(id)->name,
                               duration_result_text(result));
        *ret_us = ms * MS;
        return SEMEL_OK;
}

static semel_code read_options(const struct options *o, struct consume_run_config *config,
                               struct lists *l, semel_error *err)
{
        struct consume_config *c = &config->engine;
        if (o->positional_count > 0 || o->rest)
                return err_set(err, SEMEL_ERR_ARGUMENT, "consume takes options only");
        c->group = option_text(o, OPT_GROUP);
        c->bus.brokers = brokers_of(o);
        c->handler.sql = option_text(o, OPT_SQL);
        config->post_url = option_text(o, OPT_POST);
        if (!c->bus.brokers || !*c->bus.brokers)
                return err_set(err, SEMEL_ERR_ARGUMENT,
                               "give --brokers HOST:PORT, or set SEMEL_BROKERS");
        if (!c->group || !*c->group)
                return err_set(err, SEMEL_ERR_ARGUMENT,
                               "give --group NAME: the consumer group, and the name under which "
                               "events are recorded");
        if (!c->handler.sql == !config->post_url)
                return err_set(err, SEMEL_ERR_ARGUMENT,
                               "give --sql STATEMENT or --post URL: what is done with an event");
        c->handler.payload_is_bytea = option_number(o, OPT_PAYLOAD) == 1;
        c->consumer = option_text(o, OPT_CONSUMER);
        c->source = option_text(o, OPT_SOURCE);
        c->event_id_pointer = option_text(o, OPT_EVENT_ID_POINTER);
        c->dead_topic = option_text(o, OPT_DEAD_TOPIC);
        c->attempts_max = (int)option_number(o, OPT_CONSUME_ATTEMPTS_MAX);
        c->batch_rows = (size_t)option_number(o, OPT_CONSUME_BATCH_ROWS);
        c->workers = (int)option_number(o, OPT_CONSUME_WORKERS);
        c->retention_us = option_number(o, OPT_CONSUME_RETENTION) * MS;
        config->daemon.admin = option_text(o, OPT_ADMIN);
        config->daemon.admin_token_file = option_text(o, OPT_ADMIN_TOKEN_FILE);
        semel_code code = duration(o, OPT_DRAIN_DELAY, 0, &config->daemon.drain_delay_us, err);
        if (code == SEMEL_OK)
                code = duration(o, OPT_SHUTDOWN_DEADLINE, 25 * SECOND,
                                &config->daemon.shutdown_deadline_us, err);
        if (code == SEMEL_OK)
                code = read_many(o, l, c, err);
        if (code == SEMEL_OK && c->topic_count == 0)
                code = err_set(err, SEMEL_ERR_ARGUMENT, "give --topic NAME, once or more");
        return code;
}

static void say_line(const char *line)
{
        say_note("%s", line);
}

static int consume_command(const struct options *o)
{
        struct consume_run_config config = {.daemon = {.say = say_line}};
        struct lists lists = {0};
        struct semel_error err = {0};
        char space[STORE_URL_BYTES_MAX];
        int rc = EXIT_CODE_USAGE;
        if (read_options(o, &config, &lists, &err) == SEMEL_OK) {
                if (store_url(o, &config.engine.db, space, &err) == SEMEL_OK)
                        rc = consume_run(&config, &err);
                else
                        rc = EXIT_CODE_DOWN;
        }
        if (err.code != SEMEL_OK)
                say_error("%s", err.text);
        for (size_t i = 0; i < lists.owned_count; i++)
                free(lists.owned[i]);
        return rc;
}

static const enum option_id consume_options[] = {
        OPT_BROKERS, OPT_CONSUME_TOPIC, OPT_GROUP, OPT_DB, OPT_SQL, OPT_POST, OPT_PAYLOAD,
        OPT_CONSUMER, OPT_SOURCE, OPT_EVENT_ID_POINTER, OPT_CONSUME_ATTEMPTS_MAX,
        OPT_CONSUME_BATCH_ROWS, OPT_CONSUME_WORKERS, OPT_DEAD_TOPIC, OPT_CONSUME_RETENTION, OPT_KAFKA,
        OPT_ADMIN, OPT_ADMIN_TOKEN_FILE, OPT_DRAIN_DELAY, OPT_SHUTDOWN_DEADLINE, OPT_QUIET};

const struct subcommand subcommand_consume = {
        .name = "consume",
        .usage = "--topic T --group G (--sql STATEMENT | --post URL) [--db URL] [--brokers LIST]",
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
                "instead: at least once, always with the same key and bytes.\n",
        .examples = "semel migrate --db postgres://owner@db/billing\n"
                    "semel consume --db postgres://billing@db/billing --brokers kafka:9092 \\\n"
                    "    --topic orders --group billing-service --sql 'SELECT billing.apply($1, $2)'\n"
                    "semel consume --db sqlite:billing.db --topic orders --group billing \\\n"
                    "    --sql \"INSERT INTO charge SELECT ?2 ->> '$.order', ?2 ->> '$.amount'\"\n"
                    "semel consume --topic orders --group mailer --post http://127.0.0.1:9000/events\n",
        .exits = "64  the statement does not prepare\n"
                 "75  the shutdown deadline cut a transaction off: its events come again\n",
        .options = OPTION_SET(consume_options),
        .run = consume_command,
};
