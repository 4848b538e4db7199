/* SPDX-License-Identifier: Apache-2.0
 *
 * holder: see holder.h.
 */
#include "cmd/holder.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "sys/host.h"
#include "sys/lock_file.h"

/* The value of "name=" up to the next space; of the last field up to the end, since a path
 * may hold spaces. */
static void field(const char *label, const char *name, bool last, char *ret, size_t ret_max)
{
        size_t n = strlen(name);
        ret[0] = 0;
        for (const char *p = label; p; p = strchr(p, ' ')) {
                p += strspn(p, " ");
                if (strncmp(p, name, n) != 0)
                        continue;
                p += n;
                size_t len = last ? strlen(p) : strcspn(p, " ");
                if (len >= ret_max)
                        return;
                memcpy(ret, p, len);
                ret[len] = 0;
                return;
        }
}

void holder_parse(const char *label, struct holder *ret)
{
        field(label, "host=", false, ret->host, sizeof ret->host);
        field(label, "pid=", false, ret->pid, sizeof ret->pid);
        field(label, "boot=", false, ret->boot, sizeof ret->boot);
        field(label, "lock=", true, ret->lock, sizeof ret->lock);
}

bool holder_format(const char *lock_path, char *ret)
{
        char host[HOST_NAME_BYTES_MAX], boot[HOST_BOOT_BYTES_MAX];
        host_name(host);
        host_boot_id(boot);
        int n = snprintf(ret, LIMIT_HOLDER_BYTES + 1, "host=%s pid=%ld boot=%s lock=%s", host,
                         (long)getpid(), boot, lock_path);
        return n > 0 && n <= LIMIT_HOLDER_BYTES;
}

enum holder_life holder_look(const struct holder *h)
{
        char host[HOST_NAME_BYTES_MAX], boot[HOST_BOOT_BYTES_MAX];
        if (!h->lock[0])
                return HOLDER_NO_LOCK;
        host_name(host);
        host_boot_id(boot);
        if (strcmp(h->host, host) != 0)
                return HOLDER_ELSEWHERE;
        if (strcmp(h->boot, boot) != 0)
                return HOLDER_REBOOTED;
        switch (lock_file_test(h->lock)) {
        case 0:
                return HOLDER_GONE;
        case 1:
                return HOLDER_ALIVE;
        default:
                return HOLDER_UNREADABLE;
        }
}

const char *holder_life_text(enum holder_life life)
{
        switch (life) {
        case HOLDER_NO_LOCK:
                return "";
        case HOLDER_ELSEWHERE:
                return "on another host: look there whether it still runs";
        case HOLDER_REBOOTED:
                return "gone: this host was started again since";
        case HOLDER_ALIVE:
                return "alive on this host: it, or its command, holds the lock";
        case HOLDER_GONE:
                return "gone: nobody on this host holds the lock";
        case HOLDER_UNREADABLE:
                break;
        }
        return "unknown: this user may not look at the lock";
}
