/* SPDX-License-Identifier: Apache-2.0
 *
 * call: `semel call METHOD URL --key K`: an HTTP request that is safe to retry.
 *
 *     read the body -> attempts, each with the same key and bytes -> the reply's body on stdout
 */
#include <semel/call.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "cmd/json_out.h"
#include "cmd/open_store.h"
#include "cmd/say.h"
#include "cmd/subcommand.h"
#include "core/limits.h"

struct calling {
        const struct options *o;
        semel_call *call;
        semel_store *st;
        semel_reply *reply;
        int output_fd; /* -1: stdout */
        bool json, verbose;
};

/* -- what is sent ------------------------------------------------------------------------------- */

static semel_code read_all(int fd, const char *name, struct buf *b, semel_error *err)
{
        char piece[64 * 1024];
        for (;;) {
                ssize_t n = read(fd, piece, sizeof piece);
                if (n == 0)
                        return SEMEL_OK;
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return err_set_errno(err, SEMEL_ERR_ARGUMENT, errno, "cannot read %.300s",
                                             name);
                if (buf_append(b, piece, (size_t)n) != BUF_OK)
                        return err_set(err, SEMEL_ERR_TOO_LARGE,
                                       "the body in %.300s is over %d MiB", name,
                                       LIMIT_CALL_BODY_BYTES / (1024 * 1024));
        }
}

/* @FILE, - or the text itself. */
static semel_code read_data(const char *data, struct buf *b, semel_error *err)
{
        if (strcmp(data, "-") == 0)
                return read_all(STDIN_FILENO, "stdin", b, err);
        if (data[0] != '@')
                return buf_append_str(b, data) == BUF_OK
                               ? SEMEL_OK
                               : err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for the body");
        int fd = open(data + 1, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return err_set_errno(err, SEMEL_ERR_ARGUMENT, errno, "cannot read %.300s", data + 1);
        semel_code code = read_all(fd, data + 1, b, err);
        (void)close(fd);
        return code;
}

static semel_code set_body(struct calling *c, semel_error *err)
{
        const char *data = option_text(c->o, OPT_DATA);
        struct buf b;
        if (!data)
                return SEMEL_OK;
        buf_init(&b, LIMIT_CALL_BODY_BYTES);
        semel_code code = read_data(data, &b, err);
        if (code == SEMEL_OK)
                code = semel_call_set_body(c->call, b.p, b.n, "application/json", err);
        buf_release(&b);
        return code;
}

/* "Name: value" */
static semel_code add_header(struct calling *c, const char *line, semel_error *err)
{
        const char *colon = strchr(line, ':');
        if (!colon)
                return err_set(err, SEMEL_ERR_ARGUMENT,
                               "--header \"%.64s\" has no colon: write 'Name: value'", line);
        char *name = strndup(line, (size_t)(colon - line));
        semel_code code = err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a header");
        if (name)
                code = semel_call_add_header(c->call, name, colon + 1 + strspn(colon + 1, " \t"), err);
        free(name);
        return code;
}

static semel_code make_call(struct calling *c, semel_error *err)
{
        const struct options *o = c->o;
        const char *db = option_text(o, OPT_CALL_DB);
        c->call = semel_call_new(o->positional[0], o->positional[1], option_text(o, OPT_CALL_KEY), err);
        if (!c->call)
                return semel_error_code(err);
        semel_code code = SEMEL_OK;
        for (size_t i = 0; i < o->many_count && code == SEMEL_OK; i++)
                code = add_header(c, o->many[i], err);
        if (code == SEMEL_OK)
                code = semel_call_set_deadline_ms(c->call, option_number(o, OPT_DEADLINE),
                                                  option_number(o, OPT_ATTEMPT_TIMEOUT), err);
        if (code == SEMEL_OK)
                code = semel_call_set_attempts_max(
                        c->call, (int)option_number(o, OPT_CALL_ATTEMPTS_MAX), err);
        if (code == SEMEL_OK)
                code = semel_call_set_ca_file(c->call, option_text(o, OPT_CACERT), err);
        if (code == SEMEL_OK)
                code = semel_call_set_proxy(c->call, option_text(o, OPT_PROXY), err);
        if (code == SEMEL_OK)
                code = set_body(c, err);
        if (code == SEMEL_OK && db) {
                stores_register();
                code = semel_store_open(db, &c->st, err);
        }
        if (code == SEMEL_OK && db) {
                int64_t ms = option_number(o, OPT_DEADLINE) / 4; /* a store that hangs is not all of it */
                code = semel_store_set_call_timeout_ms(c->st, ms < 100 ? 100 : ms > 5000 ? 5000 : ms,
                                                       err);
        }
        return code == SEMEL_OK && db ? semel_call_set_store(c->call, c->st, err) : code;
}

/* -- what it tells ------------------------------------------------------------------------------ */

static void on_attempt(void *arg, const semel_call_attempt *a)
{
        struct calling *c = arg;
        bool over = a->wait_ms < 0;
        if (c->json) {
                struct json_out js;
                json_begin(&js, stdout);
                json_number(&js, "attempt", a->number);
                json_number(&js, "status", a->status);
                json_bool(&js, "sent", a->sent);
                json_number(&js, "took_ms", a->took_ms);
                json_number(&js, "wait_ms", a->wait_ms);
                json_text(&js, "what", a->what);
                json_end(&js);
                (void)fflush(stdout);
        }
        if (!over)
                say_note("attempt %d: %s (%lld ms); again in %lld ms", a->number, a->what,
                         (long long)a->took_ms, (long long)a->wait_ms);
        else if (c->verbose || a->number > 1)
                say_note("attempt %d: %s (%lld ms)", a->number, a->what, (long long)a->took_ms);
}

/* -- the reply ---------------------------------------------------------------------------------- */

static void json_result(struct calling *c, semel_call_result result, const semel_error *err)
{
        struct json_out js;
        size_t n, name_n, value_n;
        const char *name, *value, *body = semel_reply_body(c->reply, &n);
        json_begin(&js, stdout);
        json_text(&js, "result", semel_call_result_name(result));
        json_number(&js, "status", semel_reply_status(c->reply));
        json_number(&js, "attempts", semel_call_attempts(c->call));
        json_bool(&js, "from_store", semel_reply_replayed(c->reply));
        json_bool(&js, "body_kept", !semel_reply_is_tombstone(c->reply));
        json_number(&js, "body_bytes", (int64_t)n);
        json_pairs_begin(&js, "headers");
        for (size_t i = 0; semel_reply_header(c->reply, i, &name, &name_n, &value, &value_n); i++)
                json_pair(&js, name, name_n, value, value_n);
        json_pairs_end(&js);
        if (c->output_fd < 0 && n > 0)
                json_bytes(&js, "body", body, n);
        if (semel_error_code(err) != SEMEL_OK)
                json_text(&js, "message", semel_error_text(err));
        json_end(&js);
}

static void print_head(const semel_reply *rep, FILE *out)
{
        const char *name, *value;
        size_t name_n, value_n;
        fprintf(out, "HTTP/1.1 %d\r\n", semel_reply_status(rep));
        for (size_t i = 0; semel_reply_header(rep, i, &name, &name_n, &value, &value_n); i++)
                fprintf(out, "%.*s: %.*s\r\n", (int)name_n, name, (int)value_n, value);
        fputs("\r\n", out);
}

/* Status, headers and body of a final reply.  0, or the exit code when they could not be written:
 * then the same call again gets them again. */
static int print_reply(struct calling *c)
{
        size_t n;
        const void *body = semel_reply_body(c->reply, &n);
        FILE *out = stdout;
        if (semel_reply_is_tombstone(c->reply))
                say_note("the reply's body was too big, or on purpose not kept");
        if (c->output_fd >= 0) {
                out = ftruncate(c->output_fd, 0) == 0 || errno == EINVAL ? fdopen(c->output_fd, "w")
                                                                         : NULL;
                if (!out) {
                        say_error("cannot write to %.300s: %s", option_text(c->o, OPT_OUTPUT),
                                  strerrordesc_np(errno));
                        return EXIT_CODE_DOWN;
                }
                c->output_fd = -1;
        } else if (c->json) {
                return 0; /* it is in the result */
        }
        if (option_flag(c->o, OPT_INCLUDE))
                print_head(c->reply, out);
        if (n > 0)
                (void)fwrite(body, 1, n, out);
        if (out == stdout)
                return say_flush();
        bool bad = ferror(out) != 0;
        bad |= fclose(out) != 0;
        if (bad)
                say_error("cannot write to %.300s", option_text(c->o, OPT_OUTPUT));
        return bad ? EXIT_CODE_DOWN : 0;
}

static int exit_code_of(semel_call_result result, const semel_error *err)
{
        switch (result) {
        case SEMEL_CALL_DONE:
                return EXIT_CODE_DONE;
        case SEMEL_CALL_REJECTED:
                return EXIT_CODE_REJECTED;
        case SEMEL_CALL_UNKNOWN:
                return EXIT_CODE_UNKNOWN;
        case SEMEL_CALL_IN_FLIGHT:
                return EXIT_CODE_IN_FLIGHT;
        case SEMEL_CALL_ERROR:
                break;
        }
        return semel_error_code(err) == SEMEL_ERR_ARGUMENT ? EXIT_CODE_USAGE : EXIT_CODE_DOWN;
}

static int finish(struct calling *c, semel_call_result result, const semel_error *err)
{
        bool final = semel_reply_status(c->reply) > 0 &&
                     (result == SEMEL_CALL_DONE || result == SEMEL_CALL_REJECTED);
        int code = exit_code_of(result, err), written = 0;
        if (semel_error_code(err) != SEMEL_OK)
                say_error("%s", semel_error_text(err));
        else if (semel_reply_replayed(c->reply) && c->verbose)
                say_note("done before, with status %d: the kept reply again",
                         semel_reply_status(c->reply));
        else if (c->verbose)
                say_note("done, with status %d", semel_reply_status(c->reply));
        if (c->json)
                json_result(c, result, err);
        if (final)
                written = print_reply(c);
        if (c->json && say_flush() != 0)
                written = EXIT_CODE_DOWN;
        return written ? written : code;
}

/* -- running ------------------------------------------------------------------------------------ */

static semel_call *volatile to_cancel; /* by a signal; NULL: it is over */

static void on_signal(int signal)
{
        semel_call *call = to_cancel;
        (void)signal;
        if (call)
                semel_call_cancel(call);
}

/* Ctrl-C ends the call, and a store is told; a second one ends the process. */
static void cancel_on_signals(semel_call *call)
{
        static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
        struct sigaction act = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND}, before;
        to_cancel = call;
        for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
                if (sigaction(signals[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
                        (void)sigaction(signals[i], &act, NULL);
        (void)signal(SIGPIPE, SIG_IGN); /* a reader that is gone must not stop the recording */
}

static bool usage_ok(const struct options *o)
{
        if (o->positional_count != 2 || o->rest_count > 0) {
                say_error("what is to be called?  semel call POST https://HOST/PATH --key KEY");
                return false;
        }
        if (!option_text(o, OPT_CALL_KEY)) {
                say_error("a call needs --key KEY: made from the operation's own data, as "
                          "order-7:charge:req-9, and the same in every try");
                return false;
        }
        return true;
}

static bool open_output(struct calling *c)
{
        const char *path = option_text(c->o, OPT_OUTPUT);
        if (!path)
                return true;
        /* Before anything is sent; emptied only when there is something to write. */
        c->output_fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
        if (c->output_fd < 0)
                say_error("cannot write to %.300s: %s", path, strerrordesc_np(errno));
        return c->output_fd >= 0;
}

static int call_run(const struct options *o)
{
        struct calling c = {.o = o,
                            .output_fd = -1,
                            .json = option_flag(o, OPT_JSON),
                            .verbose = option_flag(o, OPT_VERBOSE)};
        struct semel_error err = {0};
        int code = EXIT_CODE_USAGE;
        if (!usage_ok(o) || !open_output(&c))
                return code;
        c.reply = semel_reply_new();
        if (!c.reply) {
                say_error("no memory for a reply");
                code = EXIT_CODE_DOWN;
        } else if (make_call(&c, &err) != SEMEL_OK) {
                code = say_failure(&err);
        } else {
                semel_call_on_attempt(c.call, on_attempt, &c);
                cancel_on_signals(c.call);
                code = finish(&c, semel_call_run(c.call, c.reply, &err), &err);
        }
        if (c.output_fd >= 0)
                (void)close(c.output_fd);
        semel_reply_free(c.reply);
        to_cancel = NULL; /* signals still come */
        semel_call_free(c.call);
        semel_store_close(c.st);
        return code;
}

static const enum option_id call_options[] = {
        OPT_CALL_KEY, OPT_DATA,    OPT_HEADER, OPT_DEADLINE, OPT_ATTEMPT_TIMEOUT, OPT_CALL_ATTEMPTS_MAX,
        OPT_CALL_DB,  OPT_INCLUDE, OPT_OUTPUT, OPT_CACERT,   OPT_PROXY,           OPT_JSON,
        OPT_VERBOSE,  OPT_QUIET};

const struct subcommand subcommand_call = {
        .name = "call",
        .usage = "METHOD URL --key KEY [OPTIONS]",
        .summary = "send an HTTP request that is safe to retry",
        .text = "Sends the request with `Idempotency-Key: KEY` until there is a final reply, or the\n"
                "deadline comes.  Key and bytes are the same in each attempt, and each attempt is one\n"
                "connection of its own, so that nothing is sent again unseen.  Where the other side\n"
                "dedupes on the key, the effect is there exactly once.\n"
                "\n"
                "Tried again, 200 ms to 5 s apart or after Retry-After: no connection, a lost one (also\n"
                "after sending), a timeout, 408, 425, 429, 5xx, and 409, which means \"still running\".\n"
                "Final: 2xx is done; any other 4xx is rejected, and so is a redirect to elsewhere, since\n"
                "none is followed.  422 says that the key was used for another request: a bug where\n"
                "keys are made.  The reply's body goes to stdout.\n"
                "\n"
                "Exit code 76 is not a failure: some attempt may have been executed, and no final reply\n"
                "came.  Run the same command line again: the same key asks what became of it.  Only 65\n"
                "and 69 say that it did not happen.  Without --db nobody remembers the 76: a later 69, and\n"
                "a 65 of the front door (401, 403, 407, 421, a redirect), speak of their own run only and\n"
                "say nothing of the one before.  Go on, with the same key.\n"
                "\n"
                "With --db the call survives this process: key and a digest of the request are kept, a\n"
                "second process with the key sends nothing (75), one that comes after a crash goes on,\n"
                "after a 76 neither 65 of the front door nor 69 is said, and a finished call is answered\n"
                "from the store for 24 h.\n",
        .examples = "semel call POST https://pay.example/charges --key order-7:charge:req-9 \\\n"
                    "    --data '{\"amount\": 500}' --header \"Authorization: Bearer $TOKEN\"\n"
                    "semel call PUT https://api.example/x --key import-7 --data @x.json --deadline 5m\n"
                    "semel call POST https://pay.example/refunds --key refund-7 --data - \\\n"
                    "    --db postgres://app@db/shop --json <refund.json\n",
        .exits = "0   done: a final reply that says so\n"
                 "64  usage: the command line is wrong, and stderr says how\n"
                 "65  rejected: a final reply that says no (its body is printed), or the key was used\n"
                 "    for another request\n"
                 "69  nothing happened: never reached, or refused for now each time; or the store is\n"
                 "    down; or the reply could not be written: the same again is safe\n"
                 "75  in flight: another process has it under way (--db)\n"
                 "76  nobody knows: it may have happened; run the same again\n",
        .options = OPTION_SET(call_options),
        .run = call_run,
};
