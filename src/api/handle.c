/* SPDX-License-Identifier: Apache-2.0
 *
 * handle: see handle.h.
 */
#include "api/handle.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "api/registry.h"
#include "base/err.h"

struct semel_store {
        struct store *st; /* only the thread touches it once it runs */
        pthread_t thread;
        int wake_fd;
        int64_t call_timeout_us;
        char holder[LIMIT_HOLDER_BYTES + 1];
        struct held *held;

        pthread_mutex_t lock; /* guards what follows */
        struct store_op *incoming, **incoming_last;
        bool asleep;   /* the thread polls: it needs the eventfd to notice */
        bool stopping;

        size_t outstanding; /* the thread's own: submitted and not done */
};

/* One sleeping caller. */
struct call {
        semel_store *h;
        sem_t done;
};

static void call_done(struct store_op *op)
{
        struct call *call = op->arg;
        call->h->outstanding--;
        (void)sem_post(&call->done);
}

static void wake(semel_store *h)
{
        const uint64_t one = 1;
        ssize_t n;
        do
                n = write(h->wake_fd, &one, sizeof one);
        while (n < 0 && errno == EINTR);
}

/* Hand what has come in to the driver.  Returns false when it is time to stop. */
static bool take_incoming(semel_store *h)
{
        pthread_mutex_lock(&h->lock);
        h->asleep = false;
        struct store_op *op = h->incoming;
        h->incoming = NULL;
        h->incoming_last = &h->incoming;
        bool stopping = h->stopping;
        pthread_mutex_unlock(&h->lock);

        while (op) {
                struct store_op *next = op->next;
                h->outstanding++;
                store_submit(h->st, op);
                op = next;
        }
        return !stopping || h->outstanding > 0;
}

/* NULL: for ever. */
static const struct timespec *timeout_of(int64_t deadline_us, int64_t now_us, struct timespec *ts)
{
        if (deadline_us == INT64_MAX)
                return NULL;
        int64_t left_us = deadline_us - now_us;
        left_us = left_us < 0 ? 0 : left_us > 60 * SECOND ? 60 * SECOND : left_us;
        *ts = (struct timespec){.tv_sec = left_us / SECOND, .tv_nsec = left_us % SECOND * 1000};
        return ts;
}

/* Say "asleep" unless something has come in meanwhile. */
static bool fall_asleep(semel_store *h)
{
        pthread_mutex_lock(&h->lock);
        h->asleep = h->incoming == NULL && (!h->stopping || h->outstanding > 0);
        bool asleep = h->asleep;
        pthread_mutex_unlock(&h->lock);
        return asleep;
}

static void *run_thread(void *arg)
{
        semel_store *h = arg;
        const struct store_vt *vt = h->st->vt;
        while (take_incoming(h)) {
                vt->step(h->st);
                struct timespec ts;
                int64_t now_us = clock_boot_us();
                int64_t deadline_us = vt->deadline_us(h->st);
                int64_t full_us = vt->full_until_us ? vt->full_until_us(h->st) : 0;
                struct pollfd fds[2] = {
                        {.fd = vt->fd(h->st), .events = vt->events(h->st)},
                        {.fd = h->wake_fd, .events = POLLIN},
                };
                if (full_us > now_us) { /* what comes in can wait: let nobody wake this thread */
                        if (full_us < deadline_us)
                                deadline_us = full_us;
                        (void)ppoll(fds, 1, timeout_of(deadline_us, now_us, &ts), NULL);
                        continue;
                }
                if (deadline_us > now_us && !fall_asleep(h))
                        deadline_us = 0;
                if (ppoll(fds, 2, timeout_of(deadline_us, now_us, &ts), NULL) > 0 &&
                    (fds[1].revents & POLLIN)) {
                        uint64_t count;
                        (void)!read(h->wake_fd, &count, sizeof count);
                }
        }
        return NULL;
}

/* The operation is the caller's, mostly on its stack: a thread that is cancelled stays until it has come
 * back. */
semel_code handle_call(semel_store *h, struct store_op *op, semel_error *err)
{
        struct call call = {.h = h};
        int cancel_state;
        (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
        (void)sem_init(&call.done, 0, 0);
        op->arg = &call;
        op->done = call_done;
        op->next = NULL;
        op->deadline_us = clock_boot_us() + h->call_timeout_us;

        pthread_mutex_lock(&h->lock);
        *h->incoming_last = op;
        h->incoming_last = &op->next;
        bool asleep = h->asleep;
        h->asleep = false; /* one wake-up is enough */
        pthread_mutex_unlock(&h->lock);
        if (asleep)
                wake(h);

        while (sem_wait(&call.done) != 0)
                ; /* EINTR */
        (void)sem_destroy(&call.done);
        (void)pthread_setcancelstate(cancel_state, NULL);
        return err_copy(err, &op->err);
}

struct span handle_holder(const semel_store *h)
{
        return span_str(h->holder);
}

int64_t handle_call_timeout_us(const semel_store *h)
{
        return h->call_timeout_us;
}

struct held *handle_held(semel_store *h)
{
        return h->held;
}

/* The thread must not take signals that are meant for the program. */
static int start_thread(semel_store *h)
{
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        int rc = pthread_create(&h->thread, NULL, run_thread, h);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        return rc;
}

static void handle_free(semel_store *h)
{
        if (h->st)
                h->st->vt->close(h->st);
        if (h->wake_fd >= 0)
                (void)close(h->wake_fd);
        held_free(h->held);
        (void)pthread_mutex_destroy(&h->lock);
        free(h);
}

semel_code semel_store_open(const char *url, semel_store **ret_store, semel_error *err)
{
        const struct store_env env = {.clock = &sys_clock_host, .sleeping_callers = true};
        const struct store_driver *driver;
        err_clear(err);
        semel_code code = registry_find(url, &driver, err);
        if (code != SEMEL_OK)
                return code;

        semel_store *h = calloc(1, sizeof *h);
        if (!h)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a store handle");
        (void)pthread_mutex_init(&h->lock, NULL);
        h->incoming_last = &h->incoming;
        h->call_timeout_us = DEFAULT_CALL_TIMEOUT_US;
        h->held = held_new();
        h->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        char host[128] = "?";
        (void)gethostname(host, sizeof host - 1);
        (void)snprintf(h->holder, sizeof h->holder, "host=%.127s pid=%ld", host, (long)getpid());

        if (!h->held)
                code = err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a store handle");
        else if (h->wake_fd < 0)
                code = err_set_errno(err, SEMEL_ERR_INTERNAL, errno, "no eventfd");
        else
                code = driver->open(url, &env, &h->st, err);
        if (code == SEMEL_OK) {
                int rc = start_thread(h);
                if (rc != 0)
                        code = err_set_errno(err, SEMEL_ERR_INTERNAL, rc, "no thread for the store");
        }
        if (code != SEMEL_OK)
                handle_free(h);
        else
                *ret_store = h;
        return code;
}

void semel_store_close(semel_store *h)
{
        if (!h)
                return;
        pthread_mutex_lock(&h->lock);
        h->stopping = true;
        pthread_mutex_unlock(&h->lock);
        wake(h);
        (void)pthread_join(h->thread, NULL);
        handle_free(h);
}

semel_code semel_store_set_call_timeout_ms(semel_store *h, int64_t timeout_ms, semel_error *err)
{
        if (timeout_ms < 100 || timeout_ms > 60000)
                return err_set(err, SEMEL_ERR_ARGUMENT,
                               "a call timeout must be 100 to 60000 ms, not %lld",
                               (long long)timeout_ms);
        h->call_timeout_us = timeout_ms * MS;
        return SEMEL_OK;
}

semel_code semel_store_migrate(const char *url, semel_error *err)
{
        const struct store_driver *driver;
        err_clear(err);
        semel_code code = registry_find(url, &driver, err);
        return code == SEMEL_OK ? driver->migrate(url, err) : code;
}

semel_code semel_store_print(const char *url, const char *what, const char *role,
                             void (*out)(void *arg, const char *text), void *arg,
                             semel_error *err)
{
        enum { SCRIPT_BYTES_MAX = 1024 * 1024 };
        const struct store_driver *driver;
        err_clear(err);
        semel_code code = registry_find(url, &driver, err);
        if (code != SEMEL_OK)
                return code;
        struct buf text;
        buf_init(&text, SCRIPT_BYTES_MAX);
        code = driver->print(what, role, &text, err);
        const char *cstr = code == SEMEL_OK ? buf_cstr(&text) : NULL;
        if (cstr)
                out(arg, cstr);
        else if (code == SEMEL_OK)
                code = err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for the script");
        buf_release(&text);
        return code;
}
