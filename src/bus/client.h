/* SPDX-License-Identifier: Apache-2.0
 *
 * client: what producers and consumers share: the checked configuration, the log, the settings of
 * topics.  Inside src/bus only.
 */
#ifndef BUS_CLIENT_H
#define BUS_CLIENT_H

#include <librdkafka/rdkafka.h>

#include "bus/bus.h"

/* Behind rd_kafka_opaque() of every handle. */
struct bus_client {
        void (*log)(void *arg, int level, const char *line);
        void *log_arg;
        struct bus_secrets *secrets; /* blotted out of log lines */
        void *owner;                 /* the producer or consumer */
        bool tells_troubles;         /* the owner's own error callback logs troubles of connections */
        rd_kafka_resp_err_t trouble; /* of the last connection that failed; 0: none */
        char trouble_text[384];
};

/* One property of ours. */
struct bus_fixed {
        const char *name, *value;
};

/* The checked configuration with our own: `defaults` may be overridden by the user, `fixed` may
 * not.  The caller gives the result to rd_kafka_new or rd_kafka_conf_destroy.  `client` is filled
 * in and must live as long as the handle; bus_client_release() afterwards. */
semel_code bus_conf_new(const struct bus_config *config, const struct bus_fixed *defaults,
                        const struct bus_fixed *fixed, struct bus_client *client,
                        rd_kafka_conf_t **ret, semel_error *err);

/* rd_kafka_new; takes conf in every case. */
semel_code bus_client_open(rd_kafka_conf_t *conf, rd_kafka_type_t type, rd_kafka_t **ret,
                           semel_error *err);

/* A line of our own, without secrets. */
void bus_client_log(const struct bus_client *client, int level, const char *text);

/* Why a connection failed, for whoever gets no answer then.  As an error callback it is called while
 * events are served. */
void bus_client_on_error(rd_kafka_t *rk, int e, const char *reason, void *opaque);

/* There was no answer, and *err says so: with the trouble, if one is known.  Returns the code, which is
 * SEMEL_ERR_ACCESS where the password or a certificate is refused. */
semel_code bus_client_explain(const struct bus_client *client, semel_code code, semel_error *err);
void bus_client_forget_trouble(struct bus_client *client);

void bus_client_release(struct bus_client *client);

/* Settings of a topic, as the broker has them; a value that cannot be learned stays as it was (the broker is too
 * old, or does not let us see it).  false: no answer in time. */
struct bus_setting {
        const char *name;
        char value[64];
};
bool bus_topic_settings(rd_kafka_t *rk, const char *topic, struct bus_setting *s, size_t n,
                        int timeout_ms);

/* librdkafka's mock cluster names itself so. */
bool bus_cluster_is_mock(const char *cluster_id);

/* Microseconds to librdkafka's milliseconds, never less; bounded. */
int bus_ms(int64_t us);

/* Our code for an error of librdkafka. */
semel_code bus_code_of(rd_kafka_resp_err_t e);

#endif
