/* SPDX-License-Identifier: Apache-2.0
 *
 * relay_config: every setting of `semel relay`, as a table of core/setting.h, and librdkafka's
 * properties, which are given by their own names.
 */
#ifndef CORE_RELAY_CONFIG_H
#define CORE_RELAY_CONFIG_H

#include "core/property.h"
#include "core/setting.h"

enum {
        RELAY_TEXT_BYTES = 255,
        RELAY_URL_BYTES = 1023,
        RELAY_LANES_MAX = 16,
        /* A marker of exactly-once lists its rows: 32 bytes each, in a record below 1 MiB. */
        RELAY_BATCH_ROWS_MAX = 30000,
};

enum relay_order { RELAY_ORDER_KEY, RELAY_ORDER_STRICT };
enum relay_done { RELAY_DONE_DELETE, RELAY_DONE_KEEP };
enum relay_listen { RELAY_LISTEN_AUTO, RELAY_LISTEN_ON, RELAY_LISTEN_OFF };

struct relay_config {
        char db[RELAY_URL_BYTES + 1];
        char brokers[RELAY_URL_BYTES + 1];
        int mode; /* as enum outbox_mode of store/outbox.h */
        int order, done, on_dead, listen; /* on_dead: as enum outbox_on_dead */
        int64_t keep_us, stuck_after_us, slot_lease_us;
        int64_t lanes, batch_rows, batch_bytes, batch_timeout_us;
        int64_t attempts_max, retry_min_us, retry_max_us, unknown_topic_us;
        int64_t poll_min_us, poll_max_us;
        char preset[32], table[RELAY_TEXT_BYTES + 1], topic[RELAY_TEXT_BYTES + 1];
        bool unordered;
        char marker_topic[250];
        char admin[RELAY_TEXT_BYTES + 1];
        char admin_token_file[RELAY_TEXT_BYTES + 1];
        int64_t drain_delay_us, shutdown_deadline_us;
        struct property_list kafka;
};

extern const struct setting relay_settings[];
extern const size_t relay_setting_count;

void relay_config_defaults(struct relay_config *config);

/* Do these belong together?  false: `why` says what does not. */
bool relay_config_check(const struct relay_config *config, char why[SETTING_ERROR_BYTES]);

#endif
