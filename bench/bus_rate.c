/* SPDX-License-Identifier: Apache-2.0
 *
 * bus_rate: what the relay and the consumer are compared with, written plainly in C on librdkafka and
 * libpq, and the measurement of latency.
 *
 *     bus_rate produce BROKERS TOPIC ROWS BYTES KEYS  librdkafka alone, idempotent, one flush at the end
 *     bus_rate consume BROKERS TOPIC ROWS GROUP       librdkafka alone
 *     bus_rate read DSN                               the pending rows of semel.outbox to the client
 *     bus_rate delete DSN                             them away, 1,000 a statement
 *     bus_rate seed DSN BROKERS TOPIC                 outbox_event: one publish, one update at a time
 *     bus_rate apply DSN BROKERS TOPIC ROWS GROUP     a consumer with one transaction a message
 *     bus_rate inbox DSN ROWS BYTES KEYS BATCH CONNECTIONS
 *         the database's part of `semel consume --sql`, without Kafka: its own statements in its own
 *         two pipelines a batch, and the same INSERT for each event
 *     bus_rate latency DSN BROKERS TOPIC RATE SECONDS bare|relay
 *         rows are committed at that rate; bare: each is produced when its commit was acknowledged
 *
 * One line of JSON.
 */
#include <libpq-fe.h>
#include <librdkafka/rdkafka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "sql_postgres.h"

static void die(const char *what, const char *why)
{
        fprintf(stderr, "bus_rate: %s: %s\n", what, why);
        exit(1);
}

static double now_s(void)
{
        struct timespec t;
        (void)clock_gettime(CLOCK_MONOTONIC, &t);
        return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double cpu_s(void)
{
        struct timespec t;
        (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
        return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void tell(long rows, double begun_s, double cpu_begun_s)
{
        double s = now_s() - begun_s;
        struct rusage u;
        (void)getrusage(RUSAGE_SELF, &u);
        printf("{\"rows\": %ld, \"s\": %.4f, \"per_s\": %.0f, \"cpu_s\": %.4f, \"rss_mb\": %.1f}\n", rows,
               s, (double)rows / s, cpu_s() - cpu_begun_s, (double)u.ru_maxrss / 1024);
}

/* -- PostgreSQL ------------------------------------------------------------------------------ */

static PGconn *pg_connect(const char *dsn)
{
        PGconn *conn = PQconnectdb(dsn);
        if (PQstatus(conn) != CONNECTION_OK)
                die("connect", PQerrorMessage(conn));
        return conn;
}

static PGresult *pg_done(PGconn *conn, PGresult *res)
{
        ExecStatusType status = PQresultStatus(res);
        if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK && status != PGRES_COPY_OUT)
                die("PostgreSQL", PQerrorMessage(conn));
        return res;
}

static void pg_do(PGconn *conn, const char *sql)
{
        PQclear(pg_done(conn, PQexec(conn, sql)));
}

/* -- librdkafka -------------------------------------------------------------------------------- */

static atomic_long delivered;

static void on_delivery(rd_kafka_t *rk, const rd_kafka_message_t *m, void *opaque)
{
        (void)rk;
        (void)opaque;
        if (m->err)
                die("a message was not delivered", rd_kafka_err2str(m->err));
        atomic_fetch_add(&delivered, 1);
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value)
{
        char why[256];
        if (rd_kafka_conf_set(conf, name, value, why, sizeof why) != RD_KAFKA_CONF_OK)
                die(name, why);
}

static rd_kafka_t *client(rd_kafka_type_t type, rd_kafka_conf_t *conf, const char *brokers)
{
        char why[256];
        set(conf, "bootstrap.servers", brokers);
        rd_kafka_t *rk = rd_kafka_new(type, conf, why, sizeof why);
        if (!rk)
                die("librdkafka", why);
        return rk;
}

static rd_kafka_topic_t *topic_of(rd_kafka_t *rk, const char *name)
{
        const struct rd_kafka_metadata *md;
        rd_kafka_topic_t *t = rd_kafka_topic_new(rk, name, NULL);
        if (rd_kafka_metadata(rk, 0, t, &md, 15000) != RD_KAFKA_RESP_ERR_NO_ERROR)
                die(name, "no metadata");
        rd_kafka_metadata_destroy(md);
        return t;
}

static rd_kafka_t *producer(const char *brokers, const char *linger_ms)
{
        rd_kafka_conf_t *conf = rd_kafka_conf_new();
        set(conf, "enable.idempotence", "true");
        set(conf, "partitioner", "murmur2_random");
        set(conf, "linger.ms", linger_ms);
        set(conf, "queue.buffering.max.messages", "1000000");
        rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
        return client(RD_KAFKA_PRODUCER, conf, brokers);
}

static void produce(rd_kafka_t *rk, rd_kafka_topic_t *t, const char *key, const void *payload, size_t n,
                    int flags)
{
        static atomic_long ids;
        rd_kafka_headers_t *h = rd_kafka_headers_new(1);
        char id[37];
        (void)snprintf(id, sizeof id, "00000000-0000-4000-8000-%012lx",
                       (unsigned long)atomic_fetch_add(&ids, 1) & 0xffffffffffff);
        (void)rd_kafka_header_add(h, "event-id", -1, id, 36);
        for (;;) {
                rd_kafka_resp_err_t e = rd_kafka_producev(
                        rk, RD_KAFKA_V_RKT(t), RD_KAFKA_V_KEY(key, strlen(key)),
                        RD_KAFKA_V_VALUE((void *)(uintptr_t)payload, n), RD_KAFKA_V_HEADERS(h),
                        RD_KAFKA_V_MSGFLAGS(flags), RD_KAFKA_V_END);
                if (e == RD_KAFKA_RESP_ERR_NO_ERROR)
                        return;
                if (e != RD_KAFKA_RESP_ERR__QUEUE_FULL)
                        die("produce", rd_kafka_err2str(e));
                (void)rd_kafka_poll(rk, 10);
        }
}

static void wait_delivered(rd_kafka_t *rk, long n)
{
        while (atomic_load(&delivered) < n)
                (void)rd_kafka_poll(rk, 100);
}

static rd_kafka_t *consumer(const char *brokers, const char *topic, const char *group)
{
        rd_kafka_conf_t *conf = rd_kafka_conf_new();
        set(conf, "group.id", group);
        set(conf, "enable.auto.commit", "false");
        set(conf, "auto.offset.reset", "earliest");
        set(conf, "isolation.level", "read_committed");
        set(conf, "fetch.wait.max.ms", "100");
        rd_kafka_t *rk = client(RD_KAFKA_CONSUMER, conf, brokers);
        (void)rd_kafka_poll_set_consumer(rk);
        rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
        (void)rd_kafka_topic_partition_list_add(list, topic, RD_KAFKA_PARTITION_UA);
        if (rd_kafka_subscribe(rk, list) != RD_KAFKA_RESP_ERR_NO_ERROR)
                die(topic, "cannot subscribe");
        rd_kafka_topic_partition_list_destroy(list);
        return rk;
}

static rd_kafka_message_t *next(rd_kafka_t *rk)
{
        for (;;) {
                rd_kafka_message_t *m = rd_kafka_consumer_poll(rk, 1000);
                if (m && !m->err)
                        return m;
                if (m)
                        rd_kafka_message_destroy(m);
        }
}

/* -- rates ------------------------------------------------------------------------------------- */

static void run_produce(char **a)
{
        long rows = strtol(a[2], NULL, 10), keys = strtol(a[4], NULL, 10);
        size_t bytes = (size_t)strtol(a[3], NULL, 10);
        char *payload = malloc(bytes + 1), key[32];
        rd_kafka_t *rk = producer(a[0], "5");
        rd_kafka_topic_t *t = topic_of(rk, a[1]);
        memset(payload, 'x', bytes);
        double s = now_s(), cpu = cpu_s();
        for (long i = 0; i < rows; i++) {
                (void)snprintf(key, sizeof key, "k%ld", i % keys);
                produce(rk, t, key, payload, bytes, 0);
                if (i % 256 == 0)
                        (void)rd_kafka_poll(rk, 0);
        }
        wait_delivered(rk, rows);
        tell(rows, s, cpu);
}

static void run_consume(char **a)
{
        long rows = strtol(a[2], NULL, 10);
        rd_kafka_t *rk = consumer(a[0], a[1], a[3]);
        rd_kafka_message_destroy(next(rk)); /* joining the group is not measured */
        double s = now_s(), cpu = cpu_s();
        for (long i = 1; i < rows; i++)
                rd_kafka_message_destroy(next(rk));
        tell(rows, s, cpu);
        (void)rd_kafka_consumer_close(rk);
}

static void run_read(char **a)
{
        PGconn *conn = pg_connect(a[0]);
        char *row;
        long rows = 0;
        double s = now_s(), cpu = cpu_s();
        PQclear(pg_done(conn, PQexec(conn, "COPY (SELECT id, event_id, topic, key, payload, headers FROM "
                                           "semel.outbox WHERE status = 'PENDING') TO STDOUT "
                                           "(FORMAT binary)")));
        while (PQgetCopyData(conn, &row, 0) > 0) {
                PQfreemem(row);
                rows++;
        }
        tell(rows - 1, s, cpu); /* the trailer is none */
}

static void run_delete(char **a)
{
        enum { EACH = 1000, ID_BYTES = 21 };
        PGconn *conn = pg_connect(a[0]);
        PGresult *ids = pg_done(conn, PQexec(conn, "SELECT id FROM semel.outbox ORDER BY id"));
        int n = PQntuples(ids);
        char *list = malloc(EACH * ID_BYTES + 2);
        PQclear(pg_done(conn, PQprepare(conn, "d", "DELETE FROM semel.outbox WHERE id = ANY "
                                                   "($1::bigint[])", 0, NULL)));
        double s = now_s(), cpu = cpu_s();
        for (int i = 0; i < n; i += EACH) {
                size_t at = 0;
                for (int k = i; k < n && k < i + EACH; k++)
                        at += (size_t)snprintf(list + at, ID_BYTES + 1, "%c%s", k == i ? '{' : ',',
                                               PQgetvalue(ids, k, 0));
                memcpy(list + at, "}", 2);
                const char *values[] = {list};
                PQclear(pg_done(conn, PQexecPrepared(conn, "d", 1, values, NULL, NULL, 0)));
        }
        tell(n, s, cpu);
}

static void run_seed(char **a)
{
        PGconn *conn = pg_connect(a[0]);
        rd_kafka_t *rk = producer(a[1], "0");
        rd_kafka_topic_t *t = topic_of(rk, a[2]);
        PQclear(pg_done(conn, PQprepare(conn, "lock", "SELECT id, aggregate_id, payload FROM outbox_event "
                                        "WHERE status = 'PENDING' ORDER BY created_at LIMIT 100 "
                                        "FOR UPDATE SKIP LOCKED", 0, NULL)));
        PQclear(pg_done(conn, PQprepare(conn, "mark", "UPDATE outbox_event SET status = 'PUBLISHED', "
                                        "published_at = now() WHERE id = $1", 0, NULL)));
        long rows = 0;
        double s = now_s(), cpu = cpu_s();
        for (int n = 1; n > 0;) {
                pg_do(conn, "BEGIN");
                PGresult *batch = pg_done(conn, PQexecPrepared(conn, "lock", 0, NULL, NULL, NULL, 1));
                n = PQntuples(batch);
                for (int i = 0; i < n; i++) {
                        const char *id[] = {PQgetvalue(batch, i, 0)};
                        const int length[] = {PQgetlength(batch, i, 0)}, format[] = {1};
                        produce(rk, t, PQgetvalue(batch, i, 1), PQgetvalue(batch, i, 2),
                                (size_t)PQgetlength(batch, i, 2), 0);
                        wait_delivered(rk, ++rows);
                        PQclear(pg_done(conn, PQexecPrepared(conn, "mark", 1, id, length, format, 0)));
                }
                PQclear(batch);
                pg_do(conn, "COMMIT");
        }
        tell(rows, s, cpu);
}

/* The event, its effect, COMMIT, the offset: for each message. */
static void run_apply(char **a)
{
        PGconn *conn = pg_connect(a[0]);
        long rows = strtol(a[3], NULL, 10);
        rd_kafka_t *rk = consumer(a[1], a[2], a[4]);
        PQclear(pg_done(conn, PQprepare(conn, "first", "INSERT INTO naive_processed (event_id) VALUES ($1) "
                                        "ON CONFLICT DO NOTHING", 0, NULL)));
        PQclear(pg_done(conn, PQprepare(conn, "do", "INSERT INTO effect (key, payload) VALUES ($1, $2)", 0,
                                        NULL)));
        double s = 0, cpu = 0;
        for (long i = 0; i <= rows; i++) {
                rd_kafka_message_t *m = next(rk);
                char key[64], *payload = strndup(m->payload, m->len), id[64];
                (void)snprintf(key, sizeof key, "%.*s", (int)m->key_len, (const char *)m->key);
                (void)snprintf(id, sizeof id, "%d-%lld", m->partition, (long long)m->offset);
                const char *first[] = {id}, *effect[] = {key, payload};
                pg_do(conn, "BEGIN");
                PQclear(pg_done(conn, PQexecPrepared(conn, "first", 1, first, NULL, NULL, 0)));
                PQclear(pg_done(conn, PQexecPrepared(conn, "do", 2, effect, NULL, NULL, 0)));
                pg_do(conn, "COMMIT");
                (void)rd_kafka_commit_message(rk, m, 1); /* not waited for */
                rd_kafka_message_destroy(m);
                free(payload);
                if (i == 0) {
                        s = now_s();
                        cpu = cpu_s();
                }
        }
        tell(rows, s, cpu);
        (void)rd_kafka_consumer_close(rk);
}

/* -- the database alone ------------------------------------------------------------------------ */

enum { BATCH_MAX = 1000, ID_BYTES = 36, HASH_BYTES = 32, HANDLER_PARAMS = 5, INBOX_PARTITIONS = 6 };
enum { OID_BYTEA = 17, OID_TEXT = 25, OID_TEXT_ARRAY = 1009, OID_BYTEA_ARRAY = 1001, OID_JSONB = 3802 };

static struct {
        const char *dsn;
        char *payload;
        long rows, keys, batch;
        atomic_long next; /* batch */
        pthread_barrier_t ready;
} db;

static void put_be(char *to, long v)
{
        for (int i = 0; i < 4; i++)
                to[i] = (char)((unsigned long)v >> (8 * (3 - i)));
}

/* PostgreSQL's binary form of an array of one dimension. */
static int array_begin(char *to, long type, long n)
{
        const long head[] = {1, 0, type, n, 1};
        for (int i = 0; i < 5; i++)
                put_be(to + 4 * i, head[i]);
        return 20;
}

static int array_add(char *to, const char *element, int n)
{
        put_be(to, n);
        memcpy(to + 4, element, (size_t)n);
        return 4 + n;
}

/* The results of a pipeline, up to its end. */
static void pipeline_end(PGconn *conn)
{
        if (!PQpipelineSync(conn))
                die("sync", PQerrorMessage(conn));
        for (;;) {
                PGresult *res = PQgetResult(conn);
                ExecStatusType status = PQresultStatus(res);
                if (res ? status == PGRES_FATAL_ERROR : PQstatus(conn) != CONNECTION_OK)
                        die("PostgreSQL", PQerrorMessage(conn));
                PQclear(res);
                if (status == PGRES_PIPELINE_SYNC)
                        return;
        }
}

static void pipe_statement(PGconn *conn, const char *sql, int n, const Oid *types,
                           const char *const *values, const int *lengths)
{
        static const int binary[HANDLER_PARAMS] = {1, 1, 1, 1, 1};
        int sent = types ? PQsendQueryParams(conn, sql, n, types, values, lengths, binary, 1)
                         : PQsendQueryPrepared(conn, sql, n, values, lengths, binary, 1);
        if (!sent)
                die("send", PQerrorMessage(conn));
}

static void inbox_record(PGconn *conn, char (*ids)[ID_BYTES + 1], long n)
{
        static const Oid two[] = {OID_TEXT, OID_TEXT};
        static const Oid four[] = {OID_TEXT, OID_TEXT, OID_TEXT_ARRAY, OID_BYTEA_ARRAY};
        static const char hash[HASH_BYTES];
        static _Thread_local char id_array[20 + BATCH_MAX * (4 + ID_BYTES)];
        static _Thread_local char hash_array[20 + BATCH_MAX * (4 + HASH_BYTES)];
        const char *settings[] = {"2s", "10s"}, *values[] = {"bench", "bench", id_array, hash_array};
        int lengths[] = {5, 5, array_begin(id_array, OID_TEXT, n), array_begin(hash_array, OID_BYTEA, n)};
        for (long i = 0; i < n; i++) {
                lengths[2] += array_add(id_array + lengths[2], ids[i], ID_BYTES);
                lengths[3] += array_add(hash_array + lengths[3], hash, HASH_BYTES);
        }
        pipe_statement(conn, "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE", 0, two, NULL, NULL);
        pipe_statement(conn, sql_postgres_inbox_settings, 2, two, settings, (const int[]){2, 3});
        pipe_statement(conn, sql_postgres_inbox_record, 4, four, values, lengths);
        pipeline_end(conn);
}

static void *inbox_worker(void *arg)
{
        static const Oid types[HANDLER_PARAMS] = {OID_TEXT, OID_TEXT, OID_TEXT, OID_TEXT, OID_JSONB};
        PGconn *conn = pg_connect(db.dsn);
        char key[32], (*ids)[ID_BYTES + 1] = malloc(BATCH_MAX * sizeof *ids);
        PQclear(pg_done(conn, PQprepare(conn, "handler", "INSERT INTO effect (key, payload) VALUES ($1, $2)",
                                        HANDLER_PARAMS, types)));
        if (!PQenterPipelineMode(conn))
                die("pipeline", PQerrorMessage(conn));
        (void)pthread_barrier_wait(&db.ready);
        for (;;) { /* batches of partitions in turn, as the messages of a topic are spread */
                long b = atomic_fetch_add(&db.next, 1), n = db.batch;
                long first = b / INBOX_PARTITIONS * n * INBOX_PARTITIONS + b % INBOX_PARTITIONS;
                if (b * n >= db.rows)
                        break;
                for (long i = 0; i < n; i++)
                        (void)snprintf(ids[i], sizeof *ids, "00000000-0000-4000-8000-%012lx",
                                       (unsigned long)(first + i * INBOX_PARTITIONS) & 0xffffffffffff);
                inbox_record(conn, ids, n);
                for (long i = 0; i < n; i++) {
                        int key_n = snprintf(key, sizeof key, "k%ld", (first + i * INBOX_PARTITIONS) % db.keys);
                        const char *values[] = {key, db.payload, ids[i], "bench", "\001[]"};
                        const int lengths[] = {key_n, (int)strlen(db.payload), ID_BYTES, 5, 3};
                        pipe_statement(conn, "handler", HANDLER_PARAMS, NULL, values, lengths);
                }
                pipe_statement(conn, "COMMIT", 0, types, NULL, NULL);
                pipeline_end(conn);
        }
        free(ids);
        PQfinish(conn);
        return arg;
}

static void run_inbox(char **a)
{
        enum { CONNECTIONS_MAX = 64 };
        pthread_t thread[CONNECTIONS_MAX];
        size_t bytes = (size_t)strtol(a[2], NULL, 10);
        long n = strtol(a[5], NULL, 10);
        db.dsn = a[0];
        db.rows = strtol(a[1], NULL, 10);
        db.keys = strtol(a[3], NULL, 10);
        db.batch = strtol(a[4], NULL, 10);
        db.payload = malloc(bytes + 1);
        memset(db.payload, 'x', bytes);
        db.payload[bytes] = '\0';
        if (n < 1 || n > CONNECTIONS_MAX || db.batch < 1 || db.batch > BATCH_MAX || db.keys < 1)
                die("inbox", "1 to 64 connections, batches of 1 to 1000, at least one key");
        (void)pthread_barrier_init(&db.ready, NULL, (unsigned)n + 1);
        for (long i = 0; i < n; i++)
                (void)pthread_create(&thread[i], NULL, inbox_worker, NULL);
        (void)pthread_barrier_wait(&db.ready); /* connecting is not measured */
        double s = now_s(), cpu = cpu_s();
        for (long i = 0; i < n; i++)
                (void)pthread_join(thread[i], NULL);
        tell((db.rows + db.batch - 1) / db.batch * db.batch, s, cpu);
}

/* -- latency ------------------------------------------------------------------------------------ */

enum { WRITERS = 4, ROWS_MAX = 1000000 };

static struct {
        const char *dsn, *topic;
        double rate, begin_s;
        long rows;
        bool bare;
        rd_kafka_t *rk;
        rd_kafka_topic_t *rkt;
        atomic_long next;
        double asked[ROWS_MAX], committed[ROWS_MAX], consumed[ROWS_MAX];
} lat;

static void sleep_until(double at_s)
{
        struct timespec t = {(time_t)at_s, (long)((at_s - (double)(time_t)at_s) * 1e9)};
        (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

static void *writer(void *arg)
{
        PGconn *conn = pg_connect(lat.dsn);
        (void)arg;
        PQclear(pg_done(conn, PQprepare(conn, "p", "SELECT semel.publish($1, $2, convert_to(rpad($3, 400), "
                                                   "'UTF8'))", 0, NULL)));
        for (;;) {
                long i = atomic_fetch_add(&lat.next, 1);
                char key[32], payload[401];
                const char *values[] = {lat.topic, key, payload};
                if (i >= lat.rows)
                        break;
                (void)snprintf(key, sizeof key, "k%ld", i % 1000);
                (void)snprintf(payload, sizeof payload, "%-400ld", i);
                sleep_until(lat.begin_s + (double)i / lat.rate);
                pg_do(conn, "BEGIN");
                PQclear(pg_done(conn, PQexecPrepared(conn, "p", 3, values, NULL, NULL, 0)));
                lat.asked[i] = now_s();
                pg_do(conn, "COMMIT");
                lat.committed[i] = now_s();
                if (lat.bare)
                        produce(lat.rk, lat.rkt, key, payload, 400, RD_KAFKA_MSG_F_COPY);
        }
        PQfinish(conn);
        return NULL;
}

static void *server(void *arg) /* of reports */
{
        (void)arg;
        while (atomic_load(&delivered) < lat.rows)
                (void)rd_kafka_poll(lat.rk, 100);
        return NULL;
}

static int compare(const void *a, const void *b)
{
        double x = *(const double *)a, y = *(const double *)b;
        return x < y ? -1 : x > y;
}

static void tell_percentiles(const char *name, const double *from, const char *end)
{
        static double d[ROWS_MAX];
        long n = lat.rows;
        for (long i = 0; i < n; i++)
                d[i] = lat.consumed[i] - from[i];
        qsort(d, (size_t)n, sizeof d[0], compare);
        printf("\"%s_p50_ms\": %.2f, \"%s_p99_ms\": %.2f%s", name, d[n / 2] * 1e3, name,
               d[n * 99 / 100] * 1e3, end);
}

static void run_latency(char **a)
{
        pthread_t thread[WRITERS], reports;
        lat.dsn = a[0];
        lat.topic = a[2];
        lat.rate = strtod(a[3], NULL);
        lat.rows = (long)(lat.rate * strtod(a[4], NULL));
        lat.bare = strcmp(a[5], "bare") == 0;
        if (lat.rows > ROWS_MAX)
                die("latency", "too many rows");
        lat.rk = producer(a[1], "0");
        lat.rkt = topic_of(lat.rk, lat.topic);
        /* No group: a consumer that is there already. */
        rd_kafka_conf_t *conf = rd_kafka_conf_new();
        set(conf, "group.id", "latency");
        set(conf, "enable.auto.commit", "false");
        rd_kafka_t *c = client(RD_KAFKA_CONSUMER, conf, a[1]);
        const struct rd_kafka_metadata *md;
        rd_kafka_topic_t *t = rd_kafka_topic_new(c, lat.topic, NULL);
        if (rd_kafka_metadata(c, 0, t, &md, 15000) != RD_KAFKA_RESP_ERR_NO_ERROR || md->topic_cnt != 1)
                die(lat.topic, "no metadata");
        rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(8);
        for (int i = 0; i < md->topics[0].partition_cnt; i++)
                rd_kafka_topic_partition_list_add(list, lat.topic, i)->offset = RD_KAFKA_OFFSET_END;
        rd_kafka_metadata_destroy(md);
        (void)rd_kafka_poll_set_consumer(c);
        if (rd_kafka_assign(c, list) != RD_KAFKA_RESP_ERR_NO_ERROR)
                die(lat.topic, "cannot assign");
        (void)rd_kafka_consumer_poll(c, 2000); /* the ends are looked up meanwhile */

        lat.begin_s = now_s() + 0.1;
        for (int i = 0; i < WRITERS; i++)
                (void)pthread_create(&thread[i], NULL, writer, NULL);
        if (lat.bare)
                (void)pthread_create(&reports, NULL, server, NULL);
        for (long got = 0; got < lat.rows;) {
                rd_kafka_message_t *m = next(c);
                char text[24];
                (void)snprintf(text, sizeof text, "%.20s", (const char *)m->payload);
                long i = strtol(text, NULL, 10);
                if (i >= 0 && i < lat.rows && lat.consumed[i] == 0) {
                        lat.consumed[i] = now_s();
                        got++;
                }
                rd_kafka_message_destroy(m);
        }
        for (int i = 0; i < WRITERS; i++)
                (void)pthread_join(thread[i], NULL);
        if (lat.bare)
                (void)pthread_join(reports, NULL);
        printf("{\"rows\": %ld, ", lat.rows);
        tell_percentiles("asked", lat.asked, ", ");
        tell_percentiles("committed", lat.committed, "}\n");
}

int main(int argc, char **argv)
{
        static const struct {
                const char *name;
                int args;
                void (*run)(char **args);
        } what[] = {{"produce", 5, run_produce}, {"consume", 4, run_consume}, {"read", 1, run_read},
                    {"delete", 1, run_delete}, {"seed", 3, run_seed}, {"apply", 5, run_apply},
                    {"inbox", 6, run_inbox}, {"latency", 6, run_latency}};
        for (size_t i = 0; i < sizeof what / sizeof what[0]; i++)
                if (argc > 1 && strcmp(argv[1], what[i].name) == 0 && argc - 2 == what[i].args) {
                        what[i].run(argv + 2);
                        return 0;
                }
        fprintf(stderr, "bus_rate: see the top of bench/bus_rate.c\n");
        return 2;
}
