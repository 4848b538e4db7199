/* SPDX-License-Identifier: Apache-2.0
 *
 * http_load: N keep-alive connections that send one request after the other.
 *
 * One epoll loop in one thread, so that the measuring costs little on the machine that is
 * measured, and a process of its own, so that its descriptors are not the server's.
 *
 *     http_load PORT CONNECTIONS SECONDS KEY [MOST [TARGET [BODY]]]
 *
 * KEY   none       no key
 *       seq:TEXT   a key for each request: TEXT-0, TEXT-1, ...  The same TEXT again replays.
 *       one:TEXT   the same key for all
 * MOST  stop after so many requests; 0: when the time is over.
 *
 * POST with BODY.  One line of JSON: requests, per second, latencies, how many of each status.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { REPLY_MAX = 8192, SAMPLES_MAX = 4 * 1000 * 1000, EVENTS = 512, STATUS_MAX = 600 };

struct conn {
        int fd;
        long long sent_us;
        size_t n;
        char reply[REPLY_MAX];
};

static struct {
        int port;
        const char *key, *target, *body;
        long most, sequence, done;
        long statuses[STATUS_MAX];
        uint32_t *samples;
} load;

static long long now_us(void)
{
        struct timespec ts;
        clock_gettime(CLOCK_MONOTONIC, &ts);
        return (long long)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

static void die(const char *what)
{
        perror(what);
        exit(1);
}

static int conn_open(void)
{
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)load.port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
        if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) != 0)
                die("connect");
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        return fd;
}

static void conn_send(struct conn *c)
{
        char req[4096], key[300] = "";
        if (strncmp(load.key, "seq:", 4) == 0)
                snprintf(key, sizeof key, "Idempotency-Key: %s-%ld\r\n", load.key + 4,
                         load.sequence++);
        else if (strncmp(load.key, "one:", 4) == 0)
                snprintf(key, sizeof key, "Idempotency-Key: %s\r\n", load.key + 4);
        int n = snprintf(req, sizeof req,
                         "POST %s HTTP/1.1\r\nHost: bench.test\r\nContent-Type: application/json\r\n"
                         "%sContent-Length: %zu\r\n\r\n%s",
                         load.target, key, strlen(load.body), load.body);
        c->n = 0;
        c->sent_us = now_us();
        if (write(c->fd, req, (size_t)n) != n)
                die("write");
}

/* 1: the reply is whole. */
static int conn_read(struct conn *c)
{
        ssize_t n = read(c->fd, c->reply + c->n, REPLY_MAX - 1 - c->n);
        if (n <= 0) {
                fprintf(stderr, "a connection was lost after %ld requests\n", load.done);
                exit(1);
        }
        c->n += (size_t)n;
        c->reply[c->n] = '\0';
        const char *end = strstr(c->reply, "\r\n\r\n");
        if (!end)
                return 0;
        const char *length = strcasestr(c->reply, "Content-Length:");
        if (length && c->n < (size_t)(end + 4 - c->reply) + strtoul(length + 15, NULL, 10))
                return 0;
        long status = strtol(c->reply + 9, NULL, 10);
        if (status > 0 && status < STATUS_MAX && load.statuses[status]++ == 0 && status >= 400)
                fprintf(stderr, "%s\n", c->reply);
        if (load.done < SAMPLES_MAX)
                load.samples[load.done] = (uint32_t)(now_us() - c->sent_us);
        load.done++;
        return 1;
}

static int compare(const void *a, const void *b)
{
        uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
        return (x > y) - (x < y);
}

static void report(long long us)
{
        size_t n = (size_t)(load.done < SAMPLES_MAX ? load.done : SAMPLES_MAX);
        qsort(load.samples, n, sizeof *load.samples, compare);
        printf("{\"requests\": %ld, \"per_s\": %.1f, \"p50_ms\": %.3f, \"p99_ms\": %.3f, "
               "\"statuses\": {",
               load.done, (double)load.done * 1e6 / (double)us,
               n ? load.samples[n / 2] / 1e3 : 0.0, n ? load.samples[n * 99 / 100] / 1e3 : 0.0);
        const char *comma = "";
        for (int s = 0; s < STATUS_MAX; s++)
                if (load.statuses[s] > 0) {
                        printf("%s\"%d\": %ld", comma, s, load.statuses[s]);
                        comma = ", ";
                }
        printf("}}\n");
}

static void run(struct conn *conns, long n, long long seconds)
{
        struct epoll_event events[EVENTS];
        int ep = epoll_create1(0);
        for (long i = 0; i < n; i++) {
                conns[i].fd = conn_open();
                struct epoll_event e = {.events = EPOLLIN, .data.ptr = &conns[i]};
                epoll_ctl(ep, EPOLL_CTL_ADD, conns[i].fd, &e);
        }
        long long begin = now_us(), end = begin + seconds * 1000000;
        for (long i = 0; i < n; i++)
                conn_send(&conns[i]);
        while (now_us() < end && (load.most == 0 || load.done < load.most)) {
                int got = epoll_wait(ep, events, EVENTS, 100);
                for (int i = 0; i < got; i++) {
                        struct conn *c = events[i].data.ptr;
                        if (conn_read(c) && (load.most == 0 || load.sequence < load.most))
                                conn_send(c);
                }
        }
        report(now_us() - begin);
}

int main(int argc, char **argv)
{
        if (argc < 5 || argc > 8) {
                fprintf(stderr, "usage: http_load PORT CONNECTIONS SECONDS KEY [MOST [TARGET [BODY]]]\n");
                return 64;
        }
        load.port = (int)strtol(argv[1], NULL, 10);
        long n = strtol(argv[2], NULL, 10);
        load.key = argv[4];
        load.most = argc > 5 ? strtol(argv[5], NULL, 10) : 0;
        load.target = argc > 6 ? argv[6] : "/orders";
        load.body = argc > 7 ? argv[7] : "{\"name\":\"Widget\",\"price_minor_units\":999}";
        struct rlimit files;
        getrlimit(RLIMIT_NOFILE, &files);
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
        struct conn *conns = calloc((size_t)n, sizeof *conns);
        load.samples = malloc(SAMPLES_MAX * sizeof *load.samples);
        if (!conns || !load.samples)
                die("malloc");
        run(conns, n, strtoll(argv[3], NULL, 10));
        return 0;
}
