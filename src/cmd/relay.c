/* SPDX-License-Identifier: Apache-2.0
 *
 * relay: `semel relay`: settings from defaults, file, environment and options, in this order.
 */
#include "app/relay.h"

#include "base/err.h"
#include "cmd/daemon_settings.h"
#include "cmd/open_store.h"
#include "cmd/say.h"
#include "cmd/subcommand.h"
#include "sys/memory.h"

enum { KEPT_BYTES = 8 * 1024 * 1024 }; /* twice a batch's bytes, as they are by default */

static const struct option_setting option_settings[] = {
        {OPT_BROKERS, "brokers"},
        {OPT_RELAY_MODE, "mode"},
        {OPT_ORDER, "order"},
        {OPT_DONE, "done"},
        {OPT_KEEP, "keep"},
        {OPT_ON_DEAD, "on_dead"},
        {OPT_STUCK_AFTER, "stuck_after"},
        {OPT_LANES, "lanes"},
        {OPT_SLOT_LEASE, "slot_lease"},
        {OPT_BATCH_ROWS, "batch_rows"},
        {OPT_BATCH_BYTES, "batch_bytes"},
        {OPT_ATTEMPTS_MAX, "attempts_max"},
        {OPT_RETRY_MIN, "retry_min"},
        {OPT_RETRY_MAX, "retry_max"},
        {OPT_POLL_MIN, "poll_min"},
        {OPT_POLL_MAX, "poll_max"},
        {OPT_RELAY_LISTEN, "listen"},
        {OPT_PRESET, "preset"},
        {OPT_TABLE, "table"},
        {OPT_RELAY_TOPIC, "topic"},
        {OPT_UNORDERED, "unordered"},
        {OPT_ADMIN, "admin"},
        {OPT_ADMIN_TOKEN_FILE, "admin_token_file"},
        {OPT_DRAIN_DELAY, "drain_delay"},
        {OPT_SHUTDOWN_DEADLINE, "shutdown_deadline"},
};

static int relay_run_command(const struct options *o)
{
        static struct relay_config config; /* large: properties */
        const struct daemon_settings settings = {
                relay_settings, relay_setting_count, option_settings,
                sizeof option_settings / sizeof option_settings[0]};
        struct semel_error err = {0};
        char space[STORE_URL_BYTES_MAX], why[SETTING_ERROR_BYTES];
        const char *url;
        if (o->positional_count > 0 || o->rest) {
                say_error("relay takes options only: semel relay --db postgres://... --brokers "
                          "kafka:9092");
                return EXIT_CODE_USAGE;
        }
        relay_config_defaults(&config);
        if (!daemon_settings_read(&settings, o, &config, &config.kafka))
                return EXIT_CODE_USAGE;
        if (!relay_config_check(&config, why)) {
                say_error("%s", why);
                return EXIT_CODE_USAGE;
        }
        if (daemon_store_url(o, config.db, &url, space, &err) != SEMEL_OK)
                return say_failure(&err);
        memory_keep_freed(KEPT_BYTES);
        int rc = relay_run(&config, url, say_line, &err);
        if (err.code != SEMEL_OK && rc != EXIT_CODE_DONE)
                say_error("%s", err.text);
        return rc;
}

static const enum option_id relay_options[] = {
        OPT_DB, OPT_BROKERS, OPT_RELAY_MODE, OPT_ORDER, OPT_DONE, OPT_KEEP, OPT_ON_DEAD,
        OPT_ATTEMPTS_MAX, OPT_RETRY_MIN, OPT_RETRY_MAX, OPT_STUCK_AFTER, OPT_LANES, OPT_SLOT_LEASE,
        OPT_BATCH_ROWS, OPT_BATCH_BYTES, OPT_RELAY_LISTEN, OPT_POLL_MIN, OPT_POLL_MAX, OPT_PRESET,
        OPT_TABLE, OPT_RELAY_TOPIC, OPT_UNORDERED, OPT_KAFKA, OPT_CONFIG, OPT_ADMIN,
        OPT_ADMIN_TOKEN_FILE, OPT_DRAIN_DELAY, OPT_SHUTDOWN_DEADLINE, OPT_QUIET};

const struct subcommand subcommand_relay = {
        .name = "relay",
        .usage = "--db URL --brokers HOST:PORT [--mode MODE] [--config FILE]",
        .summary = "publish to Kafka what committed transactions left in the outbox",
        .text = "A program inserts its event in the transaction that changes its data (semel.publish(),\n"
                "semel_pg_outbox_append()); once that has committed, the relay publishes it: everything\n"
                "that was committed, nothing that was rolled back, and the rows of one key in order.\n"
                "Any number of relays share the work; when one dies or hangs, others take its slots over\n"
                "after --slot-lease.\n"
                "\n"
                "  owned         read, publish, mark; at least once (a crash in between sends a batch again)\n"
                "  single        the same inside one database transaction; at least once\n"
                "  two-phase     rows are PUBLISHING meanwhile, no transaction is open; at least once\n"
                "  exactly-once  in Kafka transactions: read_committed consumers see each row once\n"
                "\n"
                "A row that fails is tried again with backoff while its key waits and other keys go on;\n"
                "after --attempts-max, or when the broker will never take it, it is DEAD (semel outbox\n"
                "dead list).  A broker that is away counts as no attempt.  Every setting is in `semel\n"
                "config reference relay`, and may be given as SEMEL_<NAME> in the environment.\n",
        .examples = "semel relay --db postgres://relay@db/shop --brokers kafka:9092\n"
                    "semel relay --db postgres://relay@db/shop --brokers k1:9092,k2:9092 --mode "
                    "exactly-once\n"
                    "semel relay --config /etc/semel/relay.yaml --admin 127.0.0.1:9902\n"
                    "semel relay --db sqlite:shop.db --brokers 127.0.0.1:9092 --kafka "
                    "compression.type=lz4\n",
        .exits = "75  the shutdown deadline cut a batch off: its rows are sent again\n",
        .options = OPTION_SET(relay_options),
        .run = relay_run_command,
};
