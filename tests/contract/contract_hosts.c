/* contract_hosts: locks that go from one mount of a store to the other, and what is left of a mount that dies. */
#include <string.h>

#include "tests/contract/contract_locks.h"

/* The time after an end in which the next is granted, ms.  Without an order of all mounts a waiter tries again at
 * random. */
static int64_t soon(void)
{
    return contract_can(BACKEND_CAN_SEQUENCE) ? 500 : 1500;
}

static bool sessions; /* see struct contract */

/* --- order --- */

START_TEST(shared_waiters_of_both_mounts_are_granted_together)
{
    struct lock *holder = lock_take(contract_one, "L");
    struct lock *one = lock_share(contract_one, "L"), *two = lock_share(contract_other, "L");
    struct lock *exclusive = lock_take(contract_one, "L"), *last = lock_share(contract_other, "L");

    lock_release(holder);
    LOCK_UNTIL(one->log.granted && two->log.granted);
    ck_assert_int_eq(lock_release_and_wait(two), BACKEND_OK);
    ck_assert_uint_eq(exclusive->log.granted, 0);
    lock_release(one);
    LOCK_UNTIL(exclusive->log.granted);
    ck_assert_uint_eq(last->log.granted, 0);
    lock_release(exclusive);
    LOCK_UNTIL(last->log.granted);
}
END_TEST

START_TEST(no_new_claim_overtakes_a_waiter_of_the_other_mount)
{
    struct backend_claim claim = lock_claim(BACKEND_LEASE, BACKEND_SHARED);

    claim.wait = false;
    struct lock *holder = lock_ask(contract_one, "L", &claim), *waiter = lock_take(contract_other, "L");
    ck_assert_int_eq(lock_ask(contract_one, "L", &claim)->result, BACKEND_BUSY); /* it could hold beside the holder */
    lock_release(holder);
    ck_assert_int_eq(lock_ask(contract_one, "L", &claim)->result, BACKEND_BUSY);
    LOCK_UNTIL(waiter->log.granted);
}
END_TEST

/* Another mount that was refused is another way of a store. */
START_TEST(request_behind_a_release_finds_it_done)
{
    struct lock *holder = lock_take(contract_one, "L"), *moved = lock_take(contract_one, "M");
    struct backend_claim claim = lock_claim(BACKEND_FLOCK, BACKEND_EXCLUSIVE);

    ck_assert(lock_is_busy_at(contract_other, "L"));
    lock_release(holder);
    switch (_i) {
    case 0:
        ck_assert_int_eq(contract_rename(moved->ticket, "L"), BACKEND_OK);
        return;
    case 1:
        claim.mode = contract_can(BACKEND_CAN_SHARE) ? BACKEND_SHARED : BACKEND_EXCLUSIVE;
        break;
    case 2:
        claim.kind = BACKEND_FCNTL;
        claim.lock_owner = 1;
        claim.end = BACKEND_RANGE_MAX;
        break;
    }
    claim.wait = false;
    ck_assert_int_eq(lock_ask(contract_one, "L", &claim)->result, BACKEND_OK);
}
END_TEST

/* It gives up when the grant is under way, or a moment before or after; _i: the holder is of its own mount. */
START_TEST(grant_that_crosses_a_cancel_goes_on_to_the_next)
{
    for (unsigned turns = 0; turns < 8; turns++) {
        struct lock *holder = lock_take(_i ? contract_one : contract_other, "L"), *gone = lock_take(contract_one, "L"),
                    *next = lock_take(contract_other, "L");
        clock_ms released = clock_now();
        lock_release(holder);
        for (unsigned i = 0; i < turns; i++) {
            g_usleep(200);
            contract_poll();
        }
        lock_release(gone);
        LOCK_UNTIL(next->log.granted);
        ck_assert_int_lt(clock_now() - released, 2 * soon());
        ck_assert_int_eq(lock_release_and_wait(next), BACKEND_OK);
        ck_assert(!lock_is_busy_at(contract_one, "L"));
    }
}
END_TEST

/* --- a mount that dies --- */

START_TEST(first_waiter_gets_what_a_dead_mount_held_at_its_deadline)
{
    enum { TERM = 900 };
    struct backend_claim claim = lock_claim(BACKEND_FLOCK, BACKEND_EXCLUSIVE);

    claim.ttl = TERM;
    clock_ms requested = clock_now();
    struct lock *holder = lock_ask(contract_one, "L", &claim);
    clock_ms taken = clock_now();
    ck_assert_int_eq(holder->result, BACKEND_OK);
    struct lock *first = lock_take(contract_other, "L"), *second = lock_take(contract_other, "L");
    lock_mount_dies();
    if (_i && contract_can(BACKEND_CAN_SEQUENCE)) { /* another has become the first meanwhile */
        lock_release(first);
        first = second;
    }
    LOCK_UNTIL(first->log.granted || second->log.granted);
    ck_assert_int_ge(clock_now() - requested, TERM);
    ck_assert_int_lt(clock_now() - taken, TERM + soon());
    ck_assert(first->log.granted || !contract_can(BACKEND_CAN_SEQUENCE));
    ck_assert_uint_eq(first == second ? 0 : first->log.granted && second->log.granted, 0);
}
END_TEST

START_TEST(dead_waiter_is_passed_over)
{
    struct backend_claim claim = lock_claim(BACKEND_FLOCK, BACKEND_EXCLUSIVE);
    claim.ttl = 600;
    struct lock *holder = lock_take(contract_other, "L");

    ck_assert_int_eq(lock_ask(contract_one, "L", &claim)->result, BACKEND_QUEUED);
    struct lock *alive = lock_take(contract_other, "L");
    lock_mount_dies();
    LOCK_UNTIL(!contract_can(BACKEND_CAN_SEQUENCE) || lock_stat_at(contract_other, "L").waiters == 1);
    clock_ms released = clock_now();
    lock_release(holder);
    LOCK_UNTIL(alive->log.granted);
    ck_assert_int_lt(clock_now() - released, soon());
}
END_TEST

/* The first counts as alive still, and the lock is handed to it. */
START_TEST(dead_waiters_cost_no_more_than_one_claim)
{
    enum { CLAIM = 3000, SLACK = 1200 }; /* for so long a store waits for who was handed a lock */
    struct lock *holder = lock_take(contract_other, "L");

    for (unsigned i = 0; i < 5; i++)
        lock_take(contract_one, "L");
    struct lock *alive = lock_take(contract_other, "L");
    lock_mount_dies();
    clock_ms released = clock_now();
    lock_release(holder);
    LOCK_UNTIL(alive->log.granted);
    ck_assert_int_lt(clock_now() - released, CLAIM + SLACK);
}
END_TEST

/* --- revoking --- */

struct seen {
    struct lock *of[4];
    unsigned count, ended; /* how many had ended when it completed */
    bool called;
};

static void on_revoked(void *arg, enum backend_result result)
{
    struct seen *seen = arg;

    ck_assert_int_eq(result, BACKEND_OK);
    seen->called = true;
    for (unsigned i = 0; i < seen->count; i++)
        seen->ended += seen->of[i]->log.ended;
    contract_end_turn();
}

/* _i: it is shared.  ZooKeeper tells other mounts a moment later. */
START_TEST(revoking_is_complete_when_holders_of_both_mounts_have_the_event)
{
    for (unsigned round = 0; round < 24; round++) {
        struct seen seen = {.count = _i ? 4 : 1};
        for (unsigned i = 0; i < seen.count; i++) {
            struct backend *mount = (round + i) % 2 ? contract_one : contract_other;
            seen.of[i] = _i ? lock_share(mount, "L") : lock_take(mount, "L");
            ck_assert_int_eq(seen.of[i]->result, BACKEND_OK);
        }
        backend_revoke(round % 3 ? contract_one : contract_other, "L",
                       !_i && round % 4 < 2 ? seen.of[0]->ticket->fence : 0, on_revoked, &seen);
        LOCK_UNTIL(seen.called);
        ck_assert_uint_eq(seen.ended, seen.count);
    }
}
END_TEST

/* --- byte ranges --- */

static struct lock *get_range(struct backend *mount, uint64_t owner, uint64_t start, uint64_t end, bool wait)
{
    struct backend_claim claim = lock_claim(BACKEND_FCNTL, BACKEND_EXCLUSIVE);
    claim.lock_owner = owner;
    claim.start = start;
    claim.end = end;
    claim.wait = wait;
    return lock_ask(mount, "L", &claim);
}

static void unlock(struct lock *lock, uint64_t start, uint64_t end)
{
    contract_backend = lock->mount;
    if (contract_release_range(lock->ticket, start, end) == BACKEND_MISSING)
        lock->ticket = NULL;
    contract_backend = contract_one;
}

START_TEST(byte_ranges_exclude_over_mounts)
{
    /* the same number is another lock owner on another mount */
    struct lock *low = get_range(contract_one, 1, 0, 9, false), *high = get_range(contract_other, 1, 10, 19, false);
    ck_assert_int_eq(low->result, BACKEND_OK);
    ck_assert_int_eq(high->result, BACKEND_OK);
    ck_assert_int_eq(get_range(contract_other, 1, 7, 12, false)->result, BACKEND_BUSY);
    struct lock *waiter = get_range(contract_one, 2, 5, 14, true);
    ck_assert_int_eq(waiter->result, BACKEND_QUEUED);
    unlock(low, 5, 9);
    unlock(high, 15, 19);
    ck_assert_uint_eq(waiter->log.granted, 0);
    unlock(high, 10, 14);
    LOCK_UNTIL(waiter->log.granted);
    ck_assert_ptr_null(high->ticket);
    ck_assert_int_eq(get_range(contract_other, 1, 10, 19, false)->result, BACKEND_BUSY);
    unlock(waiter, 0, BACKEND_RANGE_MAX);
    ck_assert_int_eq(get_range(contract_other, 1, 10, 19, false)->result, BACKEND_OK);
}
END_TEST

/* --- what is seen --- */

static void on_known(void *arg, enum backend_result result, const struct backend_info *info)
{
    ck_assert_int_eq(result, BACKEND_OK);
    *(enum backend_type *)arg = info->type;
    contract_end_turn();
}

START_TEST(shared_lock_is_there_while_one_of_its_holders_lets_go)
{
    enum backend_type type = BACKEND_DIRECTORY;

    struct lock *holder = lock_share(contract_one, "L");
    lock_share(contract_other, "L");
    backend_stat(contract_one, "L", on_known, &type);
    lock_release(holder);
    LOCK_UNTIL(type != BACKEND_DIRECTORY);
    ck_assert_int_eq(type, BACKEND_LOCK);
}
END_TEST

/* --- queues --- */

static struct lock *queue_up(struct backend *mount)
{
    struct backend_claim claim = lock_claim(BACKEND_LEASE, BACKEND_EXCLUSIVE);
    claim.sequence = true;
    return lock_ask(mount, "d/s-", &claim);
}

START_TEST(wider_queue_lets_in_waiters_of_both_mounts)
{
    struct backend_directory directory = {.width = 1};
    struct lock *place[4];

    ck_assert_int_eq(contract_mkdir("d", &directory), BACKEND_OK);
    for (unsigned i = 0; i < G_N_ELEMENTS(place); i++) {
        place[i] = queue_up(i % 2 ? contract_other : contract_one);
        ck_assert_int_eq(place[i]->result, i ? BACKEND_QUEUED : BACKEND_OK);
    }
    directory.width = 3;
    ck_assert_int_eq(contract_set_directory("d", &directory), BACKEND_OK);
    LOCK_UNTIL(place[1]->log.granted && place[2]->log.granted);
    ck_assert_uint_eq(place[3]->log.granted, 0);
    directory.width = 1;
    contract_backend = contract_other;
    ck_assert_int_eq(contract_set_directory("d", &directory), BACKEND_OK);
    lock_release_and_wait(place[1]);
    lock_release_and_wait(place[0]); /* those that hold stay; nobody new comes before there is room */
    lock_pass(50);
    ck_assert_uint_eq(place[3]->log.granted, 0);
    lock_release(place[2]);
    LOCK_UNTIL(place[3]->log.granted);
}
END_TEST

/* --- the lock-delay --- */

/* How the holder ends; _i / WAYS: it is a ticket of a queue. */
enum { EXPIRES, BROKEN, DIES, RELEASED, WAYS };

START_TEST(lock_delay_keeps_others_off_after_an_end_against_the_holders_will)
{
    enum { TERM = 600, DELAY = 500 };
    int way = _i % WAYS;
    bool queue = _i / WAYS;
    const char *name = queue ? "d/s-" : "d/L";
    struct backend_directory directory = {.width = 1, .delay = DELAY};
    struct backend_claim claim = lock_claim(BACKEND_LEASE, BACKEND_EXCLUSIVE);

    ck_assert_int_eq(contract_mkdir("d", &directory), BACKEND_OK);
    claim.sequence = queue;
    claim.ttl = way == BROKEN || way == RELEASED ? CONTRACT_LONG : TERM;
    clock_ms requested = clock_now();
    struct lock *holder = lock_ask(contract_one, name, &claim);
    ck_assert_int_eq(holder->result, BACKEND_OK);
    holder->fixed = way == EXPIRES;
    claim.ttl = CONTRACT_LONG;
    struct lock *waiter = lock_ask(contract_other, name, &claim);
    ck_assert_int_eq(waiter->result, BACKEND_QUEUED);
    clock_ms ended = clock_now();
    if (way == RELEASED) {
        lock_release(holder);
    } else if (way == BROKEN) {
        contract_backend = contract_other;
        ck_assert_int_eq(contract_revoke(queue ? "d/s-0000000000" : name, 0), BACKEND_OK);
    } else if (way == DIES) {
        lock_mount_dies();
        ended = requested + TERM; /* and not before: its answer may have come late */
    } else {
        ended = holder->ticket->deadline;
        LOCK_UNTIL(holder->log.ended);
    }
    LOCK_UNTIL(waiter->log.granted);
    int64_t later = clock_now() - ended;
    if (way == RELEASED)
        ck_assert_int_lt(later, DELAY);
    else
        ck_assert_msg(later >= DELAY - 10 && later < DELAY + soon() + 100, "%d ms", (int)later);
}
END_TEST

/* contract_mounts tests the same for locks that are no tickets. */
START_TEST(lock_delay_that_is_set_later_is_that_of_tickets_that_held_before)
{
    struct backend_directory directory = {.width = 1};

    ck_assert_int_eq(contract_mkdir("d", &directory), BACKEND_OK);
    struct lock *holder = queue_up(contract_one), *next;
    directory.delay = CONTRACT_LONG;
    contract_backend = contract_other;
    ck_assert_int_eq(contract_set_directory("d", &directory), BACKEND_OK);
    ck_assert_int_eq(contract_revoke("d/s-0000000000", 0), BACKEND_OK);
    LOCK_UNTIL(holder->log.ended);
    next = queue_up(contract_other);
    ck_assert_int_eq(next->result, BACKEND_QUEUED);
}
END_TEST

START_TEST(place_that_was_broken_while_it_waited_delays_nobody)
{
    struct backend_directory directory = {.width = 1, .delay = 5000};

    ck_assert_int_eq(contract_mkdir("d", &directory), BACKEND_OK);
    struct lock *holder = queue_up(contract_one), *broken = queue_up(contract_one), *next = queue_up(contract_other);
    contract_backend = contract_other;
    ck_assert_int_eq(contract_revoke("d/s-0000000001", 0), BACKEND_OK);
    clock_ms released = clock_now();
    lock_release(holder);
    LOCK_UNTIL(next->log.granted);
    ck_assert_int_lt(clock_now() - released, 1000);
    LOCK_UNTIL(broken->log.ended);
}
END_TEST

/* --- names --- */

static const char *const names[] = {
    "{tag}",      "a{tag}b",      "a{{tag}b", "{",       "{{a}}",  "two words",    "new\nline",
    "\r\n$1\r\n", "tab\tback\\",  "%s%n",     "*",       "[a-z]?", "\xff\xfe\x80", "\xc3\xa9t\xc3\xa9",
    "-",          "a-0000000001", "'\"",      "lfs:x:y", " ",      "a}b",          "}",
    "}{tag",      "{}",           "a{}b",     "{}{tag}", "''; --", "$1",           "\\x00"};

/* Of a name of bytes that a store cannot have nothing is there, and it is refused. */
START_TEST(any_name_is_a_lock_or_is_refused)
{
    const char *name = names[_i];
    struct backend_claim claim = lock_claim(BACKEND_FLOCK, BACKEND_EXCLUSIVE);
    struct lock *holder = lock_ask(contract_one, name, &claim);

    if (holder->result == BACKEND_INVALID) {
        ck_assert_msg(sessions, "%s is refused", name);
        ck_assert_int_eq(lock_stat_at(contract_other, name).type, BACKEND_NOTHING);
        return;
    }
    ck_assert_int_eq(holder->result, BACKEND_OK);
    ck_assert(lock_is_busy_at(contract_other, name));
    struct lock *waiter = lock_take(contract_other, name);
    ck_assert_int_eq(lock_stat_at(contract_other, name).type, BACKEND_LOCK);
    ck_assert_uint_eq(lock_stat_at(contract_other, name).fence, holder->ticket->fence);
    ck_assert_str_eq(contract_list("", 10), name);
    lock_release(holder);
    LOCK_UNTIL(waiter->log.granted);
    ck_assert_int_eq(lock_release_and_wait(waiter), BACKEND_OK);
    ck_assert_int_eq(lock_stat_at(contract_one, name).type, BACKEND_NOTHING);
}
END_TEST

TCase *contract_hosts_case(const struct contract *subject)
{
    sessions = subject->sessions;

    TCase *tcase = tcase_create("hosts");
    tcase_set_timeout(tcase, 30);
    tcase_add_checked_fixture(tcase, contract_setup_two, lock_teardown);
    tcase_add_loop_test(tcase, request_behind_a_release_finds_it_done, contract_has(BACKEND_CAN_RENAME) ? 0 : 1, 4);
    tcase_add_loop_test(tcase, grant_that_crosses_a_cancel_goes_on_to_the_next, 0, 2);
    tcase_add_test(tcase, dead_waiter_is_passed_over);
    tcase_add_test(tcase, dead_waiters_cost_no_more_than_one_claim);
    for (int i = 0; i < 2 * WAYS && contract_has(BACKEND_CAN_SHARE); i++) { /* or delay */
        if (!sessions || (i % WAYS != DIES && i < WAYS)) {
            tcase_add_loop_test(tcase, lock_delay_keeps_others_off_after_an_end_against_the_holders_will, i, i + 1);
        }
    }
    tcase_add_loop_test(tcase, any_name_is_a_lock_or_is_refused, 0, G_N_ELEMENTS(names));
    if (contract_has(BACKEND_CAN_SHARE)) {
        tcase_add_test(tcase, shared_waiters_of_both_mounts_are_granted_together);
        tcase_add_test(tcase, no_new_claim_overtakes_a_waiter_of_the_other_mount);
        tcase_add_test(tcase, shared_lock_is_there_while_one_of_its_holders_lets_go);
    }
    if (!sessions) {
        tcase_add_loop_test(tcase, first_waiter_gets_what_a_dead_mount_held_at_its_deadline, 0, 2);
        tcase_add_loop_test(tcase, revoking_is_complete_when_holders_of_both_mounts_have_the_event, 0,
                            contract_has(BACKEND_CAN_SHARE) ? 2 : 1);
    }
    if (contract_has(BACKEND_CAN_RANGE)) {
        tcase_add_test(tcase, byte_ranges_exclude_over_mounts);
    }
    if (contract_has(BACKEND_CAN_SEQUENCE)) {
        tcase_add_test(tcase, wider_queue_lets_in_waiters_of_both_mounts);
        tcase_add_test(tcase, place_that_was_broken_while_it_waited_delays_nobody);
    }
    if (contract_has(BACKEND_CAN_SEQUENCE) && !sessions) {
        tcase_add_test(tcase, lock_delay_that_is_set_later_is_that_of_tickets_that_held_before);
    }
    return tcase;
}
