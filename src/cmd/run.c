/* SPDX-License-Identifier: Apache-2.0
 *
 * run: `semel run KEY -- command args...`: runs a command once per key, keeps its exit code
 * and output, and gives them to every later call.
 *
 *     lock and claim -> start the command -> renew the lease while it lives
 *       -> record what it did -> pass on the rest of its output -> its exit code
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "api/claim.h"
#include "api/command_object.h"
#include "cmd/exit_set.h"
#include "cmd/holder.h"
#include "cmd/json_out.h"
#include "cmd/open_store.h"
#include "cmd/renewal.h"
#include "cmd/run_child.h"
#include "cmd/run_claim.h"
#include "cmd/say.h"
#include "cmd/subcommand.h"
#include "sys/clock.h"

struct run {
        const struct options *o;
        const char *key;
        char **argv;
        struct exit_set release_on;
        struct signals signals;
        struct run_claim rc;
        bool verbose;
};

/* A store call that takes longer than this is given up: a lease must survive a few. */
enum { CALL_MS_MIN = 1000, CALL_MS_MAX = 5000 };

/* At least so long a finished command's result is offered to a store that does not answer. */
enum { RECORD_MS_MIN = 60 * 1000, RECORD_PAUSE_MAX_MS = 2000 };

/* -- the command's identity --------------------------------------------------------------- */

/* The fingerprint covers every argument, framed by its NUL (no argument holds one). */
static semel_code set_request(semel_command *cmd, char **argv, semel_error *err)
{
        struct buf b;
        semel_code code = SEMEL_OK;
        buf_init(&b, 64 * 1024 * 1024); /* the kernel takes less than that */
        for (; *argv && code == SEMEL_OK; argv++)
                if (buf_append(&b, *argv, strlen(*argv) + 1) != BUF_OK)
                        code = err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for the arguments");
        if (code == SEMEL_OK)
                code = semel_command_set_request(cmd, b.p, b.n, err);
        buf_release(&b);
        return code;
}

static semel_code set_operation(const struct run *run, semel_error *err)
{
        const char *given = option_text(run->o, OPT_OPERATION);
        if (given)
                return semel_command_set_operation(run->rc.cmd, given, err);
        const char *slash = strrchr(run->argv[0], '/');
        char name[LIMIT_OPERATION_BYTES + 1];
        (void)snprintf(name, sizeof name, "run %s", slash && slash[1] ? slash + 1 : run->argv[0]);
        return semel_command_set_operation(run->rc.cmd, name, err);
}

static semel_code make_command(struct run *run, semel_error *err)
{
        const struct options *o = run->o;
        semel_command *cmd = semel_command_new(run->key, strlen(run->key), err);
        if (!cmd)
                return semel_error_code(err);
        run->rc.cmd = cmd;
        semel_command_set_on_unknown(cmd, option_number(o, OPT_ON_UNKNOWN) == 1
                                                  ? SEMEL_ON_UNKNOWN_RETRY
                                                  : SEMEL_ON_UNKNOWN_HOLD);
        semel_command_set_idempotent(cmd, run->rc.idempotent);
        semel_command_set_store_key(cmd, option_number(o, OPT_STORE_KEY) == 0);
        semel_code code = semel_command_set_scope(cmd, RUN_SCOPE, err);
        if (code == SEMEL_OK)
                code = set_operation(run, err);
        if (code == SEMEL_OK)
                code = set_request(cmd, run->argv, err);
        if (code == SEMEL_OK)
                code = semel_command_set_lease_ms(cmd, option_number(o, OPT_LEASE), err);
        if (code == SEMEL_OK)
                code = semel_command_set_retention_ms(cmd, option_number(o, OPT_RETENTION), err);
        if (code == SEMEL_OK)
                code = semel_command_set_reply_bytes_max(cmd, option_number(o, OPT_OUTPUT_MAX), err);
        if (code == SEMEL_OK)
                code = semel_command_id(cmd, "run", run->rc.id, err);
        return code;
}

static semel_code open_run_store(struct run *run, const char *url, semel_error *err)
{
        int64_t call_ms = run->rc.lease_ms / 4;
        call_ms = call_ms < CALL_MS_MIN ? CALL_MS_MIN : call_ms > CALL_MS_MAX ? CALL_MS_MAX : call_ms;
        semel_code code = semel_store_open(url, &run->rc.st, err);
        return code == SEMEL_OK ? semel_store_set_call_timeout_ms(run->rc.st, call_ms, err) : code;
}

/* The lock is named by store and key: one key in two stores is two commands. */
static semel_code open_lock(struct run *run, const char *url, semel_error *err)
{
        char dir[FILES_PATH_BYTES_MAX], path[2 * FILES_PATH_BYTES_MAX], hex[2 * 16 + 1];
        uint8_t digest[HASH_BYTES], both[HASH_BYTES + SEMEL_KEY_ID_BYTES];
        if (sha256_once(url, strlen(url), both) != 0)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "SHA-256 failed: no memory");
        memcpy(both + HASH_BYTES, run->rc.id, SEMEL_KEY_ID_BYTES);
        if (sha256_once(both, sizeof both, digest) != 0)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "SHA-256 failed: no memory");
        hex_format(digest, 16, hex);

        if (state_dir(dir) != 0)
                return err_set_errno(err, SEMEL_ERR_ARGUMENT, errno,
                                     "no place for the lock files: set HOME or SEMEL_STATE_DIR");
        (void)snprintf(path, sizeof path, "%s/locks", dir);
        if (dir_make(path) != 0)
                return err_set_errno(err, SEMEL_ERR_STORE_DOWN, errno,
                                     "cannot make the folder for lock files %.300s", path);
        (void)snprintf(path, sizeof path, "%s/locks/%s", dir, hex);
        if (lock_file_open(&run->rc.lock, path) != 0)
                return err_set_errno(err, SEMEL_ERR_STORE_DOWN, errno,
                                     "cannot open the lock file %.300s", path);
        char label[LIMIT_HOLDER_BYTES + 1];
        if (!holder_format(run->rc.lock.path, label))
                return err_set(err, SEMEL_ERR_ARGUMENT,
                               "the state directory's path is too long: set SEMEL_STATE_DIR to a "
                               "shorter one");
        return command_set_holder(run->rc.cmd, label, err);
}

/* -- replay ----------------------------------------------------------------------------------- */

/* Where the output is kept, whoever did not get it gets it from the key. */
#define GIVEN_AGAIN "; the same call again gives it again"

static int replay(const struct run *run, const semel_reply *rep)
{
        struct run_unwritten unwritten = {0};
        size_t n, written;
        const void *body = semel_reply_body(rep, &n);
        int status = semel_reply_status(rep);
        if (run->verbose)
                say_note("\"%s\" ran before: its output and exit code %d again", run->key, status);
        if (semel_reply_is_tombstone(rep)) {
                say_note("\"%s\" ran before, with exit code %d; its output was not kept", run->key,
                         status);
        } else if (!run_output_view(rep, &written)) {
                run_write(&unwritten, RUN_STDOUT, span_of(body, n));
        } else {
                struct run_cursor cur = {span_of(body, n)};
                enum run_stream stream;
                struct span bytes;
                int more;
                while ((more = run_output_next(&cur, &stream, &bytes)) == 1)
                        run_write(&unwritten, stream, bytes);
                if (more < 0)
                        say_error("the kept output of \"%s\" is damaged from here on", run->key);
        }
        if (status < 0 || status > 255) {
                say_error("\"%s\" was resolved with status %d, which is no exit code", run->key, status);
                return EXIT_CODE_DOWN;
        }
        if (unwritten.why == 0)
                return status;
        run_unwritten_say(&unwritten, GIVEN_AGAIN); /* all that a replay has to do */
        return EXIT_CODE_DOWN;
}

/* -- recording ---------------------------------------------------------------------------------- */

static semel_code make_reply(const struct run_child *child, semel_reply *rep, semel_error *err)
{
        const struct run_output *output = child->output;
        semel_reply_set_status(rep, child->code);
        if (output->too_big) {
                semel_reply_set_tombstone(rep, true);
                return SEMEL_OK;
        }
        semel_code code =
                semel_reply_add_header(rep, "Content-Type", strlen("Content-Type"), RUN_OUTPUT_TYPE,
                                       strlen(RUN_OUTPUT_TYPE), err);
        return code == SEMEL_OK ? semel_reply_set_body(rep, output->body.p, output->body.n, err)
                                : code;
}

/* Write what became of the claim, until the store takes it: the command has run, and an
 * unrecorded run is a key that somebody has to resolve.  rep NULL: release.  false: it did not. */
static bool record(struct run *run, const semel_reply *rep)
{
        struct semel_error *err = &run->rc.err;
        const int64_t record_ms =
                run->rc.lease_ms > RECORD_MS_MIN ? run->rc.lease_ms : RECORD_MS_MIN;
        const int64_t until_us = clock_boot_us() + record_ms * 1000;
        for (int64_t pause_ms = 100;;) {
                semel_code code = rep ? semel_complete(run->rc.claim, rep, err)
                                      : semel_release(run->rc.claim, err);
                if (code == SEMEL_OK)
                        return true;
                semel_class class = semel_error_class(err);
                bool again = (class == SEMEL_CLASS_RETRYABLE || class == SEMEL_CLASS_UNKNOWN) &&
                             clock_boot_us() < until_us;
                if (again && pause_ms == 100)
                        say_error("the result is not recorded yet, trying for %lld s: %s",
                                  (long long)(record_ms / 1000), err->text);
                if (!again || signals_sleep(&run->signals, pause_ms) != 0) {
                        say_error("THE RESULT IS NOT RECORDED: \"%s\" ran, but later calls will not "
                                  "know what it did: %s",
                                  run->key, err->text);
                        return false;
                }
                pause_ms = pause_ms * 2 > RECORD_PAUSE_MAX_MS ? RECORD_PAUSE_MAX_MS : pause_ms * 2;
        }
}

static bool record_child(struct run *run, const struct run_child *child)
{
        if (exit_set_has(&run->release_on, child->code)) {
                bool released = record(run, NULL);
                if (released && run->verbose)
                        say_note("exit code %d: the key is free again", child->code);
                return released;
        }
        semel_reply *rep = semel_reply_new();
        struct semel_error err = {0};
        if (!rep) {
                say_error("THE RESULT IS NOT RECORDED: no memory");
                return false;
        }
        if (make_reply(child, rep, &err) != SEMEL_OK) { /* no memory: the exit code alone */
                semel_reply_clear(rep);
                semel_reply_set_status(rep, child->code);
                semel_reply_set_tombstone(rep, true);
        }
        if (semel_reply_is_tombstone(rep))
                say_note("more than %s of output: only the exit code is kept",
                         option_text(run->o, OPT_OUTPUT_MAX));
        bool recorded = record(run, rep);
        semel_reply_free(rep);
        return recorded;
}

/* -- running ------------------------------------------------------------------------------------ */

/* Record what the command did, and only then wait for our own readers. */
static void record_and_flush(struct run *run, struct run_child *child)
{
        /* Else what it left behind keeps the lock: as long as that lives, nobody takes over. */
        bool recorded = record_child(run, child);
        bool kept = recorded && !child->output->too_big && !exit_set_has(&run->release_on, child->code);
        if (recorded)
                lock_file_remove(&run->rc.lock);
        signals_close(&run->signals); /* from here on a signal may end us */
        run_child_flush(child);
        if (child->unwritten.why != 0) /* it ran: how, says its own exit code */
                run_unwritten_say(&child->unwritten, kept ? GIVEN_AGAIN : "");
}

/* Nothing happened: the key is free again. */
static void give_back(struct run *run)
{
        struct semel_error err = {0};
        if (claim_release_not_executed(run->rc.claim, &err) != SEMEL_OK)
                say_error("the key could not be released: %s", err.text);
        lock_file_remove(&run->rc.lock);
}

/* The command did not begin. */
static int not_started(struct run *run, int why)
{
        give_back(run);
        say_error("cannot run \"%.200s\": %s; the key is free", run->argv[0], strerrordesc_np(why));
        return why == ENOENT ? EXIT_CODE_NOT_FOUND : EXIT_CODE_CANNOT_EXECUTE;
}

/* Our environment, and SEMEL_KEY and SEMEL_TOKEN: what the command may dedupe on, and fence
 * with.  A copy, since setenv() would race with the store's thread.  NULL: no memory. */
static char **child_env(const char *key_line, const char *token_line)
{
        size_t n = 0, at = 0;
        while (environ[n])
                n++;
        char **env = calloc(n + 3, sizeof *env);
        if (!env)
                return NULL;
        for (size_t i = 0; i < n; i++)
                if (strncmp(environ[i], "SEMEL_KEY=", 10) != 0 &&
                    strncmp(environ[i], "SEMEL_TOKEN=", 12) != 0)
                        env[at++] = environ[i];
        env[at++] = (char *)key_line;
        env[at++] = (char *)token_line;
        return env;
}

static int run_claimed(struct run *run)
{
        struct run_output output;
        struct renewal renewal;
        if (run->verbose)
                say_note("\"%s\" is claimed, token %lld", run->key,
                         (long long)semel_claim_token(run->rc.claim));
        int signal = signals_sleep(&run->signals, 0);
        if (signal) { /* it came before there was a command to pass it on to */
                give_back(run);
                return EXIT_CODE_SIGNAL + signal;
        }
        char key_line[LIMIT_KEY_BYTES + 16], token_line[48];
        (void)snprintf(key_line, sizeof key_line, "SEMEL_KEY=%s", run->key);
        (void)snprintf(token_line, sizeof token_line, "SEMEL_TOKEN=%lld",
                       (long long)semel_claim_token(run->rc.claim));
        char **env = child_env(key_line, token_line);
        if (!env || renewal_start(&renewal, run->rc.claim, run->rc.lease_ms) != 0) {
                int why = env ? errno : ENOMEM;
                free(env);
                return not_started(run, why);
        }
        run_output_init(&output, (size_t)option_number(run->o, OPT_OUTPUT_MAX));
        struct run_child child = {.argv = run->argv,
                                  .env = env,
                                  .lock_fd = run->rc.lock.fd,
                                  .signals = &run->signals,
                                  .output = &output};
        int started = run_child(&child), why = errno, code;
        renewal_stop(&renewal);
        if (started == 0) {
                record_and_flush(run, &child);
                code = child.code;
        } else {
                code = not_started(run, why);
        }
        run_child_release(&child);
        run_output_release(&output);
        free(env);
        return code;
}

static int answer(struct run *run, semel_outcome outcome)
{
        char who[1024];
        switch (outcome) {
        case SEMEL_RUN:
                return run_claimed(run);
        case SEMEL_REPLAYED:
                signals_close(&run->signals);
                return replay(run, run->rc.reply);
        case SEMEL_IN_FLIGHT:
                run_claim_explain(&run->rc, who, sizeof who);
                say_error("\"%s\" is in flight: %s; try again later, or wait with --wait 30s",
                          run->key, who);
                return EXIT_CODE_IN_FLIGHT;
        case SEMEL_MISMATCH:
                say_error("\"%s\" was used for another command line (\"%s\"): another job needs "
                          "another key",
                          run->key, semel_error_first_operation(&run->rc.err));
                return EXIT_CODE_REJECTED;
        case SEMEL_UNKNOWN:
                run_claim_explain(&run->rc, who, sizeof who);
                say_error("nobody knows whether \"%s\" ran: %s; look at what it does, then: semel keys "
                          "resolve %s --executed|--not-executed --reason TEXT",
                          run->key, who, run->key);
                return EXIT_CODE_UNKNOWN;
        default:
                break;
        }
        if (run->rc.signal)
                return EXIT_CODE_SIGNAL + run->rc.signal;
        return say_failure(&run->rc.err);
}

static bool usage_ok(struct run *run)
{
        const struct options *o = run->o;
        const char *release_on = option_text(o, OPT_RELEASE_ON);
        run->key = options_key(o);
        run->argv = o->rest;
        if (!run->key) {
                say_error("which key?  semel run KEY -- command args...");
                return false;
        }
        if (o->positional_count > 1 || o->rest_count == 0) {
                say_error("the command stands behind `--`: semel run %.64s -- command args...",
                          run->key);
                return false;
        }
        if (release_on && !exit_set_parse(release_on, &run->release_on)) {
                say_error("--release-on \"%.64s\" is no list of exit codes: any-failure, or such as "
                          "3,75,100-110",
                          release_on);
                return false;
        }
        return true;
}

static int run_run(const struct options *o)
{
        struct run run = {.o = o,
                          .verbose = option_flag(o, OPT_VERBOSE),
                          .rc = {.lease_ms = option_number(o, OPT_LEASE),
                                 .wait_ms = option_number(o, OPT_WAIT),
                                 .idempotent = option_flag(o, OPT_IDEMPOTENT),
                                 .again = option_number(o, OPT_ON_UNKNOWN) == 1 ||
                                          option_flag(o, OPT_IDEMPOTENT),
                                 .lock = {.fd = -1}}};
        char space[STORE_URL_BYTES_MAX];
        const char *url;
        int code;
        if (!usage_ok(&run))
                return EXIT_CODE_USAGE;
        run.rc.key = run.key;
        run.rc.signals = &run.signals;
        (void)signal(SIGPIPE, SIG_IGN); /* a reader that is gone must not stop the recording */
        if (signals_open(&run.signals) != 0) {
                say_error("cannot take over signals: %s", strerrordesc_np(errno));
                return EXIT_CODE_DOWN;
        }
        struct semel_error *err = &run.rc.err;
        if (make_command(&run, err) != SEMEL_OK || store_url(o, &url, space, err) != SEMEL_OK ||
            open_lock(&run, url, err) != SEMEL_OK ||
            open_run_store(&run, url, err) != SEMEL_OK)
                code = say_failure(err);
        else
                code = answer(&run, run_claim(&run.rc));

        semel_claim_free(run.rc.claim);
        semel_reply_free(run.rc.reply);
        semel_store_close(run.rc.st);
        semel_command_free(run.rc.cmd);
        lock_file_close(&run.rc.lock);
        signals_close(&run.signals);
        return code;
}

static const enum option_id run_options[] = {
        OPT_DB,         OPT_WAIT,       OPT_LEASE,     OPT_RETENTION, OPT_ON_UNKNOWN, OPT_IDEMPOTENT,
        OPT_RELEASE_ON, OPT_OUTPUT_MAX, OPT_OPERATION, OPT_STORE_KEY, OPT_KEY,        OPT_VERBOSE,
        OPT_QUIET};

const struct subcommand subcommand_run = {
        .name = "run",
        .usage = "KEY [OPTIONS] -- COMMAND [ARGS...]",
        .summary = "run a command once per key",
        .text = "Claims KEY in the store and runs the command.  Its exit code, whatever it is, and its\n"
                "output are kept for the retention; every later call with the same key and the same\n"
                "arguments gets them again and runs nothing.  Other arguments are refused (65).\n"
                "\n"
                "While the command runs, its lease is renewed, signals are passed on to it, and other\n"
                "calls are answered 75 at once, or after --wait.  It gets SIGKILL when semel dies, and\n"
                "it, and what it starts, hold a lock: while any of them lives, nobody on this host\n"
                "takes the key over, and nobody resolves it.  A command that died unseen (power,\n"
                "SIGKILL of both) leaves the key UNKNOWN when its lease is over: it is not run again,\n"
                "later calls exit 76, and somebody looks and says `semel keys resolve`.  That is at\n"
                "most once; --on-unknown retry runs it again instead: at least once.  A command that\n"
                "dedupes on SEMEL_KEY (or fences on SEMEL_TOKEN, which rises with every run), both in\n"
                "its environment, says --idempotent: exactly once.\n"
                "\n"
                "A command that cannot be started leaves the key free (127: not found, 126).\n"
                "Background processes that it leaves behind should redirect their output.  Output that\n"
                "cannot be written (a full disk) is kept all the same, and said on stderr.\n",
        .examples = "semel run daily-report-$(date +%F) -- ./report.sh\n"
                    "semel run deploy-$SHA --wait 5m --db postgres://app@db/ops -- ./deploy \"$SHA\"\n"
                    "semel run import-7 --release-on 75 -- ./import 7   # its 75 means: not begun\n",
        .exits = "N   the command's own, also when it is replayed; 128 + n after signal n\n"
                 "64  usage: the command line is wrong, and stderr says how\n"
                 "65  the key was used for another command line\n"
                 "69  nothing ran: the store is down or refuses; or the output of an earlier run could\n"
                 "    not be written: the same again is safe\n"
                 "75  in flight: another call runs it; try again later\n"
                 "76  nobody knows whether it ran: `semel keys resolve`\n",
        .options = OPTION_SET(run_options),
        .run = run_run,
};
