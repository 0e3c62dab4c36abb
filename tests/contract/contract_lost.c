/* contract_lost: answers of a store that do not arrive, and a mount that is cut off for longer than it counts as alive.
 *
 * The mount repeats a request without an answer: the store does not do it twice, and nothing stays held without a
 * holder.
 */
#include <signal.h>
#include <string.h>

#include "tests/contract/contract_locks.h"
#include "tests/support/relay.h"

static struct contract store;

/* --- changes --- */

enum change {
    ACQUIRE,
    QUEUE,
    GRANT,
    SEQUENCE,
    RELEASE,
    UNLOCK,
    CONVERT,
    SET,
    RENAME,
    REPLACE,
    BREAK,
    BREAK_BY_TOKEN,
    WRONG_TOKEN,
    BREAK_NOTHING,
    MKDIR,
    RMDIR,
    CHANGES
};

static bool store_can(enum change change)
{
    static const unsigned needs[CHANGES] = {[SEQUENCE] = BACKEND_CAN_SEQUENCE,
                                            [UNLOCK] = BACKEND_CAN_RANGE,
                                            [CONVERT] = BACKEND_CAN_SHARE,
                                            [RENAME] = BACKEND_CAN_RENAME,
                                            [REPLACE] = BACKEND_CAN_REPLACE};
    return !(store.lacks & needs[change]);
}

/* The next answer to the mount is lost. */
static void lose(void)
{
    ck_assert(!contract_is_busy("up"));
    lock_pass(50); /* nothing else is on its way */
    relay_cut();
}

static struct backend_info seen(const char *name)
{
    return lock_stat_at(contract_other, name);
}

START_TEST(change_whose_answer_is_lost_is_made_once)
{
    enum change change = (enum change)_i;
    const struct backend_directory directory = {.width = 1};
    struct backend_claim claim = lock_claim(BACKEND_LEASE, BACKEND_EXCLUSIVE), shared = claim, range = claim;
    shared.mode = BACKEND_SHARED;
    range.kind = BACKEND_FCNTL;
    range.lock_owner = 1;
    range.end = 19;
    bool held = change != ACQUIRE && change != QUEUE && change != GRANT && change != UNLOCK;
    struct lock *lock = held ? lock_ask(contract_one, "L", &claim) : NULL, *other = NULL, *waiter = NULL;
    uint64_t fence = lock ? lock->ticket->fence : 0;
    switch (change) {
    case ACQUIRE:
        lose();
        lock = lock_ask(contract_one, "L", &claim);
        ck_assert_int_eq(lock->result, BACKEND_OK);
        ck_assert_int_eq(seen("L").holders, 1);
        ck_assert_uint_eq(seen("L").fence, lock->ticket->fence);
        ck_assert_int_eq(lock_release_and_wait(lock), BACKEND_OK);
        ck_assert_int_eq(seen("L").type, BACKEND_NOTHING);
        break;
    case QUEUE:
        other = lock_take(contract_other, "L");
        lose();
        lock = lock_take(contract_one, "L");
        ck_assert_int_eq(lock->result, BACKEND_QUEUED);
        if (contract_can(BACKEND_CAN_SEQUENCE))
            ck_assert_uint_eq(seen("L").waiters, 1);
        ck_assert_int_eq(lock_release_and_wait(lock), BACKEND_OK);
        ck_assert_int_eq(lock_release_and_wait(other), BACKEND_OK);
        ck_assert_int_eq(seen("L").type, BACKEND_NOTHING);
        break;
    case GRANT: /* lost: the event of the grant, or the answer to the claim */
        other = lock_take(contract_other, "L");
        lock = lock_take(contract_one, "L");
        fence = other->ticket->fence;
        lose();
        lock_release(other);
        LOCK_UNTIL(lock->log.granted);
        ck_assert_uint_gt(lock->ticket->fence, fence);
        lock_pass(100);
        ck_assert_uint_eq(lock->log.granted, 1);
        ck_assert_int_eq(seen("L").holders, 1);
        break;
    case SEQUENCE:
        ck_assert_int_eq(contract_mkdir("d", &directory), BACKEND_OK);
        claim.sequence = true;
        lose();
        lock = lock_ask(contract_one, "d/s-", &claim);
        ck_assert_int_eq(lock->result, BACKEND_OK);
        other = lock_ask(contract_other, "d/s-", &claim);
        ck_assert_int_eq(other->result, BACKEND_QUEUED);
        ck_assert_uint_eq(seen("d").waiters, 1);
        ck_assert_ptr_nonnull(strstr(contract_tickets("d", 10), " held, s-")); /* of one name, with a gap perhaps */
        ck_assert_ptr_eq(strchr(contract_tickets("d", 10), ','), strrchr(contract_tickets("d", 10), ','));
        break;
    case RELEASE:
        waiter = lock_take(contract_other, "L");
        lose();
        ck_assert_int_eq(lock_release_and_wait(lock), BACKEND_OK);
        LOCK_UNTIL(waiter->log.granted);
        break;
    case UNLOCK:
        lock = lock_ask(contract_one, "L", &range);
        lose();
        ck_assert_int_eq(contract_release_range(lock->ticket, 10, 19), BACKEND_OK);
        range.wait = false;
        ck_assert_int_eq(lock_ask(contract_other, "L", &range)->result, BACKEND_BUSY);
        range.start = 10;
        ck_assert_int_eq(lock_ask(contract_other, "L", &range)->result, BACKEND_OK);
        break;
    case CONVERT:
        shared.user = &lock->log;
        lose();
        ck_assert_int_eq(contract_convert(lock->ticket, &shared), BACKEND_OK);
        ck_assert_int_eq(lock->ticket->mode, BACKEND_SHARED);
        ck_assert_int_eq(lock_ask(contract_other, "L", &shared)->result, BACKEND_OK);
        break;
    case SET:
        lose();
        ck_assert_int_eq(contract_set(lock->ticket, &(struct backend_change){.set = BACKEND_SET_CONTENT,
                                                                             .content = contract_bytes("text")}),
                         BACKEND_OK);
        ck_assert(contract_equal(seen("L").content, "text"));
        break;
    case RENAME:
        lose();
        ck_assert_int_eq(contract_rename(lock->ticket, "M"), BACKEND_OK);
        ck_assert_uint_ge(lock->ticket->fence, fence);
        ck_assert_uint_eq(seen("M").fence, lock->ticket->fence);
        ck_assert_int_eq(seen("L").type, BACKEND_NOTHING);
        break;
    case REPLACE:
        other = lock_ask(contract_one, "M", &claim);
        waiter = lock_take(contract_other, "M");
        lose();
        ck_assert_int_eq(contract_rename_over(lock->ticket, "M", other->ticket), BACKEND_OK);
        LOCK_UNTIL(other->log.ended);
        ck_assert_int_eq(other->log.why, BACKEND_RELEASED);
        ck_assert_uint_eq(seen("M").fence, lock->ticket->fence);
        ck_assert_int_eq(seen("L").type, BACKEND_NOTHING);
        ck_assert_uint_eq(waiter->log.granted, 0);
        lock_release(lock);
        LOCK_UNTIL(waiter->log.granted);
        break;
    case BREAK:
    case BREAK_BY_TOKEN:
        other = lock_take(contract_other, "N");
        fence = other->ticket->fence;
        waiter = lock_take(contract_other, "N");
        lose();
        ck_assert_int_eq(contract_revoke("N", change == BREAK ? 0 : fence), BACKEND_OK);
        LOCK_UNTIL(other->log.ended && waiter->log.granted);
        lock_pass(100);
        ck_assert_uint_eq(waiter->log.ended, 0); /* it came after that */
        break;
    case WRONG_TOKEN:
        lose();
        ck_assert_int_eq(contract_revoke("L", fence + 1), BACKEND_STALE);
        break;
    case BREAK_NOTHING:
        lose();
        ck_assert_int_eq(contract_revoke("M", 0), BACKEND_MISSING);
        break;
    case MKDIR:
        lose();
        ck_assert_int_eq(contract_mkdir("d", &directory), BACKEND_OK);
        ck_assert_int_eq(seen("d").type, BACKEND_DIRECTORY);
        break;
    case RMDIR:
        ck_assert_int_eq(contract_mkdir("d", &directory), BACKEND_OK);
        lose();
        ck_assert_int_eq(contract_rmdir("d"), BACKEND_OK);
        ck_assert_int_eq(contract_rmdir("d"), BACKEND_MISSING);
        break;
    default:
        break;
    }
    lock_pass(100); /* what is held is verified once the connection is there again */
    ck_assert(!lock || !lock->ticket || lock->log.ended == 0);
}
END_TEST

/* --- byte ranges --- */

static enum backend_result range_result(uint64_t owner, uint64_t start, uint64_t end)
{
    struct backend_claim claim = lock_claim(BACKEND_FCNTL, BACKEND_EXCLUSIVE);
    claim.lock_owner = owner;
    claim.start = start;
    claim.end = end;
    claim.wait = false;
    return lock_ask(contract_other, "R", &claim)->result;
}

static struct lock *ask_range(uint64_t start, uint64_t end)
{
    struct backend_claim claim = lock_claim(BACKEND_FCNTL, BACKEND_EXCLUSIVE);
    claim.lock_owner = 1;
    claim.start = start;
    claim.end = end;
    claim.ttl = CONTRACT_LONG;
    return lock_ask(contract_one, "R", &claim);
}

static void on_reset(struct ev_loop *loop, ev_timer *timer, int events)
{
    (void)loop, (void)timer, (void)events;
    relay_reset();
}

/* The lock owner keeps the range that it had.  The first request to give it back is not answered either. */
START_TEST(range_without_an_answer_is_given_back_by_itself)
{
    ev_timer reset;

    struct lock *had = ask_range(10, 19);
    ck_assert_int_eq(had->result, BACKEND_OK);
    relay_be_deaf();
    ev_timer_init(&reset, on_reset, (double)(store.timeout + 300) / 1e3, 0);
    if (store.timeout)
        ev_timer_start(contract_loop, &reset);
    ck_assert_int_eq(ask_range(30, 39)->result, BACKEND_UNREACHABLE);
    relay_reset();
    while (range_result(2, 30, 39) != BACKEND_OK)
        lock_pass(10);
    ck_assert_int_eq(range_result(3, 10, 19), BACKEND_BUSY);
    ck_assert_uint_eq(had->log.ended, 0);
}
END_TEST

static void on_unlocked(void *arg, enum backend_result result)
{
    *(int *)arg = (int)result;
    contract_end_turn();
}

/* The request was lost, too. */
START_TEST(unlock_of_bytes_that_never_left_is_done_when_the_store_is_there_again)
{
    int result = -1;

    struct lock *lock = ask_range(10, 29);
    relay_close();
    lock_pass(20);
    ck_assert(backend_release_range(contract_one, lock->ticket, 10, 19, on_unlocked, &result));
    lock_pass(100);
    relay_reset();
    while (range_result(2, 10, 19) != BACKEND_OK)
        lock_pass(10);
    ck_assert_int_eq(range_result(3, 20, 29), BACKEND_BUSY);
    LOCK_UNTIL(result >= 0);
    ck_assert_uint_eq(lock->log.ended, 0);
}
END_TEST

/* --- cut off for longer than a waiter counts as alive --- */

START_TEST(lock_that_is_handed_over_and_not_claimed_goes_on)
{
    enum { CLAIM = 3000, SLACK = 600 };
    struct lock *holder = lock_take(contract_other, "L"), *deaf = lock_take(contract_one, "L"),
                *next = lock_take(contract_other, "L");

    relay_stop();
    clock_ms released = clock_now();
    lock_release(holder);
    LOCK_UNTIL(next->log.granted);
    if (contract_can(BACKEND_CAN_SEQUENCE))
        ck_assert_int_ge(clock_now() - released, CLAIM - 1000 - 100); /* or when it counts as dead: LOCK_TERM */
    ck_assert_int_lt(clock_now() - released, CLAIM + SLACK);
    ck_assert_uint_eq(deaf->log.granted + deaf->log.ended, 0); /* it waits on */
    relay_continue();
    relay_reset();
    lock_release(next);
    LOCK_UNTIL(deaf->log.granted);
}
END_TEST

/* A queue of such a width, of the mode of who is cut off. */
static const struct {
    uint32_t width;
    enum backend_mode mode;
} queues[] = {{1, BACKEND_EXCLUSIVE}, {2, BACKEND_EXCLUSIVE}, {1, BACKEND_SHARED}};

static struct lock *queue_up(struct backend *mount, enum backend_mode mode, int64_t ttl)
{
    struct backend_claim claim = lock_claim(BACKEND_FLOCK, mode);
    claim.sequence = true;
    claim.ttl = ttl;
    return lock_ask(mount, "d/s-", &claim);
}

static struct backend_info stat_of(const struct lock *lock)
{
    char name[64];
    ck_assert(backend_ticket_name(lock->mount, lock->ticket, name, sizeof name));
    return seen(name);
}

/* It has its place, and a number of its own. */
START_TEST(place_that_is_taken_again_does_not_join_who_was_let_in_meanwhile)
{
    const struct backend_directory directory = {.width = queues[_i].width};
    const unsigned width = directory.width;
    struct lock *before[2], *after[2];

    ck_assert_int_eq(contract_mkdir("d", &directory), BACKEND_OK);
    for (unsigned i = 0; i < width; i++)
        before[i] = queue_up(contract_other, BACKEND_EXCLUSIVE, CONTRACT_LONG);
    struct lock *again = queue_up(contract_one, queues[_i].mode, 600);
    for (unsigned i = 0; i < width; i++)
        after[i] = queue_up(contract_other, BACKEND_EXCLUSIVE, CONTRACT_LONG);
    struct lock *last = queue_up(contract_other, BACKEND_EXCLUSIVE, CONTRACT_LONG);
    uint64_t number = last->ticket->fence;
    relay_stop();
    LOCK_UNTIL(seen("d").waiters == width + 1);
    for (unsigned i = 0; i < width; i++)
        lock_release(before[i]);
    LOCK_UNTIL(after[0]->log.granted && after[width - 1]->log.granted);
    relay_continue();
    relay_reset();
    LOCK_UNTIL(seen("d").waiters == 2);
    ck_assert_uint_eq(stat_of(again).holders, 0);
    ck_assert_uint_eq(stat_of(again).position, width);
    ck_assert_uint_eq(stat_of(after[0]).position, 0);
    lock_pass(700); /* it has asked again, some times */
    ck_assert_uint_eq(again->log.granted + after[0]->log.ended, 0);
    lock_release(after[0]);
    LOCK_UNTIL(again->log.granted);
    ck_assert_uint_eq(last->log.granted, 0);
    ck_assert_uint_gt(again->ticket->fence, number);
    number = again->ticket->fence;
    ck_assert_uint_lt(stat_of(again).position, width);
    ck_assert_uint_eq(stat_of(last).position, width);
    lock_release(again);
    LOCK_UNTIL(last->log.granted);
    ck_assert_uint_gt(last->ticket->fence, number);
    ck_assert_uint_eq(stat_of(last).position, width - 1);
}
END_TEST

static void setup(void)
{
    signal(SIGPIPE, SIG_IGN);
    contract_use(&store);
    contract_setup_two();
}

static void teardown(void)
{
    relay_end();
    lock_teardown();
}

TCase *contract_lost_case(const struct contract *subject)
{
    store = *subject;
    store.open = store.open_relayed;

    TCase *tcase = tcase_create("lost");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    for (int change = 0; change < CHANGES; change++) {
        if (store_can((enum change)change)) {
            tcase_add_loop_test(tcase, change_whose_answer_is_lost_is_made_once, change, change + 1);
        }
    }
    if (contract_has(BACKEND_CAN_RANGE)) {
        tcase_add_test(tcase, range_without_an_answer_is_given_back_by_itself);
        tcase_add_test(tcase, unlock_of_bytes_that_never_left_is_done_when_the_store_is_there_again);
    }
    if (!store.sessions) {
        tcase_add_test(tcase, lock_that_is_handed_over_and_not_claimed_goes_on);
    }
    if (!store.sessions && contract_has(BACKEND_CAN_SEQUENCE)) {
        tcase_add_loop_test(tcase, place_that_is_taken_again_does_not_join_who_was_let_in_meanwhile, 0,
                            G_N_ELEMENTS(queues));
    }
    return tcase;
}
