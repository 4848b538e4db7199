/* SPDX-License-Identifier: Apache-2.0
 *
 * host: see host.h.
 */
#include "sys/host.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

void host_name(char *ret)
{
        char name[HOST_NAME_BYTES_MAX] = "";
        (void)gethostname(name, sizeof name - 1);
        if (!name[0])
                name[0] = '?';
        for (char *p = name; *p; p++)
                if (*p <= ' ' || *p == 0x7f)
                        *p = '_';
        memcpy(ret, name, strlen(name) + 1);
}

void host_boot_id(char *ret)
{
        char id[HOST_BOOT_BYTES_MAX] = "";
        int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : read(fd, id, sizeof id - 1);
        if (fd >= 0)
                (void)close(fd);
        if (n != (ssize_t)sizeof id - 1)
                memcpy(id, "?", 2);
        memcpy(ret, id, strlen(id) + 1);
}
