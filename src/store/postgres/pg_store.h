/* SPDX-License-Identifier: Apache-2.0
 *
 * pg_store: the inside of the PostgreSQL driver.
 *
 *     submit --> queue of a lane --> batch --> link (one connection) --> answered --> done
 *                     ^                          |
 *                     +-- next stage, or again --+
 *
 * A lane is one statement: operations that need it next wait in its queue, and a link that is
 * idle takes as many as one batch may hold.  While all links are busy the
 * queues fill; else a batch of few waits a moment (PG_LINGER_US).  A batch is one statement in one
 * implicit transaction with its own Sync (rule B1); what it answers counts once the Sync came back.
 */
#ifndef STORE_POSTGRES_PG_STORE_H
#define STORE_POSTGRES_PG_STORE_H

#include <libpq-fe.h>

#include "core/limits.h"
#include "store/postgres/pg_params.h"
#include "store/store.h"

enum lane {
        LANE_INSERT, /* claims: a new row */
        LANE_READ,   /* claims that found a row; writes that found none; get; resolve */
        LANE_TAKE,   /* claims that change a row as it was read */
        LANE_COMPLETE, /* completions, of rows that are as their holder left them */
        LANE_WRITE,    /* all other writes, and completions of rows that are not */
        LANE_LIST,
        LANE_SWEEP,
        LANE_QUEUES, /* those above have queues; those below follow on one of them */
        LANE_RESOLVE = LANE_QUEUES,
        LANE_SWEEP_APPLY,
        LANE_REAP,
        LANES
};

/* Numbers of this driver, each with its reason. */
enum {
        /* Two work all the time: one commits while the other works.  The others help when a batch
         * takes long, because the disk does: then more commits share one flush.  Used all the time
         * they would only make the batches smaller (98 us of the server a command instead of 75, at
         * 64 callers). */
        PG_LINKS_DEFAULT = 6,
        PG_LINKS_EAGER = 2,
        PG_LINKS_MAX = 16,
        /* A batch that fails is split in so many parts: a held key costs the lock timeout
         * once per level, and 256 operations are 3 levels of 8. */
        PG_SPLIT_PARTS = 8,
        /* Bodies up to this come with a batch of rows; longer ones one by one, so that a batch
         * of replays never is a heap of memory. */
        PG_BODY_BATCHED_BYTES = 16 * 1024,
        PG_CROWD_MIN = 12, /* fewer are never waited for */
};
#define PG_LOCK_TIMEOUT "100ms"             /* rule B2 */
#define PG_HELD_KEY_US (1 * SECOND)         /* what a caller of a held key is told to wait */
#define PG_CONNECT_US (1 * SECOND)          /* one attempt; every third gets PG_CONNECT_SLOW_US */
#define PG_CONNECT_SLOW_US (4 * SECOND)     /* TLS and a busy server far away */
#define PG_BACKOFF_US (10 * MS)
#define PG_BACKOFF_MAX_US (250 * MS)        /* works again within 1 s of the return (B10) */
#define PG_BATCH_US (2500 * MS)             /* no answer for so long: the connection is given up */
/* While commits hang: how long a connection is kept for its late answer, twice as long each time. */
#define PG_HUNG_US (10 * SECOND)
#define PG_HUNG_MAX_US HOUR
#define PG_GRACE_US (500 * MS)              /* past a deadline, for an answer on its way */
#define PG_OPEN_US (10 * SECOND)
#define PG_REAP_US (30 * SECOND)
#define PG_SLOW_BATCH_US INT64_C(1500)      /* a batch that takes longer waits for the disk */
/* A batch of one costs the server as much as ten rows more in another, and when many callers are
 * about, those just answered are on their way back: a batch waits a moment for two fifths of them.
 * (At 64 callers 40 us of the server a command instead of 45; longer, or for more, is no better.) */
#define PG_LINGER_US INT64_C(200)
/* On a loop (the gateway) callers do other things between claim and completion: they come back
 * later, and each batch more wakes them too.  (With 64 requests under way 24 operations a batch
 * instead of 18, and 15 instead of 11 before an upstream that commits.) */
#define PG_LINGER_LOOP_US INT64_C(400)

/* op->stage: the lane it waits for, and */
enum {
        OP_LANE_MASK = 0xff,
        OP_IN_DOUBT = 0x100,  /* a statement of it was sent whole and never answered (A7) */
        OP_ALONE = 0x200,     /* its row's body is long: read it in a batch of its own */
        OP_ORPHAN = 0x400,    /* the store's own: a claim nobody waits for (A7) */
};

struct op_list {
        struct store_op *first, **last;
        size_t count;
};

struct batch {
        struct batch *next;
        enum lane lane;
        bool whole_bodies;
        /* RESOLVE: the row as read; SWEEP_APPLY: the rows and what becomes of them */
        struct command_row *rows;
        bool *gone;
        size_t row_count;
        int64_t after_us; /* REAP */
        size_t n;
        struct store_op *ops[LIMIT_BATCH_OPS];
};

enum link_state {
        LINK_CLOSED,
        LINK_CONNECTING,
        LINK_CHECKING, /* settings, server, backend */
        LINK_VERSION,  /* schema version */
        LINK_SETTING,  /* session settings, where the session is ours alone */
        LINK_IDLE,
        LINK_BUSY,
        LINK_HUNG, /* its batch was given up, and its backend has still to answer or end */
};

struct link {
        struct pg_store *st;
        enum link_state state;
        PGconn *pg;
        int fd;              /* as registered in epoll; -1 none */
        int64_t sent_us;     /* BUSY: since when */
        int64_t timer_us;    /* CLOSED: not before; else: give up then */
        unsigned failures;   /* attempts to connect in a row */
        bool direct;         /* no pooler in between: the session's settings and plans are ours */
        uint32_t prepared;   /* bit per lane */
        bool preparing;      /* the batch's statement is prepared in front of it */
        struct batch *batch;
        bool goodbye;        /* the server said that it ends the session */
        bool flushed;        /* its last byte was given to the kernel */
        PGresult *res;       /* the last result before the Sync */
        PGresult *error;     /* the first error */
        struct params params;
};

struct pg_config {
        char *keywords[64]; /* for PQconnectStartParams; NULL-terminated */
        char *values[64];
        int links;
        int prepare; /* -1 by what is found, 0 off, 1 on */
        int64_t reap_us;
};

struct pg_store {
        struct store st;
        const struct sys_clock *clock;
        bool sleeping_callers; /* see store_env */
        struct pg_config config;
        int epoll_fd;
        int timer_fd; /* in it: the end of linger_us, which loops do not keep so exactly; -1: none */
        struct link links[PG_LINKS_MAX];
        struct op_list queues[LANE_QUEUES];
        struct op_list later;        /* not_before_us in the future */
        struct op_list answered;     /* `done` is called at the end of the step */
        struct batch *formed, **formed_last; /* parts of failed batches, and second statements */
        unsigned turn;               /* round robin over queues and formed */
        size_t ops;                  /* not answered yet */
        int64_t expire_us;           /* no deadline is before this */
        int64_t reap_us;             /* next time */
        size_t crowd;                /* how many operations were under way lately */
        int64_t linger_us;           /* nothing is sent before that; 0: nothing waits so */
        bool plans_off;              /* a pooler lost a prepared statement */
        bool closing;
        struct semel_error fault;    /* why the last connecting failed; SEMEL_OK: it did not */
        unsigned hangs;              /* writes without an answer in time, since one was committed */
        bool attempt_failed;         /* one did, with `fault`, since the waiting were told */
        struct orphan *orphans; /* claims that are being undone (A7), the newest first */
        size_t orphan_count;
};

/* -- pg_store.c: operations ------------------------------------------------------------------ */

int64_t pg_now_us(struct pg_store *st);
/* It is over: op->err and op->out are set. */
void pg_answer(struct pg_store *st, struct store_op *op);
/* Wait for a lane, at the front, after a delay. */
void pg_queue(struct pg_store *st, struct store_op *op, enum lane lane, int64_t delay_us);
/* From the beginning: the lane that its kind starts with. */
void pg_restart(struct pg_store *st, struct store_op *op, int64_t delay_us);
/* It failed with op->err and nothing of it happened now: the answer, unless an earlier try is in
 * doubt; then it is tried until its deadline. */
void pg_fail(struct pg_store *st, struct store_op *op);
/* A batch to be sent before the queues' turn; taken. */
void pg_form(struct pg_store *st, struct batch *b);
/* A new operation of the store's own, about what is in doubt: it never expires, and no error ends
 * it. */
void pg_submit_own(struct pg_store *st, struct store_op *op);

/* -- pg_batch.c ------------------------------------------------------------------------------- */

/* The row that an operation is about; NULL for those about many. */
const struct command_id *pg_op_id(const struct store_op *op);

struct lane_vt {
        const char *name; /* of the prepared statement */
        const char *sql;
        size_t ops_max;
        bool distinct; /* one operation a key: two on one row would hide each other */
        bool writes;   /* its commit can be in doubt */
        size_t (*bytes)(const struct store_op *op); /* NULL: small */
        void (*build)(const struct batch *b, struct params *p);
        /* The statement committed: answer or queue every operation. */
        void (*take)(struct pg_store *st, struct batch *b, const PGresult *res);
};

extern const struct lane_vt pg_lane_insert, pg_lane_read, pg_lane_take, pg_lane_complete,
        pg_lane_write,
        pg_lane_list, pg_lane_sweep, pg_lane_resolve, pg_lane_sweep_apply, pg_lane_reap;
const struct lane_vt *pg_lane_vt(enum lane lane);

struct batch *pg_batch_new(enum lane lane); /* NULL: no memory */
void pg_batch_free(struct batch *b);
/* The next work for an idle link, or NULL. */
struct batch *pg_batch_next(struct pg_store *st, int64_t now_us);
bool pg_batch_waiting(const struct pg_store *st);
void pg_batch_done(struct pg_store *st, struct batch *b, const PGresult *res);
/* It failed as a whole, and certainly did not happen. */
void pg_batch_failed(struct pg_store *st, struct batch *b, const PGresult *res);
/* The connection went away under it. */
void pg_batch_lost(struct pg_store *st, struct batch *b, bool in_doubt);

/* -- pg_link.c -------------------------------------------------------------------------------- */

void pg_link_init(struct link *ln, struct pg_store *st);
void pg_link_release(struct link *ln);
void pg_link_open(struct link *ln);
/* Its socket is ready. */
void pg_link_ready(struct link *ln);
/* Give up what is overdue. */
void pg_link_expire(struct link *ln, int64_t now_us);
void pg_link_send(struct link *ln, struct batch *b);
int64_t pg_link_timer_us(const struct link *ln);
bool pg_link_up(const struct link *ln);
/* Give the connection up; its batch goes back. */
void pg_link_drop(struct link *ln, bool soon);

/* -- the rest --------------------------------------------------------------------------------- */

/* The parameters of claim_insert.sql and tx_claim.sql, in the one order that both have:
 * pg_claim.c.  begin: with pg_params_array or pg_params_scalar; add: one claim. */
void pg_claim_params_begin(struct params *p,
                           void (*column)(struct params *p, int i, enum pg_type type));
void pg_claim_params_add(struct params *p, const struct command_claim *claim,
                         const struct store_label *label);

/* What to do with the row that an operation asked for: pg_claim.c, pg_write.c, pg_admin.c. */
void pg_claim_decide(struct pg_store *st, struct store_op *op, bool exists, bool body_left_out);
void pg_write_decide(struct pg_store *st, struct store_op *op, const struct store_record *rec,
                  bool exists);
void pg_resolve_decide(struct pg_store *st, struct store_op *op, const struct store_record *rec,
                    bool exists);

/* pg_url.c */
semel_code pg_config_parse(const char *url, struct pg_config *config, semel_error *err);
void pg_config_release(struct pg_config *config);

/* pg_server.c: the one row of link_check.sql.  *ret_direct: no pooler is in between, so that
 * settings of the session and prepared statements stay ours (rule B7).  SEMEL_ERR_UNSAFE: the server
 * would lose what it acknowledges; SEMEL_ERR_STORE_READ_ONLY: it takes no writes. */
semel_code pg_server_check(const PGconn *pg, const struct pg_config *config, const PGresult *check,
                           bool *ret_direct, semel_error *err);
/* For those who write text that others made, as the inbox does (commands are bytes, and an outbox has only its
 * own database's text): can the database hold any?  SEMEL_ERR_UNSAFE. */
semel_code pg_server_check_text(const PGconn *pg, semel_error *err);
/* For PQsetNoticeReceiver: a library does not print what the server says on the side. */
void pg_ignore_notice(void *arg, const PGresult *res);

/* pg_schema.c */
enum { PG_SCHEMA_VERSION = 3 };
semel_code pg_schema_check(int64_t version, semel_error *err);
semel_code pg_schema_migrate(const char *url, semel_error *err);
semel_code pg_schema_notify(const char *url, bool on, semel_error *err);
semel_code pg_schema_print(const char *what, const char *role, struct buf *out, semel_error *err);

/* pg_orphan.c: rule A7's bounded list */
void pg_orphan_add(struct pg_store *st, const struct store_op *claim);

#endif
