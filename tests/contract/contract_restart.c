/* contract_restart: the handle locks of a mount whose daemon has ended, as its next daemon finds them.
 *
 * The last scenarios are for a store that cannot refuse a daemon that was only stopped and goes on.
 */
#include <string.h>

#include "tests/contract/contract.h"

#define META "me"
#define HANDLE 7
#define LOCK_OWNER 9

static const struct contract *subject;

/* The locks that the next daemon found, in the order of tokens. */
struct found {
    char *name;
    struct backend_ticket *ticket;
};
static GArray *found;

static void clear_found(gpointer data)
{
    g_free(((struct found *)data)->name);
}

static gint compare_found(gconstpointer a, gconstpointer b)
{
    const struct found *left = a, *right = b;
    return left->ticket->fence < right->ticket->fence ? -1 : 1;
}

static bool on_found(void *arg, const char *name, struct backend_ticket *ticket, GBytes *meta, GBytes *content)
{
    (void)arg, (void)content;
    if (!ticket) {
        return false; /* a directory */
    }
    if (strcmp(name, CONTRACT_MARKER) == 0) {
        return false; /* its mount has ended it a moment before the store does */
    }
    struct found one = {g_strdup(name), ticket};
    ck_assert(contract_equal(meta, META));
    g_array_append_val(found, one);
    return true; /* it is renewed */
}

static struct backend_ticket *nth(guint i)
{
    ck_assert_uint_lt(i, found->len);
    return g_array_index(found, struct found, i).ticket;
}

/* The next daemon of contract_one, which was freed, or is only stopped. */
static void restart_beside(unsigned locks)
{
    contract_one = subject->open_again();
    contract_start(contract_one);
    backend_recover(contract_one, on_found, NULL);
    CONTRACT_UNTIL(found->len >= locks);
    ck_assert_int_eq(contract_stat("another").type, BACKEND_NOTHING); /* by then it would have found more */
    ck_assert_uint_eq(found->len, locks);
    g_array_sort(found, compare_found);
}

static void restart(unsigned locks)
{
    backend_free(contract_one);
    restart_beside(locks);
}

static void setup(void)
{
    contract_setup();
    found = g_array_new(FALSE, FALSE, sizeof(struct found));
    g_array_set_clear_func(found, clear_found);
    contract_one = contract_backend;
    if (subject->open_other) {
        contract_other = contract_backend;
        contract_one = subject->open_again();
        contract_start(contract_one);
    }
}

static void teardown(void)
{
    if (subject->open_other) {
        backend_free(contract_one);
        contract_backend = contract_other;
    }
    contract_teardown();
    g_array_unref(found);
}

static struct backend_claim claim_of(enum backend_kind kind, enum backend_mode mode, struct contract_log *log)
{
    struct backend_claim claim = contract_claim(kind, log);
    claim.mode = mode;
    claim.meta = contract_bytes(META);
    claim.handle = HANDLE;
    return claim;
}

static struct backend_ticket *take(const char *name, enum backend_mode mode, struct contract_log *log)
{
    struct backend_claim claim = claim_of(BACKEND_FLOCK, mode, log);
    struct contract_acquired acquired = contract_acquire(name, &claim);
    ck_assert_int_eq(acquired.result, BACKEND_OK);
    return acquired.ticket;
}

/* Refused to the mount's other handles, and to all of another mount, also to that which has the number of the one
 * before. (To the handle itself a store may grant it before backend_identify, or not: it is the same file.) */
static void assert_busy(const char *name, enum backend_mode mode)
{
    struct backend *const all[] = {contract_one, subject->open_other ? contract_other : NULL};
    for (guint i = 0; i < G_N_ELEMENTS(all) && all[i]; i++) {
        struct contract_log log = {0};
        struct backend_claim claim = claim_of(BACKEND_FLOCK, mode, &log);
        claim.handle = all[i] == contract_one ? HANDLE + 2 : HANDLE;
        contract_backend = all[i];
        bool can = mode == BACKEND_EXCLUSIVE || contract_can(BACKEND_CAN_SHARE);
        ck_assert_int_eq(contract_acquire(name, &claim).result, can ? BACKEND_BUSY : BACKEND_UNSUPPORTED);
    }
    contract_backend = contract_one;
}

START_TEST(exclusive_flock_is_recovered_with_its_token)
{
    struct contract_log log = {0};
    uint64_t fence = take("a", BACKEND_EXCLUSIVE, &log)->fence;
    for (int i = 0; i < 2; i++) { /* after its renewal, too */
        g_array_set_size(found, 0);
        restart(1);
        ck_assert_str_eq(g_array_index(found, struct found, 0).name, "a");
        ck_assert_uint_eq(nth(0)->fence, fence);
        ck_assert_int_eq(nth(0)->kind, BACKEND_FLOCK);
        ck_assert_int_eq(nth(0)->mode, BACKEND_EXCLUSIVE);
        ck_assert(nth(0)->held);
        assert_busy("a", BACKEND_EXCLUSIVE);
        assert_busy("a", BACKEND_SHARED);
    }
    ck_assert_int_eq(contract_release(nth(0)), BACKEND_OK);
    ck_assert_uint_gt(take("a", BACKEND_EXCLUSIVE, &log)->fence, fence);
}
END_TEST

START_TEST(recovered_lease_excludes_all_other_handles)
{
    struct contract_log log = {0};
    struct backend_claim claim = claim_of(BACKEND_LEASE, BACKEND_EXCLUSIVE, &log);
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_OK);
    restart(1);
    assert_busy("a", BACKEND_EXCLUSIVE);
}
END_TEST

START_TEST(shared_flocks_are_recovered_and_still_share)
{
    struct contract_log log[3] = {{0}};
    take("a", BACKEND_SHARED, &log[0]);
    struct backend_claim claim = claim_of(BACKEND_FLOCK, BACKEND_SHARED, &log[1]);
    claim.handle = HANDLE + 1;
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_OK);
    restart(2);
    for (guint i = 0; i < 2; i++) {
        ck_assert_int_eq(nth(i)->mode, BACKEND_SHARED);
        assert_busy("a", BACKEND_EXCLUSIVE);
        struct backend_ticket *third = take("a", BACKEND_SHARED, &log[2]);
        ck_assert_int_eq(contract_release(third), BACKEND_OK);
        ck_assert_int_eq(contract_release(nth(i)), BACKEND_OK);
    }
    take("a", BACKEND_EXCLUSIVE, &log[2]);
}
END_TEST

START_TEST(record_lock_is_recovered_for_its_lock_owner)
{
    struct contract_log log = {0};
    struct backend_claim claim = claim_of(BACKEND_FCNTL, BACKEND_EXCLUSIVE, &log);
    claim.lock_owner = LOCK_OWNER;
    claim.start = 10;
    claim.end = 19;
    struct contract_acquired acquired = contract_acquire("a", &claim);
    ck_assert_int_eq(acquired.result, BACKEND_OK);
    uint64_t fence = acquired.ticket->fence;
    restart(1);
    ck_assert_uint_eq(nth(0)->fence, fence);
    ck_assert_int_eq(nth(0)->kind, BACKEND_FCNTL);
    backend_identify(contract_one, nth(0), (struct backend_identity){.lock_owner = LOCK_OWNER});
    claim.lock_owner = LOCK_OWNER + 1;
    claim.start = 15;
    claim.end = 30;
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_BUSY);
    struct backend_ticket *whole = nth(0);
    if (contract_can(BACKEND_CAN_RANGE)) {
        claim.lock_owner = LOCK_OWNER;
        struct contract_acquired more = contract_acquire("a", &claim);
        ck_assert_int_eq(more.result, BACKEND_OK);
        ck_assert_uint_eq(more.ticket->fence, fence); /* it has joined the first */
        whole = more.ticket;
    }
    ck_assert_int_eq(contract_release(whole), BACKEND_OK);
    claim.lock_owner = LOCK_OWNER + 1;
    claim.start = 10;
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_OK);
}
END_TEST

START_TEST(ticket_that_held_in_its_queue_is_recovered_at_its_place)
{
    struct contract_log log[2] = {{0}};
    ck_assert_int_eq(contract_mkdir("q", NULL), BACKEND_OK);
    struct backend_claim claim = claim_of(BACKEND_FLOCK, BACKEND_EXCLUSIVE, &log[0]);
    claim.sequence = claim.wait = true;
    struct contract_acquired first = contract_acquire("q/job-", &claim);
    ck_assert_int_eq(first.result, BACKEND_OK);
    uint64_t fence = first.ticket->fence;
    if (subject->open_other) {
        contract_backend = contract_other;
    }
    claim.user = &log[1];
    ck_assert_int_eq(contract_acquire("q/job-", &claim).result, BACKEND_QUEUED);
    restart(subject->open_other ? 1 : 2); /* its own one that waits is found, too */
    ck_assert_str_eq(g_array_index(found, struct found, 0).name, "q/job-0000000000");
    ck_assert_uint_eq(nth(0)->fence, fence);
    ck_assert_int_eq(nth(0)->kind, BACKEND_FLOCK);
    ck_assert(nth(0)->held);
    ck_assert_uint_eq(log[1].granted, 0);
    ck_assert_int_eq(contract_release(nth(0)), BACKEND_OK);
    if (subject->open_other) {
        CONTRACT_UNTIL(log[1].granted);
    }
    ck_assert_str_eq(contract_list("q", 10), "job-0000000001");
}
END_TEST

START_TEST(recovered_lock_stays_before_those_that_wait)
{
    struct contract_log log = {0}, waiting = {0};
    uint64_t fence = take("a", BACKEND_EXCLUSIVE, &log)->fence;
    struct backend_ticket *waiter = NULL;
    if (subject->open_other) {
        contract_backend = contract_other;
        waiter = contract_queue("a", BACKEND_EXCLUSIVE, &waiting);
    }
    restart(1);
    if (!waiter) {
        waiter = contract_queue("a", BACKEND_EXCLUSIVE, &waiting);
    }
    ck_assert_uint_eq(waiting.granted, 0);
    ck_assert_uint_eq(nth(0)->fence, fence);
    ck_assert_uint_eq(contract_stat("a").fence, fence);
    ck_assert_uint_gt(waiter->fence, fence);
    ck_assert_int_eq(contract_release(nth(0)), BACKEND_OK);
    CONTRACT_UNTIL(waiting.granted);
}
END_TEST

/* Its call has ended with the daemon, so nobody would ever release it.  _i: its mode. */
START_TEST(wait_is_not_recovered)
{
    struct contract_log log[2] = {{0}}, gone = {0}, next = {0};
    struct backend *holds = subject->open_other ? contract_other : contract_one;
    struct backend_claim claim = claim_of(BACKEND_FLOCK, (enum backend_mode)_i, &gone);
    claim.wait = true;
    contract_backend = holds;
    struct backend_ticket *holder = take("a", BACKEND_EXCLUSIVE, &log[0]);
    contract_backend = contract_one;
    take("b", BACKEND_EXCLUSIVE, &log[1]); /* so that there is something to recover */
    claim.handle = HANDLE + 1;
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_QUEUED);
    restart(subject->open_other ? 1 : 2);
    holder = subject->open_other ? holder : nth(0);
    ck_assert_uint_eq(contract_stat("a").holders, 1);
    struct backend_ticket *waiter = contract_queue("a", BACKEND_EXCLUSIVE, &next);
    contract_backend = subject->open_other ? contract_other : contract_one;
    ck_assert_int_eq(contract_release(holder), BACKEND_OK);
    CONTRACT_UNTIL(next.granted);
    ck_assert_uint_eq(gone.granted, 0);
    ck_assert_ptr_nonnull(waiter);
}
END_TEST

/* It is no lease yet, and never will be: its file is closed.  So it ends now, or with its term at the latest. */
START_TEST(provisional_lock_does_not_outlast_its_term)
{
    struct contract_log log = {0};
    struct backend_claim claim = claim_of(BACKEND_PROVISIONAL, BACKEND_EXCLUSIVE, &log);
    claim.ttl = CONTRACT_TERM;
    contract_get_soon("a", &claim);
    contract_pass(CONTRACT_TERM / 2);
    restart(0);
    contract_pass(2 * CONTRACT_TERM / 3);
    ck_assert(!contract_is_busy("a"));
}
END_TEST

/* --- the daemon before goes on --- */

static void renew(struct backend_ticket *ticket)
{
    struct backend_renewal renewal = {.ticket = ticket, .ttl = 3 * CONTRACT_LONG};
    const struct contract_log *log = ticket->user;
    backend_renew(contract_backend, &renewal, 1);
    CONTRACT_UNTIL(log->ended);
    ck_assert_int_eq(log->why, BACKEND_LOST);
}

static void release(struct backend_ticket *ticket)
{
    contract_release(ticket);
}

static void set(struct backend_ticket *ticket)
{
    struct backend_change change = {.set = BACKEND_SET_META, .meta = contract_bytes("another")};
    ck_assert_int_eq(contract_set(ticket, &change), BACKEND_STALE);
}

static void convert(struct backend_ticket *ticket)
{
    bool shared = contract_can(BACKEND_CAN_SHARE);
    struct backend_claim claim =
        claim_of(shared ? BACKEND_FLOCK : BACKEND_LEASE, shared ? BACKEND_SHARED : BACKEND_EXCLUSIVE, ticket->user);
    ck_assert_int_ne(contract_convert(ticket, &claim), BACKEND_OK);
}

static void (*const requests[])(struct backend_ticket *ticket) = {renew, release, set, convert};

/* _i: the request, about a flock, and then about a lease. */
START_TEST(request_of_the_daemon_before_changes_nothing)
{
    struct contract_log log = {0};
    struct backend *before = contract_one;
    bool lease = (size_t)_i >= G_N_ELEMENTS(requests);
    struct backend_claim claim = claim_of(lease ? BACKEND_LEASE : BACKEND_FLOCK, BACKEND_EXCLUSIVE, &log);
    struct contract_acquired acquired = contract_acquire("a", &claim);
    ck_assert_int_eq(acquired.result, BACKEND_OK);
    struct backend_ticket *ticket = acquired.ticket;
    uint64_t fence = ticket->fence;
    restart_beside(1);
    contract_backend = before;
    if (!log.ended) { /* it may have learned it meanwhile, and then has no ticket */
        requests[(size_t)_i % G_N_ELEMENTS(requests)](ticket);
    }
    backend_free(before);
    assert_busy("a", BACKEND_EXCLUSIVE);
    assert_busy("a", BACKEND_SHARED);
    contract_backend = contract_other;
    struct backend_info info = contract_stat("a");
    ck_assert_uint_eq(info.fence, fence);
    ck_assert(contract_equal(info.meta, META));
    contract_backend = contract_one;
    ck_assert_int_eq(contract_release(nth(0)), BACKEND_OK);
    ck_assert(!contract_is_busy("a"));
}
END_TEST

TCase *contract_restart_case(const struct contract *of)
{
    TCase *tcase = tcase_create("survive");
    subject = of;
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, exclusive_flock_is_recovered_with_its_token);
    tcase_add_test(tcase, provisional_lock_does_not_outlast_its_term);
    tcase_add_test(tcase, record_lock_is_recovered_for_its_lock_owner);
    tcase_add_test(tcase, recovered_lease_excludes_all_other_handles);
    tcase_add_test(tcase, recovered_lock_stays_before_those_that_wait);
    tcase_add_loop_test(tcase, wait_is_not_recovered, BACKEND_EXCLUSIVE,
                        contract_has(BACKEND_CAN_SHARE) ? BACKEND_SHARED + 1 : BACKEND_SHARED);
    if (contract_has(BACKEND_CAN_SHARE)) {
        tcase_add_test(tcase, shared_flocks_are_recovered_and_still_share);
    }
    if (contract_has(BACKEND_CAN_SEQUENCE)) {
        tcase_add_test(tcase, ticket_that_held_in_its_queue_is_recovered_at_its_place);
    }
    if (subject->refuses_daemon_before) {
        tcase_add_loop_test(tcase, request_of_the_daemon_before_changes_nothing, 0, 2 * G_N_ELEMENTS(requests));
    }
    return tcase;
}
