/* SPDX-License-Identifier: Apache-2.0
 *
 * consume_metrics: the engine's counters in Prometheus' text form.  Names are documented in
 * docs/consume.md.
 */
#include "base/metric.h"
#include "consume/consume_internal.h"

static const struct {
        const char *name, *help;
} counters[COUNTS] = {
        [COUNT_PROCESSED] = {"semel_consume_processed_total", "Events applied."},
        [COUNT_DUPLICATES] = {"semel_consume_duplicates_total",
                              "Events that had been applied before."},
        [COUNT_DEAD] = {"semel_consume_dead_total", "Events that became dead letters."},
        [COUNT_ALARMS] = {"semel_consume_alarms_total",
                          "Events with an id that another payload had."},
        [COUNT_FAILED] = {"semel_consume_failed_tries_total", "Tries in which the handler failed."},
        [COUNT_AGAIN] = {"semel_consume_transient_total",
                         "Transactions that deadlocks, lock waits and relatives undid."},
        [COUNT_LOST] = {"semel_consume_connections_lost_total",
                        "Database connections that broke in a transaction."},
        [COUNT_BATCHES] = {"semel_consume_batches_total", "Transactions that committed."},
        [COUNT_RETRIED] = {"semel_consume_letters_applied_total",
                           "Dead letters that an operator wanted applied, and that were."},
        [COUNT_REBALANCES] = {"semel_consume_rebalances_total",
                              "Assignments and revocations of partitions."},
        [COUNT_STALLS] = {"semel_consume_stalls_total",
                          "Times that a partition had made no progress for a minute."},
};

int consume_metrics(struct consume *c, struct buf *out)
{
        int rc = BUF_OK;
        for (int i = 0; i < COUNTS && rc == BUF_OK; i++)
                rc = metric_counter(out, counters[i].name, counters[i].help,
                                    atomic_load(&c->counts[i]));
        if (rc == BUF_OK)
                rc = metric_head(out, "semel_consume_lag",
                                 "Events of a partition that are not applied yet.", "gauge");
        long long stalled = 0, queued = 0;
        (void)pthread_mutex_lock(&c->mu);
        for (const struct part *p = c->parts; p && rc == BUF_OK; p = p->next) {
                stalled += p->stalled;
                queued += (long long)p->n;
                if (p->lag >= 0)
                        rc = buf_printf(out, "semel_consume_lag{topic=\"%s\",partition=\"%d\"} "
                                             "%lld\n",
                                        p->topic, (int)p->partition, (long long)p->lag);
        }
        long long partitions = (long long)c->part_count;
        (void)pthread_mutex_unlock(&c->mu);
        const struct {
                const char *name, *help;
                long long value;
        } gauges[] = {
                {"semel_consume_partitions", "Partitions assigned.", partitions},
                {"semel_consume_stalled_partitions",
                 "Partitions that have made no progress for a minute.", stalled},
                {"semel_consume_queued", "Events fetched and not applied yet.", queued},
        };
        for (size_t i = 0; i < sizeof gauges / sizeof gauges[0] && rc == BUF_OK; i++)
                rc = metric_gauge(out, gauges[i].name, gauges[i].help, (double)gauges[i].value);
        return rc;
}
