/* SPDX-License-Identifier: Apache-2.0
 *
 * relay_fatal: the relay and its real producer, against librdkafka's mock cluster in this process, which
 * answers as a broker does that has lost what idempotence rests on: the producer is finished, another one
 * sends what had no report, and nothing is lost (rule C9); or that refuses a whole request, for one record
 * in it that nobody names: no row dies of it (rule C7).  The database is relay_world's.
 */
#include <stdio.h>
#include <stdlib.h>

#include "bus_kit.h"
#include "core/limits.h"
#include "relay_world.h"

enum {
        PRODUCE = 0,
        INVALID_MSG = 2,
        RECORD_LIST_TOO_LARGE = 18,
        OUT_OF_ORDER_SEQUENCE = 45,
        INVALID_RECORD = 87,
        ROWS = 300,
        KEYS = 10
};

static struct bus_mock *mock;

static int setup(void **state)
{
        semel_error err = {0};
        (void)world_setup(state);
        assert_ok(bus_mock_new(1, &mock, &err));
        assert_ok(bus_mock_topic(mock, "t", 1, &err));
        struct relay_config *c = world_config(OUTBOX_OWNED);
        (void)snprintf(c->brokers, sizeof c->brokers, "%s", bus_mock_bootstrap(mock));
        return 0;
}

static int teardown(void **state)
{
        int rc = world_teardown(state);
        bus_mock_free(mock);
        return rc;
}

/* Every id is in the log, and those of a key first come in their order. */
static void nothing_is_lost(void)
{
        bool seen[2 * ROWS] = {false};
        long last[KEYS] = {0};
        world_wait(world_all_done, "all rows");
        world_stop();
        const char *p = kit_read(bus_mock_bootstrap(mock), "t", 0, false);
        while (*p) {
                char *end;
                long id = strtol(p, &end, 10);
                p = *end ? end + 1 : end;
                assert_in_range(id, 1, world.rows);
                if (seen[id])
                        continue;
                seen[id] = true;
                assert_true(id > last[(id - 1) % KEYS]);
                last[(id - 1) % KEYS] = id;
        }
        for (size_t i = 1; i <= world.rows; i++)
                assert_true(seen[i]);
}

/* A producer that has worked for a while, and then `times` such answers. */
static void broker_forgets(size_t times)
{
        (void)world_add(KEYS, KEYS);
        world_start();
        world_wait(world_all_done, "the first rows");
        bus_mock_fail(mock, PRODUCE, OUT_OF_ORDER_SEQUENCE, times);
        (void)world_add(ROWS, KEYS);
        nothing_is_lost();
        assert_true(world_said("a new producer"));
}

static void c9_a_fatal_error_of_idempotence_is_followed_by_a_new_producer(void **state)
{
        (void)state;
        broker_forgets(1);
}

static void c9_and_by_another_as_often_as_it_comes(void **state)
{
        (void)state;
        broker_forgets(4);
}

static size_t dead_rows(void)
{
        size_t n = 0;
        for (size_t i = 0; i < world.rows; i++)
                n += world.row[i].state == OUTBOX_DEAD;
        return n;
}

/* One answer for a request of many rows; sent alone, each of them is taken. */
static void c7_a_request_that_is_refused_as_a_whole_buries_no_row(void **state)
{
        static const int16_t codes[] = {INVALID_MSG, RECORD_LIST_TOO_LARGE, INVALID_RECORD};
        for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
                if (i > 0)
                        (void)setup(state);
                (void)world_add(ROWS, KEYS);
                bus_mock_fail(mock, PRODUCE, codes[i], 1);
                world_start();
                world_wait(world_all_done, "all rows");
                if (dead_rows() > 0)
                        fail_msg("code %d: %zu rows are DEAD", codes[i], dead_rows());
                assert_true(world_said("rows were refused together"));
                nothing_is_lost();
                if (i + 1 < sizeof codes / sizeof codes[0])
                        assert_int_equal(teardown(state), 0);
        }
}

int main(int argc, char **argv)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(
                        c9_a_fatal_error_of_idempotence_is_followed_by_a_new_producer, setup, teardown),
                cmocka_unit_test_setup_teardown(c9_and_by_another_as_often_as_it_comes, setup, teardown),
                cmocka_unit_test_setup_teardown(c7_a_request_that_is_refused_as_a_whole_buries_no_row, setup,
                                                teardown),
        };
        if (argc > 1)
                cmocka_set_test_filter(argv[1]);
        return cmocka_run_group_tests_name("relay and fatal errors", tests, NULL, NULL);
}
