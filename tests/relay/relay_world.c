/* SPDX-License-Identifier: Apache-2.0
 *
 * relay_world: see relay_world.h.  Rows, and the relay's start and end.
 */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "app/relay.h"
#include "base/err.h"
#include "relay_world_internal.h"
#include "sys/sha256.h"
#include "sys/stop.h"

struct world world;

static struct relay_config config;
static pthread_t thread;
static bool started;
static int exit_code;
static pthread_mutex_t said_lock = PTHREAD_MUTEX_INITIALIZER;
static char said[1 << 16];
static size_t said_n;
static char key_bytes[4 << 20];
static size_t key_bytes_n;

void world_pass(int64_t us)
{
        const struct timespec t = {.tv_sec = us / SECOND, .tv_nsec = us % SECOND * 1000};
        if (us > 0)
                (void)ppoll(NULL, 0, &t, NULL);
}

void world_broken(const char *fmt, ...)
{
        va_list ap;
        if (world.broken[0]) /* the first one is the cause */
                return;
        va_start(ap, fmt);
        (void)vsnprintf(world.broken, sizeof world.broken, fmt, ap);
        va_end(ap);
}

struct world_row *world_find(int64_t id)
{
        return id >= 1 && (size_t)id <= world.rows ? &world.row[id - 1] : NULL;
}

void world_settled(struct world_row *row)
{
        world.unmarked -= row->handed;
        row->handed = false;
}

int world_setup(void **state)
{
        (void)state;
        world = (struct world){.members = 1, .request_rows = 8, .topic = "t", .epoch = {0}};
        for (int i = 0; i < EVENT_SLOTS; i++)
                world.epoch[i] = 1;
        (void)pthread_mutex_init(&world.lock, NULL);
        world_db_register();
        said_n = key_bytes_n = 0;
        started = false;
        return 0;
}

int world_teardown(void **state)
{
        (void)state;
        world_stop();
        if (world.broken[0])
                print_error("%s\n", world.broken);
        return world.broken[0] ? -1 : 0;
}

int64_t world_add_row(const char *key, enum outbox_state state, int32_t attempts)
{
        uint8_t digest[32];
        pthread_mutex_lock(&world.lock);
        assert_true(world.rows < WORLD_ROWS_MAX);
        struct world_row *row = &world.row[world.rows++];
        *row = (struct world_row){.id = (int64_t)world.rows, .state = state, .attempts = attempts,
                                  .topic = world.topic};
        int n = snprintf(key_bytes + key_bytes_n, sizeof key_bytes - key_bytes_n, "%s", key ? key : "");
        assert_in_range(n, 0, sizeof key_bytes - key_bytes_n - 1);
        row->key = key_bytes + key_bytes_n;
        key_bytes_n += (size_t)n + 1;
        (void)snprintf(row->payload, sizeof row->payload, "%d", (int)row->id);
        memcpy(row->event_id, &row->id, sizeof row->id);
        assert_int_equal(sha256_once(row->key, strlen(row->key), digest), 0);
        row->slot = (int16_t)(key ? event_slot_of_digest(digest) : (int)(row->id % EVENT_SLOTS));
        int64_t id = row->id;
        pthread_mutex_unlock(&world.lock);
        return id;
}

int64_t world_add(size_t rows, size_t keys)
{
        char key[WORLD_KEY_BYTES];
        int64_t first = 0;
        for (size_t i = 0; i < rows; i++) {
                (void)snprintf(key, sizeof key, "k%d", (int)(i % keys));
                int64_t id = world_add_row(key, OUTBOX_PENDING, 0);
                first = first ? first : id;
        }
        return first;
}

struct relay_config *world_config(enum outbox_mode mode)
{
        relay_config_defaults(&config);
        config.mode = (int)mode;
        (void)snprintf(config.brokers, sizeof config.brokers, "world:1");
        config.batch_rows = 50;
        config.slot_lease_us = 600 * MS;
        config.retry_min_us = 5 * MS;
        config.retry_max_us = 10 * MS;
        config.listen = RELAY_LISTEN_OFF;
        config.shutdown_deadline_us = 5 * SECOND;
        return &config;
}

static void say(const char *line)
{
        pthread_mutex_lock(&said_lock);
        int n = snprintf(said + said_n, sizeof said - said_n, "%s\n", line);
        if (n > 0 && said_n + (size_t)n < sizeof said)
                said_n += (size_t)n;
        pthread_mutex_unlock(&said_lock);
}

bool world_said(const char *words)
{
        pthread_mutex_lock(&said_lock);
        bool found = strstr(said, words) != NULL;
        pthread_mutex_unlock(&said_lock);
        return found;
}

const char *world_said_after(const char *words)
{
        static char rest[200];
        pthread_mutex_lock(&said_lock);
        const char *at = strstr(said, words);
        (void)snprintf(rest, sizeof rest, "%s", at ? at + strlen(words) : "");
        pthread_mutex_unlock(&said_lock);
        rest[strcspn(rest, "\n")] = 0;
        return rest;
}

static void *relay_main(void *arg)
{
        semel_error err = {0};
        (void)arg;
        exit_code = relay_run(&config, "sqlite:world", say, &err);
        if (err.text[0])
                say(err.text);
        return NULL;
}

void world_start(void)
{
        assert_int_equal(pthread_create(&thread, NULL, relay_main, NULL), 0);
        started = true;
}

static bool runs(void)
{
        return world_said("relay to ");
}

void world_stop(void)
{
        if (!started)
                return;
        started = false;
        world_wait(runs, "the relay to run");
        stop_ask();
        (void)pthread_join(thread, NULL);
        if (exit_code != 0)
                print_error("exit code %d\n%s", exit_code, said);
        assert_int_equal(exit_code, 0);
}

void world_wait(bool (*true_now)(void), const char *what)
{
        int64_t end_us = clock_boot_us() + 10 * SECOND;
        while (!true_now()) {
                if (clock_boot_us() > end_us)
                        fail_msg("waited 10 s for %s: handed over %zu, written %zu; %s\n%s", what,
                                 world.handed, world.logged, world.broken, said);
                world_pass(1 * MS);
        }
}

bool world_all_done(void)
{
        bool all = true;
        pthread_mutex_lock(&world.lock);
        for (size_t i = 0; i < world.rows && all; i++)
                all = world.row[i].gone || world.row[i].state == OUTBOX_DEAD;
        pthread_mutex_unlock(&world.lock);
        return all;
}

size_t world_duplicates(void)
{
        static bool seen[WORLD_ROWS_MAX + 1];
        size_t duplicates = 0;
        pthread_mutex_lock(&world.lock);
        memset(seen, 0, sizeof seen);
        for (size_t i = 0; i < world.logged; i++) {
                const struct world_row *row = world_find(world.log[i].id);
                if (seen[row->id]) {
                        duplicates++;
                        continue;
                }
                seen[row->id] = true;
                for (size_t j = 0; j < i && row->key[0]; j++) {
                        const struct world_row *before = world_find(world.log[j].id);
                        if (before->id > row->id && strcmp(before->key, row->key) == 0)
                                world_broken("row %lld of key %s came behind row %lld",
                                             (long long)row->id, row->key, (long long)before->id);
                }
        }
        pthread_mutex_unlock(&world.lock);
        assert_string_equal(world.broken, "");
        return duplicates;
}
