/* SPDX-License-Identifier: Apache-2.0
 *
 * http: see http.h.
 *
 * The request is read whole (bounded), then handled in the connection's own thread.  Nothing
 * that happens to the client while the handler runs can reach it: a command whose client has
 * gone still completes or releases its key.
 */
#include "http.h"

#include <microhttpd.h>
#include <netdb.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "problem.h"

enum {
        IDLE_TIMEOUT_S = 60,
        HEADER_BYTES_MAX = 32 * 1024,
        STACK_BYTES = 2 * 1024 * 1024, /* jansson recurses 2,048 deep */
};

struct http {
        struct shop *shop;
        struct MHD_Daemon *daemon;
        atomic_int running; /* requests between their header and the last byte of their reply */
        atomic_bool draining;
};

/* One request while its body arrives. */
struct incoming {
        char *body;
        size_t n, cap;
        size_t dropped; /* bytes beyond BODY_BYTES_MAX */
        bool no_memory;
};

/* What the header says, gathered in one walk. */
struct header {
        const char *key;
        bool key_conflict;  /* two lines that differ, or named in Connection: */
        bool connection_names_key;
        const char *authorization;
        const char *content_type;
};

/* Does a comma-separated list name this token? */
static bool list_names(const char *list, const char *token)
{
        size_t n = strlen(token);
        for (const char *p = list; *p;) {
                p += strspn(p, ", \t");
                size_t len = strcspn(p, ", \t");
                if (len == n && strncasecmp(p, token, n) == 0)
                        return true;
                p += len;
        }
        return false;
}

static enum MHD_Result header_line(void *arg, enum MHD_ValueKind kind, const char *name,
                                   const char *value)
{
        struct header *h = arg;
        (void)kind;
        value = value ? value : "";
        if (strcasecmp(name, "Idempotency-Key") == 0) {
                if (h->key && strcmp(h->key, value) != 0)
                        h->key_conflict = true;
                h->key = value;
        } else if (strcasecmp(name, "Connection") == 0) {
                if (list_names(value, "Idempotency-Key"))
                        h->connection_names_key = true;
        } else if (strcasecmp(name, "Authorization") == 0) {
                h->authorization = value;
        } else if (strcasecmp(name, "Content-Type") == 0) {
                h->content_type = value;
        }
        return MHD_YES;
}

static bool is_json(const char *type)
{
        size_t n = strcspn(type, "; \t");
        return n == strlen("application/json") && strncasecmp(type, "application/json", n) == 0;
}

static semel_reply *handle(struct http *http, struct MHD_Connection *mc, const char *path,
                           const char *method, struct incoming *in)
{
        struct header h = {.authorization = ""};
        struct request req = {.method = method, .path = path};

        MHD_get_connection_values(mc, MHD_HEADER_KIND, header_line, &h);
        if (in->no_memory)
                return problem_new(PROBLEM_INTERNAL, NULL, "No memory for the body.");
        if (in->dropped > 0)
                return problem_new(PROBLEM_TOO_LARGE, NULL, "At most %d bytes.", BODY_BYTES_MAX);
        if (h.key_conflict)
                return problem_new(PROBLEM_KEY_MALFORMED, NULL,
                                   "Two Idempotency-Key lines that differ: which one is it?");
        if (h.connection_names_key)
                return problem_new(PROBLEM_KEY_MALFORMED, NULL,
                                   "Connection names Idempotency-Key: a proxy would drop it.");
        req.is_json = h.content_type && is_json(h.content_type);
        req.principal = h.authorization;
        req.limit = MHD_lookup_connection_value(mc, MHD_GET_ARGUMENT_KIND, "limit");
        req.after = MHD_lookup_connection_value(mc, MHD_GET_ARGUMENT_KIND, "after");
        return route(http->shop, &req, h.key, in->body, in->n);
}

static bool add_header(struct MHD_Response *res, const char *name, size_t name_n,
                       const char *value, size_t value_n)
{
        char n[64], v[1024];
        if (name_n >= sizeof n || value_n >= sizeof v)
                return false; /* the shop makes none of that size */
        memcpy(n, name, name_n);
        n[name_n] = '\0';
        memcpy(v, value, value_n);
        v[value_n] = '\0';
        return MHD_add_response_header(res, n, v) == MHD_YES;
}

/* Send it: the status, the headers in their order, the body, byte for byte. */
static enum MHD_Result send_reply(struct http *http, struct MHD_Connection *mc,
                                  const semel_reply *rep)
{
        static char no_memory[] = "{\"type\":\"about:blank\",\"title\":\"No memory\","
                                  "\"status\":500}\n";
        size_t n = strlen(no_memory), name_n, value_n;
        const char *name, *value;
        const void *body = rep ? semel_reply_body(rep, &n) : no_memory;
        int status = rep ? semel_reply_status(rep) : 500;
        struct MHD_Response *res;
        enum MHD_Result result;

        res = MHD_create_response_from_buffer(n, n ? (void *)(uintptr_t)body : no_memory,
                                              MHD_RESPMEM_MUST_COPY);
        if (!res)
                return MHD_NO;
        for (size_t i = 0; rep && semel_reply_header(rep, i, &name, &name_n, &value, &value_n); i++)
                add_header(res, name, name_n, value, value_n);
        if (atomic_load(&http->draining))
                MHD_add_response_header(res, "Connection", "close");
        result = MHD_queue_response(mc, (unsigned)status, res);
        MHD_destroy_response(res);
        return result;
}

/* Keep a piece of the body; past the limit only count it. */
static void body_append(struct incoming *in, const char *data, size_t n)
{
        if (in->n + n > BODY_BYTES_MAX) {
                in->dropped += n;
                return;
        }
        if (in->n + n > in->cap) {
                size_t cap = in->cap ? in->cap * 2 : 1024;
                char *grown;
                while (cap < in->n + n)
                        cap *= 2;
                grown = realloc(in->body, cap);
                if (!grown) {
                        in->no_memory = true;
                        in->dropped += n;
                        return;
                }
                in->body = grown;
                in->cap = cap;
        }
        memcpy(in->body + in->n, data, n);
        in->n += n;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *mc, const char *path,
                                  const char *method, const char *version, const char *data,
                                  size_t *data_n, void **req_arg)
{
        struct http *http = arg;
        struct incoming *in = *req_arg;
        enum MHD_Result result;
        semel_reply *rep;

        (void)version;
        if (!in) { /* the header has come */
                in = calloc(1, sizeof *in);
                if (!in)
                        return MHD_NO;
                *req_arg = in;
                atomic_fetch_add(&http->running, 1);
                return MHD_YES;
        }
        if (*data_n > 0) {
                body_append(in, data, *data_n);
                *data_n = 0;
                return in->dropped > BODY_DRAIN_BYTES_MAX ? MHD_NO : MHD_YES;
        }
        rep = handle(http, mc, path, method, in);
        result = send_reply(http, mc, rep);
        semel_reply_free(rep);
        return result;
}

static void on_done(void *arg, struct MHD_Connection *mc, void **req_arg,
                    enum MHD_RequestTerminationCode code)
{
        struct http *http = arg;
        struct incoming *in = *req_arg;
        (void)mc;
        (void)code;
        if (!in)
                return;
        free(in->body);
        free(in);
        *req_arg = NULL;
        if (atomic_fetch_sub(&http->running, 1) == 1 && atomic_load(&http->draining))
                kill(getpid(), SIGUSR1);
}

/* A listening socket; SO_REUSEADDR, so that a restart need not wait for old connections to fade. */
static int listen_on(const char *address, char *why, int *ret_port)
{
        char host[256];
        const char *colon = strrchr(address, ':');
        struct addrinfo hints = {.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM}, *ai = NULL;
        struct sockaddr_storage got;
        socklen_t got_n = sizeof got;
        char port[16];
        int fd = -1, one = 1, rc;

        if (!colon || (size_t)(colon - address) >= sizeof host) {
                snprintf(why, DB_WHY_BYTES, "--listen wants HOST:PORT, such as 127.0.0.1:8080");
                return -1;
        }
        snprintf(host, sizeof host, "%.*s", (int)(colon - address), address);
        rc = getaddrinfo(host[0] ? host : NULL, colon + 1, &hints, &ai);
        if (rc != 0) {
                snprintf(why, DB_WHY_BYTES, "--listen %.100s: %s", address, gai_strerror(rc));
                return -1;
        }
        fd = socket(ai->ai_family, ai->ai_socktype | SOCK_CLOEXEC, ai->ai_protocol);
        if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
            bind(fd, ai->ai_addr, ai->ai_addrlen) != 0 || listen(fd, SOMAXCONN) != 0 ||
            getsockname(fd, (struct sockaddr *)&got, &got_n) != 0) {
                snprintf(why, DB_WHY_BYTES, "--listen %.100s: %m", address);
                if (fd >= 0)
                        close(fd);
                fd = -1;
        } else if (getnameinfo((struct sockaddr *)&got, got_n, NULL, 0, port, sizeof port,
                               NI_NUMERICSERV) == 0) {
                *ret_port = (int)strtol(port, NULL, 10);
        }
        freeaddrinfo(ai);
        return fd;
}

struct http *http_start(struct shop *shop, const char *address, char *why, int *ret_port)
{
        struct http *http = calloc(1, sizeof *http);
        int fd;

        if (!http) {
                snprintf(why, DB_WHY_BYTES, "no memory");
                return NULL;
        }
        http->shop = shop;
        fd = listen_on(address, why, ret_port);
        if (fd < 0) {
                free(http);
                return NULL;
        }
        http->daemon = MHD_start_daemon(
                MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL |
                        MHD_USE_ITC,
                0, NULL, NULL, on_request, http, MHD_OPTION_LISTEN_SOCKET, fd,
                MHD_OPTION_NOTIFY_COMPLETED, on_done, http, MHD_OPTION_CONNECTION_LIMIT,
                (unsigned)CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT,
                (unsigned)IDLE_TIMEOUT_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                (size_t)HEADER_BYTES_MAX, MHD_OPTION_THREAD_STACK_SIZE, (size_t)STACK_BYTES,
                MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
        if (!http->daemon) {
                snprintf(why, DB_WHY_BYTES, "libmicrohttpd does not start: %m");
                close(fd);
                free(http);
                return NULL;
        }
        return http;
}

void http_drain(struct http *http)
{
        int fd = MHD_quiesce_daemon(http->daemon);
        if (fd >= 0)
                close(fd);
        atomic_store(&http->draining, true);
        if (atomic_load(&http->running) == 0)
                kill(getpid(), SIGUSR1);
}

int http_running(struct http *http)
{
        return atomic_load(&http->running);
}

void http_stop(struct http *http)
{
        MHD_stop_daemon(http->daemon);
        free(http);
}
