/* SPDX-License-Identifier: Apache-2.0
 *
 * relay: `semel relay`: publishes what committed transactions left in the outbox.
 *
 *     main     signals, admin listener (app/daemon.h)
 *     keeper   is a member, renews, takes and gives slots
 *     watcher  looks whether rows came while lanes are idle, or is told by the database
 *     chores   deletes kept rows whose time is over, counts for the metrics
 *     lanes    each: read a batch, publish it, wait for every report, mark it; then the next
 *
 * What it promises is in docs/relay.md, the rules in docs/rules.md C1..C12.
 */
#ifndef APP_RELAY_H
#define APP_RELAY_H

#include "base/err.h"
#include "core/relay_config.h"

/* Runs until SIGTERM has been obeyed.  The process's exit code; *err says why when it did not even
 * start, or could not go on.
 * store_url  a driver that has an outbox must be registered for it. */
int relay_run(const struct relay_config *config, const char *store_url,
              void (*say)(const char *line), semel_error *err);

#endif
