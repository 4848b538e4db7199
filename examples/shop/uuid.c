/* SPDX-License-Identifier: Apache-2.0
 *
 * uuid: see uuid.h.
 */
#include "uuid.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

int64_t now_us(void)
{
        struct timespec ts;
        clock_gettime(CLOCK_REALTIME, &ts);
        return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

bool uuid_make(char ret[UUID_TEXT_BYTES])
{
        uint8_t r[8];
        uint64_t us = (uint64_t)now_us(), ms = us / 1000;
        /* Twelve bits within the millisecond (RFC 9562 section 6.2, method 3): ids of one process
         * that are made one after the other sort so. */
        unsigned fraction = (unsigned)(us % 1000 * 4096 / 1000);
        if (getrandom(r, sizeof r, 0) != (ssize_t)sizeof r)
                return false;
        snprintf(ret, UUID_TEXT_BYTES, "%08x-%04x-%04x-%04x-%02x%02x%02x%02x%02x%02x",
                 (unsigned)(ms >> 16 & 0xffffffff), (unsigned)(ms & 0xffff),
                 0x7000U | fraction, 0x8000U | (r[0] & 0x3fU) << 8 | r[1], r[2], r[3], r[4], r[5], r[6],
                 r[7]);
        return true;
}

bool uuid_parse(const char *text, char ret[UUID_TEXT_BYTES])
{
        char out[UUID_TEXT_BYTES];
        if (strlen(text) != UUID_TEXT_BYTES - 1)
                return false;
        for (int i = 0; i < UUID_TEXT_BYTES - 1; i++) {
                char c = text[i];
                bool dash = i == 8 || i == 13 || i == 18 || i == 23;
                if (c >= 'A' && c <= 'F')
                        c = (char)(c - 'A' + 'a');
                if (dash ? c != '-' : !((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
                        return false;
                out[i] = c;
        }
        out[UUID_TEXT_BYTES - 1] = '\0';
        memcpy(ret, out, sizeof out);
        return true;
}
