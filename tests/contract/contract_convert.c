/* contract_convert: conversions that are interrupted, whose connection is cut, or whose answer is lost.
 *
 * However one ends, it is one step: what its holder believes in is what others see.  While many are converted another
 * mount tries all the time to share them, and lets go again.  Fixed terms stay as they are over a cut, too.
 * CONTRACT_CONVERSIONS: how many of each kind.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/contract/contract.h"
#include "tests/support/relay.h"

enum { BATCH = 24, TICK = 10 /* ms */ };

/* How much of the lock; and whether it waits for those that share. */
enum way { ALL, BYTES, WAITS };

static const struct {
    const char *name;
    enum backend_kind from, to;
    enum backend_mode before, after;
    enum way way;
} kinds[] = {
    {"record, weaker", BACKEND_FCNTL, BACKEND_FCNTL, BACKEND_EXCLUSIVE, BACKEND_SHARED, ALL},
    {"record, stronger", BACKEND_FCNTL, BACKEND_FCNTL, BACKEND_SHARED, BACKEND_EXCLUSIVE, ALL},
    {"range, weaker", BACKEND_FCNTL, BACKEND_FCNTL, BACKEND_EXCLUSIVE, BACKEND_SHARED, BYTES},
    {"range, stronger", BACKEND_FCNTL, BACKEND_FCNTL, BACKEND_SHARED, BACKEND_EXCLUSIVE, BYTES},
    {"flock, weaker", BACKEND_FLOCK, BACKEND_FLOCK, BACKEND_EXCLUSIVE, BACKEND_SHARED, ALL},
    {"flock, stronger", BACKEND_FLOCK, BACKEND_FLOCK, BACKEND_SHARED, BACKEND_EXCLUSIVE, ALL},
    {"flock that waits, stronger", BACKEND_FLOCK, BACKEND_FLOCK, BACKEND_SHARED, BACKEND_EXCLUSIVE, WAITS},
    {"lease to flock", BACKEND_LEASE, BACKEND_FLOCK, BACKEND_EXCLUSIVE, BACKEND_SHARED, ALL},
    {"lease to record", BACKEND_LEASE, BACKEND_FCNTL, BACKEND_EXCLUSIVE, BACKEND_SHARED, ALL},
};
enum { KINDS = G_N_ELEMENTS(kinds) };

enum fault { INTERRUPTED, CUT, LOST };
enum end { GRANTED, REFUSED, UNDONE, GIVEN_UP, ENDS };
static const char *const end_names[] = {"granted", "refused", "undone", "given up"};

static struct attempt {
    char name[24];
    unsigned kind;
    struct contract_log log, claimed, theirs; /* of what was held before, of the claim, and of the other mount's */
    const struct contract_log *holds;         /* one of the first two: what is held now, or was */
    struct backend_ticket *held, *claim, *other;
    bool requested, settled, asking;
    bool finishing; /* the claim beside it is granted, so it is converted */
    enum end end;
} attempts[BATCH * KINDS];

static struct contract store; /* relayed, if there is a way */
static GRand *chance;
static unsigned ends[KINDS][ENDS], lost[KINDS];
static bool competing;

/* --- what is believed --- */

static bool is_held(const struct attempt *a)
{
    return a->held && !a->holds->ended;
}

static bool is_shared_by_other(const struct attempt *a)
{
    return a->other && !a->theirs.ended;
}

static void settle(struct attempt *a, enum end end)
{
    ck_assert(!a->settled);
    a->settled = true;
    a->end = end;
    ends[a->kind][end]++;
    contract_end_turn();
}

static struct backend_claim claim_of(struct attempt *a, enum backend_kind kind, enum backend_mode mode)
{
    struct backend_claim claim = contract_claim(kind, &a->log);
    claim.mode = contract_can(BACKEND_CAN_SHARE) ? mode : BACKEND_EXCLUSIVE;
    claim.handle = 1 + (uint64_t)(a - attempts);
    claim.lock_owner = kind == BACKEND_FCNTL ? claim.handle : 0;
    claim.start = kinds[a->kind].way == BYTES ? 10 : 0;
    claim.end = kinds[a->kind].way == BYTES ? 19 : BACKEND_RANGE_MAX;
    return claim;
}

/* --- the other mount --- */

static void on_shared(void *arg, enum backend_result result, struct backend_ticket *ticket,
                      const struct backend_info *holder)
{
    struct attempt *a = arg;
    (void)holder;
    a->asking = false;
    a->other = result == BACKEND_OK ? ticket : NULL;
    contract_end_turn();
}

static void share(struct attempt *a)
{
    struct backend_claim claim = contract_claim(BACKEND_FLOCK, &a->theirs);
    claim.mode = contract_can(BACKEND_CAN_SHARE) ? BACKEND_SHARED : BACKEND_EXCLUSIVE;
    claim.handle = G_N_ELEMENTS(attempts) + 1;
    a->theirs = (struct contract_log){0};
    a->asking = true;
    backend_acquire(contract_other, a->name, &claim, on_shared, a);
}

static void stop_sharing(struct attempt *a)
{
    if (is_shared_by_other(a))
        backend_release(contract_other, a->other, NULL, NULL);
    a->other = NULL;
}

static void compete(struct attempt *a)
{
    if (a->asking || g_rand_int_range(chance, 0, 4))
        return;
    if (a->other)
        stop_sharing(a);
    else
        share(a);
}

/* --- conversions --- */

static void on_converted(void *arg, enum backend_result result)
{
    settle(arg, result == BACKEND_OK ? GRANTED : result == BACKEND_UNREACHABLE ? UNDONE : REFUSED);
}

static void take(struct attempt *a)
{
    if (!a->claim->joined && a->held && is_held(a))
        ck_abort_msg("%s: a lock owner has two tickets", a->name);
    a->held = a->claim;
    a->holds = &a->claimed;
    settle(a, GRANTED);
}

static void on_claimed(void *arg, enum backend_result result, struct backend_ticket *ticket,
                       const struct backend_info *holder)
{
    struct attempt *a = arg;
    (void)holder;
    a->claim = ticket;
    if (result == BACKEND_OK)
        take(a);
    else if (result != BACKEND_QUEUED)
        settle(a, result == BACKEND_UNREACHABLE ? UNDONE : REFUSED);
}

/* --- what flock(2) does to become exclusive: it waits with a claim of its own until it can be converted --- */

static void drop_claim(struct attempt *a)
{
    if (a->claim && !a->claimed.ended)
        backend_release(contract_one, a->claim, NULL, NULL);
    a->claim = NULL;
}

static void on_finished(void *arg, enum backend_result result)
{
    drop_claim(arg);
    on_converted(arg, result);
}

static void finish(struct attempt *a)
{
    struct backend_claim claim = claim_of(a, BACKEND_FLOCK, BACKEND_EXCLUSIVE);
    a->finishing = true;
    backend_convert(contract_one, a->held, &claim, on_finished, a);
}

static void on_claimed_beside(void *arg, enum backend_result result, struct backend_ticket *ticket,
                              const struct backend_info *holder)
{
    struct attempt *a = arg;
    (void)holder;
    a->claim = ticket;
    if (result == BACKEND_OK)
        a->claimed.granted++;
    else if (result != BACKEND_QUEUED)
        settle(a, result == BACKEND_UNREACHABLE ? UNDONE : REFUSED);
    contract_end_turn();
}

static void on_tried(void *arg, enum backend_result result)
{
    struct attempt *a = arg;
    if (result != BACKEND_BUSY) {
        on_converted(a, result);
        return;
    }
    struct backend_claim claim = claim_of(a, BACKEND_FLOCK, BACKEND_EXCLUSIVE);
    claim.user = &a->claimed;
    claim.wait = true;
    struct backend_ticket *ticket = backend_acquire(contract_one, a->name, &claim, on_claimed_beside, a);
    a->claim = a->settled ? a->claim : ticket;
}

static void look_at_claim_beside(struct attempt *a)
{
    if (a->finishing || a->settled)
        return;
    if (!is_held(a) || a->claimed.ended) {
        drop_claim(a);
        settle(a, UNDONE);
    } else if (a->claimed.granted) {
        finish(a);
    }
}

static void convert(struct attempt *a)
{
    struct backend_claim claim = claim_of(a, kinds[a->kind].to, kinds[a->kind].after);
    a->requested = true;
    if (kinds[a->kind].way == WAITS) {
        backend_convert(contract_one, a->held, &claim, on_tried, a);
    } else if (kinds[a->kind].from == BACKEND_FCNTL) {
        claim.user = &a->claimed;
        claim.wait = (a - attempts) / KINDS % 2;
        struct backend_ticket *ticket = backend_acquire(contract_one, a->name, &claim, on_claimed, a);
        a->claim = a->settled ? a->claim : ticket;
    } else {
        backend_convert(contract_one, a->held, &claim, on_converted, a);
    }
}

/* Of a claim: its user has given up. */
static void interrupt(struct attempt *a)
{
    if (!a->settled && a->claim && !a->claim->held && backend_cancel(contract_one, a->claim)) {
        a->claim = NULL;
        settle(a, GIVEN_UP);
    }
}

/* --- a batch --- */

static void look(struct attempt *a)
{
    if (a->requested && kinds[a->kind].way == WAITS)
        look_at_claim_beside(a);
    else if (a->requested && !a->settled && a->claimed.granted)
        take(a); /* it had waited */
    else if (a->requested && !a->settled && a->claimed.ended)
        settle(a, UNDONE);
    bool exclusive = a->settled && is_held(a) && a->held->mode == BACKEND_EXCLUSIVE;
    ck_assert_msg(!exclusive || !is_shared_by_other(a), "%s (%s, %s): held by two", a->name, kinds[a->kind].name,
                  end_names[a->end]);
}

/* So many turns, of TICK at most; false: all are settled. */
static bool proceed(unsigned count, unsigned turns)
{
    bool open = false;
    for (unsigned turn = 0; turn < turns; turn++) {
        contract_turn();
        open = false;
        for (unsigned i = 0; i < count; i++) {
            if (competing)
                compete(&attempts[i]);
            look(&attempts[i]);
            open = open || !attempts[i].settled || (!competing && attempts[i].asking);
        }
    }
    return open;
}

static void begin(struct attempt *a, unsigned number)
{
    *a = (struct attempt){.kind = number % KINDS};
    snprintf(a->name, sizeof a->name, "c%u", number);
    struct backend_claim claim = claim_of(a, kinds[a->kind].from, kinds[a->kind].before);
    contract_backend = contract_one;
    struct contract_acquired acquired;
    contract_restart_time_limit();
    do /* a busy machine may not answer in time */
        acquired = contract_acquire(a->name, &claim);
    while (acquired.result == BACKEND_UNREACHABLE);
    ck_assert_int_eq(acquired.result, BACKEND_OK);
    a->held = acquired.ticket;
    a->holds = &a->log;
}

/* The lock as another mount sees it. */
static void verify(struct attempt *a)
{
    struct contract_log log = {0};
    contract_backend = contract_other;
    for (enum backend_mode mode = contract_can(BACKEND_CAN_SHARE) ? BACKEND_SHARED : BACKEND_EXCLUSIVE;;
         mode = BACKEND_EXCLUSIVE) {
        struct backend_claim claim = contract_claim(BACKEND_FLOCK, &log);
        bool shared = is_held(a) && a->held->mode == BACKEND_SHARED && mode == BACKEND_SHARED;
        bool free = !is_held(a) || shared;
        claim.mode = mode;
        claim.handle = G_N_ELEMENTS(attempts) + 2;
        struct contract_acquired got;
        contract_restart_time_limit();
        do /* the end of what was lost may still be under way to the store, and a busy machine late */
            got = contract_acquire(a->name, &claim);
        while (got.result == BACKEND_UNREACHABLE || (got.result == BACKEND_BUSY && !is_held(a)));
        ck_assert_msg(got.result == (free ? BACKEND_OK : BACKEND_BUSY), "%s (%s): %s is told %s while it is %s",
                      a->name, kinds[a->kind].name, mode == BACKEND_SHARED ? "a shared claim" : "an exclusive claim",
                      backend_result_name(got.result),
                      !is_held(a)                          ? "lost"
                      : a->held->mode == BACKEND_EXCLUSIVE ? "held exclusively"
                                                           : "shared");
        if (got.ticket)
            ck_assert_int_eq(contract_release(got.ticket), BACKEND_OK);
        if (mode == BACKEND_EXCLUSIVE)
            break;
    }
    contract_backend = contract_one;
}

/* Whether its store is there again. */
static bool is_up(struct backend *b)
{
    struct backend_status status;
    backend_status(b, &status);
    bool up = !status.away;
    backend_status_clear(&status);
    return up;
}

/* Conversions may be settled while the mount still connects; what it is asked then is answered with unreachable. */
static void end_batch(unsigned count)
{
    competing = false;
    for (unsigned i = 0; i < count; i++)
        stop_sharing(&attempts[i]);
    CONTRACT_UNTIL(!proceed(count, 1));
    CONTRACT_UNTIL(is_up(contract_one));
    for (unsigned i = 0; i < count; i++) {
        struct attempt *a = &attempts[i];
        struct backend_renewal renewal = {.ticket = a->held, .ttl = CONTRACT_LONG, .due = CONTRACT_LONG / 3};
        stop_sharing(a);
        verify(a);
        lost[a->kind] += !is_held(a);
        if (is_held(a))
            backend_renew(contract_one, &renewal, 1);
    }
    for (unsigned i = 0; i < count; i++) {
        bool there = is_held(&attempts[i]);
        verify(&attempts[i]); /* which is asked behind the renewal */
        ck_assert_msg(is_held(&attempts[i]) == there, "%s (%s): lost by its renewal", attempts[i].name,
                      kinds[attempts[i].kind].name);
        if (there)
            ck_assert_int_eq(contract_release(attempts[i].held), BACKEND_OK);
    }
}

/* Some wait already, and have what they wait for meanwhile. */
static void lose_answers(unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (kinds[attempts[i].kind].way == WAITS && i / KINDS % 2)
            convert(&attempts[i]);
    proceed(count, 3);
    clock_ms until = clock_now() + store.timeout + 500;
    relay_be_deaf();
    for (unsigned i = 0; i < count; i++)
        if (!attempts[i].requested)
            convert(&attempts[i]);
    while (clock_now() < until) {
        contract_restart_time_limit();
        proceed(count, 1);
    }
    relay_reset();
}

static void interrupt_all(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        convert(&attempts[i]);
        if (g_rand_boolean(chance))
            proceed(count, (unsigned)g_rand_int_range(chance, 0, 3));
        interrupt(&attempts[i]);
    }
    proceed(count, 3);
    for (unsigned i = 0; i < count; i++)
        interrupt(&attempts[i]); /* those that have waited since */
}

static void cut_connections(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        if (i % KINDS == 0) {
            proceed(count, (unsigned)g_rand_int_range(chance, 0, 3));
            relay_cut();
        }
        convert(&attempts[i]);
    }
}

static void on_tick(struct ev_loop *loop, ev_timer *timer, int events)
{
    (void)loop, (void)timer, (void)events;
}

static unsigned wanted(void)
{
    const char *text = getenv("CONTRACT_CONVERSIONS");
    return text ? (unsigned)atoi(text) : store.pace > 1 ? BATCH / 3 : BATCH;
}

static void run(enum fault fault)
{
    static const char *const faults[] = {"interrupted", "cut", "lost"};
    ev_timer tick;
    chance = g_rand_new_with_seed(fault + 1);
    ev_timer_init(&tick, on_tick, TICK / 1e3, TICK / 1e3);
    ev_timer_start(contract_loop, &tick);
    for (unsigned left = wanted(); left > 0; left -= MIN(left, BATCH)) {
        unsigned count = MIN(left, BATCH) * KINDS;
        for (unsigned i = 0; i < count; i++)
            begin(&attempts[i], i);
        competing = true;
        proceed(count, 3);
        if (fault == INTERRUPTED)
            interrupt_all(count);
        else if (fault == CUT)
            cut_connections(count);
        else
            lose_answers(count);
        CONTRACT_UNTIL(!proceed(count, 1));
        end_batch(count);
    }
    ev_timer_stop(contract_loop, &tick);
    for (unsigned k = 0; k < KINDS; k++)
        fprintf(stderr, "# %s, %s: %u granted, %u refused, %u undone, %u given up; %u lost\n", kinds[k].name,
                faults[fault], ends[k][GRANTED], ends[k][REFUSED], ends[k][UNDONE], ends[k][GIVEN_UP], lost[k]);
    g_rand_free(chance);
}

START_TEST(interrupted_conversion_is_one_step)
{
    run(INTERRUPTED);
}
END_TEST

START_TEST(conversion_whose_connection_is_cut_is_one_step)
{
    run(CUT);
}
END_TEST

START_TEST(conversion_whose_answer_is_lost_is_one_step)
{
    run(LOST);
}
END_TEST

/* --- fixed terms --- */

/* For so long, whatever comes of the connection. */
static void wait_for(int64_t ms)
{
    clock_ms until = clock_now() + ms;
    ev_timer tick;
    ev_timer_init(&tick, on_tick, TICK / 1e3, TICK / 1e3);
    ev_timer_start(contract_loop, &tick);
    CONTRACT_UNTIL(clock_now() >= until);
    ev_timer_stop(contract_loop, &tick);
}

/* A mount's requests after a reconnect do not move a term that a user has fixed. */
START_TEST(fixed_term_is_not_extended_when_the_connection_was_cut)
{
    enum { TERM = 5000, PASSES = TERM / 2, SLACK = TERM / 5 };
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log);
    claim.meta = contract_bytes("1 2 3 4 5 6 7 1");
    struct backend_ticket *ticket = contract_acquire("L", &claim).ticket;
    ck_assert_ptr_nonnull(ticket);
    backend_renew(contract_one, &(struct backend_renewal){.ticket = ticket, .ttl = TERM}, 1);
    clock_ms set = clock_now();
    ck_assert_int_le(ticket->deadline, set + TERM);
    wait_for(PASSES);
    ck_assert_int_eq(ticket->ttl, TERM);
    relay_reset();
    wait_for(PASSES / 5);
    ck_assert_int_eq(
        contract_set(ticket, &(struct backend_change){.set = BACKEND_SET_CONTENT, .content = contract_bytes("text")}),
        BACKEND_OK);
    wait_for(PASSES / 5);
    ck_assert_int_eq(log.ended, 0);
    ck_assert_int_le(ticket->deadline, set + TERM);
    contract_backend = contract_other;
    struct backend_info seen = contract_stat("L");
    contract_backend = contract_one;
    ck_assert_int_eq(seen.type, BACKEND_LOCK);
    ck_assert_msg(seen.deadline <= set + TERM + SLACK, "others are told of %d ms more",
                  (int)(seen.deadline - set - TERM));
    CONTRACT_UNTIL(log.ended);
    ck_assert_int_le(clock_now(), set + TERM + SLACK);
}
END_TEST

/* --- breaks --- */

static void note_result(void *arg, enum backend_result result)
{
    *(int *)arg = (int)result + 1;
    contract_end_turn();
}

/* Its mount does not know of the break when the release is requested and sent. */
START_TEST(release_of_what_was_broken_during_a_cut_is_stale)
{
    struct contract_log log = {0}, theirs = {0};
    struct backend_directory delayed = {.width = 1, .delay = 1};
    bool delays = _i && contract_can(BACKEND_CAN_SHARE); /* the same stores */
    const char *name = delays ? "d/L" : "L";
    int released = 0;
    if (delays)
        ck_assert_int_eq(contract_mkdir("d", &delayed), BACKEND_OK);
    struct backend_ticket *ticket = contract_get(name, BACKEND_LEASE, &log);
    relay_close();
    wait_for(TICK); /* until its mount has noticed */
    contract_backend = contract_other;
    ck_assert_int_eq(contract_revoke(name, 0), BACKEND_OK);
    CONTRACT_UNTIL(!contract_is_busy(name));
    contract_get(name, BACKEND_LEASE, &theirs);
    contract_backend = contract_one;
    ck_assert_uint_eq(log.ended, 0);
    backend_release(contract_one, ticket, note_result, &released);
    relay_reset();
    CONTRACT_UNTIL(released);
    ck_assert_int_eq(released - 1, BACKEND_STALE);
    wait_for(CONTRACT_SHORT);
    ck_assert_uint_eq(log.ended + theirs.ended, 0);
    ck_assert(contract_is_busy(name));
}
END_TEST

/* --- directories --- */

/* The store has made it and the answer is lost; another mount changes it before the request is sent again. */
START_TEST(mkdir_whose_answer_is_lost_succeeds_though_the_directory_was_changed)
{
    enum { TURNS = 8, LOOKS = 20 };
    struct backend_directory plain = {.width = 1}, changed = {.width = 1, .ttl = CONTRACT_LONG};
    unsigned hits = 0;
    for (unsigned turns = 0; turns < TURNS; turns++) {
        char name[16];
        int made = 0;
        snprintf(name, sizeof name, "d%u", turns);
        ck_assert(!contract_is_busy("up")); /* its mount is there again */
        backend_mkdir(contract_one, name, &plain, note_result, &made);
        for (unsigned i = 0; i < turns && !made; i++)
            contract_turn();
        relay_be_deaf();
        contract_backend = contract_other;
        for (unsigned i = 0; i < LOOKS && !made && contract_stat(name).type != BACKEND_DIRECTORY; i++)
            wait_for(TICK);
        if (!made && contract_stat(name).type == BACKEND_DIRECTORY) {
            ck_assert_int_eq(contract_set_directory(name, &changed), BACKEND_OK);
            hits++;
        }
        contract_backend = contract_one;
        relay_reset();
        CONTRACT_UNTIL(made);
        ck_assert_int_eq(made - 1, BACKEND_OK);
    }
    ck_assert_uint_gt(hits, 0);
}
END_TEST

/* Of two mounts, if there can be two. */
static void setup(void)
{
    contract_use(&store);
    if (store.open_other) {
        contract_setup_two();
    } else {
        contract_setup();
        contract_one = contract_other = contract_backend;
    }
}

static void teardown(void)
{
    contract_backend = contract_one;
    if (contract_other != contract_one)
        backend_free(contract_other);
    relay_end();
    contract_teardown();
}

TCase *contract_convert_case(const struct contract *subject)
{
    store = *subject;
    store.open = store.open_relayed ? store.open_relayed : store.open;

    TCase *tcase = tcase_create("conversions");
    tcase_set_timeout(tcase, 100 + 4 * wanted());
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, interrupted_conversion_is_one_step);
    if (store.open_relayed) {
        tcase_add_test(tcase, fixed_term_is_not_extended_when_the_connection_was_cut);
        tcase_add_test(tcase, conversion_whose_connection_is_cut_is_one_step);
        tcase_add_test(tcase, conversion_whose_answer_is_lost_is_one_step);
        tcase_add_test(tcase, mkdir_whose_answer_is_lost_succeeds_though_the_directory_was_changed);
        tcase_add_loop_test(tcase, release_of_what_was_broken_during_a_cut_is_stale, 0, 2);
    }
    return tcase;
}
