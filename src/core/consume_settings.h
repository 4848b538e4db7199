/* SPDX-License-Identifier: Apache-2.0
 *
 * consume_settings: every setting of `semel consume`, as a table of core/setting.h, and librdkafka's
 * properties, which are given by their own names.
 */
#ifndef CORE_CONSUME_SETTINGS_H
#define CORE_CONSUME_SETTINGS_H

#include "core/property.h"
#include "core/setting.h"

enum {
        CONSUME_TEXT_BYTES = 255,
        CONSUME_URL_BYTES = 1023,
        CONSUME_TOPICS_BYTES = 8191,
        CONSUME_SQL_BYTES = 16383,
};

struct consume_setup {
        char db[CONSUME_URL_BYTES + 1];
        char brokers[CONSUME_URL_BYTES + 1];
        char topics[CONSUME_TOPICS_BYTES + 1]; /* with commas or spaces between */
        char group[CONSUME_TEXT_BYTES + 1];
        char sql[CONSUME_SQL_BYTES + 1];
        char post[CONSUME_URL_BYTES + 1];
        int payload; /* 1: bytea */
        char consumer[CONSUME_TEXT_BYTES + 1];
        char source[CONSUME_TEXT_BYTES + 1];
        char event_id_pointer[CONSUME_TEXT_BYTES + 1];
        char dead_topic[CONSUME_TEXT_BYTES + 1];
        int64_t attempts_max, batch_rows, workers;
        int64_t inbox_retention_us;
        char admin[CONSUME_TEXT_BYTES + 1];
        char admin_token_file[CONSUME_TEXT_BYTES + 1];
        int64_t drain_delay_us, shutdown_deadline_us;
        struct property_list kafka;
};

extern const struct setting consume_settings[];
extern const size_t consume_setting_count;

void consume_setup_defaults(struct consume_setup *setup);

/* Is all there that must be given, and do these belong together?  false: `why` says what not. */
bool consume_setup_check(const struct consume_setup *setup, char why[SETTING_ERROR_BYTES]);

#endif
