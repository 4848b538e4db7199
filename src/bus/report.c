/* SPDX-License-Identifier: Apache-2.0
 *
 * report: see report.h.
 */
#include "bus/report.h"

/* Codes with which a broker refuses this message for good: it is not in the log. */
static bool is_rejection(rd_kafka_resp_err_t e)
{
        switch (e) {
        case RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE:
        case RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE:
        case RD_KAFKA_RESP_ERR_INVALID_MSG_SIZE:
        case RD_KAFKA_RESP_ERR_INVALID_RECORD:
        case RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP:
        case RD_KAFKA_RESP_ERR_POLICY_VIOLATION:
        case RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION: /* no such name is possible */
        case RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED:
        case RD_KAFKA_RESP_ERR_UNSUPPORTED_FOR_MESSAGE_FORMAT:
        case RD_KAFKA_RESP_ERR_UNSUPPORTED_COMPRESSION_TYPE:
        case RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION: /* the topic has no such partition */
        case RD_KAFKA_RESP_ERR__BAD_MSG:
        case RD_KAFKA_RESP_ERR__INVALID_ARG:
                return true;
        default:
                return false;
        }
}

enum bus_report_kind bus_report_kind_of(rd_kafka_resp_err_t e, rd_kafka_msg_status_t status,
                                        bool fatal)
{
        if (e == RD_KAFKA_RESP_ERR_NO_ERROR)
                return BUS_DELIVERED;
        if (e == RD_KAFKA_RESP_ERR__PURGE_QUEUE || e == RD_KAFKA_RESP_ERR__PURGE_INFLIGHT)
                return BUS_PURGED;
        if (fatal || e == RD_KAFKA_RESP_ERR__FATAL)
                return BUS_BROKEN;
        if (is_rejection(e))
                return BUS_REJECTED;
        if (e == RD_KAFKA_RESP_ERR_INVALID_MSG) /* damaged on its way, and not written */
                return BUS_TRANSIENT;
        /* Whoever does not know whether it was written may not send it again on this producer:
         * its sequence numbers would not show that it is the same record. */
        if (status != RD_KAFKA_MSG_STATUS_NOT_PERSISTED)
                return BUS_BROKEN;
        return BUS_TRANSIENT;
}

enum bus_report_cause bus_report_cause_of(rd_kafka_resp_err_t e)
{
        switch (e) {
        case RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE:
        case RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE: /* larger than a segment */
                return BUS_CAUSE_SIZE;
        case RD_KAFKA_RESP_ERR_INVALID_MSG: /* brokers before 2.4 also mean INVALID_RECORD by it */
        case RD_KAFKA_RESP_ERR_INVALID_MSG_SIZE:
        case RD_KAFKA_RESP_ERR_INVALID_RECORD:
        case RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP:
        case RD_KAFKA_RESP_ERR_POLICY_VIOLATION:
                return BUS_CAUSE_BATCH;
        default:
                return BUS_CAUSE_MESSAGE;
        }
}

enum bus_tx_result bus_tx_result_of(const struct bus_tx_error *e)
{
        if (e->code == RD_KAFKA_RESP_ERR_NO_ERROR)
                return BUS_TX_OK;
        if (e->fatal)
                return BUS_TX_UNKNOWN;
        switch (e->code) {
        case RD_KAFKA_RESP_ERR__FENCED:
        case RD_KAFKA_RESP_ERR__FATAL:
        case RD_KAFKA_RESP_ERR_PRODUCER_FENCED:
        case RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH:
        case RD_KAFKA_RESP_ERR__STATE:
                return BUS_TX_UNKNOWN;
        default:
                break;
        }
        if (e->requires_abort)
                return BUS_TX_ABORT;
        if (e->retriable || e->code == RD_KAFKA_RESP_ERR__TIMED_OUT)
                return BUS_TX_AGAIN;
        return BUS_TX_UNKNOWN;
}
