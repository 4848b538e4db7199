/* SPDX-License-Identifier: Apache-2.0
 *
 * notify: see notify.h.
 */
#include "sys/notify.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void notify_manager(const char *state)
{
        const char *path = getenv("NOTIFY_SOCKET");
        struct sockaddr_un addr = {.sun_family = AF_UNIX};
        size_t n = path ? strlen(path) : 0;
        if (n < 2 || n >= sizeof addr.sun_path || (path[0] != '/' && path[0] != '@'))
                return;
        memcpy(addr.sun_path, path, n);
        if (path[0] == '@')
                addr.sun_path[0] = 0; /* an abstract name */
        int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0)
                return;
        (void)sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&addr,
                     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n));
        (void)close(fd);
}

int64_t notify_watchdog_us(void)
{
        const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
        if (!usec || (pid && strtol(pid, NULL, 10) != (long)getpid()))
                return 0;
        long long us = strtoll(usec, NULL, 10);
        return us > 0 ? (int64_t)us : 0;
}
