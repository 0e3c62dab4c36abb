/* loop: replaces libev; see loop.h. */
#include "tests/sim/loop.h"

#include <glib.h>
#include <setjmp.h>

#include "tests/sim/descriptor.h"
#include "tests/sim/task.h"

#define LOOP_PRIORITIES (EV_MAXPRI - EV_MINPRI + 1)

struct loop_pending {
    ev_watcher *watcher;
    int events;
};

struct ev_loop {
    struct host *host;
    const bool *halted;
    GPtrArray *ios, *timers, *idles, *prepares, *asyncs;
    GArray *pending[LOOP_PRIORITIES]; /* of struct loop_pending */
    int64_t now;                      /* CLOCK_MONOTONIC, as of the last look */
    int active;                       /* watchers that keep it running */
    bool done, running, turning;
    jmp_buf escape; /* out of the turn */
    bool stirred;   /* a callback ran: libev checks once more for events before it sleeps */
};

static void loop_look_at_clock(struct ev_loop *loop)
{
    loop->now = loop->host ? host_monotonic(loop->host) : world_now();
}

struct ev_loop *ev_loop_new(unsigned flags)
{
    struct ev_loop *loop = g_new0(struct ev_loop, 1);
    GPtrArray **lists[] = {&loop->ios, &loop->timers, &loop->idles, &loop->prepares, &loop->asyncs};
    (void)flags;
    for (size_t i = 0; i < G_N_ELEMENTS(lists); i++) {
        *lists[i] = g_ptr_array_new();
    }
    for (size_t i = 0; i < LOOP_PRIORITIES; i++) {
        loop->pending[i] = g_array_new(FALSE, FALSE, sizeof(struct loop_pending));
    }
    loop->host = world_host();
    loop->stirred = true;
    loop_look_at_clock(loop);
    world_add_loop(loop);
    return loop;
}

void loop_abandon(struct ev_loop *loop)
{
    world_remove_loop(loop);
}

void ev_loop_destroy(struct ev_loop *loop)
{
    GPtrArray *lists[] = {loop->ios, loop->timers, loop->idles, loop->prepares, loop->asyncs};
    world_remove_loop(loop);
    for (size_t i = 0; i < G_N_ELEMENTS(lists); i++) {
        g_ptr_array_free(lists[i], TRUE);
    }
    for (size_t i = 0; i < LOOP_PRIORITIES; i++) {
        g_array_free(loop->pending[i], TRUE);
    }
    g_free(loop);
}

void loop_belongs_to(struct ev_loop *loop, struct host *host, const bool *halted)
{
    loop->host = host;
    loop->halted = halted;
    loop_look_at_clock(loop);
}

void ev_ref(struct ev_loop *loop)
{
    loop->active++;
}

void ev_unref(struct ev_loop *loop)
{
    loop->active--;
}

void ev_break(struct ev_loop *loop, int how)
{
    (void)how;
    loop->done = true;
}

void ev_now_update(struct ev_loop *loop)
{
    loop_look_at_clock(loop);
}

/* --- watchers ------------------------------------------------------------------- */

static void loop_start(struct ev_loop *loop, GPtrArray *list, void *pointer)
{
    ev_watcher *watcher = pointer;
    if (!watcher->active) {
        watcher->active = 1;
        loop->active++;
        g_ptr_array_add(list, watcher);
    }
}

static void loop_stop(struct ev_loop *loop, GPtrArray *list, void *pointer)
{
    ev_watcher *watcher = pointer;
    ev_clear_pending(loop, watcher);
    if (watcher->active) {
        watcher->active = 0;
        loop->active--;
        g_ptr_array_remove(list, watcher);
    }
}

void ev_io_start(struct ev_loop *loop, ev_io *w)
{
    loop_start(loop, loop->ios, w);
}

void ev_io_stop(struct ev_loop *loop, ev_io *w)
{
    loop_stop(loop, loop->ios, w);
}

/* `at` is after how many seconds until it is started, then when by the loop's clock. */
void ev_timer_start(struct ev_loop *loop, ev_timer *w)
{
    if (!w->active) {
        w->at += (double)loop->now / 1e9;
        loop_start(loop, loop->timers, w);
    }
}

void ev_timer_stop(struct ev_loop *loop, ev_timer *w)
{
    if (w->active) {
        w->at -= (double)loop->now / 1e9;
    }
    loop_stop(loop, loop->timers, w);
}

void ev_timer_again(struct ev_loop *loop, ev_timer *w)
{
    ev_timer_stop(loop, w);
    if (w->repeat > 0) {
        w->at = w->repeat;
        ev_timer_start(loop, w);
    }
}

void ev_idle_start(struct ev_loop *loop, ev_idle *w)
{
    loop_start(loop, loop->idles, w);
}

void ev_idle_stop(struct ev_loop *loop, ev_idle *w)
{
    loop_stop(loop, loop->idles, w);
}

void ev_prepare_start(struct ev_loop *loop, ev_prepare *w)
{
    loop_start(loop, loop->prepares, w);
}

void ev_prepare_stop(struct ev_loop *loop, ev_prepare *w)
{
    loop_stop(loop, loop->prepares, w);
}

void ev_async_start(struct ev_loop *loop, ev_async *w)
{
    w->sent = 0;
    loop_start(loop, loop->asyncs, w);
}

void ev_async_stop(struct ev_loop *loop, ev_async *w)
{
    loop_stop(loop, loop->asyncs, w);
}

void ev_async_send(struct ev_loop *loop, ev_async *w)
{
    (void)loop;
    w->sent = 1;
}

/* --- what is pending --------------------------------------------------------------- */

static GArray *loop_pending_of(struct ev_loop *loop, const ev_watcher *watcher)
{
    return loop->pending[watcher->priority - EV_MINPRI];
}

void ev_feed_event(struct ev_loop *loop, void *pointer, int events)
{
    ev_watcher *watcher = pointer;
    GArray *pending = loop_pending_of(loop, watcher);
    for (guint i = 0; i < pending->len && watcher->pending; i++) {
        struct loop_pending *p = &g_array_index(pending, struct loop_pending, i);
        if (p->watcher == watcher) {
            p->events |= events;
            return;
        }
    }
    watcher->pending = 1;
    g_array_append_val(pending, ((struct loop_pending){watcher, events}));
}

int ev_clear_pending(struct ev_loop *loop, void *pointer)
{
    ev_watcher *watcher = pointer;
    GArray *pending = loop_pending_of(loop, watcher);
    for (guint i = 0; i < pending->len && watcher->pending; i++) {
        const struct loop_pending *p = &g_array_index(pending, struct loop_pending, i);
        if (p->watcher == watcher) {
            int events = p->events;
            watcher->pending = 0;
            g_array_remove_index(pending, i);
            return events;
        }
    }
    return 0;
}

unsigned ev_pending_count(struct ev_loop *loop)
{
    unsigned count = 0;
    for (size_t i = 0; i < LOOP_PRIORITIES; i++) {
        count += loop->pending[i]->len;
    }
    return count;
}

/* The highest first; those that come meanwhile count. */
static void loop_invoke(struct ev_loop *loop)
{
    for (int priority = LOOP_PRIORITIES - 1; priority >= 0; priority--) {
        GArray *pending = loop->pending[priority];
        if (pending->len) {
            guint chosen = pending->len == 1 ? 0 : world_below(pending->len);
            struct loop_pending next = g_array_index(pending, struct loop_pending, chosen);
            g_array_remove_index(pending, chosen);
            next.watcher->pending = 0;
            loop->stirred = true;
            next.watcher->cb(loop, next.watcher, next.events);
            priority = LOOP_PRIORITIES;
        }
    }
}

static int loop_ready(const ev_io *io)
{
    return descriptor_ready(io->fd) & io->events & (EV_READ | EV_WRITE);
}

static int64_t loop_timer_at(const ev_timer *timer)
{
    return (int64_t)(timer->at * 1e9);
}

static void loop_feed_ready(struct ev_loop *loop)
{
    for (guint i = 0; i < loop->ios->len; i++) {
        ev_io *io = g_ptr_array_index(loop->ios, i);
        int events = loop_ready(io);
        if (events) {
            ev_feed_event(loop, io, events);
        }
    }
    for (guint i = 0; i < loop->asyncs->len; i++) {
        ev_async *async = g_ptr_array_index(loop->asyncs, i);
        if (async->sent) {
            async->sent = 0;
            ev_feed_event(loop, async, EV_ASYNC);
        }
    }
    for (guint i = loop->timers->len; i-- > 0;) {
        ev_timer *timer = g_ptr_array_index(loop->timers, i);
        if (loop_timer_at(timer) <= loop->now) {
            ev_feed_event(loop, timer, EV_TIMER);
            if (timer->repeat > 0) {
                timer->at = MAX(timer->at + timer->repeat, (double)loop->now / 1e9);
                continue;
            }
            timer->active = 0;
            loop->active--;
            g_ptr_array_remove_index(loop->timers, i);
        }
    }
}

/* Of the highest priority that has any, if nothing of that or a higher one is pending. */
static void loop_feed_idle(struct ev_loop *loop)
{
    for (int priority = EV_MAXPRI; priority >= EV_MINPRI; priority--) {
        bool found = false;
        if (loop->pending[priority - EV_MINPRI]->len) {
            return;
        }
        for (guint i = 0; i < loop->idles->len; i++) {
            ev_idle *idle = g_ptr_array_index(loop->idles, i);
            if (idle->priority == priority) {
                ev_feed_event(loop, idle, EV_IDLE);
                found = true;
            }
        }
        if (found) {
            return;
        }
    }
}

/* --- running ------------------------------------------------------------------------- */

static bool loop_is_ready(const struct ev_loop *loop)
{
    if (loop->stirred || loop->idles->len || ev_pending_count((struct ev_loop *)loop)) {
        return true;
    }
    for (guint i = 0; i < loop->asyncs->len; i++) {
        if (((const ev_async *)g_ptr_array_index(loop->asyncs, i))->sent) {
            return true;
        }
    }
    for (guint i = 0; i < loop->ios->len; i++) {
        if (loop_ready(g_ptr_array_index(loop->ios, i))) {
            return true;
        }
    }
    int64_t now = loop->host ? host_monotonic(loop->host) : world_now();
    for (guint i = 0; i < loop->timers->len; i++) {
        if (loop_timer_at(g_ptr_array_index(loop->timers, i)) <= now) {
            return true;
        }
    }
    return false;
}

static bool loop_is_halted(const struct ev_loop *loop)
{
    return loop->running || (loop->halted && *loop->halted) || (loop->host && loop->host->suspended);
}

bool loop_has_work(const struct ev_loop *loop)
{
    return !loop_is_halted(loop) && loop_is_ready(loop);
}

int64_t loop_next(const struct ev_loop *loop)
{
    int64_t next = WORLD_NEVER;
    if ((loop->halted && *loop->halted) || (loop->host && loop->host->suspended)) {
        return WORLD_NEVER;
    }
    for (guint i = 0; i < loop->timers->len; i++) {
        next = MIN(next, loop_timer_at(g_ptr_array_index(loop->timers, i)));
    }
    next = next == WORLD_NEVER || !loop->host ? next : host_monotonic_at(loop->host, next);
    for (guint i = 0; i < loop->ios->len; i++) {
        const ev_io *io = g_ptr_array_index(loop->ios, i);
        next = MIN(next, descriptor_next(io->fd, loop->host));
    }
    return next;
}

static void loop_run_once(struct ev_loop *loop, bool wait)
{
    bool former = loop->running;
    loop->running = true;
    for (guint i = 0; i < loop->prepares->len; i++) {
        ev_feed_event(loop, g_ptr_array_index(loop->prepares, i), EV_PREPARE);
    }
    loop_invoke(loop);
    loop->stirred = false;
    while (wait && !loop_is_ready(loop)) {
        if (!world_step(WORLD_NEVER - 1)) {
            world_fail("hang", "a daemon waits for what will never come");
        }
    }
    loop_look_at_clock(loop);
    loop_feed_ready(loop);
    loop_feed_idle(loop);
    loop_invoke(loop);
    loop->running = former;
}

int ev_run(struct ev_loop *loop, int flags)
{
    loop->done = false;
    do {
        loop_run_once(loop, !(flags & EVRUN_NOWAIT));
    } while (!flags && !loop->done && loop->active > 0);
    return loop->active;
}

void loop_turn(struct ev_loop *loop)
{
    struct host *former = world_enter(loop->host);
    struct task_maker maker = task_set_maker((struct task_maker){loop->host, loop->halted});
    if (setjmp(loop->escape) == 0) {
        loop->turning = true;
        ev_run(loop, EVRUN_NOWAIT);
    }
    loop->turning = false;
    task_set_maker(maker);
    world_enter(former);
}

bool loop_is_running(const struct ev_loop *loop)
{
    return loop->running;
}

void loop_escape(struct ev_loop *loop)
{
    if (loop->turning) {
        longjmp(loop->escape, 1);
    }
}
