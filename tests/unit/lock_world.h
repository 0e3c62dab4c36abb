/* lock_world: a lockspace that reports its events as text, for scenarios.
 *
 * A claim has a name, its `user`, and events contain it: "granted B; due A; ended C expired; wanted A; absorbed A; ".
 */
#ifndef TESTS_UNIT_LOCK_WORLD_H
#define TESTS_UNIT_LOCK_WORLD_H

#include "backend/lockspace/lockspace.h"

#include "tests/support/check_main.h"

enum { WORLD_TTL = 1000 };

struct lock_world {
    struct lockspace *space;
    clock_ms now;
    GString *log;
    GString *text;                /* of the last lock_world_list */
    struct backend_ticket *ended; /* the last one, until the next */
    GPtrArray *due;               /* tickets whose `due` was reported and not handled */
    struct {
        struct backend_ticket *ticket;
        uint64_t lock_owner;
    } of[16]; /* lock owners */
};

void lock_world_init(struct lock_world *w);
void lock_world_clear(struct lock_world *w);

/* Claims of WORLD_TTL that wait, by `who`. */
struct backend_claim lock_world_claim(const char *who, enum backend_mode mode);
struct backend_claim lock_world_range(const char *who, enum backend_mode mode, uint64_t lock_owner, uint64_t start,
                                      uint64_t end);
struct backend_claim lock_world_sequence(const char *who, enum backend_mode mode);

enum backend_result lock_world_try(struct lock_world *w, const char *name, struct backend_claim claim,
                                   struct backend_ticket **ret_ticket);

/* As said: must hold at once, must wait, must be refused. */
struct backend_ticket *lock_world_hold(struct lock_world *w, const char *name, struct backend_claim claim);
struct backend_ticket *lock_world_wait(struct lock_world *w, const char *name, struct backend_claim claim);
void lock_world_refused(struct lock_world *w, const char *name, struct backend_claim claim);

/* What a lock owner holds or, if it holds nothing, waits for. */
struct backend_ticket *lock_world_of(const struct lock_world *w, uint64_t lock_owner);
/* Gives back bytes of that. */
void lock_world_unlock(struct lock_world *w, uint64_t lock_owner, uint64_t start, uint64_t end);
void lock_world_release(struct lock_world *w, struct backend_ticket *ticket);
/* Handles all `due` events without a renewal. */
bool lock_world_answer(struct lock_world *w);
void lock_world_tick(struct lock_world *w, clock_ms to);
void lock_world_mkdir(struct lock_world *w, const char *name);
void lock_world_set_width(struct lock_world *w, const char *name, uint32_t width);
struct backend_info lock_world_stat(struct lock_world *w, const char *name);

/* The names in a directory, "a b/ c ", directories with a slash; until the next call. */
const char *lock_world_list(struct lock_world *w, const char *name);

/* The events since the last check. */
#define lock_world_reported(w, expected)                                                                               \
    do {                                                                                                               \
        ck_assert_str_eq((w)->log->str, expected);                                                                     \
        g_string_truncate((w)->log, 0);                                                                                \
    } while (0)

#endif
