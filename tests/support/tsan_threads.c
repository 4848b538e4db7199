/* SPDX-License-Identifier: Apache-2.0
 *
 * tsan_threads: C11's threads, which librdkafka uses, made of POSIX threads, which are all that the thread
 * sanitizer knows: without it, a thread of librdkafka ends the program.  Part of every program
 * with librdkafka that is built with -Db_sanitize=thread; the linker prefers it to the C library's.
 */
#pragma GCC visibility push(default)

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <threads.h>

/* What librdkafka does inside is not instrumented, and not our business.  libsasl2 closes folders by
 * numbers that libuv's connections had: libuv closes past the sanitizer. */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
        return "race:librdkafka\nmutex:librdkafka\ndeadlock:librdkafka\nthread:librdkafka\n"
               "race:libsasl2\n";
}

/* A process that does not wait for a handler that hangs leaves it, and joins nobody. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
        return "report_thread_leaks=0";
}

static int result_of(int rc)
{
        switch (rc) {
        case 0:
                return thrd_success;
        case EBUSY:
                return thrd_busy;
        case ETIMEDOUT:
                return thrd_timedout;
        default:
                return thrd_error;
        }
}

struct start {
        thrd_start_t fn;
        void *arg;
};

static void *run(void *arg)
{
        struct start start = *(struct start *)arg;
        free(arg);
        return (void *)(intptr_t)start.fn(start.arg);
}

int thrd_create(thrd_t *ret, thrd_start_t fn, void *arg)
{
        struct start *start = malloc(sizeof *start);
        if (!start)
                return thrd_nomem;
        *start = (struct start){fn, arg};
        int rc = pthread_create(ret, NULL, run, start);
        if (rc != 0)
                free(start);
        return result_of(rc);
}

int thrd_join(thrd_t thread, int *ret)
{
        void *value = NULL;
        int rc = pthread_join(thread, &value);
        if (rc == 0 && ret)
                *ret = (int)(intptr_t)value;
        return result_of(rc);
}

int mtx_init(mtx_t *m, int type)
{
        pthread_mutexattr_t attr;
        (void)pthread_mutexattr_init(&attr);
        if (type & mtx_recursive)
                (void)pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
        int rc = pthread_mutex_init((pthread_mutex_t *)m, &attr);
        (void)pthread_mutexattr_destroy(&attr);
        return result_of(rc);
}

void mtx_destroy(mtx_t *m)
{
        (void)pthread_mutex_destroy((pthread_mutex_t *)m);
}

int mtx_lock(mtx_t *m)
{
        return result_of(pthread_mutex_lock((pthread_mutex_t *)m));
}

int mtx_trylock(mtx_t *m)
{
        return result_of(pthread_mutex_trylock((pthread_mutex_t *)m));
}

int mtx_unlock(mtx_t *m)
{
        return result_of(pthread_mutex_unlock((pthread_mutex_t *)m));
}

int cnd_init(cnd_t *c)
{
        return result_of(pthread_cond_init((pthread_cond_t *)c, NULL));
}

void cnd_destroy(cnd_t *c)
{
        (void)pthread_cond_destroy((pthread_cond_t *)c);
}

int cnd_signal(cnd_t *c)
{
        return result_of(pthread_cond_signal((pthread_cond_t *)c));
}

int cnd_broadcast(cnd_t *c)
{
        return result_of(pthread_cond_broadcast((pthread_cond_t *)c));
}

int cnd_wait(cnd_t *c, mtx_t *m)
{
        return result_of(pthread_cond_wait((pthread_cond_t *)c, (pthread_mutex_t *)m));
}

int cnd_timedwait(cnd_t *restrict c, mtx_t *restrict m, const struct timespec *restrict until)
{
        return result_of(pthread_cond_timedwait((pthread_cond_t *)c, (pthread_mutex_t *)m, until));
}

void call_once(once_flag *flag, void (*fn)(void))
{
        (void)pthread_once((pthread_once_t *)flag, fn);
}
