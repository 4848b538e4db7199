/* SPDX-License-Identifier: Apache-2.0
 *
 * report: what librdkafka's codes mean for a message and for a transaction; pure, in one place.
 * Inside src/bus only (and its tests).
 */
#ifndef BUS_REPORT_H
#define BUS_REPORT_H

#include <librdkafka/rdkafka.h>

#include "bus/bus.h"

/* status: what librdkafka knows about the record; fatal: the producer has a fatal error. */
enum bus_report_kind bus_report_kind_of(rd_kafka_resp_err_t e, rd_kafka_msg_status_t status,
                                        bool fatal);
/* What that answer is about, when the message was not taken. */
enum bus_report_cause bus_report_cause_of(rd_kafka_resp_err_t e);

/* What to do after a transaction's step. */
struct bus_tx_error {
        rd_kafka_resp_err_t code; /* 0: it went well */
        bool fatal, retriable, requires_abort;
};
enum bus_tx_result bus_tx_result_of(const struct bus_tx_error *e);

#endif
