/* SPDX-License-Identifier: Apache-2.0
 *
 * retry: see retry.h.
 */
#include "core/retry.h"

#include "core/limits.h"

int retry_after_s(int64_t held_us, int64_t left_us)
{
        int64_t us = held_us < left_us ? held_us : left_us;
        if (us <= SECOND)
                return 1;
        if (us >= LIMIT_LEASE_US)
                return (int)(LIMIT_LEASE_US / SECOND);
        return (int)((us + SECOND - 1) / SECOND);
}

int64_t retry_wait_us(int64_t base_us, int64_t max_us, unsigned before)
{
        int64_t us = base_us < max_us ? base_us : max_us;
        for (; before > 0 && us < max_us; before--)
                us = us > max_us / 2 ? max_us : 2 * us;
        return us;
}
