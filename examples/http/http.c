/* SPDX-License-Identifier: Apache-2.0
 *
 * http: see http.h.
 *
 * The request is read whole (bounded), then handled in the connection's own thread.  Nothing
 * that happens to the client while the handler runs can reach it: a command whose client has
 * gone still completes or releases its key.
 */
#include "http.h"

#include <limits.h>
#include <microhttpd.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
        CONNECTIONS_MAX = 512,          /* a thread each */
        BODY_DRAIN_BYTES_MAX = 8 * 1024 * 1024, /* read and dropped so that the 413 arrives */
        IDLE_TIMEOUT_S = 60,
        HEADER_BYTES_MAX = 32 * 1024,
        STACK_BYTES = 2 * 1024 * 1024, /* jansson recurses 2,048 deep */
};

struct http {
        http_handler handler;
        void *arg;
        semel_shutdown *down;
        struct MHD_Daemon *daemon;
        pthread_mutex_t lock;
        pthread_cond_t less;
        int running; /* requests between their header and the last byte of their reply */
};

/* One request while its body arrives. */
struct incoming {
        char *body;
        size_t n, cap;
        size_t dropped; /* bytes beyond HTTP_BODY_BYTES_MAX */
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

static const char cut; /* its address is the reply that is none */

semel_reply *http_cut(void)
{
        return (semel_reply *)(uintptr_t)&cut;
}

const char *http_query(const struct http_request *in, const char *name)
{
        return MHD_lookup_connection_value(in->conn, MHD_GET_ARGUMENT_KIND, name);
}

bool http_is_json(const struct http_request *in)
{
        const char *type = in->content_type ? in->content_type : "";
        size_t n = strcspn(type, "; \t");
        return n == strlen("application/json") && strncasecmp(type, "application/json", n) == 0;
}

static semel_reply *handle(struct http *http, struct MHD_Connection *mc, const char *path,
                           const char *method, struct incoming *in)
{
        struct header h = {.authorization = ""};
        struct http_request req = {.method = method, .path = path, .conn = mc};

        MHD_get_connection_values(mc, MHD_HEADER_KIND, header_line, &h);
        req.key = h.key;
        req.authorization = h.authorization;
        req.content_type = h.content_type;
        req.body = in->body;
        req.body_n = in->n;
        if (in->no_memory)
                req.flaw = HTTP_NO_MEMORY;
        else if (in->dropped > 0)
                req.flaw = HTTP_TOO_LARGE;
        else if (h.key_conflict)
                req.flaw = HTTP_TWO_KEYS;
        else if (h.connection_names_key)
                req.flaw = HTTP_KEY_IN_CONNECTION;
        return http->handler(http->arg, &req);
}

/* Whoever sends requests here, or restarts us, asks these. */
static semel_reply *health(const struct http *http, const char *path)
{
        bool ready = semel_shutdown_phase(http->down) == SEMEL_RUNNING;
        bool is_health = strcmp(path, "/healthz") == 0;
        const char *text = is_health ? "alive\n" : ready ? "ready\n" : "not ready\n";
        semel_reply *rep = semel_reply_new();
        if (!rep)
                return NULL;
        semel_reply_set_status(rep, is_health || ready ? 200 : 503);
        semel_reply_add_header(rep, "Content-Type", 12, "text/plain", 10, NULL);
        semel_reply_set_body(rep, text, strlen(text), NULL);
        return rep;
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
        if (semel_shutdown_phase(http->down) != SEMEL_RUNNING)
                MHD_add_response_header(res, "Connection", "close");
        result = MHD_queue_response(mc, (unsigned)status, res);
        MHD_destroy_response(res);
        return result;
}

/* Keep a piece of the body; past the limit only count it. */
static void body_append(struct incoming *in, const char *data, size_t n)
{
        if (in->n + n > HTTP_BODY_BYTES_MAX) {
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
                pthread_mutex_lock(&http->lock);
                http->running++;
                pthread_mutex_unlock(&http->lock);
                return MHD_YES;
        }
        if (*data_n > 0) {
                body_append(in, data, *data_n);
                *data_n = 0;
                return in->dropped > BODY_DRAIN_BYTES_MAX ? MHD_NO : MHD_YES;
        }
        if (strcmp(path, "/readyz") == 0 || strcmp(path, "/healthz") == 0)
                rep = health(http, path);
        else
                rep = handle(http, mc, path, method, in);
        if (rep == http_cut())
                return MHD_NO;
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
        pthread_mutex_lock(&http->lock);
        http->running--;
        pthread_cond_signal(&http->less);
        pthread_mutex_unlock(&http->lock);
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
                snprintf(why, HTTP_WHY_BYTES, "--listen wants HOST:PORT, such as 127.0.0.1:8080");
                return -1;
        }
        snprintf(host, sizeof host, "%.*s", (int)(colon - address), address);
        rc = getaddrinfo(host[0] ? host : NULL, colon + 1, &hints, &ai);
        if (rc != 0) {
                snprintf(why, HTTP_WHY_BYTES, "--listen %.100s: %s", address, gai_strerror(rc));
                return -1;
        }
        fd = socket(ai->ai_family, ai->ai_socktype | SOCK_CLOEXEC, ai->ai_protocol);
        if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
            bind(fd, ai->ai_addr, ai->ai_addrlen) != 0 || listen(fd, SOMAXCONN) != 0 ||
            getsockname(fd, (struct sockaddr *)&got, &got_n) != 0) {
                snprintf(why, HTTP_WHY_BYTES, "--listen %.100s: %m", address);
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

struct http *http_start(const char *address, http_handler handler, void *arg,
                        semel_shutdown *down, char *why, int *ret_port)
{
        struct http *http = calloc(1, sizeof *http);
        int fd;

        if (!http) {
                snprintf(why, HTTP_WHY_BYTES, "no memory");
                return NULL;
        }
        http->handler = handler;
        http->arg = arg;
        http->down = down;
        pthread_mutex_init(&http->lock, NULL);
        pthread_cond_init(&http->less, NULL);
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
                snprintf(why, HTTP_WHY_BYTES, "libmicrohttpd does not start: %m");
                close(fd);
                free(http);
                return NULL;
        }
        return http;
}

/* Accept no more. */
static void stop_accepting(struct http *http)
{
        int fd = MHD_quiesce_daemon(http->daemon);
        if (fd >= 0)
                close(fd);
}

/* Wait until no request runs, at most so long; returns how many still do. */
static int wait_idle(struct http *http, int64_t ms)
{
        struct timespec end;
        int rc = 0, running;
        clock_gettime(CLOCK_MONOTONIC, &end);
        end.tv_sec += ms / 1000;
        end.tv_nsec += ms % 1000 * 1000000;
        if (end.tv_nsec >= 1000000000) {
                end.tv_sec++;
                end.tv_nsec -= 1000000000;
        }
        pthread_mutex_lock(&http->lock);
        while (http->running > 0 && rc == 0)
                rc = pthread_cond_clockwait(&http->less, &http->lock, CLOCK_MONOTONIC, &end);
        running = http->running;
        pthread_mutex_unlock(&http->lock);
        return running;
}

int http_serve(struct http *http)
{
        semel_phase phase;
        while ((phase = semel_shutdown_phase(http->down)) < SEMEL_DRAINING) {
                /* Once asked to end, its descriptor stays readable: only time is waited for. */
                struct pollfd p = {.fd = semel_shutdown_fd(http->down), .events = POLLIN};
                int64_t ms = semel_shutdown_next_ms(http->down);
                poll(&p, phase == SEMEL_RUNNING ? 1 : 0, ms > INT_MAX ? INT_MAX : (int)ms);
                semel_shutdown_alive(http->down);
        }
        stop_accepting(http);
        return wait_idle(http, semel_shutdown_left_ms(http->down));
}

void http_stop(struct http *http)
{
        MHD_stop_daemon(http->daemon);
        pthread_cond_destroy(&http->less);
        pthread_mutex_destroy(&http->lock);
        free(http);
}
