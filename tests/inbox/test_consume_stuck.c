/* SPDX-License-Identifier: Apache-2.0
 *
 * A handler that hangs is not waited for: the consumer ends at its deadline although a worker still has
 * messages, and says so; once the handler has returned, everything can be freed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <poll.h>
#include <pthread.h>
#include <string.h>

#include "consume/consume.h"
#include "produce.h"

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t called = PTHREAD_COND_INITIALIZER;
static bool hanging, may_return;
static char payload[16];

static semel_code check(struct inbox_session *s, const struct inbox_handler *handler,
                        int64_t deadline_us, semel_error *err)
{
        (void)s;
        (void)handler;
        (void)deadline_us;
        (void)err;
        return SEMEL_OK;
}

static semel_code counted(struct inbox_session *s, const struct inbox_event *event,
                          int64_t deadline_us, int *ret_attempts, semel_error *err)
{
        (void)s;
        (void)event;
        (void)deadline_us;
        (void)err;
        *ret_attempts = 0;
        return SEMEL_OK;
}

static semel_code count(struct inbox_session *s, const struct inbox_event *event, int number,
                        int64_t deadline_us, int *ret_attempts, semel_error *err)
{
        (void)s;
        (void)event;
        (void)deadline_us;
        (void)err;
        *ret_attempts = number;
        return SEMEL_OK;
}

static semel_code seen(struct inbox_session *s, const struct inbox_event *events, size_t n,
                       int64_t deadline_us, bool *ret_seen, semel_error *err)
{
        (void)s;
        (void)events;
        (void)deadline_us;
        (void)err;
        memset(ret_seen, false, n);
        return SEMEL_OK;
}

/* No cancel reaches it. */
static void apply(struct inbox_session *s, const struct inbox_event *events, size_t n,
                  const struct inbox_handler *handler, bool counted, int64_t deadline_us,
                  struct inbox_result *ret)
{
        (void)s;
        (void)handler;
        (void)counted;
        (void)deadline_us;
        (void)pthread_mutex_lock(&mu);
        hanging = true;
        (void)pthread_cond_broadcast(&called);
        while (!may_return)
                (void)pthread_cond_wait(&called, &mu);
        memcpy(payload, events[0].payload.p, events[0].payload.n); /* it is still there */
        (void)pthread_mutex_unlock(&mu);
        *ret = (struct inbox_result){.end = INBOX_DONE, .processed = n};
}

static semel_code list(struct inbox_session *s, struct span consumer, enum inbox_letter_state state,
                       int64_t after_id, size_t max, int64_t deadline_us, struct inbox_letters *ret,
                       semel_error *err)
{
        (void)s;
        (void)consumer;
        (void)state;
        (void)after_id;
        (void)max;
        (void)deadline_us;
        (void)err;
        *ret = (struct inbox_letters){0};
        return SEMEL_OK;
}

static void nothing(struct inbox_session *s)
{
        (void)s;
}

static const struct inbox_vt vt = {.name = "hangs",
                                   .check = check,
                                   .counted = counted,
                                   .count = count,
                                   .seen = seen,
                                   .apply = apply,
                                   .list = list,
                                   .cancel = nothing,
                                   .close = nothing};
static struct inbox_session session = {.vt = &vt};

static semel_code open_hangs(const char *url, struct inbox_session **ret, semel_error *err)
{
        (void)url;
        (void)err;
        *ret = &session;
        return SEMEL_OK;
}

static bool ends_within(struct consume *c, int64_t us)
{
        int64_t until_us = clock_boot_us() + us;
        while (!consume_ended(c) && clock_boot_us() < until_us)
                (void)poll(NULL, 0, 10);
        return consume_ended(c);
}

static void let_return(void)
{
        (void)pthread_mutex_lock(&mu);
        may_return = true;
        (void)pthread_cond_broadcast(&called);
        (void)pthread_mutex_unlock(&mu);
}

static void o72_a_handler_that_hangs_does_not_keep_the_consumer_past_its_deadline(void **state)
{
        (void)state;
        const char *const topics[] = {"t"};
        semel_error err = {0};
        struct bus_mock *mock = NULL;
        struct consume *c = NULL;
        assert_int_equal(bus_mock_new(1, &mock, &err), SEMEL_OK);
        assert_int_equal(bus_mock_topic(mock, "t", 1, &err), SEMEL_OK);
        const struct consume_config config = {
                .db = "hangs:", .inbox_open = open_hangs, .bus = {.brokers = bus_mock_bootstrap(mock)},
                .group = "g", .topics = topics, .topic_count = 1, .handler = {.sql = "SELECT 1"},
                .attempts_max = 3, .batch_rows = 1, .workers = 1};
        const struct event hello = {.topic = span_str("t"), .key = span_str("k"),
                                    .payload = span_str("hello"), .partition = EVENT_NO_PARTITION};
        produce_one(&config.bus, &hello);
        assert_int_equal(consume_new(&config, &c, &err), SEMEL_OK);
        (void)pthread_mutex_lock(&mu);
        while (!hanging)
                (void)pthread_cond_wait(&called, &mu);
        (void)pthread_mutex_unlock(&mu);
        consume_drain(c, clock_boot_us() + SECOND);
        bool ended = ends_within(c, 20 * SECOND);
        if (!ended)
                let_return();
        assert_true(ended);
        assert_int_equal(consume_close(c, &err), SEMEL_ERR_BUSY);
        let_return();
        assert_int_equal(consume_close(c, &err), SEMEL_ERR_BUSY); /* it had been cut off */
        assert_string_equal(payload, "hello");
        bus_mock_free(mock);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(o72_a_handler_that_hangs_does_not_keep_the_consumer_past_its_deadline),
        };
        return cmocka_run_group_tests_name("consume_stuck", tests, NULL, NULL);
}
