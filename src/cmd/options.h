/* SPDX-License-Identifier: Apache-2.0
 *
 * options: every option of the program `semel` in one table, and the one parser for it.
 *
 * The table is also what `semel help` prints, and defaults are parsed from the text that
 * it shows, so that the help cannot lie.
 *
 *     --name VALUE, --name=VALUE; before or after positional arguments, up to `--`.
 *     The last one wins.
 */
#ifndef CMD_OPTIONS_H
#define CMD_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <semel/error.h>

enum option_id {
        OPT_HELP,
        OPT_VERSION,
        OPT_DB,
        OPT_QUIET,
        OPT_VERBOSE,
        OPT_JSON,
        /* migrate */
        OPT_PRINT,
        OPT_GRANTS,
        OPT_ONLY,
        /* keys */
        OPT_STUCK,
        OPT_KEY,
        OPT_ID,
        OPT_MODE,
        OPT_SCOPE,
        OPT_PRINCIPAL,
        OPT_BODY,
        OPT_EXECUTED,
        OPT_NOT_EXECUTED,
        OPT_STATUS,
        OPT_BODY_FILE,
        OPT_REASON,
        OPT_WHO,
        OPT_ATTEMPT,
        OPT_YES,
        OPT_FORCE,
        /* run */
        OPT_LEASE,
        OPT_RETENTION,
        OPT_WAIT,
        OPT_ON_UNKNOWN,
        OPT_RELEASE_ON,
        OPT_OUTPUT_MAX,
        OPT_OPERATION,
        OPT_STORE_KEY,
        /* gateway */
        OPT_CONFIG,
        OPT_LISTEN,
        OPT_UPSTREAM,
        OPT_WORKERS,
        OPT_ADMIN,
        OPT_ADMIN_TOKEN_FILE,
        OPT_LOG,
        OPT_IDEMPOTENT,
        OPT_UPSTREAM_TIMEOUT,
        OPT_DRAIN_DELAY,
        OPT_SHUTDOWN_DEADLINE,
        /* relay, consume */
        OPT_BROKERS,
        OPT_KAFKA,
        OPT_PRESET,
        OPT_TABLE,
        OPT_UNORDERED,
        /* relay */
        OPT_RELAY_MODE,
        OPT_RELAY_TOPIC,
        OPT_RELAY_LISTEN,
        OPT_ORDER,
        OPT_DONE,
        OPT_KEEP,
        OPT_ON_DEAD,
        OPT_STUCK_AFTER,
        OPT_LANES,
        OPT_SLOT_LEASE,
        OPT_BATCH_ROWS,
        OPT_BATCH_BYTES,
        OPT_ATTEMPTS_MAX,
        OPT_RETRY_MIN,
        OPT_RETRY_MAX,
        OPT_POLL_MIN,
        OPT_POLL_MAX,
        /* outbox */
        OPT_ALL,
        OPT_SINCE,
        OPT_UNTIL,
        OPT_INBOX_RETENTION,
        OPT_FORCE_OLD,
        OPT_DRY_RUN,
        OPT_KEEP_ROWS,
        /* migrate */
        OPT_FOR_TABLE,
        OPT_RENAMED_FROM,
        OPT_NOTIFY,
        /* call */
        OPT_CALL_KEY,
        OPT_CALL_DB,
        OPT_DATA,
        OPT_HEADER,
        OPT_DEADLINE,
        OPT_ATTEMPT_TIMEOUT,
        OPT_CALL_ATTEMPTS_MAX,
        OPT_OUTPUT,
        OPT_INCLUDE,
        OPT_CACERT,
        OPT_PROXY,
        /* dev-broker */
        OPT_DEV_TOPIC,
        OPT_DEV_PARTITIONS,
        OPT_DEV_BROKERS,
        OPT_DEV_READY_FILE,
        /* consume, inbox */
        OPT_CONSUME_TOPIC,
        OPT_GROUP,
        OPT_SQL,
        OPT_POST,
        OPT_PAYLOAD,
        OPT_CONSUMER,
        OPT_REMEMBER,
        OPT_SOURCE,
        OPT_EVENT_ID_POINTER,
        OPT_CONSUME_ATTEMPTS_MAX,
        OPT_CONSUME_BATCH_ROWS,
        OPT_CONSUME_WORKERS,
        OPT_DEAD_TOPIC,
        OPT_CONSUME_RETENTION,
        OPTION_COUNT
};

enum option_kind {
        OPTION_FLAG,
        OPTION_TEXT,
        OPTION_MANY,     /* may be given more than once: options.many, in order */
        OPTION_DURATION, /* number: milliseconds */
        OPTION_SIZE,     /* number: bytes */
        OPTION_INT,
        OPTION_CHOICE,   /* number: index into choices */
};

struct option_def {
        const char *name;    /* without the dashes */
        const char *alias;   /* another name for the same, or NULL */
        enum option_kind kind;
        const char *value;   /* what stands for the value in the help */
        const char *choices[4];
        const char *fallback; /* default, as it is written; NULL: none */
        int64_t min, max;    /* of a number; max 0: no bounds */
        const char *help;
};

const struct option_def *option_def(enum option_id id);

struct option_value {
        bool given;       /* on the command line, not by default */
        const char *text; /* as written; NULL without a default */
        int64_t number;
};

/* More positional arguments than any subcommand takes. */
enum { OPTIONS_POSITIONAL_MAX = 4, OPTIONS_MANY_MAX = 64 };

struct options {
        struct option_value value[OPTION_COUNT];
        const char *positional[OPTIONS_POSITIONAL_MAX];
        size_t positional_count;
        const char *many[OPTIONS_MANY_MAX]; /* of OPTION_MANY options */
        enum option_id many_id[OPTIONS_MANY_MAX]; /* and which, where a subcommand has several */
        size_t many_count;
        char **rest; /* what stands behind `--`, NULL-terminated; NULL without `--` */
        size_t rest_count;
};

/* Which options a subcommand has.  Two options may share a name (--mode, --listen) as long as no
 * subcommand has both and both take a value, or neither. */
struct option_set {
        const enum option_id *ids;
        size_t count;
};

/* Parse args[0..n), NULL-terminated; --help and --version are always allowed.
 * Errors: SEMEL_ERR_ARGUMENT, and the text says what to write instead. */
semel_code options_parse(struct option_set set, char **args, size_t n, struct options *ret,
                         semel_error *err);

/* The index of the first argument at or behind `from` that is neither an option nor an
 * option's value; n when there is none.  This is how a subcommand is found behind options. */
size_t options_first_word(char **args, size_t n, size_t from);

/* The key: an argument, or --key=KEY, which also takes one that begins with a dash.  NULL:
 * neither was given. */
static inline const char *options_key(const struct options *o)
{
        return o->positional_count > 0 ? o->positional[0] : o->value[OPT_KEY].text;
}

static inline bool option_flag(const struct options *o, enum option_id id)
{
        return o->value[id].given;
}

static inline const char *option_text(const struct options *o, enum option_id id)
{
        return o->value[id].text;
}

static inline int64_t option_number(const struct options *o, enum option_id id)
{
        return o->value[id].number;
}

#endif
