/* SPDX-License-Identifier: Apache-2.0
 *
 * mock: librdkafka's mock cluster: real TCP, the real protocol, and nothing is kept.
 */
#include <stdlib.h>

#include "base/err.h"
#include "bus/client.h"
#include <librdkafka/rdkafka_mock.h> /* asks for rdkafka.h before it */

#include "core/limits.h"
#include "sys/clock.h"

#define ASK_US (500 * MS) /* between two looks at what went wrong */

struct bus_mock {
        rd_kafka_t *rk;
        rd_kafka_mock_cluster_t *cluster;
        int brokers;
};

static void drop_log(const rd_kafka_t *rk, int level, const char *facility, const char *text)
{
        (void)rk;
        (void)level;
        (void)facility;
        (void)text;
}

semel_code bus_mock_new(int brokers, struct bus_mock **ret, semel_error *err)
{
        char why[256];
        if (brokers < 1 || brokers > BUS_MOCK_BROKERS_MAX)
                return err_set(err, SEMEL_ERR_ARGUMENT, "1 to %d brokers, please",
                               BUS_MOCK_BROKERS_MAX);
        struct bus_mock *mock = calloc(1, sizeof *mock);
        if (!mock)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "out of memory");
        rd_kafka_conf_t *conf = rd_kafka_conf_new();
        rd_kafka_conf_set_log_cb(conf, drop_log);
        mock->rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, why, sizeof why);
        if (!mock->rk) {
                rd_kafka_conf_destroy(conf);
                free(mock);
                return err_set(err, SEMEL_ERR_INTERNAL, "librdkafka: %s", why);
        }
        mock->brokers = brokers;
        mock->cluster = rd_kafka_mock_cluster_new(mock->rk, brokers);
        if (!mock->cluster) {
                bus_mock_free(mock);
                return err_set(err, SEMEL_ERR_INTERNAL, "the mock cluster cannot be made");
        }
        *ret = mock;
        return SEMEL_OK;
}

semel_code bus_mock_topic(struct bus_mock *mock, const char *topic, int partitions,
                          semel_error *err)
{
        if (partitions < 1 || partitions > BUS_MOCK_PARTITIONS_MAX)
                return err_set(err, SEMEL_ERR_ARGUMENT, "1 to %d partitions, please",
                               BUS_MOCK_PARTITIONS_MAX);
        rd_kafka_resp_err_t e =
                rd_kafka_mock_topic_create(mock->cluster, topic, partitions, mock->brokers < 3 ? mock->brokers : 3);
        if (e)
                return err_set(err, SEMEL_ERR_ARGUMENT, "topic \"%s\": %s", topic,
                               rd_kafka_err2str(e));
        return SEMEL_OK;
}

const char *bus_mock_bootstrap(const struct bus_mock *mock)
{
        return rd_kafka_mock_cluster_bootstraps(mock->cluster);
}

void bus_mock_fail(struct bus_mock *mock, int16_t api_key, int16_t error, size_t count)
{
        for (size_t i = 0; i < count; i++)
                rd_kafka_mock_push_request_errors(mock->cluster, api_key, 1,
                                                  (rd_kafka_resp_err_t)error);
}

void bus_mock_set_down(struct bus_mock *mock, bool down)
{
        for (int32_t id = 1; id <= mock->brokers; id++)
                (void)(down ? rd_kafka_mock_broker_set_down(mock->cluster, id)
                            : rd_kafka_mock_broker_set_up(mock->cluster, id));
}

void bus_mock_set_rtt(struct bus_mock *mock, int64_t rtt_us)
{
        for (int32_t id = 1; id <= mock->brokers; id++)
                (void)rd_kafka_mock_broker_set_rtt(mock->cluster, id, bus_ms(rtt_us));
}

void bus_mock_free(struct bus_mock *mock)
{
        if (!mock)
                return;
        if (mock->cluster)
                rd_kafka_mock_cluster_destroy(mock->cluster);
        rd_kafka_destroy(mock->rk);
        free(mock);
}

semel_code bus_is_mock(const struct bus_config *config, int64_t timeout_us, bool *ret_mock,
                       semel_error *err)
{
        struct bus_client client = {0};
        rd_kafka_conf_t *conf;
        rd_kafka_t *rk;
        semel_code rc = bus_conf_new(config, NULL, NULL, &client, &conf, err);
        if (rc != SEMEL_OK)
                return rc;
        rd_kafka_conf_set_error_cb(conf, bus_client_on_error);
        rc = bus_client_open(conf, RD_KAFKA_PRODUCER, &rk, err);
        if (rc != SEMEL_OK) {
                bus_client_release(&client);
                return rc;
        }
        int64_t left_us = timeout_us, deadline_us = clock_boot_us() + timeout_us;
        char *id = NULL;
        do {
                id = rd_kafka_clusterid(rk, bus_ms(left_us < ASK_US ? left_us : ASK_US));
                (void)rd_kafka_poll(rk, 0); /* its errors: a password that is refused stays so */
                rc = err_set(err, SEMEL_ERR_STORE_DOWN, "no Kafka broker of %s answers",
                             config->brokers);
                rc = bus_client_explain(&client, rc, err);
                left_us = deadline_us - clock_boot_us();
        } while (!id && rc != SEMEL_ERR_ACCESS && left_us > 0);
        if (id) {
                err_clear(err);
                rc = SEMEL_OK;
                *ret_mock = bus_cluster_is_mock(id);
                rd_kafka_mem_free(rk, id);
        }
        rd_kafka_destroy(rk);
        bus_client_release(&client);
        return rc;
}
