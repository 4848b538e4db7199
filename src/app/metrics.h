/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics: counters and histograms of the gateway, in Prometheus' text form.  Names are documented in
 * docs/gateway.md; a test compares.
 */
#ifndef APP_METRICS_H
#define APP_METRICS_H

#include "base/metric.h"

/* What became of a request. */
enum outcome {
        OUTCOME_PASSED,     /* no key, or a method that is not claimed */
        OUTCOME_RAN,
        OUTCOME_REPLAYED,
        OUTCOME_IN_FLIGHT,
        OUTCOME_MISMATCH,
        OUTCOME_UNKNOWN,    /* the key is UNKNOWN: 409 */
        OUTCOME_NOT_KEPT,   /* it ran, its body was not kept: 409 */
        OUTCOME_REFUSED,    /* the upstream refused it, or was not reached: the key is free */
        OUTCOME_LEFT_UNKNOWN, /* sent, and nobody knows: 502, 504, or a status of that kind */
        OUTCOME_REJECTED,   /* by us: 400, 413, 501 */
        OUTCOME_STORE_DOWN, /* 503 */
        OUTCOME_OVERLOADED, /* 503 by a limit of ours */
        OUTCOME_GONE,       /* the client left before anything was sent */
        OUTCOMES
};

const char *outcome_name(enum outcome outcome);

enum histogram_kind { HISTOGRAM_CLAIM, HISTOGRAM_UPSTREAM, HISTOGRAM_TOTAL, HISTOGRAMS };

enum counter_kind {
        COUNTER_LOST,          /* writes that found the claim lost */
        COUNTER_SELF_RESOLVED, /* completions that ended an UNKNOWN key */
        COUNTER_TAKEOVERS,
        COUNTER_HOT_HITS,      /* answered without the store */
        COUNTER_UNRECORDED,    /* replies that could not be kept */
        COUNTER_FAILED_OPEN,
        COUNTER_BAD_MESSAGES,  /* requests that were no HTTP */
        COUNTER_LOG_DROPPED,
        COUNTERS
};

struct metrics {
        atomic_uint_fast64_t outcomes[OUTCOMES];
        atomic_uint_fast64_t counters[COUNTERS];
        struct metric_histogram histograms[HISTOGRAMS];
        /* set by the workers as they go */
        atomic_int_fast64_t requests, store_queue, upstream_waiting;
};

static inline void metrics_count(struct metrics *m, enum counter_kind kind)
{
        atomic_fetch_add_explicit(&m->counters[kind], 1, memory_order_relaxed);
}

void metrics_observe(struct metrics *m, enum histogram_kind kind, int64_t us);

/* The whole page.  Gauges that are not kept here are given. */
int metrics_format(struct metrics *m, int64_t connections, int64_t buffered_bytes,
                   int64_t waiters, struct buf *out);

#endif
