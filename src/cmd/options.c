/* SPDX-License-Identifier: Apache-2.0
 *
 * options: see options.h.
 */
#include "cmd/options.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/suggest.h"
#include "base/units.h"
#include "core/limits.h"

static const struct option_def defs[OPTION_COUNT] = {
        [OPT_HELP] = {"help", .help = "this help, and exit"},
        [OPT_VERSION] = {"version", .help = "the version, and exit"},
        [OPT_DB] = {"db", "store", OPTION_TEXT, "URL",
                    .help = "the store: sqlite:PATH, postgres://USER@HOST/DATABASE, or memory:; "
                            "environment SEMEL_DB; default: SQLite in the state directory"},
        [OPT_QUIET] = {"quiet", .help = "no notes on stderr, only errors"},
        [OPT_VERBOSE] = {"verbose", .help = "say on stderr what is claimed, replayed, recorded"},
        [OPT_JSON] = {"json", .help = "JSON for programs: one object a line"},
        [OPT_PRINT] = {"print", .help = "print the statements and change nothing"},
        [OPT_GRANTS] = {"grants", NULL, OPTION_TEXT, "ROLE",
                        .help = "print the GRANTs that let ROLE use semel's tables and no more"},
        [OPT_ONLY] = {"only", NULL, OPTION_CHOICE, "WHAT", {"append"},
                      .help = "with --grants: append: a role that leaves events in the outbox and does "
                              "nothing else here"},
        [OPT_STUCK] = {"stuck",
                       .help = "only keys whose outcome nobody knows or whose lease is over"},
        [OPT_KEY] = {"key", NULL, OPTION_TEXT, "KEY", .help = "the key, where KEY begins with a dash: --key=KEY"},
        [OPT_ID] = {"id", NULL, OPTION_TEXT, "HEX",
                    .help = "name the key by its id (64 hex digits) instead of its text"},
        [OPT_MODE] = {"mode", NULL, OPTION_CHOICE, "MODE", {"run", "tx", "gateway", "call"},
                      .help = "the mode that the key is used in: run, tx, gateway or call"},
        [OPT_SCOPE] = {"scope", NULL, OPTION_TEXT, "SCOPE",
                       .help = "the key's scope (`semel run` uses \"semel run\")"},
        [OPT_PRINCIPAL] = {"principal", NULL, OPTION_TEXT, "TEXT",
                           .help = "whose key it is"},
        [OPT_BODY] = {"body", .help = "write the kept body to stdout, and nothing else"},
        [OPT_EXECUTED] = {"executed", .help = "it happened: the key is completed"},
        [OPT_NOT_EXECUTED] = {"not-executed",
                              .help = "it did not happen and cannot any more: the key is free"},
        [OPT_STATUS] = {"status", NULL, OPTION_INT, "N", .max = 999,
                        .help = "with --executed: the status that retries get (an HTTP status, "
                                "an exit code)"},
        [OPT_BODY_FILE] = {"body-file", NULL, OPTION_TEXT, "FILE",
                           .help = "with --executed: the body that retries get; - is stdin"},
        [OPT_REASON] = {"reason", NULL, OPTION_TEXT, "TEXT",
                        .help = "why; kept in the audit table (required)"},
        [OPT_WHO] = {"who", NULL, OPTION_TEXT, "NAME",
                     .help = "who decides; kept in the audit table; default: user@host"},
        [OPT_ATTEMPT] = {"attempt", NULL, OPTION_TEXT, "HEX:TOKEN",
                         .help = "act only while the key still has this attempt, as `keys show` "
                                 "printed it; asks nothing"},
        [OPT_YES] = {"yes", .help = "do not ask: you have looked, and not too early"},
        [OPT_FORCE] = {"force",
                       .help = "decide although the command ran on another host, where this "
                               "program cannot see whether it still runs"},
        [OPT_LEASE] = {"lease", NULL, OPTION_DURATION, "TIME", .fallback = "60s", .min = 1000,
                       .max = LIMIT_LEASE_US / MS,
                       .help = "how long the claim is trusted without a sign of life; renewed "
                               "while the command runs"},
        [OPT_RETENTION] = {"retention", NULL, OPTION_DURATION, "TIME", .fallback = "24h",
                           .min = 1000, .max = LIMIT_RETENTION_US / MS,
                           .help = "how long the result is kept and replayed"},
        [OPT_WAIT] = {"wait", NULL, OPTION_DURATION, "TIME", .fallback = "0s",
                      .max = LIMIT_LEASE_US / MS,
                      .help = "wait so long for a run that is under way, then exit 75"},
        [OPT_ON_UNKNOWN] = {"on-unknown", NULL, OPTION_CHOICE, "POLICY", {"hold", "retry"},
                            .fallback = "hold",
                            .help = "when a run died unseen: hold (an operator decides) or retry "
                                    "(run it again: at least once)"},
        [OPT_RELEASE_ON] = {"release-on", NULL, OPTION_TEXT, "CODES",
                            .help = "exit codes that mean \"nothing happened\", so that the next "
                                    "call runs again: any-failure, or a list such as 3,75,100-110"},
        [OPT_OUTPUT_MAX] = {"output-max", NULL, OPTION_SIZE, "SIZE", .fallback = "1MiB",
                            .max = LIMIT_REPLY_BODY_BYTES / 2,
                            .help = "most output to keep; above it only the exit code is kept"},
        [OPT_OPERATION] = {"operation", NULL, OPTION_TEXT, "NAME",
                           .help = "the name shown for this key; default: \"run \" and the command"},
        [OPT_STORE_KEY] = {"store-key", NULL, OPTION_CHOICE, "HOW", {"text", "digest"},
                           .fallback = "text",
                           .help = "keep the key's text for `keys show`, or only its digest"},
        [OPT_CONFIG] = {"config", NULL, OPTION_TEXT, "FILE",
                        .help = "a YAML file with routes and policies; options win over it"},
        [OPT_LISTEN] = {"listen", NULL, OPTION_TEXT, "ADDRESS",
                        .help = "where clients connect: HOST:PORT, :PORT, [IPv6]:PORT, unix:/path; "
                                "default :8080"},
        [OPT_UPSTREAM] = {"upstream", NULL, OPTION_TEXT, "URL",
                          .help = "the service behind: http://HOST:PORT or unix:/path"},
        [OPT_WORKERS] = {"workers", NULL, OPTION_TEXT, "N", .help = "threads; default 1"},
        [OPT_ADMIN] = {"admin", NULL, OPTION_TEXT, "ADDRESS",
                       .help = "serve /healthz, /readyz and /metrics there; off unless given"},
        [OPT_ADMIN_TOKEN_FILE] = {"admin-token-file", NULL, OPTION_TEXT, "FILE",
                                  .help = "the bearer token that the admin listener asks for"},
        [OPT_LOG] = {"log", NULL, OPTION_TEXT, "HOW",
                     .help = "the access log on stdout: text, json or none; default text"},
        [OPT_IDEMPOTENT] = {"idempotent",
                            .help = "the command, or the upstream, dedupes by itself on the key it "
                                    "is given: run it again whenever nobody knows"},
        [OPT_UPSTREAM_TIMEOUT] = {"upstream-timeout", NULL, OPTION_TEXT, "TIME",
                                  .help = "how long the upstream may take; default 30s"},
        [OPT_DRAIN_DELAY] = {"drain-delay", NULL, OPTION_TEXT, "TIME",
                             .help = "after SIGTERM: still accept for so long while /readyz fails; "
                                     "default 0"},
        [OPT_SHUTDOWN_DEADLINE] = {"shutdown-deadline", NULL, OPTION_TEXT, "TIME",
                                   .help = "after SIGTERM: when what still runs is cut off; "
                                           "default 25s"},
        [OPT_BROKERS] = {"brokers", NULL, OPTION_TEXT, "HOST:PORT",
                         .help = "Kafka's bootstrap addresses, with commas between; environment "
                                 "SEMEL_BROKERS"},
        [OPT_KAFKA] = {"kafka", NULL, OPTION_MANY, "NAME=VALUE",
                       .help = "a librdkafka property, such as compression.type=lz4; may be given "
                               "again.  Passwords belong into the file or SEMEL_KAFKA"},
        [OPT_PRESET] = {"preset", NULL, OPTION_TEXT, "NAME",
                        .help = "how the outbox table looks: semel, tutorial or debezium"},
        [OPT_TABLE] = {"table", NULL, OPTION_TEXT, "NAME",
                       .help = "the outbox table, when it is not the preset's: NAME, as the search_path "
                               "finds it, or SCHEMA.NAME"},
        [OPT_UNORDERED] = {"unordered",
                           .help = "go on with a table that has no order column: events of one key "
                                   "may be published out of order"},
        [OPT_RELAY_MODE] = {"mode", NULL, OPTION_TEXT, "MODE",
                            .help = "owned, single, two-phase or exactly-once; default owned"},
        [OPT_RELAY_TOPIC] = {"topic", NULL, OPTION_TEXT, "TOPIC",
                             .help = "the topic of every row, where the table has no column for it "
                                     "(debezium: what comes before the aggregate type)"},
        [OPT_RELAY_LISTEN] = {"listen", NULL, OPTION_TEXT, "HOW",
                              .help = "wake up by the database's notifications: auto, on or off; "
                                      "default auto"},
        [OPT_ORDER] = {"order", NULL, OPTION_TEXT, "HOW",
                       .help = "key, or strict: one row of a key in flight at a time; default key"},
        [OPT_DONE] = {"done", NULL, OPTION_TEXT, "HOW",
                      .help = "what becomes of published rows: delete or keep; default delete"},
        [OPT_KEEP] = {"keep", NULL, OPTION_TEXT, "TIME",
                      .help = "with --done keep: for how long; default 7d"},
        [OPT_ON_DEAD] = {"on-dead", NULL, OPTION_TEXT, "POLICY",
                         .help = "the younger rows of a key whose row is DEAD: skip (publish them) or "
                                 "block (they wait for an operator); default skip"},
        [OPT_STUCK_AFTER] = {"stuck-after", NULL, OPTION_TEXT, "TIME",
                             .help = "two-phase: when a row left PUBLISHING by a dead relay is sent "
                                     "again; default 60s"},
        [OPT_LANES] = {"lanes", NULL, OPTION_TEXT, "N",
                       .help = "batches under way at the same time; default 4"},
        [OPT_SLOT_LEASE] = {"slot-lease", NULL, OPTION_TEXT, "TIME",
                            .help = "how long slots stay ours without a sign of life; default 5s"},
        [OPT_BATCH_ROWS] = {"batch-rows", NULL, OPTION_TEXT, "N",
                            .help = "most rows of a batch; default 2500"},
        [OPT_BATCH_BYTES] = {"batch-bytes", NULL, OPTION_TEXT, "SIZE",
                             .help = "most bytes of a batch, about; default 4MiB"},
        [OPT_ATTEMPTS_MAX] = {"attempts-max", NULL, OPTION_TEXT, "N",
                              .help = "tries before a row is DEAD; default 10"},
        [OPT_RETRY_MIN] = {"retry-min", NULL, OPTION_TEXT, "TIME",
                           .help = "the longest wait before the second try; doubles; default 200ms"},
        [OPT_RETRY_MAX] = {"retry-max", NULL, OPTION_TEXT, "TIME",
                           .help = "the longest wait between tries; default 30s"},
        [OPT_POLL_MIN] = {"poll-min", NULL, OPTION_TEXT, "TIME",
                          .help = "how soon an empty table is looked at again at first; default 5ms"},
        [OPT_POLL_MAX] = {"poll-max", NULL, OPTION_TEXT, "TIME",
                          .help = "and in the end; default 60ms"},
        [OPT_ALL] = {"all", .help = "all of them"},
        [OPT_SINCE] = {"since", NULL, OPTION_TEXT, "WHEN",
                       .help = "from then on: 2024-06-01T12:00:00Z, 2024-06-01, or 2h for two hours "
                               "ago (required)"},
        [OPT_UNTIL] = {"until", NULL, OPTION_TEXT, "WHEN",
                       .help = "and before then, written alike; default, and at most: now"},
        [OPT_INBOX_RETENTION] = {"inbox-retention", NULL, OPTION_DURATION, "TIME",
                                 .fallback = "7d", .min = 1, .max = LIMIT_RETENTION_US / MS,
                                 .help = "how long consumers remember what they have applied; rows "
                                         "made or published earlier are refused"},
        [OPT_FORCE_OLD] = {"force",
                           .help = "also rows that consumers may have forgotten: they are applied a "
                                   "second time"},
        [OPT_DRY_RUN] = {"dry-run", .help = "say how many, and change nothing"},
        [OPT_KEEP_ROWS] = {"keep", NULL, OPTION_DURATION, "TIME", .fallback = "7d", .min = 0,
                           .max = LIMIT_RETENTION_US / MS,
                           .help = "only rows that were published longer ago than this"},
        [OPT_NOTIFY] = {"notify", NULL, OPTION_CHOICE, "WORD", {"on", "off"},
                        .help = "on: each statement that adds rows to the outbox wakes relays that "
                                "listen, and notifying commits take turns; off: relays poll"},
        [OPT_FOR_TABLE] = {"for-table", NULL, OPTION_TEXT, "TABLE",
                           .help = "print what a table of your own needs so that the relay can read "
                                   "it as its outbox; with --preset"},
        [OPT_RENAMED_FROM] = {"renamed-from", NULL, OPTION_TEXT, "TABLE",
                              .help = "with --for-table: print instead what gives the table the slots, and the "
                                      "identity in Kafka, that it has under this name of before"},
        [OPT_CALL_KEY] = {"key", NULL, OPTION_TEXT, "KEY",
                          .help = "the key of this one operation, the same in every try: made from the "
                                  "operation's own data (required)"},
        [OPT_CALL_DB] = {"db", "store", OPTION_TEXT, "URL",
                         .help = "remember the call in this store, so that it survives this process; "
                                 "none unless given: SEMEL_DB is not read"},
        [OPT_DATA] = {"data", NULL, OPTION_TEXT, "BODY",
                      .help = "the body: @FILE, - for stdin, or the text itself; sent as "
                              "application/json unless --header says another Content-Type"},
        [OPT_HEADER] = {"header", NULL, OPTION_MANY, "'NAME: VALUE'",
                        .help = "one more header; may be given more than once"},
        [OPT_DEADLINE] = {"deadline", NULL, OPTION_DURATION, "TIME", .fallback = "60s", .min = 1,
                          .max = LIMIT_LEASE_US / MS,
                          .help = "everything together: attempts and waits"},
        [OPT_ATTEMPT_TIMEOUT] = {"attempt-timeout", NULL, OPTION_DURATION, "TIME", .fallback = "10s",
                                 .min = 1, .max = LIMIT_LEASE_US / MS / 2,
                                 .help = "one attempt, from the name's look-up to the reply's end"},
        [OPT_CALL_ATTEMPTS_MAX] = {"attempts-max", NULL, OPTION_INT, "N", .max = 1000000,
                                   .help = "at most so many attempts; default: as many as fit"},
        [OPT_OUTPUT] = {"output", NULL, OPTION_TEXT, "FILE",
                        .help = "write the reply's body there instead of stdout"},
        [OPT_INCLUDE] = {"include", .help = "write status and headers before the body"},
        [OPT_CACERT] = {"cacert", NULL, OPTION_TEXT, "FILE",
                        .help = "trust these certificates (PEM) instead of the system's"},
        [OPT_PROXY] = {"proxy", NULL, OPTION_TEXT, "URL",
                       .help = "a proxy, or env for the environment's proxy variables; none unless "
                               "given"},
        [OPT_DEV_TOPIC] = {"topic", NULL, OPTION_MANY, "NAME[=PARTITIONS]",
                           .help = "make this topic; may be given again"},
        [OPT_DEV_PARTITIONS] = {"partitions", NULL, OPTION_INT, "N", .fallback = "6", .min = 1,
                                .max = 64, .help = "of the topics that are named without a number"},
        [OPT_DEV_BROKERS] = {"brokers", NULL, OPTION_INT, "N", .fallback = "1", .min = 1, .max = 8,
                             .help = "how many brokers the cluster has, each with a port of its own"},
        [OPT_DEV_READY_FILE] = {"ready-file", NULL, OPTION_TEXT, "FILE",
                                .help = "write the address there once it serves; removed at the end"},
        [OPT_CONSUME_TOPIC] = {"topic", NULL, OPTION_MANY, "TOPIC",
                               .help = "a topic to consume; may be given again"},
        [OPT_GROUP] = {"group", NULL, OPTION_TEXT, "NAME",
                       .help = "the consumer group, and the name under which events are recorded"},
        [OPT_SQL] = {"sql", NULL, OPTION_TEXT, "STATEMENT",
                     .help = "what is done with an event: $1 key, $2 payload, $3 event id, $4 "
                             "topic, $5 headers; ?1 to ?5 on SQLite"},
        [OPT_POST] = {"post", NULL, OPTION_TEXT, "URL",
                      .help = "instead of --sql: POST the payload there"},
        [OPT_PAYLOAD] = {"payload", NULL, OPTION_CHOICE, "TYPE", {"text", "bytea"}, "text",
                         .help = "the type of $2: text, or bytea for payloads that are no text"},
        [OPT_CONSUMER] = {"consumer", NULL, OPTION_TEXT, "NAME",
                          .help = "the name under which events are recorded; default: the group"},
        [OPT_REMEMBER] = {"keep", NULL, OPTION_DURATION, "TIME", .fallback = "15d", .min = 1,
                          .max = LIMIT_RETENTION_US / MS,
                          .help = "what was recorded within this time stays: longer than an event can come again"},
        [OPT_SOURCE] = {"source", NULL, OPTION_TEXT, "NAME",
                        .help = "where ids are unique; default: the topic"},
        [OPT_EVENT_ID_POINTER] = {"event-id-pointer", NULL, OPTION_TEXT, "/JSON/POINTER",
                                  .help = "the event's id inside the JSON payload; default: the "
                                          "header event-id"},
        [OPT_CONSUME_ATTEMPTS_MAX] = {"attempts-max", NULL, OPTION_INT, "N", .fallback = "10",
                                      .min = 1, .max = 1000,
                                      .help = "tries before an event is dead"},
        [OPT_CONSUME_BATCH_ROWS] = {"batch-rows", NULL, OPTION_INT, "N", .fallback = "500",
                                    .min = 1, .max = LIMIT_INBOX_BATCH_ROWS,
                                    .help = "most events of one transaction"},
        [OPT_CONSUME_WORKERS] = {"workers", NULL, OPTION_INT, "N", .fallback = "4", .min = 1,
                                 .max = 64,
                                 .help = "partitions that are worked on at the same time"},
        [OPT_DEAD_TOPIC] = {"dead-topic", NULL, OPTION_TEXT, "TOPIC",
                            .help = "send dead events there too, through the outbox (`semel relay` "
                                    "publishes them)"},
        [OPT_CONSUME_RETENTION] = {"inbox-retention", NULL, OPTION_DURATION, "TIME",
                                 .fallback = "15d", .min = 0, .max = LIMIT_RETENTION_US / MS,
                                 .help = "how long applied events are remembered: longer than the "
                                         "topic keeps them (Kafka: up to 14 days); 0 is for ever"},
};

const struct option_def *option_def(enum option_id id)
{
        return &defs[id];
}

static bool takes_value(enum option_id id)
{
        return defs[id].kind != OPTION_FLAG;
}

static bool is_named(enum option_id id, const char *name, size_t n)
{
        const char *names[2] = {defs[id].name, defs[id].alias};
        for (int j = 0; j < 2; j++)
                if (names[j] && strlen(names[j]) == n && memcmp(names[j], name, n) == 0)
                        return true;
        return false;
}

/* Which option "name" or "name=value" is; OPTION_COUNT when none. */
static enum option_id find(const char *name, size_t n)
{
        for (int i = 0; i < OPTION_COUNT; i++)
                if (is_named((enum option_id)i, name, n))
                        return (enum option_id)i;
        return OPTION_COUNT;
}

/* The same among those that a subcommand has. */
static enum option_id find_in(struct option_set set, const char *name, size_t n)
{
        for (size_t i = 0; i < set.count; i++)
                if (is_named(set.ids[i], name, n))
                        return set.ids[i];
        return find(name, n);
}

static bool in_set(struct option_set set, enum option_id id)
{
        if (id == OPT_HELP || id == OPT_VERSION)
                return true;
        for (size_t i = 0; i < set.count; i++)
                if (set.ids[i] == id)
                        return true;
        return false;
}

static semel_code unknown_option(struct option_set set, const char *arg, semel_error *err)
{
        const char *names[2 * OPTION_COUNT];
        size_t count = 0, n = strcspn(arg, "=");
        char word[48] = "";
        if (n >= sizeof word)
                n = sizeof word - 1;
        memcpy(word, arg, n);
        for (int i = 0; i < OPTION_COUNT; i++) {
                if (!in_set(set, (enum option_id)i))
                        continue;
                names[count++] = defs[i].name;
                if (defs[i].alias)
                        names[count++] = defs[i].alias;
        }
        const char *near = suggest(word, names, count);
        if (near)
                return err_set(err, SEMEL_ERR_ARGUMENT,
                               "there is no option --%s here; did you mean --%s?", word, near);
        return err_set(err, SEMEL_ERR_ARGUMENT,
                       "there is no option --%s here; --help shows them all", word);
}

static semel_code set_number(const struct option_def *def, const char *text, int64_t number,
                             const char *unit, struct option_value *v, semel_error *err)
{
        if (def->max > 0 && (number < def->min || number > def->max))
                return err_set(err, SEMEL_ERR_ARGUMENT,
                               "--%s %.64s is out of range: %lld to %lld%s", def->name, text,
                               (long long)def->min, (long long)def->max, unit);
        v->number = number;
        return SEMEL_OK;
}

static semel_code set_choice(const struct option_def *def, const char *text,
                             struct option_value *v, semel_error *err)
{
        size_t count = 0;
        for (; count < 4 && def->choices[count]; count++) {
                if (strcmp(text, def->choices[count]) == 0) {
                        v->number = (int64_t)count;
                        return SEMEL_OK;
                }
        }
        char list[96] = "";
        for (size_t i = 0, n = 0; i < count && n < sizeof list; i++)
                n += (size_t)snprintf(list + n, sizeof list - n, "%s%s",
                                      i == 0 ? "" : i + 1 == count ? " or " : ", ",
                                      def->choices[i]);
        return err_set(err, SEMEL_ERR_ARGUMENT, "--%s must be %s, not \"%.64s\"", def->name, list,
                       text);
}

static semel_code set_int(const struct option_def *def, const char *text, struct option_value *v,
                          semel_error *err)
{
        int64_t number = 0;
        size_t digits = strspn(text, "0123456789");
        if (digits == 0 || text[digits] || digits > 18)
                return err_set(err, SEMEL_ERR_ARGUMENT, "--%s needs a number, not \"%.64s\"",
                               def->name, text);
        for (size_t i = 0; i < digits; i++)
                number = number * 10 + (text[i] - '0');
        return set_number(def, text, number, "", v, err);
}

/* Give an option its value, from the command line or from its default. */
static semel_code set_value(enum option_id id, const char *text, struct option_value *v,
                            semel_error *err)
{
        const struct option_def *def = &defs[id];
        enum units_result result;
        int64_t number;
        v->text = text;
        switch (def->kind) {
        case OPTION_FLAG:
        case OPTION_TEXT:
        case OPTION_MANY:
                return SEMEL_OK;
        case OPTION_CHOICE:
                return set_choice(def, text, v, err);
        case OPTION_INT:
                return set_int(def, text, v, err);
        case OPTION_DURATION:
                result = duration_parse_ms(text, &number);
                if (result != UNITS_OK)
                        return err_set(err, SEMEL_ERR_ARGUMENT, "--%s \"%.64s\" %s", def->name,
                                       text, duration_result_text(result));
                return set_number(def, text, number, " milliseconds", v, err);
        case OPTION_SIZE:
                result = size_parse_bytes(text, &number);
                if (result != UNITS_OK)
                        return err_set(err, SEMEL_ERR_ARGUMENT, "--%s \"%.64s\" %s", def->name,
                                       text, size_result_text(result));
                return set_number(def, text, number, " bytes", v, err);
        }
        return SEMEL_OK;
}

/* One argument that begins with `--`.  *i moves over its value. */
static semel_code parse_option(struct option_set set, char **args, size_t n, size_t *i,
                               struct options *o, semel_error *err)
{
        const char *name = args[*i] + 2, *equals = strchr(name, '=');
        size_t len = equals ? (size_t)(equals - name) : strlen(name);
        enum option_id id = find_in(set, name, len);
        if (id == OPTION_COUNT || !in_set(set, id))
                return unknown_option(set, name, err);
        const char *value = equals ? equals + 1 : NULL;
        if (!takes_value(id)) {
                if (value)
                        return err_set(err, SEMEL_ERR_ARGUMENT, "--%s takes no value",
                                       defs[id].name);
                o->value[id].given = true;
                return SEMEL_OK;
        }
        if (!value) {
                /* `--db --json` is a forgotten value; who means it writes --db=--json. */
                if (*i + 1 >= n || strncmp(args[*i + 1], "--", 2) == 0)
                        return err_set(err, SEMEL_ERR_ARGUMENT, "--%s needs a value: --%s %s",
                                       defs[id].name, defs[id].name, defs[id].value);
                value = args[++*i];
        }
        o->value[id].given = true;
        if (defs[id].kind == OPTION_MANY) {
                if (o->many_count == OPTIONS_MANY_MAX)
                        return err_set(err, SEMEL_ERR_ARGUMENT, "--%s was given more than %d times",
                                       defs[id].name, OPTIONS_MANY_MAX);
                o->many_id[o->many_count] = id;
                o->many[o->many_count++] = value;
        }
        return set_value(id, value, &o->value[id], err);
}

semel_code options_parse(struct option_set set, char **args, size_t n, struct options *ret,
                         semel_error *err)
{
        struct options o = {0};
        semel_code code = SEMEL_OK;
        for (size_t i = 0; i < set.count && code == SEMEL_OK; i++) {
                enum option_id id = set.ids[i];
                if (defs[id].fallback)
                        code = set_value(id, defs[id].fallback, &o.value[id], err);
        }
        for (size_t i = 0; i < n && code == SEMEL_OK; i++) {
                if (strcmp(args[i], "--") == 0) {
                        o.rest = args + i + 1;
                        o.rest_count = n - i - 1;
                        break;
                }
                if (strcmp(args[i], "-h") == 0) {
                        o.value[OPT_HELP].given = true;
                } else if (strncmp(args[i], "--", 2) == 0) {
                        code = parse_option(set, args, n, &i, &o, err);
                } else if (args[i][0] == '-' && args[i][1]) {
                        code = err_set(err, SEMEL_ERR_ARGUMENT,
                                       "there are no short options: \"%.32s\"; --help shows them "
                                       "all", args[i]);
                } else if (o.positional_count == OPTIONS_POSITIONAL_MAX) {
                        code = err_set(err, SEMEL_ERR_ARGUMENT, "too many arguments at \"%.64s\"",
                                       args[i]);
                } else {
                        o.positional[o.positional_count++] = args[i];
                }
        }
        if (code == SEMEL_OK)
                *ret = o;
        return code;
}

size_t options_first_word(char **args, size_t n, size_t from)
{
        for (size_t i = from; i < n; i++) {
                if (strcmp(args[i], "--") == 0)
                        return n;
                if (args[i][0] != '-')
                        return i;
                if (strncmp(args[i], "--", 2) != 0 || strchr(args[i], '='))
                        continue;
                enum option_id id = find(args[i] + 2, strlen(args[i] + 2));
                if (id != OPTION_COUNT && takes_value(id))
                        i++;
        }
        return n;
}
