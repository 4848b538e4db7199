/* SPDX-License-Identifier: Apache-2.0
 *
 * call: the object of an outbound call; see semel/call.h.
 */
#include "api/call_object.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/http_header.h"

/* -- new ---------------------------------------------------------------------------------------- */

static semel_code set_method(semel_call *call, const char *method, semel_error *err)
{
        size_t n = method ? strlen(method) : 0;
        if (n == 0 || n > LIMIT_HTTP_METHOD_BYTES || !call_token_ok(span_of(method, n)) ||
            strcmp(method, "CONNECT") == 0)
                return err_set(err, SEMEL_ERR_ARGUMENT, "\"%.32s\" is no method for a call",
                               method ? method : "");
        memcpy(call->method, method, n + 1);
        return SEMEL_OK;
}

static semel_code set_url(semel_call *call, const char *url, semel_error *err)
{
        size_t n = url ? strlen(url) : 0;
        if (n > LIMIT_CALL_URL_BYTES)
                return err_set(err, SEMEL_ERR_URL, "the URL is %zu bytes long, at most %d", n,
                               LIMIT_CALL_URL_BYTES);
        if (n == 0 || !call_url_parse(url, call->shown, sizeof call->shown))
                return err_set(err, SEMEL_ERR_URL,
                               "this is no URL to call: https://HOST[:PORT]/PATH, with blanks and the "
                               "like as %%20");
        call->url = strdup(url);
        return call->url ? SEMEL_OK : err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a call");
}

/* Sent as it is given, so it must be readable as it is given. */
static semel_code set_key(semel_call *call, const char *key, semel_error *err)
{
        struct span text = span_str(key);
        enum key_result result = key_parse(text, &call->key);
        if (result == KEY_OK && !call_value_ok(text))
                result = KEY_BAD_BYTE;
        if (result != KEY_OK)
                return err_set(err, SEMEL_ERR_KEY,
                               "the key cannot be sent: %s; semel_key_join() makes keys of any parts",
                               key_result_text(result));
        if (asprintf(&call->key_line, "Idempotency-Key: %s", key) >= 0)
                return SEMEL_OK;
        call->key_line = NULL;
        return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a call");
}

semel_call *semel_call_new(const char *method, const char *url, const char *key, semel_error *err)
{
        err_clear(err);
        semel_call *call = calloc(1, sizeof *call);
        if (call) {
                buf_init(&call->body, LIMIT_CALL_BODY_BYTES);
                call->deadline_ms = DEFAULT_CALL_DEADLINE_US / MS;
                call->attempt_ms = DEFAULT_CALL_ATTEMPT_US / MS;
                call->cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
                call->last = semel_reply_new();
        }
        if (!call || !call->last) {
                (void)err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a call");
        } else if (call->cancel_fd < 0) {
                (void)err_set_errno(err, SEMEL_ERR_INTERNAL, errno, "no eventfd");
        } else if (set_method(call, method, err) == SEMEL_OK && set_url(call, url, err) == SEMEL_OK &&
                   set_key(call, key, err) == SEMEL_OK) {
                /* Methods that have a body say so, though it is empty. */
                call->has_body = strcmp(method, "POST") == 0 || strcmp(method, "PUT") == 0 ||
                                 strcmp(method, "PATCH") == 0;
                return call;
        }
        semel_call_free(call);
        return NULL;
}

void semel_call_free(semel_call *call)
{
        if (!call)
                return;
        for (size_t i = 0; i < call->header_count; i++)
                free(call->headers[i]);
        if (call->cancel_fd >= 0)
                (void)close(call->cancel_fd);
        buf_release(&call->body);
        semel_reply_free(call->last);
        free(call->url);
        free(call->content_type);
        free(call->added_type);
        free(call->key_line);
        free(call->type_line);
        free(call->ca_file);
        free(call->proxy);
        free(call);
}

/* -- what is sent ------------------------------------------------------------------------------- */

static semel_code no_memory(semel_error *err)
{
        return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a call");
}

/* "Name: value", or how libcurl is told of an empty value.  NULL: no memory. */
static char *header_line(const char *name, const char *value)
{
        char *line = NULL;
        const char *between = *value ? ": " : ";";
        return asprintf(&line, "%s%s%s", name, between, value) >= 0 ? line : NULL;
}

semel_code semel_call_set_body(semel_call *call, const void *body, size_t n,
                               const char *content_type, semel_error *err)
{
        struct buf copy;
        char *type = NULL, *line = NULL;
        err_clear(err);
        if (n > LIMIT_CALL_BODY_BYTES)
                return err_set(err, SEMEL_ERR_TOO_LARGE, "the body is %zu bytes long, at most %d", n,
                               LIMIT_CALL_BODY_BYTES);
        if (strcmp(call->method, "HEAD") == 0)
                return err_set(err, SEMEL_ERR_ARGUMENT, "HEAD has no body");
        if (content_type && !call_value_ok(span_str(content_type)))
                return err_set(err, SEMEL_ERR_ARGUMENT, "the content type has a control byte");
        buf_init(&copy, LIMIT_CALL_BODY_BYTES);
        if (content_type) {
                type = strdup(content_type);
                line = header_line("Content-Type", content_type);
        }
        if (buf_append(&copy, body, n) != BUF_OK || (content_type && (!type || !line))) {
                buf_release(&copy);
                free(type);
                free(line);
                return no_memory(err);
        }
        buf_release(&call->body);
        free(call->content_type);
        free(call->type_line);
        call->body = copy;
        call->content_type = type;
        call->type_line = line;
        call->has_body = true;
        return SEMEL_OK;
}

/* What is sent counts for the request's digest: all of it, where a caller adds two. */
static bool add_type(semel_call *call, const char *value)
{
        char *all = NULL;
        int n = call->added_type ? asprintf(&all, "%s\n%s", call->added_type, value)
                                 : asprintf(&all, "%s", value);
        if (n < 0)
                return false;
        free(call->added_type);
        call->added_type = all;
        return true;
}

semel_code semel_call_add_header(semel_call *call, const char *name, const char *value,
                                 semel_error *err)
{
        struct span n = span_str(name), v = span_str(value);
        err_clear(err);
        if (!call_token_ok(n) || !value || !call_value_ok(v))
                return err_set(err, SEMEL_ERR_ARGUMENT, "\"%.64s\" is no header", name ? name : "");
        if (!call_header_allowed(n))
                return err_set(err, SEMEL_ERR_ARGUMENT,
                               "the header %s is made by the call itself; it cannot be added", name);
        if (call->header_count == LIMIT_CALL_HEADERS || n.n + v.n > LIMIT_CALL_HEADER_BYTES)
                return err_set(err, SEMEL_ERR_TOO_LARGE,
                               "a call has at most %d headers of at most %d bytes",
                               LIMIT_CALL_HEADERS, LIMIT_CALL_HEADER_BYTES);
        char *line = header_line(name, value);
        if (!line || (header_name_is(n, "Content-Type") && !add_type(call, value))) {
                free(line);
                return no_memory(err);
        }
        call->headers[call->header_count++] = line;
        return SEMEL_OK;
}

/* -- how ---------------------------------------------------------------------------------------- */

semel_code semel_call_set_deadline_ms(semel_call *call, int64_t deadline_ms, int64_t attempt_ms,
                                      semel_error *err)
{
        err_clear(err);
        if (deadline_ms < 1 || deadline_ms > LIMIT_LEASE_US / MS || attempt_ms < 1 ||
            attempt_ms > LIMIT_LEASE_US / MS / 2)
                return err_set(err, SEMEL_ERR_ARGUMENT,
                               "the deadline must be 1 ms to 24 h, and an attempt's time 1 ms to 12 h");
        call->deadline_ms = deadline_ms;
        call->attempt_ms = attempt_ms;
        return SEMEL_OK;
}

semel_code semel_call_set_attempts_max(semel_call *call, int attempts, semel_error *err)
{
        err_clear(err);
        if (attempts < 0)
                return err_set(err, SEMEL_ERR_ARGUMENT, "%d attempts make no sense", attempts);
        call->attempts_max = attempts;
        return SEMEL_OK;
}

void semel_call_set_sent_before(semel_call *call, bool sent_before)
{
        call->maybe = sent_before;
}

semel_code semel_call_set_store(semel_call *call, semel_store *st, semel_error *err)
{
        err_clear(err);
        call->st = st;
        return SEMEL_OK;
}

static semel_code set_text(char **at, const char *text, semel_error *err)
{
        char *copy = text ? strdup(text) : NULL;
        err_clear(err);
        if (text && !copy)
                return no_memory(err);
        free(*at);
        *at = copy;
        return SEMEL_OK;
}

semel_code semel_call_set_ca_file(semel_call *call, const char *path, semel_error *err)
{
        if (path && access(path, R_OK) != 0)
                return err_set_errno(err, SEMEL_ERR_ARGUMENT, errno,
                                     "cannot read the certificates in %.300s", path);
        return set_text(&call->ca_file, path, err);
}

semel_code semel_call_set_proxy(semel_call *call, const char *proxy, semel_error *err)
{
        return set_text(&call->proxy, proxy, err);
}

void semel_call_on_attempt(semel_call *call,
                           void (*fn)(void *arg, const semel_call_attempt *attempt), void *arg)
{
        call->on_attempt = fn;
        call->on_attempt_arg = arg;
}

int semel_call_attempts(const semel_call *call)
{
        return call->attempts;
}

void semel_call_cancel(semel_call *call)
{
        int before = errno; /* a signal handler leaves it as it was */
        (void)eventfd_write(call->cancel_fd, 1);
        errno = before;
}

const char *semel_call_result_name(semel_call_result result)
{
        switch (result) {
        case SEMEL_CALL_DONE:
                return "done";
        case SEMEL_CALL_REJECTED:
                return "rejected";
        case SEMEL_CALL_UNKNOWN:
                return "unknown";
        case SEMEL_CALL_IN_FLIGHT:
                return "in-flight";
        case SEMEL_CALL_ERROR:
                return "error";
        }
        return "?";
}
