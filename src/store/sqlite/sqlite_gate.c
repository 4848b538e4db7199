/* SPDX-License-Identifier: Apache-2.0
 *
 * sqlite_gate: see sqlite_gate.h.
 */
#include "store/sqlite/sqlite_gate.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum gate_byte { BYTE_GATE, BYTE_WAITING, BYTE_LIVE, BYTE_OPENING, BYTE_RELAY };

enum {
        POLL_FIRST_US = 100,
        POLL_LAST_US = 2000,
        PAUSE_POLL_US = 100,
        PAUSE_US = 4000, /* twice the slowest poll: a waiter that runs at all gets in */
};

static void nap(int us)
{
        const struct timespec ts = {.tv_nsec = (long)us * 1000};
        (void)nanosleep(&ts, NULL);
}

static struct flock byte_lock(enum gate_byte byte, short type)
{
        return (struct flock){
                .l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)byte, .l_len = 1};
}

static bool set_lock(const struct sqlite_gate *gate, enum gate_byte byte, short type)
{
        struct flock fl = byte_lock(byte, type);
        return fcntl(gate->fd, F_OFD_SETLK, &fl) == 0;
}

/* Would a lock of this type on this byte have to wait for somebody? */
static bool held_by_others(const struct sqlite_gate *gate, enum gate_byte byte, short type)
{
        struct flock fl = byte_lock(byte, type);
        return fcntl(gate->fd, F_OFD_GETLK, &fl) == 0 && fl.l_type != F_UNLCK;
}

/* Ask again and again, more slowly each time, for at most wait_ms. */
static bool poll_lock(const struct sqlite_gate *gate, enum gate_byte byte, int wait_ms)
{
        int us = POLL_FIRST_US;
        for (int64_t waited = 0; waited < (int64_t)wait_ms * 1000; waited += us) {
                if (set_lock(gate, byte, F_WRLCK))
                        return true;
                if (us < POLL_LAST_US)
                        us += us / 2;
                nap(us);
        }
        return false;
}

semel_code gate_open(struct sqlite_gate *gate, const char *path, semel_error *err)
{
        char *name = NULL;
        gate->fd = -1;
        gate->inside = false;
        if (asprintf(&name, "%s-semel-lock", path) < 0)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a file name");
        int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        semel_code code = SEMEL_OK;
        if (fd < 0)
                code = err_set_errno(err,
                                     errno == EROFS || errno == EACCES ? SEMEL_ERR_STORE_READ_ONLY
                                     : errno == ENOSPC || errno == EDQUOT
                                             ? SEMEL_ERR_STORE_FULL
                                             : SEMEL_ERR_STORE_DOWN,
                                     errno, "%s, which the store's processes queue at, cannot be "
                                     "opened: make the directory writable", name);
        free(name);
        if (code == SEMEL_OK)
                gate->fd = fd;
        return code;
}

void gate_close(struct sqlite_gate *gate)
{
        if (gate->fd >= 0)
                (void)close(gate->fd); /* the locks go with it */
        gate->fd = -1;
        gate->inside = false;
}

void gate_enter(struct sqlite_gate *gate)
{
        gate->inside = set_lock(gate, BYTE_GATE, F_WRLCK);
        if (gate->inside)
                return;
        (void)set_lock(gate, BYTE_WAITING, F_RDLCK);
        gate->inside = poll_lock(gate, BYTE_GATE, GATE_WAIT_MS);
        (void)set_lock(gate, BYTE_WAITING, F_UNLCK);
}

void gate_leave(struct sqlite_gate *gate)
{
        if (gate->inside)
                (void)set_lock(gate, BYTE_GATE, F_UNLCK);
        gate->inside = false;
        for (int us = 0; us < PAUSE_US; us += PAUSE_POLL_US) {
                if (!held_by_others(gate, BYTE_WAITING, F_WRLCK) ||
                    held_by_others(gate, BYTE_GATE, F_WRLCK))
                        return;
                nap(PAUSE_POLL_US);
        }
}

bool gate_opening_lock(struct sqlite_gate *gate)
{
        return poll_lock(gate, BYTE_OPENING, GATE_OPEN_WAIT_MS);
}

void gate_opening_unlock(struct sqlite_gate *gate)
{
        (void)set_lock(gate, BYTE_OPENING, F_UNLCK);
}

void gate_set_live(struct sqlite_gate *gate)
{
        (void)set_lock(gate, BYTE_LIVE, F_RDLCK);
}

bool gate_others_live(const struct sqlite_gate *gate)
{
        return held_by_others(gate, BYTE_LIVE, F_WRLCK);
}

bool gate_relay_take(struct sqlite_gate *gate)
{
        return set_lock(gate, BYTE_RELAY, F_WRLCK);
}

void gate_relay_give(struct sqlite_gate *gate)
{
        (void)set_lock(gate, BYTE_RELAY, F_UNLCK);
}

bool gate_relay_elsewhere(const struct sqlite_gate *gate)
{
        return held_by_others(gate, BYTE_RELAY, F_WRLCK);
}
