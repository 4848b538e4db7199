/* SPDX-License-Identifier: Apache-2.0
 *
 * relay_metrics: see relay_metrics.h.
 */
#include "app/relay_metrics.h"

#include "store/outbox.h"

static const struct metric_scale
        rows_scale = {12, {1, 2, 5, 10, 25, 100, 250, 500, 1000, 2500, 5000, 10000}, 1},
        us_scale = {12,
                    {500, 1000, 2500, 5000, 10000, 25000, 50000, 100000, 250000, 1000000, 5000000,
                     30000000},
                    1e6};

void relay_observe_rows(struct relay_metrics *m, int64_t rows)
{
        metric_observe(&m->batch_rows, &rows_scale, rows);
}

void relay_observe_publish(struct relay_metrics *m, int64_t us)
{
        metric_observe(&m->publish_us, &us_scale, us);
}

static int format_counters(struct relay_metrics *m, struct buf *out)
{
        const struct {
                const char *name, *help;
                atomic_uint_fast64_t *value;
        } counters[] = {
                {"semel_relay_batches_total", "Batches that had rows.", &m->batches},
                {"semel_relay_published_bytes_total", "Bytes of keys, payloads and headers that were published.",
                 &m->bytes},
                {"semel_relay_producer_resets_total",
                 "Producers that were thrown away and replaced.", &m->producer_resets},
                {"semel_relay_lost_slots_total", "Slots that another relay took over from this one.",
                 &m->lost_slots},
                {"semel_relay_changed_rows_total",
                 "Rows that somebody else changed while they were published; their marks changed nothing.",
                 &m->changed_rows},
                {"semel_relay_overtaken_rows_total",
                 "Rows that the broker took although an elder row of their key had failed.",
                 &m->overtaken_rows},
                {"semel_relay_unstuck_rows_total",
                 "PUBLISHING rows of a dead relay that were put back (two-phase).", &m->unstuck_rows},
                {"semel_relay_pruned_rows_total", "Kept rows that were deleted after their time.",
                 &m->pruned_rows},
                {"semel_relay_recovered_rows_total",
                 "Rows that a marker showed to be published already (exactly-once).",
                 &m->recovered_rows},
                {"semel_relay_peeks_total", "Looks at the table while lanes were idle.", &m->peeks},
                {"semel_relay_wakes_total", "Notifications of the database.", &m->wakes},
        };
        int rc = BUF_OK;
        for (size_t i = 0; i < sizeof counters / sizeof counters[0] && rc == BUF_OK; i++)
                rc = metric_counter(out, counters[i].name, counters[i].help,
                                    atomic_load(counters[i].value));
        return rc;
}

static int format_gauges(struct relay_metrics *m, struct buf *out)
{
        int64_t lag_us = 0, blocked = 0;
        for (int i = 0; i < RELAY_LANES_MAX; i++) {
                blocked += atomic_load(&m->blocked_keys[i]);
                if (atomic_load(&m->lag_us[i]) > lag_us)
                        lag_us = atomic_load(&m->lag_us[i]);
        }
        int64_t oldest = atomic_load(&m->oldest_pending_us), xmin = atomic_load(&m->oldest_xmin_us);
        int rc = metric_gauge(out, "semel_relay_lag_seconds",
                              "Age of the eldest row of the batches under way; 0 when nothing waits.",
                              (double)lag_us / 1e6);
        if (rc == BUF_OK)
                rc = metric_gauge(out, "semel_relay_owned_slots", "Slots that this relay owns.",
                                  (double)atomic_load(&m->owned_slots));
        if (rc == BUF_OK)
                rc = metric_gauge(out, "semel_relay_rows_under_way",
                                  "Rows that were read and are not marked yet.",
                                  (double)atomic_load(&m->rows_under_way));
        if (rc == BUF_OK)
                rc = metric_gauge(out, "semel_relay_broker_away", "1 while the broker does not answer.",
                                  (double)(atomic_load(&m->broker_away) > 0));
        if (rc == BUF_OK)
                rc = metric_gauge(out, "semel_relay_blocked_keys",
                                  "Keys that wait for their first row's next attempt, or for an operator.",
                                  (double)blocked);
        if (rc == BUF_OK && oldest >= 0)
                rc = metric_gauge(out, "semel_outbox_oldest_pending_seconds",
                                  "Age of the eldest pending row of the whole table.",
                                  (double)oldest / 1e6);
        if (rc == BUF_OK && xmin >= 0)
                rc = metric_gauge(out, "semel_outbox_oldest_transaction_seconds",
                                  "Age of the database's oldest open transaction, which keeps dead rows.",
                                  (double)xmin / 1e6);
        return rc;
}

int relay_metrics_format(struct relay_metrics *m, struct buf *out)
{
        static const char *const outcomes[RELAY_OUTCOMES] = {"published", "retried", "dead",
                                                             "untried"};
        int rc = metric_head(out, "semel_relay_rows_total", "Rows by what became of them in a batch.",
                             "counter");
        for (int i = 0; i < RELAY_OUTCOMES && rc == BUF_OK; i++)
                rc = buf_printf(out, "semel_relay_rows_total{outcome=\"%s\"} %llu\n", outcomes[i],
                                (unsigned long long)atomic_load(&m->rows[i]));
        if (rc == BUF_OK)
                rc = format_counters(m, out);
        if (rc == BUF_OK)
                rc = format_gauges(m, out);
        if (rc == BUF_OK && atomic_load(&m->counted[0]) >= 0)
                rc = metric_head(out, "semel_outbox_rows",
                                 "Rows of the table by state, when last counted.", "gauge");
        for (int i = 0; i < OUTBOX_STATES && rc == BUF_OK && atomic_load(&m->counted[0]) >= 0; i++)
                rc = buf_printf(out, "semel_outbox_rows{state=\"%s\"} %lld\n",
                                outbox_state_name((enum outbox_state)i),
                                (long long)atomic_load(&m->counted[i]));
        if (rc == BUF_OK)
                rc = metric_histogram(out, "semel_relay_batch_rows", "Rows of a batch.",
                                      &m->batch_rows, &rows_scale);
        if (rc == BUF_OK)
                rc = metric_histogram(out, "semel_relay_publish_seconds",
                                      "From a batch's first row to its last report.", &m->publish_us,
                                      &us_scale);
        return rc;
}
