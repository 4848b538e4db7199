/* SPDX-License-Identifier: Apache-2.0
 *
 * say: see say.h.
 */
#include "cmd/say.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool quiet_now;

void say_quiet(bool quiet)
{
        quiet_now = quiet;
}

/* One write, so that ten processes with one log keep their lines whole. */
__attribute__((format(printf, 1, 0)))
static void say(const char *fmt, va_list ap)
{
        char line[1200] = "semel: ";
        size_t n = strlen(line);
        int more = vsnprintf(line + n, sizeof line - n - 1, fmt, ap);
        if (more < 0)
                return;
        n = strlen(line);
        line[n++] = '\n';
        ssize_t written = write(STDERR_FILENO, line, n);
        (void)written; /* nowhere left to say it */
}

void say_error(const char *fmt, ...)
{
        va_list ap;
        va_start(ap, fmt);
        say(fmt, ap);
        va_end(ap);
}

void say_note(const char *fmt, ...)
{
        if (quiet_now)
                return;
        va_list ap;
        va_start(ap, fmt);
        say(fmt, ap);
        va_end(ap);
}

static int exit_code_of(const semel_error *err)
{
        switch (semel_error_code(err)) {
        case SEMEL_OK:
                return EXIT_CODE_DONE;
        case SEMEL_ERR_ARGUMENT:
        case SEMEL_ERR_URL:
        case SEMEL_ERR_NOT_LINKED:
        case SEMEL_ERR_KEY:
        case SEMEL_ERR_TOO_LARGE:
                return EXIT_CODE_USAGE;
        case SEMEL_ERR_LOST:
        case SEMEL_ERR_NOT_FOUND:
        case SEMEL_ERR_REFUSED:
                return EXIT_CODE_REJECTED;
        case SEMEL_ERR_BUSY:
        case SEMEL_ERR_CONFLICT:
                return EXIT_CODE_IN_FLIGHT;
        case SEMEL_ERR_UNKNOWN:
                return EXIT_CODE_UNKNOWN;
        default:
                return EXIT_CODE_DOWN;
        }
}

void say_line(const char *line)
{
        say_note("%s", line);
}

int say_failure(const semel_error *err)
{
        say_error("%s", semel_error_text(err));
        return exit_code_of(err);
}

int say_flush(void)
{
        if (fflush(stdout) == 0 && !ferror(stdout))
                return EXIT_CODE_DONE;
        say_error("cannot write to stdout: %s", strerrordesc_np(errno));
        return EXIT_CODE_DOWN;
}

const char *text_printable(struct span text, char *ret, size_t ret_max)
{
        size_t at = 0;
        for (size_t i = 0; i < text.n && at + 5 < ret_max; i++) {
                uint8_t c = text.p[i];
                if (c >= 0x20 && c != 0x7f)
                        ret[at++] = (char)c;
                else
                        at += (size_t)snprintf(ret + at, ret_max - at, "\\x%02x", c);
        }
        ret[at] = 0;
        return ret;
}
