/* SPDX-License-Identifier: Apache-2.0
 *
 * sqlite_clock: see sqlite_clock.h.
 */
#include "store/sqlite/sqlite_clock.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static int hex_value(char c)
{
        if (c >= '0' && c <= '9')
                return c - '0';
        if (c >= 'a' && c <= 'f')
                return c - 'a' + 10;
        return -1;
}

/* "48ff23b5-1a4e-..." */
static bool boot_id_parse(const char *text, size_t n, struct sqlite_boot_id *ret)
{
        size_t digits = 0;
        for (size_t i = 0; i < n && digits < 2 * sizeof ret->b; i++) {
                int v = hex_value(text[i]);
                if (v < 0)
                        continue;
                uint8_t *b = &ret->b[digits / 2];
                *b = (uint8_t)(digits % 2 ? (*b & 0xf0) | v : v << 4);
                digits++;
        }
        return digits == 2 * sizeof ret->b;
}

semel_code sqlite_boot_id_read(struct sqlite_boot_id *ret, semel_error *err)
{
        static const char path[] = "/proc/sys/kernel/random/boot_id";
        char text[64];
        struct sqlite_boot_id id = {0};
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text);
        int saved = errno;
        if (fd >= 0)
                (void)close(fd);
        if (n < 0)
                return err_set_errno(err, SEMEL_ERR_UNSAFE, saved,
                                     "leases need this boot's id: mount /proc; %s cannot be read",
                                     path);
        if (!boot_id_parse(text, (size_t)n, &id))
                return err_set(err, SEMEL_ERR_UNSAFE, "%s holds no boot id", path);
        *ret = id;
        return SEMEL_OK;
}

void sqlite_mark_init(struct sqlite_mark *mark, const struct sqlite_boot_id *boot_id,
                      int64_t boot_us, int64_t wall_us)
{
        *mark = (struct sqlite_mark){.boot_no = 1,
                                     .boot_id = *boot_id,
                                     .boot_us = boot_us,
                                     .own_us = wall_us,
                                     .settled = true,
                                     .since_us = boot_us};
}

static void mark_unsettle(struct sqlite_mark *mark, int64_t boot_us, int64_t wall_us)
{
        mark->lag_us = wall_us - mark->own_us;
        mark->settled = false;
        mark->since_us = boot_us;
}

void sqlite_mark_reboot(struct sqlite_mark *mark, const struct sqlite_boot_id *boot_id,
                        int64_t boot_us, int64_t wall_us)
{
        int64_t off_us = wall_us - (mark->own_us + mark->lag_us);
        mark->boot_no++;
        mark->boot_id = *boot_id;
        mark->boot_us = boot_us;
        mark->credit_us = off_us > 0 ? off_us : 0;
        mark->own_us += mark->credit_us;
        mark_unsettle(mark, boot_us, wall_us);
}

/* The wall clock stepped by step_us since the mark, which is at boot_us now. */
static void mark_step(struct sqlite_mark *mark, int64_t step_us, int64_t boot_us, int64_t wall_us)
{
        if (!mark->settled && step_us < 0) {
                int64_t back_us = -step_us < mark->credit_us ? -step_us : mark->credit_us;
                mark->own_us -= back_us;
                mark->credit_us -= back_us;
        }
        mark_unsettle(mark, boot_us, wall_us);
}

bool sqlite_mark_read(struct sqlite_mark *mark, int64_t boot_us, int64_t wall_us,
                      struct command_now *ret_now)
{
        /* A boot clock that went back (a restored machine snapshot) stands still for us. */
        int64_t passed_us = boot_us > mark->boot_us ? boot_us - mark->boot_us : 0;
        bool went_back = boot_us < mark->boot_us;
        int64_t own_us = mark->own_us + passed_us;
        int64_t step_us = wall_us - (own_us + mark->lag_us);
        bool stepped = step_us > SQLITE_STEP_US || step_us < -SQLITE_STEP_US;
        bool settles = !stepped && !mark->settled && boot_us - mark->since_us >= SQLITE_SETTLE_US;
        bool changed = stepped || settles || went_back || passed_us >= SQLITE_MARK_EVERY_US;

        if (changed) {
                mark->boot_us = boot_us;
                mark->own_us = own_us;
        }
        if (stepped || went_back) {
                mark_step(mark, step_us, boot_us, wall_us);
        } else if (settles) {
                mark->settled = true;
                mark->credit_us = 0;
        }
        *ret_now = (struct command_now){
                .lease_us = boot_us,
                .wall_us = mark->own_us + (changed ? 0 : passed_us),
                .expiry_frozen = !mark->settled,
        };
        return changed;
}
