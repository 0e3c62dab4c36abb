/* check_record_worlds: random programs of several mounts on a model store, on a virtual clock; and a judge.
 *
 *     check_record_worlds [-n WORLDS] [-s FIRST_SEED] [-v]
 *
 * A world has a few mounts, whose links are slow, lose answers, stop and are cut, and which are paused; a store whose
 * clock steps back, which loses messages, answers "again", and may forget all; and in some worlds another client that
 * polls.  Users take, share, convert, rename, break and release a few names.  The judge sees answers, events and
 * deadlines only: no two users may rely on excluding locks at one time, tokens of a name grow from grant to grant, each
 * call is answered once, and once the faults have ended every waiter gets its lock promptly.
 *
 * This file stands in for libev and for the clocks of the system.
 */
#include <ev.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "backend/log.h"
#include "backend/record/engine.h"
#include "tests/support/record_model.h"

enum { MOUNTS = 3, NAMES = 4, USERS = 10, FD = 100000, TIMERS = 64, PROMPT = 40000 };

/* --- the clock and the loops --- */

static int64_t now = 1000000;  /* ms */
static int64_t alarms[TIMERS]; /* of timerfds; 0: not set */
static unsigned fds;
static GRand *chance;
static bool verbose;

struct ev_loop {
    GPtrArray *timers, *ios, *prepares;
    GPtrArray *fed; /* prepare watchers */
    bool paused;
    int64_t paused_until;
};

static struct ev_loop loops[MOUNTS];

int __wrap_clock_gettime(clockid_t id, struct timespec *time);
int __wrap_timerfd_create(int clock, int flags);
int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *at, struct itimerspec *old);
ssize_t __real_read(int fd, void *buffer, size_t size);
ssize_t __wrap_read(int fd, void *buffer, size_t size);
int __real_close(int fd);
int __wrap_close(int fd);

int __wrap_clock_gettime(clockid_t id, struct timespec *time)
{
    int64_t ms = id == CLOCK_REALTIME ? now + INT64_C(1700000000000) : now;
    *time = (struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    return 0;
}

int __wrap_timerfd_create(int clock, int flags)
{
    (void)clock, (void)flags;
    alarms[fds % TIMERS] = 0;
    return FD + (int)(fds++ % TIMERS);
}

int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *at, struct itimerspec *old)
{
    (void)flags, (void)old;
    alarms[fd - FD] = at->it_value.tv_sec * 1000 + (at->it_value.tv_nsec + 999999) / 1000000;
    return 0;
}

ssize_t __wrap_read(int fd, void *buffer, size_t size)
{
    if (fd < FD) {
        return __real_read(fd, buffer, size);
    }
    alarms[fd - FD] = 0;
    return (ssize_t)size;
}

int __wrap_close(int fd)
{
    return fd < FD ? __real_close(fd) : 0;
}

void ev_timer_start(struct ev_loop *loop, ev_timer *w)
{
    if (!w->active) {
        w->active = 1;
        w->at = (double)now + w->at * 1e3;
        g_ptr_array_add(loop->timers, w);
    }
}

void ev_timer_stop(struct ev_loop *loop, ev_timer *w)
{
    if (w->active) {
        w->active = 0;
        g_ptr_array_remove(loop->timers, w);
    }
}

void ev_io_start(struct ev_loop *loop, ev_io *w)
{
    w->active = 1;
    g_ptr_array_add(loop->ios, w);
}

void ev_io_stop(struct ev_loop *loop, ev_io *w)
{
    w->active = 0;
    g_ptr_array_remove(loop->ios, w);
}

void ev_prepare_start(struct ev_loop *loop, ev_prepare *w)
{
    w->active = 1;
    g_ptr_array_add(loop->prepares, w);
}

void ev_prepare_stop(struct ev_loop *loop, ev_prepare *w)
{
    w->active = 0;
    g_ptr_array_remove(loop->prepares, w);
    g_ptr_array_remove(loop->fed, w);
}

void ev_feed_event(struct ev_loop *loop, void *w, int events)
{
    (void)events;
    if (!g_ptr_array_find(loop->fed, w, NULL)) {
        g_ptr_array_add(loop->fed, w);
    }
}

/* One turn: timers and descriptors that are due, then what runs before the loop would sleep. */
static void loop_turn(struct ev_loop *loop)
{
    for (guint i = 0; i < loop->timers->len; i++) {
        ev_timer *w = loop->timers->pdata[i];
        if ((int64_t)(w->at + 0.5) <= now) {
            ev_timer_stop(loop, w);
            w->at = 0;
            w->cb(loop, w, EV_TIMER);
            break; /* the list has changed; the rest comes with the next turn */
        }
    }
    for (guint i = 0; i < loop->ios->len; i++) {
        ev_io *w = loop->ios->pdata[i];
        if (alarms[w->fd - FD] && alarms[w->fd - FD] <= now) {
            w->cb(loop, w, EV_READ);
        }
    }
    g_ptr_array_set_size(loop->fed, 0);
    for (guint i = 0; i < loop->prepares->len; i++) {
        ev_prepare *w = loop->prepares->pdata[i];
        w->cb(loop, w, EV_PREPARE);
    }
}

static int64_t loop_next(const struct ev_loop *loop)
{
    int64_t next = INT64_MAX;
    for (guint i = 0; i < loop->timers->len; i++) {
        next = MIN(next, (int64_t)(((ev_timer *)loop->timers->pdata[i])->at + 0.5));
    }
    for (guint i = 0; i < loop->ios->len; i++) {
        int64_t at = alarms[((ev_io *)loop->ios->pdata[i])->fd - FD];
        next = at ? MIN(next, at) : next;
    }
    return loop->fed->len ? now : next;
}

static int at_most(int most)
{
    return g_rand_int_range(chance, 0, most + 1);
}

static bool with_chance(int permille)
{
    return at_most(999) < permille;
}

static void random_bytes(void *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        ((uint8_t *)bytes)[i] = (uint8_t)g_rand_int(chance);
    }
}

/* --- users, and the judge --- */

enum state { IDLE, ASKING, WAITING, HOLDS, LEAVING };

struct user {
    unsigned index, mount, name;
    enum state state;
    struct backend_ticket *ticket;
    enum backend_mode mode;
    enum backend_kind kind;
    uint64_t start, end; /* of FCNTL */
    bool waits;
    bool changing, moving; /* a conversion, or a rename, is pending */
    uint64_t floor;        /* the tokens that had been granted when it asked */
    unsigned new_name;
    enum backend_mode new_mode;
    bool renews;
    bool revoked;           /* its name is, or was, being broken: it may have lost the lock already */
    clock_ms blocked_since; /* promptness */
};

static struct user users[USERS];
static struct backend *backends[MOUNTS];
static struct model_link *links[MOUNTS];
static struct model *model;
static uint64_t last_token[NAMES];
static unsigned revoking[NAMES];
static bool was_ours[NAMES];         /* one of the users had it last, not the other client */
static int64_t foreign_until[NAMES]; /* the other client relies on it until then; 0: no */
static unsigned long complaints;
static uint32_t seed;
static unsigned grants, ends, restarts_seen;
static bool forgetful, calm_world;

static const char *const names[NAMES] = {"a", "b", "d/c", "d/e-0000000001"};

static void complain(const char *what, unsigned name)
{
    complaints++;
    printf("seed %u, %ld ms: %s: %s\n", seed, (long)now - 1000000, names[name], what);
    if (getenv("RECORD_ABORT")) {
        abort();
    }
}

static void say(const char *what, const struct user *u)
{
    if (verbose) {
        printf("%8ld mount %u user %u %s %c%u: %s\n", (long)now - 1000000, u->mount, u->index, names[u->name],
               u->mode == BACKEND_SHARED ? 's' : 'x', u->kind, what);
    }
}

/* Does the user rely on the lock now?  While it is renamed, on neither name. */
static bool relies(const struct user *u)
{
    return u->state == HOLDS && !u->moving && !u->revoked && u->ticket->deadline > now;
}

/* While a conversion to shared is pending it is shared already. */
static bool is_shared(const struct user *u)
{
    return u->mode == BACKEND_SHARED || (u->changing && u->new_mode == BACKEND_SHARED);
}

static bool excludes(const struct user *a, const struct user *b)
{
    bool shared = is_shared(a) && is_shared(b);
    bool ranges = a->kind == BACKEND_FCNTL && b->kind == BACKEND_FCNTL;
    return a->name == b->name && !shared && (!ranges || (a->start <= b->end && b->start <= a->end));
}

static void judge_holders(const struct user *u)
{
    for (unsigned i = 0; i < USERS; i++) {
        const struct user *other = &users[i];
        if (other != u && relies(u) && relies(other) && excludes(u, other)) {
            if (verbose) {
                printf("users %u and %u\n", u->index, other->index);
            }
            complain("two holders", u->name);
        }
    }
    if (relies(u) && foreign_until[u->name] > now) {
        complain("a holder beside another client", u->name);
    }
}

static void judge_grant(struct user *u)
{
    grants++;
    was_ours[u->name] = true;
    u->revoked = revoking[u->name] > 0;
    if (u->ticket->fence <= u->floor) {
        complain("a token that is not above one that was granted before the call", u->name);
    }
    last_token[u->name] = MAX(last_token[u->name], u->ticket->fence);
    judge_holders(u);
}

/* --- calls --- */

static void set_state(struct user *u, enum state state)
{
    u->state = state;
    u->revoked = u->revoked && state == HOLDS;
    u->blocked_since = now;
}

static void on_acquired(void *arg, enum backend_result result, struct backend_ticket *ticket,
                        const struct backend_info *holder)
{
    struct user *u = arg;
    (void)holder;
    if (u->state != ASKING) {
        complain("an answer that nobody waits for", u->name);
    }
    u->ticket = ticket;
    say(backend_result_name(result), u);
    set_state(u, result == BACKEND_OK ? HOLDS : result == BACKEND_QUEUED ? WAITING : IDLE);
    if (result == BACKEND_OK) {
        judge_grant(u);
    }
}

static void ask(struct user *u)
{
    struct backend_claim claim = {.user = u, .handle = u->index + 1};
    u->name = (unsigned)at_most(NAMES - 1);
    u->floor = last_token[u->name];
    u->mode = at_most(2) ? BACKEND_EXCLUSIVE : BACKEND_SHARED;
    u->kind = at_most(3) ? BACKEND_FLOCK : at_most(1) ? BACKEND_LEASE : BACKEND_FCNTL;
    u->waits = at_most(3) != 0;
    u->renews = with_chance(800);
    u->start = u->kind == BACKEND_FCNTL ? (uint64_t)at_most(3) * 10 : 0;
    u->end = u->kind == BACKEND_FCNTL ? u->start + 14 : BACKEND_RANGE_MAX;
    claim.kind = u->kind;
    claim.mode = u->mode;
    claim.wait = u->waits;
    claim.start = u->start;
    claim.end = u->end;
    claim.lock_owner = u->kind == BACKEND_FCNTL ? u->index + 1 : 0;
    claim.ttl = at_most(9) ? 400 + at_most(2600) : 15000;
    claim.due = claim.ttl / 3;
    claim.content = with_chance(50) ? g_bytes_new_take(g_malloc0(3000), 3000) : NULL;
    set_state(u, ASKING);
    say("asks", u);
    struct backend_ticket *ticket = backend_acquire(backends[u->mount], names[u->name], &claim, on_acquired, u);
    if (u->state == ASKING) {
        u->ticket = ticket;
    }
    if (claim.content) {
        g_bytes_unref(claim.content);
    }
}

static void on_released(void *arg, enum backend_result result)
{
    struct user *u = arg;
    (void)result;
    say("released", u);
    set_state(u, IDLE);
}

static void leave(struct user *u)
{
    struct backend_ticket *ticket = u->ticket;
    say("leaves", u);
    u->ticket = NULL;
    u->changing = u->moving = false;
    set_state(u, LEAVING);
    backend_release(backends[u->mount], ticket, on_released, u);
}

static void on_converted(void *arg, enum backend_result result)
{
    struct user *u = arg;
    if (u->changing && u->state == HOLDS) {
        say(result == BACKEND_OK ? "converted" : "not converted", u);
        u->changing = false;
        u->mode = result == BACKEND_OK ? u->new_mode : u->mode;
        judge_holders(u);
    }
}

static void convert(struct user *u)
{
    struct backend_claim claim = {.user = u, .kind = BACKEND_FLOCK, .handle = u->index + 1, .ttl = u->ticket->ttl};
    claim.due = claim.ttl / 3;
    if (u->kind == BACKEND_FCNTL) {
        return;
    }
    u->new_mode = claim.mode = at_most(1) ? BACKEND_SHARED : BACKEND_EXCLUSIVE;
    u->kind = BACKEND_FLOCK;
    u->changing = true;
    say(claim.mode == BACKEND_SHARED ? "converts to shared" : "converts to exclusive", u);
    backend_convert(backends[u->mount], u->ticket, &claim, on_converted, u);
}

static void on_renamed(void *arg, enum backend_result result)
{
    struct user *u = arg;
    if (u->moving && u->state == HOLDS) {
        u->moving = false;
        u->name = result == BACKEND_OK ? u->new_name : u->name;
        say(result == BACKEND_OK ? "renamed" : "not renamed", u);
        last_token[u->name] = MAX(last_token[u->name], u->ticket->fence);
        judge_holders(u);
    }
}

static void move(struct user *u)
{
    u->new_name = (unsigned)at_most(NAMES - 1);
    if (u->new_name == u->name || u->kind == BACKEND_FCNTL) {
        return;
    }
    u->moving = true;
    say("moves", u);
    backend_rename(backends[u->mount], u->ticket, names[u->new_name], NULL, on_renamed, u);
}

static void on_revoked(void *arg, enum backend_result result)
{
    unsigned *pending = arg;
    if (result != BACKEND_UNREACHABLE) { /* then it may still be done */
        --*pending;
        foreign_until[pending - revoking] = 0;
    }
}

static void break_lock(unsigned mount, unsigned name, uint64_t fence)
{
    for (unsigned i = 0; i < USERS; i++) {
        users[i].revoked = users[i].revoked || users[i].name == name || (users[i].moving && users[i].new_name == name);
    }
    revoking[name]++;
    backend_revoke(backends[mount], names[name], fence, on_revoked, &revoking[name]);
}

static void on_done(void *arg, enum backend_result result)
{
    (void)arg, (void)result;
}

static void set(struct user *u)
{
    struct backend_change change = {.set = BACKEND_SET_CONTENT};
    size_t size = at_most(1) ? 20 : 2000;
    change.content = g_bytes_new_take(g_malloc0(size), size);
    backend_set(backends[u->mount], u->ticket, &change, on_done, u);
    g_bytes_unref(change.content);
}

/* --- events --- */

static void on_granted(void *context, struct backend_ticket *ticket)
{
    struct user *u = ticket->user;
    (void)context;
    if (u->state != WAITING || u->ticket != ticket) {
        complain("a grant that nobody waits for", u->name);
        return;
    }
    say("granted", u);
    set_state(u, HOLDS);
    judge_grant(u);
}

static void on_due(void *context, struct backend_ticket *ticket)
{
    struct user *u = ticket->user;
    const struct backend_renewal renewal = {.ticket = ticket, .ttl = ticket->ttl, .due = ticket->ttl / 3};
    (void)context;
    if (u->renews || u->state == WAITING) {
        backend_renew(backends[u->mount], &renewal, 1);
    }
}

static void on_ended(void *context, struct backend_ticket *ticket, enum backend_end why)
{
    struct user *u = ticket->user;
    (void)context, (void)why;
    ends++;
    say("ended", u);
    if (u->ticket != ticket) {
        complain("the end of a ticket that is gone", u->name);
    }
    u->ticket = NULL;
    u->changing = u->moving = false;
    set_state(u, IDLE);
}

static void on_wanted(void *context, struct backend_ticket *ticket)
{
    (void)context, (void)ticket;
}

static const struct backend_events events = {
    .granted = on_granted, .due = on_due, .ended = on_ended, .wanted = on_wanted};

/* --- the world --- */

static void act(struct user *u, bool calm)
{
    switch (u->state) {
    case IDLE:
        if (!calm) {
            ask(u);
        }
        break;
    case WAITING:
        if (!calm && with_chance(60)) {
            leave(u);
        }
        break;
    case HOLDS:
        if (calm || with_chance(400)) {
            leave(u);
        } else if (!u->changing && !u->moving && with_chance(250)) {
            convert(u);
        } else if (!u->changing && !u->moving && with_chance(100)) {
            move(u);
        } else if (with_chance(80)) {
            break_lock((unsigned)at_most(MOUNTS - 1), u->name, at_most(1) ? u->ticket->fence : 0);
        } else if (with_chance(100)) {
            set(u);
        }
        break;
    default:
        break;
    }
}

static void act_foreign(unsigned name)
{
    if (foreign_until[name] > now && with_chance(300)) {
        model_foreign_release(model, names[name]);
        foreign_until[name] = 0;
    } else if (foreign_until[name] <= now) {
        int64_t ttl = 300 + at_most(1000);
        if (model_foreign_take(model, names[name], ttl)) {
            foreign_until[name] = now + ttl;
            for (unsigned i = 0; i < USERS && calm_world && was_ours[name]; i++) {
                if (users[i].state == WAITING && users[i].name == name) {
                    complain("another client that polls comes before a waiter", name);
                }
            }
            was_ours[name] = false;
            for (unsigned i = 0; i < USERS; i++) {
                if (users[i].name == name) {
                    judge_holders(&users[i]);
                }
            }
        }
    }
}

static void fault(unsigned kinds)
{
    unsigned mount = (unsigned)at_most(MOUNTS - 1);
    switch (at_most((int)kinds)) {
    case 0:
        link_be_slow(links[mount], at_most(80));
        break;
    case 1:
        link_lose_next(links[mount]);
        break;
    case 2:
        link_be_deaf(links[mount]);
        break;
    case 3:
        link_stop(links[mount]);
        break;
    case 4:
        link_cut(links[mount], at_most(1));
        break;
    case 5:
        loops[mount].paused_until = now + at_most(at_most(5) ? 1500 : 9000);
        break;
    case 6:
        model_step_clock(model, -at_most(700));
        break;
    case 7:
        model_run_late(model);
        model_answer_again(model, (unsigned)at_most(6));
        break;
    case 8:
        link_continue(links[mount]);
        link_cut(links[mount], false);
        break;
    case 9:
        link_continue(links[mount]);
        link_cut(links[mount], false);
        break;
    default:
        if (forgetful && restarts_seen < 3) {
            restarts_seen++;
            model_restart(model, at_most(1));
        }
    }
}

static void advance(int64_t until)
{
    while (now <= until) {
        int64_t next = until + 1;
        unsigned first = (unsigned)at_most(MOUNTS - 1);
        for (unsigned i = 0; i < MOUNTS; i++) {
            struct ev_loop *loop = &loops[(first + i) % MOUNTS];
            if (loop->paused_until > now) {
                next = MIN(next, loop->paused_until);
                continue;
            }
            if (loop_next(loop) <= now) {
                loop_turn(loop);
            }
            next = MIN(next, loop_next(loop));
        }
        now = MAX(next, now);
        if (next > until) {
            now = until + 1;
        }
    }
}

static void heal(void)
{
    for (unsigned i = 0; i < MOUNTS; i++) {
        loops[i].paused_until = 0;
        link_continue(links[i]);
        link_cut(links[i], false);
    }
    model_lose_messages(model, 0, 1);
    model_answer_again(model, 0);
    advance(now + 200);
    model_run_late(model);
}

/* The faults are over: who holds lets go, and every waiter gets its lock. */
static void judge_end(void)
{
    int64_t until = now + 6 * PROMPT;
    unsigned busy = 1;
    for (unsigned i = 0; i < USERS; i++) {
        users[i].blocked_since = now;
    }
    while (busy && now < until) {
        advance(now + 50);
        busy = 0;
        for (unsigned i = 0; i < USERS; i++) {
            struct user *u = &users[i];
            act(u, true);
            busy += u->state != IDLE;
            bool first = u->state == WAITING;
            for (unsigned k = 0; k < USERS && first; k++) {
                first = users[k].state != HOLDS || users[k].name != u->name;
                if (!first) {
                    u->blocked_since = now;
                }
            }
            if (first && now - u->blocked_since > PROMPT) {
                complain("a waiter that nobody grants the free lock", u->name);
                return;
            }
        }
    }
    for (unsigned i = 0; i < USERS; i++) {
        if (users[i].state != IDLE) {
            complain(users[i].state == ASKING    ? "a call that is not answered"
                     : users[i].state == LEAVING ? "a release that is not answered"
                                                 : "a lock that does not end",
                     users[i].name);
        }
    }
    advance(now + 70000);
    if (model_count(model, STORE_LOCK) + model_count(model, STORE_QUEUE) + model_count(model, STORE_CONTENT) > 0) {
        printf("# %u locks, %u queues, %u contents\n", model_count(model, STORE_LOCK), model_count(model, STORE_QUEUE),
               model_count(model, STORE_CONTENT));
        complain("values of names that are free", 0);
    }
}

static void on_made(void *arg, enum backend_result result)
{
    (void)result;
    *(bool *)arg = true;
}

static void run_world(uint32_t number)
{
    struct backend_directory directory = {.width = 1};
    bool made = false;
    seed = number;
    chance = g_rand_new_with_seed(number);
    now = 1000000;
    forgetful = number % 3 == 0;
    calm_world = number % 6 == 1; /* no faults, and another client */
    bool foreign = number % 3 == 1;
    unsigned kinds = number % 2 ? 9 : 11;
    restarts_seen = 0;
    memset(users, 0, sizeof users);
    memset(last_token, 0, sizeof last_token);
    memset(foreign_until, 0, sizeof foreign_until);
    memset(revoking, 0, sizeof revoking);
    memset(was_ours, 0, sizeof was_ours);
    model = model_new();
    model_lose_messages(model, number % 4 || calm_world ? 0 : 150, number);
    for (unsigned i = 0; i < MOUNTS; i++) {
        const struct engine_options options = {.timeout = 3000,
                                               .term = 3000,
                                               .text = "1 1 host",
                                               .address = "model:",
                                               .random = random_bytes,
                                               .seed = number + i};
        loops[i] = (struct ev_loop){.timers = g_ptr_array_new(),
                                    .ios = g_ptr_array_new(),
                                    .prepares = g_ptr_array_new(),
                                    .fed = g_ptr_array_new()};
        engine_new(model_store(model, 1500, &links[i]), &options, &backends[i]);
        backend_start(backends[i], &loops[i], &events, NULL);
    }
    backend_mkdir(backends[0], "d", &directory, on_made, &made);
    advance(now + 500);
    if (!made) {
        complain("the first call is not answered", 0);
    }
    for (unsigned i = 0; i < USERS; i++) {
        users[i] = (struct user){.index = i, .mount = i % MOUNTS};
    }
    for (unsigned step = 0; step < 300; step++) {
        advance(now + at_most(60));
        act(&users[at_most(USERS - 1)], false);
        if (foreign && with_chance(calm_world ? 800 : 150)) {
            act_foreign((unsigned)at_most(2)); /* the fourth name stands in its directory's record */
        }
        if (!calm_world && with_chance(60)) {
            fault(kinds);
        }
    }
    heal();
    for (unsigned i = 0; i < NAMES; i++) {
        if (foreign_until[i] > now) {
            model_foreign_release(model, names[i]);
            foreign_until[i] = 0;
        }
    }
    judge_end();
    for (unsigned i = 0; i < MOUNTS; i++) {
        backend_free(backends[i]);
        g_ptr_array_unref(loops[i].timers);
        g_ptr_array_unref(loops[i].ios);
        g_ptr_array_unref(loops[i].prepares);
        g_ptr_array_unref(loops[i].fed);
    }
    model_free(model);
    g_rand_free(chance);
}

int main(int argc, char **argv)
{
    const char *given = getenv("RECORD_WORLDS");
    unsigned worlds = given ? (unsigned)atoi(given) : 200, first = 1;
    int option;
    while ((option = getopt(argc, argv, "n:s:v")) != -1) {
        if (option == 'v') {
            verbose = true;
        } else {
            *(option == 'n' ? &worlds : &first) = (unsigned)atoi(optarg);
        }
    }
    log_set_level(LOG_LEVEL_ERROR);
    for (unsigned i = 0; i < worlds && complaints < 5; i++) {
        run_world(first + i);
    }
    printf("# %u worlds, %u grants, %u ends\n", worlds, grants, ends);
    printf("%s 1 - no world has a complaint\n1..1\n", complaints ? "not ok" : "ok");
    return complaints ? EXIT_FAILURE : EXIT_SUCCESS;
}
