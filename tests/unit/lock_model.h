/* lock_model: a simple lockspace to compare with.
 *
 * It keeps holders and waiters in an array and looks at all of it each time; each ticket has a map of bytes, as POSIX
 * describes the locks of a lock owner.  It has ordinary locks only, by number, without names, directories or sequences.
 * Events are written to `log`, as "granted 7;" with the fencing token, except `absorbed`, whose order is not promised:
 * they are counted.
 */
#ifndef TESTS_UNIT_LOCK_MODEL_H
#define TESTS_UNIT_LOCK_MODEL_H

#include "backend/backend.h"

/* The last cell stands for all bytes from there to BACKEND_RANGE_MAX. */
enum { MODEL_LOCKS = 3, MODEL_LOCK_OWNERS = 5, MODEL_CELLS = 12, MODEL_TICKETS = 200, MODEL_FREE = -1 };

struct model_ticket {
    bool used;
    bool held;
    unsigned lock;
    enum backend_kind kind;
    enum backend_mode mode;
    uint64_t handle; /* by which it was first asked for; 0: none */
    uint64_t lock_owner;
    signed char cells[MODEL_CELLS]; /* the mode of each, or MODEL_FREE */
    bool apart;                     /* granted after it has waited, and not claimed */
    uint64_t fence;
    int64_t ttl;
    int64_t due_after;
    clock_ms deadline;
    clock_ms due;
    bool requested;              /* told that it is due, and not answered yet */
    struct backend_ticket *real; /* its counterpart */
};

struct lock_model {
    struct model_ticket tickets[MODEL_TICKETS];
    uint64_t granted[MODEL_LOCKS]; /* highest token ever */
    uint64_t next_fence;
    clock_ms now;
    GString *log;
    unsigned absorbed;
};

struct lock_model *lock_model_new(void);
void lock_model_free(struct lock_model *m);

/* These cells are asked for, and no other. */
void lock_model_ask(struct model_ticket *t, unsigned first, unsigned last);

/* All of a lock in the order of numbers: the holders, or those that wait. */
unsigned lock_model_tickets(const struct lock_model *m, unsigned lock, bool held, struct model_ticket **tickets);

/* The ticket that blocks a claim or a waiting ticket, or NULL. */
struct model_ticket *lock_model_blocker(const struct lock_model *m, const struct model_ticket *t);
/* The conflicting holder with the lowest range, and its cells; else the conflicting waiter with the lowest range. */
struct model_ticket *lock_model_lowest(const struct lock_model *m, const struct model_ticket *t, unsigned *ret_first,
                                       unsigned *ret_last);

/* `wanted` describes the claim; OK and QUEUED set *ret_ticket. */
enum backend_result lock_model_acquire(struct lock_model *m, const struct model_ticket *wanted, bool wait,
                                       struct model_ticket **ret_ticket);
/* The user of one that was granted hears of it. */
void lock_model_claim(struct lock_model *m, struct model_ticket *t);
void lock_model_release(struct lock_model *m, struct model_ticket *t);
/* That with which a lock owner holds, or NULL. */
struct model_ticket *lock_model_held_by(struct lock_model *m, unsigned lock, uint64_t lock_owner);
/* MISSING: nothing is left of it. */
enum backend_result lock_model_release_range(struct lock_model *m, struct model_ticket *t, unsigned first,
                                             unsigned last);
enum backend_result lock_model_convert(struct lock_model *m, struct model_ticket *t, const struct model_ticket *wanted);
void lock_model_renew(struct lock_model *m, struct model_ticket *t, int64_t ttl, int64_t due_after);
enum backend_result lock_model_revoke(struct lock_model *m, unsigned lock, uint64_t fence);
/* `replaced`: what gives way if it holds the lock, and nobody else does; NULL: nothing. */
enum backend_result lock_model_rename(struct lock_model *m, struct model_ticket *t, unsigned lock,
                                      struct model_ticket *replaced);
void lock_model_tick(struct lock_model *m);

/* When lock_model_tick has something to do. */
clock_ms lock_model_next(struct lock_model *m);
unsigned lock_model_waiting(const struct lock_model *m);

#endif
