/* SPDX-License-Identifier: Apache-2.0
 *
 * semel/error.h: errors as values.
 *
 * Every fallible function of libsemel takes a `semel_error *` as its last
 * argument.  The caller makes one with semel_error_new(), reuses it as often as
 * it likes, and may pass NULL if the returned code is enough.  The library never
 * logs and never ends the process because of input, environment or memory.
 *
 *     semel_error *err = semel_error_new();
 *     if (semel_store_open("sqlite:/tmp/keys.db", &st, err) != SEMEL_OK)
 *             fprintf(stderr, "%s\n", semel_error_text(err));
 *     semel_error_free(err);
 */
#ifndef SEMEL_ERROR_H
#define SEMEL_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SEMEL_API __attribute__((visibility("default")))
#else
#define SEMEL_API
#endif

/* What went wrong.  The numbers are part of the ABI and never reused. */
typedef enum semel_code {
        SEMEL_OK = 0,
        SEMEL_ERR_ARGUMENT = 1,    /* the caller broke a documented rule of the call */
        SEMEL_ERR_NO_MEMORY = 2,   /* malloc failed; nothing was changed */
        SEMEL_ERR_URL = 3,         /* the store URL cannot be understood */
        SEMEL_ERR_NOT_LINKED = 4,  /* no driver for the scheme: says which library to link */
        SEMEL_ERR_STORE_DOWN = 5,  /* the store cannot be reached, or did not answer in time */
        SEMEL_ERR_STORE_FULL = 6,  /* disk full */
        SEMEL_ERR_STORE_READ_ONLY = 7,
        SEMEL_ERR_SCHEMA = 8,      /* schema missing, too old or too new: says what to run */
        SEMEL_ERR_ACCESS = 9,      /* wrong password, missing privilege */
        SEMEL_ERR_BUSY = 10,       /* locked by others beyond the wait that was allowed */
        SEMEL_ERR_CONFLICT = 11,   /* serialization failure: retry your transaction */
        SEMEL_ERR_TX_STATE = 12,   /* the caller's transaction is in the wrong state */
        SEMEL_ERR_LOST = 13,       /* the claim is no longer ours; nothing was written */
        SEMEL_ERR_UNKNOWN = 14,    /* nobody can know whether the write happened */
        SEMEL_ERR_TOO_LARGE = 15,  /* beyond a documented limit */
        SEMEL_ERR_CORRUPT = 16,    /* stored bytes do not decode: a damaged or foreign row */
        SEMEL_ERR_NOT_FOUND = 17,
        SEMEL_ERR_REFUSED = 18,    /* an operator verb that the row's state does not allow */
        SEMEL_ERR_KEY = 19,        /* the idempotency key is malformed */
        SEMEL_ERR_UNSAFE = 20,     /* the store's settings would lose a promise (fsync=off, NFS) */
        SEMEL_ERR_INTERNAL = 21,   /* a bug of ours, reported instead of hidden */
        SEMEL_ERR_PEER_DOWN = 22   /* the other side of a call cannot be reached, or refuses for
                                      now; nothing happened */
} semel_code;

/* What a caller may do about it. */
typedef enum semel_class {
        SEMEL_CLASS_NONE = 0,
        SEMEL_CLASS_RETRYABLE = 1, /* nothing happened; the same call may succeed later */
        SEMEL_CLASS_CONFLICT = 2,  /* somebody else was first; read again, then decide */
        SEMEL_CLASS_FATAL = 3,     /* the same call will fail again */
        SEMEL_CLASS_UNKNOWN = 4    /* it may or may not have happened; never guess */
} semel_class;

typedef struct semel_error semel_error;

/* Make an empty error.  NULL when memory is out. */
SEMEL_API semel_error *semel_error_new(void);

/* Free it.  NULL is fine. */
SEMEL_API void semel_error_free(semel_error *err);

/* The code, SEMEL_OK when empty or NULL. */
SEMEL_API semel_code semel_error_code(const semel_error *err);

/* The class, SEMEL_CLASS_NONE when empty or NULL. */
SEMEL_API semel_class semel_error_class(const semel_error *err);

/* One sentence: what is wrong and what to do.  Never NULL; valid until the next
 * call that takes `err`.  Holds no password and no key. */
SEMEL_API const char *semel_error_text(const semel_error *err);

/* The database's SQLSTATE (five characters), or "" where there is none. */
SEMEL_API const char *semel_error_sqlstate(const semel_error *err);

/* The errno of a failed system call, or 0. */
SEMEL_API int semel_error_errno(const semel_error *err);

/* A short stable name of a code, such as "store-down". */
SEMEL_API const char *semel_code_name(semel_code code);

#ifdef __cplusplus
}
#endif
#endif
