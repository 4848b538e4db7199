/* SPDX-License-Identifier: Apache-2.0
 *
 * consume: `semel consume` as a daemon: the engine (consume/consume.h) behind signals, the admin
 * listener and the one way to end.
 */
#ifndef APP_CONSUME_H
#define APP_CONSUME_H

#include "app/daemon.h"
#include "consume/consume.h"

struct consume_run_config {
        struct consume_config engine; /* inbox_open, post, say and on_ended are filled in here */
        struct daemon_config daemon;
        const char *post_url; /* NULL: engine.handler */
};

/* Until it is told to end.  Returns the exit code: 0 drained, 75 the deadline cut something off; else
 * what err says: 64 (the statement does not prepare), 69. */
int consume_run(const struct consume_run_config *config, semel_error *err);

/* A handler over HTTP: POST with Idempotency-Key source:event-id:consumer. */
struct consume_post {
        const char *url;
};
semel_code consume_post_check(const char *url, semel_error *err);
/* A function of consume_config.post; arg is a struct consume_post. */
enum consume_posted consume_post(void *arg, const struct inbox_event *event, int64_t deadline_us,
                                 struct consume_posting *posting, semel_error *why);

#endif
