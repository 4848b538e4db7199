/* SPDX-License-Identifier: Apache-2.0
 *
 * config: setting librdkafka's properties, with our words for what is wrong.  Inside src/bus only.
 */
#ifndef BUS_CONFIG_H
#define BUS_CONFIG_H

#include <librdkafka/rdkafka.h>

#include "bus/bus.h"

/* Its value must not be shown. */
bool bus_property_is_secret(const char *name);

semel_code bus_property_set(rd_kafka_conf_t *conf, const char *name, const char *value,
                            semel_error *err);

/* All of the user's, checked. */
semel_code bus_properties_set(rd_kafka_conf_t *conf, const struct bus_config *config,
                              semel_error *err);

#endif
