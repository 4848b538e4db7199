/* SPDX-License-Identifier: Apache-2.0
 *
 * http_rate: how many products a second the shop creates at N connections.
 *
 * N keep-alive connections, one poll loop in one thread (so that the measuring costs little on the
 * machine that is measured), a new Idempotency-Key for each request.
 *
 *     http_rate PORT CONNECTIONS SECONDS SELLER_ID
 *
 * One line of JSON: requests, requests per second, how many were not answered 201.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CONNS_MAX = 1024, REPLY_MAX = 4096 };

static struct {
        char reply[REPLY_MAX];
        size_t n;
} conns[CONNS_MAX];
static struct pollfd fds[CONNS_MAX];
static long sequence, done, failed;

static long long now_us(void)
{
        struct timespec ts;
        clock_gettime(CLOCK_MONOTONIC, &ts);
        return (long long)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

static int conn_open(int port)
{
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
        if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) != 0) {
                perror("connect");
                exit(1);
        }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        return fd;
}

static void conn_send(int i, const char *seller)
{
        char body[256], req[768];
        int body_n = snprintf(body, sizeof body,
                              "{\"name\":\"Widget\",\"price_minor_units\":999,\"currency\":\"EUR\","
                              "\"seller_id\":\"%s\"}", seller);
        int n = snprintf(req, sizeof req,
                         "POST /api/v1/products HTTP/1.1\r\nHost: bench\r\nContent-Type: "
                         "application/json\r\nIdempotency-Key: bench-%d-%lld-%ld\r\n"
                         "Content-Length: %d\r\n\r\n%s",
                         (int)getpid(), now_us(), sequence++, body_n, body);
        conns[i].n = 0;
        if (write(fds[i].fd, req, (size_t)n) != n) {
                perror("write");
                exit(1);
        }
}

/* true: the reply is whole. */
static int conn_read(int i)
{
        char *end, *length;
        ssize_t n = read(fds[i].fd, conns[i].reply + conns[i].n, REPLY_MAX - 1 - conns[i].n);
        if (n <= 0) {
                fprintf(stderr, "connection lost\n");
                exit(1);
        }
        conns[i].n += (size_t)n;
        conns[i].reply[conns[i].n] = '\0';
        end = strstr(conns[i].reply, "\r\n\r\n");
        if (!end)
                return 0;
        length = strcasestr(conns[i].reply, "Content-Length:");
        if (length && conns[i].n < (size_t)(end + 4 - conns[i].reply) +
                                           strtoul(length + 15, NULL, 10))
                return 0;
        if (strncmp(conns[i].reply, "HTTP/1.1 201", 12) != 0 && failed++ == 0)
                fprintf(stderr, "%s\n", conns[i].reply);
        done++;
        return 1;
}

int main(int argc, char **argv)
{
        int port, n;
        long long begin, end;
        port = argc == 5 ? (int)strtol(argv[1], NULL, 10) : 0;
        n = argc == 5 ? (int)strtol(argv[2], NULL, 10) : 0;
        if (port < 1 || n < 1 || n > CONNS_MAX) {
                fprintf(stderr, "usage: http_rate PORT CONNECTIONS SECONDS SELLER_ID\n");
                return 64;
        }
        end = (begin = now_us()) + strtol(argv[3], NULL, 10) * 1000000;
        for (int i = 0; i < n; i++) {
                fds[i] = (struct pollfd){.fd = conn_open(port), .events = POLLIN};
                conn_send(i, argv[4]);
        }
        while (now_us() < end) {
                poll(fds, (nfds_t)n, 1000);
                for (int i = 0; i < n; i++)
                        if (fds[i].revents && conn_read(i))
                                conn_send(i, argv[4]);
        }
        printf("{\"requests\": %ld, \"per_s\": %.0f, \"errors\": %ld}\n", done,
               (double)done * 1e6 / (double)(now_us() - begin), failed);
        return failed != 0;
}
