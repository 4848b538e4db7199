/* SPDX-License-Identifier: Apache-2.0
 *
 * gateway: `semel gateway`, the reverse proxy that honours Idempotency-Key.
 *
 * A main thread has the signals and the admin listener; each worker thread has an event loop with
 * everything else on it: client connections, upstream connections, and a store of its own.
 */
#ifndef APP_GATEWAY_H
#define APP_GATEWAY_H

#include <semel/error.h>

#include "core/gateway_config.h"

/* Run until SIGTERM or SIGINT has been obeyed.
 * store_url  what config->db means.
 * say        gets one line for people at start, at shutdown, and when something is wrong.
 * Returns 0 when drained, 75 when the deadline cut something off; or fills err and returns 64
 * (settings), 69 (the store cannot be used). */
int gateway_run(const struct gateway_config *config, const char *store_url,
                void (*say)(const char *line), semel_error *err);

#endif
