/* SPDX-License-Identifier: Apache-2.0
 *
 * notify: see notify.h.
 */
#include "sys/notify.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void notify_find(struct notify_target *ret)
{
        const char *path = getenv("NOTIFY_SOCKET");
        struct sockaddr_un addr = {.sun_family = AF_UNIX};
        size_t n = path ? strlen(path) : 0;
        ret->n = 0;
        if (n < 2 || n >= sizeof addr.sun_path || (path[0] != '/' && path[0] != '@'))
                return;
        memcpy(addr.sun_path, path, n);
        if (path[0] == '@')
                addr.sun_path[0] = 0; /* an abstract name */
        ret->addr = addr;
        ret->n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
}

void notify_send(const struct notify_target *target, const char *state)
{
        if (target->n == 0)
                return;
        int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0)
                return;
        (void)sendto(fd, state, strlen(state), MSG_NOSIGNAL,
                     (const struct sockaddr *)&target->addr, target->n);
        (void)close(fd);
}

void notify_manager(const char *state)
{
        struct notify_target target;
        notify_find(&target);
        notify_send(&target, state);
}

int64_t notify_watchdog_us(void)
{
        const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
        if (!usec || (pid && strtol(pid, NULL, 10) != (long)getpid()))
                return 0;
        long long us = strtoll(usec, NULL, 10);
        return us > 0 ? (int64_t)us : 0;
}
