/* SPDX-License-Identifier: Apache-2.0
 *
 * conformance: makes cmocka tests of the lists, one group per target.
 */
#include "conformance_kit.h"

#include <stdio.h>
#include <stdlib.h>

static const struct cf_test *const lists[] = {
        cf_tests_claim, cf_tests_fence, cf_tests_tables, cf_tests_sweep, cf_tests_resolve,
        cf_tests_bytes, cf_tests_life,  cf_tests_races,  cf_tests_model,
};
enum { LISTS = sizeof lists / sizeof lists[0] };

/* What a cmocka test gets as its initial state, and what is there while it runs. */
struct run {
        const struct conformance_target *target;
        const struct cf_test *test;
        struct cf c;
};

static uint64_t seed_of_this_run;

static void view_close(const struct conformance_target *target, struct store *st)
{
        if (target->close)
                target->close(target->arg, st);
        else
                st->vt->close(st);
}

static int setup(void **state)
{
        struct run *run = *state;
        run->target->reset(run->target->arg);
        run->c = (struct cf){.target = run->target, .rng = seed_of_this_run};
        run->c.a = run->target->open(run->target->arg);
        run->c.b = run->target->open(run->target->arg);
        return run->c.a && run->c.b ? 0 : -1;
}

static int teardown(void **state)
{
        struct run *run = *state;
        if (run->c.b)
                view_close(run->target, run->c.b);
        if (run->c.a)
                view_close(run->target, run->c.a);
        return 0;
}

void cf_close_views(struct cf *c)
{
        struct store *a = c->a, *b = c->b;
        c->a = c->b = NULL;
        view_close(c->target, b);
        view_close(c->target, a);
}

void cf_open_views(struct cf *c)
{
        c->a = c->target->open(c->target->arg);
        c->b = c->target->open(c->target->arg);
}

static void run_one(void **state)
{
        struct run *run = *state;
        run->test->run(&run->c);
}

static size_t count_tests(void)
{
        size_t n = 0;
        for (size_t l = 0; l < LISTS; l++)
                for (const struct cf_test *t = lists[l]; t->name; t++)
                        n++;
        return n;
}

static int run_target(const struct conformance_target *target)
{
        size_t total = count_tests(), n = 0;
        struct CMUnitTest *tests = calloc(total, sizeof *tests);
        struct run *runs = calloc(total, sizeof *runs);
        char(*names)[160] = calloc(total, sizeof *names);
        int failed = -1;
        if (!tests || !runs || !names)
                goto out;
        for (size_t l = 0; l < LISTS; l++)
                for (const struct cf_test *t = lists[l]; t->name; t++, n++) {
                        runs[n] = (struct run){.target = target, .test = t};
                        (void)snprintf(names[n], sizeof names[n], "%s_%s", target->name, t->name);
                        tests[n] = (struct CMUnitTest){.name = names[n],
                                                       .test_func = run_one,
                                                       .setup_func = setup,
                                                       .teardown_func = teardown,
                                                       .initial_state = &runs[n]};
                }
        failed = _cmocka_run_group_tests(target->name, tests, n, NULL, NULL);
out:
        free(names);
        free(runs);
        free(tests);
        return failed;
}

int conformance_main(const struct conformance_target *targets, size_t n, int argc, char **argv)
{
        const char *given = getenv("SEMEL_TEST_SEED");
        seed_of_this_run = given ? strtoull(given, NULL, 0) : (uint64_t)clock_wall_us();
        print_message("SEMEL_TEST_SEED=%llu\n", (unsigned long long)seed_of_this_run);
        if (argc > 1)
                cmocka_set_test_filter(argv[1]);
        int failed = 0;
        for (size_t i = 0; i < n; i++)
                failed += run_target(&targets[i]) != 0;
        return failed ? 1 : 0;
}
