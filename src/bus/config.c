/* SPDX-License-Identifier: Apache-2.0
 *
 * config: which of librdkafka's properties users may set.  Those that a promise rests on have one
 * value, and whoever sets another is told why.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/err.h"
#include "base/suggest.h"
#include "bus/client.h"
#include "bus/config.h"

/* value NULL: not to be set at all.  values: what may be written without harm. */
static const struct promised {
        const char *name;
        const char *values[3];
        const char *why;
} promised[] = {
        {"acks", {"all", "-1"}, "a record that only the leader has is lost with it"},
        {"request.required.acks", {"all", "-1"}, "a record that only the leader has is lost with it"},
        {"enable.idempotence", {"true"}, "without it a retry inside librdkafka may reorder and repeat records"},
        {"message.timeout.ms", {"0"},
         "a record that librdkafka gives up by itself is overtaken by the next one of its key"},
        {"delivery.timeout.ms", {"0"},
         "a record that librdkafka gives up by itself is overtaken by the next one of its key"},
        {"max.in.flight", {"1"}, "a rejected record would be overtaken by those in flight behind it"},
        {"max.in.flight.requests.per.connection", {"1"},
         "a rejected record would be overtaken by those in flight behind it"},
        {"retries", {"2147483647"}, "a record that is not retried is overtaken by the next one of its key"},
        {"message.send.max.retries", {"2147483647"},
         "a record that is not retried is overtaken by the next one of its key"},
        {"delivery.report.only.error", {"false"},
         "what was written would never be reported, and be sent again for ever"},
        {"enable.gapless.guarantee", {"false"}, "one record that is refused would end the producer, again and again"},
        {"partitioner", {"murmur2_random"},
         "keys go to the partition that Java's client chooses, so that their order survives a change of producer"},
        {"enable.auto.commit", {"false"}, "an offset is committed only after the database has committed"},
        {"auto.commit.enable", {"false"}, "an offset is committed only after the database has committed"},
        {"enable.auto.offset.store", {"false"},
         "an offset is committed only after the database has committed"},
        {"auto.offset.reset", {"earliest", "smallest", "beginning"},
         "a group without offsets would skip what is in the topic"},
        {"partition.assignment.strategy", {"range"},
         "a partition is finished and committed before it is given away, which needs the eager protocol"},
        {"isolation.level", {"read_committed"}, "records of aborted transactions would be processed"},
        {"enable.partition.eof", {"false"}, "the end of a partition is no message"},
        {"group.id", {NULL}, "the group is an option of its own"},
        {"transactional.id", {NULL}, "it follows from the outbox, so that its next owner can recover"},
        {"transaction.timeout.ms", {NULL}, "it follows from the deadlines of the relay"},
        {"bootstrap.servers", {NULL}, "the brokers are an option of their own"},
        {"metadata.broker.list", {NULL}, "the brokers are an option of their own"},
        {"test.mock.num.brokers", {NULL}, "a broker that keeps nothing would be used; see semel dev-broker"},
        {"plugin.library.paths", {NULL}, "a plug-in may change or drop what is sent"},
};

bool bus_property_is_secret(const char *name)
{
        static const char *const parts[] = {"password", "secret", "sasl.oauthbearer.config",
                                            "sasl.jaas", "ssl.key.pem", "ssl_key"};
        for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
                if (strcasestr(name, parts[i]))
                        return true;
        return false;
}

static semel_code check_promised(const struct bus_property *p, semel_error *err)
{
        for (size_t i = 0; i < sizeof promised / sizeof promised[0]; i++) {
                const struct promised *rule = &promised[i];
                if (strcmp(rule->name, p->name) != 0)
                        continue;
                for (size_t j = 0; j < 3 && rule->values[j]; j++)
                        if (strcasecmp(rule->values[j], p->value) == 0)
                                return SEMEL_OK;
                if (!rule->values[0])
                        return err_set(err, SEMEL_ERR_ARGUMENT,
                                       "Kafka property \"%s\" cannot be set: %s", p->name, rule->why);
                return err_set(err, SEMEL_ERR_ARGUMENT,
                               "Kafka property \"%s\" must stay \"%s\": %s", p->name,
                               rule->values[0], rule->why);
        }
        return SEMEL_OK;
}

/* Those that librdkafka's own list leaves out while they have no value. */
static const char *const unlisted[] = {
        "client.id", "sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password",
        "security.protocol", "ssl.ca.location", "ssl.certificate.location", "ssl.key.location",
        "ssl.key.password", "ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem",
        "ssl.keystore.location", "ssl.keystore.password", "ssl.cipher.suites", "linger.ms",
        "compression.codec", "compression.type", "client.rack", "group.instance.id",
        "sasl.oauthbearer.config", "sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.token.endpoint.url", "broker.address.family", "debug"};

static semel_code unknown_property(const char *name, rd_kafka_conf_t *conf, semel_error *err)
{
        enum { NAMES_MAX = 512 };
        const char *names[NAMES_MAX];
        size_t n = 0, count = 0;
        const char **dump = rd_kafka_conf_dump(conf, &count);
        for (size_t i = 0; i < sizeof unlisted / sizeof unlisted[0]; i++)
                names[n++] = unlisted[i];
        for (size_t i = 0; i + 1 < count && n < NAMES_MAX; i += 2) /* name, value, name, ... */
                names[n++] = dump[i];
        const char *near = suggest(name, names, n);
        semel_code rc =
                near ? err_set(err, SEMEL_ERR_ARGUMENT,
                               "there is no Kafka property \"%.64s\"; did you mean \"%s\"?", name, near)
                     : err_set(err, SEMEL_ERR_ARGUMENT,
                               "there is no Kafka property \"%.64s\"; librdkafka's CONFIGURATION.md lists them",
                               name);
        rd_kafka_conf_dump_free(dump, count);
        return rc;
}

semel_code bus_property_set(rd_kafka_conf_t *conf, const char *name, const char *value,
                            semel_error *err)
{
        char why[256];
        switch (rd_kafka_conf_set(conf, name, value, why, sizeof why)) {
        case RD_KAFKA_CONF_OK:
                return SEMEL_OK;
        case RD_KAFKA_CONF_UNKNOWN:
                return unknown_property(name, conf, err);
        default:
                /* librdkafka's words repeat the value. */
                if (bus_property_is_secret(name))
                        return err_set(err, SEMEL_ERR_ARGUMENT,
                                       "Kafka property \"%s\" does not take this value", name);
                return err_set(err, SEMEL_ERR_ARGUMENT, "Kafka property \"%s\": %s", name, why);
        }
}

semel_code bus_properties_set(rd_kafka_conf_t *conf, const struct bus_config *config,
                              semel_error *err)
{
        if (config->property_count > BUS_PROPERTIES_MAX)
                return err_set(err, SEMEL_ERR_ARGUMENT, "more than %d Kafka properties",
                               BUS_PROPERTIES_MAX);
        for (size_t i = 0; i < config->property_count; i++) {
                const struct bus_property *p = &config->property[i];
                if (!p->name || !p->name[0] || !p->value)
                        return err_set(err, SEMEL_ERR_ARGUMENT,
                                       "a Kafka property is written NAME=VALUE");
                semel_code rc = check_promised(p, err);
                if (rc == SEMEL_OK)
                        rc = bus_property_set(conf, p->name, p->value, err);
                if (rc != SEMEL_OK)
                        return rc;
        }
        return SEMEL_OK;
}

semel_code bus_config_check(const struct bus_config *config, semel_error *err)
{
        if (!config->brokers || !config->brokers[0])
                return err_set(err, SEMEL_ERR_ARGUMENT,
                               "no Kafka broker is named; give HOST:PORT,...");
        rd_kafka_conf_t *conf = rd_kafka_conf_new();
        semel_code rc = bus_properties_set(conf, config, err);
        rd_kafka_conf_destroy(conf);
        return rc;
}
