/* SPDX-License-Identifier: Apache-2.0
 *
 * rng: the only source of choice in the simulator (splitmix64), so that a seed is a schedule.
 */
#ifndef SIM_RNG_H
#define SIM_RNG_H

#include <stdbool.h>
#include <stdint.h>

struct rng {
        uint64_t s;
};

static inline uint64_t rng_next(struct rng *r)
{
        uint64_t z = (r->s += UINT64_C(0x9E3779B97F4A7C15));
        z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
        return z ^ (z >> 31);
}

/* 0 .. n-1; n > 0 */
static inline uint32_t rng_below(struct rng *r, uint32_t n)
{
        return (uint32_t)(((rng_next(r) >> 32) * n) >> 32);
}

/* lo .. hi */
static inline int64_t rng_between(struct rng *r, int64_t lo, int64_t hi)
{
        return lo + (int64_t)rng_below(r, (uint32_t)(hi - lo + 1));
}

/* true in `percent` of 100 cases */
static inline bool rng_chance(struct rng *r, uint32_t percent)
{
        return rng_below(r, 100) < percent;
}

#endif
