/* SPDX-License-Identifier: Apache-2.0
 *
 * report: the table from librdkafka's codes to what the relay does.
 */
#include "bus/report.h"

#include "bus_kit.h"

#define NOT RD_KAFKA_MSG_STATUS_NOT_PERSISTED
#define MAYBE RD_KAFKA_MSG_STATUS_POSSIBLY_PERSISTED
#define E(name) RD_KAFKA_RESP_ERR_##name

static void c9_every_code_of_a_message_has_one_meaning(void **state)
{
        (void)state;
        static const struct {
                rd_kafka_resp_err_t e;
                rd_kafka_msg_status_t status;
                bool fatal;
                enum bus_report_kind want;
        } table[] = {
                {E(NO_ERROR), RD_KAFKA_MSG_STATUS_PERSISTED, false, BUS_DELIVERED},
                {E(NO_ERROR), RD_KAFKA_MSG_STATUS_PERSISTED, true, BUS_DELIVERED},
                {E(MSG_SIZE_TOO_LARGE), NOT, false, BUS_REJECTED},
                {E(MSG_SIZE_TOO_LARGE), NOT, true, BUS_BROKEN},
                {E(TOPIC_AUTHORIZATION_FAILED), NOT, false, BUS_REJECTED},
                {E(INVALID_RECORD), NOT, false, BUS_REJECTED},
                {E(RECORD_LIST_TOO_LARGE), NOT, false, BUS_REJECTED},
                {E(INVALID_TIMESTAMP), NOT, false, BUS_REJECTED},
                {E(INVALID_MSG), NOT, false, BUS_TRANSIENT},
                {E(INVALID_MSG), MAYBE, false, BUS_TRANSIENT},
                {E(POLICY_VIOLATION), NOT, false, BUS_REJECTED},
                {E(_UNKNOWN_PARTITION), NOT, false, BUS_REJECTED},
                {E(UNKNOWN_TOPIC_OR_PART), NOT, false, BUS_TRANSIENT},
                {E(_UNKNOWN_TOPIC), NOT, false, BUS_TRANSIENT},
                {E(_TRANSPORT), NOT, false, BUS_TRANSIENT},
                {E(_MSG_TIMED_OUT), NOT, false, BUS_TRANSIENT},
                {E(NOT_ENOUGH_REPLICAS), NOT, false, BUS_TRANSIENT},
                {E(_TRANSPORT), MAYBE, false, BUS_BROKEN},
                {E(_MSG_TIMED_OUT), MAYBE, false, BUS_BROKEN},
                {E(NOT_ENOUGH_REPLICAS_AFTER_APPEND), MAYBE, false, BUS_BROKEN},
                {E(OUT_OF_ORDER_SEQUENCE_NUMBER), MAYBE, true, BUS_BROKEN},
                {E(_FATAL), NOT, false, BUS_BROKEN},
                {E(_PURGE_QUEUE), NOT, false, BUS_PURGED},
                {E(_PURGE_INFLIGHT), MAYBE, false, BUS_PURGED},
        };
        for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
                if (bus_report_kind_of(table[i].e, table[i].status, table[i].fatal) != table[i].want)
                        fail_msg("%s", rd_kafka_err2name(table[i].e));
}

static void c7_an_answer_for_a_whole_batch_is_known_as_one(void **state)
{
        (void)state;
        static const struct {
                rd_kafka_resp_err_t e;
                enum bus_report_cause want;
        } table[] = {
                {E(MSG_SIZE_TOO_LARGE), BUS_CAUSE_SIZE},
                {E(RECORD_LIST_TOO_LARGE), BUS_CAUSE_SIZE},
                {E(INVALID_MSG), BUS_CAUSE_BATCH},
                {E(INVALID_MSG_SIZE), BUS_CAUSE_BATCH},
                {E(INVALID_RECORD), BUS_CAUSE_BATCH},
                {E(INVALID_TIMESTAMP), BUS_CAUSE_BATCH},
                {E(POLICY_VIOLATION), BUS_CAUSE_BATCH},
                {E(TOPIC_AUTHORIZATION_FAILED), BUS_CAUSE_MESSAGE},
                {E(UNKNOWN_TOPIC_OR_PART), BUS_CAUSE_MESSAGE},
                {E(_TRANSPORT), BUS_CAUSE_MESSAGE},
        };
        for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
                if (bus_report_cause_of(table[i].e) != table[i].want)
                        fail_msg("%s", rd_kafka_err2name(table[i].e));
}

static void c9_every_result_of_a_step_has_one_consequence(void **state)
{
        (void)state;
        static const struct {
                struct bus_tx_error e;
                enum bus_tx_result want;
        } table[] = {
                {{E(NO_ERROR), false, false, false}, BUS_TX_OK},
                {{E(_TIMED_OUT), false, true, false}, BUS_TX_AGAIN},
                {{E(_TIMED_OUT), false, false, false}, BUS_TX_AGAIN},
                {{E(_FENCED), true, false, false}, BUS_TX_UNKNOWN},
                {{E(_FENCED), false, true, true}, BUS_TX_UNKNOWN},
                {{E(PRODUCER_FENCED), false, false, true}, BUS_TX_UNKNOWN},
                {{E(INVALID_PRODUCER_EPOCH), false, false, true}, BUS_TX_UNKNOWN},
                {{E(_STATE), false, false, false}, BUS_TX_UNKNOWN},
                {{E(MSG_SIZE_TOO_LARGE), false, false, true}, BUS_TX_ABORT},
                {{E(_TIMED_OUT), false, true, true}, BUS_TX_ABORT},
                {{E(COORDINATOR_NOT_AVAILABLE), false, true, false}, BUS_TX_AGAIN},
                {{E(TRANSACTIONAL_ID_AUTHORIZATION_FAILED), true, false, false}, BUS_TX_UNKNOWN},
                {{E(UNKNOWN), false, false, false}, BUS_TX_UNKNOWN},
                {{E(_TIMED_OUT), true, true, true}, BUS_TX_UNKNOWN},
        };
        for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
                if (bus_tx_result_of(&table[i].e) != table[i].want)
                        fail_msg("%s (row %zu)", rd_kafka_err2name(table[i].e.code), i);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(c9_every_code_of_a_message_has_one_meaning),
                cmocka_unit_test(c7_an_answer_for_a_whole_batch_is_known_as_one),
                cmocka_unit_test(c9_every_result_of_a_step_has_one_consequence),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
