/* SPDX-License-Identifier: Apache-2.0
 *
 * http: the listener (libmicrohttpd), a thread per connection.
 */
#ifndef SHOP_HTTP_H
#define SHOP_HTTP_H

#include "shop.h"

struct http;

/* Listen on "HOST:PORT" (port 0: any free one) and serve.  NULL: `why` says why.
 * ret_port  the port it got. */
struct http *http_start(struct shop *shop, const char *address, char *why, int *ret_port);

/* Stop accepting; replies from now on say `Connection: close`.  When the last running request
 * has been answered, the process gets SIGUSR1 (also when none was running). */
void http_drain(struct http *http);
int http_running(struct http *http);

/* Close what is still open and free it.  Waits for running requests. */
void http_stop(struct http *http);

#endif
