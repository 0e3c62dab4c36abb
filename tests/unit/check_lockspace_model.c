/* check_lockspace_model: the lockspace against a simple model, under random operations from a printed seed (CHECK_SEED
 * repeats one).
 *
 * After each operation both agree about its result, about every event in its order, and about all that can be read of
 * the locks.  Tokens must grow from grant to grant of a lock, except for what a lock owner adds to its ticket.
 */
#include "backend/lockspace/lockspace.h"

#include "tests/support/check_main.h"
#include "tests/unit/lock_model.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { STEPS = 2500, RUNS = 4, CROWD = 24, HANDLES = 6, STRANGER = 99 };

static const char *const names[MODEL_LOCKS] = {"a", "b", "c"};

struct world {
    struct lockspace *space;
    struct lock_model *model;
    GRand *rand;
    GString *log; /* of the lockspace, as the model's */
    unsigned absorbed;
    uint64_t highest[MODEL_LOCKS]; /* token granted so far */
};

/* Tokens grow from grant to grant of a lock. */
static void see_grant(struct world *w, unsigned lock, uint64_t fence)
{
    ck_assert_uint_gt(fence, w->highest[lock]);
    w->highest[lock] = fence;
}

static unsigned lock_of(const struct backend_ticket *ticket)
{
    char name[16];
    ck_assert(lockspace_ticket_name(ticket, name, sizeof(name)));
    ck_assert_uint_eq(strlen(name), 1);
    ck_assert_int_lt(name[0] - 'a', MODEL_LOCKS);
    return (unsigned)(name[0] - 'a');
}

static void on_granted(void *context, struct backend_ticket *ticket)
{
    struct world *w = context;
    ck_assert(ticket->held);
    ck_assert_int_eq(ticket->acquired, w->model->now);
    see_grant(w, lock_of(ticket), ticket->fence);
    g_string_append_printf(w->log, "granted %" PRIu64 ";", ticket->fence);
}

static void on_due(void *context, struct backend_ticket *ticket)
{
    struct world *w = context;
    g_string_append_printf(w->log, "due %" PRIu64 ";", ticket->fence);
}

static void on_ended(void *context, struct backend_ticket *ticket, enum backend_end why)
{
    struct world *w = context;
    lock_of(ticket);
    g_string_append_printf(w->log, "ended %" PRIu64 " %d;", ticket->fence, why);
    lockspace_ticket_free(ticket);
}

static void on_wanted(void *context, struct backend_ticket *ticket)
{
    struct world *w = context;
    ck_assert(ticket->held);
    g_string_append_printf(w->log, "wanted %" PRIu64 ";", ticket->fence);
}

static void on_absorbed(void *context, struct backend_ticket *ticket)
{
    struct world *w = context;
    ck_assert_int_eq(ticket->kind, BACKEND_FCNTL);
    w->absorbed++;
}

static const struct lockspace_listener listener = {
    .granted = on_granted, .due = on_due, .ended = on_ended, .wanted = on_wanted, .absorbed = on_absorbed};

static unsigned pick(struct world *w, unsigned below)
{
    return (unsigned)g_rand_int_range(w->rand, 0, (gint32)below);
}

static uint64_t last_byte(unsigned cell)
{
    return cell == MODEL_CELLS - 1 ? BACKEND_RANGE_MAX : cell;
}

/* The model's request as a claim for the lockspace. */
static struct backend_claim claim_of(const struct model_ticket *t, bool wait)
{
    unsigned first = 0, last = MODEL_CELLS - 1;
    while (t->cells[first] == MODEL_FREE) {
        first++;
    }
    while (t->cells[last] == MODEL_FREE) {
        last--;
    }
    return (struct backend_claim){.user = (void *)&names,
                                  .kind = t->kind,
                                  .mode = t->mode,
                                  .wait = wait,
                                  .handle = t->handle,
                                  .lock_owner = t->lock_owner,
                                  .start = first,
                                  .end = last_byte(last),
                                  .ttl = t->ttl,
                                  .due = t->due_after};
}

static struct model_ticket random_wish(struct world *w, bool ranges)
{
    struct model_ticket t = {.lock = pick(w, MODEL_LOCKS)};
    unsigned first = 0, last = MODEL_CELLS - 1;
    t.mode = pick(w, 2) ? BACKEND_SHARED : BACKEND_EXCLUSIVE;
    t.kind = pick(w, 2) ? BACKEND_FLOCK : BACKEND_LEASE;
    t.handle = pick(w, 3) ? 0 : 1 + pick(w, HANDLES);
    t.ttl = 5 + pick(w, 60);
    t.due_after = pick(w, 3) ? 1 + pick(w, 40) : 0;
    if (ranges && pick(w, 2)) {
        t.kind = BACKEND_FCNTL;
        t.lock_owner = pick(w, MODEL_LOCK_OWNERS);
        t.handle = pick(w, 3) ? 0 : 1 + pick(w, HANDLES);
        first = pick(w, 3) ? pick(w, MODEL_CELLS) : 0;
        last = pick(w, 3) ? first + pick(w, MODEL_CELLS - first) : MODEL_CELLS - 1;
    }
    lock_model_ask(&t, first, last);
    return t;
}

static struct model_ticket *random_ticket(struct world *w)
{
    struct model_ticket *found[MODEL_TICKETS];
    unsigned count = 0;
    for (unsigned i = 0; i < MODEL_TICKETS; i++) {
        if (w->model->tickets[i].used) {
            found[count++] = &w->model->tickets[i];
        }
    }
    return count > 0 ? found[pick(w, count)] : NULL;
}

static void do_acquire(struct world *w, bool ranges)
{
    struct model_ticket wish = random_wish(w, ranges);
    bool wait = pick(w, 3) > 0;
    struct backend_claim claim = claim_of(&wish, wait);
    struct model_ticket *expected = NULL;
    struct backend_ticket *ticket = NULL;
    struct backend_info holder = {.type = BACKEND_NOTHING};
    uint64_t before = w->highest[wish.lock];
    unsigned absorbed = w->model->absorbed;
    enum backend_result result = lock_model_acquire(w->model, &wish, wait, &expected);
    ck_assert_int_eq(lockspace_acquire(w->space, w->model->now, names[wish.lock], &claim, &ticket, &holder), result);
    ck_assert_int_eq(ticket != NULL, result == BACKEND_OK || result == BACKEND_QUEUED);
    if (result == BACKEND_BUSY) {
        wish.fence = w->model->next_fence;
        unsigned first, last;
        const struct model_ticket *blocker = lock_model_lowest(w->model, &wish, &first, &last);
        ck_assert_ptr_nonnull(blocker);
        ck_assert_int_eq(holder.type, BACKEND_LOCK);
        ck_assert_uint_eq(holder.fence, blocker->fence);
    }
    if (result == BACKEND_OK && w->model->absorbed == absorbed) {
        ck_assert_uint_gt(ticket->fence, before);
        w->highest[wish.lock] = MAX(w->highest[wish.lock], ticket->fence);
    }
    if (expected) {
        expected->real = ticket;
    }
}

/* In any order, and late. */
static void do_claim(struct world *w)
{
    struct model_ticket *t = random_ticket(w);
    if (t && t->apart) {
        struct backend_ticket *real = t->real;
        lock_model_claim(w->model, t);
        lockspace_claim(w->space, w->model->now, real);
    }
}

static void do_release(struct world *w)
{
    struct model_ticket *t = random_ticket(w);
    if (t) {
        struct backend_ticket *real = t->real;
        lock_model_release(w->model, t);
        lockspace_release(w->space, w->model->now, real);
    }
}

static void do_release_range(struct world *w)
{
    unsigned lock = pick(w, MODEL_LOCKS), lock_owner = 1 + pick(w, MODEL_LOCK_OWNERS - 1);
    unsigned first = pick(w, MODEL_CELLS), last = first + pick(w, MODEL_CELLS - first);
    struct model_ticket *t = lock_model_held_by(w->model, lock, lock_owner);
    if (t) {
        struct backend_ticket *real = t->real;
        enum backend_result result = lock_model_release_range(w->model, t, first, last);
        ck_assert_int_eq(lockspace_release_range(w->space, w->model->now, real, first, last_byte(last)), result);
    }
}

static void do_convert(struct world *w)
{
    struct model_ticket *t = random_ticket(w);
    if (t && t->kind != BACKEND_FCNTL) {
        struct model_ticket wish = random_wish(w, false);
        struct backend_ticket *real = t->real;
        wish.lock = t->lock;
        struct backend_claim claim = claim_of(&wish, false);
        enum backend_result result = lock_model_convert(w->model, t, &wish);
        ck_assert_int_eq(lockspace_convert(w->space, w->model->now, real, &claim), result);
    }
}

static void do_renew(struct world *w)
{
    struct model_ticket *t = random_ticket(w);
    if (t) {
        struct backend_ticket *real = t->real;
        int64_t ttl = 5 + pick(w, 60), due = pick(w, 2) ? 1 + pick(w, 40) : 0;
        lock_model_renew(w->model, t, ttl, due);
        lockspace_renew(w->space, w->model->now, real, ttl, due);
    }
}

static void do_revoke(struct world *w)
{
    unsigned lock = pick(w, MODEL_LOCKS);
    uint64_t fence = 0;
    struct model_ticket *held[MODEL_TICKETS];
    unsigned holders = lock_model_tickets(w->model, lock, true, held);
    if (pick(w, 4)) {
        fence = holders > 0 && pick(w, 4) ? held[pick(w, holders)]->fence : 1 + pick(w, 1000);
    }
    enum backend_result result = lock_model_revoke(w->model, lock, fence);
    ck_assert_int_eq(lockspace_revoke(w->space, w->model->now, names[lock], fence), result);
}

static void do_rename(struct world *w)
{
    struct model_ticket *t = random_ticket(w);
    if (t && (t->kind != BACKEND_FCNTL || !t->lock_owner)) { /* those are not moved */
        unsigned lock = pick(w, MODEL_LOCKS), old = t->lock;
        struct backend_ticket *real = t->real;
        uint64_t before = w->highest[lock];
        struct model_ticket *replaced = pick(w, 3) ? random_ticket(w) : NULL;
        struct backend_ticket *really = replaced && replaced != t ? replaced->real : NULL;
        enum backend_result result = lock_model_rename(w->model, t, lock, really ? replaced : NULL);
        ck_assert_int_eq(lockspace_rename(w->space, w->model->now, real, names[lock], really), result);
        if (result == BACKEND_OK && lock != old) { /* who waited there may have been granted after it */
            ck_assert_uint_gt(real->fence, before);
            w->highest[lock] = MAX(w->highest[lock], real->fence);
        }
    }
}

/* Late, and not of all. */
static void do_answer(struct world *w)
{
    struct model_ticket *t = random_ticket(w);
    if (t && t->requested) {
        t->requested = false;
        lockspace_due_handled(w->space, t->real);
    }
}

static void do_tick(struct world *w)
{
    w->model->now += pick(w, 12);
    if (pick(w, 4)) { /* else what has expired is met by claims */
        lock_model_tick(w->model);
        lockspace_tick(w->space, w->model->now, SIZE_MAX);
    }
}

static void assert_ticket(const struct model_ticket *t)
{
    ck_assert_int_eq(t->real->held, t->held);
    ck_assert_uint_eq(t->real->fence, t->fence);
    ck_assert_int_eq(t->real->deadline, t->deadline);
    ck_assert_int_eq(t->real->ttl, t->ttl);
    ck_assert_int_eq(t->real->kind, t->kind);
    ck_assert_int_eq(t->real->mode, t->mode);
    ck_assert_uint_eq(lock_of(t->real), t->lock);
}

/* Asks, as a stranger, for each byte in each mode. */
static void assert_bytes(struct world *w, unsigned lock)
{
    for (unsigned i = 0; i < 2 * MODEL_CELLS; i++) {
        struct model_ticket probe = {.lock = lock, .kind = BACKEND_FCNTL, .lock_owner = i % 7 ? STRANGER : 1 + i / 7};
        struct backend_info info;
        unsigned first, last;
        probe.mode = i % 2 ? BACKEND_SHARED : BACKEND_EXCLUSIVE;
        lock_model_ask(&probe, i / 2, i / 2);
        probe.fence = w->model->next_fence;
        struct backend_claim claim = claim_of(&probe, false);
        lockspace_test(w->space, names[lock], &claim, &info);
        const struct model_ticket *blocker = lock_model_lowest(w->model, &probe, &first, &last);
        ck_assert_int_eq(info.type, blocker ? BACKEND_LOCK : BACKEND_NOTHING);
        if (blocker) {
            ck_assert_uint_eq(info.fence, blocker->fence);
            ck_assert_int_eq(info.deadline, blocker->deadline);
            ck_assert_uint_eq(info.start, first);
            ck_assert_uint_eq(info.end, last_byte(last));
            ck_assert_int_eq(info.mode, blocker->cells[first]);
        }
    }
}

static void assert_agree(struct world *w, unsigned step)
{
    struct model_ticket *tickets[MODEL_TICKETS];
    uint64_t held = 0;
    ck_assert_msg(strcmp(w->log->str, w->model->log->str) == 0, "step %u: events are '%s', not '%s'", step, w->log->str,
                  w->model->log->str);
    g_string_truncate(w->log, 0);
    g_string_truncate(w->model->log, 0);
    ck_assert_uint_eq(w->absorbed, w->model->absorbed);
    ck_assert_uint_eq(lockspace_next_fence(w->space), w->model->next_fence);
    ck_assert_int_eq(lockspace_next(w->space), lock_model_next(w->model));
    for (unsigned i = 0; i < MODEL_TICKETS; i++) {
        if (w->model->tickets[i].used) {
            assert_ticket(&w->model->tickets[i]);
        }
    }
    for (unsigned lock = 0; lock < MODEL_LOCKS; lock++) {
        struct backend_info info;
        unsigned holders = lock_model_tickets(w->model, lock, true, tickets);
        lockspace_stat(w->space, names[lock], &info);
        ck_assert_int_eq(info.type, holders > 0 ? BACKEND_LOCK : BACKEND_NOTHING);
        held += holders > 0;
        if (holders > 0) {
            ck_assert_uint_eq(info.fence, tickets[0]->fence);
            ck_assert_uint_eq(info.holders, holders);
            ck_assert_uint_eq(info.waiters, lock_model_tickets(w->model, lock, false, tickets));
        }
    }
    assert_bytes(w, step % MODEL_LOCKS);
    ck_assert_uint_eq(lockspace_counts(w->space).locks, held);
    ck_assert_uint_eq(lockspace_counts(w->space).waiting, lock_model_waiting(w->model));
}

static unsigned crowd(const struct world *w)
{
    unsigned count = 0;
    for (unsigned i = 0; i < MODEL_TICKETS; i++) {
        count += w->model->tickets[i].used;
    }
    return count;
}

static void step_once(struct world *w, bool ranges)
{
    unsigned choice = pick(w, 100);
    if (choice < 40) {
        if (crowd(w) < CROWD) {
            do_acquire(w, ranges);
        }
    } else if (choice < 62) {
        do_release(w);
    } else if (choice < 70) {
        do_convert(w);
    } else if (choice < 77) {
        do_renew(w);
    } else if (choice < 80) {
        do_revoke(w);
    } else if (choice < 83) {
        do_rename(w);
    } else if (choice < 86) {
        do_claim(w);
        do_answer(w);
    } else if (choice < 94 && ranges) {
        do_release_range(w);
    } else {
        do_tick(w);
    }
}

static void run(uint32_t seed, bool ranges)
{
    struct world w = {.model = lock_model_new(), .rand = g_rand_new_with_seed(seed), .log = g_string_new(NULL)};
    w.space = lockspace_new(&listener, &w, seed);
    printf("# CHECK_SEED=%u\n", seed);
    fflush(stdout);
    for (unsigned step = 0; step < STEPS; step++) {
        step_once(&w, ranges);
        assert_agree(&w, step);
    }
    lockspace_free(w.space);
    lock_model_free(w.model);
    g_string_free(w.log, TRUE);
    g_rand_free(w.rand);
}

static uint32_t seed_of_run(int i)
{
    const char *given = g_getenv("CHECK_SEED");
    return given ? (uint32_t)g_ascii_strtoull(given, NULL, 10) : (uint32_t)g_get_real_time() + (uint32_t)i * 7919u;
}

START_TEST(random_leases_and_flocks_agree_with_the_model)
{
    run(seed_of_run(_i), false);
}
END_TEST

START_TEST(random_byte_ranges_agree_with_a_map_of_bytes)
{
    run(seed_of_run(_i), true);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("lockspace_model");
    TCase *tcase = tcase_create("model");
    tcase_set_timeout(tcase, 300);
    tcase_add_loop_test(tcase, random_leases_and_flocks_agree_with_the_model, 0, RUNS);
    tcase_add_loop_test(tcase, random_byte_ranges_agree_with_a_map_of_bytes, 0, RUNS);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
