/* SPDX-License-Identifier: Apache-2.0
 *
 * sqlite_clock: the time of one SQLite file (rule A6).  Pure: clocks in, decisions out.
 *
 * A file has no clock of its own as a server has, and the host's two clocks fail differently:
 * CLOCK_BOOTTIME never steps but starts again with each boot, and the wall clock steps.  So each
 * file keeps a mark in its meta row, and two times follow from it:
 *
 *   lease time   CLOCK_BOOTTIME, together with the number of the boot.  A row of another boot has
 *                no lease, and its request is long gone: the process that sent it is.
 *   own calendar what the wall clock was at the mark, plus the boot time since.  Within a boot it
 *                never steps, whatever the wall clock does.  Rows are kept on it: the distance
 *                between two of its times is time that really passed.
 *
 *   shown time = own calendar + lag, where lag is the sum of the wall clock's steps so far.  It is
 *   what people read; no decision looks at it.
 *
 * Nothing expires (`expiry_frozen`) while the wall clock is more than a second away from the shown
 * time.  The way out: the new distance is taken into the lag, and when the wall clock has kept to it
 * for SQLITE_SETTLE_US the file is settled and rows expire again.  As rows live on the own
 * calendar, which did not step, a step only delays expiry and never brings it forward.
 *
 * After a reboot nobody can know how long the machine was off, except from the wall clock, which a
 * dead battery sets to anything.  The time off is credited to the own calendar at once (so that what
 * is written now is not kept too short), nothing expires until settled, and while unsettled a step
 * back of the wall clock takes the credit back.  A step forward is not credited: rows are kept
 * longer.
 */
#ifndef STORE_SQLITE_CLOCK_H
#define STORE_SQLITE_CLOCK_H

#include "base/err.h"
#include "core/command.h"

enum { SQLITE_BOOT_ID_BYTES = 16 };

/* More than this between wall clock and shown time is a step. */
#define SQLITE_STEP_US INT64_C(1000000)
/* An NTP client steps once or twice, within some ten seconds after it started. */
#define SQLITE_SETTLE_US INT64_C(60000000)
/* The mark is written anew this often, so that a reboot loses track of no more than this. */
#define SQLITE_MARK_EVERY_US INT64_C(10000000)

struct sqlite_boot_id {
        uint8_t b[SQLITE_BOOT_ID_BYTES];
};

/* The meta row. */
struct sqlite_mark {
        int64_t boot_no; /* rises with each boot that uses the file */
        struct sqlite_boot_id boot_id;
        int64_t boot_us;   /* CLOCK_BOOTTIME when the mark was made */
        int64_t own_us;    /* own calendar then */
        int64_t lag_us;    /* shown time - own calendar */
        bool settled;
        int64_t since_us;  /* CLOCK_BOOTTIME since when the wall clock keeps to the mark */
        int64_t credit_us; /* time off that was credited and may be taken back */
};

/* This host's boot id. */
semel_code sqlite_boot_id_read(struct sqlite_boot_id *ret, semel_error *err);

/* The mark of a new file. */
void sqlite_mark_init(struct sqlite_mark *mark, const struct sqlite_boot_id *boot_id,
                      int64_t boot_us, int64_t wall_us);

/* The file is used in another boot than the mark's. */
void sqlite_mark_reboot(struct sqlite_mark *mark, const struct sqlite_boot_id *boot_id,
                        int64_t boot_us, int64_t wall_us);

/* What time is it?  `ret_now->wall_us` is the own calendar.  True: the mark changed, and a
 * writer writes it. */
bool sqlite_mark_read(struct sqlite_mark *mark, int64_t boot_us, int64_t wall_us,
                      struct command_now *ret_now);

#endif
