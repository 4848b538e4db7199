/* SPDX-License-Identifier: Apache-2.0
 *
 * admin: see admin.h.
 */
#include "app/admin.h"

#include <stdlib.h>

#include "app/secret_file.h"
#include "base/err.h"

enum { ADMIN_CONNECTIONS_MAX = 16, ADMIN_REPLY_BYTES_MAX = 1024 * 1024 };
#define ADMIN_TIMEOUT_US (10 * SECOND)

struct admin {
        struct http_server *server;
        struct admin_source source;
        char token[SECRET_BYTES_MAX + 1];
        size_t token_n;
};

/* Without a hint in its time of how much of it was right. */
static bool same_secret(struct span given, const char *token, size_t n)
{
        unsigned char differ = given.n != n;
        for (size_t i = 0; i < given.n && n > 0; i++)
                differ |= (unsigned char)(given.p[i] ^ (unsigned char)token[i % n]);
        return !differ;
}

static bool may_enter(const struct admin *a, const struct http1_head *head)
{
        static const char bearer[] = "Bearer ";
        if (a->token_n == 0)
                return true;
        const struct http_header *h =
                header_find(head->headers, head->header_count, "Authorization");
        if (!h || h->value.n < sizeof bearer - 1 ||
            memcmp(h->value.p, bearer, sizeof bearer - 1) != 0)
                return false;
        return same_secret(span_of(h->value.p + sizeof bearer - 1, h->value.n - (sizeof bearer - 1)),
                           a->token, a->token_n);
}

static void answer(struct http_exchange *ex, int status, const char *type, struct span body)
{
        const struct http_header hs[] = {{span_str("Content-Type"), span_str(type)},
                                         {span_str("Cache-Control"), span_str("no-store")}};
        http_reply(ex, status, hs, 2, body, false);
}

static void answer_metrics(struct admin *a, struct http_exchange *ex)
{
        struct buf out;
        buf_init(&out, ADMIN_REPLY_BYTES_MAX);
        if (a->source.metrics(a->source.arg, &out) == BUF_OK)
                answer(ex, 200, "text/plain; version=0.0.4", buf_span(&out));
        else
                answer(ex, 500, "text/plain", span_str("no memory\n"));
        buf_release(&out);
}

static void on_end(void *arg, struct http_exchange *ex)
{
        struct admin *a = arg;
        const struct http1_head *head = ex->request;
        bool get = span_eq(head->method, span_str("GET")) || span_eq(head->method, span_str("HEAD"));
        if (!get)
                answer(ex, 405, "text/plain", span_str("only GET\n"));
        else if (span_eq(head->path, span_str("/healthz")))
                answer(ex, 200, "text/plain", span_str("alive\n"));
        else if (!may_enter(a, head))
                answer(ex, 401, "text/plain", span_str("a bearer token is needed\n"));
        else if (span_eq(head->path, span_str("/readyz")))
                a->source.ready(a->source.arg)
                        ? answer(ex, 200, "text/plain", span_str("ready\n"))
                        : answer(ex, 503, "text/plain", span_str("not ready\n"));
        else if (span_eq(head->path, span_str("/metrics")))
                answer_metrics(a, ex);
        else
                answer(ex, 404, "text/plain", span_str("/healthz /readyz /metrics\n"));
}

static void on_other(void *arg, struct http_exchange *ex)
{
        (void)arg;
        (void)ex;
}

static void on_body(void *arg, struct http_exchange *ex, struct span piece)
{
        (void)arg;
        (void)ex;
        (void)piece;
}

semel_code admin_new(struct loop *loop, struct deadline_list *deadlines, const char *address,
                     const char *token_file, const struct admin_source *source,
                     struct admin **ret_admin, semel_error *err)
{
        struct admin *a = calloc(1, sizeof *a);
        if (!a)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for the admin listener");
        struct http_server_config config = {.connections_max = ADMIN_CONNECTIONS_MAX,
                                            .idle_timeout_us = ADMIN_TIMEOUT_US,
                                            .head_timeout_us = ADMIN_TIMEOUT_US,
                                            .body_timeout_us = ADMIN_TIMEOUT_US};
        const struct http_handler handler = {.head = on_other,
                                             .body = on_body,
                                             .end = on_end,
                                             .drained = on_other,
                                             .gone = on_other,
                                             .arg = a};
        a->source = *source;
        semel_code code = address_parse(address, &config.listen, err);
        if (code == SEMEL_OK && token_file && token_file[0])
                code = secret_file_read(token_file, a->token, &a->token_n, err);
        if (code == SEMEL_OK && a->token_n == 0 && !address_is_loopback(&config.listen))
                code = err_set(err, SEMEL_ERR_ARGUMENT,
                               "the admin address %s can be reached from other machines: give a token "
                               "with --admin-token-file, or listen on 127.0.0.1",
                               address);
        if (code == SEMEL_OK)
                code = http_server_new(loop, deadlines, &config, &handler, &a->server, err);
        if (code == SEMEL_OK)
                *ret_admin = a;
        else
                free(a);
        return code;
}

uint16_t admin_port(const struct admin *admin)
{
        return http_server_port(admin->server);
}

void admin_free(struct admin *admin)
{
        if (!admin)
                return;
        http_server_free(admin->server);
        free(admin);
}
