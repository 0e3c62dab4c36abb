/* contract_locks: locks of two mounts, and their renewals. */
#include "tests/contract/contract_locks.h"

enum { LOCKS = 8 };

static struct lock locks[LOCKS];

void lock_turn(void)
{
    contract_turn();
    for (unsigned i = 0; i < LOCKS; i++) {
        struct lock *lock = &locks[i];
        if (lock->mount && lock->ticket && !lock->fixed && !lock->log.ended && lock->log.due > lock->renewed) {
            const struct backend_renewal renewal = {.ticket = lock->ticket, .ttl = lock->ttl, .due = lock->ttl / 3};
            lock->renewed = lock->log.due;
            backend_renew(lock->mount, &renewal, 1);
        }
    }
}

void lock_pass(int64_t ms)
{
    clock_ms until = clock_now() + ms;
    LOCK_UNTIL(clock_now() >= until);
}

struct backend_claim lock_claim(enum backend_kind kind, enum backend_mode mode)
{
    struct backend_claim claim = contract_claim(kind, NULL);
    claim.mode = mode;
    claim.ttl = LOCK_TERM;
    claim.wait = true;
    return claim;
}

struct lock *lock_ask(struct backend *mount, const char *name, const struct backend_claim *requested)
{
    struct lock *lock = locks;
    while (lock->mount && lock->ticket && !lock->log.ended)
        ck_assert_uint_lt((unsigned)(++lock - locks), LOCKS);
    *lock = (struct lock){.mount = mount, .ttl = requested->ttl};
    struct backend_claim claim = *requested;
    claim.user = &lock->log;
    claim.due = claim.ttl / 3;
    struct backend *before = contract_backend;
    contract_backend = mount;
    struct contract_acquired acquired = contract_acquire(name, &claim);
    contract_backend = before;
    lock->ticket = acquired.ticket;
    lock->result = acquired.result;
    return lock;
}

static struct lock *get(struct backend *mount, const char *name, enum backend_mode mode)
{
    struct backend_claim claim = lock_claim(BACKEND_FLOCK, mode);
    struct lock *lock = lock_ask(mount, name, &claim);
    ck_assert(lock->result == BACKEND_OK || lock->result == BACKEND_QUEUED);
    return lock;
}

struct lock *lock_take(struct backend *mount, const char *name)
{
    return get(mount, name, BACKEND_EXCLUSIVE);
}

struct lock *lock_share(struct backend *mount, const char *name)
{
    return get(mount, name, BACKEND_SHARED);
}

static void on_released(void *arg, enum backend_result result)
{
    if (arg)
        *(int *)arg = (int)result;
    contract_end_turn();
}

void lock_release(struct lock *lock)
{
    struct backend_ticket *ticket = lock->ticket;
    ck_assert(ticket && !lock->log.ended); /* an ended ticket is freed */
    lock->ticket = NULL;
    backend_release(lock->mount, ticket, on_released, NULL);
}

enum backend_result lock_release_and_wait(struct lock *lock)
{
    struct backend_ticket *ticket = lock->ticket;
    int result = -1;
    ck_assert(ticket && !lock->log.ended);
    lock->ticket = NULL;
    backend_release(lock->mount, ticket, on_released, &result);
    LOCK_UNTIL(result >= 0);
    return (enum backend_result)result;
}

bool lock_is_busy_at(struct backend *mount, const char *name)
{
    struct backend *before = contract_backend;
    contract_backend = mount;
    bool busy = contract_is_busy(name);
    contract_backend = before;
    return busy;
}

static void lock_on_reached(void *arg, enum backend_result result, const struct backend_info *info)
{
    int *answer = arg;
    (void)info;
    *answer = result;
}

bool lock_is_reached_from(struct backend *mount)
{
    int result = -1;
    backend_stat(mount, "reached", lock_on_reached, &result);
    LOCK_UNTIL(result >= 0);
    return result == BACKEND_OK;
}

struct backend_info lock_stat_at(struct backend *mount, const char *name)
{
    struct backend *before = contract_backend;
    contract_backend = mount;
    struct backend_info info = contract_stat(name);
    contract_backend = before;
    return info;
}

void lock_mount_dies(void)
{
    for (unsigned i = 0; i < LOCKS; i++)
        if (locks[i].mount == contract_one)
            locks[i].mount = NULL;
    backend_free(contract_one);
    contract_one = NULL;
    contract_backend = contract_other;
}

void lock_teardown(void)
{
    backend_free(contract_other);
    contract_backend = contract_one;
    contract_teardown();
}
