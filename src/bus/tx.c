/* SPDX-License-Identifier: Apache-2.0
 *
 * tx: the steps of a transaction.  Each tells the caller what to do next (report.c decides).
 */
#include "base/err.h"
#include "bus/producer.h"
#include "bus/report.h"

static enum bus_tx_result judge(struct bus_producer *p, const char *step, rd_kafka_error_t *e,
                                semel_error *err)
{
        if (!e) {
                bus_client_forget_trouble(&p->client);
                return BUS_TX_OK;
        }
        const struct bus_tx_error what = {
                .code = rd_kafka_error_code(e),
                .fatal = rd_kafka_error_is_fatal(e) || rd_kafka_fatal_error(p->rk, NULL, 0) != 0,
                .retriable = rd_kafka_error_is_retriable(e),
                .requires_abort = rd_kafka_error_txn_requires_abort(e)};
        enum bus_tx_result result = bus_tx_result_of(&what);
        semel_code code = bus_code_of(what.code);
        if (result == BUS_TX_UNKNOWN && code != SEMEL_ERR_ACCESS)
                code = SEMEL_ERR_UNKNOWN;
        (void)err_set(err, code, "Kafka transaction, %s: %s (%s)", step, rd_kafka_error_string(e),
                      rd_kafka_error_name(e));
        rd_kafka_error_destroy(e);
        if (result == BUS_TX_AGAIN) {
                (void)rd_kafka_poll(p->rk, 0); /* why there was no answer */
                (void)bus_client_explain(&p->client, code, err);
        }
        return result;
}

enum bus_tx_result bus_tx_init(struct bus_producer *p, int64_t timeout_us, semel_error *err)
{
        return judge(p, "init", rd_kafka_init_transactions(p->rk, bus_ms(timeout_us)), err);
}

enum bus_tx_result bus_tx_begin(struct bus_producer *p, semel_error *err)
{
        return judge(p, "begin", rd_kafka_begin_transaction(p->rk), err);
}

enum bus_tx_result bus_tx_commit(struct bus_producer *p, int64_t timeout_us, semel_error *err)
{
        return judge(p, "commit", rd_kafka_commit_transaction(p->rk, bus_ms(timeout_us)), err);
}

enum bus_tx_result bus_tx_abort(struct bus_producer *p, int64_t timeout_us, semel_error *err)
{
        return judge(p, "abort", rd_kafka_abort_transaction(p->rk, bus_ms(timeout_us)), err);
}
