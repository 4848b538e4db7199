/* SPDX-License-Identifier: Apache-2.0
 *
 * relay_metrics: see relay_metrics.h.
 */
#include "app/relay_metrics.h"

#include "store/outbox.h"

static const int64_t rows_bounds[RELAY_BUCKETS] = {1, 2, 5, 10, 25, 100, 250, 500, 1000, 2500, 5000,
                                                   10000};
static const int64_t us_bounds[RELAY_BUCKETS] = {500, 1000, 2500, 5000, 10000, 25000, 50000, 100000,
                                                 250000, 1000000, 5000000, 30000000};

static void observe(struct relay_histogram *h, const int64_t *bounds, int64_t v)
{
        int i = 0;
        while (i < RELAY_BUCKETS && v > bounds[i])
                i++;
        atomic_fetch_add_explicit(&h->bucket[i], 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&h->sum, v > 0 ? (uint64_t)v : 0, memory_order_relaxed);
}

void relay_observe_rows(struct relay_metrics *m, int64_t rows)
{
        observe(&m->batch_rows, rows_bounds, rows);
}

void relay_observe_publish(struct relay_metrics *m, int64_t us)
{
        observe(&m->publish_us, us_bounds, us);
}

static int head(struct buf *out, const char *name, const char *help, const char *type)
{
        return buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static int format_histogram(struct buf *out, const char *name, const char *help,
                            struct relay_histogram *h, const int64_t *bounds, double unit)
{
        uint64_t count = 0;
        int rc = head(out, name, help, "histogram");
        for (int i = 0; i < RELAY_BUCKETS && rc == BUF_OK; i++) {
                count += atomic_load(&h->bucket[i]);
                rc = buf_printf(out, "%s_bucket{le=\"%g\"} %llu\n", name, (double)bounds[i] / unit,
                                (unsigned long long)count);
        }
        count += atomic_load(&h->bucket[RELAY_BUCKETS]);
        if (rc == BUF_OK)
                rc = buf_printf(out, "%s_bucket{le=\"+Inf\"} %llu\n%s_sum %.6f\n%s_count %llu\n", name,
                                (unsigned long long)count, name,
                                (double)atomic_load(&h->sum) / unit, name,
                                (unsigned long long)count);
        return rc;
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
        for (size_t i = 0; i < sizeof counters / sizeof counters[0] && rc == BUF_OK; i++) {
                rc = head(out, counters[i].name, counters[i].help, "counter");
                if (rc == BUF_OK)
                        rc = buf_printf(out, "%s %llu\n", counters[i].name,
                                        (unsigned long long)atomic_load(counters[i].value));
        }
        return rc;
}

static int format_gauge(struct buf *out, const char *name, const char *help, double v)
{
        int rc = head(out, name, help, "gauge");
        return rc == BUF_OK ? buf_printf(out, "%s %g\n", name, v) : rc;
}

static int format_gauges(struct relay_metrics *m, struct buf *out)
{
        int64_t lag_us = 0, blocked = 0;
        for (int i = 0; i < 16; i++) {
                blocked += atomic_load(&m->blocked_keys[i]);
                if (atomic_load(&m->lag_us[i]) > lag_us)
                        lag_us = atomic_load(&m->lag_us[i]);
        }
        int64_t oldest = atomic_load(&m->oldest_pending_us), xmin = atomic_load(&m->oldest_xmin_us);
        int rc = format_gauge(out, "semel_relay_lag_seconds",
                              "Age of the eldest row of the batches under way; 0 when nothing waits.",
                              (double)lag_us / 1e6);
        if (rc == BUF_OK)
                rc = format_gauge(out, "semel_relay_owned_slots", "Slots that this relay owns.",
                                  (double)atomic_load(&m->owned_slots));
        if (rc == BUF_OK)
                rc = format_gauge(out, "semel_relay_rows_under_way",
                                  "Rows that were read and are not marked yet.",
                                  (double)atomic_load(&m->rows_under_way));
        if (rc == BUF_OK)
                rc = format_gauge(out, "semel_relay_broker_away", "1 while the broker does not answer.",
                                  (double)(atomic_load(&m->broker_away) > 0));
        if (rc == BUF_OK)
                rc = format_gauge(out, "semel_relay_blocked_keys",
                                  "Keys that wait for their first row's next attempt, or for an operator.",
                                  (double)blocked);
        if (rc == BUF_OK && oldest >= 0)
                rc = format_gauge(out, "semel_outbox_oldest_pending_seconds",
                                  "Age of the eldest pending row of the whole table.",
                                  (double)oldest / 1e6);
        if (rc == BUF_OK && xmin >= 0)
                rc = format_gauge(out, "semel_outbox_oldest_transaction_seconds",
                                  "Age of the database's oldest open transaction, which keeps dead rows.",
                                  (double)xmin / 1e6);
        return rc;
}

int relay_metrics_format(struct relay_metrics *m, struct buf *out)
{
        static const char *const outcomes[RELAY_OUTCOMES] = {"published", "retried", "dead",
                                                             "untried"};
        int rc = head(out, "semel_relay_rows_total", "Rows by what became of them in a batch.",
                      "counter");
        for (int i = 0; i < RELAY_OUTCOMES && rc == BUF_OK; i++)
                rc = buf_printf(out, "semel_relay_rows_total{outcome=\"%s\"} %llu\n", outcomes[i],
                                (unsigned long long)atomic_load(&m->rows[i]));
        if (rc == BUF_OK)
                rc = format_counters(m, out);
        if (rc == BUF_OK)
                rc = format_gauges(m, out);
        if (rc == BUF_OK && atomic_load(&m->counted[0]) >= 0)
                rc = head(out, "semel_outbox_rows", "Rows of the table by state, when last counted.",
                          "gauge");
        for (int i = 0; i < OUTBOX_STATES && rc == BUF_OK && atomic_load(&m->counted[0]) >= 0; i++)
                rc = buf_printf(out, "semel_outbox_rows{state=\"%s\"} %lld\n",
                                outbox_state_name((enum outbox_state)i),
                                (long long)atomic_load(&m->counted[i]));
        if (rc == BUF_OK)
                rc = format_histogram(out, "semel_relay_batch_rows", "Rows of a batch.",
                                      &m->batch_rows, rows_bounds, 1);
        if (rc == BUF_OK)
                rc = format_histogram(out, "semel_relay_publish_seconds",
                                      "From a batch's first row to its last report.", &m->publish_us,
                                      us_bounds, 1e6);
        return rc;
}
