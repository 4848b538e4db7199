/* SPDX-License-Identifier: Apache-2.0
 *
 * metric: see metric.h.
 */
#include "base/metric.h"

int metric_head(struct buf *out, const char *name, const char *help, const char *type)
{
        return buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

int metric_counter(struct buf *out, const char *name, const char *help, uint64_t value)
{
        int rc = metric_head(out, name, help, "counter");
        return rc == BUF_OK ? buf_printf(out, "%s %llu\n", name, (unsigned long long)value) : rc;
}

int metric_gauge(struct buf *out, const char *name, const char *help, double value)
{
        int rc = metric_head(out, name, help, "gauge");
        return rc == BUF_OK ? buf_printf(out, "%s %.15g\n", name, value) : rc;
}

void metric_observe(struct metric_histogram *h, const struct metric_scale *scale, int64_t v)
{
        int i = 0;
        while (i < scale->n && v > scale->bound[i])
                i++;
        atomic_fetch_add_explicit(&h->bucket[i], 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&h->sum, v > 0 ? (uint64_t)v : 0, memory_order_relaxed);
}

int metric_histogram(struct buf *out, const char *name, const char *help,
                     struct metric_histogram *h, const struct metric_scale *scale)
{
        unsigned long long count = 0;
        int rc = metric_head(out, name, help, "histogram");
        for (int i = 0; i < scale->n && rc == BUF_OK; i++) {
                count += atomic_load_explicit(&h->bucket[i], memory_order_relaxed);
                rc = buf_printf(out, "%s_bucket{le=\"%g\"} %llu\n", name,
                                (double)scale->bound[i] / scale->unit, count);
        }
        count += atomic_load_explicit(&h->bucket[scale->n], memory_order_relaxed);
        double sum = (double)atomic_load_explicit(&h->sum, memory_order_relaxed) / scale->unit;
        return rc == BUF_OK ? buf_printf(out,
                                         "%s_bucket{le=\"+Inf\"} %llu\n%s_sum %.6f\n%s_count %llu\n",
                                         name, count, name, sum, name, count)
                            : rc;
}
