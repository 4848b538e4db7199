/* SPDX-License-Identifier: Apache-2.0
 *
 * faults: the bad days of a payment provider, by probability and from a seed.
 */
#ifndef PAYD_FAULTS_H
#define PAYD_FAULTS_H

#include <stdint.h>

/* Of each request, independent of each other; 0 .. 1. */
struct faults {
        double slow; /* sleeps slow_ms before it charges */
        double fail; /* 500, and nothing was charged */
        double busy; /* 429 with Retry-After: 1, and nothing was charged */
        double cut;  /* charges, and closes the connection without a reply */
        int64_t slow_ms;
};

/* Set the seed; the same seed gives the same days to the same requests in the same order. */
void faults_seed(uint64_t seed);

/* What this request is in for. */
struct fate {
        int64_t sleep_ms;
        int fail, busy, cut;
};
struct fate faults_draw(const struct faults *f);

#endif
