/* SPDX-License-Identifier: Apache-2.0
 *
 * http: the listener of the examples (libmicrohttpd), a thread per connection, and its end.
 *
 *     semel_shutdown *down = semel_shutdown_new(0, 25000, err);
 *     struct http *http = http_start("127.0.0.1:8080", handle, arg, down, why, &port);
 *     semel_shutdown_ready(down);
 *     int left = http_serve(http);          // until told to end, and all has ended
 *
 * GET /healthz and /readyz are answered here: not ready from the first signal on.
 */
#ifndef EXAMPLES_HTTP_H
#define EXAMPLES_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <semel/reply.h>
#include <semel/shutdown.h>

enum {
        HTTP_WHY_BYTES = 256,
        HTTP_BODY_BYTES_MAX = 1024 * 1024, /* a request body; past it HTTP_TOO_LARGE */
};

/* What is wrong with a request before anybody has looked at what it asks for. */
enum http_flaw {
        HTTP_FINE,
        HTTP_NO_MEMORY,
        HTTP_TOO_LARGE,
        HTTP_TWO_KEYS,         /* Idempotency-Key lines that differ */
        HTTP_KEY_IN_CONNECTION /* Connection: names it, so that a proxy would drop it */
};

/* Valid while the handler runs. */
struct http_request {
        const char *method, *path;
        const char *key;           /* Idempotency-Key, or NULL */
        const char *authorization; /* "" when absent */
        const char *content_type;  /* or NULL */
        const char *body;
        size_t body_n;
        enum http_flaw flaw;
        void *conn;
};

/* Returns the reply, which is freed here; NULL = no memory.  Called in the connection's thread;
 * nothing that happens to the client can reach it. */
typedef semel_reply *(*http_handler)(void *arg, const struct http_request *in);

/* Instead of a reply: close the connection without one. */
semel_reply *http_cut(void);

/* A parameter of the query, or NULL. */
const char *http_query(const struct http_request *in, const char *name);
bool http_is_json(const struct http_request *in);

struct http;

/* Listen on "HOST:PORT" (port 0: any free one) and serve.  NULL: `why` (HTTP_WHY_BYTES) says why.
 * ret_port  the port it got. */
struct http *http_start(const char *address, http_handler handler, void *arg,
                        semel_shutdown *down, char *why, int *ret_port);

/* Wait until `down` says that it is time to end, accept no more, and wait for what runs.  Returns
 * how many requests still ran at the deadline: 0, and http_stop() will not have to wait. */
int http_serve(struct http *http);

/* Close what is still open and free it.  Waits for running requests. */
void http_stop(struct http *http);

#endif
