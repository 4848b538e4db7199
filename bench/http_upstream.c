/* SPDX-License-Identifier: Apache-2.0
 *
 * http_upstream: a service to measure a gateway in front of.  One epoll loop, so that 4,000 requests
 * can wait in it.
 *
 *     http_upstream DELAY_MS [LINKS CONNINFO]
 *
 * 201 with 92 bytes, at once; below /slow after DELAY_MS; below /commit when it has
 * committed one row (INSERT INTO done DEFAULT VALUES, on one of LINKS connections to PostgreSQL).
 * Says "port N" when it listens.
 */
#include <arpa/inet.h>
#include <libpq-fe.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { REQUEST_MAX = 8192, EVENTS = 512, LINKS_MAX = 256 };

struct conn {
        bool is_link;
        int fd;
        bool gone;
        size_t n;
        long long due_us;
        struct conn *next; /* in the queue that it waits in */
        char request[REQUEST_MAX];
};

struct link { /* to the database */
        bool is_link;
        PGconn *pg;
        struct conn *serves;
};

struct queue {
        struct conn *first, **last;
};

static struct queue delayed = {.last = &delayed.first}, commits = {.last = &commits.first};
static struct link links[LINKS_MAX];
static int link_count;
static struct conn listener;
static int ep;
static long long delay_us;

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

static void put(struct queue *q, struct conn *c)
{
        c->next = NULL;
        *q->last = c;
        q->last = &c->next;
}

static struct conn *take(struct queue *q)
{
        struct conn *c = q->first;
        if (c && !(q->first = c->next))
                q->last = &q->first;
        return c;
}

static void answer(struct conn *c)
{
        static const char reply[] =
                "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 92\r\n\r\n"
                "{\"id\":\"0123456789abcdef\",\"name\":\"Widget\",\"price_minor_units\":999,"
                "\"currency\":\"EUR\",\"ok\":true}";
        c->n = 0;
        if (c->gone)
                free(c);
        else if (write(c->fd, reply, sizeof reply - 1) != sizeof reply - 1)
                c->n = 0; /* its end is read next */
}

/* -- the database --------------------------------------------------------------------------- */

static void serve_commits(void)
{
        for (int i = 0; i < link_count && commits.first; i++) {
                if (!links[i].pg || links[i].serves)
                        continue;
                links[i].serves = take(&commits);
                if (!PQsendQueryPrepared(links[i].pg, "done", 0, NULL, NULL, NULL, 0))
                        die(PQerrorMessage(links[i].pg));
        }
}

static void on_link(struct link *l)
{
        if (!PQconsumeInput(l->pg))
                die(PQerrorMessage(l->pg));
        while (l->serves && !PQisBusy(l->pg)) {
                PGresult *res = PQgetResult(l->pg);
                if (!res) {
                        struct conn *c = l->serves;
                        l->serves = NULL;
                        answer(c);
                        break;
                }
                if (PQresultStatus(res) != PGRES_COMMAND_OK)
                        die(PQerrorMessage(l->pg));
                PQclear(res);
        }
        serve_commits();
}

static void open_links(const char *conninfo)
{
        for (int i = 0; i < link_count; i++) {
                struct link *l = &links[i];
                l->is_link = true;
                l->pg = PQconnectdb(conninfo);
                PGresult *res = i > 0 ? NULL : PQexec(l->pg, "CREATE TABLE IF NOT EXISTS done "
                                                             "(id bigserial PRIMARY KEY)");
                PQclear(res);
                res = PQprepare(l->pg, "done", "INSERT INTO done DEFAULT VALUES", 0, NULL);
                if (PQresultStatus(res) != PGRES_COMMAND_OK)
                        die(PQerrorMessage(l->pg));
                PQclear(res);
                struct epoll_event e = {.events = EPOLLIN, .data.ptr = l};
                epoll_ctl(ep, EPOLL_CTL_ADD, PQsocket(l->pg), &e);
        }
}

/* -- clients ----------------------------------------------------------------------------------- */

static bool is_whole(struct conn *c)
{
        c->request[c->n] = '\0';
        const char *end = strstr(c->request, "\r\n\r\n");
        const char *length = end ? strcasestr(c->request, "\r\nContent-Length:") : NULL;
        size_t body = length ? strtoul(length + 17, NULL, 10) : 0;
        return end && c->n >= (size_t)(end + 4 - c->request) + body;
}

static void on_conn(struct conn *c)
{
        ssize_t n = read(c->fd, c->request + c->n, REQUEST_MAX - 1 - c->n);
        if (n <= 0) {
                bool waits = c->n > 0 && is_whole(c);
                close(c->fd);
                c->gone = true;
                if (!waits)
                        free(c);
                return;
        }
        c->n += (size_t)n;
        if (!is_whole(c))
                return;
        if (strncmp(c->request, "POST /slow", 10) == 0) {
                c->due_us = now_us() + delay_us;
                put(&delayed, c);
        } else if (strncmp(c->request, "POST /commit", 12) == 0) {
                put(&commits, c);
                serve_commits();
        } else {
                answer(c);
        }
}

static void accept_one(void)
{
        int fd = accept(listener.fd, NULL, NULL), one = 1;
        struct conn *c = fd < 0 ? NULL : calloc(1, sizeof *c);
        if (!c)
                return;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        c->fd = fd;
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e);
}

static void listen_somewhere(void)
{
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t n = sizeof a;
        listener.fd = socket(AF_INET, SOCK_STREAM, 0);
        if (bind(listener.fd, (struct sockaddr *)&a, sizeof a) != 0 ||
            listen(listener.fd, 8192) != 0 ||
            getsockname(listener.fd, (struct sockaddr *)&a, &n) != 0)
                die("listen");
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = &listener};
        epoll_ctl(ep, EPOLL_CTL_ADD, listener.fd, &e);
        printf("port %d\n", ntohs(a.sin_port));
        fflush(stdout);
}

int main(int argc, char **argv)
{
        struct epoll_event events[EVENTS];
        struct rlimit files;
        if (argc != 2 && argc != 4) {
                fprintf(stderr, "usage: http_upstream DELAY_MS [LINKS CONNINFO]\n");
                return 64;
        }
        getrlimit(RLIMIT_NOFILE, &files);
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
        delay_us = strtoll(argv[1], NULL, 10) * 1000;
        ep = epoll_create1(0);
        if (argc == 4) {
                link_count = (int)strtol(argv[2], NULL, 10);
                link_count = link_count < LINKS_MAX ? link_count : LINKS_MAX;
                open_links(argv[3]);
        }
        listen_somewhere();
        for (;;) {
                long long left = delayed.first ? delayed.first->due_us - now_us() : 1000000;
                int got = epoll_wait(ep, events, EVENTS, left > 0 ? (int)(left / 1000 + 1) : 0);
                for (int i = 0; i < got; i++) {
                        if (events[i].data.ptr == &listener)
                                accept_one();
                        else if (*(bool *)events[i].data.ptr)
                                on_link(events[i].data.ptr);
                        else
                                on_conn(events[i].data.ptr);
                }
                while (delayed.first && delayed.first->due_us <= now_us())
                        answer(take(&delayed));
        }
}
