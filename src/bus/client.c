/* SPDX-License-Identifier: Apache-2.0
 *
 * client: see client.h.
 */
#include "bus/client.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "bus/config.h"
#include "core/limits.h"

/* -- the log ----------------------------------------------------------------------------------- */

enum { LOG_LINE_BYTES = 1024, SECRET_BYTES_MIN = 4 };

struct bus_secrets {
        size_t n;
        char *value[];
};

static void blot_out(char *line, const char *secret)
{
        size_t n = strlen(secret);
        for (char *at = line; (at = strstr(at, secret)); at += n)
                memset(at, '*', n);
}

/* One line, without secrets. */
static void clean(const struct bus_client *client, char *line)
{
        for (size_t i = 0; client->secrets && i < client->secrets->n; i++)
                blot_out(line, client->secrets->value[i]);
        for (char *p = line; *p; p++)
                if (*p == '\n' || *p == '\r')
                        *p = ' ';
}

void bus_client_log(const struct bus_client *client, int level, const char *text)
{
        if (!client->log)
                return;
        char line[LOG_LINE_BYTES];
        (void)snprintf(line, sizeof line, "%s", text);
        clean(client, line);
        client->log(client->log_arg, level, line);
}

/* From any of librdkafka's threads. */
static void on_log(const rd_kafka_t *rk, int level, const char *facility, const char *text)
{
        const struct bus_client *client = rd_kafka_opaque(rk);
        /* One set of properties serves the relay and the consumer: that a producer has no use
         * for one of a consumer is no news. */
        if (strcmp(facility, "CONFWARN") == 0 ||
            (client && client->tells_troubles && strcmp(facility, "FAIL") == 0))
                return;
        char line[LOG_LINE_BYTES];
        (void)snprintf(line, sizeof line, "%s: %s", facility, text);
        if (client)
                bus_client_log(client, level, line);
}

/* -- troubles of connections --------------------------------------------------------------------- */

void bus_client_on_error(rd_kafka_t *rk, int e, const char *reason, void *opaque)
{
        struct bus_client *client = opaque;
        (void)rk;
        if (e == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN || e == RD_KAFKA_RESP_ERR__FATAL)
                return; /* of no connection */
        client->trouble = (rd_kafka_resp_err_t)e;
        (void)snprintf(client->trouble_text, sizeof client->trouble_text, "%s", reason);
        clean(client, client->trouble_text);
        char *tail = strstr(client->trouble_text, " (after "); /* how long it took, how often it was */
        if (tail)
                *tail = 0;
}

/* Until 2.6.1 librdkafka sends a nonce that Kafka takes for a wrong password from 4.0 on. */
enum { SCRAM_IS_RIGHT_SINCE = 0x02060100 };

static const char *doubt(const struct bus_client *client)
{
        return rd_kafka_version() < SCRAM_IS_RIGHT_SINCE && strstr(client->trouble_text, "SCRAM") &&
                               !strstr(client->trouble_text, "Unsupported")
                       ? "; librdkafka before 2.6.1 cannot log in to Kafka 4 by SCRAM, whatever the password: "
                         "update it, or use PLAIN (over TLS) or a certificate"
                       : "";
}

semel_code bus_client_explain(const struct bus_client *client, semel_code code, semel_error *err)
{
        char before[ERR_TEXT_BYTES_MAX];
        const char *why = client->trouble_text;
        if (client->trouble == RD_KAFKA_RESP_ERR_NO_ERROR)
                return code;
        /* The same failure is _SSL, with advice, or _TRANSPORT, without: it depends on who is faster. */
        if (client->trouble == RD_KAFKA_RESP_ERR__SSL || strstr(why, "SSL routines"))
                return err_set(err, SEMEL_ERR_ACCESS, "no TLS with Kafka: %s%s", why,
                               strstr(why, "verify failed") && !strstr(why, "ssl.ca.location")
                                       ? "; ssl.ca.location names who signed the broker's certificate"
                                       : "");
        switch (client->trouble) {
        case RD_KAFKA_RESP_ERR__AUTHENTICATION:
        case RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED:
                return err_set(err, SEMEL_ERR_ACCESS, "Kafka does not let us in: %s%s", why, doubt(client));
        default:
                if (!err)
                        return code;
                (void)snprintf(before, sizeof before, "%s", err->text);
                return err_set(err, code, "%s: %s", before, why);
        }
}

void bus_client_forget_trouble(struct bus_client *client)
{
        client->trouble = RD_KAFKA_RESP_ERR_NO_ERROR;
}

static semel_code secrets_keep(const struct bus_config *config, struct bus_client *client,
                               semel_error *err)
{
        client->secrets = calloc(1, sizeof *client->secrets +
                                            config->property_count * sizeof(char *));
        if (!client->secrets)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "out of memory");
        for (size_t i = 0; i < config->property_count; i++) {
                const struct bus_property *p = &config->property[i];
                if (!bus_property_is_secret(p->name) || strlen(p->value) < SECRET_BYTES_MIN)
                        continue;
                char *copy = strdup(p->value);
                if (!copy)
                        return err_set(err, SEMEL_ERR_NO_MEMORY, "out of memory");
                client->secrets->value[client->secrets->n++] = copy;
        }
        return SEMEL_OK;
}

void bus_client_release(struct bus_client *client)
{
        for (size_t i = 0; client->secrets && i < client->secrets->n; i++) {
                explicit_bzero(client->secrets->value[i], strlen(client->secrets->value[i]));
                free(client->secrets->value[i]);
        }
        free(client->secrets);
        client->secrets = NULL;
}

/* -- opening ----------------------------------------------------------------------------------- */

static semel_code set_all(rd_kafka_conf_t *conf, const struct bus_fixed *list, semel_error *err)
{
        semel_code rc = SEMEL_OK;
        for (; rc == SEMEL_OK && list && list->name; list++)
                rc = bus_property_set(conf, list->name, list->value, err);
        return rc;
}

semel_code bus_conf_new(const struct bus_config *config, const struct bus_fixed *defaults,
                        const struct bus_fixed *fixed, struct bus_client *client,
                        rd_kafka_conf_t **ret, semel_error *err)
{
        const struct bus_fixed common[] = {
                {"client.id", "semel"},
                {"socket.keepalive.enable", "true"},
                {"reconnect.backoff.max.ms", "1000"}, /* 10 s is long after a broker's restart */
                {NULL, NULL}};
        const struct bus_fixed brokers[] = {{"bootstrap.servers", config->brokers}, {NULL, NULL}};
        semel_code rc = bus_config_check(config, err);
        if (rc != SEMEL_OK)
                return rc;
        rd_kafka_conf_t *conf = rd_kafka_conf_new();
        if ((rc = secrets_keep(config, client, err)) != SEMEL_OK ||
            (rc = set_all(conf, common, err)) != SEMEL_OK ||
            (rc = set_all(conf, defaults, err)) != SEMEL_OK ||
            (rc = bus_properties_set(conf, config, err)) != SEMEL_OK ||
            (rc = set_all(conf, brokers, err)) != SEMEL_OK ||
            (rc = set_all(conf, fixed, err)) != SEMEL_OK) {
                rd_kafka_conf_destroy(conf);
                bus_client_release(client);
                return rc;
        }
        client->log = config->log;
        client->log_arg = config->log_arg;
        rd_kafka_conf_set_opaque(conf, client);
        rd_kafka_conf_set_log_cb(conf, on_log);
        *ret = conf;
        return SEMEL_OK;
}

semel_code bus_client_open(rd_kafka_conf_t *conf, rd_kafka_type_t type, rd_kafka_t **ret,
                           semel_error *err)
{
        char why[256];
        rd_kafka_t *rk = rd_kafka_new(type, conf, why, sizeof why);
        if (!rk) {
                rd_kafka_conf_destroy(conf);
                return err_set(err, SEMEL_ERR_ARGUMENT, "Kafka: %s", why);
        }
        *ret = rk;
        return SEMEL_OK;
}

int bus_ms(int64_t us)
{
        int64_t ms = us <= 0 ? 0 : (us + MS - 1) / MS;
        return ms > INT_MAX ? INT_MAX : (int)ms;
}

semel_code bus_code_of(rd_kafka_resp_err_t e)
{
        switch (e) {
        case RD_KAFKA_RESP_ERR_NO_ERROR:
                return SEMEL_OK;
        case RD_KAFKA_RESP_ERR__AUTHENTICATION:
        case RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED:
        case RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED:
        case RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED:
        case RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED:
        case RD_KAFKA_RESP_ERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
                return SEMEL_ERR_ACCESS;
        case RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION:
        case RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID:
        case RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS:
        case RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID:
        case RD_KAFKA_RESP_ERR__ASSIGNMENT_LOST:
        case RD_KAFKA_RESP_ERR__DESTROY:
                return SEMEL_ERR_LOST;
        case RD_KAFKA_RESP_ERR__INVALID_ARG:
        case RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION:
        case RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION:
                return SEMEL_ERR_ARGUMENT;
        case RD_KAFKA_RESP_ERR__FATAL:
        case RD_KAFKA_RESP_ERR__STATE:
        case RD_KAFKA_RESP_ERR__NOT_IMPLEMENTED:
                return SEMEL_ERR_INTERNAL;
        default:
                return SEMEL_ERR_STORE_DOWN;
        }
}

bool bus_cluster_is_mock(const char *cluster_id)
{
        return strncmp(cluster_id, "mockCluster", strlen("mockCluster")) == 0;
}

/* -- settings of topics -------------------------------------------------------------------------- */

static void pick_settings(rd_kafka_event_t *ev, struct bus_setting *s, size_t s_n)
{
        size_t n = 0, entries = 0;
        const rd_kafka_DescribeConfigs_result_t *result = rd_kafka_event_DescribeConfigs_result(ev);
        const rd_kafka_ConfigResource_t **r =
                result ? rd_kafka_DescribeConfigs_result_resources(result, &n) : NULL;
        if (n == 0 || rd_kafka_ConfigResource_error(r[0]))
                return;
        const rd_kafka_ConfigEntry_t **e = rd_kafka_ConfigResource_configs(r[0], &entries);
        for (size_t i = 0; i < entries; i++) {
                const char *value = rd_kafka_ConfigEntry_value(e[i]);
                for (size_t j = 0; j < s_n && value; j++)
                        if (strcmp(rd_kafka_ConfigEntry_name(e[i]), s[j].name) == 0)
                                (void)snprintf(s[j].value, sizeof s[j].value, "%s", value);
        }
}

bool bus_topic_settings(rd_kafka_t *rk, const char *topic, struct bus_setting *s, size_t n,
                        int timeout_ms)
{
        char why[128];
        bool answered = false;
        /* The mock cluster does not know the question, and librdkafka would wait all the time for a
         * broker that does. */
        char *cluster = rd_kafka_clusterid(rk, timeout_ms);
        if (!cluster)
                return false;
        bool mock = bus_cluster_is_mock(cluster);
        rd_kafka_mem_free(rk, cluster);
        if (mock)
                return true;
        rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);
        rd_kafka_AdminOptions_t *options =
                rd_kafka_AdminOptions_new(rk, RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS);
        rd_kafka_ConfigResource_t *resource =
                rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, topic);
        (void)rd_kafka_AdminOptions_set_request_timeout(options, timeout_ms < 1 ? 1 : timeout_ms,
                                                        why, sizeof why);
        rd_kafka_DescribeConfigs(rk, &resource, 1, options, queue);
        rd_kafka_event_t *ev = rd_kafka_queue_poll(queue, timeout_ms);
        if (ev) {
                rd_kafka_resp_err_t e = rd_kafka_event_error(ev);
                answered = e != RD_KAFKA_RESP_ERR__TIMED_OUT && e != RD_KAFKA_RESP_ERR__TRANSPORT;
                if (!e)
                        pick_settings(ev, s, n);
                rd_kafka_event_destroy(ev);
        }
        rd_kafka_ConfigResource_destroy(resource);
        rd_kafka_AdminOptions_destroy(options);
        rd_kafka_queue_destroy(queue);
        return answered;
}
