/* SPDX-License-Identifier: Apache-2.0
 *
 * A session is one thread's at a time: while the poll thread checks the database (which may take as
 * long as the database is away), the keeper leaves the session that it has in common with it alone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "consume/consume.h"
#include "sys/clock.h"

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t called = PTHREAD_COND_INITIALIZER;
static bool checking, met;
static int checks;

/* Longer than the keeper waits between two looks. */
static semel_code check(struct inbox_session *s, const struct inbox_handler *handler,
                        int64_t deadline_us, semel_error *err)
{
        (void)s;
        (void)handler;
        (void)deadline_us;
        struct timespec until;
        (void)clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += 2;
        (void)pthread_mutex_lock(&mu);
        checking = true;
        while (!met && pthread_cond_timedwait(&called, &mu, &until) == 0)
                ;
        checking = false;
        checks++;
        (void)pthread_cond_broadcast(&called);
        (void)pthread_mutex_unlock(&mu);
        return err_set(err, SEMEL_ERR_STORE_DOWN, "away");
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
        (void)ret;
        (void)pthread_mutex_lock(&mu);
        met |= checking;
        (void)pthread_cond_broadcast(&called);
        (void)pthread_mutex_unlock(&mu);
        return err_set(err, SEMEL_ERR_STORE_DOWN, "away");
}

static void cancel(struct inbox_session *s)
{
        (void)s;
}

static const struct inbox_vt vt = {
        .name = "away", .check = check, .list = list, .cancel = cancel, .close = cancel};
static struct inbox_session session = {.vt = &vt};

static semel_code open_away(const char *url, struct inbox_session **ret, semel_error *err)
{
        (void)url;
        (void)err;
        *ret = &session;
        return SEMEL_OK;
}

static void d3_the_keeper_waits_until_the_database_was_checked(void **state)
{
        (void)state;
        const char *const topics[] = {"t"};
        const struct consume_config config = {
                .db = "away:", .inbox_open = open_away, .bus = {.brokers = "127.0.0.1:1"},
                .group = "g", .topics = topics, .topic_count = 1, .handler = {.sql = "SELECT 1"},
                .attempts_max = 3, .batch_rows = 1, .workers = 1, .retention_us = HOUR};
        struct consume *c = NULL;
        semel_error err = {0};
        assert_int_equal(consume_new(&config, &c, &err), SEMEL_OK);
        (void)pthread_mutex_lock(&mu);
        while (checks == 0)
                (void)pthread_cond_wait(&called, &mu);
        (void)pthread_mutex_unlock(&mu);
        consume_drain(c, clock_boot_us() + 5 * SECOND);
        assert_int_equal(consume_close(c, &err), SEMEL_OK);
        assert_false(met);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(d3_the_keeper_waits_until_the_database_was_checked),
        };
        return cmocka_run_group_tests_name("consume_start", tests, NULL, NULL);
}
