/* check_lockspace_steps: no call of the lockspace costs more with ten thousand tickets than with ten, but for a search
 * in a tree and for one part of 64; see tests/support/steps.h. */
#include <stdio.h>
#include <string.h>

#include "backend/lockspace/lockspace.h"
#include "tests/support/check_main.h"
#include "tests/support/steps.h"

enum { FEW = 10, MANY = 10000, ROUNDS = 5 };

static void on_ticket(void *context, struct backend_ticket *ticket)
{
    (void)context, (void)ticket;
}

static void on_ended(void *context, struct backend_ticket *ticket, enum backend_end why)
{
    (void)context, (void)why;
    lockspace_ticket_free(ticket);
}

static const struct lockspace_listener listener = {.granted = on_ticket,
                                                   .due = on_ticket,
                                                   .ended = on_ended,
                                                   .wanted = on_ticket,
                                                   .absorbed = on_ticket,
                                                   .guarded = on_ticket,
                                                   .unguarded = on_ticket};

static struct lockspace *space;
static struct backend_ticket *last;

static enum backend_result claim(const char *name, enum backend_kind kind, enum backend_mode mode, uint64_t owner,
                                 uint64_t start, uint64_t end, bool wait)
{
    struct backend_claim c = {.kind = kind,
                              .mode = mode,
                              .wait = wait,
                              .ttl = 1000 + (int64_t)owner,
                              .handle = kind == BACKEND_FLOCK ? owner : 0,
                              .lock_owner = kind == BACKEND_FCNTL ? owner : 0,
                              .start = start,
                              .end = end};
    c.sequence = name[strlen(name) - 1] == '-';
    return lockspace_acquire(space, 0, name, &c, &last, NULL);
}

static enum backend_result flocked(enum backend_mode mode, uint64_t handle, bool wait)
{
    return claim("a", BACKEND_FLOCK, mode, handle, 0, BACKEND_RANGE_MAX, wait);
}

static enum backend_result ranged(uint64_t owner, uint64_t byte, bool wait)
{
    return claim("a", BACKEND_FCNTL, BACKEND_EXCLUSIVE, owner, byte, byte, wait);
}

/* Each `make` makes n tickets; each `call` is counted, and leaves them as they are or nearly so. */

static void make_sharers(unsigned n)
{
    for (unsigned i = 1; i <= n; i++) {
        ck_assert_int_eq(flocked(BACKEND_SHARED, i, false), BACKEND_OK);
    }
}

static void share_and_release(unsigned n)
{
    ck_assert_int_eq(flocked(BACKEND_SHARED, n + 1, false), BACKEND_OK);
    lockspace_release(space, 0, last);
}

static void try_exclusive(unsigned n)
{
    ck_assert_int_eq(flocked(BACKEND_EXCLUSIVE, n + 1, false), BACKEND_BUSY);
}

static void convert_shared(unsigned n)
{
    struct backend_claim c = {.kind = BACKEND_FLOCK, .mode = BACKEND_SHARED, .handle = n, .ttl = 1000};
    ck_assert_int_eq(lockspace_convert(space, 0, last, &c), BACKEND_OK);
    c.mode = BACKEND_EXCLUSIVE;
    ck_assert_int_eq(lockspace_convert(space, 0, last, &c), BACKEND_BUSY);
}

static void look(unsigned n)
{
    struct backend_info info;
    struct backend_claim c = {.kind = BACKEND_FCNTL, .mode = BACKEND_EXCLUSIVE, .lock_owner = n + 1};
    c.start = c.end = n;
    lockspace_stat(space, "a", &info);
    ck_assert_uint_ge(info.holders, 1);
    lockspace_test(space, "a", &c, &info);
}

static void make_waiters(unsigned n)
{
    ck_assert_int_eq(flocked(BACKEND_EXCLUSIVE, n + 1, false), BACKEND_OK);
    struct backend_ticket *holder = last;
    for (unsigned i = 1; i <= n; i++) {
        ck_assert_int_eq(flocked(i % 2 ? BACKEND_EXCLUSIVE : BACKEND_SHARED, i, true), BACKEND_QUEUED);
    }
    last = holder;
}

static void make_sharing_waiters(unsigned n)
{
    ck_assert_int_eq(flocked(BACKEND_EXCLUSIVE, n + 1, false), BACKEND_OK);
    struct backend_ticket *holder = last;
    for (unsigned i = 1; i <= n; i++) {
        ck_assert_int_eq(flocked(BACKEND_SHARED, i, true), BACKEND_QUEUED);
    }
    last = holder;
}

static void wait_and_cancel(unsigned n)
{
    ck_assert_int_eq(flocked(BACKEND_SHARED, n + 2, true), BACKEND_QUEUED);
    lockspace_release(space, 0, last);
}

/* Grants one, or a part of those that share. */
static void hand_over(unsigned n)
{
    (void)n;
    if (last) {
        lockspace_release(space, 0, last);
        last = NULL;
    }
    lockspace_tick(space, 0, 64);
}

static void make_ranges(unsigned n)
{
    for (unsigned i = 1; i <= n; i++) {
        ck_assert_int_eq(ranged(i, 2 * i, false), BACKEND_OK);
    }
}

static void lock_and_unlock_byte(unsigned n)
{
    ck_assert_int_eq(ranged(n, 2 * n + 1, false), BACKEND_OK);
    ck_assert_int_eq(lockspace_release_range(space, 0, last, 2 * n + 1, 2 * n + 1), BACKEND_OK);
    ck_assert_int_eq(ranged(n, 2, false), n == 1 ? BACKEND_OK : BACKEND_BUSY);
}

/* Lock owner i holds byte i and waits for byte i + 1. */
static void make_chain(unsigned n)
{
    for (unsigned i = 1; i <= n; i++) {
        ck_assert_int_eq(ranged(i, i, false), BACKEND_OK);
    }
    for (unsigned i = 1; i < n; i++) { /* none of these searches is long */
        ck_assert_int_eq(ranged(i, i + 1, true), BACKEND_QUEUED);
    }
}

static void close_cycle(unsigned n)
{
    ck_assert_int_eq(ranged(n, n - MIN(n / 2, 500), true), BACKEND_DEADLOCK);
}

/* Gives up, if it is long. */
static void search_cycle(unsigned n)
{
    if (ranged(n, 1, true) == BACKEND_QUEUED) {
        lockspace_release(space, 0, last);
    }
}

static void make_byte_waiters(unsigned n)
{
    ck_assert_int_eq(ranged(n + 1, 0, false), BACKEND_OK);
    for (unsigned i = 1; i <= n; i++) {
        ck_assert_int_eq(ranged(i, 0, true), BACKEND_QUEUED);
    }
}

static void change_other_byte(unsigned n)
{
    ck_assert_int_eq(ranged(n + 1, 9, false), BACKEND_OK);
    ck_assert_int_eq(lockspace_release_range(space, 0, last, 9, 9), BACKEND_OK);
    ck_assert_int_eq(ranged(n + 2, 0, true), BACKEND_QUEUED);
    lockspace_release(space, 0, last);
}

static void make_queue(unsigned n)
{
    struct backend_directory attributes = {.width = n / 2};
    ck_assert_int_eq(lockspace_mkdir(space, "q", &attributes), BACKEND_OK);
    for (unsigned i = 1; i <= n; i++) {
        claim("q/j-", BACKEND_LEASE, i % 4 ? BACKEND_SHARED : BACKEND_EXCLUSIVE, i, 0, 0, true);
    }
}

static void queue_and_leave(unsigned n)
{
    claim("q/j-", BACKEND_LEASE, BACKEND_SHARED, n + 1, 0, 0, true);
    lockspace_release(space, 0, last);
}

static void list_part(unsigned n)
{
    struct backend_entry entries[64];
    struct backend_info infos[64];
    ck_assert_int_ge(lockspace_list(space, "q", "", 64, entries), MIN(n, 64));
    ck_assert_int_ge(lockspace_tickets(space, "q", "", 64, entries, infos), MIN(n, 64));
}

/* All with a lock-delay. */
static void make_delayed(unsigned n)
{
    struct backend_directory attributes = {.width = 1, .delay = 100000};
    ck_assert_int_eq(lockspace_set_directory(space, 0, "", &attributes), BACKEND_OK);
    make_sharers(n);
}

static void expire(unsigned n)
{
    lockspace_tick(space, 1000 + n, 5);
}

/* Looks at one ticket, at a part of 64 (with a search for each), or at as many as a search for cycles may. */
enum { ONE = 2, PART = 40, SEARCH = 400 };

static const struct {
    const char *what;
    void (*make)(unsigned n);
    void (*call)(unsigned n);
    unsigned growth; /* so many times the steps of few */
} cases[] = {
    {"share and release beside sharers", make_sharers, share_and_release, ONE},
    {"try beside sharers", make_sharers, try_exclusive, ONE},
    {"convert beside sharers", make_sharers, convert_shared, ONE},
    {"stat and F_GETLK beside sharers", make_sharers, look, ONE},
    {"wait and cancel behind waiters", make_waiters, wait_and_cancel, ONE},
    {"wait and cancel behind waiters that share", make_sharing_waiters, wait_and_cancel, ONE},
    {"hand over to one of many", make_waiters, hand_over, ONE},
    {"hand over to many at once", make_sharing_waiters, hand_over, PART},
    {"lock and unlock a byte beside others", make_ranges, lock_and_unlock_byte, ONE},
    {"stat and F_GETLK beside byte ranges", make_ranges, look, ONE},
    {"a byte beside that for which many wait", make_byte_waiters, change_other_byte, PART},
    {"a wait that closes a cycle", make_chain, close_cycle, SEARCH},
    {"a wait that closes a cycle of all", make_chain, search_cycle, SEARCH},
    {"a place in a long queue", make_queue, queue_and_leave, PART},
    {"a part of a listing", make_queue, list_part, PART},
    {"expiry of sharers", make_sharers, expire, ONE},
    {"expiry of sharers with a lock-delay", make_delayed, expire, ONE},
    {"expiry of a queue's tickets", make_queue, expire, PART},
};

/* The most that a call takes. */
static uint64_t measure(int i, unsigned n)
{
    uint64_t most = 0;
    space = lockspace_new(&listener, NULL, 1);
    cases[i].make(n);
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t before = steps_now();
        cases[i].call(n);
        most = MAX(most, steps_now() - before);
    }
    lockspace_free(space);
    return most;
}

START_TEST(a_call_beside_very_many_costs_little_more_than_beside_few)
{
    uint64_t few = measure(_i, FEW), many = measure(_i, MANY);
    printf("# %s: %" G_GUINT64_FORMAT " steps beside %d, %" G_GUINT64_FORMAT " beside %d\n", cases[_i].what, few, FEW,
           many, MANY);
    ck_assert_uint_gt(few, 0);
    ck_assert_msg(many <= cases[_i].growth * few + STEPS_EXTRA,
                  "%s: %" G_GUINT64_FORMAT " steps, not %" G_GUINT64_FORMAT, cases[_i].what, many, few);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("lockspace_steps");
    TCase *tcase = tcase_create("steps");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, a_call_beside_very_many_costs_little_more_than_beside_few, 0, G_N_ELEMENTS(cases));
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
