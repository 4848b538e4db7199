/* SPDX-License-Identifier: Apache-2.0
 *
 * metric: figures in Prometheus' text form, and histograms that many threads count in.
 */
#ifndef BASE_METRIC_H
#define BASE_METRIC_H

#include <stdatomic.h>

#include "base/buf.h"

/* Each returns BUF_OK or what `out` says.  The head alone, for values with labels. */
int metric_head(struct buf *out, const char *name, const char *help, const char *type);
int metric_counter(struct buf *out, const char *name, const char *help, uint64_t value);
int metric_gauge(struct buf *out, const char *name, const char *help, double value);

enum { METRIC_BUCKETS_MAX = 14 };

struct metric_scale {
        int n;
        int64_t bound[METRIC_BUCKETS_MAX]; /* upper ones, as they are counted */
        double unit;                       /* what is printed: counted / unit */
};

struct metric_histogram {
        atomic_uint_fast64_t bucket[METRIC_BUCKETS_MAX + 1]; /* [n]: more than all */
        atomic_uint_fast64_t sum;
};

void metric_observe(struct metric_histogram *h, const struct metric_scale *scale, int64_t v);
int metric_histogram(struct buf *out, const char *name, const char *help,
                     struct metric_histogram *h, const struct metric_scale *scale);

#endif
