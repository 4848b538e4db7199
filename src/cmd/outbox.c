/* SPDX-License-Identifier: Apache-2.0
 *
 * outbox: `semel outbox status | dead | retry | discard | republish | prune`.
 *
 * Over the interface of outbox sessions, whichever the database.  Long work goes in short
 * transactions (LIMIT_OUTBOX_PRUNE_ROWS rows each) and says on stderr how far it is.
 */
#include <string.h>

#include "base/err.h"
#include "cmd/json_out.h"
#include "cmd/open_store.h"
#include "cmd/operator.h"
#include "cmd/outbox_print.h"
#include "cmd/say.h"
#include "cmd/subcommand.h"
#include "sys/clock.h"

/* One statement; counting kept rows of millions takes seconds. */
#define STATEMENT_US (60 * SECOND)
enum { BLOCKED_SHOWN = 100, LIST_PAGE = 500 };

static int64_t soon(void)
{
        return clock_boot_us() + STATEMENT_US;
}

static semel_code session_open(const struct options *o, struct outbox_session **ret,
                               semel_error *err)
{
        const struct outbox_mapping mapping = {
                .preset = option_text(o, OPT_PRESET) ? option_text(o, OPT_PRESET) : "semel",
                .table = option_text(o, OPT_TABLE),
                .topic = option_text(o, OPT_RELAY_TOPIC),
                .unordered = option_flag(o, OPT_UNORDERED)};
        char space[STORE_URL_BYTES_MAX];
        const char *url = NULL;
        const struct store_driver *driver = NULL;
        semel_code code = store_url(o, &url, space, err);
        if (code == SEMEL_OK)
                code = registry_find(url, &driver, err);
        if (code != SEMEL_OK)
                return code;
        if (!driver->outbox_open)
                return err_set(err, SEMEL_ERR_ARGUMENT,
                               "a %s: store has no outbox: give --db sqlite:PATH or postgres://...",
                               driver->scheme);
        return driver->outbox_open(url, &mapping, "semel outbox", ret, err);
}

static void session_close(struct outbox_session *s)
{
        if (s)
                s->vt->close(s);
}

/* -- status ----------------------------------------------------------------------------------- */

static semel_code load_status(struct outbox_session *s, const struct options *o,
                              struct outbox_status *st, semel_error *err)
{
        const char *on_dead = option_text(o, OPT_ON_DEAD);
        bool dead_blocks = on_dead && strcmp(on_dead, "block") == 0;
        if (on_dead && !dead_blocks && strcmp(on_dead, "skip") != 0)
                return err_set(err, SEMEL_ERR_ARGUMENT, "--on-dead is skip or block, as the relay's");
        semel_code code = s->vt->check(s, OUTBOX_OWNED, soon(), &st->view, err);
        if (code == SEMEL_OK)
                code = s->vt->stats(s, soon(), &st->stats, err);
        if (code == SEMEL_OK)
                code = s->vt->blocked(s, EVENT_ALL_SLOTS, dead_blocks ? OUTBOX_BLOCK : OUTBOX_SKIP,
                                      BLOCKED_SHOWN + 1, soon(), &st->blocked, &st->blocked_count,
                                      err);
        if (st->blocked_count > BLOCKED_SHOWN) {
                st->blocked_count = BLOCKED_SHOWN;
                st->blocked_more = true;
        }
        return code;
}

static int outbox_status_run(const struct options *o)
{
        struct semel_error err = {0};
        struct outbox_session *s = NULL;
        struct outbox_status st = {0};
        int code;
        if (session_open(o, &s, &err) != SEMEL_OK || load_status(s, o, &st, &err) != SEMEL_OK) {
                code = say_failure(&err);
        } else {
                if (option_flag(o, OPT_JSON))
                        outbox_print_status_json(stdout, &st);
                else
                        outbox_print_status(stdout, &st);
                code = say_flush();
        }
        if (st.stats.release)
                st.stats.release(st.stats.driver);
        session_close(s);
        return code;
}

/* -- dead list ---------------------------------------------------------------------------------- */

static semel_code list_all_dead(struct outbox_session *s, bool json, size_t *ret_count,
                                semel_error *err)
{
        int64_t after_id = INT64_MIN;
        for (;;) {
                struct outbox_list list = {0};
                semel_code code = s->vt->list(s, OUTBOX_DEAD, after_id, LIST_PAGE, soon(), &list,
                                              err);
                if (code != SEMEL_OK)
                        return code;
                for (size_t i = 0; i < list.n; i++) {
                        if (*ret_count == 0 && !json)
                                outbox_print_dead_header(stdout);
                        if (json)
                                outbox_print_dead_json(stdout, &list.row[i]);
                        else
                                outbox_print_dead(stdout, &list.row[i]);
                        after_id = list.row[i].id;
                        ++*ret_count;
                }
                bool end = list.n < LIST_PAGE || ferror(stdout);
                if (list.release)
                        list.release(list.driver);
                if (end)
                        return SEMEL_OK;
        }
}

static int outbox_dead_run(const struct options *o)
{
        struct semel_error err = {0};
        struct outbox_session *s = NULL;
        size_t count = 0;
        int code;
        if (o->positional_count != 1 || strcmp(o->positional[0], "list") != 0) {
                say_error("dead rows can be listed: semel outbox dead list");
                return EXIT_CODE_USAGE;
        }
        if (session_open(o, &s, &err) != SEMEL_OK ||
            list_all_dead(s, option_flag(o, OPT_JSON), &count, &err) != SEMEL_OK) {
                code = say_failure(&err);
        } else {
                if (count == 0 && !option_flag(o, OPT_JSON))
                        say_note("no row is DEAD");
                code = say_flush();
        }
        session_close(s);
        return code;
}

/* -- verbs: what they have in common --------------------------------------------------------------- */

/* The one argument, as an id.  0: it is none. */
static int64_t id_argument(const struct options *o)
{
        const char *text = o->positional_count == 1 ? o->positional[0] : "";
        int64_t id = 0;
        for (; *text >= '0' && *text <= '9'; text++) {
                int digit = *text - '0';
                if (id > (INT64_MAX - digit) / 10)
                        return 0;
                id = id * 10 + digit;
        }
        return *text ? 0 : id;
}

/* Rows done so far, on stderr, about once a second. */
struct progress {
        int64_t said_us;
        int64_t rows;
};

static void progress_add(struct progress *p, int64_t rows)
{
        int64_t now_us = clock_boot_us();
        p->rows += rows;
        if (p->said_us == 0)
                p->said_us = now_us;
        if (now_us - p->said_us < SECOND)
                return;
        p->said_us = now_us;
        say_note("%lld rows so far", (long long)p->rows);
}

/* {"rows": N} or a sentence on stdout. */
static int report(const struct options *o, int64_t rows, const char *sentence)
{
        if (option_flag(o, OPT_JSON)) {
                struct json_out js;
                json_begin(&js, stdout);
                json_number(&js, "rows", rows);
                json_end(&js);
        } else {
                printf("%lld %s\n", (long long)rows, sentence);
        }
        return say_flush();
}

/* Rows in a state, over all topics. */
static semel_code count_rows(struct outbox_session *s, enum outbox_state state, int64_t *ret,
                             semel_error *err)
{
        struct outbox_stats stats = {0};
        int64_t rows = 0;
        semel_code code = s->vt->stats(s, soon(), &stats, err);
        if (code != SEMEL_OK)
                return code;
        for (size_t i = 0; i < stats.n; i++)
                rows += stats.count[i].state == state ? stats.count[i].rows : 0;
        if (stats.release)
                stats.release(stats.driver);
        *ret = rows;
        return SEMEL_OK;
}

/* -- retry, discard ----------------------------------------------------------------------------------- */

static semel_code retry_all(struct outbox_session *s, const char *who, struct progress *p,
                            semel_error *err)
{
        int64_t dead = 0, rows = 0;
        semel_code code = count_rows(s, OUTBOX_DEAD, &dead, err);
        /* No more than there were: rows that die again meanwhile are not tried for ever. */
        while (code == SEMEL_OK && p->rows < dead) {
                code = s->vt->retry(s, 0, who, soon(), &rows, err);
                if (code != SEMEL_OK || rows == 0)
                        break;
                progress_add(p, rows);
        }
        return code;
}

static int outbox_retry_run(const struct options *o)
{
        struct semel_error err = {0};
        struct outbox_session *s = NULL;
        struct progress p = {0};
        char space[LIMIT_HOLDER_BYTES + 1];
        const char *who = operator_name(o, space);
        int64_t id = id_argument(o);
        bool all = option_flag(o, OPT_ALL);
        if (all ? o->positional_count > 0 : id == 0) {
                say_error("name one row by the ID of `semel outbox dead list`, or say --all");
                return EXIT_CODE_USAGE;
        }
        semel_code result = session_open(o, &s, &err);
        if (result == SEMEL_OK)
                result = all ? retry_all(s, who, &p, &err)
                             : s->vt->retry(s, id, who, soon(), &p.rows, &err);
        int code;
        if (result == SEMEL_OK && !all && p.rows == 0)
                result = err_set(&err, SEMEL_ERR_NOT_FOUND,
                                 "there is no DEAD row %lld: `semel outbox dead list` shows them",
                                 (long long)id);
        if (result != SEMEL_OK) {
                code = say_failure(&err);
        } else {
                if (p.rows > 0)
                        say_note("younger events of the same keys may have been published already: "
                                 "these come behind them, out of order");
                code = report(o, p.rows, p.rows == 1 ? "row waits again" : "rows wait again");
        }
        session_close(s);
        return code;
}

static int outbox_discard_run(const struct options *o)
{
        struct semel_error err = {0};
        struct outbox_session *s = NULL;
        char space[LIMIT_HOLDER_BYTES + 1];
        const char *reason = option_text(o, OPT_REASON);
        int64_t id = id_argument(o);
        int code;
        if (id == 0) {
                say_error("name the row by the ID of `semel outbox dead list`: semel outbox discard ID "
                          "--reason TEXT");
                return EXIT_CODE_USAGE;
        }
        if (!reason || !*reason || strlen(reason) > LIMIT_REASON_BYTES) {
                say_error("say why: --reason TEXT, at most %d bytes (it goes into the audit table)",
                          LIMIT_REASON_BYTES);
                return EXIT_CODE_USAGE;
        }
        if (session_open(o, &s, &err) != SEMEL_OK ||
            s->vt->discard(s, id, operator_name(o, space), reason, soon(), &err) != SEMEL_OK)
                code = say_failure(&err);
        else
                code = report(o, 1, "row is discarded: its event will never be published");
        session_close(s);
        return code;
}

/* -- republish -------------------------------------------------------------------------------------------- */

/* Nothing was found: because nothing is kept? */
static semel_code explain_nothing(struct outbox_session *s, semel_error *err)
{
        int64_t kept = 0;
        semel_code code = count_rows(s, OUTBOX_PUBLISHED, &kept, err);
        if (code != SEMEL_OK || kept > 0)
                return code;
        return err_set(err, SEMEL_ERR_REFUSED,
                       "no published row is kept: under `--done delete`, the default, the relay "
                       "deletes a row once the broker has it, and what is deleted cannot be sent "
                       "again; `semel relay --done keep` keeps rows for --keep");
}

static semel_code republish_all(struct outbox_session *s, const struct options *o,
                                struct outbox_again *again, struct progress *p, semel_error *err)
{
        char space[LIMIT_HOLDER_BYTES + 1];
        const char *who = operator_name(o, space);
        again->retention_us = option_flag(o, OPT_FORCE_OLD)
                                      ? -1
                                      : option_number(o, OPT_INBOX_RETENTION) * MS;
        for (;;) {
                int64_t rows = 0;
                semel_code code = s->vt->republish(s, again, who, soon(), &rows, err);
                if (code == SEMEL_ERR_REFUSED)
                        say_note("give a later --since, the true --inbox-retention where consumers "
                                 "remember longer, or --force");
                if (code != SEMEL_OK)
                        return code;
                progress_add(p, rows);
                if (rows < LIMIT_OUTBOX_PRUNE_ROWS)
                        return p->rows > 0 ? SEMEL_OK : explain_nothing(s, err);
        }
}

static int outbox_republish_run(const struct options *o)
{
        struct semel_error err = {0};
        struct outbox_session *s = NULL;
        struct progress p = {0};
        const char *since = option_text(o, OPT_SINCE), *until = option_text(o, OPT_UNTIL);
        struct outbox_again again = {.until_us = clock_wall_us()};
        if (o->positional_count > 0 || !since) {
                say_error("say which rows: semel outbox republish --since WHEN [--until WHEN]");
                return EXIT_CODE_USAGE;
        }
        if (!when_parse(since, clock_wall_us(), &again.since_us) ||
            (until && !when_parse(until, clock_wall_us(), &again.until_us))) {
                say_error("a time is written 2024-06-01T12:00:00Z, 2024-06-01, or 2h for two hours ago");
                return EXIT_CODE_USAGE;
        }
        if (again.since_us >= again.until_us) {
                say_error("--since is not before --until: nothing lies between them");
                return EXIT_CODE_USAGE;
        }
        int code;
        if (session_open(o, &s, &err) != SEMEL_OK ||
            republish_all(s, o, &again, &p, &err) != SEMEL_OK) {
                if (p.rows > 0)
                        say_note("%lld rows wait again before this:", (long long)p.rows);
                code = say_failure(&err);
        } else {
                if (p.rows > 0)
                        say_note("they go out again with the same event ids, behind what was published "
                                 "since");
                code = report(o, p.rows, p.rows == 1 ? "row waits again" : "rows wait again");
        }
        session_close(s);
        return code;
}

/* -- prune -------------------------------------------------------------------------------------------------- */

static semel_code prune_all(struct outbox_session *s, int64_t keep_us, bool dry, struct progress *p,
                            semel_error *err)
{
        for (;;) {
                int64_t rows = 0;
                semel_code code = s->vt->prune(s, keep_us, dry, soon(), &rows, err);
                if (code != SEMEL_OK)
                        return code;
                progress_add(p, rows);
                if (dry || rows < LIMIT_OUTBOX_PRUNE_ROWS)
                        return SEMEL_OK;
        }
}

static int outbox_prune_run(const struct options *o)
{
        struct semel_error err = {0};
        struct outbox_session *s = NULL;
        struct progress p = {0};
        bool dry = option_flag(o, OPT_DRY_RUN);
        int code;
        if (o->positional_count > 0) {
                say_error("prune takes no arguments, only options: semel outbox prune --keep 7d");
                return EXIT_CODE_USAGE;
        }
        if (session_open(o, &s, &err) != SEMEL_OK ||
            prune_all(s, option_number(o, OPT_KEEP_ROWS) * MS, dry, &p, &err) != SEMEL_OK)
                code = say_failure(&err);
        else
                code = report(o, p.rows, dry ? "published rows would be deleted"
                                             : "published rows deleted");
        session_close(s);
        return code;
}

/* -- tables ------------------------------------------------------------------------------------------------- */

#define TABLE_OPTIONS OPT_PRESET, OPT_TABLE, OPT_RELAY_TOPIC, OPT_UNORDERED
static const enum option_id status_options[] = {OPT_DB, OPT_JSON, OPT_ON_DEAD, TABLE_OPTIONS,
                                                OPT_QUIET};
static const enum option_id dead_options[] = {OPT_DB, OPT_JSON, TABLE_OPTIONS, OPT_QUIET};
static const enum option_id retry_options[] = {OPT_DB,  OPT_ALL,       OPT_WHO,
                                               OPT_JSON, TABLE_OPTIONS, OPT_QUIET};
static const enum option_id discard_options[] = {OPT_DB,   OPT_REASON,    OPT_WHO,
                                                 OPT_JSON, TABLE_OPTIONS, OPT_QUIET};
static const enum option_id republish_options[] = {
        OPT_DB,  OPT_SINCE, OPT_UNTIL,     OPT_INBOX_RETENTION, OPT_FORCE_OLD,
        OPT_WHO, OPT_JSON,  TABLE_OPTIONS, OPT_QUIET};
static const enum option_id prune_options[] = {OPT_DB,   OPT_KEEP_ROWS, OPT_DRY_RUN,
                                               OPT_JSON, TABLE_OPTIONS, OPT_QUIET};

static const char outbox_exits[] = "0   done\n"
                                   "64  usage: the command line is wrong, and stderr says how\n"
                                   "65  rejected: no such row, or its state or age does not allow it\n"
                                   "69  the store is down or refuses; nothing was done\n"
                                   "75  locked by others: try again later\n"
                                   "76  nobody knows whether it was written: look, and say it again\n";

static const struct subcommand outbox_commands[] = {
        {.name = "status",
         .usage = "[--json]",
         .summary = "what waits, since when, behind what, and who publishes it",
         .text = "Rows by state and topic, the age of the oldest waiting row, the keys that wait behind\n"
                 "a row that failed, and the slots with their owners.  With --on-dead block, keys\n"
                 "behind DEAD rows too.\n"
                 "--json: an object a line; \"kind\" is outbox, count, blocked or slot.\n",
         .examples = "semel outbox status\n"
                     "semel outbox status --json | jq 'select(.kind == \"outbox\").pending'\n",
         .exits = outbox_exits,
         .options = OPTION_SET(status_options),
         .run = outbox_status_run},
        {.name = "dead",
         .usage = "list [--json]",
         .summary = "the rows that the relay gave up, and why",
         .text = "A row is DEAD when the broker refuses it for good, or after --attempts-max tries.\n"
                 "--json: \"id\" is a string: it may have more digits than a JSON number keeps.\n",
         .examples = "semel outbox dead list\n"
                     "semel outbox dead list --json | jq -r .id\n",
         .exits = outbox_exits,
         .options = OPTION_SET(dead_options),
         .run = outbox_dead_run},
        {.name = "retry",
         .usage = "ID|--all",
         .summary = "let DEAD rows be tried again, with fresh attempts",
         .text = "First mend what killed them.  Under `--on-dead skip` younger events of the same key\n"
                 "were published meanwhile, and the row comes behind them: out of order.  Leaves an\n"
                 "audit row.\n",
         .examples = "semel outbox retry 4711\n"
                     "semel outbox retry --all\n",
         .exits = outbox_exits,
         .options = OPTION_SET(retry_options),
         .run = outbox_retry_run},
        {.name = "discard",
         .usage = "ID --reason TEXT",
         .summary = "delete a DEAD row: its event is never published",
         .text = "Only DEAD rows.  Leaves an audit row with who and why.\n",
         .examples = "semel outbox discard 4711 --reason 'test data, agreed with billing'\n",
         .exits = outbox_exits,
         .options = OPTION_SET(discard_options),
         .run = outbox_discard_run},
        {.name = "republish",
         .usage = "--since WHEN [--until WHEN]",
         .summary = "send published rows again, with the same event ids",
         .text = "For a topic that lost data.  Only rows that are kept (`semel relay --done keep`) can\n"
                 "be sent again.  Consumers with an inbox drop what they have applied, as long as they\n"
                 "remember it: where a row was made or published longer ago than --inbox-retention, all\n"
                 "is refused, unless --force (made, since published_at is set anew each time, and\n"
                 "consumers count from the first).  What is published after the command began is not\n"
                 "sent again.  They come behind what was published since.  Leaves audit rows.\n",
         .examples = "semel outbox republish --since 2h\n"
                     "semel outbox republish --since 2024-06-01T12:00:00Z \\\n"
                     "    --until 2024-06-01T12:30:00Z --inbox-retention 14d\n",
         .exits = outbox_exits,
         .options = OPTION_SET(republish_options),
         .run = outbox_republish_run},
        {.name = "prune",
         .usage = "[--keep TIME] [--dry-run]",
         .summary = "delete rows that were published long ago",
         .text = "The relay does it by itself (--done keep --keep TIME); this is for by hand.  Only\n"
                 "PUBLISHED rows, in short transactions.\n",
         .examples = "semel outbox prune --keep 3d --dry-run\n",
         .exits = outbox_exits,
         .options = OPTION_SET(prune_options),
         .run = outbox_prune_run},
        {0}};

const struct subcommand subcommand_outbox = {
        .name = "outbox",
        .summary = "look at the events that wait to be published, and decide about DEAD ones",
        .text = "A row is PENDING (or PUBLISHING), then deleted or PUBLISHED; or DEAD: the relay gave it\n"
                "up, and a person decides.\n",
        .examples = "semel outbox status\n"
                    "semel outbox dead list\n"
                    "semel outbox retry --all\n",
        .subs = outbox_commands,
};
