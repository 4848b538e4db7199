/* SPDX-License-Identifier: Apache-2.0
 *
 * clock: the host's clocks, behind a pointer so that tests can move them.
 */
#ifndef SYS_CLOCK_H
#define SYS_CLOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct sys_clock {
        int64_t (*boot_us)(void *arg); /* CLOCK_BOOTTIME: never steps, counts suspend */
        int64_t (*wall_us)(void *arg); /* CLOCK_REALTIME */
        void *arg;
};

/* The real one. */
extern const struct sys_clock sys_clock_host;

/* Shorthands for the real one. */
int64_t clock_boot_us(void);
int64_t clock_wall_us(void);

/* True for one of the threads that ask, when `each_us` have passed since it was true last.
 * *last_us: when that was, by clock_boot_us(); 0: never. */
bool clock_is_time(atomic_int_fast64_t *last_us, int64_t each_us);

#endif
