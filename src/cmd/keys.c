/* SPDX-License-Identifier: Apache-2.0
 *
 * keys: `semel keys list | show | resolve | release | purge`.
 *
 * A decision is guarded by the attempt that was shown: if the key moved on since, it is
 * refused.  Before it, the lock that a command of `semel run` holds is tested (rule A10).
 */
#include <semel/keys.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/keys.h"
#include "base/err.h"
#include "cmd/json_out.h"
#include "cmd/keys_print.h"
#include "cmd/keys_select.h"
#include "cmd/open_store.h"
#include "cmd/operator.h"
#include "cmd/run_claim.h"
#include "cmd/run_output.h"
#include "cmd/say.h"
#include "cmd/subcommand.h"

/* -- list ------------------------------------------------------------------------------------ */

struct list {
        bool json;
        size_t count;
};

static bool list_row(void *arg, const semel_key_row *row)
{
        struct list *list = arg;
        if (list->json) {
                keys_print_json(stdout, row);
        } else {
                if (list->count == 0)
                        keys_print_header(stdout);
                keys_print_line(stdout, row);
        }
        list->count++;
        return !ferror(stdout);
}

static int keys_list(const struct options *o)
{
        struct semel_error err = {0};
        struct list list = {.json = option_flag(o, OPT_JSON)};
        semel_store *st = NULL;
        int code;
        if (store_open(o, &st, &err) != SEMEL_OK ||
            semel_keys_list(st, option_flag(o, OPT_STUCK), options_key(o), list_row, &list, &err) != SEMEL_OK) {
                code = say_failure(&err);
        } else {
                if (list.count == 0 && !list.json)
                        say_note(option_flag(o, OPT_STUCK) ? "nothing is stuck" : "no keys");
                code = say_flush();
        }
        semel_store_close(st);
        return code;
}

/* -- show ------------------------------------------------------------------------------------ */

/* Output of `semel run` is written as it was: stdout and stderr in their order, to stdout. */
static int write_body(const semel_reply *rep)
{
        size_t n;
        const void *body = rep ? semel_reply_body(rep, &n) : NULL;
        if (!rep || semel_reply_is_tombstone(rep)) {
                say_error("no body is kept for this key");
                return EXIT_CODE_REJECTED;
        }
        size_t written;
        bool framed = run_output_view(rep, &written);
        struct run_cursor cur = {span_of(body, n)};
        enum run_stream stream;
        struct span piece;
        if (!framed)
                (void)fwrite(body, 1, n, stdout);
        while (framed && run_output_next(&cur, &stream, &piece) == 1)
                (void)fwrite(piece.p, 1, piece.n, stdout);
        return say_flush();
}

static int keys_show(const struct options *o)
{
        struct semel_error err = {0};
        semel_store *st = NULL;
        semel_key_row *row = NULL;
        int code;
        if (store_open(o, &st, &err) != SEMEL_OK || keys_select(st, o, &row, &err) != SEMEL_OK) {
                code = say_failure(&err);
        } else if (option_flag(o, OPT_BODY)) {
                code = write_body(semel_key_row_reply(row));
        } else {
                if (option_flag(o, OPT_JSON))
                        keys_print_json(stdout, row);
                else
                        keys_print_full(stdout, row);
                code = say_flush();
        }
        semel_key_row_free(row);
        semel_store_close(st);
        return code;
}

/* -- resolve, release ---------------------------------------------------------------------------- */

/* Does its command still run, as far as one can see?  0, or the exit code of a refusal. */
static int look_for_life(const semel_key_row *row, bool force)
{
        struct holder holder;
        holder_parse(semel_key_row_holder(row), &holder);
        switch (holder_look(&holder)) {
        case HOLDER_ALIVE:
                say_error("its command still runs on this host (pid %s was its semel, and %s is "
                          "locked): wait for it, or end it first",
                          holder.pid, holder.lock);
                return EXIT_CODE_IN_FLIGHT;
        case HOLDER_ELSEWHERE:
                if (force)
                        return 0;
                say_error("it ran on host %s, and from here one cannot see whether its command still "
                          "runs: look there, then decide there, or here with --force",
                          holder.host);
                return EXIT_CODE_REJECTED;
        case HOLDER_UNREADABLE:
                if (force)
                        return 0;
                say_error("this user may not look at %s, which says whether its command still runs: "
                          "decide as the user that ran it, or as root; or look, then --force",
                          holder.lock);
                return EXIT_CODE_REJECTED;
        case HOLDER_NO_LOCK:
        case HOLDER_REBOOTED:
        case HOLDER_GONE:
                break;
        }
        return 0;
}

/* Is the row the one that was shown, and was it shown late enough for this verdict? */
static int check_attempt(const char *attempt, const semel_key_row *row, semel_resolve what)
{
        char now[SHOWN_ATTEMPT_BYTES_MAX];
        bool early;
        if (!strchr(attempt, ':')) {
                say_error("--attempt needs HEX:TOKEN, as `keys show` prints it");
                return EXIT_CODE_USAGE;
        }
        keys_shown_attempt(row, now);
        if (!keys_same_attempt(attempt, now, &early)) {
                say_error("the key has changed since it was shown: look at it again");
                return EXIT_CODE_REJECTED;
        }
        if (early && what == SEMEL_RESOLVE_NOT_EXECUTED) {
                say_error("when it was shown, a request could still be under way, and it may have "
                          "acted since: `keys show` it again, and look at the other side again");
                return EXIT_CODE_REJECTED;
        }
        return 0;
}

/* 0 when the person (or --yes) says go. */
static int confirm(const struct options *o, const semel_key_row *row, semel_resolve what)
{
        if (option_flag(o, OPT_YES))
                return 0;
        if (!isatty(STDIN_FILENO)) {
                say_error("nobody is here to confirm: give --attempt from `semel keys show`, "
                          "or --yes");
                return EXIT_CODE_USAGE;
        }
        static const char *const questions[] = {
                [SEMEL_RESOLVE_EXECUTED] = "Retries will be told that it ran.",
                [SEMEL_RESOLVE_NOT_EXECUTED] = "The next retry will run it.",
                [SEMEL_RESOLVE_FORGET] = "Its reply is forgotten, and the next call runs it again.",
        };
        keys_print_full(stderr, row);
        if (what != SEMEL_RESOLVE_FORGET)
                fputs("\nLook at the other side now: did it happen?\n", stderr);
        fprintf(stderr, "\n%s  Go on? [y/N] ", questions[what]);
        char line[16] = "";
        if (fgets(line, sizeof line, stdin) && (line[0] == 'y' || line[0] == 'Y'))
                return 0;
        say_error("nothing was changed");
        return EXIT_CODE_REJECTED;
}

/* The reply of --status and --body-file; NULL stays when neither is given. */
static semel_code make_reply(const struct options *o, semel_reply **ret_rep, semel_error *err)
{
        const char *file = option_text(o, OPT_BODY_FILE);
        if (!file && !option_flag(o, OPT_STATUS))
                return SEMEL_OK;
        semel_reply *rep = semel_reply_new();
        struct buf body;
        semel_code code = SEMEL_OK;
        if (!rep)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a reply");
        buf_init(&body, LIMIT_REPLY_BODY_BYTES);
        semel_reply_set_status(rep, (int)option_number(o, OPT_STATUS));
        if (!file)
                semel_reply_set_tombstone(rep, true);
        else if (file_read(file, &body) != 0)
                code = err_set_errno(err, SEMEL_ERR_ARGUMENT, errno, "cannot read %.200s", file);
        else
                code = semel_reply_set_body(rep, body.p, body.n, err);
        buf_release(&body);
        if (code == SEMEL_OK)
                *ret_rep = rep;
        else
                semel_reply_free(rep);
        return code;
}

static int decide(const struct options *o, semel_store *st, const semel_key_row *row,
                  semel_resolve what)
{
        struct semel_error err = {0};
        char who[LIMIT_HOLDER_BYTES + 1];
        const char *attempt = option_text(o, OPT_ATTEMPT);
        semel_reply *rep = NULL;
        int code = 0;
        if (semel_key_row_state(row) != SEMEL_KEY_COMPLETED)
                code = look_for_life(row, option_flag(o, OPT_FORCE));
        if (code == 0 && attempt)
                code = check_attempt(attempt, row, what);
        /* Before anybody is asked to look: what is seen there too early decides nothing (A5b). */
        if (code == 0 && keys_may_resolve(row, what, &err) != SEMEL_OK)
                code = say_failure(&err);
        if (code == 0 && !attempt)
                code = confirm(o, row, what);
        if (code != 0)
                return code;
        if (make_reply(o, &rep, &err) != SEMEL_OK ||
            semel_keys_resolve(st, row, what, rep, option_text(o, OPT_REASON),
                               operator_name(o, who), &err) != SEMEL_OK)
                code = say_failure(&err);
        else
                say_note(what == SEMEL_RESOLVE_EXECUTED ? "resolved as executed"
                                                        : "the key is free: the next call runs it");
        semel_reply_free(rep);
        return code;
}

/* The common frame: open, find the row, choose what to do, do it. */
static int with_row(const struct options *o,
                    int (*fn)(const struct options *o, semel_store *st, const semel_key_row *row))
{
        struct semel_error err = {0};
        semel_store *st = NULL;
        semel_key_row *row = NULL;
        int code;
        if (!option_text(o, OPT_REASON) || !*option_text(o, OPT_REASON)) {
                say_error("say why: --reason TEXT (it goes into the audit table)");
                return EXIT_CODE_USAGE;
        }
        if (store_open(o, &st, &err) != SEMEL_OK || keys_select(st, o, &row, &err) != SEMEL_OK)
                code = say_failure(&err);
        else
                code = fn(o, st, row);
        semel_key_row_free(row);
        semel_store_close(st);
        return code;
}

static int resolve_row(const struct options *o, semel_store *st, const semel_key_row *row)
{
        bool run_scope = strcmp(semel_key_row_scope(row), RUN_SCOPE) == 0;
        if (run_scope && option_number(o, OPT_STATUS) > 255) {
                say_error("--status of a command of `semel run` is an exit code: 0 to 255");
                return EXIT_CODE_USAGE;
        }
        return decide(o, st, row, option_flag(o, OPT_EXECUTED) ? SEMEL_RESOLVE_EXECUTED
                                                               : SEMEL_RESOLVE_NOT_EXECUTED);
}

static int keys_resolve(const struct options *o)
{
        bool executed = option_flag(o, OPT_EXECUTED);
        if (executed == option_flag(o, OPT_NOT_EXECUTED)) {
                say_error("say what happened: either --executed or --not-executed");
                return EXIT_CODE_USAGE;
        }
        if (!executed && (option_flag(o, OPT_STATUS) || option_text(o, OPT_BODY_FILE))) {
                say_error("--status and --body-file are the reply of what was executed: they go "
                          "with --executed");
                return EXIT_CODE_USAGE;
        }
        return with_row(o, resolve_row);
}

static int release_row(const struct options *o, semel_store *st, const semel_key_row *row)
{
        if (semel_key_row_state(row) == SEMEL_KEY_FREE) {
                say_note("the key is free already");
                return EXIT_CODE_DONE;
        }
        return decide(o, st, row, semel_key_row_state(row) == SEMEL_KEY_COMPLETED
                                          ? SEMEL_RESOLVE_FORGET
                                          : SEMEL_RESOLVE_NOT_EXECUTED);
}

static int keys_release(const struct options *o)
{
        return with_row(o, release_row);
}

/* -- purge --------------------------------------------------------------------------------------- */

static int keys_purge(const struct options *o)
{
        struct semel_error err = {0};
        semel_store *st = NULL;
        int64_t deleted = 0, unknown = 0;
        int code;
        if (store_open(o, &st, &err) != SEMEL_OK ||
            semel_keys_purge(st, &deleted, &unknown, &err) != SEMEL_OK) {
                code = say_failure(&err);
        } else if (option_flag(o, OPT_JSON)) {
                struct json_out js;
                json_begin(&js, stdout);
                json_number(&js, "deleted", deleted);
                json_number(&js, "unknown", unknown);
                json_end(&js);
                code = say_flush();
        } else {
                printf("deleted %lld whose retention is over; %lld whose lease is over are UNKNOWN "
                       "now\n",
                       (long long)deleted, (long long)unknown);
                code = say_flush();
        }
        semel_store_close(st);
        return code;
}

/* -- tables ---------------------------------------------------------------------------------------- */

static const enum option_id list_options[] = {OPT_DB, OPT_STUCK, OPT_KEY, OPT_JSON, OPT_QUIET};
static const enum option_id show_options[] = {OPT_DB,        OPT_ID,   OPT_MODE, OPT_SCOPE,
                                              OPT_PRINCIPAL, OPT_KEY,  OPT_JSON, OPT_BODY,
                                              OPT_QUIET};
static const enum option_id resolve_options[] = {
        OPT_DB,        OPT_EXECUTED,  OPT_NOT_EXECUTED, OPT_REASON, OPT_STATUS,
        OPT_BODY_FILE, OPT_ATTEMPT,   OPT_YES,          OPT_FORCE,  OPT_WHO,
        OPT_ID,        OPT_MODE,      OPT_SCOPE,        OPT_PRINCIPAL, OPT_KEY,
        OPT_QUIET};
static const enum option_id release_options[] = {
        OPT_DB, OPT_REASON, OPT_ATTEMPT, OPT_YES,       OPT_FORCE, OPT_WHO,
        OPT_ID, OPT_MODE,   OPT_SCOPE,   OPT_PRINCIPAL, OPT_KEY,   OPT_QUIET};
static const enum option_id purge_options[] = {OPT_DB, OPT_JSON, OPT_QUIET};

static const struct subcommand keys_commands[] = {
        {.name = "list",
         .usage = "[KEY] [--stuck] [--json]",
         .summary = "the keys of a store",
         .text = "One line a key, in the order in which they were made; with KEY only those of this text.\n",
         .examples = "semel keys list\n"
                     "semel keys list --stuck --json | jq -r .key\n",
         .options = OPTION_SET(list_options),
         .run = keys_list},
        {.name = "show",
         .usage = "KEY|--id HEX [--json] [--body]",
         .summary = "who holds a key, since when, until when; its reply",
         .text = "Everything that is known about one key, and what to do next.  On SQLite, times of a\n"
                 "claim that was made before the machine's last boot are not known (--json: null).\n",
         .examples = "semel keys show daily-report-2024-06-01\n"
                     "semel keys show order-7 --mode tx --principal user-9\n"
                     "semel keys show daily-report-2024-06-01 --body > report.txt\n",
         .options = OPTION_SET(show_options),
         .run = keys_show},
        {.name = "resolve",
         .usage = "KEY|--id HEX --executed|--not-executed --reason TEXT",
         .summary = "decide about a key whose outcome nobody knows",
         .text = "Look at the other side first: did the thing happen?\n"
                 "--executed: retries are told so, and get --status and --body-file.\n"
                 "--not-executed: it did not happen and cannot any more; the next retry runs it.\n"
                 "Refused while a holder's lease, a request or a command may still be under way, and\n"
                 "when the key changed since it was shown.  What is seen at the other side by then says\n"
                 "nothing: look once more when `keys show` says so (look from).  An attempt that it\n"
                 "showed before ends with :early, and does for --executed only.\n"
                 "Leaves a row in the audit table.\n",
         .examples = "semel keys resolve order-7 --executed --status 201 --body-file reply.json \\\n"
                     "    --reason 'charge 8812 is there'\n"
                     "semel keys resolve order-8 --not-executed --reason 'no charge at the bank'\n",
         .options = OPTION_SET(resolve_options),
         .run = keys_resolve},
        {.name = "release",
         .usage = "KEY|--id HEX --reason TEXT",
         .summary = "let a key run again",
         .text = "A completed key: its reply is forgotten and the next call runs it again.\n"
                 "An unknown or stuck one: the same as `resolve --not-executed`, with its guards.\n"
                 "Leaves a row in the audit table.\n",
         .examples = "semel keys release daily-report-2024-06-01 --reason 'the numbers were late'\n",
         .options = OPTION_SET(release_options),
         .run = keys_release},
        {.name = "purge",
         .usage = "[--json]",
         .summary = "forget what is past its retention",
         .text = "One pass over the table: deletes completed and free keys whose retention is over,\n"
                 "and turns keys whose lease is over into UNKNOWN, so that they are listed.\n"
                 "UNKNOWN keys are never deleted.  Run it from cron, as often as you like.\n",
         .examples = "semel keys purge --quiet\n",
         .options = OPTION_SET(purge_options),
         .run = keys_purge},
        {0}};

const struct subcommand subcommand_keys = {
        .name = "keys",
        .summary = "look at keys, and resolve the ones nobody can know about",
        .text = "A key is FREE, IN_FLIGHT, COMPLETED, or UNKNOWN: it may have run, and a person has to\n"
                "look.\n",
        .examples = "semel keys list --stuck\n"
                    "semel keys resolve order-7 --not-executed --reason 'the bank has no charge'\n",
        .subs = keys_commands,
};
