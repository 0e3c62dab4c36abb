/* check_redis_lost: messages and answers of the Redis server that do not arrive.
 *
 * A mount repeats a request whose answer was lost; the server must not carry it out twice, and no lock may stay held
 * without a holder.
 */
#include "tests/support/check_main.h"
#include "tests/unit/hosts_fixture.h"
#include "tests/unit/redis_proxy.h"

static struct redis_proxy *proxy;

/* Mount 0 is behind the proxy, the others are not. */
static void open_mounts(void)
{
    proxy = redis_proxy_new(hosts_loop, redis_server_socket(hosts_server));
    hosts_options.conn.uri.path = (char *)redis_proxy_socket(proxy);
    hosts_until_up(0);
    hosts_options.conn.uri.path = (char *)redis_server_socket(hosts_server);
    hosts_until_up(1);
}

static void setup(void)
{
    hosts_setup();
    open_mounts();
}

/* They give up soon. */
static void setup_in_a_hurry(void)
{
    hosts_setup();
    hosts_hurry();
    open_mounts();
}

static void teardown(void)
{
    hosts_close(0);
    redis_proxy_free(proxy);
    hosts_teardown();
}

START_TEST(lost_message_costs_a_waiter_no_more_than_the_refresh)
{
    struct hosts_record *holder = hosts_get(1, "L", HOSTS_LONG),
                        *waiter = hosts_queue(0, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);
    clock_ms released = clock_now();

    redis_proxy_lose(proxy, "\r\nmessage\r\n", 1, false);
    hosts_release(holder);
    HOSTS_UNTIL(waiter->granted);
    ck_assert_uint_eq(redis_proxy_lost(proxy), 1);
    ck_assert_int_lt(waiter->at - released, 2300);
    ck_assert_int_ge(waiter->at - released, 100);
    hosts_release(waiter);
    ck_assert(!hosts_exists("h:L"));
}
END_TEST

START_TEST(heartbeat_finds_each_waiter_whose_message_was_lost)
{
    static const char *const names[] = {"L", "M", "N", "O"};
    struct hosts_record *holders[G_N_ELEMENTS(names)], *waiters[G_N_ELEMENTS(names)];
    for (unsigned i = 0; i < G_N_ELEMENTS(names); i++) {
        holders[i] = hosts_get(1, names[i], HOSTS_LONG);
        waiters[i] = hosts_queue(0, names[i], BACKEND_EXCLUSIVE, HOSTS_LONG);
    }
    redis_proxy_lose(proxy, "\r\nmessage\r\n", UINT_MAX, false);
    for (unsigned i = 0; i < G_N_ELEMENTS(names); i++) {
        hosts_release(holders[i]);
    }
    for (unsigned i = 0; i < G_N_ELEMENTS(names); i++) {
        HOSTS_UNTIL(waiters[i]->granted);
    }
    ck_assert_uint_gt(redis_proxy_lost(proxy), 0);
}
END_TEST

START_TEST(lock_that_is_handed_over_and_not_claimed_goes_on)
{
    struct hosts_record *holder = hosts_get(1, "L", HOSTS_LONG), *deaf, *next;
    clock_ms released;

    deaf = hosts_queue(0, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);
    next = hosts_queue(2, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);
    redis_proxy_lose(proxy, "", UINT_MAX, true); /* it is cut off, and does not give up */
    released = clock_now();
    hosts_release(holder);
    HOSTS_UNTIL(next->granted);
    ck_assert_int_ge(next->at - released, 2900);
    ck_assert_int_lt(next->at - released, 3600);
    ck_assert_uint_eq(deaf->granted, 0);
    ck_assert_uint_eq(deaf->ended, 0); /* it waits on */
    redis_proxy_lose(proxy, "", 0, false);
    hosts_until_up(0);
    hosts_release(next);
    HOSTS_UNTIL(deaf->granted);
}
END_TEST

START_TEST(who_waited_behind_one_that_queued_again_gets_a_larger_token_too)
{
    struct hosts_record *holder = hosts_get(1, "L", HOSTS_LONG), *again, *next;
    uint64_t number, fence;

    again = hosts_queue(0, "L", BACKEND_EXCLUSIVE, 600);
    redis_proxy_lose(proxy, "", UINT_MAX, true); /* cut off for longer than it counts as alive */
    hosts_pass(1000);
    next = hosts_queue(2, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);
    ck_assert_uint_eq(hosts_stat(1, "L").waiters, 1);
    number = next->ticket->fence;
    redis_proxy_lose(proxy, "", 0, false);
    hosts_until_up(0);
    HOSTS_UNTIL(hosts_stat(1, "L").waiters == 2);
    hosts_release(holder);
    HOSTS_UNTIL(again->granted); /* it has its place, and a number of its own */
    ck_assert_uint_eq(next->granted, 0);
    fence = again->ticket->fence;
    ck_assert_uint_gt(fence, number);
    hosts_release(again);
    HOSTS_UNTIL(next->granted);
    ck_assert_uint_gt(next->ticket->fence, fence);
}
END_TEST

/* A queue of such a width, of the mode of who is cut off. */
static const struct {
    uint32_t width;
    enum backend_mode mode;
} queues[] = {{1, BACKEND_EXCLUSIVE}, {2, BACKEND_EXCLUSIVE}, {1, BACKEND_SHARED}};

static struct hosts_record *queue_up(unsigned mount, enum backend_mode mode, int64_t ttl)
{
    struct backend_claim claim = hosts_claim(BACKEND_FLOCK, ttl);

    claim.sequence = claim.wait = true;
    claim.mode = mode;
    return hosts_acquire(mount, "d/s-", &claim);
}

static struct backend_info stat_of(const struct hosts_record *record)
{
    char name[64];

    ck_assert(backend_ticket_name(hosts_mount(record->mount), record->ticket, name, sizeof(name)));
    return hosts_stat(1, name);
}

START_TEST(place_that_is_taken_again_does_not_join_who_was_let_in_meanwhile)
{
    struct backend_directory directory = {.width = queues[_i].width};
    struct hosts_record *before[2], *again, *after[2], *last;

    ck_assert_int_eq(hosts_mkdir(1, "d", &directory), BACKEND_OK);
    for (unsigned i = 0; i < directory.width; i++)
        before[i] = queue_up(1, BACKEND_EXCLUSIVE, HOSTS_LONG);
    again = queue_up(0, queues[_i].mode, 600);
    for (unsigned i = 0; i < directory.width; i++)
        after[i] = queue_up(2, BACKEND_EXCLUSIVE, HOSTS_LONG);
    last = queue_up(1, BACKEND_EXCLUSIVE, HOSTS_LONG);
    redis_proxy_lose(proxy, "", UINT_MAX, true); /* cut off for longer than it counts as alive */
    HOSTS_UNTIL(hosts_stat(1, "d").waiters == directory.width + 1);
    for (unsigned i = 0; i < directory.width; i++)
        hosts_release(before[i]);
    HOSTS_UNTIL(after[0]->granted && after[directory.width - 1]->granted);
    redis_proxy_lose(proxy, "", 0, false);
    hosts_until_up(0);
    HOSTS_UNTIL(hosts_stat(1, "d").waiters == 2);
    ck_assert_uint_eq(stat_of(again).holders, 0);
    ck_assert_uint_eq(stat_of(again).position, directory.width);
    ck_assert_uint_eq(stat_of(after[0]).position, 0);
    hosts_pass(700); /* it has asked again, some times */
    ck_assert_uint_eq(again->granted, 0);
    ck_assert_uint_eq(after[0]->ended, 0);
    hosts_release(after[0]);
    HOSTS_UNTIL(again->granted); /* it has its place, and a number of its own */
    ck_assert_uint_eq(last->granted, 0);
    ck_assert_uint_eq(stat_of(again).position, directory.width - 1);
    ck_assert_uint_eq(stat_of(last).position, directory.width);
    hosts_release(again);
    HOSTS_UNTIL(last->granted);
    ck_assert_uint_eq(stat_of(last).position, directory.width - 1);
}
END_TEST

START_TEST(claim_whose_answer_is_lost_is_granted_once)
{
    struct hosts_record *holder = hosts_get(1, "L", HOSTS_LONG),
                        *waiter = hosts_queue(0, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);
    uint64_t fence;

    redis_proxy_lose(proxy, "granted", 1, true);
    fence = holder->ticket->fence;
    hosts_release(holder);
    HOSTS_UNTIL(waiter->granted);
    ck_assert_uint_eq(redis_proxy_lost(proxy), 1);
    ck_assert_uint_gt(waiter->ticket->fence, fence);
    hosts_pass(100);
    ck_assert_uint_eq(waiter->granted, 1);
    ck_assert_int_eq(hosts_stat(1, "L").holders, 1);
    hosts_release(waiter);
    ck_assert(!hosts_exists("h:L"));
}
END_TEST

START_TEST(acquire_whose_answer_is_lost_is_granted_once)
{
    struct hosts_record *record;

    redis_proxy_lose(proxy, "granted", 2, true);
    record = hosts_get(0, "L", HOSTS_LONG);
    ck_assert_uint_eq(redis_proxy_lost(proxy), 2);
    ck_assert_int_eq(hosts_stat(1, "L").holders, 1);
    hosts_release(record);
    ck_assert(!hosts_exists("h:L"));
}
END_TEST

START_TEST(queued_claim_whose_answer_is_lost_stands_in_the_queue_once)
{
    struct hosts_record *holder = hosts_get(1, "L", HOSTS_LONG), *waiter;

    redis_proxy_lose(proxy, "queued", 1, true);
    waiter = hosts_queue(0, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);
    ck_assert_uint_eq(redis_proxy_lost(proxy), 1);
    ck_assert_int_eq(hosts_stat(1, "L").waiters, 1);
    hosts_release(waiter);
    ck_assert_int_eq(hosts_stat(1, "L").waiters, 0);
    hosts_release(holder);
    ck_assert(!hosts_exists("h:L"));
}
END_TEST

START_TEST(sequence_ticket_whose_answer_is_lost_has_one_name)
{
    struct backend_directory directory = {.width = 1};
    struct backend_claim claim = hosts_claim(BACKEND_LEASE, HOSTS_LONG);
    struct hosts_record *record, *next;
    char name[64];

    ck_assert_int_eq(hosts_mkdir(0, "d", &directory), BACKEND_OK);
    redis_proxy_lose(proxy, "granted", 1, true);
    claim.sequence = claim.wait = true;
    record = hosts_acquire(0, "d/s-", &claim);
    ck_assert_int_eq(record->result, BACKEND_OK);
    ck_assert_uint_eq(redis_proxy_lost(proxy), 1);
    ck_assert(backend_ticket_name(hosts_mount(0), record->ticket, name, sizeof(name)));
    ck_assert_str_eq(name, "d/s-0000000000");
    next = hosts_acquire(1, "d/s-", &claim);
    ck_assert_int_eq(next->result, BACKEND_QUEUED);
    ck_assert(backend_ticket_name(hosts_mount(1), next->ticket, name, sizeof(name)));
    ck_assert_str_eq(name, "d/s-0000000001");
}
END_TEST

/* A request that the server carries out twice must have one result: _i of these. */
static const struct {
    const char *label, *held; /* the key that is there afterwards */
} changes[] = {{"release", NULL}, {"rename", "h:M"}, {"convert", "h:L"}, {"revoke", NULL}, {"mkdir", "h:L"}};

START_TEST(change_whose_answer_is_lost_succeeds)
{
    struct backend_claim shared = hosts_claim(BACKEND_LEASE, HOSTS_LONG);
    struct hosts_record *record = hosts_get(0, "L", HOSTS_LONG);
    struct backend_directory directory = {.width = 1};
    struct hosts_done done = {0};

    redis_proxy_lose_answer(proxy, "EVALSHA", 1);
    if (_i == 0) {
        ck_assert_int_eq(hosts_release(record), BACKEND_OK);
    } else if (_i == 1) {
        uint64_t fence = record->ticket->fence;

        ck_assert_int_eq(hosts_rename(record, "M"), BACKEND_OK);
        ck_assert_uint_ge(record->ticket->fence, fence);
        ck_assert_uint_eq(hosts_stat(1, "M").fence, record->ticket->fence);
        ck_assert(!hosts_exists("h:L"));
    } else if (_i == 2) {
        shared.mode = BACKEND_SHARED;
        shared.user = record;
        backend_convert(hosts_mount(0), record->ticket, &shared, hosts_on_done, &done);
        HOSTS_UNTIL(done.called);
        ck_assert_int_eq(done.result, BACKEND_OK);
        ck_assert(hosts_is("h:L", "leasefs:held"));
    } else if (_i == 3) {
        ck_assert_int_eq(hosts_revoke(0, "L", 0), BACKEND_OK);
        HOSTS_UNTIL(record->ended);
    } else {
        ck_assert_int_eq(hosts_mkdir(0, "d", &directory), BACKEND_OK);
    }
    ck_assert_msg(redis_proxy_lost(proxy) == 1, "%s: no answer was lost", changes[_i].label);
    ck_assert(changes[_i].held ? hosts_exists(changes[_i].held) : !hosts_exists("h:L"));
}
END_TEST

START_TEST(removal_of_a_directory_whose_answer_is_lost_succeeds)
{
    struct hosts_done done = {0};
    ck_assert_int_eq(hosts_mkdir(0, "d", NULL), BACKEND_OK);
    redis_proxy_lose_answer(proxy, "remove", 1);
    backend_rmdir(hosts_mount(0), "d", hosts_on_done, &done);
    HOSTS_UNTIL(done.called);
    ck_assert_uint_eq(redis_proxy_lost(proxy), 1);
    ck_assert_int_eq(done.result, BACKEND_OK);
    done.called = false;
    backend_rmdir(hosts_mount(0), "d", hosts_on_done, &done);
    HOSTS_UNTIL(done.called);
    ck_assert_int_eq(done.result, BACKEND_MISSING);
}
END_TEST

/* It is listed to see whether something was left over, and what its names are: nobody knows then. */
static const char *const unheard[] = {"after", "names"};

START_TEST(removal_of_a_directory_without_a_listing_is_unknown)
{
    struct hosts_done done = {0};
    ck_assert_int_eq(hosts_mkdir(0, "d", NULL), BACKEND_OK);
    hosts_get(1, "d/a", HOSTS_LONG);
    redis_proxy_lose_answer(proxy, unheard[_i], UINT_MAX);
    backend_rmdir(hosts_mount(0), "d", hosts_on_done, &done);
    HOSTS_UNTIL(done.called);
    ck_assert_int_eq(done.result, BACKEND_UNREACHABLE);
    redis_proxy_lose_answer(proxy, unheard[_i], 0);
}
END_TEST

/* Existing locks get it one part after the other. */
START_TEST(lock_delay_that_the_server_cannot_give_to_the_locks_of_a_directory_is_unknown)
{
    struct backend_directory directory = {.width = 1, .delay = 60000};
    struct hosts_done done = {0};
    hosts_get(1, "a", HOSTS_LONG);
    redis_proxy_lose_answer(proxy, "after", UINT_MAX);
    backend_set_directory(hosts_mount(0), "", &directory, hosts_on_done, &done);
    HOSTS_UNTIL(done.called);
    ck_assert_int_eq(done.result, BACKEND_UNREACHABLE);
    redis_proxy_lose_answer(proxy, "after", 0);
}
END_TEST

START_TEST(revocation_whose_answer_is_lost_has_the_result_of_the_first_try)
{
    struct hosts_record *holder = hosts_get(1, "L", HOSTS_LONG), *next;
    uint64_t fence = holder->ticket->fence;

    redis_proxy_lose_answer(proxy, "EVALSHA", 1);
    ck_assert_int_eq(hosts_revoke(0, "L", fence + 1), BACKEND_STALE); /* a wrong token, however often it is sent */
    ck_assert_uint_eq(redis_proxy_lost(proxy), 1);
    redis_proxy_lose_answer(proxy, "EVALSHA", 1);
    ck_assert_int_eq(hosts_revoke(0, "M", 0), BACKEND_MISSING);
    ck_assert_uint_eq(redis_proxy_lost(proxy), 2);
    redis_proxy_lose_answer(proxy, "EVALSHA", 1);
    ck_assert_int_eq(hosts_revoke(0, "M", fence), BACKEND_MISSING);
    ck_assert_uint_eq(redis_proxy_lost(proxy), 3);
    ck_assert_uint_eq(holder->ended, 0);

    next = hosts_queue(2, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);
    redis_proxy_lose_answer(proxy, _i ? "EVALSHA" : "ends", 1);
    ck_assert_int_eq(hosts_revoke(0, "L", _i ? fence : 0), BACKEND_OK);
    ck_assert_uint_eq(redis_proxy_lost(proxy), 4);
    ck_assert_uint_eq(holder->ended, 1);
    ck_assert_int_eq(holder->why, _i ? BACKEND_RELEASED : BACKEND_BROKEN);
    HOSTS_UNTIL(next->granted);
    hosts_stat(2, "L");
    ck_assert_uint_eq(next->ended, 0); /* who came after it */
    if (_i) {
        ck_assert_int_eq(hosts_revoke(0, "L", fence), BACKEND_STALE); /* once more, by another call */
    }
    hosts_release(next);
}
END_TEST

START_TEST(revocation_that_a_key_of_another_type_keeps_from_being_noted_ends_nobody)
{
    struct hosts_record *holder = hosts_get(1, "L", HOSTS_LONG);

    redis_server_do(hosts_server, "SET lfs:e:h:L x");
    ck_assert_int_eq(hosts_revoke(0, "L", holder->ticket->fence), BACKEND_DAMAGED);
    ck_assert_uint_eq(holder->ended, 0);
    redis_server_do(hosts_server, "DEL lfs:e:h:L");
    ck_assert_int_eq(hosts_revoke(0, "L", holder->ticket->fence), BACKEND_OK);
    ck_assert_uint_eq(holder->ended, 1);
    ck_assert_int_gt(redis_server_do(hosts_server, "PTTL lfs:e:h:L"), 0);
}
END_TEST

static void take_over(void *arg, GString *piece)
{
    const struct hosts_record *holder = arg;
    if (strstr(piece->str, "ok") && holder->ended == 0) { /* it says who holds */
        redis_server_do(hosts_server, "SET h:L another PX 60000");
    }
}

START_TEST(revocation_ends_nobody_who_came_after_its_request)
{
    struct hosts_record *holder = hosts_get(1, "L", HOSTS_LONG);

    redis_proxy_forge(proxy, take_over, holder);
    ck_assert_int_eq(hosts_revoke(0, "L", 0), BACKEND_OK);
    HOSTS_UNTIL(holder->ended);
    redis_proxy_forge(proxy, NULL, NULL);
    ck_assert(hosts_is("h:L", "another"));
    ck_assert_int_eq(hosts_revoke(0, "L", 0), BACKEND_OK);
    ck_assert(!hosts_exists("h:L"));
}
END_TEST

START_TEST(rename_over_a_lease_whose_answer_is_lost_is_done_once)
{
    struct hosts_record *record = hosts_get(0, "L", HOSTS_LONG), *replaced = hosts_get(0, "M", HOSTS_LONG);
    struct hosts_record *waiter = hosts_queue(1, "M", BACKEND_EXCLUSIVE, HOSTS_LONG);

    redis_proxy_lose_answer(proxy, "EVALSHA", 1);
    ck_assert_int_eq(hosts_rename_over(record, "M", replaced), BACKEND_OK);
    ck_assert_uint_eq(redis_proxy_lost(proxy), 1);
    ck_assert_uint_eq(replaced->ended, 1);
    ck_assert_int_eq(replaced->why, BACKEND_RELEASED);
    ck_assert_uint_eq(hosts_stat(1, "M").fence, record->ticket->fence);
    ck_assert(!hosts_exists("h:L"));
    ck_assert_uint_eq(waiter->granted, 0);
    hosts_release(record);
    HOSTS_UNTIL(waiter->granted);
}
END_TEST

START_TEST(acquire_that_is_never_answered_leaves_nothing)
{
    struct backend_claim claim = hosts_claim(BACKEND_LEASE, HOSTS_LONG);
    struct hosts_record *record;

    redis_proxy_lose(proxy, "granted", UINT_MAX, true);
    record = hosts_acquire(0, "L", &claim);
    ck_assert_int_eq(record->result, BACKEND_UNREACHABLE);
    ck_assert_uint_ge(redis_proxy_lost(proxy), 1);
    HOSTS_UNTIL(!hosts_exists("h:L"));
    ck_assert_int_eq(hosts_stat(1, "L").type, BACKEND_NOTHING);
    redis_proxy_lose(proxy, "granted", 0, false);
    hosts_get(0, "L", HOSTS_LONG);
}
END_TEST

static struct hosts_record *ask_range(unsigned mount, uint64_t lock_owner, enum backend_mode mode, uint64_t start,
                                      uint64_t end)
{
    struct backend_claim claim = hosts_claim(BACKEND_FCNTL, HOSTS_LONG);

    claim.lock_owner = lock_owner;
    claim.mode = mode;
    claim.start = start;
    claim.end = end;
    return hosts_request(mount, "R", &claim);
}

static enum backend_result range_result(uint64_t lock_owner, enum backend_mode mode, uint64_t start, uint64_t end)
{
    struct hosts_record *record = ask_range(1, lock_owner, mode, start, end);

    HOSTS_UNTIL(record->answered);
    return record->result;
}

/* What a lock owner that has 10..19 asks for next, and is not told of.  What another
 * gets then: beside it, shared and exclusive. */
static const struct {
    enum backend_mode had, wanted;
    uint64_t start, end;
    enum backend_result shared_result;
} taken_in[] = {
    {BACKEND_EXCLUSIVE, BACKEND_EXCLUSIVE, 30, 39, BACKEND_BUSY}, /* another range */
    {BACKEND_SHARED, BACKEND_EXCLUSIVE, 5, 24, BACKEND_OK},       /* more, exclusively */
    {BACKEND_EXCLUSIVE, BACKEND_SHARED, 0, 14, BACKEND_BUSY},     /* less */
};

START_TEST(range_without_an_answer_is_given_back_by_itself)
{
    static const struct {
        uint64_t start, end;
    } beside[] = {{30, 39}, {0, 9}, {20, 24}};
    enum backend_mode had = taken_in[_i].had;
    struct hosts_record *record = ask_range(0, 1, had, 10, 19), *next;

    HOSTS_UNTIL(record->answered);
    ck_assert_int_eq(record->result, BACKEND_OK);
    redis_proxy_lose(proxy, "granted", UINT_MAX, true);
    next = ask_range(0, 1, taken_in[_i].wanted, taken_in[_i].start, taken_in[_i].end);
    if (_i == 1) { /* it is interrupted */
        HOSTS_UNTIL(redis_proxy_lost(proxy) > 0);
        hosts_drop(next);
    } else {
        HOSTS_UNTIL(next->answered);
        ck_assert_int_eq(next->result, BACKEND_UNREACHABLE);
    }
    redis_proxy_lose(proxy, "granted", 0, false);
    hosts_until_up(0);
    for (size_t i = 0; i < G_N_ELEMENTS(beside); i++)
        while (range_result(2, BACKEND_EXCLUSIVE, beside[i].start, beside[i].end) != BACKEND_OK)
            hosts_pass(10);
    ck_assert_int_eq(range_result(3, BACKEND_EXCLUSIVE, 10, 19), BACKEND_BUSY);
    ck_assert_int_eq(range_result(3, BACKEND_SHARED, 10, 19), taken_in[_i].shared_result);
    ck_assert_uint_eq(record->ended, 0);
}
END_TEST

/* _i: the answers are lost for good, or until others share it: then it stands. */
START_TEST(range_that_cannot_be_exclusive_again_is_shared_or_lost)
{
    struct hosts_record *record = ask_range(0, 1, BACKEND_EXCLUSIVE, 10, 19), *next;

    HOSTS_UNTIL(record->answered);
    redis_proxy_lose(proxy, "granted", UINT_MAX, true);
    next = ask_range(0, 1, BACKEND_SHARED, 10, 19);
    HOSTS_UNTIL(redis_proxy_lost(proxy) > 0);
    ck_assert_int_eq(range_result(2, BACKEND_SHARED, 10, 19), BACKEND_OK);
    hosts_pass(HOSTS_HURRY / 2);
    ck_assert(!next->answered);
    if (_i) {
        redis_proxy_lose(proxy, "granted", 0, false);
    }
    HOSTS_UNTIL(next->answered);
    ck_assert_int_eq(next->result, _i ? BACKEND_OK : BACKEND_UNREACHABLE);
    ck_assert_uint_eq(record->ended, _i ? 0 : 1);
    if (_i) {
        ck_assert_int_eq(next->ticket->mode, BACKEND_SHARED);
    } else {
        ck_assert_int_eq(record->why, BACKEND_LOST);
        ck_assert_uint_lt(record->when, next->when);
    }
    redis_proxy_lose(proxy, "granted", 0, false);
    ck_assert_int_eq(range_result(3, BACKEND_EXCLUSIVE, 10, 19), BACKEND_BUSY);
}
END_TEST

/* _i: it gives back all that it has, or a part, while more is asked for. */
START_TEST(claim_that_crosses_an_unlock_of_its_lock_owner_holds_what_is_reported)
{
    struct hosts_record *record = ask_range(0, 1, BACKEND_EXCLUSIVE, 10, 29), *next;
    HOSTS_UNTIL(record->answered);
    next = ask_range(0, 1, BACKEND_EXCLUSIVE, 15, 34);
    if (_i == 0) {
        hosts_drop(record);
    } else {
        ck_assert(backend_release_range(hosts_mount(0), record->ticket, 10, 19, NULL, NULL));
    }
    HOSTS_UNTIL(next->answered);
    ck_assert_int_eq(next->result, BACKEND_OK);
    ck_assert_int_eq(range_result(2, BACKEND_SHARED, 10, 14), BACKEND_OK);
    ck_assert_int_eq(range_result(2, BACKEND_SHARED, 15, 15), BACKEND_BUSY);
    ck_assert_int_eq(range_result(2, BACKEND_SHARED, 34, 34), BACKEND_BUSY);
    ck_assert_uint_eq(next->ended, 0);
}
END_TEST

/* Its caller must not go on alone while another has been let in. */
START_TEST(downgrade_that_cannot_be_undone_stands)
{
    struct hosts_record *record = hosts_get(0, "L", HOSTS_LONG);
    struct backend_claim shared = hosts_claim(BACKEND_LEASE, HOSTS_LONG);
    struct hosts_done done = {0};
    shared.mode = BACKEND_SHARED;
    shared.user = record;
    redis_proxy_lose_answer(proxy, "EVALSHA", UINT_MAX);
    backend_convert(hosts_mount(0), record->ticket, &shared, hosts_on_done, &done);
    while (hosts_acquire(1, "L", &shared)->result != BACKEND_OK) {
        hosts_turn();
    }
    hosts_pass(HOSTS_HURRY + 100);
    ck_assert(!done.called);
    redis_proxy_lose_answer(proxy, "EVALSHA", 0);
    HOSTS_UNTIL(done.called);
    ck_assert_int_eq(done.result, BACKEND_OK);
    ck_assert_uint_eq(record->ended, 0);
    ck_assert_int_eq(record->ticket->mode, BACKEND_SHARED);
    ck_assert_int_eq(hosts_acquire(2, "L", &shared)->result, BACKEND_OK);
}
END_TEST

static void unlock(uint64_t start, uint64_t end, struct hosts_done *done)
{
    struct hosts_record *record = hosts_of_lock_owner(0, "R", 1);
    *done = (struct hosts_done){.called = false};
    ck_assert_ptr_nonnull(record);
    if (!backend_release_range(hosts_mount(0), record->ticket, start, end, hosts_on_done, done)) {
        record->ticket = NULL;
    }
}

START_TEST(unlock_of_bytes_whose_answer_is_lost_loses_nothing)
{
    struct hosts_record *record = ask_range(0, 1, BACKEND_EXCLUSIVE, 10, 19);
    struct hosts_done done;
    HOSTS_UNTIL(record->answered);
    redis_proxy_lose_answer(proxy, "EVALSHA", 1);
    unlock(10, 19, &done); /* all that it has */
    HOSTS_UNTIL(done.called);
    ck_assert_uint_eq(redis_proxy_lost(proxy), 1);
    ck_assert_int_eq(done.result, BACKEND_OK);
    ck_assert_int_eq(range_result(2, BACKEND_EXCLUSIVE, 10, 19), BACKEND_OK);
    hosts_pass(100); /* what is held has been looked after since the connection is there again */
    ck_assert_uint_eq(record->ended, 0);
}
END_TEST

/* _i: all of it is asked for again before the server is there. */
START_TEST(unlock_of_bytes_that_never_left_is_done_when_the_server_is_back)
{
    struct hosts_record *record = ask_range(0, 1, BACKEND_EXCLUSIVE, 10, 29), *again = NULL;
    struct hosts_done done;
    HOSTS_UNTIL(record->answered);
    redis_proxy_lose(proxy, "", UINT_MAX, true);
    unlock(30, 39, &done); /* is lost, and the connection with it */
    HOSTS_UNTIL(done.called);
    unlock(10, 19, &done);
    HOSTS_UNTIL(done.called);
    ck_assert_int_eq(done.result, BACKEND_UNREACHABLE);
    redis_proxy_lose(proxy, "", 0, false);
    while (_i && !(again && again->result == BACKEND_OK)) {
        again = ask_range(0, 1, BACKEND_EXCLUSIVE, 10, 19);
        HOSTS_UNTIL(again->answered);
    }
    hosts_until_up(0);
    if (again) {
        hosts_pass(100);
        ck_assert_int_eq(range_result(2, BACKEND_EXCLUSIVE, 10, 19), BACKEND_BUSY);
    } else {
        while (range_result(2, BACKEND_EXCLUSIVE, 10, 19) != BACKEND_OK) {
            hosts_turn();
        }
    }
    ck_assert_int_eq(range_result(3, BACKEND_EXCLUSIVE, 20, 29), BACKEND_BUSY);
    ck_assert_uint_eq(record->ended, 0);
}
END_TEST

START_TEST(request_of_a_connection_that_was_given_up_is_not_done_late)
{
    struct hosts_record *record = ask_range(0, 1, BACKEND_EXCLUSIVE, 10, 19);

    HOSTS_UNTIL(record->answered);
    redis_proxy_hold_back(proxy, "EVALSHA");
    ck_assert_int_eq(hosts_unlock(0, "R", 1, 10, 19), BACKEND_OK);
    record = ask_range(0, 1, BACKEND_EXCLUSIVE, 10, 19);
    HOSTS_UNTIL(record->answered);
    ck_assert_int_eq(record->result, BACKEND_OK);
    redis_proxy_forward_held(proxy);
    hosts_pass(100);
    ck_assert_int_eq(range_result(2, BACKEND_EXCLUSIVE, 10, 19), BACKEND_BUSY);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("redis_lost");
    TCase *tcase = tcase_create("lost"), *never = tcase_create("never answered");

    tcase_set_timeout(tcase, 40);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, lost_message_costs_a_waiter_no_more_than_the_refresh);
    tcase_add_test(tcase, heartbeat_finds_each_waiter_whose_message_was_lost);
    tcase_add_test(tcase, lock_that_is_handed_over_and_not_claimed_goes_on);
    tcase_add_test(tcase, who_waited_behind_one_that_queued_again_gets_a_larger_token_too);
    tcase_add_loop_test(tcase, place_that_is_taken_again_does_not_join_who_was_let_in_meanwhile, 0,
                        G_N_ELEMENTS(queues));
    tcase_add_test(tcase, claim_whose_answer_is_lost_is_granted_once);
    tcase_add_test(tcase, acquire_whose_answer_is_lost_is_granted_once);
    tcase_add_test(tcase, queued_claim_whose_answer_is_lost_stands_in_the_queue_once);
    tcase_add_test(tcase, sequence_ticket_whose_answer_is_lost_has_one_name);
    tcase_add_loop_test(tcase, change_whose_answer_is_lost_succeeds, 0, G_N_ELEMENTS(changes));
    tcase_add_test(tcase, removal_of_a_directory_whose_answer_is_lost_succeeds);
    tcase_add_loop_test(tcase, revocation_whose_answer_is_lost_has_the_result_of_the_first_try, 0, 2);
    tcase_add_test(tcase, revocation_that_a_key_of_another_type_keeps_from_being_noted_ends_nobody);
    tcase_add_test(tcase, revocation_ends_nobody_who_came_after_its_request);
    tcase_add_test(tcase, rename_over_a_lease_whose_answer_is_lost_is_done_once);
    tcase_add_loop_test(tcase, claim_that_crosses_an_unlock_of_its_lock_owner_holds_what_is_reported, 0, 2);
    tcase_add_test(tcase, unlock_of_bytes_whose_answer_is_lost_loses_nothing);
    tcase_add_test(tcase, request_of_a_connection_that_was_given_up_is_not_done_late);
    suite_add_tcase(suite, tcase);

    tcase_set_timeout(never, 40);
    tcase_add_checked_fixture(never, setup_in_a_hurry, teardown);
    tcase_add_loop_test(never, removal_of_a_directory_without_a_listing_is_unknown, 0, G_N_ELEMENTS(unheard));
    tcase_add_test(never, lock_delay_that_the_server_cannot_give_to_the_locks_of_a_directory_is_unknown);
    tcase_add_test(never, acquire_that_is_never_answered_leaves_nothing);
    tcase_add_loop_test(never, range_without_an_answer_is_given_back_by_itself, 0, G_N_ELEMENTS(taken_in));
    tcase_add_loop_test(never, range_that_cannot_be_exclusive_again_is_shared_or_lost, 0, 2);
    tcase_add_test(never, downgrade_that_cannot_be_undone_stands);
    tcase_add_loop_test(never, unlock_of_bytes_that_never_left_is_done_when_the_server_is_back, 0, 2);
    suite_add_tcase(suite, never);
    return check_main(suite);
}
