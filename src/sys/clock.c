/* SPDX-License-Identifier: Apache-2.0
 *
 * clock: see clock.h.
 */
#include "sys/clock.h"

#include <time.h>

static int64_t read_us(clockid_t id)
{
        struct timespec ts = {0};
        (void)clock_gettime(id, &ts); /* cannot fail for these two clocks */
        return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

int64_t clock_boot_us(void)
{
        return read_us(CLOCK_BOOTTIME);
}

int64_t clock_wall_us(void)
{
        return read_us(CLOCK_REALTIME);
}

bool clock_is_time(atomic_int_fast64_t *last_us, int64_t each_us)
{
        int_fast64_t last = atomic_load(last_us);
        int64_t now = clock_boot_us();
        return (last == 0 || now - last >= each_us) &&
               atomic_compare_exchange_strong(last_us, &last, now);
}

static int64_t host_boot(void *arg)
{
        (void)arg;
        return clock_boot_us();
}

static int64_t host_wall(void *arg)
{
        (void)arg;
        return clock_wall_us();
}

const struct sys_clock sys_clock_host = {.boot_us = host_boot, .wall_us = host_wall};
