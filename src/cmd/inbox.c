/* SPDX-License-Identifier: Apache-2.0
 *
 * inbox: `semel inbox status | dead list | retry | discard | prune`.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/registry.h"
#include "base/err.h"
#include "cmd/json_out.h"
#include "cmd/open_store.h"
#include "cmd/operator.h"
#include "cmd/say.h"
#include "cmd/subcommand.h"
#include "core/limits.h"
#include "sys/clock.h"

#define INBOX_CALL_US (10 * SECOND)
enum { LETTERS_AT_ONCE = 100, OPEN_STATES = 2 };

/* Of letters that nobody has decided for good. */
static const enum inbox_letter_state open_states[OPEN_STATES] = {INBOX_DEAD, INBOX_RETRY};

static semel_code open_inbox(const struct options *o, struct inbox_session **ret, semel_error *err)
{
        char space[STORE_URL_BYTES_MAX];
        const char *url = NULL;
        const struct store_driver *driver = NULL;
        semel_code code = store_url(o, &url, space, err);
        if (code == SEMEL_OK)
                code = registry_find(url, &driver, err);
        if (code == SEMEL_OK && !driver->inbox_open)
                code = err_set(err, SEMEL_ERR_URL, "this store has no inbox");
        return code == SEMEL_OK ? driver->inbox_open(url, ret, err) : code;
}

static void close_inbox(struct inbox_session *s)
{
        if (s)
                s->vt->close(s);
}

static int64_t deadline(void)
{
        return clock_boot_us() + INBOX_CALL_US;
}

/* -- status ---------------------------------------------------------------------------------------- */

static void print_count(const struct inbox_count *c, bool json)
{
        char oldest[TIME_TEXT_BYTES_MAX] = "-", newest[TIME_TEXT_BYTES_MAX] = "-";
        if (json) {
                struct json_out js;
                json_begin(&js, stdout);
                json_text(&js, "consumer", c->consumer);
                json_text(&js, "source", c->source);
                json_number(&js, "processed", c->processed);
                json_number(&js, "dead", c->dead);
                json_number(&js, "retry", c->retry);
                json_number(&js, "alarms", c->alarms);
                json_time_us(&js, "oldest", c->oldest_us);
                json_time_us(&js, "newest", c->newest_us);
                json_end(&js);
                return;
        }
        if (c->oldest_us) {
                time_format_us(c->oldest_us, ' ', oldest);
                time_format_us(c->newest_us, ' ', newest);
        }
        printf("%-24s %-24s %12lld %6lld %6lld %7lld  %-21s %s\n", c->consumer, c->source,
               (long long)c->processed, (long long)c->dead, (long long)c->retry,
               (long long)c->alarms, oldest, newest);
}

static int inbox_status(const struct options *o)
{
        struct semel_error err = {0};
        struct inbox_session *s = NULL;
        struct inbox_count *counts = NULL;
        size_t n = 0;
        bool json = option_flag(o, OPT_JSON);
        int rc;
        if (open_inbox(o, &s, &err) != SEMEL_OK ||
            s->vt->status(s, deadline(), &counts, &n, &err) != SEMEL_OK) {
                rc = say_failure(&err);
        } else {
                if (n == 0 && !json)
                        say_note("no consumer has recorded anything here");
                else if (!json)
                        printf("%-24s %-24s %12s %6s %6s %7s  %-21s %s\n", "CONSUMER", "SOURCE",
                               "PROCESSED", "DEAD", "RETRY", "ALARMS", "OLDEST", "NEWEST");
                for (size_t i = 0; i < n; i++)
                        print_count(&counts[i], json);
                rc = say_flush();
        }
        free(counts);
        close_inbox(s);
        return rc;
}

/* -- dead list ---------------------------------------------------------------------------------------- */

static void json_span(struct json_out *js, const char *name, struct span s)
{
        json_bytes(js, name, s.n ? (const void *)s.p : "", s.n);
}

static void print_letter_json(const struct inbox_letter *l)
{
        struct json_out js;
        json_begin(&js, stdout);
        json_number(&js, "id", l->id);
        json_text(&js, "state", inbox_letter_state_name(l->state));
        json_span(&js, "consumer", l->consumer);
        json_span(&js, "source", l->source);
        json_span(&js, "event_id", l->event_id);
        json_span(&js, "topic", l->topic);
        json_number(&js, "partition", l->partition);
        json_number(&js, "offset", l->offset);
        if (!l->key_is_null)
                json_span(&js, "key", l->key);
        if (!l->payload_is_null)
                json_span(&js, "payload", l->payload);
        json_span(&js, "headers", l->headers);
        json_number(&js, "attempts", l->attempts);
        json_span(&js, "reason", l->reason);
        json_time_us(&js, "dead", l->dead_us);
        json_end(&js);
}

static void print_letter(const struct inbox_letter *l)
{
        char at[TIME_TEXT_BYTES_MAX], name[256], text[256];
        time_format_us(l->dead_us, ' ', at);
        printf("%6lld  %-9s %s  %s/%d@%lld  %s\n", (long long)l->id,
               inbox_letter_state_name(l->state), at,
               text_printable(l->topic, name, sizeof name), (int)l->partition,
               (long long)l->offset, text_printable(l->reason, text, sizeof text));
        printf("        consumer %s, event %s, %d tries\n",
               text_printable(l->consumer, name, sizeof name),
               l->event_id.n ? text_printable(l->event_id, text, sizeof text) : "(no id)",
               (int)l->attempts);
}

static int inbox_dead(const struct options *o)
{
        struct semel_error err = {0};
        struct inbox_session *s = NULL;
        bool json = option_flag(o, OPT_JSON);
        size_t shown = 0;
        semel_code code;
        if (o->positional_count > 1 ||
            (o->positional_count == 1 && strcmp(o->positional[0], "list") != 0)) {
                say_error("it is: semel inbox dead list");
                return EXIT_CODE_USAGE;
        }
        code = open_inbox(o, &s, &err);
        for (size_t k = 0; k < OPEN_STATES && code == SEMEL_OK; k++) {
                int64_t after = 0;
                for (bool more = true; more && code == SEMEL_OK;) {
                        struct inbox_letters list = {0};
                        code = s->vt->list(s, span_str(option_text(o, OPT_CONSUMER)), open_states[k],
                                           after, LETTERS_AT_ONCE, deadline(), &list, &err);
                        for (size_t i = 0; i < list.n; i++) {
                                (json ? print_letter_json : print_letter)(&list.letter[i]);
                                after = list.letter[i].id;
                        }
                        shown += list.n;
                        more = list.n == LETTERS_AT_ONCE && !ferror(stdout);
                        inbox_letters_release(&list);
                }
        }
        close_inbox(s);
        if (code != SEMEL_OK)
                return say_failure(&err);
        if (shown == 0 && !json)
                say_note("no dead letters");
        return say_flush();
}

/* -- retry, discard ------------------------------------------------------------------------------------ */

/* Which letter: its number, or all. */
static bool which(const struct options *o, int64_t *ret_id)
{
        const char *text = o->positional_count == 1 ? o->positional[0] : NULL;
        char *end = NULL;
        long long id = text ? strtoll(text, &end, 10) : 0;
        if (text && strcmp(text, "all") == 0) {
                *ret_id = 0;
                return true;
        }
        if (!text || *end || id <= 0) {
                say_error("name the letter by its number (`semel inbox dead list` shows it), or "
                          "`all`");
                return false;
        }
        *ret_id = id;
        return true;
}

/* The letter as it is now, DEAD or in RETRY. */
static semel_code find_letter(struct inbox_session *s, const struct options *o, int64_t id,
                              struct inbox_letters *ret, semel_error *err)
{
        semel_code code = SEMEL_OK;
        for (size_t i = 0; i < OPEN_STATES && code == SEMEL_OK; i++) {
                inbox_letters_release(ret);
                code = s->vt->list(s, span_str(option_text(o, OPT_CONSUMER)), open_states[i], id - 1, 1,
                                   deadline(), ret, err);
                if (code == SEMEL_OK && ret->n > 0 && ret->letter[0].id == id)
                        return SEMEL_OK;
        }
        inbox_letters_release(ret);
        return code;
}

/* It is DEAD and counted from here on.  Without an answer it may be, and is put back: nothing was tried. */
static semel_code take_letter(struct inbox_session *s, const struct options *o, int64_t id,
                              struct inbox_letters *ret, semel_error *err)
{
        struct inbox_letters was = {0};
        semel_error ignored = {0};
        semel_code code = find_letter(s, o, id, &was, err);
        if (code == SEMEL_OK && was.n > 0)
                code = s->vt->take(s, span_str(option_text(o, OPT_CONSUMER)), id, true, deadline(), ret, err);
        if (code != SEMEL_OK && was.n > 0)
                (void)s->vt->untake(s, &was.letter[0], deadline(), &ignored);
        inbox_letters_release(&was);
        return code;
}

/* Apply it here and now, with the statement that is given. */
static int apply_now(struct inbox_session *s, const struct options *o, int64_t id,
                     semel_error *err)
{
        const struct inbox_handler handler = {
                .sql = option_text(o, OPT_SQL),
                .payload_is_bytea = option_number(o, OPT_PAYLOAD) == 1};
        struct inbox_result ret = {0};
        struct inbox_letters taken = {0};
        semel_error ignored = {0};
        bool found = false;
        if (id == 0) {
                say_error("--sql applies one letter: give its number");
                return EXIT_CODE_USAGE;
        }
        if (s->vt->check(s, &handler, deadline(), err) != SEMEL_OK ||
            take_letter(s, o, id, &taken, err) != SEMEL_OK)
                return say_failure(err);
        if (taken.n > 0)
                s->vt->retry_one(s, id, &handler, clock_boot_us() + 60 * SECOND, &found, &ret);
        if (ret.end != INBOX_DONE && ret.end != INBOX_FAILED)
                (void)s->vt->untake(s, &taken.letter[0], deadline(), &ignored);
        inbox_letters_release(&taken);
        if (ret.end != INBOX_DONE) {
                say_error("it failed again: %s", ret.err.text);
                return ret.end == INBOX_FAILED ? EXIT_CODE_REJECTED : EXIT_CODE_DOWN;
        }
        if (!found) {
                say_error("there is no letter %lld that is DEAD or RETRY", (long long)id);
                return EXIT_CODE_REJECTED;
        }
        say_note("letter %lld was applied", (long long)id);
        return EXIT_CODE_DONE;
}

static int decide(const struct options *o, enum inbox_letter_state to)
{
        struct semel_error err = {0};
        struct inbox_session *s = NULL;
        char who[LIMIT_HOLDER_BYTES + 1];
        int64_t id = 0, rows = 0;
        int rc = EXIT_CODE_DONE;
        if (!which(o, &id))
                return EXIT_CODE_USAGE;
        if (open_inbox(o, &s, &err) != SEMEL_OK) {
                rc = say_failure(&err);
        } else if (to == INBOX_RETRY && option_text(o, OPT_SQL)) {
                rc = apply_now(s, o, id, &err);
        } else if (s->vt->decide(s, span_str(option_text(o, OPT_CONSUMER)), id, to,
                                 operator_name(o, who),
                                 option_text(o, OPT_REASON) ? option_text(o, OPT_REASON) : "",
                                 deadline(), &rows, &err) != SEMEL_OK) {
                rc = say_failure(&err);
        } else if (to == INBOX_RETRY) {
                say_note("%lld letter%s will be applied by the consumer that runs, within a second",
                         (long long)rows, rows == 1 ? "" : "s");
        } else {
                say_note("%lld letter%s discarded", (long long)rows, rows == 1 ? "" : "s");
        }
        close_inbox(s);
        return rc;
}

static int inbox_retry(const struct options *o)
{
        return decide(o, INBOX_RETRY);
}

static int inbox_discard(const struct options *o)
{
        if (!option_text(o, OPT_REASON)) {
                say_error("say why with --reason TEXT; it is kept with the letter");
                return EXIT_CODE_USAGE;
        }
        return decide(o, INBOX_DISCARDED);
}

/* -- prune ----------------------------------------------------------------------------------------------- */

static semel_code prune_all(struct inbox_session *s, const struct options *o, int64_t *ret_rows, semel_error *err)
{
        int64_t rows = LIMIT_INBOX_PRUNE_ROWS, keep_us = option_number(o, OPT_REMEMBER) * MS;
        while (rows >= LIMIT_INBOX_PRUNE_ROWS) {
                semel_code code = s->vt->prune(s, span_str(option_text(o, OPT_CONSUMER)), keep_us, deadline(),
                                               &rows, err);
                if (code != SEMEL_OK)
                        return code;
                *ret_rows += rows;
        }
        return SEMEL_OK;
}

static int inbox_prune(const struct options *o)
{
        struct semel_error err = {0};
        struct inbox_session *s = NULL;
        int64_t rows = 0;
        int rc = EXIT_CODE_DONE;
        if (!option_text(o, OPT_CONSUMER) || o->positional_count > 0) {
                say_error("name whose records are forgotten: semel inbox prune --consumer NAME --keep 15d");
                return EXIT_CODE_USAGE;
        }
        if (open_inbox(o, &s, &err) != SEMEL_OK || prune_all(s, o, &rows, &err) != SEMEL_OK)
                rc = say_failure(&err);
        if (rows > 0 || rc == EXIT_CODE_DONE)
                say_note("%lld event%s forgotten", (long long)rows, rows == 1 ? "" : "s");
        close_inbox(s);
        return rc;
}

static const enum option_id status_options[] = {OPT_DB, OPT_JSON, OPT_QUIET};
static const enum option_id dead_options[] = {OPT_DB, OPT_CONSUMER, OPT_JSON, OPT_QUIET};
static const enum option_id retry_options[] = {OPT_DB, OPT_CONSUMER, OPT_SQL, OPT_PAYLOAD,
                                               OPT_WHO, OPT_REASON, OPT_QUIET};
static const enum option_id discard_options[] = {OPT_DB, OPT_CONSUMER, OPT_WHO, OPT_REASON,
                                                 OPT_QUIET};
static const enum option_id prune_options[] = {OPT_DB, OPT_CONSUMER, OPT_REMEMBER, OPT_QUIET};

static const struct subcommand inbox_subs[] = {
        {.name = "status",
         .usage = "[--json]",
         .summary = "what each consumer has done, and what is dead",
         .text = "One line for each consumer and source: events recorded, dead letters, letters that\n"
                 "wait to be applied, ids that came with two payloads.\n",
         .examples = "semel inbox status --db postgres://op@db/billing\n",
         .options = OPTION_SET(status_options),
         .run = inbox_status},
        {.name = "dead",
         .usage = "list [--consumer NAME] [--json]",
         .summary = "dead letters: the events that could not be applied, and why",
         .text = "A dead letter is the whole event, with the reason of its last try.  With --json its\n"
                 "key, payload and headers too.\n",
         .examples = "semel inbox dead list\nsemel inbox dead list --consumer billing --json\n",
         .options = OPTION_SET(dead_options),
         .run = inbox_dead},
        {.name = "retry",
         .usage = "NUMBER | all [--sql STATEMENT]",
         .summary = "have a dead letter applied, once",
         .text = "The consumer that runs applies it within a second: the letter becomes RETRIED in the\n"
                 "transaction of the effect, so it is applied once.  If it fails it is DEAD again; what\n"
                 "is nobody's fault leaves it in RETRY, and the letters behind it go on.  It is applied\n"
                 "after events that came later.  With --sql the statement is run here and now, for when\n"
                 "no consumer runs.\n",
         .examples = "semel inbox retry 17\nsemel inbox retry all --consumer billing\n"
                     "semel inbox retry 17 --sql 'SELECT billing.apply($1, $2)'\n",
         .options = OPTION_SET(retry_options),
         .run = inbox_retry},
        {.name = "discard",
         .usage = "NUMBER | all --reason TEXT",
         .summary = "decide that a dead letter is never applied",
         .text = "The letter, DEAD or in RETRY, stays in the table as DISCARDED, with who and why.\n",
         .examples = "semel inbox discard 17 --reason 'test order'\n",
         .options = OPTION_SET(discard_options),
         .run = inbox_discard},
        {.name = "prune",
         .usage = "--consumer NAME [--keep TIME]",
         .summary = "forget what a consumer recorded long ago",
         .text = "`semel consume` does this by itself, for its own name, with inbox_retention.  Consumers of\n"
                 "your own, which call semel.first_time() or semel_pg_inbox_first(), have nobody who does:\n"
                 "run this for them, once a day.  An event that comes again after it is applied again.\n",
         .examples = "semel inbox prune --consumer ledger --keep 30d\n",
         .options = OPTION_SET(prune_options),
         .run = inbox_prune},
        {0},
};

const struct subcommand subcommand_inbox = {
        .name = "inbox",
        .summary = "what was received: recorded events and dead letters",
        .text = "`semel consume` records each event that it applied, so that it is applied once, and\n"
                "keeps those that it could not apply as dead letters.\n",
        .examples = "semel inbox status\nsemel inbox dead list\nsemel inbox retry 17\n",
        .subs = inbox_subs,
};
