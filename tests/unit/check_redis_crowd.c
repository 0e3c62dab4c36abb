/* check_redis_crowd: the cost for the Redis server of many waiters for one lock.
 *
 * Counted in commands, including those of scripts, never in time.
 */
#include <inttypes.h>

#include "backend/redis/private.h"
#include "tests/support/check_main.h"
#include "tests/unit/hosts_fixture.h"

enum { FEW = 60, MANY = 240 };

/* Where the ranges of the waiters lie. */
enum { APART, SAME, WHOLE, PLACES };

static uint64_t commands(void)
{
    return (uint64_t)redis_server_do(hosts_server, "EVAL %s 0",
                                     "local n = 0 "
                                     "for c in redis.call('INFO', 'commandstats'):gmatch('calls=(%d+)') do "
                                     "n = n + c end return n");
}

static struct backend_claim range(uint64_t lock_owner, uint64_t start, uint64_t end)
{
    struct backend_claim claim = hosts_claim(BACKEND_FCNTL, HOSTS_LONG);

    claim.lock_owner = lock_owner;
    claim.start = start;
    claim.end = end;
    claim.wait = true;
    return claim;
}

static struct backend_claim claim_of(int lock, unsigned i)
{
    if (lock == WHOLE)
        return range(i + 2, 0, BACKEND_RANGE_MAX);
    return lock == SAME ? range(i + 2, 5, 6) : range(i + 2, 10 * i, 10 * i + 5);
}

static void release_all(unsigned mount, uint64_t lock_owner)
{
    ck_assert_int_eq(hosts_unlock(mount, "L", lock_owner, 0, BACKEND_RANGE_MAX), BACKEND_OK);
}

/* Waiters of mounts 1 to 3, behind one of mount 0 that holds all. */
static void crowd(int lock, struct hosts_record **waiters, unsigned count)
{
    struct backend_claim claim = range(1, 0, BACKEND_RANGE_MAX);

    ck_assert_int_eq(hosts_acquire(0, "L", &claim)->result, BACKEND_OK);
    for (unsigned i = 0; i < count; i++) {
        claim = claim_of(lock, i);
        waiters[i] = hosts_request(1 + i % 3, "L", &claim);
    }
    for (unsigned i = 0; i < count; i++) {
        HOSTS_UNTIL(waiters[i]->answered);
        ck_assert_int_eq(waiters[i]->result, BACKEND_QUEUED);
    }
}

/* The first that was granted, or `count`. */
static unsigned having_turn(struct hosts_record *const *waiters, unsigned count)
{
    unsigned i = 0;

    while (i < count && !(waiters[i] && waiters[i]->granted))
        i++;
    return i;
}

static unsigned holders(struct hosts_record *const *waiters, unsigned count)
{
    unsigned granted = 0;

    for (unsigned i = 0; i < count; i++)
        granted += waiters[i] && waiters[i]->granted;
    return granted;
}

struct cost {
    uint64_t queueing, waiting, turns;
};

/* The cost of `count` waiters: to queue, of two rounds of refreshes, and to be granted and to release. */
static struct cost cost_of(int lock, unsigned count)
{
    struct hosts_record *waiters[MANY];
    struct cost cost;
    uint64_t before = commands();

    crowd(lock, waiters, count);
    cost.queueing = commands() - before;
    before = commands();
    hosts_pass(4200);
    cost.waiting = commands() - before;
    before = commands();
    release_all(0, 1);
    for (unsigned left = count; left > 0; left--) {
        unsigned next;

        HOSTS_UNTIL((next = having_turn(waiters, count)) < count);
        release_all(waiters[next]->mount, next + 2);
        waiters[next] = NULL;
        ck_assert(lock == APART || holders(waiters, count) <= 1); /* the next may have its turn already */
    }
    cost.turns = commands() - before;
    ck_assert(!hosts_exists("h:L"));
    return cost;
}

START_TEST(each_who_waits_for_a_byte_range_costs_the_same_however_many_they_are)
{
    struct cost few = cost_of(_i, FEW), many = cost_of(_i, MANY);

    printf("# %d waiters: %" PRIu64 ", %" PRIu64 ", %" PRIu64 " commands; %d: %" PRIu64 ", %" PRIu64 ", %" PRIu64 "\n",
           FEW, few.queueing, few.waiting, few.turns, MANY, many.queueing, many.waiting, many.turns);
    fflush(stdout);
    ck_assert_uint_le(many.queueing, few.queueing * MANY / FEW * 3 / 2);
    ck_assert_uint_le(many.waiting, few.waiting * MANY / FEW * 3 / 2);
    ck_assert_uint_le(many.waiting, MANY * 3 * 40); /* three refreshes at most */
    ck_assert_uint_le(many.turns, MANY * 300);
}
END_TEST

/* Those of scripts and those that call them; `before` is what commands() told. */
static uint64_t commands_since(uint64_t before)
{
    return commands() - before - 3; /* what that takes itself */
}

/* _i: a lease or a flock; either is noted for a mount that starts again. */
START_TEST(lock_that_nobody_else_wants_pays_for_no_queue)
{
    const unsigned noted = 1;
    struct backend_claim claim = hosts_claim(_i == 0 ? BACKEND_LEASE : BACKEND_FLOCK, HOSTS_LONG);
    struct hosts_done done = {0};
    struct hosts_record *record;
    struct backend_renewal renewal;
    clock_ms deadline;
    uint64_t before;

    hosts_until_up(1);
    claim.wait = _i == 1;
    claim.content = g_bytes_new_static("1234\n", 5);
    hosts_release(hosts_acquire(0, "L", &claim)); /* not the first time */
    before = commands();
    ck_assert_int_eq(hosts_stat(1, "L").type, BACKEND_NOTHING);
    ck_assert_uint_le(commands_since(before), 1);
    before = commands();
    record = hosts_acquire(0, "L", &claim);
    ck_assert_uint_le(commands_since(before), 7 + 2 * noted);
    ck_assert_int_eq(record->result, BACKEND_OK);
    /* The mount's note does not stay for good if it dies now. */
    ck_assert_int_eq(redis_server_do(hosts_server, "EVAL %s 0",
                                     "local n = 0\n"
                                     "for _, key in ipairs(redis.call('KEYS', 'lfs:m:*')) do\n"
                                     "  if redis.call('PTTL', key) == -1 then n = n + 1 end\n"
                                     "end\n"
                                     "return n"),
                     0);
    deadline = record->ticket->deadline;
    hosts_pass(2);
    before = commands();
    renewal = (struct backend_renewal){.ticket = record->ticket, .ttl = HOSTS_LONG};
    backend_renew(hosts_mount(0), &renewal, 1);
    HOSTS_UNTIL(record->ticket->deadline > deadline);
    ck_assert_uint_le(commands_since(before), 4 + noted);
    before = commands();
    backend_set(hosts_mount(0), record->ticket, &(struct backend_change){.set = BACKEND_SET_CONTENT}, hosts_on_done,
                &done);
    HOSTS_UNTIL(done.called);
    ck_assert_int_eq(done.result, BACKEND_OK);
    ck_assert_uint_le(commands_since(before), 5);
    before = commands();
    ck_assert_int_eq(hosts_stat(1, "L").type, BACKEND_LOCK);
    ck_assert_uint_le(commands_since(before), 5);
    before = commands();
    hosts_release(record);
    ck_assert_uint_le(commands_since(before), 5 + noted);
    g_bytes_unref(claim.content);
}
END_TEST

/* A call that would have all done at once does a part: the others are served between. */
START_TEST(one_call_does_a_part_of_what_a_crowd_needs_and_the_next_goes_on)
{
    struct hosts_record *waiters[MANY];
    struct backend_info info;
    uint64_t before, most = 0;
    unsigned left, rounds = 0;

    crowd(APART, waiters, MANY);
    for (unsigned mount = 1; mount <= 3; mount++)
        hosts_close(mount); /* their messages find nobody */
    before = commands();
    release_all(0, 1);
    most = commands() - before;
    do {
        left = hosts_stat(0, "L").waiters;
        before = commands();
        info = hosts_acquire(0, "L", &(struct backend_claim){.kind = BACKEND_LEASE, .ttl = HOSTS_LONG})->holder;
        most = MAX(most, commands() - before);
        rounds++;
    } while (hosts_stat(0, "L").waiters < left);
    ck_assert_int_eq(info.type, BACKEND_LOCK);
    ck_assert_uint_eq(left, 0);
    ck_assert_uint_ge(rounds, 5);
    ck_assert_uint_le(most, 1500);
}
END_TEST

START_TEST(holder_behind_a_crowd_is_seen)
{
    struct hosts_record *waiters[FEW + 20], *last;
    struct backend_claim claim = range(1, 0, 9);

    ck_assert_int_eq(hosts_acquire(0, "L", &claim)->result, BACKEND_OK);
    claim = range(2, 10, 19);
    ck_assert_int_eq(hosts_acquire(0, "L", &claim)->result, BACKEND_OK);
    for (unsigned i = 0; i < G_N_ELEMENTS(waiters); i++) {
        claim = range(10 + i, 0, 9);
        waiters[i] = hosts_acquire(1, "L", &claim);
    }
    claim = range(3, 10, 19);
    last = hosts_acquire(2, "L", &claim);
    release_all(0, 2);
    HOSTS_UNTIL(last->granted);
    release_all(0, 1); /* who gets its turn now was overtaken, and has a larger number than all that wait */
    HOSTS_UNTIL(waiters[0]->granted);
    release_all(2, 3);
    ck_assert_int_eq(hosts_stat(0, "L").type, BACKEND_LOCK);
    ck_assert_uint_eq(hosts_stat(0, "L").holders, 1);
}
END_TEST

static void crowd_of_readers(const char *name, struct hosts_record **waiters)
{
    struct backend_claim claim = hosts_claim(BACKEND_FLOCK, HOSTS_LONG);

    claim.wait = true;
    claim.mode = BACKEND_SHARED;
    for (unsigned i = 0; i < MANY; i++)
        waiters[i] = hosts_request(1 + i % 3, name, &claim);
    for (unsigned i = 0; i < MANY; i++)
        HOSTS_UNTIL(waiters[i]->answered);
}

START_TEST(readers_that_get_their_turn_together_are_let_in_in_parts)
{
    struct hosts_record *holder = hosts_get(0, "L", HOSTS_LONG), *waiters[MANY];
    uint64_t before;

    crowd_of_readers("L", waiters);
    hosts_release(holder);
    for (unsigned i = 0; i < MANY; i++)
        HOSTS_UNTIL(waiters[i]->granted);

    holder = hosts_get(0, "M", HOSTS_LONG);
    crowd_of_readers("M", waiters);
    for (unsigned mount = 1; mount <= 3; mount++)
        hosts_close(mount);
    before = commands();
    hosts_release(holder);
    ck_assert_uint_le(commands() - before, 1500);
    ck_assert_uint_gt(hosts_stat(0, "M").waiters, MANY / 2);
}
END_TEST

static enum backend_result convert(struct hosts_record *record, const struct backend_claim *claim)
{
    struct hosts_done done = {0};
    struct backend_claim own = *claim;

    own.user = record;
    backend_convert(hosts_mount(record->mount), record->ticket, &own, hosts_on_done, &done);
    HOSTS_UNTIL(done.called);
    return done.result;
}

/* flock(2) of one that shares already. */
START_TEST(refresh_beside_many_sharers_costs_as_much_as_beside_few)
{
    unsigned const crowds[] = {FEW, MANY};
    uint64_t cost[G_N_ELEMENTS(crowds)];
    struct hosts_record *sharers[MANY];
    struct backend_claim claim = hosts_claim(BACKEND_FLOCK, HOSTS_LONG);

    claim.mode = BACKEND_SHARED;
    for (unsigned i = 0, crowd = 0; crowd < G_N_ELEMENTS(crowds); crowd++) {
        for (; i < crowds[crowd]; i++)
            sharers[i] = hosts_acquire(i % 3, "L", &claim);
        cost[crowd] = commands();
        ck_assert_int_eq(convert(sharers[0], &claim), BACKEND_OK);
        cost[crowd] = commands() - cost[crowd];
    }
    ck_assert_uint_eq(cost[0], cost[1]);
    claim.mode = BACKEND_EXCLUSIVE;
    ck_assert_int_eq(convert(sharers[0], &claim), BACKEND_BUSY);
}
END_TEST

static long long calls(void)
{
    return redis_server_do(hosts_server, "EVAL %s 0",
                           "return tonumber(redis.call('INFO', 'commandstats'):match('cmdstat_evalsha:calls=(%d+)'))");
}

enum { EVERYWHERE = 180, OF_EACH = EVERYWHERE / 3 };

/* Waiters of mount 0 behind what mount 1 holds: of one lock, of a lock each, and of byte ranges. */
static void wait_everywhere(struct hosts_record **waiters)
{
    struct backend_claim flock = hosts_claim(BACKEND_FLOCK, HOSTS_LONG), all = range(1, 0, BACKEND_RANGE_MAX);
    flock.wait = true;
    hosts_get(1, "L", HOSTS_LONG);
    ck_assert_int_eq(hosts_acquire(1, "R", &all)->result, BACKEND_OK);
    for (unsigned i = 0; i < OF_EACH; i++) {
        struct backend_claim part = claim_of(APART, i);
        char name[16];
        g_snprintf(name, sizeof(name), "M%u", i);
        hosts_get(1, name, HOSTS_LONG);
        waiters[3 * i] = hosts_request(0, "L", &flock);
        waiters[3 * i + 1] = hosts_request(0, name, &flock);
        waiters[3 * i + 2] = hosts_request(0, "R", &part);
    }
    for (unsigned i = 0; i < EVERYWHERE; i++) {
        HOSTS_UNTIL(waiters[i]->answered);
        ck_assert_int_eq(waiters[i]->result, BACKEND_QUEUED);
    }
}

/* --- what nobody waits for --- */

enum { LEASES = REMOTE_BACKGROUND_MAX + 200 };

static void make_leases(struct hosts_record **leases)
{
    for (unsigned i = 0; i < LEASES; i++) {
        char name[16];
        struct backend_claim claim = hosts_claim(BACKEND_LEASE, HOSTS_LONG + 100 * (LEASES - i));
        g_snprintf(name, sizeof(name), "n%u", i);
        leases[i] = hosts_request(0, name, &claim);
        leases[i]->renews = false;
    }
    for (unsigned i = 0; i < LEASES; i++) {
        HOSTS_UNTIL(leases[i]->answered);
        ck_assert_int_eq(leases[i]->result, BACKEND_OK);
    }
}

/* _i: all are renewed, or have ended here. */
START_TEST(user_request_does_not_wait_for_all_background_requests)
{
    struct remote *r = (struct remote *)hosts_mount(0);
    struct hosts_record *leases[LEASES];
    struct hosts_done done = {0};
    clock_ms nearest = CLOCK_NEVER, before;

    make_leases(leases);
    redis_server_pause(hosts_server);
    for (unsigned i = 0; i < LEASES; i++) {
        struct remote_ticket *t = (struct remote_ticket *)leases[i]->ticket;
        if (_i)
            remote_end_ticket(r, t, BACKEND_EXPIRED, true);
        else
            backend_renew(hosts_mount(0), &(struct backend_renewal){.ticket = &t->head, .ttl = HOSTS_LONG}, 1);
    }
    ck_assert_uint_eq(r->background_pending, REMOTE_BACKGROUND_MAX);
    ck_assert_uint_eq(skiplist_length(&r->background), _i ? 0 : LEASES - REMOTE_BACKGROUND_MAX); /* uncontended */
    for (unsigned i = REMOTE_BACKGROUND_MAX; !_i && i < LEASES; i++)
        nearest = MIN(nearest, ((struct remote_ticket *)leases[i]->ticket)->background_order);
    struct remote_ticket *first = skiplist_item(skiplist_first(&r->background));
    ck_assert(_i ? !first : first->background_order == nearest);
    backend_set_directory(hosts_mount(0), "", &(struct backend_directory){.width = 1}, hosts_on_done, &done);
    redis_server_resume(hosts_server);
    before = clock_now();
    HOSTS_UNTIL(done.called);
    ck_assert(_i ? !TAILQ_EMPTY(&r->ended_releases) : skiplist_length(&r->background) > 0);
    HOSTS_UNTIL(TAILQ_EMPTY(&r->ended_releases) && skiplist_length(&r->background) == 0 && r->background_pending == 0);
    for (unsigned i = 0; i < LEASES; i++)
        ck_assert(_i || leases[i]->ticket->deadline >= before);
    ck_assert_int_eq(redis_server_do(hosts_server, "EVAL %s 0", "return #redis.call('KEYS', 'h:n*')"), _i ? 0 : LEASES);
}
END_TEST

/* A name that has ended here is asked for again before the server has heard of its end. */
START_TEST(name_that_has_ended_here_is_free_at_once)
{
    struct remote *r = (struct remote *)hosts_mount(0);
    struct hosts_record *leases[LEASES];

    make_leases(leases);
    for (unsigned i = 0; i < LEASES; i++)
        remote_end_ticket(r, (struct remote_ticket *)leases[i]->ticket, BACKEND_EXPIRED, true);
    hosts_get(0, "n199", HOSTS_LONG);
    ck_assert_int_eq(hosts_rename(hosts_get(0, "n198", HOSTS_LONG), "n197"), BACKEND_OK);
}
END_TEST

/* --- a mount that starts again --- */

enum { SHORT = 2000 }; /* ms, of a request */

static unsigned found;
static ev_timer resumed;

/* Leases whose term has begun in the last second. */
static long long just_extended(void)
{
    return redis_server_do(hosts_server, "EVAL %s 0",
                           "local n = 0 "
                           "for _, key in ipairs(redis.call('KEYS', 'h:n*')) do "
                           "if redis.call('PTTL', key) > 59000 then n = n + 1 end end return n");
}

static bool on_found_after_extension(void *arg, const char *name, struct backend_ticket *ticket, GBytes *meta,
                                     GBytes *content)
{
    (void)arg, (void)name, (void)meta, (void)content;
    if (found++ == 0)
        ck_assert_int_eq(just_extended(), LEASES);
    ck_assert_int_le(ticket->deadline - clock_now(),
                     HOSTS_LONG - 1000); /* as it was, until its owner is known to live */
    return true;
}

/* So a mount that gets little of the processor has a whole term to recover them. */
START_TEST(all_leases_are_extended_before_the_first_is_recovered)
{
    struct backend_claim claim = hosts_claim(BACKEND_LEASE, HOSTS_LONG);

    hosts_options.identity = "host";
    claim.meta = g_bytes_new_static("1 h 2 3 0 0 100644 2 - b", 24);
    for (unsigned i = 0; i < LEASES; i++) {
        char name[16];
        g_snprintf(name, sizeof(name), "n%u", i);
        ck_assert_int_eq(hosts_acquire(0, name, &claim)->result, BACKEND_OK);
    }
    hosts_close(0);
    hosts_pass(1500);
    ck_assert_int_eq(just_extended(), 0);
    hosts_mount(0);
    found = 0;
    backend_recover(hosts_mount(0), on_found_after_extension, NULL);
    HOSTS_UNTIL(found == LEASES);
    g_bytes_unref(claim.meta);
}
END_TEST

static void on_pause_over(struct ev_loop *loop, struct ev_timer *timer, int events)
{
    (void)loop, (void)timer, (void)events;
    redis_server_resume(hosts_server);
}

static bool on_found(void *arg, const char *name, struct backend_ticket *ticket, GBytes *meta, GBytes *content)
{
    (void)name, (void)meta;
    ck_assert(ticket->held);
    ck_assert_uint_eq(g_bytes_get_size(content), strlen("1234"));
    if (found++ == 0 && arg) { /* for longer than it tries one request */
        redis_server_pause(hosts_server);
        ev_timer_init(&resumed, on_pause_over, 1.25 * SHORT / 1000, 0);
        ev_now_update(hosts_loop);
        ev_timer_start(hosts_loop, &resumed);
    }
    return true;
}

/* _i: the server stands still for a while meanwhile, as on a machine that has much else to do. */
START_TEST(mount_that_starts_again_finds_and_renews_all_in_a_few_requests)
{
    struct backend_claim claim = hosts_claim(BACKEND_LEASE, HOSTS_LONG);
    long long before;

    hosts_options.identity = "host";
    claim.content = g_bytes_new_static("1234", 4);
    claim.meta = claim.content;
    for (unsigned i = 0; i < LEASES; i++) {
        char name[16];
        g_snprintf(name, sizeof(name), "n%u", i);
        ck_assert_int_eq(hosts_acquire(0, name, &claim)->result, BACKEND_OK);
    }
    hosts_close(0);
    if (_i) {
        hosts_hurry();
        hosts_options.conn.timeout = SHORT;
    }
    hosts_mount(0);
    found = 0;
    before = calls();
    clock_ms began = clock_now();
    backend_recover(hosts_mount(0), on_found, _i ? &found : NULL);
    ck_assert(!_i || clock_now() - began < 1.25 * SHORT); /* no later than a request: the rest is found meanwhile */
    HOSTS_UNTIL(found == LEASES);
    if (!_i) {
        hosts_pass(50); /* for renewals */
        ck_assert_int_le(calls() - before, LEASES / 10);
    }
    g_bytes_unref(claim.content);
}
END_TEST

/* --- many mounts that wait for one lock --- */

/* So often as they are from outside, not from scripts. */
static long long looks(void)
{
    return redis_server_do(hosts_server, "EVAL %s 0",
                           "return tonumber(redis.call('INFO', 'commandstats'):match("
                           "'cmdstat_client|caching:calls=(%d+)') or 0)");
}

/* One waiter of each mount but the first; all mounts watch the name for the filesystem, as after a look-up. */
static struct hosts_record *wait_with(unsigned mounts, struct hosts_record **waiters)
{
    struct backend_claim claim = hosts_claim(BACKEND_FLOCK, HOSTS_LONG);
    struct hosts_record *holder = hosts_acquire(0, "L", &claim);

    for (unsigned i = 1; i < mounts; i++) {
        backend_watch(hosts_mount(i), "L");
        waiters[i] = hosts_queue(i, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);
    }
    hosts_pass(50); /* what was asked behind the answers is answered, too */
    return holder;
}

static const unsigned herds[] = {2, 100};

START_TEST(hand_over_costs_the_same_however_many_mounts_wait)
{
    unsigned mounts = herds[_i];
    struct hosts_record *waiters[HOSTS], *holder = wait_with(mounts, waiters);
    long long scripts = calls(), watches = looks();
    clock_ms began = clock_now();

    for (unsigned i = 1; i < mounts; i++) {
        hosts_release(holder);
        HOSTS_UNTIL(waiters[i]->granted);
        holder = waiters[i];
    }
    long long heartbeats =
        (clock_now() - began) / 1000 * mounts; /* one of each mount in 2 s, and a machine may be slow */
    scripts = calls() - scripts;
    watches = looks() - watches;
    printf("# %u mounts: %lld scripts and %lld watches in %u hand-overs\n", mounts, scripts, watches, mounts - 1);
    fflush(stdout);
    ck_assert_int_le(scripts, 3 * (mounts - 1) + heartbeats);
    ck_assert_int_le(watches, mounts - 1);
}
END_TEST

START_TEST(waiter_that_has_become_the_first_hears_that_a_foreign_lock_has_ended)
{
    struct hosts_record *waiters[10];
    clock_ms ended;

    redis_server_do(hosts_server, "SET h:L theirs");
    for (unsigned i = 0; i < G_N_ELEMENTS(waiters); i++)
        waiters[i] = hosts_queue(i, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);
    hosts_pass(100); /* the first one's watch is set */
    long long scripts = calls();
    clock_ms began = clock_now();
    for (unsigned i = 0; i < 8; i++)
        hosts_release(waiters[i]);
    hosts_pass(100);
    long long heartbeats =
        (long long)G_N_ELEMENTS(waiters) * (1 + (clock_now() - began) / 1000); /* of each mount in 2 s */
    ck_assert_int_le(calls() - scripts, 16 + heartbeats); /* only the next asks each time, of up to nine */
    ended = clock_now();
    redis_server_do(hosts_server, "DEL h:L");
    HOSTS_UNTIL(waiters[8]->granted);
    ck_assert_int_lt(waiters[8]->at - ended, 250);
    ck_assert_uint_eq(waiters[9]->granted, 0);
}
END_TEST

/* Its mount dies.  Whichever request finds that makes the next the first. */
START_TEST(waiter_behind_one_that_died_hears_that_a_foreign_lock_has_ended)
{
    struct backend_claim claim = hosts_claim(BACKEND_FLOCK, HOSTS_LONG);
    struct hosts_record *next;
    clock_ms ended;

    redis_server_do(hosts_server, "SET h:L theirs");
    hosts_queue(1, "L", BACKEND_EXCLUSIVE, 600)->renews = false;
    next = hosts_queue(2, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);
    hosts_close(1);
    hosts_pass(700); /* its liveness is over, and the next heartbeat of mount 2 is not due yet */
    ck_assert_int_eq(hosts_acquire(3, "L", &claim)->result, BACKEND_BUSY);
    hosts_pass(50);
    ended = clock_now();
    redis_server_do(hosts_server, "DEL h:L");
    HOSTS_UNTIL(next->granted);
    ck_assert_int_lt(next->at - ended, 250);
}
END_TEST

/* The file system must get the event `gone` of a name for which a ticket of this mount waited. */
START_TEST(name_is_watched_again_when_its_waiter_has_given_up)
{
    struct hosts_record *holder = hosts_get(0, "L", HOSTS_LONG), *waiter;
    clock_ms released;

    backend_watch(hosts_mount(1), "L");
    waiter = hosts_queue(1, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);
    hosts_pass(50);
    redis_server_do(hosts_server, "PEXPIRE h:L 70000"); /* the watch that was set is used up */
    hosts_pass(50);
    hosts_release(waiter);
    hosts_pass(50);
    ck_assert_uint_eq(hosts_gone->len, 0);
    released = clock_now();
    hosts_release(holder);
    HOSTS_UNTIL(hosts_gone->len == 1);
    ck_assert_int_lt(clock_now() - released, 250);
}
END_TEST

static long long living(const char *key)
{
    return redis_server_do(hosts_server, "EVAL %s 1 %s",
                           "local t = redis.call('TIME') "
                           "return redis.call('ZCOUNT', KEYS[1], t[1] * 1000 + t[2] / 1000, '+inf')",
                           key);
}

START_TEST(those_who_wait_cost_their_mount_one_request_for_each_heartbeat)
{
    struct hosts_record *waiters[EVERYWHERE];
    long long before;
    wait_everywhere(waiters);
    hosts_pass(2100); /* soon they are in step */
    before = calls();
    hosts_pass(6500); /* nobody lives that long without a word */
    before = calls() - before;
    printf("# %d waiters: %lld requests in 6.5 s\n", EVERYWHERE, before);
    fflush(stdout);
    ck_assert_int_le(before, 6);
    ck_assert_int_eq(living("lfs:t:h:L"), OF_EACH + 1);
    ck_assert_int_eq(living("lfs:t:h:R"), OF_EACH + 1);
    for (unsigned i = 0; i < OF_EACH; i++) {
        char key[32];
        g_snprintf(key, sizeof(key), "lfs:t:h:M%u", i);
        ck_assert_int_eq(living(key), 2);
    }
    ck_assert_int_eq(living("lfs:q:lfs:h:/"), EVERYWHERE);
}
END_TEST

enum { TICKETS = 1000, PART = 100 };

/* Commands for each of `count` tickets. */
static uint64_t cost_of_tickets(struct hosts_record **tickets, unsigned count)
{
    struct backend_claim claim = hosts_claim(BACKEND_FLOCK, HOSTS_LONG);
    uint64_t before = commands();

    claim.sequence = claim.wait = true;
    for (unsigned i = 0; i < count; i++)
        tickets[i] = hosts_request(0, "q/job-", &claim);
    for (unsigned i = 0; i < count; i++)
        HOSTS_UNTIL(tickets[i]->answered);
    return commands_since(before) / count;
}

START_TEST(ticket_costs_the_same_however_long_the_queue_is)
{
    struct hosts_record *tickets[TICKETS + PART];
    struct hosts_done done = {0};
    uint64_t first, last, waiting;

    backend_mkdir(hosts_mount(0), "q", &(struct backend_directory){.width = 1}, hosts_on_done, &done);
    HOSTS_UNTIL(done.called);
    hosts_release(hosts_get(0, "q/plain", HOSTS_LONG)); /* not the first in its directory */
    first = cost_of_tickets(tickets, PART);
    cost_of_tickets(tickets + PART, TICKETS - PART);
    last = cost_of_tickets(tickets + TICKETS, PART);
    hosts_pass(2100); /* soon they are in step */
    waiting = commands();
    hosts_pass(4200);
    waiting = commands_since(waiting);
    printf("# a ticket: %" PRIu64 " commands of the first %d, %" PRIu64 " behind %d; %" PRIu64 " in 4.2 s of waiting\n",
           first, PART, last, TICKETS, waiting);
    fflush(stdout);
    ck_assert_uint_le(last, first + first / 10 + 1);
    ck_assert_uint_le(waiting, TICKETS);
}
END_TEST

START_TEST(damaged_lock_does_not_silence_those_who_wait_for_others)
{
    struct hosts_record *waiters[3];
    static const char *const names[] = {"L", "M", "N"};
    for (unsigned i = 0; i < G_N_ELEMENTS(waiters); i++) {
        hosts_get(1, names[i], HOSTS_LONG);
        waiters[i] = hosts_queue(0, names[i], BACKEND_EXCLUSIVE, 1500);
    }
    redis_server_do(hosts_server, "SET lfs:o:h:M theirs");
    hosts_pass(2500);
    ck_assert_int_eq(living("lfs:t:h:L"), 2);
    ck_assert_int_eq(living("lfs:t:h:N"), 2);
    ck_assert_uint_eq(waiters[0]->ended + waiters[2]->ended, 0);
}
END_TEST

static void on_listed(void *arg, enum backend_result result, const struct backend_entry *entries, size_t count)
{
    struct hosts_done *done = arg;

    (void)entries;
    ck_assert_uint_eq(count, 1);
    hosts_on_done(done, result);
}

/* As mounts leave them that die; _i: the directory is removed, or listed. */
START_TEST(names_that_are_left_over_are_removed_in_parts)
{
    struct backend_directory directory = {.width = 1};
    struct hosts_done done = {0};
    long long before;

    ck_assert_int_eq(hosts_mkdir(0, "d", &directory), BACKEND_OK);
    redis_server_do(hosts_server, "EVAL %s 0", "for i = 1, 1500 do redis.call('ZADD', 'lfs:l:h:d', 0, 'n' .. i) end");
    if (_i)
        hosts_get(0, "d/z", HOSTS_LONG);
    before = calls();
    if (_i)
        backend_list(hosts_mount(0), "d", "", 100, on_listed, &done);
    else
        backend_rmdir(hosts_mount(0), "d", hosts_on_done, &done);
    HOSTS_UNTIL(done.called);
    ck_assert_int_eq(done.result, BACKEND_OK);
    ck_assert_int_ge(calls() - before, 6); /* none of them looks at more than 500 */
    ck_assert_int_eq(redis_server_do(hosts_server, "ZCARD lfs:l:h:d"), _i);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("redis_crowd");
    TCase *tcase = tcase_create("crowd");

    tcase_set_timeout(tcase, 120); /* a hundred mounts on a busy machine */
    tcase_add_checked_fixture(tcase, hosts_setup, hosts_teardown);
    tcase_add_loop_test(tcase, each_who_waits_for_a_byte_range_costs_the_same_however_many_they_are, 0, PLACES);
    tcase_add_loop_test(tcase, lock_that_nobody_else_wants_pays_for_no_queue, 0, 2);
    tcase_add_test(tcase, one_call_does_a_part_of_what_a_crowd_needs_and_the_next_goes_on);
    tcase_add_test(tcase, holder_behind_a_crowd_is_seen);
    tcase_add_test(tcase, readers_that_get_their_turn_together_are_let_in_in_parts);
    tcase_add_test(tcase, refresh_beside_many_sharers_costs_as_much_as_beside_few);
    tcase_add_test(tcase, those_who_wait_cost_their_mount_one_request_for_each_heartbeat);
    tcase_add_test(tcase, ticket_costs_the_same_however_long_the_queue_is);
    tcase_add_test(tcase, damaged_lock_does_not_silence_those_who_wait_for_others);
    tcase_add_loop_test(tcase, names_that_are_left_over_are_removed_in_parts, 0, 2);
    tcase_add_loop_test(tcase, user_request_does_not_wait_for_all_background_requests, 0, 2);
    tcase_add_test(tcase, name_that_has_ended_here_is_free_at_once);
    tcase_add_test(tcase, all_leases_are_extended_before_the_first_is_recovered);
    tcase_add_loop_test(tcase, mount_that_starts_again_finds_and_renews_all_in_a_few_requests, 0, 2);
    tcase_add_loop_test(tcase, hand_over_costs_the_same_however_many_mounts_wait, 0, G_N_ELEMENTS(herds));
    tcase_add_test(tcase, waiter_that_has_become_the_first_hears_that_a_foreign_lock_has_ended);
    tcase_add_test(tcase, waiter_behind_one_that_died_hears_that_a_foreign_lock_has_ended);
    tcase_add_test(tcase, name_is_watched_again_when_its_waiter_has_given_up);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
