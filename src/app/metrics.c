/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics: see metrics.h.
 */
#include "app/metrics.h"

static const struct metric_scale us_scale = {
        14,
        {100, 250, 500, 1000, 2500, 5000, 10000, 25000, 50000, 100000, 250000, 1000000, 5000000,
         30000000},
        1e6};

static const char *const outcome_names[OUTCOMES] = {
        [OUTCOME_PASSED] = "passed",
        [OUTCOME_RAN] = "ran",
        [OUTCOME_REPLAYED] = "replayed",
        [OUTCOME_IN_FLIGHT] = "in_flight",
        [OUTCOME_MISMATCH] = "mismatch",
        [OUTCOME_UNKNOWN] = "unknown",
        [OUTCOME_NOT_KEPT] = "not_kept",
        [OUTCOME_REFUSED] = "refused",
        [OUTCOME_LEFT_UNKNOWN] = "left_unknown",
        [OUTCOME_REJECTED] = "rejected",
        [OUTCOME_STORE_DOWN] = "store_down",
        [OUTCOME_OVERLOADED] = "overloaded",
        [OUTCOME_GONE] = "gone",
};

static const struct {
        const char *name, *help;
} counters[COUNTERS] = {
        [COUNTER_LOST] = {"semel_gateway_lost_fences_total",
                          "Late writes that found their claim lost; they changed nothing."},
        [COUNTER_SELF_RESOLVED] = {"semel_gateway_self_resolved_total",
                                   "Late completions that ended an UNKNOWN key."},
        [COUNTER_TAKEOVERS] = {"semel_gateway_takeovers_total",
                               "Claims taken over after another holder's lease."},
        [COUNTER_HOT_HITS] = {"semel_gateway_hot_hits_total",
                              "Duplicates answered from memory, without the store."},
        [COUNTER_UNRECORDED] = {"semel_gateway_unrecorded_total",
                                "Replies, and releases, that could not be written; their keys end as UNKNOWN."},
        [COUNTER_FAILED_OPEN] = {"semel_gateway_failed_open_total",
                                 "Requests passed unprotected because the store was down."},
        [COUNTER_BAD_MESSAGES] = {"semel_gateway_bad_messages_total",
                                  "Requests that were refused as no, or unsafe, HTTP."},
        [COUNTER_LOG_DROPPED] = {"semel_gateway_log_dropped_total",
                                 "Access log lines dropped because the log was not taken."},
}, histograms[HISTOGRAMS] = {
        [HISTOGRAM_CLAIM] = {"semel_gateway_claim_seconds", "From the claim sent to its answer."},
        [HISTOGRAM_UPSTREAM] = {"semel_gateway_upstream_seconds",
                                "From the first byte to the upstream to its whole reply."},
        [HISTOGRAM_TOTAL] = {"semel_gateway_request_seconds",
                             "From a request's head to the end of its reply."},
};

const char *outcome_name(enum outcome outcome)
{
        return outcome_names[outcome];
}

void metrics_observe(struct metrics *m, enum histogram_kind kind, int64_t us)
{
        metric_observe(&m->histograms[kind], &us_scale, us);
}

int metrics_format(struct metrics *m, int64_t connections, int64_t buffered_bytes,
                   int64_t waiters, struct buf *out)
{
        int rc = metric_head(out, "semel_gateway_requests_total", "Requests by outcome.", "counter");
        for (int i = 0; i < OUTCOMES && rc == BUF_OK; i++)
                rc = buf_printf(out, "semel_gateway_requests_total{outcome=\"%s\"} %llu\n",
                                outcome_names[i],
                                (unsigned long long)atomic_load_explicit(&m->outcomes[i],
                                                                         memory_order_relaxed));
        for (int i = 0; i < COUNTERS && rc == BUF_OK; i++)
                rc = metric_counter(out, counters[i].name, counters[i].help,
                                    atomic_load_explicit(&m->counters[i], memory_order_relaxed));
        for (int i = 0; i < HISTOGRAMS && rc == BUF_OK; i++)
                rc = metric_histogram(out, histograms[i].name, histograms[i].help, &m->histograms[i],
                                      &us_scale);
        const struct {
                const char *name, *help;
                int64_t value;
        } gauges[] = {
                {"semel_gateway_connections", "Client connections.", connections},
                {"semel_gateway_requests", "Requests under way.", atomic_load(&m->requests)},
                {"semel_gateway_buffered_bytes", "Bodies held in memory.", buffered_bytes},
                {"semel_gateway_waiters", "Requests that wait for a duplicate.", waiters},
                {"semel_gateway_store_queue", "Store operations under way.",
                 atomic_load(&m->store_queue)},
                {"semel_gateway_upstream_waiting", "Requests that wait for a connection upstream.",
                 atomic_load(&m->upstream_waiting)},
        };
        for (size_t i = 0; i < sizeof gauges / sizeof gauges[0] && rc == BUF_OK; i++)
                rc = metric_gauge(out, gauges[i].name, gauges[i].help, (double)gauges[i].value);
        return rc;
}
