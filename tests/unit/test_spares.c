/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "base/spares.h"

enum { CROWD = 4000 };

static size_t made, dropped;

static struct spare *take(struct spares *s)
{
        struct spare *x = spares_take(s);
        made += !x;
        return x ? x : malloc(sizeof *x);
}

static void drop(struct spare *x)
{
        dropped++;
        free(x);
}

/* How many had to go. */
static size_t give(struct spares *s, struct spare *x)
{
        dropped = 0;
        spares_give(s, x, drop);
        return dropped;
}

static size_t end(struct spares *s)
{
        dropped = 0;
        spares_release(s, drop);
        assert_int_equal(s->kept, 0);
        return dropped;
}

static size_t crowd(struct spares *s, size_t n)
{
        struct spare **all = calloc(n, sizeof *all);
        size_t gone = 0;
        for (size_t i = 0; i < n; i++)
                all[i] = take(s);
        for (size_t i = 0; i < n; i++)
                gone += give(s, all[i]);
        free(all);
        return gone;
}

static void a_crowd_that_comes_again_is_made_once(void **state)
{
        (void)state;
        struct spares s = {0};
        made = 0;
        for (int i = 0; i < 50; i++)
                assert_int_equal(crowd(&s, CROWD), 0);
        assert_int_equal(made, CROWD);
        assert_int_equal(end(&s), CROWD);
}

static void the_surplus_goes_when_the_crowd_has_gone(void **state)
{
        (void)state;
        struct spares s = {0};
        size_t takes = 0;
        (void)crowd(&s, CROWD);
        made = 0;
        for (size_t gone = 0; gone < CROWD - 1; takes++) {
                size_t now = give(&s, take(&s));
                assert_true(now <= 2);
                gone += now;
                assert_true(takes < 100 * CROWD);
        }
        assert_true(takes > 8 * CROWD); /* not before the crowd could have come again */
        assert_int_equal(s.kept, 1);
        for (int i = 0; i < 100000; i++)
                assert_int_equal(give(&s, take(&s)), 0);
        assert_int_equal(made, 0);
        assert_int_equal(end(&s), 1);
}

/* Those in use count: a period that begins in the middle of a crowd knows of it. */
static void a_crowd_that_stays_keeps_its_own(void **state)
{
        (void)state;
        struct spares s = {0};
        struct spare *all[100];
        for (int i = 0; i < 100; i++)
                all[i] = take(&s);
        made = 0;
        for (int i = 0; i < 100000; i++) {
                assert_int_equal(give(&s, all[i % 100]), 0);
                all[i % 100] = take(&s);
        }
        assert_int_equal(made, 0);
        for (int i = 0; i < 100; i++)
                assert_int_equal(give(&s, all[i]), 0);
        assert_int_equal(end(&s), 100);
}

static void what_could_not_be_made_is_not_in_use(void **state)
{
        (void)state;
        struct spares s = {0};
        assert_null(spares_take(&s));
        spares_forget(&s);
        assert_int_equal(s.used, 0);
}

static void what_was_taken_elsewhere_is_not_kept(void **state)
{
        (void)state;
        struct spares s = {0};
        assert_int_equal(give(&s, malloc(sizeof(struct spare))), 1);
        assert_int_equal(s.used, 0);
}

static void off_keeps_none(void **state)
{
        (void)state;
        struct spares s = {.off = true};
        assert_int_equal(crowd(&s, 10), 10);
        assert_int_equal(end(&s), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_crowd_that_comes_again_is_made_once),
                cmocka_unit_test(the_surplus_goes_when_the_crowd_has_gone),
                cmocka_unit_test(a_crowd_that_stays_keeps_its_own),
                cmocka_unit_test(what_could_not_be_made_is_not_in_use),
                cmocka_unit_test(what_was_taken_elsewhere_is_not_kept),
                cmocka_unit_test(off_keeps_none),
        };
        return cmocka_run_group_tests_name("spares", tests, NULL, NULL);
}
