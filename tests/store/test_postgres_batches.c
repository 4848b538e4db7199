/* SPDX-License-Identifier: Apache-2.0
 *
 * PostgreSQL: what travels together, and that one bad operation or one held key fails alone
 * (rules B1, B2, B4 to B7, A9).
 */
#include "postgres_world.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sql_postgres.h"

enum { MANY = 200 };

static PGconn *db;
static struct store *st, *other;

static int setup(void **state)
{
        (void)state;
        world_fresh();
        db = db_open();
        st = world_open(world_url());
        other = world_open(world_url_with("semel_prepare=off&semel_connections=2"));
        return 0;
}

static int teardown(void **state)
{
        (void)state;
        world_close(st);
        world_close(other);
        PQfinish(db);
        return 0;
}

static struct store_op *ops_new(size_t n)
{
        struct store_op *ops = calloc(n, sizeof *ops);
        assert_non_null(ops);
        return ops;
}

static void ops_free(struct store_op *ops, size_t n)
{
        for (size_t i = 0; i < n; i++)
                store_op_release(&ops[i]);
        free(ops);
}

/* How many of them answered so. */
static size_t count_outcome(const struct store_op *ops, size_t n, enum command_outcome outcome)
{
        size_t count = 0;
        for (size_t i = 0; i < n; i++) {
                if (ops[i].err.code != SEMEL_OK)
                        fail_msg("operation %zu: %s", i, ops[i].err.text);
                count += ops[i].out.claim.answer.outcome == outcome;
        }
        return count;
}

/* Naive: one transaction that holds one id stalls a batch of 200, and whoever waits for another
 * id of that batch, for as long as it lasts. */
static void b2_a_held_key_does_not_stall_its_batch(void **state)
{
        (void)state;
        struct store *const stores[] = {st, other};
        struct command_claim held = claim_of(7, false);
        PGconn *user = db_open();
        db_exec(user, "BEGIN");
        db_insert_row(user, &held);

        struct store_op *ops = ops_new(MANY + 1);
        for (unsigned i = 0; i < MANY; i++) {
                struct command_claim claim = claim_of(i, false);
                op_claim_init(&ops[i], &claim);
        }
        int64_t start_us = clock_boot_us();
        ops_submit(st, ops, MANY);
        /* somebody else wants another id of that batch */
        struct command_claim third = claim_of(150, false);
        op_claim_init(&ops[MANY], &third);
        ops_submit(other, &ops[MANY], 1);
        ops_finish(stores, 2, 0);
        int64_t took_us = clock_boot_us() - start_us;
        print_message("   %d claims beside a held key: %lld ms\n", MANY, (long long)(took_us / MS));
        assert_true(took_us < 1500 * MS);
        assert_int_equal(count_outcome(ops, MANY + 1, COMMAND_RUN), MANY - 1);
        assert_int_equal(ops[7].out.claim.answer.outcome, COMMAND_BUSY);
        assert_in_range(ops[7].out.claim.answer.lease_left_us, 1, 2 * SECOND);
        db_exec(user, "ROLLBACK");
        assert_int_equal(try_claim(st, &held), COMMAND_RUN);
        PQfinish(user);
        ops_free(ops, MANY + 1);
}

static void b2_a_held_row_does_not_stall_completions(void **state)
{
        (void)state;
        struct store *const stores[] = {st};
        struct store_op *ops = ops_new(MANY);
        struct command_claim claims[MANY];
        for (unsigned i = 0; i < MANY; i++) {
                claims[i] = claim_of(i, false);
                op_claim_init(&ops[i], &claims[i]);
        }
        ops_submit(st, ops, MANY);
        ops_finish(stores, 1, 0);
        assert_int_equal(count_outcome(ops, MANY, COMMAND_RUN), MANY);

        PGconn *user = db_open();
        db_exec(user, "BEGIN");
        db_exec(user, "SELECT 1 FROM semel.command WHERE id = %s FOR UPDATE", sql_id(&claims[50]));
        for (unsigned i = 0; i < MANY; i++) {
                int64_t token = ops[i].out.claim.answer.token;
                store_op_release(&ops[i]);
                op_write_init(&ops[i], COMMAND_COMPLETE, &claims[i], token, span_str("done"));
        }
        int64_t start_us = clock_boot_us();
        ops_submit(st, ops, MANY);
        ops_finish(stores, 1, 1);
        assert_true(clock_boot_us() - start_us < 1500 * MS);
        db_exec(user, "COMMIT"); /* the last one was waiting for this, and is not lost */
        ops_finish(stores, 1, 0);
        for (unsigned i = 0; i < MANY; i++) {
                assert_int_equal(ops[i].err.code, SEMEL_OK);
                assert_int_equal(ops[i].out.write.outcome, COMMAND_DONE);
        }
        PQfinish(user);
        ops_free(ops, MANY);
}

/* Two gateways take over and complete the same keys in opposite orders, round after round. */
static void b1_takeovers_and_completions_of_the_same_keys_happen_once(void **state)
{
        (void)state;
        enum { ROUNDS = 30, KEYS = 100 };
        struct store *const stores[] = {st, other};
        int64_t start_us = clock_boot_us();
        for (int round = 0; round < ROUNDS; round++) {
                struct store_op *ops = ops_new(4 * KEYS);
                struct command_claim claims[4 * KEYS];
                db_exec(db, "UPDATE semel.command SET state = 1, lease_until = clock_timestamp()");
                for (unsigned i = 0; i < 2 * KEYS; i++) { /* half of them by each */
                        unsigned key = i < KEYS ? i : 2 * KEYS - 1 - i;
                        claims[i] = claim_of(key, true);
                        op_claim_init(&ops[i], &claims[i]);
                        ops_submit(i < KEYS ? st : other, &ops[i], 1);
                }
                ops_finish(stores, 2, 0);
                size_t run = count_outcome(ops, 2 * KEYS, COMMAND_RUN);
                assert_int_equal(run, KEYS); /* each key by exactly one */
                unsigned n = 2 * KEYS;
                for (unsigned i = 2 * KEYS; i-- > 0;) {
                        if (ops[i].out.claim.answer.outcome != COMMAND_RUN)
                                continue;
                        op_write_init(&ops[n], COMMAND_COMPLETE, &claims[i],
                                      ops[i].out.claim.answer.token, span_str("x"));
                        ops_submit(i % 2 ? st : other, &ops[n++], 1);
                }
                ops_finish(stores, 2, 0);
                for (unsigned i = 2 * KEYS; i < n; i++)
                        assert_int_equal(ops[i].out.write.outcome, COMMAND_DONE);
                ops_free(ops, 4 * KEYS);
        }
        print_message("   %d rounds: %lld ms\n", ROUNDS,
                      (long long)((clock_boot_us() - start_us) / MS));
}

static int64_t deadlocks(void)
{
        (void)db_int(db, "SELECT 1 FROM pg_stat_force_next_flush()");
        return db_int(db, "SELECT deadlocks FROM pg_stat_database "
                          "WHERE datname = current_database()");
}

/* Two gateways take over the same keys, submitted in opposite orders, while somebody holds the one in
 * the middle: locked as submitted, each would have half of them and want the other's. */
static void b1_rows_are_locked_in_one_order(void **state)
{
        (void)state;
        enum { ROUNDS = 8, KEYS = 100 };
        PGconn *user = db_open();
        db_exec(db, "ALTER DATABASE semel_test SET deadlock_timeout = '5ms'"); /* before 100 */
        struct store *const stores[] = {world_open(world_url_with("semel_connections=1")),
                                        world_open(world_url_with("semel_connections=1"))};
        for (unsigned i = 0; i < KEYS; i++)
                run_once(stores[0], i, span_str("x"));
        int64_t before = deadlocks();
        for (int round = 0; round < ROUNDS; round++) {
                struct store_op *ops = ops_new(2 * KEYS);
                struct command_claim middle = claim_of(KEYS / 2, true);
                db_exec(db, "UPDATE semel.command SET state = 1, retry = true, "
                            "lease_until = clock_timestamp()");
                db_exec(user, "BEGIN");
                db_exec(user, "SELECT 1 FROM semel.command WHERE id = %s FOR UPDATE",
                        sql_id(&middle));
                for (unsigned i = 0; i < 2 * KEYS; i++) {
                        struct command_claim claim = claim_of(i < KEYS ? i : 2 * KEYS - 1 - i, true);
                        op_claim_init(&ops[i], &claim);
                        ops_submit(stores[i / KEYS], &ops[i], 1);
                }
                int64_t until_us = clock_boot_us() + 60 * MS;
                while (clock_boot_us() < until_us &&
                       db_int(db, "SELECT count(*) FROM pg_locks WHERE NOT granted") < 2)
                        world_turn(stores, 2);
                db_exec(user, "COMMIT");
                ops_finish(stores, 2, 0);
                size_t run = count_outcome(ops, 2 * KEYS, COMMAND_RUN);
                assert_true(run <= KEYS && run >= KEYS - 1); /* the held one may be given up */
                ops_free(ops, 2 * KEYS);
        }
        world_close(stores[0]);
        world_close(stores[1]);
        db_exec(db, "ALTER DATABASE semel_test RESET ALL");
        (void)poll(NULL, 0, 50); /* the backends report when they go */
        assert_int_equal(deadlocks(), before);
        PQfinish(user);
}

/* A deadlock that others cause is nobody's failure. */
static void b1_a_deadlock_with_strangers_is_issued_again(void **state)
{
        (void)state;
        struct store *const stores[] = {st};
        struct store_op *ops = ops_new(MANY);
        struct command_claim claims[MANY];
        db_exec(db, "CREATE FUNCTION semel.trip() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN "
                    "IF nextval('semel.trips') < 3 THEN RAISE SQLSTATE '40P01'; END IF; "
                    "RETURN NEW; END$$");
        db_exec(db, "CREATE SEQUENCE semel.trips");
        db_exec(db, "CREATE TRIGGER trip BEFORE INSERT ON semel.command FOR EACH ROW "
                    "EXECUTE FUNCTION semel.trip()");
        for (unsigned i = 0; i < MANY; i++) {
                claims[i] = claim_of(i, false);
                op_claim_init(&ops[i], &claims[i]);
        }
        ops_submit(st, ops, MANY);
        ops_finish(stores, 1, 0);
        assert_int_equal(count_outcome(ops, MANY, COMMAND_RUN), MANY);
        ops_free(ops, MANY);
}

static void b4_a_value_that_the_database_refuses_fails_alone(void **state)
{
        (void)state;
        struct store *const stores[] = {st};
        struct store_op *ops = ops_new(MANY);
        for (unsigned i = 0; i < MANY; i++) {
                struct command_claim claim = claim_of(i, false);
                if (i == 120)
                        claim.lease_us = INT64_MAX; /* 22008: no such day */
                op_claim_init(&ops[i], &claim);
        }
        ops_submit(st, ops, MANY);
        ops_finish(stores, 1, 0);
        assert_int_equal(ops[120].err.code, SEMEL_ERR_ARGUMENT);
        assert_string_equal(ops[120].err.sqlstate, "22008");
        err_clear(&ops[120].err);
        ops[120].out.claim.answer.outcome = COMMAND_BUSY;
        assert_int_equal(count_outcome(ops, MANY, COMMAND_RUN), MANY - 1);
        ops_free(ops, MANY);
}

/* A page was lost, or a restore went wrong: the bytes of the reply that begins so are gone. */
static void damage_reply(uint8_t first_byte)
{
        char toast[64];
        (void)snprintf(toast, sizeof toast, "pg_toast.pg_toast_%lld",
                       (long long)db_int(db, "SELECT 'semel.command'::regclass::oid"));
        db_exec(db, "SET allow_system_table_mods = on");
        db_exec(db, "UPDATE pg_class SET relkind = 'r' WHERE oid = '%s'::regclass", toast);
        db_exec(db, "DELETE FROM %s WHERE chunk_id IN (SELECT chunk_id FROM %s WHERE chunk_seq = 0 "
                    "AND get_byte(chunk_data, 0) = %d)", toast, toast, first_byte);
        db_exec(db, "UPDATE pg_class SET relkind = 't' WHERE oid = '%s'::regclass", toast);
}

static void b4_a_damaged_reply_fails_alone(void **state)
{
        (void)state;
        enum { KEYS = 40, DAMAGED = 17 };
        static uint8_t body[8000]; /* out of its row, and read with the others */
        struct store *const stores[] = {st};
        struct store_op *ops = ops_new(KEYS);
        for (unsigned i = 0; i < KEYS; i++) {
                body[0] = (uint8_t)i;
                run_once(st, i, span_of(body, sizeof body));
        }
        damage_reply(DAMAGED);
        for (unsigned i = 0; i < KEYS; i++) {
                struct command_claim claim = claim_of(i, false);
                op_claim_init(&ops[i], &claim);
        }
        ops_submit(st, ops, KEYS);
        ops_finish(stores, 1, 0);
        assert_int_equal(ops[DAMAGED].err.code, SEMEL_ERR_CORRUPT);
        print_message("   %s\n", ops[DAMAGED].err.text);
        err_clear(&ops[DAMAGED].err);
        ops[DAMAGED].out.claim.answer.outcome = COMMAND_BUSY;
        assert_int_equal(count_outcome(ops, KEYS, COMMAND_REPLAY), KEYS - 1);
        ops_free(ops, KEYS);
}

/* A batch of few waits for the many that were there a moment ago: less than a millisecond, and
 * alone it never waits. */
static void a_small_batch_waits_a_moment_for_a_crowd(void **state)
{
        (void)state;
        struct store *sleeping = world_open_sleeping(world_url());
        struct store *const stores[] = {sleeping};
        struct store_op *ops = ops_new(MANY + 2);
        for (unsigned i = 0; i < MANY + 2; i++) {
                struct command_claim claim = claim_of(i, false);
                op_claim_init(&ops[i], &claim);
        }
        ops_submit(sleeping, &ops[MANY], 1);
        sleeping->vt->step(sleeping);
        assert_true(sleeping->vt->deadline_us(sleeping) > clock_boot_us() + 100 * MS); /* sent */
        ops_finish(stores, 1, 0);

        ops_submit(sleeping, ops, MANY);
        ops_finish(stores, 1, 0);
        ops_submit(sleeping, &ops[MANY + 1], 1);
        int64_t now_us = clock_boot_us();
        sleeping->vt->step(sleeping);
        int64_t deadline_us = sleeping->vt->deadline_us(sleeping);
        assert_true(deadline_us > now_us && deadline_us < now_us + 100 * MS);
        assert_int_equal(sleeping->vt->full_until_us(sleeping), deadline_us);
        while (clock_boot_us() < deadline_us)
                ;
        sleeping->vt->step(sleeping);
        assert_true(sleeping->vt->deadline_us(sleeping) > clock_boot_us() + 100 * MS);
        ops_finish(stores, 1, 0);
        assert_int_equal(count_outcome(ops, MANY + 2, COMMAND_RUN), MANY + 2);
        ops_free(ops, MANY + 2);
        world_close(sleeping);
}

static void b4_callers_of_one_process_may_share_a_key(void **state)
{
        (void)state;
        struct store *const stores[] = {st};
        struct store_op *ops = ops_new(MANY);
        for (unsigned i = 0; i < MANY; i++) {
                struct command_claim claim = claim_of(i % 3, false);
                op_claim_init(&ops[i], &claim);
                memset(ops[i].in.claim.claim.fingerprint.b, 1, COMMAND_FINGERPRINT_BYTES);
        }
        ops_submit(st, ops, MANY);
        ops_finish(stores, 1, 0);
        assert_int_equal(count_outcome(ops, MANY, COMMAND_RUN), 3);
        assert_int_equal(count_outcome(ops, MANY, COMMAND_BUSY), MANY - 3);
        ops_free(ops, MANY);
}

/* What the row's own transaction sees is what counts; a trigger writes it down. */
static void b7_a_batch_sets_its_own_isolation_durability_and_lock_timeout(void **state)
{
        (void)state;
        db_exec(db, "ALTER DATABASE semel_test SET default_transaction_isolation = serializable");
        db_exec(db, "ALTER DATABASE semel_test SET synchronous_commit = off");
        db_exec(db, "ALTER DATABASE semel_test SET lock_timeout = '1h'");
        db_exec(db, "CREATE TABLE semel.seen (isolation text, durable text, lock_timeout text)");
        db_exec(db, "CREATE FUNCTION semel.see() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN "
                    "INSERT INTO semel.seen VALUES (current_setting('transaction_isolation'), "
                    "current_setting('synchronous_commit'), current_setting('lock_timeout')); "
                    "RETURN NEW; END$$");
        db_exec(db, "CREATE TRIGGER see BEFORE INSERT OR UPDATE ON semel.command FOR EACH ROW "
                    "EXECUTE FUNCTION semel.see()");
        struct store *direct = world_open(world_url_with("semel_prepare=on"));
        struct store *pooled = world_open(world_url_with("semel_prepare=off"));
        run_once(direct, 1, span_str("x"));
        run_once(pooled, 2, span_str("x"));
        world_close(direct);
        world_close(pooled);
        db_exec(db, "ALTER DATABASE semel_test RESET ALL");
        assert_int_equal(db_int(db, "SELECT count(*) FROM semel.seen"), 4);
        assert_int_equal(db_int(db, "SELECT count(*) FROM semel.seen WHERE isolation = "
                                    "'read committed' AND durable = 'on' AND "
                                    "lock_timeout = '100ms'"),
                         4);
}

static void o52_no_setting_of_the_database_changes_what_is_read_or_decided(void **state)
{
        (void)state;
        static const char *const settings[] = {
                "timezone = 'Asia/Kathmandu'", "datestyle = 'SQL, DMY'",
                "intervalstyle = 'iso_8601'",  "bytea_output = 'escape'",
                "search_path = 'nowhere'",     "extra_float_digits = 0",
                "lc_messages = 'C'",           "client_encoding = 'LATIN1'"};
        for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
                db_exec(db, "ALTER DATABASE semel_test SET %s", settings[i]);
        struct store *both[2] = {world_open(world_url_with("semel_prepare=on")),
                                 world_open(world_url_with("semel_prepare=off"))};
        for (unsigned i = 0; i < 2; i++) {
                struct command_claim claim = claim_of(i, false);
                struct store_op op;
                assert_int_equal(do_claim(both[i], &op, &claim), SEMEL_OK);
                assert_in_range(op.out.claim.answer.lease_left_us, WORLD_LEASE_US - 5 * SECOND,
                                WORLD_LEASE_US);
                int64_t token = op.out.claim.answer.token;
                store_op_release(&op);
                static const uint8_t body[] = {0, 0xff, 0xc3, '\'', '\\', 0};
                assert_int_equal(do_write(both[i], &op, COMMAND_COMPLETE, &claim, token,
                                          span_of(body, sizeof body)),
                                 SEMEL_OK);
                claim.attempt.b[0] ^= 1;
                assert_int_equal(do_claim(both[1 - i], &op, &claim), SEMEL_OK);
                assert_int_equal(op.out.claim.answer.outcome, COMMAND_REPLAY);
                assert_true(span_eq(buf_span(&op.out.claim.rec.body), span_of(body, sizeof body)));
                int64_t left_us = op.out.claim.rec.row.expire_us - op.out.claim.rec.now.wall_us;
                assert_in_range(left_us, WORLD_RETENTION_US - 5 * SECOND, WORLD_RETENTION_US);
                store_op_release(&op);
        }
        world_close(both[0]);
        world_close(both[1]);
        db_exec(db, "ALTER DATABASE semel_test RESET ALL");
}

/* Every use of the primary key asks for the ids of the batch, none walks it: also in a plan that was made
 * while the statistics said that the table is empty, and is kept. */
static void b6_plan_is_stable_after_analyze_on_an_empty_table(void **state)
{
        (void)state;
        static const struct {
                const char *name, *sql;
                int params, uses;
        } statements[] = {
                {"complete", sql_postgres_complete, 7, 1},
                {"write", sql_postgres_write, 9, 2},
                {"claim_take", sql_postgres_claim_take, 24, 2},
                {"sweep", sql_postgres_sweep, 7, 3},
        };
        db_exec(db, "ALTER TABLE semel.command SET (autovacuum_enabled = off); ANALYZE semel.command; "
                    "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off; "
                    "SET enable_mergejoin = off; SET plan_cache_mode = force_generic_plan");
        for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
                char explain[256];
                int n = snprintf(explain, sizeof explain, "EXPLAIN (COSTS OFF) EXECUTE %s ('{}'",
                                 statements[i].name);
                for (int k = 1; k < statements[i].params; k++)
                        n += snprintf(explain + n, sizeof explain - (size_t)n, ", '{}'");
                (void)snprintf(explain + n, sizeof explain - (size_t)n, ")");
                db_exec(db, "PREPARE %s AS %s", statements[i].name, statements[i].sql);
                PGresult *res = PQexec(db, explain);
                if (PQresultStatus(res) != PGRES_TUPLES_OK)
                        fail_msg("%s", PQresultErrorMessage(res));
                int uses = 0;
                for (int row = 0; row < PQntuples(res); row++) {
                        if (!strstr(PQgetvalue(res, row, 0), "Scan using command_pkey"))
                                continue;
                        uses++;
                        if (row + 1 == PQntuples(res) ||
                            !strstr(PQgetvalue(res, row + 1, 0), "Index Cond: ((id >= "))
                                fail_msg("%s: the plan walks the primary key", statements[i].name);
                }
                PQclear(res);
                assert_int_equal(uses, statements[i].uses);
        }
}

/* docs/adr/0007-one-table-for-row-and-reply.md promises this. */
static void b6_updates_are_hot(void **state)
{
        (void)state;
        enum { ROUNDS = 30, IN_FLIGHT = 64 };
        struct store *stores[] = {st};
        static uint8_t body[2000];
        static const size_t sizes[] = {0, 200, 1000};
        static const int64_t promised[] = {95, 95, 70}; /* per cent */
        memset(body, 'b', sizeof body);
        assert_int_equal(db_int(db, "SELECT count(*) FROM pg_index i WHERE indrelid = "
                                    "'semel.command'::regclass AND pg_get_indexdef(indexrelid) ~ "
                                    "'(state|lease_until|token|expire_at)'"),
                         0);
        db_exec(db, "ALTER TABLE semel.command SET (autovacuum_enabled = off)");
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
                db_exec(db, "TRUNCATE semel.command");
                db_exec(db, "SELECT pg_stat_reset()");
                for (unsigned round = 0; round < ROUNDS; round++) {
                        struct store_op *ops = ops_new(IN_FLIGHT);
                        struct command_claim claims[IN_FLIGHT];
                        for (unsigned i = 0; i < IN_FLIGHT; i++) {
                                claims[i] = claim_of(round * IN_FLIGHT + i, false);
                                op_claim_init(&ops[i], &claims[i]);
                        }
                        ops_submit(st, ops, IN_FLIGHT);
                        ops_finish(stores, 1, 0);
                        for (unsigned i = 0; i < IN_FLIGHT; i++) {
                                int64_t token = ops[i].out.claim.answer.token;
                                store_op_release(&ops[i]);
                                op_write_init(&ops[i], COMMAND_COMPLETE, &claims[i], token,
                                              span_of(body, sizes[s]));
                        }
                        ops_submit(st, ops, IN_FLIGHT);
                        ops_finish(stores, 1, 0);
                        ops_free(ops, IN_FLIGHT);
                }
                /* A backend reports when it goes. */
                world_close(st);
                db_wait(db, ROUNDS * IN_FLIGHT,
                        "SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = 'command'");
                int64_t hot = db_int(db, "SELECT 100 * n_tup_hot_upd / n_tup_upd FROM "
                                         "pg_stat_user_tables WHERE relname = 'command'");
                print_message("   bodies of %zu bytes: %lld%% of updates HOT\n", sizes[s],
                              (long long)hot);
                st = stores[0] = world_open(world_url());
                assert_true(hot >= promised[s]);
        }
}

/* They change when a session ends or begins. */
static int64_t sum_of_sessions(void)
{
        return db_int(db, "SELECT sum(pid) FROM pg_stat_activity WHERE application_name LIKE 'semel/%%'");
}

/* Each statement has a name of its own in a session: one session does for all of them. */
static void b7_to_list_and_to_purge_are_two_statements(void **state)
{
        (void)state;
        struct store_op op;
        world_close(st);
        db_wait(db, 1, "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'semel/%%'");
        st = world_open(world_url_with("semel_connections=1"));
        int64_t sessions = sum_of_sessions();
        run_once(st, 1, span_str("x"));
        for (int round = 0; round < 2; round++) {
                store_op_init(&op, STORE_LIST);
                op.deadline_us = op_deadline_us();
                op.in.list.max = 100;
                store_wait(st, &op);
                assert_int_equal(op.err.code, SEMEL_OK);
                assert_int_equal(op.out.list.count, 1);
                store_op_release(&op);
                store_op_init(&op, STORE_SWEEP);
                op.deadline_us = op_deadline_us();
                op.in.sweep.max = 100;
                store_wait(st, &op);
                assert_int_equal(op.err.code, SEMEL_OK);
                assert_int_equal(sum_of_sessions(), sessions);
        }
}

/* The purge waits for nobody, and does not take what somebody is at work on. */
static void a9_the_purge_passes_by_a_locked_row(void **state)
{
        (void)state;
        struct store_op op;
        for (unsigned i = 0; i < 3; i++)
                run_once(st, i, span_str("x"));
        db_exec(db, "UPDATE semel.command SET expire_at = clock_timestamp() - interval '1 s'");
        struct command_claim held = claim_of(1, false);
        PGconn *user = db_open();
        db_exec(user, "BEGIN");
        db_exec(user, "SELECT 1 FROM semel.command WHERE id = %s FOR UPDATE", sql_id(&held));
        for (int round = 0; round < 2; round++) {
                int64_t start_us = clock_boot_us();
                store_op_init(&op, STORE_SWEEP);
                op.deadline_us = op_deadline_us();
                op.in.sweep.max = 100;
                store_wait(st, &op);
                assert_int_equal(op.err.code, SEMEL_OK);
                assert_true(clock_boot_us() - start_us < 500 * MS);
                assert_int_equal(op.out.sweep.deleted, round == 0 ? 2 : 1);
                assert_true(op.out.sweep.end);
                if (round == 0)
                        db_exec(user, "COMMIT");
        }
        PQfinish(user);
}

int main(int argc, char **argv)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(b2_a_held_key_does_not_stall_its_batch, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(b2_a_held_row_does_not_stall_completions, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(
                        b1_takeovers_and_completions_of_the_same_keys_happen_once, setup,
                        teardown),
                cmocka_unit_test_setup_teardown(b1_rows_are_locked_in_one_order, setup, teardown),
                cmocka_unit_test_setup_teardown(b1_a_deadlock_with_strangers_is_issued_again,
                                                setup, teardown),
                cmocka_unit_test_setup_teardown(b4_a_value_that_the_database_refuses_fails_alone,
                                                setup, teardown),
                cmocka_unit_test_setup_teardown(b4_a_damaged_reply_fails_alone, setup, teardown),
                cmocka_unit_test_setup_teardown(a_small_batch_waits_a_moment_for_a_crowd, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(b4_callers_of_one_process_may_share_a_key, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(
                        b7_a_batch_sets_its_own_isolation_durability_and_lock_timeout, setup,
                        teardown),
                cmocka_unit_test_setup_teardown(
                        o52_no_setting_of_the_database_changes_what_is_read_or_decided, setup,
                        teardown),
                cmocka_unit_test_setup_teardown(b6_plan_is_stable_after_analyze_on_an_empty_table, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(b6_updates_are_hot, setup, teardown),
                cmocka_unit_test_setup_teardown(b7_to_list_and_to_purge_are_two_statements, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(a9_the_purge_passes_by_a_locked_row, setup,
                                                teardown),
        };
        if (argc > 1)
                cmocka_set_test_filter(argv[1]);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
