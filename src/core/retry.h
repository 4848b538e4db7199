/* SPDX-License-Identifier: Apache-2.0
 *
 * retry: when to come again.
 */
#ifndef CORE_RETRY_H
#define CORE_RETRY_H

#include <stdint.h>

/* Seconds for Retry-After beside "in flight": as long again as it has been running, so that the
 * first retries come soon and a long run is not asked for every second (H77); at least a second, at
 * most what is left of the lease, rounded up (H18).
 * held_us  how long the holder has had it;  left_us  how long its lease still is. */
int retry_after_s(int64_t held_us, int64_t left_us);

/* A wait that doubles: base_us, twice as long for each failure `before` this one, at most max_us. */
int64_t retry_wait_us(int64_t base_us, int64_t max_us, unsigned before);

#endif
