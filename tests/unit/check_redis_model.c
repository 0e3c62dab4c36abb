/* check_redis_model: two mounts of one Redis server against the local store.
 *
 * The same random requests go to the store in memory, whose state machine is checked against a simple model of its own,
 * and to two mounts of a server.  After each request the answers must be the same, and the same tickets must hold.
 * Terms are long: time is checked elsewhere.
 */
#include <check.h>
#include <ev.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/local/local.h"
#include "backend/redis/redis.h"
#include "tests/support/check_main.h"
#include "tests/support/redis_server.h"

enum { MOUNTS = 2, TICKETS = 24, LOCK_OWNERS = 6, STEPS = 250, RUNS = 12, NAMES = 4 };

#define TERM 60000
#define TIME_LIMIT 10.0

static const char *const names[NAMES] = {"a", "b", "d/a", "d/b"};

/* A ticket, in the model and on a mount. */
struct pair {
    bool used;
    unsigned mount;
    struct backend_ticket *ticket[2]; /* NULL once it has ended there */
    const char *name;
    bool sequence;
    enum backend_kind kind;
    enum backend_mode mode;
};

/* A holder of byte ranges, by one ticket. */
struct lock_owner {
    struct pair pair; /* `used` is false: tells a lock owner from a pair; what it holds */
    unsigned queued, granted[2], ended[2];
};

static struct ev_loop *loop;
static struct redis_server *server;
static struct backend *model, *mounts[MOUNTS];
static struct pair pairs[TICKETS];
static struct lock_owner lock_owners[LOCK_OWNERS];
static GRand *random_source;
static GString *history;

static unsigned dice(unsigned sides)
{
    return (unsigned)g_rand_int_range(random_source, 0, (gint32)sides);
}

/* The last operations. */
static const char *tail(void)
{
    enum { SHOWN = 3000 };

    return history->len > SHOWN ? history->str + history->len - SHOWN : history->str;
}

/* --- events --- */

static bool is_lock_owner(const void *user)
{
    return user >= (const void *)lock_owners && user < (const void *)(lock_owners + LOCK_OWNERS);
}

static void on_granted(void *context, struct backend_ticket *ticket)
{
    if (is_lock_owner(ticket->user)) {
        ++((struct lock_owner *)ticket->user)->granted[context != &model];
        ((struct pair *)ticket->user)->ticket[context != &model] = ticket;
    }
}

static void on_ended(void *context, struct backend_ticket *ticket, enum backend_end why)
{
    unsigned side = context != &model;

    (void)why;
    if (is_lock_owner(ticket->user))
        ++((struct lock_owner *)ticket->user)->ended[side];
    if (ticket->user && (!is_lock_owner(ticket->user) || ((struct pair *)ticket->user)->ticket[side] == ticket))
        ((struct pair *)ticket->user)->ticket[side] = NULL;
}

static void on_other(void *context, struct backend_ticket *ticket)
{
    (void)context, (void)ticket;
}

static const struct backend_events events = {
    .granted = on_granted, .due = on_other, .ended = on_ended, .wanted = on_other};

/* --- calls --- */

struct answer {
    bool reported;
    enum backend_result result;
    struct backend_ticket *ticket;
    struct backend_info info;
    char names[256];
};

static void on_done(void *arg, enum backend_result result)
{
    *(struct answer *)arg = (struct answer){.reported = true, .result = result};
}

static void on_acquired(void *arg, enum backend_result result, struct backend_ticket *ticket,
                        const struct backend_info *holder)
{
    (void)holder;
    on_done(arg, result);
    ((struct answer *)arg)->ticket = ticket;
}

static void on_known(void *arg, enum backend_result result, const struct backend_info *info)
{
    struct answer *answer = arg;

    on_done(arg, result);
    answer->info = *info;
}

static void on_listed(void *arg, enum backend_result result, const struct backend_entry *entries, size_t count)
{
    struct answer *answer = arg;

    on_done(arg, result);
    for (size_t i = 0; i < count; i++) {
        g_strlcat(answer->names, entries[i].name, sizeof(answer->names));
        g_strlcat(answer->names, entries[i].type == BACKEND_DIRECTORY ? "/ " : " ", sizeof(answer->names));
    }
}

static void on_time_limit(struct ev_loop *l, ev_timer *timer, int revents)
{
    (void)l, (void)timer, (void)revents;
    ck_abort_msg("waited %g s for what did not happen:\n%s", TIME_LIMIT, tail());
}

static void until(bool (*done)(const void *), const void *arg)
{
    ev_timer time_limit;

    ev_timer_init(&time_limit, on_time_limit, TIME_LIMIT, 0.);
    ev_now_update(loop);
    ev_timer_start(loop, &time_limit);
    while (!done(arg))
        ev_run(loop, EVRUN_ONCE);
    ev_timer_stop(loop, &time_limit);
}

static bool both_reported(const void *arg)
{
    const struct answer *answers = arg;

    return answers[0].reported && answers[1].reported;
}

static bool same_hold(const void *arg)
{
    (void)arg;
    for (int i = 0; i < TICKETS; i++) {
        struct backend_ticket *m = pairs[i].ticket[0], *r = pairs[i].ticket[1];

        if ((m != NULL) != (r != NULL) || (m && m->held != r->held))
            return false;
    }
    for (int i = 0; i < LOCK_OWNERS; i++) {
        const struct lock_owner *o = &lock_owners[i];

        if (o->granted[0] != o->granted[1] || (o->pair.ticket[0] != NULL) != (o->pair.ticket[1] != NULL))
            return false;
    }
    return true;
}

/* Waits for both answers, which must be the same, and for what follows of them. */
static enum backend_result compare(struct answer *answers)
{
    until(both_reported, answers);
    g_string_append_printf(history, " -> %s\n", backend_result_name(answers[0].result));
    ck_assert_msg(answers[0].result == answers[1].result, "the mount says %s:\n%s",
                  backend_result_name(answers[1].result), tail());
    until(same_hold, NULL);
    return answers[0].result;
}

static struct backend *side(unsigned i, unsigned mount)
{
    return i == 0 ? model : mounts[mount];
}

/* --- requests --- */

static struct pair *some_pair(bool used)
{
    for (unsigned i = 0, at = dice(TICKETS); i < TICKETS; i++, at++)
        if (pairs[at % TICKETS].used == used && (!used || pairs[at % TICKETS].ticket[0]))
            return &pairs[at % TICKETS];
    return NULL;
}

static void forget_ended(void)
{
    for (int i = 0; i < TICKETS; i++)
        if (!pairs[i].ticket[0] && !pairs[i].ticket[1])
            pairs[i].used = false;
}

static void acquire(void)
{
    struct answer answers[2] = {{0}};
    struct pair *pair = some_pair(false);
    struct backend_claim claim = {
        .kind = (enum backend_kind)dice(3), .mode = (enum backend_mode)(dice(3) == 0), .wait = dice(2), .ttl = TERM};
    enum backend_result result;

    if (!pair)
        return;
    *pair = (struct pair){.used = true, .mount = dice(MOUNTS), .sequence = dice(4) == 0, .kind = claim.kind};
    pair->name = pair->sequence ? "d/q-" : names[dice(NAMES)];
    claim.user = pair;
    claim.sequence = pair->sequence;
    claim.wait |= pair->sequence;
    claim.handle = claim.kind == BACKEND_FLOCK && dice(2) ? 1 + pair->mount * 10 + dice(3) : 0;
    pair->mode = claim.mode;
    g_string_append_printf(history, "%u: acquire %s kind %d mode %d%s handle %u = %d", pair->mount, pair->name,
                           claim.kind, claim.mode, claim.wait ? " wait" : "", (unsigned)claim.handle,
                           (int)(pair - pairs));
    for (unsigned i = 0; i < 2; i++)
        pair->ticket[i] = backend_acquire(side(i, pair->mount), pair->name, &claim, on_acquired, &answers[i]);
    until(both_reported, answers);
    result = answers[0].result;
    for (unsigned i = 0; i < 2 && result != BACKEND_OK && result != BACKEND_QUEUED; i++)
        pair->ticket[i] = NULL;
    compare(answers);
}

static void release(void)
{
    struct answer answers[2] = {{0}};
    struct pair *pair = some_pair(true);

    if (!pair)
        return;
    g_string_append_printf(history, "release %d", (int)(pair - pairs));
    for (unsigned i = 0; i < 2; i++) {
        backend_release(side(i, pair->mount), pair->ticket[i], on_done, &answers[i]);
        pair->ticket[i] = NULL;
    }
    compare(answers);
}

static void convert(void)
{
    struct answer answers[2] = {{0}};
    struct pair *pair = some_pair(true);
    struct backend_claim claim = {
        .user = pair, .kind = (enum backend_kind)dice(3), .mode = (enum backend_mode)dice(2), .ttl = TERM};

    if (!pair)
        return;
    g_string_append_printf(history, "convert %d to kind %d mode %d", (int)(pair - pairs), claim.kind, claim.mode);
    for (unsigned i = 0; i < 2; i++)
        backend_convert(side(i, pair->mount), pair->ticket[i], &claim, on_done, &answers[i]);
    compare(answers);
}

static void break_one(void)
{
    struct answer answers[2] = {{0}};
    struct pair *pair = some_pair(true);
    char name[64];
    bool all = dice(2);

    if (!pair || !backend_ticket_name(model, pair->ticket[0], name, sizeof(name)))
        return;
    g_string_append_printf(history, "revoke %s (%d)%s", name, (int)(pair - pairs), all ? " all" : "");
    for (unsigned i = 0; i < 2; i++)
        backend_revoke(side(i, dice(MOUNTS)), name, all ? 0 : pair->ticket[i]->fence, on_done, &answers[i]);
    compare(answers);
}

static void rename_one(void)
{
    struct answer answers[2] = {{0}};
    struct pair *pair = some_pair(true);
    const char *name = names[dice(NAMES)];

    if (!pair)
        return;
    g_string_append_printf(history, "rename %d to %s", (int)(pair - pairs), name);
    for (unsigned i = 0; i < 2; i++)
        backend_rename(side(i, pair->mount), pair->ticket[i], name, NULL, on_done, &answers[i]);
    compare(answers);
}

/* As a process of one thread that waits: it asks for nothing else.  Of two
 * requests of one lock owner that are granted together either may be first, and what
 * they leave to others differs. */
static bool waits(const struct lock_owner *lock_owner)
{
    return lock_owner->queued > lock_owner->granted[0];
}

static void lock_range(void)
{
    struct answer answers[2] = {{0}};
    unsigned at = dice(LOCK_OWNERS), mount = at % MOUNTS;
    struct lock_owner *lock_owner = &lock_owners[at];
    unsigned from = dice(8), to = from + dice(8 - from);
    struct backend_claim claim = {.user = lock_owner,
                                  .kind = BACKEND_FCNTL,
                                  .mode = (enum backend_mode)dice(2),
                                  .lock_owner = at + 1,
                                  .start = from,
                                  .end = dice(4) ? to : BACKEND_RANGE_MAX,
                                  .wait = mount == 0 && dice(2),
                                  .ttl = TERM};

    if (waits(lock_owner))
        return;
    g_string_append_printf(history, "%u: lock owner %u lock %u-%u mode %d%s", mount, at, from, to, claim.mode,
                           claim.wait ? " wait" : "");
    for (unsigned i = 0; i < 2; i++) {
        backend_acquire(side(i, mount), "a", &claim, on_acquired, &answers[i]);
    }
    until(both_reported, answers);
    for (unsigned i = 0; i < 2; i++)
        if (answers[i].result == BACKEND_OK)
            lock_owner->pair.ticket[i] = answers[i].ticket;
    lock_owner->queued += answers[0].result == BACKEND_QUEUED;
    compare(answers);
}

static void unlock_range(void)
{
    struct answer answers[2] = {{0}};
    unsigned at = dice(LOCK_OWNERS), from = dice(8), to = from + dice(8 - from);
    struct pair *held = &lock_owners[at].pair;
    bool all = dice(2);

    if (waits(&lock_owners[at]) || !held->ticket[0])
        return;
    g_string_append_printf(history, "lock owner %u unlock %u-%u%s", at, from, to, all ? " all" : "");
    for (unsigned i = 0; i < 2; i++) {
        struct backend_ticket *ticket = held->ticket[i];

        if (all) {
            held->ticket[i] = NULL;
            backend_release(side(i, at % MOUNTS), ticket, on_done, &answers[i]);
        } else if (!backend_release_range(side(i, at % MOUNTS), ticket, from, to, on_done, &answers[i])) {
            held->ticket[i] = NULL;
        }
    }
    compare(answers);
}

static void look(void)
{
    struct answer answers[2] = {{0}};
    struct pair *pair = some_pair(true);
    unsigned mount = dice(MOUNTS);
    char name[64] = "a";

    if (pair && !backend_ticket_name(model, pair->ticket[0], name, sizeof(name)))
        return;
    g_string_append_printf(history, "%u: stat %s", mount, name);
    for (unsigned i = 0; i < 2; i++)
        backend_stat(side(i, mount), name, on_known, &answers[i]);
    compare(answers);
    ck_assert_msg(answers[0].info.type == answers[1].info.type, "type %d:\n%s", answers[1].info.type, tail());
    if (answers[0].info.type == BACKEND_LOCK) {
        ck_assert_msg(answers[0].info.kind == answers[1].info.kind, "%s", tail());
        ck_assert_msg(answers[0].info.waiters == answers[1].info.waiters, "waiters %u, not %u:\n%s",
                      answers[1].info.waiters, answers[0].info.waiters, tail());
        ck_assert_msg(answers[0].info.position == answers[1].info.position, "%s", tail());
    }
}

static void list(void)
{
    struct answer answers[2] = {{0}};
    const char *directory = dice(2) ? "d" : "";
    unsigned mount = dice(MOUNTS);

    g_string_append_printf(history, "%u: list %s", mount, directory);
    for (unsigned i = 0; i < 2; i++)
        backend_list(side(i, mount), directory, "", 100, on_listed, &answers[i]);
    compare(answers);
    ck_assert_msg(g_str_equal(answers[0].names, answers[1].names), "lists %s, not %s:\n%s", answers[1].names,
                  answers[0].names, tail());
}

static void set_width(void)
{
    struct answer answers[2] = {{0}};
    struct backend_directory directory = {.width = 1 + dice(3)};

    g_string_append_printf(history, "width %u", directory.width);
    for (unsigned i = 0; i < 2; i++)
        backend_set_directory(side(i, dice(MOUNTS)), "d", &directory, on_done, &answers[i]);
    compare(answers);
}

static void make_directory(void)
{
    struct answer answers[2] = {{0}};
    struct backend_directory directory = {.width = 1};

    g_string_append(history, "mkdir d");
    for (unsigned i = 0; i < 2; i++)
        backend_mkdir(side(i, 0), "d", &directory, on_done, &answers[i]);
    ck_assert_int_eq(compare(answers), BACKEND_OK);
}

static void open_all(guint32 seed)
{
    struct local_options options = {.seed = 1};
    struct redis_options redis = {.prefix = "m:", .seed = seed};
    char error[256] = "";

    server = redis_server_start(NULL);
    redis.conn.uri.path = (char *)redis_server_socket(server);
    loop = ev_loop_new(EVFLAG_AUTO);
    history = g_string_new(NULL);
    random_source = g_rand_new_with_seed(seed);
    ck_assert_int_eq(local_new(&options, &model, error, sizeof(error)), 0);
    backend_start(model, loop, &events, &model);
    for (unsigned i = 0; i < MOUNTS; i++) {
        ck_assert_int_eq(redis_new(&redis, &mounts[i], error, sizeof(error)), 0);
        backend_start(mounts[i], loop, &events, &mounts[i]);
    }
    make_directory();
}

static void close_all(void)
{
    backend_free(model);
    for (unsigned i = 0; i < MOUNTS; i++)
        backend_free(mounts[i]);
    ev_loop_destroy(loop);
    g_string_free(history, TRUE);
    g_rand_free(random_source);
    redis_server_free(server);
    memset(pairs, 0, sizeof(pairs)); /* for the next run, where checks do not fork */
    memset(lock_owners, 0, sizeof(lock_owners));
}

static void run(guint32 seed, bool ranges)
{
    static void (*const requests[])(void) = {acquire,   acquire,    acquire, acquire, release, release,  convert,
                                             break_one, rename_one, look,    look,    list,    set_width};

    open_all(seed);
    for (int step = 0; step < STEPS; step++) {
        g_string_append_printf(history, "seed %u step %d: ", seed, step);
        if (ranges && dice(2))
            (dice(2) ? lock_range : unlock_range)();
        else
            requests[dice(G_N_ELEMENTS(requests))]();
        forget_ended();
    }
    close_all();
}

START_TEST(mounts_do_what_the_local_store_does)
{
    const char *seed = g_getenv("SEED");

    run(seed ? (guint32)atoi(seed) : 1000 + (guint32)_i, false);
}
END_TEST

START_TEST(mounts_lock_ranges_as_the_local_store_does)
{
    const char *seed = g_getenv("SEED");

    run(seed ? (guint32)atoi(seed) : 2000 + (guint32)_i, true);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("redis_model");
    TCase *tcase = tcase_create("model");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, mounts_do_what_the_local_store_does, 0, RUNS);
    tcase_add_loop_test(tcase, mounts_lock_ranges_as_the_local_store_does, 0, RUNS);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
