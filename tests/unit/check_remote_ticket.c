/* check_remote_ticket: tickets of a store across a network, without a server: cycles of waits, the ids that a grant may
 * name, and cancelled claims.
 */

#include "backend/redis/private.h"
#include "tests/support/check_main.h"

static struct remote *r;

static void setup(void)
{
    struct redis_options options = {.seed = 1, .conn.uri.path = (char *)"/nowhere"};
    struct backend *backend;
    char error[256];

    ck_assert_msg(redis_new(&options, &backend, error, sizeof(error)) == 0, "%s", error);
    r = (struct remote *)backend;
}

static void teardown(void)
{
    backend_free(&r->backend);
}

/* What the lock owner has on the lock of that number. */
static struct remote_ticket *add(unsigned lock, uint64_t lock_owner, bool holds)
{
    struct backend_claim claim = {
        .kind = BACKEND_FCNTL, .lock_owner = lock_owner, .end = BACKEND_RANGE_MAX, .ttl = 60000, .wait = true};
    char name[16];
    struct remote_ticket *t;

    g_snprintf(name, sizeof(name), "%u", lock);
    t = remote_ticket_new(r, name, &claim);
    t->head.fence = ++r->serials;
    remote_ticket_set_state(r, t, holds ? REMOTE_HELD : REMOTE_WAITING);
    if (holds)
        t->segments = backend_segments_new(0, BACKEND_RANGE_MAX, BACKEND_EXCLUSIVE);
    return t;
}

START_TEST(without_ranges_only_the_whole_lock_exists)
{
    struct remote_ticket *whole = add(1, 1, false), *parts = add(2, 2, true);

    ck_assert(remote_ticket_cut_range(whole, 5, BACKEND_RANGE_MAX));
    ck_assert(remote_ticket_cut_range(whole, 0, 9));
    ck_assert(!remote_ticket_cut_range(whole, 0, BACKEND_RANGE_MAX));
    ck_assert(remote_ticket_cut_range(parts, 5, BACKEND_RANGE_MAX));
    ck_assert(!remote_ticket_cut_range(parts, 0, 9));
}
END_TEST

/* --- cycles --- */

/* Lock owner n holds lock n and waits for lock n + 1; the last waits for lock `back`. */
static struct remote_ticket *add_chain(unsigned length, unsigned back)
{
    struct remote_ticket *last = NULL;

    for (unsigned i = 1; i <= length; i++)
        add(i, i, true);
    for (unsigned i = 1; i <= length; i++)
        last = add(i < length ? i + 1 : back, i, false);
    return last;
}

START_TEST(cycle_of_any_length_that_is_searched_is_found)
{
    static const unsigned lengths[] = {2, 3, 10, 100, 400};

    ck_assert(remote_deadlocked(r, add_chain(lengths[_i], 1)));
}
END_TEST

START_TEST(chain_without_an_end_at_itself_is_no_cycle)
{
    ck_assert(!remote_deadlocked(r, add_chain(1000, 5000)));
}
END_TEST

/* --- tokens --- */

START_TEST(grant_may_name_only_tickets_of_the_same_lock_owner_and_lock)
{
    struct remote_ticket *held = add(1, 7, true), *t = add(1, 7, false), *lease;
    struct backend_claim claim = {.kind = BACKEND_LEASE, .ttl = 60000};

    ck_assert(remote_ticket_accepts_id(r, t, t->id));
    ck_assert(remote_ticket_accepts_id(r, t, held->id));
    ck_assert(remote_ticket_accepts_id(r, t, "0123456789abcdef0123456789abcdef")); /* forgotten here */
    ck_assert(!remote_ticket_accepts_id(r, t, "0123456789abcdef"));
    ck_assert(!remote_ticket_accepts_id(r, t, ""));
    ck_assert(!remote_ticket_accepts_id(r, t, add(2, 7, true)->id));
    ck_assert(!remote_ticket_accepts_id(r, t, add(1, 8, true)->id));
    ck_assert(!remote_ticket_accepts_id(r, t, add(1, 7, false)->id));
    lease = remote_ticket_new(r, "1", &claim);
    ck_assert(!remote_ticket_accepts_id(r, t, lease->id));
    ck_assert(!remote_ticket_accepts_id(r, lease, held->id));
    ck_assert(!remote_ticket_accepts_id(r, lease, "0123456789abcdef0123456789abcdef"));
}
END_TEST

/* --- giving up --- */

static unsigned granted, ended;
static enum backend_result reported;

static void on_granted(void *context, struct backend_ticket *ticket)
{
    (void)context, (void)ticket;
    granted++;
}

static enum backend_end ended_why;

static void on_ended(void *context, struct backend_ticket *ticket, enum backend_end why)
{
    (void)context, (void)ticket;
    ended_why = why;
    ended++;
}

static void on_acquired(void *arg, enum backend_result result, struct backend_ticket *ticket,
                        const struct backend_info *holder)
{
    (void)arg, (void)ticket, (void)holder;
    reported = result;
}

static struct remote_request *sent[6]; /* of a store that does not answer by itself */
static unsigned count;

static uint64_t on_call(struct remote_request *request, struct remote_ticket *t, int64_t timeout)
{
    (void)t, (void)timeout;
    ck_assert_uint_lt(count, G_N_ELEMENTS(sent));
    sent[count++] = request;
    return 0;
}

static struct remote_store silent;
static struct ev_loop *loop;

/* It begins with a store that answers nothing by itself. */
static void begin_silent(void)
{
    static const struct backend_events events = {.granted = on_granted, .ended = on_ended};
    loop = ev_loop_new(EVFLAG_AUTO);
    backend_start(&r->backend, loop, &events, NULL);
    silent = *r->store;
    silent.send = on_call;
    r->store = &silent;
}

static void end_silent(void)
{
    backend_free(&r->backend);
    setup(); /* for the teardown */
    ev_loop_destroy(loop);
}

/* What a lock owner holds that has the first ten bytes shared and the rest exclusive.  Valid until the next call. */
static const GArray *shared_beside_exclusive(void)
{
    static GArray *segments;
    const enum backend_mode shared = BACKEND_SHARED;

    g_clear_pointer(&segments, g_array_unref);
    segments = backend_segments_new(0, BACKEND_RANGE_MAX, BACKEND_EXCLUSIVE);
    backend_segments_set(segments, 0, 9, &shared);
    return segments;
}

/* A grant of a lock that was asked for so many milliseconds ago. */
static struct remote_answer granted_after(int64_t delay)
{
    return (struct remote_answer){.outcome = REMOTE_ANSWERED,
                                  .result = BACKEND_OK,
                                  .sent = clock_now() - delay,
                                  .leaf = "",
                                  .id = "0123456789abcdef0123456789abcdef"};
}

static void answer(struct remote_ticket *t, const struct remote_answer *answer)
{
    t->acquiring->on_answer(t->acquiring, answer);
}

/* The answer to a cancelled claim: _i of these.  `first`: it is the claim's first answer; otherwise it had waited.  One
 * of unknown outcome is undone before anything is reported. */
static const struct {
    bool first;
    struct remote_answer answer;
    unsigned granted, ended;
    enum backend_result reported;
} outcomes[] = {
    {true, {.outcome = REMOTE_ANSWERED, .result = BACKEND_QUEUED}, 0, 0, BACKEND_UNREACHABLE},
    {true, {.outcome = REMOTE_ANSWERED, .result = BACKEND_OK}, 0, 0, BACKEND_OK},
    {true, {.outcome = REMOTE_UNKNOWN, .result = BACKEND_UNREACHABLE}, 0, 0, BACKEND_UNREACHABLE},
    {false, {.outcome = REMOTE_ANSWERED, .result = BACKEND_QUEUED}, 0, 1, BACKEND_QUEUED}, /* it was passed over */
    {false, {.outcome = REMOTE_ANSWERED, .result = BACKEND_OK}, 1, 0, BACKEND_QUEUED},
    {false, {.outcome = REMOTE_UNKNOWN, .result = BACKEND_UNREACHABLE}, 0, 1, BACKEND_QUEUED},
};

/* A lock owner that waits for a shared record lock of ten bytes. */
static struct backend_claim shared_waiter(void)
{
    return (struct backend_claim){.kind = BACKEND_FCNTL,
                                  .mode = BACKEND_SHARED,
                                  .lock_owner = 7,
                                  .end = 9,
                                  .ttl = 60000,
                                  .wait = true,
                                  .user = &reported};
}

START_TEST(claim_of_a_lock_owner_that_holds_is_given_up_when_it_is_answered)
{
    struct backend_claim claim = shared_waiter();
    struct remote_answer queued = {
        .outcome = REMOTE_ANSWERED, .result = BACKEND_QUEUED, .leaf = "", .sent = clock_now()};
    struct remote_answer last = outcomes[_i].answer;
    const struct remote_answer undone = {.outcome = REMOTE_ANSWERED, .result = BACKEND_OK};
    struct remote_ticket *held = add(1, 7, true), *t = remote_ticket_new(r, "1", &claim);
    g_autofree char *id = g_strdup(held->id); /* `held` goes when t takes its place */

    begin_silent();
    reported = BACKEND_DAMAGED;
    remote_acquire(r, t, on_acquired, NULL);
    if (!outcomes[_i].first) {
        answer(t, &queued);
        remote_on_event(r, t->id, REMOTE_GRANTED, BACKEND_LOST);
        ck_assert_int_eq(t->state, REMOTE_CLAIMING);
    }
    ck_assert(!backend_cancel(&r->backend, &t->head));
    last.sent = clock_now();
    last.leaf = "";
    last.id = id;
    last.segments = shared_beside_exclusive();
    answer(t, &last);
    if (last.outcome == REMOTE_UNKNOWN) {
        ck_assert_int_eq(reported, outcomes[_i].first ? BACKEND_DAMAGED : BACKEND_QUEUED);
        ck_assert_uint_eq(ended, 0);
        ck_assert(!backend_cancel(&r->backend, &t->head));
        ck_assert_int_eq(sent[count - 1]->procedure, REMOTE_RELEASE);
        sent[count - 1]->on_answer(sent[count - 1], &undone);
    }
    ck_assert_uint_eq(granted, outcomes[_i].granted);
    ck_assert_uint_eq(ended, outcomes[_i].ended);
    ck_assert_int_eq(reported, outcomes[_i].reported);
    ck_assert_uint_eq(g_hash_table_size(r->tickets), 1);
    end_silent();
}
END_TEST

/* Of one that made a lock weaker, or may have: _i of what its undoing is answered. */
START_TEST(lock_whose_weaker_claim_cannot_be_undone_is_lost)
{
    static const struct remote_answer answers[] = {
        {.outcome = REMOTE_ANSWERED, .result = BACKEND_STALE},
        {.outcome = REMOTE_UNKNOWN, .result = BACKEND_UNREACHABLE},
        {.outcome = REMOTE_UNKNOWN, .result = BACKEND_UNREACHABLE},
    };
    struct backend_claim claim = {.kind = BACKEND_FCNTL,
                                  .mode = _i < 2 ? BACKEND_SHARED : BACKEND_EXCLUSIVE,
                                  .lock_owner = 7,
                                  .end = 9,
                                  .ttl = 60000,
                                  .user = &reported};
    const struct remote_answer unknown = {.outcome = REMOTE_UNKNOWN, .result = BACKEND_UNREACHABLE};
    struct remote_ticket *held = add(1, 7, true), *t = remote_ticket_new(r, "1", &claim);
    held->head.user = &reported;
    held->head.mode = _i < 2 ? BACKEND_EXCLUSIVE : BACKEND_SHARED;
    begin_silent();
    reported = BACKEND_DAMAGED;
    remote_acquire(r, t, on_acquired, NULL);
    answer(t, &unknown);
    ck_assert_int_eq(reported, BACKEND_DAMAGED);
    sent[1]->on_answer(sent[1], &answers[_i]);
    ck_assert_int_eq(reported, BACKEND_UNREACHABLE);
    ck_assert_uint_eq(ended, _i < 2);
    ck_assert_uint_eq(count, _i == 0 ? 2 : _i == 1 ? 4 : 3); /* it is tried on */
    ck_assert_uint_eq(g_hash_table_size(r->tickets), _i == 2);
    end_silent();
}
END_TEST

/* Others share it by now: it is asked for again, and stands, or else all is lost. */
START_TEST(weaker_claim_that_others_share_stands)
{
    struct backend_claim claim = {
        .kind = BACKEND_FCNTL, .mode = BACKEND_SHARED, .lock_owner = 7, .end = 9, .ttl = 60000, .user = &reported};
    const struct remote_answer unknown = {.outcome = REMOTE_UNKNOWN, .result = BACKEND_UNREACHABLE},
                               shared = {.outcome = REMOTE_ANSWERED, .result = BACKEND_BUSY};
    struct remote_ticket *held = add(1, 7, true), *t = remote_ticket_new(r, "1", &claim);
    g_autofree char *id = g_strdup(held->id);
    struct remote_answer grant = granted_after(10);
    grant.id = id;
    grant.segments = shared_beside_exclusive();
    held->head.user = &reported;
    begin_silent();
    reported = BACKEND_DAMAGED;
    remote_acquire(r, t, on_acquired, NULL);
    answer(t, &unknown);
    sent[1]->on_answer(sent[1], &shared);
    ck_assert_int_eq(reported, BACKEND_DAMAGED);
    ck_assert_int_eq(sent[2]->procedure, REMOTE_ACQUIRE);
    if (_i == 0) {
        answer(t, &grant);
        ck_assert_int_eq(reported, BACKEND_OK);
        ck_assert(t->head.joined);
    } else {
        answer(t, &unknown);
        sent[3]->on_answer(sent[3], &shared);
        ck_assert_int_eq(reported, BACKEND_UNREACHABLE);
    }
    ck_assert_uint_eq(ended, _i == 1);
    ck_assert_uint_eq(g_hash_table_size(r->tickets), _i == 0);
    end_silent();
}
END_TEST

/* The store granted the lock to the waiter before it cancelled, and then to others. */
START_TEST(lock_that_a_cancelled_waiter_has_weakened_is_lost_if_others_share_it)
{
    struct backend_claim claim = shared_waiter();
    const struct remote_answer queued = {.outcome = REMOTE_ANSWERED, .result = BACKEND_QUEUED, .sent = clock_now()},
                               shared = {.outcome = REMOTE_ANSWERED, .result = BACKEND_BUSY};
    struct remote_ticket *held = add(1, 7, true), *t = remote_ticket_new(r, "1", &claim);
    held->head.user = &reported;
    begin_silent();
    remote_acquire(r, t, on_acquired, NULL);
    answer(t, &queued);
    ck_assert(backend_cancel(&r->backend, &t->head));
    ck_assert_int_eq(sent[1]->procedure, REMOTE_RELEASE);
    ck_assert_uint_eq(ended, 0);
    sent[1]->on_answer(sent[1], &shared);
    ck_assert_uint_eq(ended, 1);
    ck_assert_int_eq(ended_why, BACKEND_LOST);
    ck_assert_uint_eq(g_hash_table_size(r->tickets), 0);
    end_silent();
}
END_TEST

START_TEST(claim_is_given_up_at_once_where_its_lock_owner_has_no_other)
{
    struct backend_claim claim = {.kind = BACKEND_FCNTL, .lock_owner = 7, .end = 9, .ttl = 60000, .wait = true};
    struct remote_ticket *t = remote_ticket_new(r, "1", &claim);

    add(1, 8, true);
    add(2, 7, true);
    begin_silent();
    remote_acquire(r, t, on_acquired, NULL);
    ck_assert(backend_cancel(&r->backend, &t->head));
    ck_assert_uint_eq(g_hash_table_size(r->tickets), 2);
    end_silent();
}
END_TEST

/* --- renewals --- */

static void on_done(void *arg, enum backend_result result)
{
    (void)arg;
    reported = result;
}

/* _i: 0: the lock owner then waits for other bytes; 1: for these bytes. */
START_TEST(unlock_without_an_answer_is_repeated_unless_its_bytes_are_claimed_again)
{
    struct backend_claim claim = {.kind = BACKEND_FCNTL,
                                  .lock_owner = 7,
                                  .start = _i == 0 ? 20 : 9,
                                  .end = 29,
                                  .ttl = 60000,
                                  .wait = true,
                                  .user = &reported};
    const struct remote_answer queued = {.outcome = REMOTE_ANSWERED, .result = BACKEND_QUEUED, .sent = clock_now()},
                               unknown = {.outcome = REMOTE_UNKNOWN, .result = BACKEND_UNREACHABLE};
    struct remote_ticket *held = add(1, 7, true), *t = remote_ticket_new(r, "1", &claim);
    begin_silent();
    remote_acquire(r, t, on_acquired, NULL);
    answer(t, &queued);
    ck_assert(remote_release_range(r, held, 0, 9, on_done, NULL));
    ck_assert_int_eq(sent[1]->procedure, REMOTE_RELEASE_RANGE);
    sent[1]->on_answer(sent[1], &unknown);
    ck_assert_int_eq(reported, BACKEND_UNREACHABLE);
    ck_assert_uint_eq(count, _i == 0 ? 3 : 2);
    end_silent();
}
END_TEST

/* While a server grants nothing, a renewal puts back what was known when it was sent. */
START_TEST(what_is_changed_while_it_is_renewed_is_renewed_again)
{
    struct backend_claim lease = {.kind = BACKEND_LEASE, .ttl = 60000}, flock = {.kind = BACKEND_FLOCK, .ttl = 60000};
    struct backend_change change = {.set = BACKEND_SET_META};
    struct remote_answer done = {.outcome = REMOTE_ANSWERED, .result = BACKEND_OK, .sent = clock_now()};
    struct remote_ticket *t = remote_ticket_new(r, "1", &lease);
    remote_ticket_set_state(r, t, REMOTE_HELD);
    t->head.deadline = clock_now() + 60000;
    begin_silent();
    if (_i == 1) {
        backend_convert(&r->backend, &t->head, &flock, on_done, NULL);
    } else if (_i == 2) {
        backend_set(&r->backend, &t->head, &change, on_done, NULL);
    }
    remote_extend(r, t);
    ck_assert_uint_eq(count, _i ? 2 : 1);
    for (unsigned i = 0, answered = count; i < answered; i++) {
        sent[i]->on_answer(sent[i], &done);
    }
    ck_assert_uint_eq(count, _i ? 3 : 1);
    if (_i) {
        ck_assert_int_eq(reported, BACKEND_OK);
        ck_assert_int_eq(sent[2]->procedure, REMOTE_RENEW);
        sent[2]->on_answer(sent[2], &done);
        ck_assert_uint_eq(count, 3);
    }
    end_silent();
}
END_TEST

/* Its term counts from when it was asked for; the time until it is due, from the answer. */
START_TEST(late_grant_reports_due_within_its_term)
{
    struct backend_claim claim = {.kind = BACKEND_FLOCK, .ttl = 30000, .due = 10000, .user = &reported};
    struct remote_answer grant = granted_after(_i ? 25000 : 10);
    struct remote_ticket *t = remote_ticket_new(r, "1", &claim);
    begin_silent();
    remote_acquire(r, t, on_acquired, NULL);
    if (_i < 2) {
        sent[0]->on_answer(sent[0], &grant);
    } else { /* a conversion that is answered late */
        t->head.deadline = clock_now() + 60000;
        remote_ticket_set_state(r, t, REMOTE_HELD);
        backend_convert(&r->backend, &t->head, &claim, on_done, NULL);
        sent[1]->on_answer(sent[1], &grant);
    }
    ck_assert_int_eq(reported, BACKEND_OK);
    ck_assert_int_ge(t->due, clock_now() + (_i ? 1000 : 9900));
    ck_assert_int_le(t->due, _i ? t->head.deadline - 2000 : clock_now() + 10000);
    end_silent();
}
END_TEST

/* Of which nothing is left, or less than a renewal may need. */
START_TEST(grant_that_came_too_late_is_requested_again)
{
    struct backend_claim claim = {.kind = BACKEND_FLOCK, .ttl = 30000, .due = 10000, .user = &reported};
    struct remote_answer grant = granted_after(_i ? 29000 : 31000);
    struct remote_ticket *t = remote_ticket_new(r, "1", &claim);
    begin_silent();
    reported = BACKEND_DAMAGED;
    remote_acquire(r, t, on_acquired, NULL);
    sent[0]->on_answer(sent[0], &grant);
    ck_assert_uint_eq(count, 2);
    ck_assert_int_eq(reported, BACKEND_DAMAGED);
    grant.sent = clock_now();
    sent[1]->on_answer(sent[1], &grant);
    ck_assert_int_eq(reported, BACKEND_OK);
    end_silent();
}
END_TEST

/* An end before it was requested again is reported after its grant. */
START_TEST(end_reported_just_after_a_grant_is_verified)
{
    struct backend_claim claim = {.kind = BACKEND_FLOCK, .ttl = 30000, .user = &reported};
    struct remote_answer renewed = {.outcome = REMOTE_ANSWERED, .result = BACKEND_OK, .sent = clock_now()};
    struct remote_ticket *t = remote_ticket_new(r, "1", &claim);
    enum backend_end why = _i ? BACKEND_EXPIRED : BACKEND_LOST;
    begin_silent();
    remote_ticket_set_state(r, t, REMOTE_HELD);
    t->head.acquired = clock_now();
    t->head.deadline = clock_now() + 30000;
    ck_assert(!remote_verify_end(r, t->id, BACKEND_BROKEN));
    ck_assert(!remote_verify_end(r, t->id, BACKEND_RELEASED));
    ck_assert(remote_verify_end(r, t->id, why));
    ck_assert_int_eq(sent[0]->procedure, REMOTE_RENEW);
    sent[0]->on_answer(sent[0], &renewed);
    ck_assert_uint_eq(ended, 0);
    ck_assert(remote_verify_end(r, t->id, why));
    renewed.result = BACKEND_STALE;
    sent[1]->on_answer(sent[1], &renewed);
    ck_assert_uint_eq(ended, 1);
    ck_assert_int_eq(ended_why, why);
    t = remote_ticket_new(r, "1", &claim);
    remote_ticket_set_state(r, t, REMOTE_HELD);
    t->head.acquired = clock_now() - 30000;
    ck_assert(!remote_verify_end(r, t->id, why));
    end_silent();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("remote_ticket");
    TCase *tcase = tcase_create("tickets");

    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, without_ranges_only_the_whole_lock_exists);
    tcase_add_loop_test(tcase, cycle_of_any_length_that_is_searched_is_found, 0, 5);
    tcase_add_test(tcase, chain_without_an_end_at_itself_is_no_cycle);
    tcase_add_test(tcase, grant_may_name_only_tickets_of_the_same_lock_owner_and_lock);
    tcase_add_loop_test(tcase, claim_of_a_lock_owner_that_holds_is_given_up_when_it_is_answered, 0,
                        G_N_ELEMENTS(outcomes));
    tcase_add_loop_test(tcase, lock_whose_weaker_claim_cannot_be_undone_is_lost, 0, 3);
    tcase_add_loop_test(tcase, weaker_claim_that_others_share_stands, 0, 2);
    tcase_add_test(tcase, lock_that_a_cancelled_waiter_has_weakened_is_lost_if_others_share_it);
    tcase_add_test(tcase, claim_is_given_up_at_once_where_its_lock_owner_has_no_other);
    tcase_add_loop_test(tcase, unlock_without_an_answer_is_repeated_unless_its_bytes_are_claimed_again, 0, 2);
    tcase_add_loop_test(tcase, what_is_changed_while_it_is_renewed_is_renewed_again, 0, 3);
    tcase_add_loop_test(tcase, late_grant_reports_due_within_its_term, 0, 3);
    tcase_add_loop_test(tcase, grant_that_came_too_late_is_requested_again, 0, 2);
    tcase_add_loop_test(tcase, end_reported_just_after_a_grant_is_verified, 0, 2);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
