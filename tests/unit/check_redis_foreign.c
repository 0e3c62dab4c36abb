/* check_redis_foreign: locks of other clients of the same Redis server, and an administrator's changes of keys. */
#include <fcntl.h>
#include <unistd.h>

#include "tests/support/check_main.h"
#include "tests/unit/hosts_fixture.h"

static struct backend_claim lease;
static GString *history;

static void setup(void)
{
    hosts_setup();
    lease = hosts_claim(BACKEND_LEASE, HOSTS_LONG);
    hosts_until_up(0);
    hosts_until_up(1);
}

/* --- foreign holders --- */

START_TEST(foreign_lock_is_busy_until_its_end)
{
    struct hosts_record *refused;
    struct backend_info info;
    clock_ms now = clock_now();

    redis_server_do(hosts_server, "SET h:L theirs NX PX 5000");
    refused = hosts_acquire(0, "L", &lease);
    ck_assert_int_eq(refused->result, BACKEND_BUSY);
    ck_assert_int_eq(refused->holder.kind, BACKEND_LEASE);
    ck_assert_uint_eq(refused->holder.fence, 0);
    ck_assert_ptr_null(refused->holder.ticket);
    ck_assert_int_ge(refused->holder.deadline, now + 4000);
    ck_assert_int_le(refused->holder.deadline, clock_now() + 5000);
    info = hosts_stat(1, "L");
    ck_assert_int_eq(info.type, BACKEND_LOCK);
    ck_assert_int_eq(info.acquired, CLOCK_NEVER);
    redis_server_do(hosts_server, "PERSIST h:L");
    refused = hosts_acquire(0, "L", &lease);
    ck_assert_int_eq(refused->result, BACKEND_BUSY);
    ck_assert_int_eq(refused->holder.deadline, CLOCK_NEVER);
    ck_assert_int_eq(refused->holder.ttl, 0);
    ck_assert_int_eq(hosts_stat(1, "L").deadline, CLOCK_NEVER);
    ck_assert(hosts_is("h:L", "theirs"));
}
END_TEST

/* How a foreign lock ends: _i of these. */
static const char *const ends[] = {"DEL h:L", "PEXPIRE h:L 300", "UNLINK h:L", "RENAME h:L h:elsewhere"};

START_TEST(waiter_hears_that_a_foreign_lock_has_ended)
{
    struct hosts_record *first, *second;
    clock_ms ended;

    redis_server_do(hosts_server, "SET h:L theirs");
    first = hosts_queue(0, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);
    second = hosts_queue(1, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);
    hosts_pass(100); /* the watch is set */
    ended = clock_now() + (_i == 1 ? 300 : 0);
    redis_server_do(hosts_server, ends[_i]);
    HOSTS_UNTIL(first->granted || second->granted);
    ck_assert_uint_eq(second->granted, 0);
    ck_assert_int_ge(first->at, ended - 2);
    ck_assert_int_lt(first->at - ended, 250); /* the server looks for what has expired every 100 ms */
}
END_TEST

START_TEST(foreign_lock_that_another_foreign_client_takes_is_waited_for_again)
{
    struct hosts_record *waiter;
    clock_ms ended;

    redis_server_do(hosts_server, "SET h:L theirs");
    waiter = hosts_queue(0, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);
    for (unsigned i = 0; i < 4; i++) {
        hosts_pass(60);
        redis_server_do(hosts_server, "SET h:L another%u", i);
    }
    hosts_pass(60);
    ck_assert_uint_eq(waiter->granted, 0);
    ended = clock_now();
    redis_server_do(hosts_server, "DEL h:L");
    HOSTS_UNTIL(waiter->granted);
    ck_assert_int_lt(waiter->at - ended, 200);
}
END_TEST

static const char *const others[] = {"HSET h:L field 1", "ZADD h:L 1 member", "RPUSH h:L element", "SADD h:L member",
                                     "XADD h:L * field value"};

START_TEST(key_of_another_type_is_held_and_not_touched)
{
    struct hosts_record *waiter;
    struct backend_claim shared = lease;

    redis_server_do(hosts_server, others[_i]);
    ck_assert_int_eq(hosts_acquire(0, "L", &lease)->result, BACKEND_BUSY);
    shared.mode = BACKEND_SHARED;
    ck_assert_int_eq(hosts_acquire(0, "L", &shared)->result, BACKEND_BUSY);
    ck_assert_int_eq(hosts_stat(0, "L").type, BACKEND_LOCK);
    waiter = hosts_queue(0, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);
    hosts_pass(50);
    ck_assert_int_eq(redis_server_do(hosts_server, "EVAL %s 1 h:L",
                                     "return redis.call('TYPE', KEYS[1]).ok ~= 'string' and "
                                     "redis.call('PTTL', KEYS[1]) == -1 and 1 or 0"),
                     1);
    ck_assert_int_eq(hosts_rename(hosts_get(1, "M", HOSTS_LONG), "L"), BACKEND_BUSY);
    redis_server_do(hosts_server, "DEL h:L");
    HOSTS_UNTIL(waiter->granted);
}
END_TEST

START_TEST(foreign_lock_does_not_hinder_who_stopped_waiting)
{
    struct hosts_record *waiter;

    redis_server_do(hosts_server, "SET h:L theirs");
    waiter = hosts_queue(0, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);
    hosts_release(waiter);
    redis_server_do(hosts_server, "DEL h:L");
    hosts_pass(50);
    ck_assert_int_eq(redis_server_do(hosts_server, "EXISTS h:L lfs:o:h:L lfs:t:h:L lfs:w:h:L lfs:i:h:L"), 0);
}
END_TEST

START_TEST(lock_delay_holds_foreign_clients_off)
{
    struct backend_directory directory = {.width = 1, .delay = 400};
    struct hosts_record *holder;

    ck_assert_int_eq(hosts_mkdir(0, "d", &directory), BACKEND_OK);
    holder = hosts_get(0, "d/L", 300);
    holder->renews = false;
    HOSTS_UNTIL(holder->ended);
    ck_assert_int_eq(holder->why, BACKEND_EXPIRED);
    ck_assert(hosts_exists("h:d/L"));
    ck_assert_int_eq(hosts_acquire(1, "d/L", &lease)->result, BACKEND_BUSY);
    HOSTS_UNTIL(!hosts_exists("h:d/L"));
    ck_assert_int_ge(clock_now() - holder->at, 350);
    hosts_get(1, "d/L", HOSTS_LONG);
}
END_TEST

/* --- administrators --- */

START_TEST(deleted_lock_is_lost_at_the_next_renewal)
{
    struct hosts_record *holder = hosts_get(0, "L", 600);

    redis_server_do(hosts_server, "DEL h:L");
    HOSTS_UNTIL(holder->ended);
    ck_assert_int_eq(holder->why, BACKEND_LOST);
    ck_assert_int_lt(holder->at, holder->deadline);
    ck_assert(!hosts_exists("h:L"));
}
END_TEST

START_TEST(deleted_lock_that_another_takes_is_lost_at_once)
{
    struct hosts_record *holder = hosts_get(0, "L", HOSTS_LONG), *next;
    uint64_t fence = holder->ticket->fence;
    clock_ms taken;

    redis_server_do(hosts_server, "DEL h:L");
    taken = clock_now();
    next = hosts_get(1, "L", HOSTS_LONG);
    ck_assert_uint_gt(next->ticket->fence, fence);
    HOSTS_UNTIL(holder->ended);
    ck_assert_int_lt(holder->at - taken, 500);
    ck_assert_int_eq(holder->why, BACKEND_LOST);
    ck_assert_uint_eq(next->ended, 0);
}
END_TEST

START_TEST(deleted_lock_goes_to_those_that_wait)
{
    struct hosts_record *holder = hosts_get(0, "L", 600), *waiter = hosts_queue(1, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);

    redis_server_do(hosts_server, "DEL h:L");
    HOSTS_UNTIL(waiter->granted);
    HOSTS_UNTIL(holder->ended);
    ck_assert_int_eq(holder->why, BACKEND_LOST);
}
END_TEST

START_TEST(overwritten_lock_is_lost_and_stays_the_others)
{
    struct hosts_record *holder = hosts_get(0, "L", HOSTS_LONG), *renewing = hosts_get(0, "M", 600);

    redis_server_do(hosts_server, "SET h:L theirs PX 60000");
    redis_server_do(hosts_server, "SET h:M theirs PX 60000");
    hosts_release(holder);
    ck_assert(hosts_is("h:L", "theirs"));
    HOSTS_UNTIL(renewing->ended);
    ck_assert_int_eq(renewing->why, BACKEND_LOST);
    ck_assert(hosts_is("h:M", "theirs"));
    ck_assert_int_ge(redis_server_do(hosts_server, "PTTL h:M"), 50000);
}
END_TEST

/* Which side key goes: _i of these, of a lock with a holder and one that waits. */
static const char *const sides[] = {"lfs:o:h:L", "lfs:t:h:L", "lfs:i:h:L", "lfs:f:h:L", "lfs:w:h:L"};

START_TEST(lock_without_one_of_its_side_keys_goes_on)
{
    struct hosts_record *holder = hosts_get(0, "L", 900), *waiter = hosts_queue(1, "L", BACKEND_EXCLUSIVE, 1500), *next;

    ck_assert_int_eq(redis_server_do(hosts_server, "DEL %s", sides[_i]), 1);
    next = hosts_request(2, "L", &lease);
    HOSTS_UNTIL(next->answered);
    ck_assert_msg(next->result == BACKEND_BUSY, "without %s: %s", sides[_i], backend_result_name(next->result));
    /* not both of them hold */
    while (holder->ticket && !waiter->granted && clock_now() < holder->at + 2000)
        hosts_turn();
    ck_assert_msg(!holder->ticket || !waiter->granted, "without %s two hold", sides[_i]);
    if (holder->ticket)
        hosts_release(holder);
    HOSTS_UNTIL(waiter->granted);
    hosts_release(waiter);
    HOSTS_UNTIL(!hosts_exists("h:L"));
    hosts_release(hosts_get(2, "L", HOSTS_LONG));
    ck_assert(!hosts_exists("h:L"));
}
END_TEST

START_TEST(sequence_without_one_of_its_keys_has_no_second_holder_for_long)
{
    static const char *const keys[] = {"lfs:o:h:d", "lfs:t:h:d", "lfs:i:h:d", "lfs:w:h:d"};
    struct backend_directory directory = {.width = 1};
    struct backend_claim claim = hosts_claim(BACKEND_LEASE, HOSTS_LONG);
    struct hosts_record *holder, *waiter;

    ck_assert_int_eq(hosts_mkdir(0, "d", &directory), BACKEND_OK);
    claim.sequence = claim.wait = true;
    holder = hosts_acquire(0, "d/s-", &claim); /* asks nothing of itself for long */
    claim = hosts_claim(BACKEND_LEASE, 1500);
    claim.sequence = claim.wait = true;
    waiter = hosts_acquire(1, "d/s-", &claim);
    ck_assert_int_eq(waiter->result, BACKEND_QUEUED);
    ck_assert_int_eq(redis_server_do(hosts_server, "DEL %s", keys[_i]), 1);
    while (!waiter->granted && holder->ticket && clock_now() < holder->at + 1800)
        hosts_turn();
    if (waiter->granted && holder->ticket)
        hosts_pass(100); /* the message is on its way */
    ck_assert_msg(!waiter->granted || !holder->ticket, "without %s two hold", keys[_i]);
    if (holder->ticket)
        hosts_release(holder);
    HOSTS_UNTIL(waiter->granted || waiter->ended);
    if (waiter->ticket)
        hosts_release(waiter);
    hosts_release(hosts_acquire(0, "d/s-", &claim));
}
END_TEST

START_TEST(lock_without_all_its_side_keys_is_lost_and_runs_out)
{
    struct hosts_record *holder = hosts_get(0, "L", 600);

    ck_assert_int_eq(hosts_acquire(1, "L", &lease)->result, BACKEND_BUSY); /* the first that asks brings them */
    for (size_t i = 0; i < G_N_ELEMENTS(sides) - 1; i++)
        redis_server_do(hosts_server, "DEL %s", sides[i]);
    HOSTS_UNTIL(holder->ended);
    ck_assert_int_eq(holder->why, BACKEND_LOST);
    HOSTS_UNTIL(!hosts_exists("h:L"));
    hosts_get(1, "L", HOSTS_LONG);
}
END_TEST

/* --- what is not ours at our keys --- */

static const char *const of_a_lock[] = {"lfs:o:h:L", "lfs:t:h:L", "lfs:w:h:L", "lfs:i:h:L", "lfs:f:h:L"};

static enum backend_result try(const char *name)
{
    struct hosts_record *record = hosts_acquire(0, name, &lease);
    enum backend_result result = record->result;

    if (record->ticket)
        hosts_release(record);
    return result;
}

START_TEST(side_key_of_the_wrong_type_costs_that_one_lock)
{
    const char *key = of_a_lock[_i];
    bool is_string = strstr(key, ":f:");
    struct hosts_record *other = hosts_get(1, "M", HOSTS_LONG);
    enum backend_result result;

    redis_server_do(hosts_server, is_string ? "SADD %s theirs" : "SET %s theirs", key);
    result = try("L"); /* not all are read where nobody waits */
    ck_assert_msg(result == BACKEND_DAMAGED || (result == BACKEND_OK && !strstr(key, ":o:")), "%s: %s", key,
                  backend_result_name(result));
    ck_assert_int_eq(try("N"), BACKEND_OK);
    hosts_release(other);
    redis_server_do(hosts_server, "DEL %s h:L", key);
    ck_assert_int_eq(try("L"), BACKEND_OK);
}
END_TEST

START_TEST(waiter_of_a_lock_with_a_spoiled_side_key_gets_an_error)
{
    const char *key = of_a_lock[_i];
    struct hosts_record *holder = hosts_get(0, "L", HOSTS_LONG),
                        *waiter = hosts_queue(1, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);
    hosts_get(0, "M", HOSTS_LONG);
    struct hosts_record *other = hosts_queue(1, "M", BACKEND_EXCLUSIVE, HOSTS_LONG);
    redis_server_do(hosts_server, "DEL %s", key);
    redis_server_do(hosts_server, strstr(key, ":f:") ? "SADD %s theirs" : "SET %s theirs", key);
    hosts_drop(holder);
    redis_server_do(hosts_server, "DEL h:L"); /* it is free, as far as its key can tell */
    HOSTS_UNTIL(waiter->granted || waiter->ended);
    ck_assert(!waiter->ended || waiter->why == BACKEND_LOST);
    ck_assert_uint_eq(other->ended, 0);
}
END_TEST

/* Nothing is deleted but by the command that the log names. */
START_TEST(key_of_the_wrong_type_that_many_locks_have_in_common_is_named_and_left)
{
    enum { LISTED, WAITERS, ROOT, OF_THE_MOUNT };
    static const char *const common[] = {"lfs:l:lfs:h:/", "lfs:q:lfs:h:/", "lfs:d:lfs:h:/"};
    char *digest = g_compute_checksum_for_string(G_CHECKSUM_SHA256, "me", -1);
    char *key = _i == OF_THE_MOUNT ? g_strdup_printf("lfs:m:h:%.32s", digest) : g_strdup(common[_i]);
    char *command = g_strdup_printf("redis-cli DEL '%s'\n", key), logged[4096] = "";
    int log = open("/tmp", O_TMPFILE | O_RDWR, 0600);
    hosts_close(0);
    hosts_options.identity = "me";
    hosts_release(hosts_get(0, "before", HOSTS_LONG));
    struct hosts_record *holder = _i == WAITERS ? hosts_get(1, "L", HOSTS_LONG) : NULL;
    struct backend_claim claim = lease;
    claim.wait = holder != NULL;
    redis_server_do(hosts_server, "SET %s theirs", key);
    ck_assert(log >= 0 && dup2(log, STDERR_FILENO) >= 0);
    ck_assert_int_eq(hosts_acquire(0, "L", &claim)->result, BACKEND_DAMAGED);
    HOSTS_UNTIL(pread(log, logged, sizeof logged - 1, 0) > 0 && strstr(logged, command));
    HOSTS_UNTIL(holder || !hosts_exists("h:L"));
    ck_assert(hosts_is(key, "theirs"));
    redis_server_do(hosts_server, "DEL %s", key);
    claim.wait = true;
    struct hosts_record *waiter = hosts_acquire(0, "L", &claim);
    ck_assert_int_eq(waiter->result, holder ? BACKEND_QUEUED : BACKEND_OK);
    if (holder) {
        hosts_release(holder);
        HOSTS_UNTIL(waiter->granted);
    }
    close(log);
    g_free(command);
    g_free(digest);
    g_free(key);
}
END_TEST

START_TEST(record_that_we_did_not_write_costs_that_one_lock)
{
    struct hosts_record *holder = hosts_get(1, "L", HOSTS_LONG);

    ck_assert_int_eq(try("L"), BACKEND_BUSY);
    redis_server_do(hosts_server, "EVAL %s 0",
                    "redis.call('HSET', 'lfs:i:h:L', redis.call('GET', 'h:L'), 'theirs') return 1");
    ck_assert_int_eq(try("L"), BACKEND_DAMAGED);
    ck_assert_int_eq(try("M"), BACKEND_OK);
    hosts_drop(holder);
    redis_server_do(hosts_server, "DEL h:L lfs:i:h:L lfs:o:h:L lfs:t:h:L");
    ck_assert_int_eq(try("L"), BACKEND_OK);
}
END_TEST

START_TEST(value_like_ours_that_we_did_not_write_costs_that_one_lock)
{
    static const char *const values[] = {"leasefs:one:", "leasefs:one:0123456789abcdef0123456789abcdef",
                                         "leasefs:one:0123456789abcdef0123456789abcdeftheirs"};

    for (size_t i = 0; i < G_N_ELEMENTS(values); i++) {
        enum backend_result result;

        redis_server_do(hosts_server, "SET h:L %s", values[i]);
        result = try("L");
        ck_assert_msg(result == BACKEND_BUSY || result == BACKEND_DAMAGED, "%s", backend_result_name(result));
        ck_assert_int_eq(try("M"), BACKEND_OK);
    }
    redis_server_do(hosts_server, "DEL h:L");
    ck_assert_int_eq(try("L"), BACKEND_OK);
}
END_TEST

/* Both are renewed in one request. */
START_TEST(damaged_value_of_a_lock_keeps_no_other_from_being_renewed)
{
    struct hosts_record *damaged = hosts_get(0, "L", HOSTS_LONG), *other = hosts_get(0, "M", HOSTS_LONG);
    const struct backend_renewal renewals[] = {{.ticket = damaged->ticket, .ttl = HOSTS_LONG},
                                               {.ticket = other->ticket, .ttl = HOSTS_LONG}};
    clock_ms deadline = other->ticket->deadline;
    hosts_pass(2);
    /* behind the ticket's id: number, time and lock-delay */
    redis_server_do(hosts_server, "SETRANGE h:L 44 xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
    backend_renew(hosts_mount(0), renewals, G_N_ELEMENTS(renewals));
    HOSTS_UNTIL(other->ended || other->ticket->deadline > deadline);
    ck_assert_uint_eq(other->ended, 0);
}
END_TEST

static void on_listed(void *arg, enum backend_result result, const struct backend_entry *entries, size_t count)
{
    GString *text = arg;

    ck_assert_int_eq(result, BACKEND_OK);
    for (size_t i = 0; i < count; i++)
        g_string_append_printf(text, "%s ", entries[i].name);
    g_string_append_c(text, '.');
}

START_TEST(listing_passes_over_what_is_no_name)
{
    GString *text = g_string_new(NULL);

    hosts_get(0, "L", HOSTS_LONG);
    hosts_get(0, "M", HOSTS_LONG);
    redis_server_do(hosts_server, "EVAL %s 0",
                    "for i = 1, 3000 do redis.call('ZADD', 'lfs:l:lfs:h:/', 0, 'A/' .. i) "
                    "redis.call('SET', 'h:A/' .. i, 1) end "
                    "for _, name in ipairs({'', '.', '..', 'B\\0', string.rep('C', 300)}) do "
                    "redis.call('ZADD', 'lfs:l:lfs:h:/', 0, name) redis.call('SET', 'h:' .. name, 1) end return 1");
    backend_list(hosts_mount(0), "", "", 100, on_listed, text);
    HOSTS_UNTIL(text->len);
    ck_assert_str_eq(text->str, "L M .");
    g_string_free(text, TRUE);
}
END_TEST

/* --- who asks finds out --- */

START_TEST(question_finds_out_what_is_lost_before_it_is_answered)
{
    static const char *const commands[] = {"DEL h:L", "SET h:L theirs PX 60000", "PEXPIRE h:L 1",
                                           "DEL h:L lfs:o:h:L lfs:t:h:L lfs:i:h:L"};
    static const enum backend_kind kinds[] = {BACKEND_LEASE, BACKEND_FLOCK, BACKEND_FCNTL};
    struct backend_claim claim = hosts_claim(kinds[_i % 3], HOSTS_LONG);
    struct hosts_record *holder, *other = hosts_get(0, "M", HOSTS_LONG);

    claim.lock_owner = claim.kind == BACKEND_FCNTL;
    claim.handle = 7;
    holder = hosts_acquire(0, "L", &claim);
    ck_assert_int_eq(holder->result, BACKEND_OK);
    ck_assert_int_eq(hosts_stat(0, "L").type, BACKEND_LOCK);
    ck_assert_uint_eq(holder->ended, 0);
    redis_server_do(hosts_server, commands[_i / 3]);
    HOSTS_UNTIL(_i / 3 != 2 || !hosts_exists("h:L"));
    ck_assert_int_eq(hosts_stat(0, "L").type, _i / 3 == 1 ? BACKEND_LOCK : BACKEND_NOTHING);
    ck_assert_uint_eq(holder->ended, 1);
    ck_assert_int_eq(holder->why, BACKEND_LOST);
    ck_assert_uint_eq(other->ended, 0);
}
END_TEST

/* A held lock that another takes when the server has lost it: _i of these. */
static const struct {
    enum backend_kind kind;
    enum backend_mode mode;
} pairs[][2] = {{{BACKEND_LEASE, BACKEND_EXCLUSIVE}, {BACKEND_FLOCK, BACKEND_SHARED}},
                {{BACKEND_FLOCK, BACKEND_SHARED}, {BACKEND_FLOCK, BACKEND_EXCLUSIVE}},
                {{BACKEND_FLOCK, BACKEND_EXCLUSIVE}, {BACKEND_FCNTL, BACKEND_SHARED}},
                {{BACKEND_FCNTL, BACKEND_EXCLUSIVE}, {BACKEND_FLOCK, BACKEND_SHARED}},
                {{BACKEND_FCNTL, BACKEND_EXCLUSIVE}, {BACKEND_FCNTL, BACKEND_SHARED}},
                {{BACKEND_FCNTL, BACKEND_SHARED}, {BACKEND_FCNTL, BACKEND_EXCLUSIVE}}};

static struct hosts_record *take_forgotten(unsigned i, unsigned mount)
{
    struct hosts_record *record = NULL;
    for (unsigned n = 0; n < 2; n++) {
        struct backend_claim claim = hosts_claim(pairs[i][n].kind, HOSTS_LONG);
        claim.mode = pairs[i][n].mode;
        claim.lock_owner = n + 1;
        if (n) {
            redis_server_do(hosts_server,
                            "DEL h:L lfs:f:h:L lfs:o:h:L lfs:t:h:L lfs:i:h:L"); /* so nothing is reported */
        }
        struct hosts_record *next = hosts_acquire(n ? mount : 0, "L", &claim);
        ck_assert_int_eq(next->result, BACKEND_OK);
        record = n ? record : next;
    }
    return record;
}

START_TEST(question_finds_out_that_another_holds_what_excludes_it)
{
    struct hosts_record *holder = take_forgotten((unsigned)_i, 1);
    ck_assert_int_eq(hosts_stat(0, "L").type, BACKEND_LOCK);
    ck_assert_uint_eq(holder->ended, 1);
    ck_assert_int_eq(holder->why, BACKEND_LOST);
}
END_TEST

START_TEST(grant_finds_out_that_what_it_excludes_is_lost)
{
    struct hosts_record *holder = take_forgotten((unsigned)_i, 0);
    HOSTS_UNTIL(holder->ended);
    ck_assert_int_eq(holder->why, BACKEND_LOST);
}
END_TEST

/* A question costs one request, where what is held goes with what the server says. */
START_TEST(contradiction_of_compatible_holders_verifies_nothing)
{
    struct backend_claim claim = hosts_claim(BACKEND_FCNTL, HOSTS_LONG);
    struct backend_status before, after;
    for (unsigned n = 0; n < 2; n++) {
        claim.lock_owner = n + 1;
        claim.start = 10 * n;
        claim.end = claim.start + 9;
        ck_assert_int_eq(hosts_acquire(1 - n, "L", &claim)->result, BACKEND_OK);
    }
    claim = hosts_claim(BACKEND_FLOCK, HOSTS_LONG);
    claim.mode = BACKEND_SHARED;
    ck_assert_int_eq(hosts_acquire(1, "M", &claim)->result, BACKEND_OK);
    ck_assert_int_eq(hosts_acquire(0, "M", &claim)->result, BACKEND_OK);
    backend_status(hosts_mount(0), &before);
    ck_assert_ptr_null(hosts_stat(0, "L").ticket);
    ck_assert_ptr_null(hosts_stat(0, "M").ticket);
    backend_status(hosts_mount(0), &after);
    ck_assert_uint_eq(after.round_trips - before.round_trips, 2);
    backend_status_clear(&before);
    backend_status_clear(&after);
}
END_TEST

START_TEST(lock_whose_end_is_put_off_by_another_client_is_still_its_holders)
{
    struct hosts_record *holder = hosts_get(0, "L", 900);

    redis_server_do(hosts_server, "PERSIST h:L");
    ck_assert_int_eq(hosts_stat(0, "L").type, BACKEND_LOCK);
    ck_assert_int_eq(hosts_acquire(1, "L", &lease)->result, BACKEND_BUSY);
    HOSTS_UNTIL(redis_server_do(hosts_server, "PTTL h:L") > 0); /* renewed */
    ck_assert_uint_eq(holder->ended, 0);
    hosts_release(holder);
    ck_assert_int_eq(try("L"), BACKEND_OK);
}
END_TEST

START_TEST(ticket_whose_queue_was_deleted_is_lost_at_its_next_request)
{
    struct backend_directory directory = {.width = 1};
    struct backend_claim claim = lease;
    struct hosts_record *holder;

    ck_assert_int_eq(hosts_mkdir(0, "d", &directory), BACKEND_OK);
    claim.sequence = true;
    holder = hosts_acquire(0, "d/s-", &claim);
    ck_assert_int_eq(hosts_stat(0, "d/s-0000000000").type, BACKEND_LOCK);
    redis_server_do(hosts_server, "DEL lfs:o:h:d lfs:t:h:d lfs:i:h:d");
    ck_assert_int_eq(hosts_stat(0, "d/s-0000000000").type, BACKEND_NOTHING);
    ck_assert_uint_eq(holder->ended, 1);
    ck_assert_int_eq(holder->why, BACKEND_LOST);
}
END_TEST

START_TEST(grant_to_another_of_the_mount_finds_out_that_the_first_has_lost_it)
{
    struct hosts_record *first = hosts_get(0, "L", HOSTS_LONG);

    redis_server_do(hosts_server, "DEL h:L");
    hosts_get(0, "L", HOSTS_LONG);
    HOSTS_UNTIL(first->ended);
    ck_assert_int_eq(first->why, BACKEND_LOST);
}
END_TEST

static void note(const struct hosts_record *record, const char *what)
{
    g_string_append_printf(history, "%s%llu ", what, (unsigned long long)(record->ticket ? record->ticket->fence : 0));
}

START_TEST(flush_while_held_and_while_waiting_costs_nobody_a_lock_or_a_place)
{
    struct hosts_record *holder = hosts_get(0, "L", 900), *other = hosts_get(0, "M", HOSTS_LONG), *waiter;
    uint64_t fence = MAX(holder->ticket->fence, other->ticket->fence);

    history = g_string_new(NULL);
    waiter = hosts_queue(1, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);
    fence = MAX(fence, waiter->ticket->fence);
    note(waiter, "waits ");
    for (unsigned i = 0; i < 2; i++) {
        hosts_until_known(i, HOSTS_GRACE);
    }
    redis_server_do(hosts_server, "FLUSHALL");
    HOSTS_UNTIL(hosts_exists("h:L") && hosts_exists("h:M"));
    hosts_until_open(1);
    ck_assert_uint_eq(holder->ended + other->ended + waiter->ended + waiter->granted, 0);
    ck_assert_int_eq(hosts_release(holder), BACKEND_OK);
    HOSTS_UNTIL(waiter->granted);
    note(waiter, "granted ");
    ck_assert_msg(waiter->ticket->fence >= fence, "%s", history->str);
    ck_assert_int_eq(hosts_release(other), BACKEND_OK);
    ck_assert_uint_gt(hosts_get(1, "M", HOSTS_LONG)->ticket->fence, fence);
    g_string_free(history, TRUE);
}
END_TEST

/* The server takes no term of 0 ms, but has one to tell. */
START_TEST(lock_in_its_last_millisecond_is_held_or_free)
{
    for (unsigned i = 0; i < 100; i++) {
        struct hosts_record *holder = hosts_get(0, "L", HOSTS_LONG), *other;
        struct backend_claim claim = hosts_claim(BACKEND_LEASE, HOSTS_LONG);

        redis_server_do(hosts_server, "PEXPIRE h:L 1");
        g_usleep(20 * i);
        other = hosts_acquire(1, "L", &claim);
        ck_assert_msg(other->result == BACKEND_BUSY || other->result == BACKEND_OK, "%s",
                      backend_result_name(other->result));
        if (other->ticket)
            hosts_release(other);
        if (holder->ticket)
            hosts_release(holder);
        HOSTS_UNTIL(!hosts_exists("h:L"));
    }
}
END_TEST

/* --- hand-overs, as other clients of the server see them --- */

START_TEST(hand_over_reports_no_other_mount)
{
    struct hosts_record *holder = hosts_get(0, "L", HOSTS_LONG);
    struct hosts_record *first = hosts_queue(1, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);
    struct hosts_record *second = hosts_queue(2, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);

    HOSTS_UNTIL(holder->wanted >= 1);
    hosts_spy();
    hosts_release(holder);
    HOSTS_UNTIL(first->granted);
    ck_assert_uint_eq(hosts_messages("", NULL), 1);
    ck_assert_uint_eq(second->granted, 0);
}
END_TEST

START_TEST(lock_is_never_free_during_a_hand_over)
{
    struct hosts_record *holder = hosts_get(0, "L", HOSTS_LONG);
    struct hosts_record *waiter = hosts_queue(1, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);

    hosts_release(holder);
    if (!waiter->granted) /* a foreign client that polls */
        ck_assert(hosts_exists("h:L"));
    HOSTS_UNTIL(waiter->granted);
    ck_assert(hosts_exists("h:L"));
}
END_TEST

START_TEST(pubsub_connection_that_is_killed_costs_no_hand_over)
{
    struct hosts_record *holder = hosts_get(0, "L", HOSTS_LONG);
    struct hosts_record *waiter = hosts_queue(1, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);
    clock_ms released = clock_now();

    redis_server_do(hosts_server, "CLIENT KILL TYPE pubsub");
    hosts_release(holder);
    HOSTS_UNTIL(waiter->granted);
    ck_assert_int_lt(waiter->at - released, 1000);
    ck_assert(hosts_exists("h:L"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("redis_foreign");
    TCase *foreign = tcase_create("foreign"), *administrator = tcase_create("administrator");

    tcase_set_timeout(foreign, 40);
    tcase_add_checked_fixture(foreign, setup, hosts_teardown);
    tcase_add_test(foreign, foreign_lock_is_busy_until_its_end);
    tcase_add_loop_test(foreign, waiter_hears_that_a_foreign_lock_has_ended, 0, G_N_ELEMENTS(ends));
    tcase_add_test(foreign, foreign_lock_that_another_foreign_client_takes_is_waited_for_again);
    tcase_add_loop_test(foreign, key_of_another_type_is_held_and_not_touched, 0, G_N_ELEMENTS(others));
    tcase_add_test(foreign, foreign_lock_does_not_hinder_who_stopped_waiting);
    tcase_add_test(foreign, lock_delay_holds_foreign_clients_off);
    tcase_add_test(foreign, hand_over_reports_no_other_mount);
    tcase_add_test(foreign, lock_is_never_free_during_a_hand_over);
    tcase_add_test(foreign, pubsub_connection_that_is_killed_costs_no_hand_over);
    suite_add_tcase(suite, foreign);
    tcase_set_timeout(administrator, 40);
    tcase_add_checked_fixture(administrator, setup, hosts_teardown);
    tcase_add_test(administrator, deleted_lock_is_lost_at_the_next_renewal);
    tcase_add_test(administrator, deleted_lock_that_another_takes_is_lost_at_once);
    tcase_add_test(administrator, deleted_lock_goes_to_those_that_wait);
    tcase_add_test(administrator, overwritten_lock_is_lost_and_stays_the_others);
    tcase_add_loop_test(administrator, lock_without_one_of_its_side_keys_goes_on, 0, G_N_ELEMENTS(sides));
    tcase_add_loop_test(administrator, sequence_without_one_of_its_keys_has_no_second_holder_for_long, 0, 4);
    tcase_add_test(administrator, lock_without_all_its_side_keys_is_lost_and_runs_out);
    tcase_add_test(administrator, flush_while_held_and_while_waiting_costs_nobody_a_lock_or_a_place);
    tcase_add_loop_test(administrator, side_key_of_the_wrong_type_costs_that_one_lock, 0, G_N_ELEMENTS(of_a_lock));
    tcase_add_loop_test(administrator, waiter_of_a_lock_with_a_spoiled_side_key_gets_an_error, 0,
                        G_N_ELEMENTS(of_a_lock));
    tcase_add_loop_test(administrator, key_of_the_wrong_type_that_many_locks_have_in_common_is_named_and_left, 0, 4);
    tcase_add_test(administrator, record_that_we_did_not_write_costs_that_one_lock);
    tcase_add_test(administrator, value_like_ours_that_we_did_not_write_costs_that_one_lock);
    tcase_add_test(administrator, damaged_value_of_a_lock_keeps_no_other_from_being_renewed);
    tcase_add_test(administrator, listing_passes_over_what_is_no_name);
    tcase_add_loop_test(administrator, question_finds_out_what_is_lost_before_it_is_answered, 0, 12);
    tcase_add_loop_test(administrator, question_finds_out_that_another_holds_what_excludes_it, 0, G_N_ELEMENTS(pairs));
    tcase_add_loop_test(administrator, grant_finds_out_that_what_it_excludes_is_lost, 0, G_N_ELEMENTS(pairs));
    tcase_add_test(administrator, contradiction_of_compatible_holders_verifies_nothing);
    tcase_add_test(administrator, lock_whose_end_is_put_off_by_another_client_is_still_its_holders);
    tcase_add_test(administrator, ticket_whose_queue_was_deleted_is_lost_at_its_next_request);
    tcase_add_test(administrator, grant_to_another_of_the_mount_finds_out_that_the_first_has_lost_it);
    tcase_add_test(administrator, lock_in_its_last_millisecond_is_held_or_free);
    suite_add_tcase(suite, administrator);
    return check_main(suite);
}
