/* SPDX-License-Identifier: Apache-2.0
 *
 * operator: see operator.h.
 */
#include "cmd/operator.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/units.h"

const char *operator_name(const struct options *o, char *space)
{
        char host[HOST_NAME_BYTES_MAX];
        const char *user = getenv("SUDO_USER");
        if (option_text(o, OPT_WHO))
                return option_text(o, OPT_WHO);
        if (!user || !*user) {
                const struct passwd *pw = getpwuid(getuid());
                user = pw ? pw->pw_name : "?";
        }
        host_name(host);
        (void)snprintf(space, LIMIT_HOLDER_BYTES + 1, "%s@%s", user, host);
        return space;
}

/* "Z", "+02:00", "" -> seconds east of UTC. */
static bool offset_parse(const char *text, int *ret_s)
{
        int hours, minutes, n = 0;
        char sign;
        *ret_s = 0;
        if (*text == 0 || strcmp(text, "Z") == 0)
                return true;
        if (sscanf(text, "%c%2d:%2d%n", &sign, &hours, &minutes, &n) != 3 || text[n] ||
            (sign != '+' && sign != '-') || hours > 14 || minutes > 59)
                return false;
        *ret_s = (hours * 60 + minutes) * (sign == '+' ? 60 : -60);
        return true;
}

bool when_parse(const char *text, int64_t now_us, int64_t *ret_us)
{
        int64_t ago_ms;
        int east_s = 0;
        if (duration_parse_ms(text, &ago_ms) == UNITS_OK) {
                if (ago_ms > now_us / 1000)
                        return false;
                *ret_us = now_us - ago_ms * 1000;
                return true;
        }
        struct tm tm = {0};
        const char *rest = strptime(text, "%Y-%m-%d", &tm);
        if (rest && (*rest == 'T' || *rest == ' '))
                rest = strptime(rest + 1, "%H:%M:%S", &tm);
        else if (rest && *rest)
                rest = NULL;
        if (rest && *rest == '.')
                rest += 1 + strspn(rest + 1, "0123456789"); /* seconds are fine enough */
        if (!rest || !offset_parse(rest, &east_s))
                return false;
        *ret_us = ((int64_t)timegm(&tm) - east_s) * 1000000;
        return true;
}
