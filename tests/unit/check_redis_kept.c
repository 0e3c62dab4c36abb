/* check_redis_kept: what a ticket keeps while the Redis server, or its own term, changes: its term on a full server,
 * its name after its queue was deleted, and never more time than the server gave it; and that nothing is left of
 * released tickets.
 */
#include <hiredis/hiredis.h>
#include <string.h>

#include "tests/support/check_main.h"
#include "tests/unit/hosts_fixture.h"

/* A place in the queue of d; it must have that name. */
static struct hosts_record *take_place(unsigned mount, int64_t ttl, enum backend_result result, const char *name)
{
    struct backend_claim claim = hosts_claim(BACKEND_FLOCK, ttl);
    struct hosts_record *record;
    char given[64];

    claim.sequence = claim.wait = true;
    record = hosts_acquire(mount, "d/s-", &claim);
    ck_assert_int_eq(record->result, result);
    ck_assert(backend_ticket_name(hosts_mount(mount), record->ticket, given, sizeof(given)));
    ck_assert_str_eq(given, name);
    return record;
}

START_TEST(place_in_a_queue_is_renewed_by_a_full_server)
{
    enum { TTL = 1500 };
    struct backend_directory directory = {.width = 1};
    struct hosts_record *record;
    clock_ms begun;

    ck_assert_int_eq(hosts_mkdir(0, "d", &directory), BACKEND_OK);
    record = take_place(0, TTL, BACKEND_OK, "d/s-0000000000");
    redis_server_do(hosts_server, "CONFIG SET maxmemory 1");
    begun = clock_now();
    while (clock_now() - begun < 2 * TTL) {
        struct backend_renewal renewal = {.ticket = record->ticket, .ttl = TTL};

        ck_assert_msg(record->ended == 0, "lost after %d ms", (int)(clock_now() - begun));
        backend_renew(hosts_mount(0), &renewal, 1);
        hosts_pass(TTL / 3);
    }
    ck_assert_uint_eq(record->ended, 0);
}
END_TEST

/* Its close has been answered by then.  Alone, and where another waits; a new content finds no room. */
START_TEST(what_is_undecided_becomes_a_lease_or_a_handles_lock_on_a_full_server)
{
    enum { TTL = 1500 };
    bool waited_for = _i & 1;
    struct backend_claim becomes = hosts_claim(_i & 2 ? BACKEND_FLOCK : BACKEND_LEASE, HOSTS_LONG),
                         provisional = hosts_claim(BACKEND_PROVISIONAL, TTL);
    struct hosts_done done = {0}, written = {0};
    struct hosts_record *record = hosts_acquire(0, "L", &provisional);

    ck_assert_int_eq(record->result, BACKEND_OK);
    if (waited_for) {
        hosts_queue(1, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);
    }
    redis_server_do(hosts_server, "CONFIG SET maxmemory 1");
    becomes.user = record;
    if (!waited_for) {
        becomes.content = g_bytes_new_static("some text", strlen("some text"));
        backend_convert(hosts_mount(0), record->ticket, &becomes, hosts_on_done, &written);
        HOSTS_UNTIL(written.called);
        ck_assert_int_eq(written.result, BACKEND_FULL);
        g_clear_pointer(&becomes.content, g_bytes_unref);
    }
    backend_convert(hosts_mount(0), record->ticket, &becomes, hosts_on_done, &done);
    HOSTS_UNTIL(done.called);
    ck_assert_int_eq(done.result, BACKEND_OK);
    hosts_pass(TTL + TTL / 3);
    ck_assert_uint_eq(record->ended, 0);
    ck_assert_int_eq(hosts_stat(2, "L").kind, becomes.kind);
}
END_TEST

START_TEST(place_that_waits_keeps_its_name_where_the_queue_was_deleted)
{
    struct backend_directory directory = {.width = 1};
    struct hosts_record *waiter;
    char name[64];

    ck_assert_int_eq(hosts_mkdir(0, "d", &directory), BACKEND_OK);
    take_place(1, HOSTS_LONG, BACKEND_OK, "d/s-0000000000");
    waiter = take_place(0, HOSTS_LONG, BACKEND_QUEUED, "d/s-0000000001");
    redis_server_do(hosts_server, "DEL lfs:o:h:d lfs:t:h:d lfs:w:h:d lfs:i:h:d");
    HOSTS_UNTIL(waiter->granted);
    ck_assert(backend_ticket_name(hosts_mount(0), waiter->ticket, name, sizeof(name)));
    ck_assert_str_eq(name, "d/s-0000000001");
}
END_TEST

START_TEST(term_that_was_changed_before_the_answer_is_the_servers)
{
    struct backend_claim claim = hosts_claim(BACKEND_LEASE, 5000);
    struct hosts_record *record;
    struct backend_renewal renewal = {.ttl = 600000};

    hosts_until_up(0);
    record = hosts_request(0, "L", &claim);
    renewal.ticket = record->ticket;
    ck_assert_ptr_nonnull(record->ticket);
    backend_renew(hosts_mount(0), &renewal, 1);
    HOSTS_UNTIL(record->answered);
    ck_assert_int_le(record->ticket->deadline - clock_now(), redis_server_do(hosts_server, "PTTL h:L"));
    HOSTS_UNTIL(record->ticket->deadline - clock_now() > 500000); /* and then it is as wanted */
    ck_assert_int_le(record->ticket->deadline - clock_now(), redis_server_do(hosts_server, "PTTL h:L"));
}
END_TEST

/* The server's key lasts as long as the longest term of those that share it. */
START_TEST(shorter_term_of_who_joins_does_not_shorten_the_others)
{
    struct backend_claim claim = hosts_claim(BACKEND_FLOCK, HOSTS_LONG);
    struct hosts_record *holder, *waiter, *joins;

    claim.mode = BACKEND_SHARED;
    holder = hosts_acquire(0, "L", &claim);
    ck_assert_int_eq(holder->result, BACKEND_OK);
    waiter = hosts_queue(1, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);
    joins = hosts_queue(2, "L", BACKEND_SHARED, 1000);
    hosts_release(waiter);
    HOSTS_UNTIL(joins->granted);
    ck_assert_int_ge(redis_server_do(hosts_server, "PTTL h:L"), HOSTS_LONG - 5000);
    joins->renews = false;
    HOSTS_UNTIL(joins->ended);
    ck_assert_int_ge(redis_server_do(hosts_server, "PTTL h:L"), HOSTS_LONG - 5000);
    ck_assert_int_eq(hosts_acquire(1, "L", &(struct backend_claim){.kind = BACKEND_LEASE, .ttl = 1000})->result,
                     BACKEND_BUSY);
    ck_assert_uint_eq(holder->ended, 0);
}
END_TEST

/* The same of a handle, whose locks do not exclude each other. */
START_TEST(shorter_term_of_the_same_handle_does_not_shorten_the_other)
{
    struct backend_claim claim = hosts_claim(BACKEND_FLOCK, HOSTS_LONG);

    claim.handle = 7;
    ck_assert_int_eq(hosts_acquire(0, "L", &claim)->result, BACKEND_OK);
    claim.ttl = 1000;
    ck_assert_int_eq(hosts_acquire(0, "L", &claim)->result, BACKEND_OK);
    ck_assert_int_ge(redis_server_do(hosts_server, "PTTL h:L"), HOSTS_LONG - 5000);
}
END_TEST

/* The server is busy with a script, until the claim is given up. */
START_TEST(claim_that_was_refused_for_the_time_being_and_given_up_is_not_made)
{
    struct backend_claim claim = hosts_claim(BACKEND_LEASE, HOSTS_LONG);
    redisContext *context, *second;
    struct hosts_record *record;

    hosts_until_up(0);
    redis_server_do(hosts_server, "CONFIG SET lua-time-limit 1");
    context = redisConnectUnix(redis_server_socket(hosts_server));
    second = redisConnectUnix(redis_server_socket(hosts_server));
    ck_assert(context && !context->err && second && !second->err);
    redisAppendCommand(context, "EVAL %s 0", "while true do end");
    for (int done = 0; !done;)
        ck_assert_int_eq(redisBufferWrite(context, &done), REDIS_OK);
    hosts_pass(20);
    record = hosts_request(0, "L", &claim);
    hosts_pass(20);
    freeReplyObject(redisCommand(second, "SCRIPT KILL"));
    hosts_drop(record);
    hosts_pass(200);
    ck_assert(!hosts_exists("h:L"));
    redisFree(context);
    redisFree(second);
}
END_TEST

START_TEST(who_waits_is_counted_for_as_long_as_it_waits)
{
    struct backend_claim claim = hosts_claim(BACKEND_FLOCK, 10 * HOSTS_LONG);
    struct backend_directory directory = {.width = 1};

    ck_assert_int_eq(hosts_mkdir(0, "d", &directory), BACKEND_OK);
    claim.sequence = claim.wait = true;
    hosts_acquire(0, "d/s-", &claim);
    hosts_acquire(0, "d/s-", &claim);
    hosts_get(0, "d/L", HOSTS_LONG);
    hosts_queue(1, "d/L", BACKEND_EXCLUSIVE, 1000);
    ck_assert_int_gt(redis_server_do(hosts_server, "PTTL lfs:q:h:d"), 9 * HOSTS_LONG);
    redis_server_do(hosts_server, "DEL lfs:q:h:d");
    HOSTS_UNTIL(hosts_exists("lfs:q:h:d"));
    ck_assert_int_gt(redis_server_do(hosts_server, "PTTL lfs:q:h:d"), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("redis_kept");
    TCase *tcase = tcase_create("kept");

    if (!redis_server_exists()) {
        puts("1..0 # SKIP no redis-server");
        return EXIT_SUCCESS;
    }
    tcase_add_checked_fixture(tcase, hosts_setup, hosts_teardown);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, place_in_a_queue_is_renewed_by_a_full_server);
    tcase_add_loop_test(tcase, what_is_undecided_becomes_a_lease_or_a_handles_lock_on_a_full_server, 0, 4);
    tcase_add_test(tcase, place_that_waits_keeps_its_name_where_the_queue_was_deleted);
    tcase_add_test(tcase, term_that_was_changed_before_the_answer_is_the_servers);
    tcase_add_test(tcase, shorter_term_of_who_joins_does_not_shorten_the_others);
    tcase_add_test(tcase, shorter_term_of_the_same_handle_does_not_shorten_the_other);
    tcase_add_test(tcase, claim_that_was_refused_for_the_time_being_and_given_up_is_not_made);
    tcase_add_test(tcase, who_waits_is_counted_for_as_long_as_it_waits);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
