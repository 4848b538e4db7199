/* SPDX-License-Identifier: Apache-2.0
 *
 * consume: see consume.h.
 */
#include "app/consume.h"

#include <poll.h>
#include <unistd.h>

#include "api/registry.h"
#include "base/err.h"

enum { CUT_LOOKS = 25, CUT_LOOK_MS = 10 };

struct run {
        struct daemon *daemon;
        struct consume *engine;
        void (*say)(const char *line);
};

static bool is_ready(void *arg)
{
        struct run *run = arg;
        return run->engine && consume_ready(run->engine);
}

static int metrics(void *arg, struct buf *out)
{
        struct run *run = arg;
        return run->engine ? consume_metrics(run->engine, out) : BUF_OK;
}

static void drain(void *arg, int64_t deadline_us)
{
        struct run *run = arg;
        consume_drain(run->engine, deadline_us);
}

static bool has_ended(void *arg)
{
        struct run *run = arg;
        return consume_ended(run->engine);
}

static bool is_alive(void *arg)
{
        struct run *run = arg;
        return consume_alive(run->engine);
}

static void say(void *arg, const char *line)
{
        struct run *run = arg;
        run->say(line);
}

static void on_ended(void *arg)
{
        struct run *run = arg;
        daemon_stop(run->daemon);
        daemon_look(run->daemon);
}

/* At the deadline the engine cuts itself off, which takes a moment; a handler that hangs is not
 * waited for. */
static bool ends_soon(struct consume *engine)
{
        for (int i = 0; i < CUT_LOOKS && !consume_ended(engine); i++)
                (void)poll(NULL, 0, CUT_LOOK_MS);
        return consume_ended(engine);
}

/* In the sense of sysexits, as the other commands. */
static int exit_code(semel_code code)
{
        switch (code) {
        case SEMEL_OK:
                return 0;
        case SEMEL_ERR_BUSY:
                return 75;
        case SEMEL_ERR_ARGUMENT:
        case SEMEL_ERR_URL:
        case SEMEL_ERR_NOT_LINKED:
                return 64;
        default:
                return 69;
        }
}

int consume_run(const struct consume_run_config *config, semel_error *err)
{
        struct run run = {.say = config->daemon.say};
        struct consume_config engine = config->engine;
        struct consume_post post = {.url = config->post_url};
        const struct store_driver *driver = NULL;
        const struct daemon_work work = {.ready = is_ready, .metrics = metrics, .drain = drain,
                                         .ended = has_ended, .alive = is_alive, .arg = &run};
        semel_code code = registry_find(engine.db, &driver, err);
        if (code == SEMEL_OK && config->post_url)
                code = consume_post_check(config->post_url, err);
        if (code == SEMEL_OK)
                code = daemon_new(&config->daemon, &work, &run.daemon, err);
        if (code != SEMEL_OK)
                return exit_code(code);
        engine.inbox_open = driver->inbox_open;
        if (config->post_url) {
                engine.post = consume_post;
                engine.post_arg = &post;
        }
        engine.say = say;
        engine.say_arg = &run;
        engine.on_ended = on_ended;
        engine.ended_arg = &run;
        code = consume_new(&engine, &run.engine, err);
        if (code == SEMEL_OK) {
                if (daemon_admin_port(run.daemon))
                        daemon_say(run.daemon, "admin listener on port %u",
                                   (unsigned)daemon_admin_port(run.daemon));
                daemon_say(run.daemon, "consuming as group %s", engine.group);
                daemon_run(run.daemon);
                if (!ends_soon(run.engine)) {
                        daemon_say(run.daemon, "the shutdown's deadline cut off what was running; its "
                                               "events come again");
                        _exit(exit_code(SEMEL_ERR_BUSY));
                }
                code = consume_close(run.engine, err);
                if (code == SEMEL_ERR_BUSY) { /* a handler may still run, on what is ours */
                        daemon_say(run.daemon, "%s", err->text);
                        _exit(exit_code(code));
                }
                run.engine = NULL;
        }
        daemon_free(run.daemon);
        return exit_code(code);
}
