/* SPDX-License-Identifier: Apache-2.0
 *
 * PostgreSQL behind PgBouncer in transaction mode (rule B7, O53): the pooler is noticed, and
 * nothing of ours stays behind on a server connection that others will get.
 */
#include "postgres_world.h"

#include <stdlib.h>

enum { SERVER_CONNECTIONS = 2 };

static void expect_clean_connections(void)
{
        PGconn *clients[SERVER_CONNECTIONS];
        for (int i = 0; i < SERVER_CONNECTIONS; i++) { /* one transaction each: all of them */
                clients[i] = db_open();
                db_exec(clients[i], "BEGIN");
                assert_int_equal(db_int(clients[i], "SELECT count(*) FROM pg_prepared_statements"),
                                 0);
                assert_int_equal(db_int(clients[i],
                                        "SELECT count(*) FROM pg_settings WHERE source = 'session' "
                                        "AND name IN ('lock_timeout', 'enable_seqscan', "
                                        "'synchronous_commit', 'default_transaction_isolation')"),
                                 0);
        }
        for (int i = 0; i < SERVER_CONNECTIONS; i++) {
                db_exec(clients[i], "COMMIT");
                PQfinish(clients[i]);
        }
}

static void b7_a_pooler_is_noticed_and_left_clean(void **state)
{
        (void)state;
        struct store *st = world_open(world_url());
        for (unsigned i = 0; i < 20; i++)
                run_once(st, i, span_str("x"));
        expect_clean_connections();
        world_close(st);
}

static void b7_prepared_statements_that_a_pooler_loses_are_given_up(void **state)
{
        (void)state;
        struct store *const stores[] = {world_open(world_url_with("semel_prepare=on")),
                                        world_open(world_url_with("semel_prepare=on"))};
        for (unsigned i = 0; i < 40; i++)
                run_once(stores[i % 2], 100 + i, span_str("x"));
        world_close(stores[0]);
        world_close(stores[1]);
}

static int setup(void **state)
{
        (void)state;
        world_fresh();
        return 0;
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(b7_a_pooler_is_noticed_and_left_clean),
                cmocka_unit_test(b7_prepared_statements_that_a_pooler_loses_are_given_up),
        };
        return cmocka_run_group_tests(tests, setup, NULL);
}
