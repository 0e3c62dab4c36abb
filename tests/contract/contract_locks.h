/* contract_locks: locks of two mounts.  Each mount renews its locks when they are due. */
#ifndef TESTS_CONTRACT_LOCKS_H
#define TESTS_CONTRACT_LOCKS_H

#include "tests/contract/contract.h"

enum { LOCK_TERM = 2000 };

struct lock {
    struct backend *mount;
    struct backend_ticket *ticket; /* NULL: refused or released */
    enum backend_result result;
    struct contract_log log;
    unsigned renewed;
    int64_t ttl;
    bool fixed; /* it is not renewed */
};

/* One turn of the loop, with renewals. */
void lock_turn(void);
void lock_pass(int64_t ms);
#define LOCK_UNTIL(condition)                                                                                          \
    do {                                                                                                               \
        contract_restart_time_limit();                                                                                 \
        while (!(condition))                                                                                           \
            lock_turn();                                                                                               \
    } while (0)

/* A claim of that kind and mode, of LOCK_TERM, which waits; its answer is in `result`. */
struct backend_claim lock_claim(enum backend_kind kind, enum backend_mode mode);
struct lock *lock_ask(struct backend *mount, const char *name, const struct backend_claim *claim);
/* Exclusive; it is granted, or waits behind another. */
struct lock *lock_take(struct backend *mount, const char *name);
/* The same, shared. */
struct lock *lock_share(struct backend *mount, const char *name);
/* The answer may come much later, or never. */
void lock_release(struct lock *lock);
enum backend_result lock_release_and_wait(struct lock *lock);

/* Whether a lease would be refused there now as BUSY; if not it is released again. */
bool lock_is_busy_at(struct backend *mount, const char *name);
struct backend_info lock_stat_at(struct backend *mount, const char *name);
/* Does the mount answer questions now? */
bool lock_is_reached_from(struct backend *mount);
/* contract_one ends without releasing anything, as after kill -9. */
void lock_mount_dies(void);
/* As contract_teardown_two, also where it did. */
void lock_teardown(void);

#endif
