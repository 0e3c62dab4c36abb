/* hosts_fixture: several mounts of one real Redis server, on one loop. */
#include "tests/unit/hosts_fixture.h"

#include <hiredis/hiredis.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "backend/log.h"
#include "backend/redis/private.h"

#define TIME_LIMIT 20000 /* ms, for each wait */

struct ev_loop *hosts_loop;
struct redis_server *hosts_server;
struct redis_options hosts_options;
GPtrArray *hosts_gone;

static struct backend *mounts[HOSTS];
static GPtrArray *all_records;
static redisContext *spy;
static unsigned number;
static clock_ms time_limit;

/* --- events --- */

static void note(struct hosts_record *record)
{
    record->when = ++number;
    record->at = clock_now();
}

struct hosts_record *hosts_of_lock_owner(unsigned mount, const char *name, uint64_t lock_owner)
{
    for (guint i = 0; i < all_records->len; i++) {
        struct hosts_record *record = all_records->pdata[i];

        if (record->ticket && record->answered && (record->granted || record->result == BACKEND_OK) && lock_owner &&
            record->lock_owner == lock_owner && record->mount == mount && strcmp(record->name, name) == 0)
            return record;
    }
    return NULL;
}

/* The ticket takes over its lock owner's earlier one.  After a forged answer there may be several, whose ends follow:
 * it is not known which one it took over, so none is used any more. */
static void take_over(struct hosts_record *record, struct backend_ticket *ticket)
{
    struct hosts_record *before;
    record->ticket = NULL;
    while (ticket->joined && (before = hosts_of_lock_owner(record->mount, record->name, record->lock_owner)))
        before->ticket = NULL;
    record->ticket = ticket;
}

static void on_granted(void *context, struct backend_ticket *ticket)
{
    struct hosts_record *record = ticket->user;

    (void)context;
    ck_assert(ticket->held);
    ck_assert_msg(ticket->deadline > clock_now(), "granted when it is over");
    record->granted++;
    take_over(record, ticket);
    note(record);
}

static void on_due(void *context, struct backend_ticket *ticket)
{
    struct hosts_record *record = ticket->user;
    struct backend_renewal renewal = {.ticket = ticket, .ttl = ticket->ttl, .due = ticket->ttl / 3};

    (void)context;
    if (record && record->renews)
        backend_renew(mounts[record->mount], &renewal, 1);
}

static void on_ended(void *context, struct backend_ticket *ticket, enum backend_end why)
{
    struct hosts_record *record = ticket->user;

    (void)context;
    if (!record)
        return; /* one that was recovered */
    record->ended++;
    record->why = why;
    record->deadline = ticket->deadline;
    record->ticket = NULL;
    note(record);
}

static void on_wanted(void *context, struct backend_ticket *ticket)
{
    struct hosts_record *record = ticket->user;

    (void)context;
    if (record)
        record->wanted++;
}

static bool on_watched(void *context, const char *name)
{
    (void)context, (void)name;
    return true;
}

static void on_gone(void *context, const char *name)
{
    (void)context;
    g_ptr_array_add(hosts_gone, g_strdup(name));
}

static const struct backend_events events = {.granted = on_granted,
                                             .due = on_due,
                                             .ended = on_ended,
                                             .wanted = on_wanted,
                                             .watched = on_watched,
                                             .gone = on_gone};

/* --- mounts --- */

void hosts_setup_with(const char *const *arguments)
{
    signal(SIGPIPE, SIG_IGN);
    log_set_level(g_getenv("HOSTS_LOG") ? LOG_LEVEL_DEBUG : LOG_LEVEL_ERROR);
    hosts_server = redis_server_start(arguments);
    hosts_loop = ev_loop_new(EVFLAG_AUTO);
    hosts_options = (struct redis_options){.prefix = "h:",
                                           .grace = HOSTS_GRACE,
                                           .seed = 1,
                                           .conn = {.timeout = HOSTS_TIMEOUT,
                                                    .command_timeout = HOSTS_COMMAND_TIMEOUT,
                                                    .connect_timeout = HOSTS_COMMAND_TIMEOUT,
                                                    .uri.path = (char *)redis_server_socket(hosts_server)}};
    all_records = g_ptr_array_new_with_free_func(g_free);
    hosts_gone = g_ptr_array_new_with_free_func(g_free);
    hosts_restart_time_limit();
}

void hosts_setup(void)
{
    hosts_setup_with(NULL);
}

void hosts_setup_aof(void)
{
    static const char *const arguments[] = {"--appendonly", "yes", NULL};

    hosts_setup_with(arguments);
}

void hosts_reach_by(uint16_t port)
{
    hosts_options.conn.uri.path = port ? NULL : (char *)redis_server_socket(hosts_server);
    hosts_options.conn.uri.host = port ? (char *)"127.0.0.1" : NULL;
    hosts_options.conn.uri.port = port;
}

void hosts_hurry(void)
{
    hosts_options.conn.timeout = HOSTS_HURRY;
    hosts_options.conn.command_timeout = hosts_options.conn.connect_timeout = HOSTS_COMMAND_HURRY;
}

void hosts_teardown(void)
{
    for (unsigned i = 0; i < HOSTS; i++)
        hosts_close(i);
    if (spy)
        redisFree(spy);
    spy = NULL;
    ev_loop_destroy(hosts_loop);
    g_ptr_array_unref(all_records);
    g_ptr_array_unref(hosts_gone);
    redis_server_free(hosts_server);
}

struct backend *hosts_mount(unsigned mount)
{
    char error[256];

    if (!mounts[mount]) {
        hosts_options.seed++;
        ck_assert_msg(redis_new(&hosts_options, &mounts[mount], error, sizeof(error)) == 0, "%s", error);
        backend_start(mounts[mount], hosts_loop, &events, NULL);
        hosts_until_up(mount); /* its requests may have short times */
    }
    return mounts[mount];
}

void hosts_close(unsigned mount)
{
    for (guint i = 0; i < all_records->len; i++) {
        struct hosts_record *record = all_records->pdata[i];

        if (record->mount == mount)
            record->ticket = NULL;
    }
    backend_free(mounts[mount]);
    mounts[mount] = NULL;
}

static bool is_up(unsigned mount)
{
    struct backend_status status;
    bool up;

    backend_status(hosts_mount(mount), &status);
    up = !status.away;
    backend_status_clear(&status);
    return up;
}

void hosts_until_up(unsigned mount)
{
    HOSTS_UNTIL(is_up(mount));
}

void hosts_until_known(unsigned mount, int64_t term)
{
    HOSTS_UNTIL(((struct redis *)hosts_mount(mount))->epoch.longest >= term);
}

void hosts_until_forgotten(unsigned mount, int64_t term)
{
    HOSTS_UNTIL(((struct redis *)hosts_mount(mount))->epoch.longest <= term);
}

/* --- the loop --- */

static void on_turn_ends(struct ev_loop *loop, struct ev_timer *timer, int happened)
{
    (void)timer, (void)happened;
    ev_break(loop, EVBREAK_ONE);
}

static void turn(int64_t milliseconds)
{
    struct ev_timer timer;

    ev_now_update(hosts_loop);
    ev_timer_init(&timer, on_turn_ends, (double)milliseconds / 1000, 0);
    ev_timer_start(hosts_loop, &timer);
    ev_run(hosts_loop, EVRUN_ONCE);
    ev_timer_stop(hosts_loop, &timer);
}

void hosts_turn(void)
{
    ck_assert_msg(clock_now() < time_limit, "waited %d s for what did not happen", TIME_LIMIT / 1000);
    turn(100);
}

void hosts_restart_time_limit(void)
{
    time_limit = clock_now() + TIME_LIMIT;
}

void hosts_pass(int64_t milliseconds)
{
    clock_ms end = clock_now() + milliseconds, now;

    while ((now = clock_now()) < end)
        turn(end - now);
}

/* --- calls --- */

static void on_acquired(void *arg, enum backend_result result, struct backend_ticket *ticket,
                        const struct backend_info *holder)
{
    struct hosts_record *record = arg;

    ck_assert_msg(!record->answered, "answered twice");
    record->answered = true;
    record->result = result;
    record->ticket = ticket;
    if (result == BACKEND_OK)
        take_over(record, ticket);
    if (holder) {
        record->holder = *holder;
        record->holder.meta = record->holder.content = NULL;
    }
    note(record);
}

void hosts_until_open(unsigned mount)
{
    struct backend_claim claim = hosts_claim(BACKEND_LEASE, HOSTS_GRACE);
    struct hosts_record *record;
    while ((record = hosts_acquire(mount, "open", &claim))->result == BACKEND_GRACE) {
        hosts_pass(20);
    }
    ck_assert_int_eq(record->result, BACKEND_OK);
    ck_assert_int_eq(hosts_release(record), BACKEND_OK);
}

struct backend_claim hosts_claim(enum backend_kind kind, int64_t ttl)
{
    return (struct backend_claim){.kind = kind, .ttl = ttl, .due = ttl / 3, .end = BACKEND_RANGE_MAX};
}

struct hosts_record *hosts_request(unsigned mount, const char *name, const struct backend_claim *claim)
{
    struct hosts_record *record = g_new0(struct hosts_record, 1);
    struct backend_claim own = *claim;

    g_ptr_array_add(all_records, record);
    own.user = record;
    record->mount = mount;
    record->name = g_intern_string(name);
    record->lock_owner = claim->kind == BACKEND_FCNTL ? claim->lock_owner : 0;
    record->renews = true;
    record->ticket = backend_acquire(hosts_mount(mount), name, &own, on_acquired, record);
    return record;
}

struct hosts_record *hosts_acquire(unsigned mount, const char *name, const struct backend_claim *claim)
{
    struct hosts_record *record = hosts_request(mount, name, claim);

    HOSTS_UNTIL(record->answered);
    return record;
}

struct hosts_record *hosts_get(unsigned mount, const char *name, int64_t ttl)
{
    struct backend_claim claim = hosts_claim(BACKEND_LEASE, ttl);
    struct hosts_record *record = hosts_acquire(mount, name, &claim);

    ck_assert_msg(record->result == BACKEND_OK, "%s: %s", name, backend_result_name(record->result));
    return record;
}

struct hosts_record *hosts_queue(unsigned mount, const char *name, enum backend_mode mode, int64_t ttl)
{
    struct backend_claim claim = hosts_claim(BACKEND_FLOCK, ttl);
    struct hosts_record *record;

    claim.mode = mode;
    claim.wait = true;
    record = hosts_acquire(mount, name, &claim);
    ck_assert_msg(record->result == BACKEND_QUEUED, "%s: %s", name, backend_result_name(record->result));
    return record;
}

void hosts_on_done(void *arg, enum backend_result result)
{
    struct hosts_done *done = arg;

    ck_assert_msg(!done->called, "completed twice");
    *done = (struct hosts_done){.called = true, .result = result};
}

static enum backend_result wait_for(struct hosts_done *done)
{
    HOSTS_UNTIL(done->called);
    return done->result;
}

enum backend_result hosts_release(struct hosts_record *record)
{
    struct hosts_done done = {0};
    struct backend_ticket *ticket = record->ticket;

    ck_assert_ptr_nonnull(ticket);
    record->ticket = NULL;
    backend_release(mounts[record->mount], ticket, hosts_on_done, &done);
    return wait_for(&done);
}

enum backend_result hosts_unlock(unsigned mount, const char *name, uint64_t lock_owner, uint64_t start, uint64_t end)
{
    struct hosts_record *record = hosts_of_lock_owner(mount, name, lock_owner);
    struct hosts_done done = {0};

    if (!record)
        return BACKEND_OK;
    if (start == 0 && end == BACKEND_RANGE_MAX)
        return hosts_release(record);
    if (!backend_release_range(mounts[mount], record->ticket, start, end, hosts_on_done, &done))
        record->ticket = NULL;
    return wait_for(&done);
}

void hosts_drop(struct hosts_record *record)
{
    struct backend_ticket *ticket = record->ticket;

    record->ticket = NULL;
    backend_release(mounts[record->mount], ticket, NULL, NULL);
}

enum backend_result hosts_mkdir(unsigned mount, const char *name, const struct backend_directory *directory)
{
    struct hosts_done done = {0};

    backend_mkdir(hosts_mount(mount), name, directory, hosts_on_done, &done);
    return wait_for(&done);
}

enum backend_result hosts_set_directory(unsigned mount, const char *name, const struct backend_directory *directory)
{
    struct hosts_done done = {0};

    backend_set_directory(hosts_mount(mount), name, directory, hosts_on_done, &done);
    return wait_for(&done);
}

enum backend_result hosts_revoke(unsigned mount, const char *name, uint64_t fence)
{
    struct hosts_done done = {0};

    backend_revoke(hosts_mount(mount), name, fence, hosts_on_done, &done);
    return wait_for(&done);
}

enum backend_result hosts_rename(struct hosts_record *record, const char *name)
{
    return hosts_rename_over(record, name, NULL);
}

enum backend_result hosts_rename_over(struct hosts_record *record, const char *name, struct hosts_record *replaced)
{
    struct hosts_done done = {0};

    backend_rename(mounts[record->mount], record->ticket, name, replaced ? replaced->ticket : NULL, hosts_on_done,
                   &done);
    return wait_for(&done);
}

struct known {
    bool called;
    struct backend_info info;
};

static void on_known(void *arg, enum backend_result result, const struct backend_info *info)
{
    struct known *known = arg;

    ck_assert_msg(result == BACKEND_OK, "stat: %s", backend_result_name(result));
    known->called = true;
    known->info = *info;
    known->info.meta = known->info.content = NULL;
}

struct backend_info hosts_stat(unsigned mount, const char *name)
{
    struct known known = {0};

    backend_stat(hosts_mount(mount), name, on_known, &known);
    HOSTS_UNTIL(known.called);
    return known.info;
}

/* --- the server --- */

bool hosts_exists(const char *key)
{
    return redis_server_do(hosts_server, "EXISTS %s", key) == 1;
}

bool hosts_is(const char *key, const char *value)
{
    return redis_server_do(hosts_server, "EVAL %s 1 %s %s", "return redis.call('GET', KEYS[1]) == ARGV[1] and 1 or 0",
                           key, value) == 1;
}

void hosts_spy(void)
{
    redisReply *reply;

    spy = redisConnectUnix(redis_server_socket(hosts_server));
    ck_assert(!spy->err);
    reply = redisCommand(spy, "PSUBSCRIBE lfs:*");
    ck_assert_ptr_nonnull(reply);
    freeReplyObject(reply);
}

unsigned hosts_messages(const char *what, unsigned *ret_channels)
{
    GHashTable *channels = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    unsigned heard = 0;
    redisReply *reply;
    bool all = false;

    redisAppendCommand(spy, "PING");
    while (!all) {
        ck_assert_int_eq(redisGetReply(spy, (void **)&reply), REDIS_OK);
        all = reply->elements != 4; /* the answer to PING: everything before was heard */
        if (!all && g_str_has_prefix(reply->element[3]->str, what)) {
            heard++;
            g_hash_table_add(channels, g_strdup(reply->element[2]->str));
        }
        freeReplyObject(reply);
    }
    if (ret_channels)
        *ret_channels = g_hash_table_size(channels);
    g_hash_table_unref(channels);
    return heard;
}
