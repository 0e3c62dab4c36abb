/* check_redis_grace: a Redis server that has lost its data, and what its mounts restore.
 *
 * Then nothing new is granted for GRACE, which is shorter than most terms here, and longer than a busy machine takes to
 * restore.
 */
#include <hiredis/hiredis.h>
#include <string.h>

#include "tests/support/check_main.h"
#include "tests/support/relay.h"
#include "tests/unit/hosts_fixture.h"

enum { GRACE = 3000 };

/* The term that each mount has by itself. */
static void until_all_know(void)
{
    for (unsigned i = 0; i < 3; i++) {
        hosts_until_known(i, GRACE);
    }
}

static void setup(void)
{
    hosts_setup();
    hosts_options.grace = hosts_options.term = GRACE;
    for (unsigned i = 0; i < 3; i++) {
        hosts_until_up(i);
    }
    until_all_know();
}

static void setup_debugged(void)
{
    static const char *const arguments[] = {"--enable-debug-command", "local", NULL};
    hosts_setup_with(arguments);
}

/* --- how a server forgets --- */

static void forget_by_flush(void)
{
    redis_server_do(hosts_server, "FLUSHALL");
}

static void forget_by_restart(void)
{
    redis_server_stop(hosts_server);
    redis_server_again(hosts_server);
}

static void (*const ways[])(void) = {forget_by_flush, forget_by_restart};

static enum backend_result result_of(unsigned mount, const char *name, enum backend_kind kind)
{
    struct backend_claim claim = hosts_claim(kind, HOSTS_LONG);
    struct hosts_record *record = hosts_acquire(mount, name, &claim);
    if (record->result == BACKEND_OK) {
        hosts_release(record);
    }
    return record->result;
}

/* Holder of "L", as that mount sees it. */
static void assert_holds_until_released(struct hosts_record *holder, unsigned mount)
{
    ck_assert_uint_eq(holder->ended, 0);
    ck_assert_int_eq(result_of(mount, "L", BACKEND_LEASE), BACKEND_BUSY);
    ck_assert_int_eq(hosts_release(holder), BACKEND_OK);
    ck_assert_int_eq(result_of(mount, "L", BACKEND_LEASE), BACKEND_OK);
}

static bool is_closed(unsigned mount)
{
    struct backend_status status;
    bool closed = false;
    backend_status(hosts_mount(mount), &status);
    for (guint i = 0; i < status.details->len; i++) {
        closed = closed || g_str_has_prefix(status.details->pdata[i], "grace period: ");
    }
    backend_status_clear(&status);
    return closed;
}

/* Of a line of the status. */
static uint64_t counted(unsigned mount, const char *what)
{
    struct backend_status status;
    uint64_t count = UINT64_MAX;
    backend_status(hosts_mount(mount), &status);
    for (guint i = 0; i < status.details->len; i++) {
        const char *line = status.details->pdata[i];
        if (g_str_has_prefix(line, what)) {
            count = g_ascii_strtoull(line + strlen(what), NULL, 10);
        }
    }
    backend_status_clear(&status);
    return count;
}

START_TEST(what_is_held_and_waited_for_is_put_back)
{
    struct backend_directory directory = {.width = 2};
    struct backend_claim shared = hosts_claim(BACKEND_FLOCK, HOSTS_LONG),
                         range = hosts_claim(BACKEND_FCNTL, HOSTS_LONG),
                         ticket = hosts_claim(BACKEND_LEASE, HOSTS_LONG);
    struct hosts_record *held[8], *waiters[4], *before;
    uint64_t fences[8];
    unsigned count = 0;

    ck_assert_int_eq(hosts_mkdir(0, "d", &directory), BACKEND_OK);
    hosts_stat(0, "d");
    held[count++] = hosts_get(0, "L", HOSTS_LONG);
    held[count++] = hosts_get(1, "d/M", HOSTS_LONG);
    shared.mode = BACKEND_SHARED;
    held[count++] = hosts_acquire(0, "S", &shared);
    held[count++] = hosts_acquire(1, "S", &shared);
    range.lock_owner = 1;
    range.start = 10;
    range.end = 19;
    held[count++] = hosts_acquire(0, "R", &range);
    range.lock_owner = 2;
    range.start = 20;
    range.end = 29;
    held[count++] = hosts_acquire(1, "R", &range);
    ticket.sequence = true;
    held[count++] = hosts_acquire(0, "d/q-", &ticket);
    held[count++] = hosts_acquire(1, "d/q-", &ticket);
    for (unsigned i = 0; i < count; i++) {
        ck_assert_int_eq(held[i]->result, BACKEND_OK);
        fences[i] = held[i]->ticket->fence;
    }
    for (unsigned i = 0; i < G_N_ELEMENTS(waiters); i++) {
        waiters[i] = hosts_queue(2 - i % 3, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);
    }
    ways[_i]();
    HOSTS_UNTIL(is_closed(0) && is_closed(1) && is_closed(2) && hosts_exists("h:L") && hosts_exists("h:d/M") &&
                hosts_exists("h:S") && hosts_exists("h:R"));
    ck_assert_int_eq(result_of(2, "N", BACKEND_LEASE), BACKEND_GRACE);
    ck_assert_int_eq(result_of(2, "L", BACKEND_LEASE), BACKEND_BUSY);
    hosts_until_open(2);
    ck_assert_int_eq(result_of(2, "d/M", BACKEND_LEASE), BACKEND_BUSY);
    ck_assert_int_eq(result_of(2, "S", BACKEND_FLOCK), BACKEND_BUSY);
    range.lock_owner = 3;
    ck_assert_int_eq(hosts_acquire(2, "R", &range)->result, BACKEND_BUSY);
    range.start = range.end = 30;
    ck_assert_int_eq(hosts_acquire(2, "R", &range)->result, BACKEND_OK);
    struct backend_claim third = hosts_claim(BACKEND_FLOCK, HOSTS_LONG);
    third.sequence = third.wait = true;
    ck_assert_int_eq(hosts_acquire(2, "d/q-", &third)->result, BACKEND_QUEUED); /* of width 2 again */
    for (unsigned i = 0; i < count; i++) {
        ck_assert_uint_eq(held[i]->ended, 0);
        ck_assert_uint_eq(held[i]->ticket->fence, fences[i]);
    }
    ck_assert_uint_eq(counted(0, "reclaimed: ") + counted(1, "reclaimed: "), count);
    ck_assert_uint_eq(counted(0, "lost: ") + counted(1, "lost: "), 0);
    before = held[0];
    for (unsigned i = 0; i < G_N_ELEMENTS(waiters); i++) {
        ck_assert_uint_eq(waiters[i]->granted + waiters[i]->ended, 0);
        ck_assert_int_eq(hosts_release(before), BACKEND_OK);
        HOSTS_UNTIL(waiters[i]->granted);
        before = waiters[i];
    }
    ck_assert_uint_gt(before->ticket->fence, fences[0]);
}
END_TEST

/* Of a ticket that is given back at once. */
static uint64_t number_of_new_ticket(unsigned mount)
{
    struct backend_claim claim = hosts_claim(BACKEND_FLOCK, HOSTS_LONG);
    char name[64];
    claim.sequence = claim.wait = true;
    struct hosts_record *record = hosts_acquire(mount, "d/q-", &claim);
    ck_assert(backend_ticket_name(hosts_mount(mount), record->ticket, name, sizeof name));
    hosts_release(record);
    return g_ascii_strtoull(name + strlen("d/q-"), NULL, 10);
}

START_TEST(number_of_a_ticket_that_is_gone_does_not_come_again)
{
    struct backend_directory directory = {.width = 1};
    uint64_t number = 0;
    ck_assert_int_eq(hosts_mkdir(0, "d", &directory), BACKEND_OK);
    hosts_stat(1, "d");
    for (unsigned i = 0; i < 3; i++) {
        number = number_of_new_ticket(1);
    }
    ck_assert_uint_eq(number, 2);
    for (unsigned i = 0; i < 2;
         i++) { /* then by another mount, and by that which has seen the last, in the same second */
        ways[_i]();
        HOSTS_UNTIL(is_closed(0) && is_closed(1));
        hosts_mkdir(0, "d", &directory);
        uint64_t next = number_of_new_ticket(i);
        ck_assert_uint_gt(next, number);
        number = next;
        for (unsigned k = 0; k < 100; k++) {
            number = number_of_new_ticket(1);
        }
    }
}
END_TEST

START_TEST(fresh_server_costs_nobody_a_wait)
{
    hosts_close(0);
    hosts_close(1);
    hosts_close(2);
    ways[_i]();
    ck_assert_int_eq(result_of(3, "L", BACKEND_LEASE), BACKEND_OK);
    ck_assert(!is_closed(3));
    hosts_until_up(4);
    ck_assert_int_eq(result_of(4, "L", BACKEND_LEASE), BACKEND_OK);
}
END_TEST

static const char as_by_a_fresh_mount[] =
    "local run, of = redis.call('INFO', 'server'), redis.call('INFO', 'replication')\n"
    "redis.call('SET', KEYS[1], '0123456789abcdef f 0 0 ' .. run:match('run_id:(%x+)') .. ':' ..\n"
    "  of:match('master_replid:(%x+)'))\n";

START_TEST(mount_that_begins_on_an_empty_server_before_the_others_notice_keeps_nothing_from_them)
{
    struct hosts_record *holder = hosts_get(0, "L", HOSTS_LONG);
    redis_server_stop(hosts_server);
    redis_server_again(hosts_server);
    redis_server_do(hosts_server, "EVAL %s 1 lfs:v:lfs:h:/", as_by_a_fresh_mount);
    HOSTS_UNTIL(hosts_exists("h:L"));
    hosts_until_open(1);
    ck_assert_uint_eq(holder->ended, 0);
    ck_assert_int_eq(result_of(1, "L", BACKEND_LEASE), BACKEND_BUSY);
}
END_TEST

START_TEST(strict_mount_waits_on_a_server_that_was_started_a_moment_ago)
{
    hosts_close(0);
    hosts_close(1);
    hosts_close(2);
    hosts_options.strict = _i == 0;
    hosts_options.grace = hosts_options.term = HOSTS_LONG;
    redis_server_do(hosts_server, "FLUSHALL");
    hosts_until_up(3);
    ck_assert_int_eq(is_closed(3), _i == 0);
    ck_assert_int_eq(result_of(3, "L", BACKEND_LEASE), _i == 0 ? BACKEND_GRACE : BACKEND_OK);
}
END_TEST

static const char as_by_a_mount_with_a_longer_term[] =
    "redis.call('SET', KEYS[1], (redis.call('GET', KEYS[1]):gsub(' %d+ ', ' 4000 ')))";

START_TEST(longer_term_that_is_heard_of_while_it_is_closed_counts)
{
    for (unsigned i = 0; i < 3; i++) {
        hosts_close(i);
    }
    hosts_options.grace = hosts_options.term = 0; /* the longest that is held */
    hosts_get(3, "L", 1000);
    hosts_until_known(3, 1000);
    ways[_i]();
    HOSTS_UNTIL(is_closed(3));
    clock_ms closed = clock_now();
    redis_server_do(hosts_server, "EVAL %s 1 lfs:v:lfs:h:/", as_by_a_mount_with_a_longer_term);
    HOSTS_UNTIL(!is_closed(3));
    ck_assert_int_ge(clock_now(), closed + 4000);
}
END_TEST

/* --- mounts that were away --- */

/* Mounts 0 and 1 behind a proxy each. */
static struct relay *proxies[2];

static void setup_proxies(void)
{
    hosts_setup();
    hosts_options.grace = hosts_options.term = GRACE;
    for (unsigned i = 0; i < 2; i++) {
        proxies[i] = relay_to(hosts_loop, redis_server_port(hosts_server));
        hosts_reach_by(relay_port(proxies[i]));
        hosts_until_up(i);
    }
    hosts_reach_by(0);
    hosts_until_up(2);
    until_all_know();
}

static void teardown_proxies(void)
{
    for (unsigned i = 0; i < 2; i++) {
        hosts_close(i);
    }
    relay_end();
    hosts_teardown();
}

static void cut_off(unsigned mount)
{
    relay_lose(proxies[mount], "", UINT_MAX, true);
}

static void let_back(unsigned mount)
{
    relay_lose(proxies[mount], "", 0, false);
}

enum { AWAY_TERM = 24000 }; /* which is not over when the store is opened */

/* Mount 0 believes in what mount 1 has been granted since. */
static struct hosts_record *overtaken(struct hosts_record **ret_later)
{
    struct hosts_record *earlier = hosts_get(0, "L", AWAY_TERM);
    cut_off(0);
    forget_by_flush();
    HOSTS_UNTIL(is_closed(1));
    hosts_until_open(1);
    *ret_later = hosts_get(1, "L", AWAY_TERM);
    ck_assert_uint_eq(earlier->ended, 0);
    return earlier;
}

START_TEST(mount_that_comes_back_after_the_opening_puts_nothing_back)
{
    struct hosts_record *later, *earlier = overtaken(&later);
    let_back(0);
    HOSTS_UNTIL(earlier->ended);
    ck_assert_int_eq(earlier->why, BACKEND_LOST);
    assert_holds_until_released(later, 2);
}
END_TEST

START_TEST(of_two_that_put_back_the_same_lock_the_later_grant_holds_in_either_order)
{
    struct hosts_record *later, *earlier = overtaken(&later);
    unsigned first = (unsigned)_i;
    cut_off(1);
    forget_by_flush();
    HOSTS_UNTIL(is_closed(2));
    let_back(first);
    HOSTS_UNTIL(hosts_exists("h:L"));
    let_back(1 - first);
    HOSTS_UNTIL(earlier->ended);
    ck_assert_int_eq(earlier->why, BACKEND_LOST);
    hosts_until_up(1);
    hosts_until_open(2);
    assert_holds_until_released(later, 2);
}
END_TEST

/* --- a server that was restarted with its data: nothing new while a holder may exist that has not restored its lock
 * --- */

enum {
    BASE = 7000,
    AT_ONCE = 5000,
    AWAY = 8000
}; /* AT_ONCE: until all mounts are connected again, and less than a term */
#define AN_HOUR 3600000

static void setup_aof(void)
{
    hosts_setup_aof();
    hosts_options.grace = 0; /* an hour at most */
    hosts_options.term = BASE;
    for (unsigned i = 1; i < 3; i++) {
        hosts_until_up(i);
        hosts_until_known(i, BASE);
    }
}

static char *status_line(unsigned mount, const char *begin)
{
    struct backend_status status;
    char *line = NULL;
    backend_status(hosts_mount(mount), &status);
    for (guint i = 0; i < status.details->len && !line; i++) {
        line = g_str_has_prefix(status.details->pdata[i], begin) ? g_strdup(status.details->pdata[i]) : NULL;
    }
    backend_status_clear(&status);
    return line;
}

static bool has_epoch_other_than(unsigned mount, const char *before)
{
    char *line = status_line(mount, "epoch: ");
    bool other = strcmp(line, before) != 0;
    g_free(line);
    return other;
}

/* Restarts it; what that mount is granted then, and when. */
static clock_ms granted_after_restart(unsigned mount, const char *name)
{
    char *before = status_line(mount, "epoch: ");
    clock_ms began = clock_now();
    forget_by_restart();
    HOSTS_UNTIL(has_epoch_other_than(mount, before));
    while (result_of(mount, name, BACKEND_LEASE) == BACKEND_GRACE) {
        hosts_pass(20);
    }
    g_free(before);
    return clock_now() - began;
}

START_TEST(long_lock_that_was_released_closes_nothing)
{
    hosts_release(hosts_get(1 + (unsigned)_i, "L", AN_HOUR));
    ck_assert_int_lt(granted_after_restart(1, "L"), AT_ONCE);
    ck_assert_int_lt(granted_after_restart(2, "M"), AT_ONCE);
}
END_TEST

START_TEST(holder_that_is_there_keeps_a_long_lock_and_others_are_served_at_once)
{
    struct hosts_record *record = hosts_get(2, "L", AN_HOUR);
    uint64_t fence = record->ticket->fence;
    ck_assert_int_lt(granted_after_restart(1, "M"), AT_ONCE);
    ck_assert_int_eq(result_of(1, "L", BACKEND_LEASE), BACKEND_BUSY);
    ck_assert_uint_eq(record->ended, 0);
    ck_assert_uint_eq(record->ticket->fence, fence);
    hosts_release(record);
    ck_assert_int_eq(result_of(1, "L", BACKEND_LEASE), BACKEND_OK);
}
END_TEST

/* Of the server's data only L is gone. */
START_TEST(lock_of_a_mount_that_is_away_is_given_to_nobody_until_its_term_is_over)
{
    proxies[0] = relay_to(hosts_loop, redis_server_port(hosts_server));
    hosts_reach_by(relay_port(proxies[0]));
    hosts_until_up(0);
    hosts_until_known(0, BASE);
    struct hosts_record *away = hosts_get(0, "L", AWAY);
    clock_ms deadline = away->ticket->deadline;
    cut_off(0);
    char *before = status_line(1, "epoch: ");
    forget_by_restart();
    HOSTS_UNTIL(has_epoch_other_than(1, before));
    redis_server_do(hosts_server, "DEL h:L");
    ck_assert_int_eq(result_of(1, "L", BACKEND_LEASE), BACKEND_GRACE);
    char *line = status_line(1, "grace period: no new lock for ");
    ck_assert_msg(g_str_has_suffix(line, " s, the server was restarted"), "%s", line);
    ck_assert_int_le(atoi(line + strlen("grace period: no new lock for ")), AWAY / 1000 + 1);
    HOSTS_UNTIL(!is_closed(1));
    ck_assert_int_ge(clock_now(), deadline);
    ck_assert_int_eq(result_of(1, "L", BACKEND_LEASE), BACKEND_OK);
    g_free(before);
    g_free(line);
    hosts_close(0);
    relay_end();
}
END_TEST

/* --- what is left of the data, or came meanwhile --- */

START_TEST(lock_that_another_program_took_meanwhile_is_lost)
{
    struct hosts_record *holder = hosts_get(0, "L", HOSTS_LONG), *other = hosts_get(0, "M", HOSTS_LONG);
    redis_server_stop(hosts_server);
    redis_server_again(hosts_server);
    redis_server_do(hosts_server, "SET h:L theirs");
    HOSTS_UNTIL(holder->ended);
    ck_assert_int_eq(holder->why, BACKEND_LOST);
    ck_assert_uint_eq(counted(0, "lost: "), 1);
    hosts_until_open(0);
    ck_assert_uint_eq(other->ended, 0);
    ck_assert(hosts_is("h:L", "theirs"));
}
END_TEST

START_TEST(server_that_goes_back_to_an_older_state_gives_the_lock_to_its_holder)
{
    struct hosts_record *earlier = hosts_get(0, "L", HOSTS_LONG), *later;
    redis_server_do(hosts_server, "SAVE");
    ck_assert_int_eq(hosts_release(earlier), BACKEND_OK);
    later = hosts_get(1, "L", HOSTS_LONG);
    redis_server_stop(hosts_server); /* which writes nothing */
    redis_server_again(hosts_server);
    HOSTS_UNTIL(is_closed(0) && is_closed(1));
    hosts_until_open(2);
    assert_holds_until_released(later, 0);
}
END_TEST

START_TEST(data_that_are_loaded_again_are_the_same_version)
{
    struct hosts_record *holder = hosts_get(0, "L", HOSTS_LONG);
    redis_server_do(hosts_server, "DEBUG RELOAD");
    ck_assert_int_eq(result_of(1, "M", BACKEND_LEASE), BACKEND_OK);
    ck_assert_int_eq(result_of(1, "L", BACKEND_LEASE), BACKEND_BUSY);
    ck_assert_uint_eq(holder->ended, 0);
    ck_assert(!is_closed(0) && !is_closed(1));
}
END_TEST

START_TEST(version_that_is_deleted_or_overwritten_closes_and_opens_again)
{
    static const char *const commands[] = {"DEL lfs:v:lfs:h:/", "SET lfs:v:lfs:h:/ nonsense", "RPUSH lfs:v:lfs:h:/ x"};
    struct hosts_record *holder = hosts_get(0, "L", HOSTS_LONG);
    if (_i == 2) {
        redis_server_do(hosts_server, commands[0]);
    }
    redis_server_do(hosts_server, commands[_i]);
    HOSTS_UNTIL(is_closed(0));
    hosts_until_open(0);
    ck_assert_uint_eq(holder->ended, 0);
    ck_assert_int_eq(result_of(1, "L", BACKEND_LEASE), BACKEND_BUSY);
}
END_TEST

/* An open that waits for the outcome of a provisional second continues to wait.  A name that is only refused in the
 * grace period is not another's new lease, for which an open fails. */
START_TEST(refusal_in_the_grace_period_names_the_holder)
{
    static const char forget[] = "DEL lfs:v:lfs:h:/";
    struct backend_claim provisional = hosts_claim(BACKEND_PROVISIONAL, HOSTS_LONG);
    struct hosts_record *holder = hosts_acquire(0, "L", &provisional), *refused;
    ck_assert_int_eq(holder->result, BACKEND_OK);
    redis_server_do(hosts_server, forget);
    HOSTS_UNTIL(is_closed(0) && is_closed(1));
    refused = hosts_acquire(1, "L", &provisional);
    ck_assert_int_eq(refused->result, BACKEND_BUSY);
    ck_assert_int_eq(refused->holder.kind, BACKEND_PROVISIONAL);
    ck_assert_uint_eq(refused->holder.fence, holder->ticket->fence);
    ck_assert_int_eq(hosts_release(holder), BACKEND_OK);
    refused = hosts_acquire(1, "L", &provisional);
    ck_assert_int_eq(refused->result, BACKEND_GRACE);
    redis_server_do(hosts_server, "SET h:L foreign PX 60000");
    refused = hosts_acquire(1, "L", &provisional);
    ck_assert_int_eq(refused->result, BACKEND_BUSY);
    ck_assert_int_eq(refused->holder.kind, BACKEND_LEASE);
    ck_assert(is_closed(1));
}
END_TEST

/* The other holders that share have not restored their tickets yet: until then the conversion waits, and is not
 * refused. */
START_TEST(shared_place_in_a_queue_becomes_exclusive_when_all_is_put_back)
{
    struct backend_claim shared = hosts_claim(BACKEND_FLOCK, HOSTS_LONG), exclusive = shared;
    struct backend_directory directory = {.width = 1};
    struct hosts_done done = {0};
    shared.mode = BACKEND_SHARED;
    shared.sequence = shared.wait = true;
    ck_assert_int_eq(hosts_mkdir(0, "d", &directory), BACKEND_OK);
    struct hosts_record *record = hosts_acquire(0, "d/q-", &shared);
    ck_assert_int_eq(record->result, BACKEND_OK);
    ways[_i]();
    HOSTS_UNTIL(is_closed(0));
    exclusive.user = record;
    backend_convert(hosts_mount(0), record->ticket, &exclusive, hosts_on_done, &done);
    HOSTS_UNTIL(done.called);
    ck_assert_int_eq(done.result, BACKEND_GRACE);
    ck_assert_int_eq(record->ticket->mode, BACKEND_SHARED);
    hosts_until_open(0);
    done.called = false;
    backend_convert(hosts_mount(0), record->ticket, &exclusive, hosts_on_done, &done);
    HOSTS_UNTIL(done.called);
    ck_assert_int_eq(done.result, BACKEND_OK);
}
END_TEST

/* Many locks of three mounts, and a server that forgets again and again: none is lost, none is granted twice. */
START_TEST(mount_that_comes_back_to_a_restarted_server_ends_nobodys_connection)
{
    struct hosts_record *holder = hosts_get(0, "L", HOSTS_LONG);
    redisContext *strangers[40]; /* they have the numbers that the mounts' connections had, and the same address */
    redis_server_stop(hosts_server);
    redis_server_again(hosts_server);
    for (size_t i = 0; i < G_N_ELEMENTS(strangers); i++) {
        strangers[i] = redisConnectUnix(redis_server_socket(hosts_server));
        freeReplyObject(redisCommand(strangers[i], "PING"));
    }
    HOSTS_UNTIL(redis_server_do(hosts_server, "EXISTS h:L") == 1);
    hosts_until_open(0);
    ck_assert_uint_eq(holder->ended, 0);
    for (size_t i = 0; i < G_N_ELEMENTS(strangers); i++) {
        redisReply *reply = redisCommand(strangers[i], "PING");
        ck_assert_msg(reply, "connection %zu was ended", i);
        freeReplyObject(reply);
        redisFree(strangers[i]);
    }
}
END_TEST

START_TEST(nothing_is_lost_and_nothing_granted_twice_while_the_server_forgets)
{
    enum { NAMES = 12, TIMES = 5 };
    struct hosts_record *holders[NAMES];
    char name[8];
    for (unsigned i = 0; i < NAMES; i++) {
        g_snprintf(name, sizeof name, "n%u", i);
        holders[i] = hosts_get(i % 3, name, HOSTS_LONG);
    }
    for (unsigned time = 0; time < TIMES; time++) {
        redis_server_do(hosts_server, "SCRIPT FLUSH");
        ways[time % G_N_ELEMENTS(ways)]();
        for (unsigned i = 0; i < NAMES; i++) {
            g_snprintf(name, sizeof name, "n%u", i);
            ck_assert_int_ne(result_of((i + 1) % 3, name, BACKEND_FLOCK), BACKEND_OK);
        }
        if (time == 2) {
            hosts_until_open(time % 3);
        }
        for (unsigned i = 0; i < NAMES; i++) {
            ck_assert_uint_eq(holders[i]->ended, 0);
        }
    }
    hosts_until_open(0);
    for (unsigned i = 0; i < NAMES; i++) {
        ck_assert_int_eq(hosts_release(holders[i]), BACKEND_OK);
    }
}
END_TEST

/* A full server refuses what is put back, but the term runs on: a change is refused, and not told as the lock's loss.
 */
START_TEST(full_server_that_forgot_loses_no_lock_while_there_is_room_again_in_time)
{
    GBytes *content = g_bytes_new_static("text", 4);
    struct backend_change change = {.set = BACKEND_SET_CONTENT, .content = content};
    struct hosts_done refused = {0}, written = {0};
    struct hosts_record *holder = hosts_get(0, "L", HOSTS_LONG);

    redis_server_do(hosts_server, "CONFIG SET maxmemory 1");
    redis_server_do(hosts_server, "FLUSHALL");
    HOSTS_UNTIL(is_closed(0));
    backend_set(hosts_mount(0), holder->ticket, &change, hosts_on_done, &refused);
    HOSTS_UNTIL(refused.called);
    ck_assert_int_eq(refused.result, BACKEND_UNREACHABLE);
    ck_assert_uint_eq(holder->ended, 0);
    redis_server_do(hosts_server, "CONFIG SET maxmemory 0");
    HOSTS_UNTIL(counted(0, "reclaimed: ") == 1);
    backend_set(hosts_mount(0), holder->ticket, &change, hosts_on_done, &written);
    HOSTS_UNTIL(written.called);
    ck_assert_int_eq(written.result, BACKEND_OK);
    hosts_until_open(0);
    assert_holds_until_released(holder, 1);
    g_bytes_unref(content);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("redis_grace");
    TCase *tcase = tcase_create("grace"), *debugged = tcase_create("debugged"), *away = tcase_create("away");

    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, hosts_teardown);
    tcase_add_loop_test(tcase, number_of_a_ticket_that_is_gone_does_not_come_again, 0, G_N_ELEMENTS(ways));
    tcase_add_loop_test(tcase, what_is_held_and_waited_for_is_put_back, 0, G_N_ELEMENTS(ways));
    tcase_add_loop_test(tcase, fresh_server_costs_nobody_a_wait, 0, G_N_ELEMENTS(ways));
    tcase_add_test(tcase, mount_that_begins_on_an_empty_server_before_the_others_notice_keeps_nothing_from_them);
    tcase_add_loop_test(tcase, strict_mount_waits_on_a_server_that_was_started_a_moment_ago, 0, 2);
    tcase_add_loop_test(tcase, longer_term_that_is_heard_of_while_it_is_closed_counts, 0, G_N_ELEMENTS(ways));
    tcase_add_test(tcase, lock_that_another_program_took_meanwhile_is_lost);
    tcase_add_test(tcase, server_that_goes_back_to_an_older_state_gives_the_lock_to_its_holder);
    tcase_add_loop_test(tcase, version_that_is_deleted_or_overwritten_closes_and_opens_again, 0, 3);
    tcase_add_test(tcase, refusal_in_the_grace_period_names_the_holder);
    tcase_add_loop_test(tcase, shared_place_in_a_queue_becomes_exclusive_when_all_is_put_back, 0, G_N_ELEMENTS(ways));
    tcase_add_test(tcase, mount_that_comes_back_to_a_restarted_server_ends_nobodys_connection);
    tcase_add_test(tcase, nothing_is_lost_and_nothing_granted_twice_while_the_server_forgets);
    tcase_add_test(tcase, full_server_that_forgot_loses_no_lock_while_there_is_room_again_in_time);
    suite_add_tcase(suite, tcase);
    tcase_set_timeout(away, 120);
    tcase_add_checked_fixture(away, setup_proxies, teardown_proxies);
    tcase_add_test(away, mount_that_comes_back_after_the_opening_puts_nothing_back);
    tcase_add_loop_test(away, of_two_that_put_back_the_same_lock_the_later_grant_holds_in_either_order, 0, 2);
    suite_add_tcase(suite, away);
    TCase *kept = tcase_create("restarted with its data");
    tcase_set_timeout(kept, 120);
    tcase_add_checked_fixture(kept, setup_aof, hosts_teardown);
    tcase_add_loop_test(kept, long_lock_that_was_released_closes_nothing, 0, 2);
    tcase_add_test(kept, holder_that_is_there_keeps_a_long_lock_and_others_are_served_at_once);
    tcase_add_test(kept, lock_of_a_mount_that_is_away_is_given_to_nobody_until_its_term_is_over);
    suite_add_tcase(suite, kept);
    tcase_set_timeout(debugged, 60);
    tcase_add_checked_fixture(debugged, setup_debugged, hosts_teardown);
    tcase_add_test(debugged, data_that_are_loaded_again_are_the_same_version);
    suite_add_tcase(suite, debugged);
    return check_main(suite);
}
