/* SPDX-License-Identifier: Apache-2.0
 *
 * tcp_proxy: see tcp_proxy.h.
 */
#include "tcp_proxy.h"

#include <arpa/inet.h>
#include <assert.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PAIRS_MAX = 64 };

struct tcp_proxy {
        pthread_t thread;
        int listener, port, server_port;
        int client[PAIRS_MAX], server[PAIRS_MAX];
        int pairs;
        _Atomic int mode;
        _Atomic bool cut, stop;
        _Atomic long lost, accepted;
};

static struct sockaddr_in loopback(int port)
{
        return (struct sockaddr_in){.sin_family = AF_INET,
                                    .sin_port = htons((uint16_t)port),
                                    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static void drop(struct tcp_proxy *px, int i)
{
        (void)close(px->client[i]);
        (void)close(px->server[i]);
        px->pairs--;
        px->client[i] = px->client[px->pairs];
        px->server[i] = px->server[px->pairs];
}

static void accept_one(struct tcp_proxy *px)
{
        struct sockaddr_in to = loopback(px->server_port);
        int client = accept(px->listener, NULL, NULL);
        int server = socket(AF_INET, SOCK_STREAM, 0);
        if (client < 0 || px->mode == PROXY_REFUSE || px->pairs == PAIRS_MAX ||
            connect(server, (struct sockaddr *)&to, sizeof to) < 0) {
                (void)close(client);
                (void)close(server);
                return;
        }
        px->accepted++;
        px->client[px->pairs] = client;
        px->server[px->pairs++] = server;
}

/* false: one of the two is gone. */
static bool pass(struct tcp_proxy *px, int from, int to, bool lose, bool count)
{
        char bytes[65536];
        ssize_t n = read(from, bytes, sizeof bytes);
        if (n <= 0)
                return false;
        if (lose) {
                px->lost += count ? n : 0;
                return true;
        }
        for (ssize_t at = 0; at < n;) {
                ssize_t sent = send(to, bytes + at, (size_t)(n - at), MSG_NOSIGNAL);
                if (sent <= 0)
                        return false;
                at += sent;
        }
        return true;
}

static void *run(void *arg)
{
        struct tcp_proxy *px = arg;
        while (!px->stop) {
                struct pollfd pfds[1 + 2 * PAIRS_MAX] = {{.fd = px->listener, .events = POLLIN}};
                int pairs = px->pairs;
                for (int i = 0; i < pairs; i++) {
                        pfds[1 + 2 * i] = (struct pollfd){.fd = px->client[i], .events = POLLIN};
                        pfds[2 + 2 * i] = (struct pollfd){.fd = px->server[i], .events = POLLIN};
                }
                (void)poll(pfds, (nfds_t)(1 + 2 * pairs), 5);
                for (int i = pairs; i-- > 0;) {
                        bool alive = !px->cut;
                        if (alive && pfds[1 + 2 * i].revents)
                                alive = pass(px, px->client[i], px->server[i],
                                             px->mode == PROXY_LOSE_REQUESTS, false);
                        if (alive && pfds[2 + 2 * i].revents)
                                alive = pass(px, px->server[i], px->client[i],
                                             px->mode == PROXY_LOSE_REPLIES, true);
                        if (!alive)
                                drop(px, i);
                }
                px->cut = false;
                if (pfds[0].revents)
                        accept_one(px);
        }
        while (px->pairs > 0)
                drop(px, 0);
        return NULL;
}

struct tcp_proxy *tcp_proxy_start(int server_port)
{
        struct tcp_proxy *px = calloc(1, sizeof *px);
        struct sockaddr_in addr = loopback(0);
        socklen_t n = sizeof addr;
        assert(px);
        px->server_port = server_port;
        px->listener = socket(AF_INET, SOCK_STREAM, 0);
        int rc = bind(px->listener, (struct sockaddr *)&addr, sizeof addr);
        assert(rc == 0);
        rc = listen(px->listener, 64);
        assert(rc == 0);
        rc = getsockname(px->listener, (struct sockaddr *)&addr, &n);
        assert(rc == 0);
        px->port = ntohs(addr.sin_port);
        rc = pthread_create(&px->thread, NULL, run, px);
        assert(rc == 0);
        return px;
}

int tcp_proxy_port(const struct tcp_proxy *px)
{
        return px->port;
}

void tcp_proxy_set(struct tcp_proxy *px, enum proxy_mode mode)
{
        px->mode = (int)mode;
}

void tcp_proxy_cut(struct tcp_proxy *px)
{
        px->cut = true;
        while (px->cut)
                (void)poll(NULL, 0, 1);
}

long tcp_proxy_lost(const struct tcp_proxy *px)
{
        return px->lost;
}

long tcp_proxy_accepted(const struct tcp_proxy *px)
{
        return px->accepted;
}

void tcp_proxy_stop(struct tcp_proxy *px)
{
        px->stop = true;
        (void)pthread_join(px->thread, NULL);
        (void)close(px->listener);
        free(px);
}
