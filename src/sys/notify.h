/* SPDX-License-Identifier: Apache-2.0
 *
 * notify: what a service manager is told (sd_notify's protocol: one datagram to $NOTIFY_SOCKET).
 * Without a manager nothing happens; a failure is nobody's loss.
 */
#ifndef SYS_NOTIFY_H
#define SYS_NOTIFY_H

#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

/* "READY=1", "STOPPING=1", "WATCHDOG=1". */
void notify_manager(const char *state);

/* The same in two steps, for a signal's handler, which may not ask the environment. */
struct notify_target {
        struct sockaddr_un addr;
        socklen_t n; /* 0: nobody */
};
void notify_find(struct notify_target *ret);
void notify_send(const struct notify_target *target, const char *state);

/* How often the manager wants to hear WATCHDOG=1 at least; 0: it does not watch this process. */
int64_t notify_watchdog_us(void);

#endif
