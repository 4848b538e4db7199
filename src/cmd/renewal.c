/* SPDX-License-Identifier: Apache-2.0
 *
 * renewal: see renewal.h.
 */
#include "cmd/renewal.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/err.h"
#include "cmd/say.h"

static bool stopped_within(const struct renewal *r, int64_t ms)
{
        struct pollfd pfd = {.fd = r->stop_fd, .events = POLLIN};
        int rc;
        do
                rc = poll(&pfd, 1, (int)ms); /* a lease is at most a day: it fits */
        while (rc < 0 && errno == EINTR);
        return rc != 0;
}

static void *renew(void *arg)
{
        struct renewal *r = arg;
        struct semel_error err = {0};
        const int64_t regular_ms = r->lease_ms / 3;
        const int64_t again_ms = r->lease_ms / 10 < 1000 ? r->lease_ms / 10 : 1000;
        int64_t pause_ms = regular_ms;
        while (!stopped_within(r, pause_ms)) {
                semel_code code = semel_extend(r->claim, r->lease_ms, &err);
                if (code == SEMEL_OK) {
                        if (pause_ms == again_ms)
                                say_note("the lease is renewed again");
                        pause_ms = regular_ms;
                        continue;
                }
                if (code == SEMEL_ERR_LOST) {
                        say_error("THE CLAIM IS LOST: its lease was over before it was renewed, so "
                                  "others may decide about the key, or have; the command goes on, "
                                  "and its result is recorded only if nobody else has decided");
                        break;
                }
                if (pause_ms != again_ms)
                        say_error("the lease could not be renewed and ends in %lld s, trying again: "
                                  "%s",
                                  (long long)(semel_claim_lease_left_ms(r->claim) / 1000),
                                  err.text);
                pause_ms = again_ms;
        }
        return NULL;
}

int renewal_start(struct renewal *r, semel_claim *claim, int64_t lease_ms)
{
        *r = (struct renewal){.claim = claim, .lease_ms = lease_ms};
        r->stop_fd = eventfd(0, EFD_CLOEXEC);
        if (r->stop_fd < 0)
                return -1;
        int rc = pthread_create(&r->thread, NULL, renew, r);
        if (rc != 0) {
                (void)close(r->stop_fd);
                errno = rc;
                return -1;
        }
        return 0;
}

void renewal_stop(struct renewal *r)
{
        (void)eventfd_write(r->stop_fd, 1);
        (void)pthread_join(r->thread, NULL);
        (void)close(r->stop_fd);
}
