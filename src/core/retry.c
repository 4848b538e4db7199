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
