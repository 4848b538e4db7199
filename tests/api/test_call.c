/* SPDX-License-Identifier: Apache-2.0
 *
 * semel_call_run() from threads, against a server of a few lines: one key and the same bytes, one
 * sender at a time, and an end when it is asked for.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <semel/call.h>

/* What the server does with each connection, in order; behind the end, 201.
 *   'c'  read the request, close without an answer
 *   'h'  read the request, answer when the server ends
 *   '5'  500        '9'  409        '4'  402        '1'  401 */
struct server {
        const char *script;
        int listener, port;
        pthread_t thread;
        atomic_int requests;
        char first[1024]; /* the first request's bytes */
        int same;         /* so many requests had them */
        int held[8];
        int held_count;
};

/* A head and a body of 5 bytes. */
static size_t read_request(int fd, char *at, size_t max)
{
        size_t n = 0;
        for (;;) {
                const char *end = n ? memmem(at, n, "\r\n\r\n", 4) : NULL;
                if (end && n >= (size_t)(end - at) + 4 + 5)
                        return n;
                ssize_t got = recv(fd, at + n, max - n, 0);
                if (got <= 0)
                        return 0;
                n += (size_t)got;
        }
}

static void reply(int fd, const char *status)
{
        char text[128];
        int n = snprintf(text, sizeof text, "HTTP/1.1 %s\r\nContent-Length: 2\r\n\r\nok", status);
        (void)!send(fd, text, (size_t)n, MSG_NOSIGNAL);
        close(fd);
}

static void serve_one(struct server *s, int fd, char what)
{
        char text[1024];
        size_t n = read_request(fd, text, sizeof text);
        if (s->requests == 0)
                memcpy(s->first, text, sizeof text);
        s->same += n > 0 && memcmp(s->first, text, n) == 0;
        s->requests++;
        if (what == 'h')
                s->held[s->held_count++] = fd;
        else if (what == 'c')
                close(fd);
        else
                reply(fd, what == '5'   ? "500 Broken"
                          : what == '9' ? "409 Conflict"
                          : what == '4' ? "402 No"
                          : what == '1' ? "401 Who are you"
                                        : "201 Created");
}

static void *serve(void *arg)
{
        struct server *s = arg;
        const char *script = s->script;
        for (;;) {
                int fd = accept(s->listener, NULL, NULL);
                if (fd < 0)
                        return NULL;
                serve_one(s, fd, *script);
                script += *script != 0;
        }
}

static void server_start(struct server *s, const char *script)
{
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t n = sizeof at;
        memset(s, 0, sizeof *s);
        s->script = script;
        s->listener = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(bind(s->listener, (struct sockaddr *)&at, sizeof at), 0);
        assert_int_equal(listen(s->listener, 16), 0);
        assert_int_equal(getsockname(s->listener, (struct sockaddr *)&at, &n), 0);
        s->port = ntohs(at.sin_port);
        assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
}

static void server_stop(struct server *s)
{
        (void)shutdown(s->listener, SHUT_RDWR);
        pthread_join(s->thread, NULL);
        for (int i = 0; i < s->held_count; i++)
                close(s->held[i]);
        close(s->listener);
}

static semel_call *new_call(const struct server *s, const char *key)
{
        char url[64];
        (void)snprintf(url, sizeof url, "http://127.0.0.1:%d/charges", s->port);
        semel_call *call = semel_call_new("POST", url, key, NULL);
        assert_non_null(call);
        assert_int_equal(semel_call_set_body(call, "12345", 5, "text/plain", NULL), SEMEL_OK);
        return call;
}

static void count(void *arg, const semel_call_attempt *a)
{
        int *n = arg;
        assert_int_equal(a->number, ++*n);
        assert_non_null(a->what);
}

static void each_attempt_has_the_same_bytes(void **state)
{
        (void)state;
        struct server s;
        size_t n;
        int told = 0;
        server_start(&s, "c59c");
        semel_call *call = new_call(&s, "k-1");
        semel_reply *rep = semel_reply_new();
        semel_call_on_attempt(call, count, &told);
        assert_int_equal(semel_call_run(call, rep, NULL), SEMEL_CALL_DONE);
        assert_int_equal(semel_reply_status(rep), 201);
        assert_memory_equal(semel_reply_body(rep, &n), "ok", 2);
        assert_int_equal(semel_call_attempts(call), 5);
        assert_int_equal(told, 5);
        /* and once more, with the same object */
        told = 0;
        assert_int_equal(semel_call_run(call, NULL, NULL), SEMEL_CALL_DONE);
        assert_int_equal(semel_call_attempts(call), 1);
        semel_call_free(call);
        semel_reply_free(rep);
        server_stop(&s);
        assert_int_equal(s.requests, 6);
        assert_int_equal(s.same, 6);
        assert_non_null(strstr(s.first, "\r\nIdempotency-Key: k-1\r\n"));
}

struct racer {
        const struct server *s;
        semel_store *st;
        semel_call_result result;
        pthread_t thread;
};

static void *race(void *arg)
{
        struct racer *r = arg;
        semel_call *call = new_call(r->s, "k-2");
        assert_int_equal(semel_call_set_store(call, r->st, NULL), SEMEL_OK);
        do
                r->result = semel_call_run(call, NULL, NULL);
        while (r->result == SEMEL_CALL_IN_FLIGHT);
        semel_call_free(call);
        return NULL;
}

static void h1_of_eight_threads_with_one_key_one_sends(void **state)
{
        (void)state;
        struct server s;
        struct racer racers[8];
        semel_store *st = NULL;
        server_start(&s, "c");
        assert_int_equal(semel_store_open("memory:", &st, NULL), SEMEL_OK);
        for (int i = 0; i < 8; i++) {
                racers[i] = (struct racer){.s = &s, .st = st};
                assert_int_equal(pthread_create(&racers[i].thread, NULL, race, &racers[i]), 0);
        }
        for (int i = 0; i < 8; i++) {
                pthread_join(racers[i].thread, NULL);
                assert_int_equal(racers[i].result, SEMEL_CALL_DONE);
        }
        semel_store_close(st);
        server_stop(&s);
        assert_int_equal(s.requests, 2); /* the lost one and its repetition */
}

static void unknown_stays_open_and_rejected_is_kept(void **state)
{
        (void)state;
        struct server s;
        semel_store *st = NULL;
        semel_error *err = semel_error_new();
        semel_reply *rep = semel_reply_new();
        server_start(&s, "c4");
        assert_int_equal(semel_store_open("memory:", &st, NULL), SEMEL_OK);
        semel_call *call = new_call(&s, "k-3");
        assert_int_equal(semel_call_set_store(call, st, NULL), SEMEL_OK);
        assert_int_equal(semel_call_set_attempts_max(call, 1, NULL), SEMEL_OK);
        assert_int_equal(semel_call_run(call, rep, err), SEMEL_CALL_UNKNOWN);
        assert_int_equal(semel_error_code(err), SEMEL_ERR_UNKNOWN);
        assert_int_equal(semel_reply_status(rep), 0);
        for (int i = 0; i < 2; i++) {
                assert_int_equal(semel_call_run(call, rep, err), SEMEL_CALL_REJECTED);
                assert_int_equal(semel_reply_status(rep), 402);
                assert_int_equal(semel_reply_replayed(rep), i);
                assert_int_equal(semel_call_attempts(call), 1 - i);
        }
        semel_call_free(call);
        semel_store_close(st);
        semel_reply_free(rep);
        semel_error_free(err);
        server_stop(&s);
        assert_int_equal(s.requests, 2);
}

/* Run it, one attempt. */
static void runs(semel_call *call, semel_call_result want, int status)
{
        semel_error *err = semel_error_new();
        semel_reply *rep = semel_reply_new();
        assert_int_equal(semel_call_set_attempts_max(call, 1, NULL), SEMEL_OK);
        assert_int_equal(semel_call_run(call, rep, err), want);
        assert_int_equal(semel_reply_status(rep), status);
        semel_reply_free(rep);
        semel_error_free(err);
}

static void after_an_unknown_run_a_front_door_says_nothing(void **state)
{
        (void)state;
        struct server s;
        server_start(&s, "c1419221");
        semel_call *call = new_call(&s, "k-6");
        runs(call, SEMEL_CALL_UNKNOWN, 0);
        runs(call, SEMEL_CALL_UNKNOWN, 401);
        runs(call, SEMEL_CALL_REJECTED, 402); /* final: it did not happen */
        runs(call, SEMEL_CALL_REJECTED, 401);
        runs(call, SEMEL_CALL_UNKNOWN, 409);
        runs(call, SEMEL_CALL_DONE, 201);
        runs(call, SEMEL_CALL_DONE, 201);
        runs(call, SEMEL_CALL_UNKNOWN, 401); /* it did happen, before */
        server_stop(&s);
        runs(call, SEMEL_CALL_UNKNOWN, 0); /* and is not reached any more */
        semel_call_free(call);
}

static void a_caller_that_knows_of_an_earlier_object_says_so(void **state)
{
        (void)state;
        struct server s;
        server_start(&s, "114");
        semel_call *call = new_call(&s, "k-7");
        runs(call, SEMEL_CALL_REJECTED, 401);
        semel_call_set_sent_before(call, true);
        runs(call, SEMEL_CALL_UNKNOWN, 401);
        runs(call, SEMEL_CALL_REJECTED, 402);
        server_stop(&s);
        semel_call_set_sent_before(call, true);
        runs(call, SEMEL_CALL_UNKNOWN, 0);
        semel_call_set_sent_before(call, false);
        runs(call, SEMEL_CALL_ERROR, 0);
        semel_call_free(call);
}

static void *cancel(void *arg)
{
        struct racer *r = arg;
        while (r->s->requests == 0)
                sched_yield();
        semel_call_cancel((semel_call *)r->st);
        return NULL;
}

static void a_call_ends_when_it_is_asked_to(void **state)
{
        (void)state;
        struct server s;
        struct racer r = {.s = &s};
        semel_error *err = semel_error_new();
        server_start(&s, "h");
        semel_call *call = new_call(&s, "k-4");
        r.st = (semel_store *)call;
        assert_int_equal(pthread_create(&r.thread, NULL, cancel, &r), 0);
        assert_int_equal(semel_call_run(call, NULL, err), SEMEL_CALL_UNKNOWN);
        assert_non_null(strstr(semel_error_text(err), "cancelled"));
        pthread_join(r.thread, NULL);
        /* before it began, too: nothing is sent, which says nothing about the run before */
        semel_call_cancel(call);
        assert_int_equal(semel_call_run(call, NULL, err), SEMEL_CALL_UNKNOWN);
        assert_int_equal(semel_call_attempts(call), 0);
        semel_call_free(call);
        call = new_call(&s, "k-5");
        semel_call_cancel(call);
        assert_int_equal(semel_call_run(call, NULL, err), SEMEL_CALL_ERROR);
        assert_int_equal(semel_error_class(err), SEMEL_CLASS_RETRYABLE);
        assert_int_equal(s.requests, 1);
        /* and the next run is not touched by it */
        assert_int_equal(semel_call_run(call, NULL, err), SEMEL_CALL_DONE);
        semel_call_free(call);
        semel_error_free(err);
        server_stop(&s);
}

static void what_cannot_be_sent_is_refused(void **state)
{
        (void)state;
        static const char *const urls[] = {"", "x", "ftp://h/", "http://", "http://h/a b", "//h/x"};
        static const char *const keys[] = {"", "a b", "a,b", "a;b", "caf\xc3\xa9", "a\r\nX: y"};
        semel_error *err = semel_error_new();
        for (size_t i = 0; i < sizeof urls / sizeof urls[0]; i++) {
                assert_null(semel_call_new("POST", urls[i], "k", err));
                assert_int_equal(semel_error_code(err), SEMEL_ERR_URL);
        }
        for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
                assert_null(semel_call_new("POST", "http://h/", keys[i], err));
                assert_int_equal(semel_error_code(err), SEMEL_ERR_KEY);
        }
        assert_null(semel_call_new("PO ST", "http://h/", "k", err));
        assert_null(semel_call_new("POST", NULL, "k", err));
        assert_null(semel_call_new("POST", "http://h/", NULL, err));
        semel_call *call = semel_call_new("POST", "https://u:p@h:8443/x?y", "\"a b\"", err);
        assert_non_null(call);
        assert_int_equal(semel_call_add_header(call, "Host", "x", err), SEMEL_ERR_ARGUMENT);
        assert_int_equal(semel_call_add_header(call, "X", "a\nb", err), SEMEL_ERR_ARGUMENT);
        assert_int_equal(semel_call_set_deadline_ms(call, 0, 1, err), SEMEL_ERR_ARGUMENT);
        assert_int_equal(semel_call_set_attempts_max(call, -1, err), SEMEL_ERR_ARGUMENT);
        assert_int_equal(semel_call_set_ca_file(call, "/no/such", err), SEMEL_ERR_ARGUMENT);
        for (int i = 0; i < 64; i++)
                assert_int_equal(semel_call_add_header(call, "X", "y", err), SEMEL_OK);
        assert_int_equal(semel_call_add_header(call, "X", "y", err), SEMEL_ERR_TOO_LARGE);
        semel_call_free(call);
        semel_call_free(NULL);
        semel_error_free(err);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(each_attempt_has_the_same_bytes),
                cmocka_unit_test(h1_of_eight_threads_with_one_key_one_sends),
                cmocka_unit_test(unknown_stays_open_and_rejected_is_kept),
                cmocka_unit_test(after_an_unknown_run_a_front_door_says_nothing),
                cmocka_unit_test(a_caller_that_knows_of_an_earlier_object_says_so),
                cmocka_unit_test(a_call_ends_when_it_is_asked_to),
                cmocka_unit_test(what_cannot_be_sent_is_refused),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
