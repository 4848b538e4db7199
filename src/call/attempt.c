/* SPDX-License-Identifier: Apache-2.0
 *
 * attempt: see attempt.h.
 */
#include "call/attempt.h"

#include <curl/curl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>

#include "core/limits.h"
#include "core/reply_codec.h"

struct attempt {
        const struct call_request *req;
        struct call_reply *rep;
        CURL *easy;
        struct curl_slist *lines;
        int64_t timeout_ms;
        bool connected;  /* with TLS: from here on bytes of the request may leave */
        bool in_head, in_body, cut;
        char why[CURL_ERROR_SIZE];
};

void call_reply_init(struct call_reply *rep)
{
        *rep = (struct call_reply){0};
        buf_init(&rep->headers, LIMIT_REPLY_HEADERS_BYTES);
        buf_init(&rep->body, LIMIT_REPLY_BODY_BYTES);
}

void call_reply_release(struct call_reply *rep)
{
        buf_release(&rep->headers);
        buf_release(&rep->body);
}

/* -- what libcurl tells us ---------------------------------------------------------------------- */

static int on_connected(void *arg, char *ip, char *local_ip, int port, int local_port)
{
        struct attempt *a = arg;
        (void)ip;
        (void)local_ip;
        (void)port;
        (void)local_port;
        a->connected = true;
        return CURL_PREREQFUNC_OK;
}

static struct span trim(struct span s)
{
        while (s.n > 0 && strchr(" \t", s.p[0]))
                s = span_of(s.p + 1, s.n - 1);
        while (s.n > 0 && strchr(" \t\r\n", s.p[s.n - 1]))
                s.n--;
        return s;
}

/* One line of a head.  Interim replies have heads too, and a chunked body may have fields behind
 * it: the last head before the body is the reply's. */
static size_t on_header(char *p, size_t one, size_t n, void *arg)
{
        struct attempt *a = arg;
        struct span line = trim(span_of(p, n));
        (void)one;
        if (!a->in_head && !a->in_body && n > 5 && memcmp(p, "HTTP/", 5) == 0) {
                buf_clear(&a->rep->headers);
                a->rep->header_count = 0;
                a->in_head = true;
                return n;
        }
        const uint8_t *colon = line.n ? memchr(line.p, ':', line.n) : NULL;
        if (line.n == 0)
                a->in_head = false;
        if (!a->in_head || !colon)
                return n;
        size_t name_n = (size_t)(colon - line.p);
        if (a->rep->header_count < LIMIT_REPLY_HEADERS &&
            reply_encode_header(&a->rep->headers, span_of(line.p, name_n),
                                trim(span_of(colon + 1, line.n - name_n - 1))) == BUF_OK)
                a->rep->header_count++;
        else
                a->cut = true;
        return n;
}

static size_t on_body(char *p, size_t one, size_t n, void *arg)
{
        struct attempt *a = arg;
        (void)one;
        a->in_body = true;
        if (buf_append(&a->rep->body, p, n) == BUF_OK)
                return n;
        a->cut = true;
        return 0; /* libcurl gives up */
}

/* -- setting up --------------------------------------------------------------------------------- */

static CURLcode add_lines(struct attempt *a)
{
        for (size_t i = 0; i < a->req->header_count; i++) {
                struct curl_slist *more = curl_slist_append(a->lines, a->req->headers[i]);
                if (!more)
                        return CURLE_OUT_OF_MEMORY;
                a->lines = more;
        }
        return curl_easy_setopt(a->easy, CURLOPT_HTTPHEADER, a->lines);
}

static CURLcode set_method(struct attempt *a)
{
        const struct call_request *req = a->req;
        CURLcode rc = CURLE_OK;
        if (strcmp(req->method, "HEAD") == 0)
                return curl_easy_setopt(a->easy, CURLOPT_NOBODY, 1L);
        if (req->has_body) {
                rc = curl_easy_setopt(a->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)req->body.n);
                if (rc == CURLE_OK)
                        rc = curl_easy_setopt(a->easy, CURLOPT_POSTFIELDS,
                                              req->body.n ? (const char *)req->body.p : "");
        }
        return rc == CURLE_OK ? curl_easy_setopt(a->easy, CURLOPT_CUSTOMREQUEST, req->method) : rc;
}

static CURLcode set_trust(struct attempt *a)
{
        CURLcode rc = CURLE_OK;
        if (a->req->ca_file) {
                rc = curl_easy_setopt(a->easy, CURLOPT_CAINFO, a->req->ca_file);
                if (rc == CURLE_OK) /* in the place of the system's, not beside them */
                        rc = curl_easy_setopt(a->easy, CURLOPT_CAPATH, NULL);
        }
        if (rc == CURLE_OK && (!a->req->proxy || strcmp(a->req->proxy, "env") != 0))
                rc = curl_easy_setopt(a->easy, CURLOPT_PROXY, a->req->proxy ? a->req->proxy : "");
        return rc;
}

static CURLcode set_up(struct attempt *a)
{
        CURL *e = a->easy;
        CURLcode rc = CURLE_OK;
#define SET(option, value)                                                                          \
        do                                                                                          \
                rc = rc == CURLE_OK ? curl_easy_setopt(e, (option), (value)) : rc;                  \
        while (0)
        SET(CURLOPT_ERRORBUFFER, a->why);
        SET(CURLOPT_URL, a->req->url);
        SET(CURLOPT_PROTOCOLS_STR, "http,https");
        SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
        SET(CURLOPT_HTTP09_ALLOWED, 0L);
        SET(CURLOPT_FRESH_CONNECT, 1L);
        SET(CURLOPT_FORBID_REUSE, 1L);
        SET(CURLOPT_FOLLOWLOCATION, 0L);
        SET(CURLOPT_HTTPAUTH, CURLAUTH_BASIC); /* the only one that asks nothing first */
        SET(CURLOPT_PROXYAUTH, CURLAUTH_BASIC);
        SET(CURLOPT_NOSIGNAL, 1L);
        SET(CURLOPT_QUICK_EXIT, 1L); /* a resolver that hangs is not waited for */
        SET(CURLOPT_TIMEOUT_MS, (long)a->timeout_ms);
        SET(CURLOPT_CONNECTTIMEOUT_MS, (long)a->timeout_ms);
        SET(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
        SET(CURLOPT_USERAGENT, "semel/" SEMEL_VERSION);
        SET(CURLOPT_PREREQFUNCTION, on_connected);
        SET(CURLOPT_PREREQDATA, a);
        SET(CURLOPT_HEADERFUNCTION, on_header);
        SET(CURLOPT_HEADERDATA, a);
        SET(CURLOPT_WRITEFUNCTION, on_body);
        SET(CURLOPT_WRITEDATA, a);
#undef SET
        if (rc == CURLE_OK)
                rc = set_method(a);
        if (rc == CURLE_OK)
                rc = add_lines(a);
        return rc == CURLE_OK ? set_trust(a) : rc;
}

/* -- running ------------------------------------------------------------------------------------ */

/* CURLE_ABORTED_BY_CALLBACK: it was cancelled. */
static CURLcode run(struct attempt *a)
{
        CURLM *multi = curl_multi_init();
        CURLcode rc = CURLE_OUT_OF_MEMORY;
        int running = 1, left;
        struct curl_waitfd cancel = {.fd = a->req->cancel_fd, .events = CURL_WAIT_POLLIN};
        if (!multi)
                return rc;
        if (curl_multi_add_handle(multi, a->easy) == CURLM_OK) {
                while (curl_multi_perform(multi, &running) == CURLM_OK && running > 0 &&
                       !cancel.revents)
                        if (curl_multi_poll(multi, &cancel, 1, 1000, NULL) != CURLM_OK)
                                break;
                CURLMsg *msg = running == 0 ? curl_multi_info_read(multi, &left) : NULL;
                rc = msg ? msg->data.result : cancel.revents ? CURLE_ABORTED_BY_CALLBACK : rc;
                (void)curl_multi_remove_handle(multi, a->easy);
        }
        (void)curl_multi_cleanup(multi);
        return rc;
}

/* A write to a connection that is gone must not end the process, and the process's signals are
 * not ours to set: SIGPIPE is blocked in this thread, and taken away if it came. */
static CURLcode run_without_sigpipe(struct attempt *a)
{
        sigset_t pipe_only, before, pending;
        const struct timespec now = {0, 0};
        sigemptyset(&pipe_only);
        sigaddset(&pipe_only, SIGPIPE);
        (void)sigpending(&pending);
        (void)pthread_sigmask(SIG_BLOCK, &pipe_only, &before);
        CURLcode rc = run(a);
        if (!sigismember(&pending, SIGPIPE))
                (void)sigtimedwait(&pipe_only, NULL, &now);
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
        return rc;
}

/* -- what became of it -------------------------------------------------------------------------- */

static enum call_end_kind kind_of(const struct attempt *a, CURLcode rc)
{
        switch (rc) {
        case CURLE_OK:
                return a->cut ? CALL_END_REPLY_CUT : CALL_END_REPLY;
        case CURLE_COULDNT_RESOLVE_HOST:
        case CURLE_COULDNT_RESOLVE_PROXY:
                return CALL_END_NO_NAME;
        case CURLE_COULDNT_CONNECT:
        case CURLE_PROXY:
                return CALL_END_NO_CONNECTION;
        case CURLE_SSL_CONNECT_ERROR:
                return CALL_END_NO_TLS;
        case CURLE_PEER_FAILED_VERIFICATION:
        case CURLE_SSL_ISSUER_ERROR:
                return CALL_END_UNTRUSTED;
        case CURLE_OPERATION_TIMEDOUT:
                return CALL_END_TIMEOUT;
        case CURLE_ABORTED_BY_CALLBACK:
                return CALL_END_CANCELLED;
        case CURLE_WRITE_ERROR:
                if (a->cut)
                        return CALL_END_REPLY_CUT;
                break;
        case CURLE_GOT_NOTHING:
        case CURLE_SEND_ERROR:
        case CURLE_RECV_ERROR:
        case CURLE_PARTIAL_FILE:
                return CALL_END_LOST;
        default:
                break;
        }
        return a->connected ? CALL_END_GARBLED : CALL_END_CANNOT;
}

/* libcurl counts a phase that is over in microseconds, and one that is not as 0. */
static const char *where_before(const struct attempt *a)
{
        curl_off_t named = 0;
        (void)curl_easy_getinfo(a->easy, CURLINFO_NAMELOOKUP_TIME_T, &named);
        return named == 0 ? "while the host's name was looked up; nothing was sent"
                          : "while connecting; nothing was sent";
}

/* "after 17 of 4000 bytes of the body", or wherever it was. */
static void where(const struct attempt *a, int status, char *ret, size_t ret_max)
{
        curl_off_t sent = 0;
        (void)curl_easy_getinfo(a->easy, CURLINFO_SIZE_UPLOAD_T, &sent);
        if (!a->connected)
                (void)snprintf(ret, ret_max, "%s", where_before(a));
        else if (status)
                (void)snprintf(ret, ret_max, "in the middle of a %d reply, after %zu bytes of its body",
                               status, a->rep->body.n);
        else if ((size_t)sent < a->req->body.n)
                (void)snprintf(ret, ret_max, "after %lld of %zu bytes of the body were sent",
                               (long long)sent, a->req->body.n);
        else
                (void)snprintf(ret, ret_max, "after the request was sent, before a reply");
}

static void explain(const struct attempt *a, CURLcode rc, const struct call_end *end, char *ret)
{
        const char *why = a->why[0] ? a->why : curl_easy_strerror(rc);
        char at[128];
        where(a, end->status, at, sizeof at);
        ret[0] = 0;
        switch (end->kind) {
        case CALL_END_REPLY:
                return;
        case CALL_END_REPLY_CUT:
                (void)snprintf(ret, CALL_TEXT_BYTES_MAX, "the reply is too big to keep");
                return;
        case CALL_END_NO_NAME:
        case CALL_END_NO_CONNECTION:
                (void)snprintf(ret, CALL_TEXT_BYTES_MAX, "no connection: %s", why);
                return;
        case CALL_END_NO_TLS:
                (void)snprintf(ret, CALL_TEXT_BYTES_MAX, "no TLS: %s", why);
                return;
        case CALL_END_UNTRUSTED:
                (void)snprintf(ret, CALL_TEXT_BYTES_MAX, "the other side is not to be trusted: %s",
                               why);
                return;
        case CALL_END_TIMEOUT:
                (void)snprintf(ret, CALL_TEXT_BYTES_MAX, "timed out after %lld ms, %s",
                               (long long)a->timeout_ms, at);
                return;
        case CALL_END_LOST:
                (void)snprintf(ret, CALL_TEXT_BYTES_MAX, "the connection was lost %s", at);
                return;
        case CALL_END_GARBLED:
                (void)snprintf(ret, CALL_TEXT_BYTES_MAX, "no HTTP reply: %s", why);
                return;
        case CALL_END_CANNOT:
                (void)snprintf(ret, CALL_TEXT_BYTES_MAX, "cannot call: %s", why);
                return;
        case CALL_END_CANCELLED:
                (void)snprintf(ret, CALL_TEXT_BYTES_MAX, "cancelled %s", at);
                return;
        }
}

static void global_init(void)
{
        (void)curl_global_init(CURL_GLOBAL_DEFAULT);
}

static void init_once(void)
{
        static pthread_once_t once = PTHREAD_ONCE_INIT;
        (void)pthread_once(&once, global_init);
}

void call_attempt(const struct call_request *req, int64_t timeout_us, struct call_reply *rep,
                  struct call_end *ret_end, char *ret_text)
{
        struct attempt a = {.req = req, .rep = rep, .timeout_ms = timeout_us / MS};
        struct call_end end = {.retry_after_us = -1};
        CURLcode rc = CURLE_OUT_OF_MEMORY;
        long status = 0;
        if (a.timeout_ms < 1) /* 0 would be none at all */
                a.timeout_ms = 1;
        rep->status = 0;
        rep->header_count = 0;
        buf_clear(&rep->headers);
        buf_clear(&rep->body);
        init_once();
        a.easy = curl_easy_init();
        if (a.easy)
                rc = set_up(&a);
        if (a.easy && rc == CURLE_OK) {
                rc = run_without_sigpipe(&a);
                (void)curl_easy_getinfo(a.easy, CURLINFO_RESPONSE_CODE, &status);
        }
        end.kind = kind_of(&a, rc);
        end.sent = a.connected;
        end.status = rep->status = a.connected && status >= 200 ? (int)status : 0;
        if (a.easy)
                explain(&a, rc, &end, ret_text);
        else
                (void)snprintf(ret_text, CALL_TEXT_BYTES_MAX, "cannot call: no memory");
        curl_easy_cleanup(a.easy);
        curl_slist_free_all(a.lines);
        *ret_end = end;
}

/* -- URLs --------------------------------------------------------------------------------------- */

static bool is_http(CURLU *u)
{
        char *scheme = NULL;
        bool ok = curl_url_get(u, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
                  (strcmp(scheme, "http") == 0 || strcmp(scheme, "https") == 0);
        curl_free(scheme);
        return ok;
}

bool call_url_parse(const char *url, char *ret_shown, size_t ret_max)
{
        static const CURLUPart hidden[] = {CURLUPART_USER, CURLUPART_PASSWORD, CURLUPART_OPTIONS,
                                           CURLUPART_QUERY, CURLUPART_FRAGMENT};
        char *shown = NULL;
        init_once();
        CURLU *u = curl_url();
        bool ok = u && strstr(url, "://") && curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK &&
                  is_http(u);
        for (size_t i = 0; ok && i < sizeof hidden / sizeof hidden[0]; i++)
                ok = curl_url_set(u, hidden[i], NULL, 0) == CURLUE_OK;
        ok = ok && curl_url_get(u, CURLUPART_URL, &shown, 0) == CURLUE_OK;
        if (ok)
                (void)snprintf(ret_shown, ret_max, "%s", shown);
        curl_free(shown);
        curl_url_cleanup(u);
        return ok;
}
