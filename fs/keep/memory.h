/* memory: what outlives a daemon, in a memfd that the next daemon gets.
 *
 * It has the requests that the kernel has sent and that have no reply yet, with what each means to do, and two tables:
 * the nodes that the kernel knows, and the open handles.  A daemon may be killed between any two stores into it.  So a
 * record becomes valid, and ends, by one store of one word, which is the last of its stores.
 *
 * The file has its full size from the start, and costs only the pages that were written.  It is sealed against any
 * other size.  Everything that a daemon finds in it is checked before it is used.
 *
 * The room's files:
 *
 *     memory    the head: what a daemon leaves to the next one     request  requests without a reply
 *     table     records with numbers
 */
#ifndef FS_KEEP_MEMORY_H
#define FS_KEEP_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define KEEP_WRITE_MAX (1 << 17)                    /* bytes of a write(2): the mount's max_write */
#define KEEP_LANDING_SIZE (KEEP_WRITE_MAX + 0x1000) /* for any message of the kernel */
#define KEEP_INIT_MAX 256
#define KEEP_OPTIONS_MAX 4096
#define KEEP_INTENT_SIZE 256

enum keep_table_id { KEEP_NODES, KEEP_NAMES, KEEP_DIRECTORIES, KEEP_HANDLES, KEEP_NOTICES, KEEP_TABLES };

struct keep_table_size {
    uint64_t record; /* bytes of the caller's part of one record */
    uint64_t count;
};

/* A newer version may find smaller records than it makes itself: keep_table_record. */
struct keep_sizes {
    uint64_t small; /* requests in small slots: see keep_request_landed */
    uint64_t large;
    struct keep_table_size tables[KEEP_TABLES];
};

/* Fills in what fits into this machine's address space. */
void keep_default_sizes(struct keep_sizes *ret_sizes);

struct keep;

/* 0, or -errno with one line in `error`. */
int keep_create(const struct keep_sizes *sizes, struct keep **ret_keep, char *error, size_t error_size);
/* Maps what another process has made, and checks it.  Takes `fd` if it succeeds.  -EOPNOTSUPP: another format. */
int keep_attach(int fd, struct keep **ret_keep, char *error, size_t error_size);
/* Unmaps it.  NULL is allowed. */
void keep_free(struct keep *keep);

int keep_fd(const struct keep *keep);
/* Random, of this memory; not 0. */
uint64_t keep_nonce(const struct keep *keep);
/* Which daemon this is: 1, 2, …  0 before the first keep_begin. */
uint32_t keep_generation(const struct keep *keep);

/* One daemon at a time.  The lock ends with the thread that took it, however that ends, also while another thread of
 * its process waits in the kernel.  keep_lock waits; keep_try_lock returns -EBUSY. */
int keep_lock(struct keep *keep);
int keep_try_lock(struct keep *keep);
void keep_unlock(struct keep *keep);

/* This daemon begins.  If the one before did not call keep_end, it has died: each request that was not waiting counts
 * one death more. */
void keep_begin(struct keep *keep);
/* This daemon ends, and leaves its requests to the next one. */
void keep_end(struct keep *keep);

/* --- the head ------------------------------------------------------------------------ */

/* The answers to FUSE_INIT that later daemons must repeat. */
struct keep_init {
    uint32_t length; /* of the message; 0: there was none yet */
    uint32_t proto_major, proto_minor, max_write, max_readahead, max_background, congestion, time_gran;
    uint64_t want; /* FUSE_CAP_… */
    char message[KEEP_INIT_MAX];
};

/* NULL until keep_set_init. */
const struct keep_init *keep_init(const struct keep *keep);
void keep_set_init(struct keep *keep, const struct keep_init *init);

/* The mount options that cannot change, as one line; "" at first.  False if it is too long. */
const char *keep_options(const struct keep *keep);
bool keep_set_options(struct keep *keep, const char *options);

/* The shortest term in milliseconds that this mount renews on a remote store; 0: none. */
int64_t keep_term(const struct keep *keep);
void keep_set_term(struct keep *keep, int64_t term);

/* How the last daemons have fared, for keepers.  In milliseconds of clock_now. */
struct keep_history {
    int64_t down_since;    /* when the last daemon that served has ended; 0: none has */
    uint32_t quick_deaths; /* of daemons in a row that did not serve */
    uint32_t served;       /* the present daemon has served for a while */
};

struct keep_history *keep_history(struct keep *keep);
/* Has the last daemon called keep_end? */
bool keep_has_ended(const struct keep *keep);

/* --- requests ------------------------------------------------------------------------ */

struct keep_request {
    uint64_t order;       /* of arrival */
    uint32_t length;      /* of the message; 0: no request */
    uint32_t large;       /* its message is in the large piece of that number; 0: in this slot */
    uint32_t deaths;      /* how many daemons have died while it was under way */
    uint32_t interrupted; /* by the kernel */
    uint32_t waiting;     /* for a lock, a signal or a time: then a death does not count */
    uint32_t spare;       /* 0 */
    uint64_t intent[KEEP_INTENT_SIZE / sizeof(uint64_t)]; /* 0 at first; the caller's */
};

/* Where read(2) puts the next message, KEEP_LANDING_SIZE bytes.  A daemon that dies after that read(2) leaves a
 * request. NULL: no slot is free; read nothing until a request is done. */
void *keep_request_buffer(struct keep *keep);
/* The message in that buffer has a slot from now on, and is the current one.  NULL: it is no message. */
struct keep_request *keep_request_landed(struct keep *keep, size_t length);

/* Its message, a struct fuse_in_header with what follows. */
void *keep_request_message(struct keep *keep, const struct keep_request *slot);
uint64_t keep_request_unique(struct keep *keep, const struct keep_request *slot);

/* Makes a kept request the current one. */
void keep_request_resume(struct keep *keep, struct keep_request *slot);
/* The one that is being handled; or NULL. */
struct keep_request *keep_request_current(const struct keep *keep);
/* The current request belongs to the caller, who calls keep_request_done.  NULL: there is none. */
struct keep_request *keep_request_take(struct keep *keep);
/* There is no current request any more.  Done, if nobody has taken it. */
void keep_request_settle(struct keep *keep);

/* It was answered, or needs no answer.  NULL is allowed. */
void keep_request_done(struct keep *keep, struct keep_request *slot);
void keep_request_set_waiting(struct keep_request *slot, bool waiting);
/* The kernel has interrupted the request with that number: the next daemon does not hear of it again. */
void keep_request_interrupt(struct keep *keep, uint64_t unique);

/* Are so many requests waiting that no further one may? */
bool keep_is_crowded(const struct keep *keep);

/* All, in order of arrival.  `each` may end requests. */
void keep_requests_pending(struct keep *keep, void (*each)(struct keep_request *slot, void *arg), void *arg);

/* --- tables -------------------------------------------------------------------------- */

struct keep_table;

struct keep_table *keep_table(struct keep *keep, enum keep_table_id id);
/* Bytes of each record.  Zero if the memory has no such table. */
size_t keep_table_record_size(const struct keep_table *table);

/* A record of zeros, which counts for nothing until keep_record_commit.  Its number is never used twice, and is at
 * least 2^32.  NULL: the table is full. */
void *keep_record_new(struct keep_table *table, uint64_t *ret_number);
void keep_record_commit(struct keep_table *table, void *record);
/* It counts for nothing from now on, but is not free.  From any thread. */
void keep_record_end(void *record);
/* Of a new or a committed one, or of one that has ended. */
void keep_record_free(struct keep_table *table, void *record);
/* NULL: there is no such record. */
void *keep_record_find(struct keep_table *table, uint64_t number);
uint64_t keep_record_number(const struct keep_table *table, const void *record);
/* The number's lower half, which is another record's once this one is freed; and the committed record with it, or NULL.
 */
uint32_t keep_record_index(const struct keep_table *table, const void *record);
void *keep_record_at(const struct keep_table *table, uint32_t index);
/* The committed record after `record`; NULL begins, and ends. */
void *keep_record_next(struct keep_table *table, const void *record);

/* --- stores -------------------------------------------------------------------------- */

/* For tests: called before each store, or group of stores whose order does not matter; it may end the daemon.  Else
 * NULL.
 */
extern void (*keep_on_store)(void);

static inline void keep_at_store(void)
{
    if (__builtin_expect(keep_on_store != NULL, 0)) {
        keep_on_store();
    }
}

/* A store that the compiler does not move across another one.  That is enough: the next daemon looks only
 * after the end of this one. */
#define KEEP_STORE(place, value)                                                                                       \
    do {                                                                                                               \
        keep_at_store();                                                                                               \
        __atomic_signal_fence(__ATOMIC_SEQ_CST);                                                                       \
        (place) = (value);                                                                                             \
        __atomic_signal_fence(__ATOMIC_SEQ_CST);                                                                       \
    } while (0)

#endif
