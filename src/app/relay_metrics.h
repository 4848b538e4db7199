/* SPDX-License-Identifier: Apache-2.0
 *
 * relay_metrics: what a relay counts, in Prometheus' text form.  The names are documented in
 * docs/relay.md.
 */
#ifndef APP_RELAY_METRICS_H
#define APP_RELAY_METRICS_H

#include "base/metric.h"
#include "core/relay_config.h"

/* What became of a row in a batch. */
enum relay_outcome {
        RELAY_PUBLISHED,
        RELAY_RETRIED,
        RELAY_BURIED,  /* DEAD */
        RELAY_UNTRIED, /* read, but not published in this batch */
        RELAY_OUTCOMES
};

struct relay_metrics {
        atomic_uint_fast64_t rows[RELAY_OUTCOMES];
        atomic_uint_fast64_t bytes, batches;
        atomic_uint_fast64_t producer_resets, lost_slots, changed_rows, overtaken_rows, unstuck_rows,
                pruned_rows, recovered_rows, peeks, wakes;
        struct metric_histogram batch_rows, publish_us;
        atomic_int_fast64_t lag_us[RELAY_LANES_MAX]; /* of each lane's last batch; 0 when it found nothing */
        atomic_int_fast64_t oldest_pending_us, oldest_xmin_us; /* when last looked; -1: none */
        atomic_int_fast64_t owned_slots, broker_away;
        atomic_int_fast64_t rows_under_way; /* read and not yet marked, of all lanes */
        atomic_int_fast64_t blocked_keys[RELAY_LANES_MAX]; /* of each lane */
        atomic_int_fast64_t counted[4]; /* rows by state, when last looked; -1: never */
};

void relay_observe_rows(struct relay_metrics *m, int64_t rows);
void relay_observe_publish(struct relay_metrics *m, int64_t us);

int relay_metrics_format(struct relay_metrics *m, struct buf *out);

#endif
