/* loop: reports events from the loop, and sets the alarm for the next deadline.
 *
 * The lockspace reports events inside the calls that cause them.  They wait here,
 * merged by ticket, and are reported before the loop sleeps.  Completions that wait
 * for a sync are events too.  One turn of the loop handles a limited number, so that
 * a million leases that expire together do not keep a request waiting.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "backend/local/private.h"
#include "backend/log.h"

#define TICK_MAX 64 /* tickets ended, and events reported, in one turn of the loop */
#define UNCOMMITTED UINT64_MAX

/* In the order in which they are reported. */
enum {
    EVENT_DONE = 1, /* a completion without a ticket */
    EVENT_ACQUIRED = 2,
    EVENT_GRANTED = 4,
    EVENT_WANTED = 8,
    EVENT_DUE = 16,
    EVENT_ENDED = 32,
    EVENT_GONE = 64, /* a guard has ended */
};

struct local_event {
    TAILQ_ENTRY(local_event) link;
    struct backend_ticket *ticket; /* NULL for EVENT_DONE and EVENT_GONE */
    char *name;                    /* of EVENT_GONE */
    uint64_t sequence;             /* reported once the journal is synced up to here */
    unsigned flags;
    bool lost;   /* the journal failed before that */
    bool unkept; /* EVENT_GRANTED: the journal had no room for it */
    enum backend_end why;
    enum backend_result result, if_lost;
    backend_done *done;
    backend_acquire_done *acquire_done;
    void *arg;
};

/* --- events --- */

static struct local_event *loop_find(struct local *l, const struct backend_ticket *ticket)
{
    return g_hash_table_size(l->pending) ? g_hash_table_lookup(l->pending, ticket) : NULL;
}

/* Puts the event on the list for its sequence; ready events are reported in the next turn of the loop. */
static void loop_enqueue(struct local *l, struct local_event *event)
{
    if (event->sequence) {
        TAILQ_INSERT_TAIL(&l->unsynced, event, link);
    } else {
        TAILQ_INSERT_TAIL(&l->ready, event, link);
        if (l->loop) {
            ev_feed_event(l->loop, &l->prepare, EV_PREPARE);
        }
    }
}

static void loop_dequeue(struct local *l, struct local_event *event)
{
    if (event->sequence) {
        TAILQ_REMOVE(&l->unsynced, event, link);
    } else {
        TAILQ_REMOVE(&l->ready, event, link);
    }
}

static void loop_remove(struct local *l, struct local_event *event)
{
    loop_dequeue(l, event);
    if (event->ticket) {
        g_hash_table_remove(l->pending, event->ticket);
    }
    g_free(event->name);
    g_free(event);
}

static struct local_event *loop_add(struct local *l, struct backend_ticket *ticket, unsigned flag)
{
    struct local_event *event = loop_find(l, ticket);
    if (!event) {
        event = g_new0(struct local_event, 1);
        event->ticket = ticket;
        g_hash_table_insert(l->pending, ticket, event);
        loop_enqueue(l, event);
    }
    event->flags |= flag;
    return event;
}

static void loop_granted(void *context, struct backend_ticket *ticket)
{
    struct local *l = context;
    struct local_event *event = loop_add(l, ticket, EVENT_GRANTED);
    if (!local_is_kept(l, ticket->kind)) {
        return;
    }
    event->unkept = local_store_put_granted(l->store, ticket) != BACKEND_OK;
    if (l->sync_always && ticket->kind == BACKEND_LEASE) {
        loop_dequeue(l, event);
        event->sequence = UNCOMMITTED;
        loop_enqueue(l, event);
    }
}

static void loop_due(void *context, struct backend_ticket *ticket)
{
    loop_add(context, ticket, EVENT_DUE);
}

static void loop_wanted(void *context, struct backend_ticket *ticket)
{
    loop_add(context, ticket, EVENT_WANTED);
}

static void loop_ended(void *context, struct backend_ticket *ticket, enum backend_end why)
{
    struct local *l = context;
    loop_add(l, ticket, EVENT_ENDED)->why = why;
    if (local_is_recorded(l, ticket) && !ticket->guarded) {
        local_store_put_end(l->store, ticket->fence, ticket->kind);
    }
}

static void loop_guarded(void *context, struct backend_ticket *ticket)
{
    struct local *l = context;
    if (local_is_kept(l, ticket->kind)) {
        local_store_put_granted(l->store, ticket);
    }
}

static void loop_unguarded(void *context, struct backend_ticket *ticket)
{
    struct local *l = context;
    char name[LOCAL_NAME_MAX];
    if (local_is_kept(l, ticket->kind)) {
        local_store_put_end(l->store, ticket->fence, ticket->kind);
    }
    if (lockspace_ticket_name(ticket, name, sizeof(name))) {
        struct local_event *event = g_new0(struct local_event, 1);
        *event = (struct local_event){.flags = EVENT_GONE, .name = g_strdup(name)};
        loop_enqueue(l, event);
    }
}

static void loop_absorbed(void *context, struct backend_ticket *ticket)
{
    local_forget(context, ticket);
}

const struct lockspace_listener local_listener = {
    .granted = loop_granted,
    .due = loop_due,
    .ended = loop_ended,
    .wanted = loop_wanted,
    .absorbed = loop_absorbed,
    .guarded = loop_guarded,
    .unguarded = loop_unguarded,
};

enum backend_result local_may_grant(struct local *l, const char *name, bool kept)
{
    if (strlen(name) >= LOCAL_NAME_MAX - 32) { /* room for the number of a sequence ticket */
        return BACKEND_INVALID;
    }
    if (!l->store || !local_store_failed(l->store)) { /* a failed journal cannot reserve tokens: save those left */
        lockspace_raise_fence(l->space, clock_wall_us());
    }
    if (!l->store) {
        return BACKEND_OK;
    }
    if (kept && local_store_failed(l->store)) {
        return BACKEND_UNREACHABLE;
    }
    if (!local_store_may_number(l->store)) {
        return BACKEND_UNREACHABLE;
    }
    return kept ? local_store_may_keep(l->store) : BACKEND_OK;
}

uint64_t local_fence_sequence(struct local *l)
{
    return l->store ? local_store_fence_sequence(l->store) : 0;
}

enum backend_result local_commit(struct local *l, uint64_t *ret_sequence)
{
    enum backend_result result = BACKEND_OK;
    struct local_event *event;
    *ret_sequence = 0;
    if (l->store) {
        result = local_store_commit(l->store, ret_sequence);
    }
    if (!l->sync_always) {
        *ret_sequence = 0;
    }
    TAILQ_FOREACH_REVERSE(event, &l->unsynced, local_events, link) {
        if (event->sequence != UNCOMMITTED) {
            break;
        }
        event->sequence = MAX(*ret_sequence, 1);
    }
    return result;
}

bool local_has_ended(struct local *l, const struct backend_ticket *ticket)
{
    const struct local_event *event = loop_find(l, ticket);
    return ticket == l->reporting_end || (event && event->flags & EVENT_ENDED);
}

/* lockspace_claim for an FCNTL ticket whose grant is reported now; keeps the journal up to date. */
static void local_claim(struct local *l, struct backend_ticket *ticket)
{
    uint64_t fence = ticket->fence;
    lockspace_claim(l->space, clock_now(), ticket);
    if (l->store && ticket->fence != fence) {
        local_store_put_granted_as(l->store, ticket, fence);
    }
}

void local_forget(struct local *l, struct backend_ticket *ticket)
{
    struct local_event *event = loop_find(l, ticket);
    bool ended = event && event->flags & EVENT_ENDED;
    if (ticket == l->reporting_due) {
        l->reporting_due = NULL;
    }
    if (event) {
        loop_remove(l, event);
    }
    if (ended) {
        lockspace_ticket_free(ticket);
    }
}

void local_lose(struct local *l, clock_ms now, struct backend_ticket *ticket)
{
    char name[LOCAL_NAME_MAX];
    if (!lockspace_ticket_name(ticket, name, sizeof(name))) {
        return;
    }
    lockspace_revoke(l->space, now, name, ticket->fence);
    struct local_event *event = loop_find(l, ticket);
    if (event) {
        event->why = BACKEND_LOST;
    }
}

void local_complete_later(struct local *l, uint64_t sequence, backend_done *done, void *arg, enum backend_result result,
                          enum backend_result if_lost)
{
    struct local_event *event = g_new0(struct local_event, 1);
    *event = (struct local_event){
        .sequence = sequence, .flags = EVENT_DONE, .result = result, .if_lost = if_lost, .done = done, .arg = arg};
    loop_enqueue(l, event);
}

void local_complete(struct local *l, uint64_t sequence, backend_done *done, void *arg, enum backend_result result,
                    enum backend_result if_lost)
{
    if (!done) {
        return;
    }
    if (!sequence || local_store_synced(l->store) >= sequence) {
        done(arg, result);
    } else {
        local_complete_later(l, sequence, done, arg, result, if_lost);
    }
}

void local_complete_acquire(struct local *l, uint64_t sequence, backend_acquire_done *done, void *arg,
                            enum backend_result result, struct backend_ticket *ticket)
{
    if (!sequence || local_store_synced(l->store) >= sequence) {
        done(arg, result, ticket, NULL);
        return;
    }
    struct local_event *event = loop_add(l, ticket, EVENT_ACQUIRED);
    loop_dequeue(l, event);
    event->sequence = sequence;
    event->result = result;
    event->acquire_done = done;
    event->arg = arg;
    loop_enqueue(l, event);
}

/* --- reporting --- */

static void loop_report_acquired(struct local *l, const struct local_event *event)
{
    uint64_t sequence;
    if (!event->lost) {
        if (event->result == BACKEND_OK && event->ticket->kind == BACKEND_FCNTL && !local_has_ended(l, event->ticket)) {
            local_claim(l, event->ticket);
            local_commit(l, &sequence);
        }
        event->acquire_done(event->arg, event->result, event->ticket, NULL);
        return;
    }
    if (local_has_ended(l, event->ticket)) {
        local_forget(l, event->ticket);
    } else {
        local_forget(l, event->ticket);
        if (local_is_recorded(l, event->ticket)) {
            local_store_put_end(l->store, event->ticket->fence, event->ticket->kind);
        }
        lockspace_release(l->space, clock_now(), event->ticket);
        local_commit(l, &sequence);
    }
    event->acquire_done(event->arg, BACKEND_UNREACHABLE, NULL, NULL);
}

static void loop_report_granted(struct local *l, const struct local_event *event)
{
    bool unsafe =
        l->store && (event->unkept || (local_is_kept(l, event->ticket->kind) && local_store_failed(l->store)) ||
                     !local_store_in_place(l->store));
    bool ended = local_has_ended(l, event->ticket), joins = event->ticket->kind == BACKEND_FCNTL;
    uint64_t sequence;
    if (unsafe && !ended) {
        local_lose(l, clock_now(), event->ticket);
    } else if (joins && !ended) {
        local_claim(l, event->ticket);
    }
    local_commit(l, &sequence);
    if (unsafe || ended) {
        /* the grant is not in the journal, or another holds the lock by now: `ended` follows */
        event->ticket->held = false;
        return;
    }
    l->events->granted(l->context, event->ticket);
}

static void loop_report_ended(struct local *l, const struct local_event *event)
{
    l->reporting_end = event->ticket;
    l->events->ended(l->context, event->ticket, event->why);
    l->reporting_end = NULL;
    lockspace_ticket_free(event->ticket);
}

/* A guard on `name` has ended; another may have been granted the lock since. */
static void loop_report_gone(struct local *l, const char *name)
{
    struct backend_info info;
    lockspace_stat(l->space, name, &info);
    if (info.type == BACKEND_NOTHING) {
        l->events->gone(l->context, name);
    }
}

/* lockspace_tick ends no ticket before its user has handled `due`. */
static void loop_report_due(struct local *l, const struct local_event *event)
{
    l->reporting_due = event->ticket;
    l->events->due(l->context, event->ticket);
    if (l->reporting_due && !local_has_ended(l, l->reporting_due)) {
        lockspace_due_handled(l->space, l->reporting_due);
    }
    l->reporting_due = NULL;
}

/* Reports the first flag of a ready event, and frees the event after its last.  The call may end the ticket. */
static void loop_report(struct local *l, struct local_event *first)
{
    unsigned flag = first->flags & -first->flags;
    struct local_event event = *first;
    g_autofree char *name = g_steal_pointer(&first->name);
    first->flags &= ~flag;
    if (!first->flags) {
        loop_remove(l, first);
    }
    switch (flag) {
    case EVENT_DONE:
        event.done(event.arg, event.lost ? event.if_lost : event.result);
        break;
    case EVENT_ACQUIRED:
        loop_report_acquired(l, &event);
        break;
    case EVENT_GRANTED:
        loop_report_granted(l, &event);
        break;
    case EVENT_WANTED:
        l->events->wanted(l->context, event.ticket);
        break;
    case EVENT_DUE:
        loop_report_due(l, &event);
        break;
    case EVENT_ENDED:
        loop_report_ended(l, &event);
        break;
    case EVENT_GONE:
        loop_report_gone(l, name);
        break;
    default:
        g_assert_not_reached();
    }
}

/* Moves the events whose sequence is synced to the ready ones; all of them if the journal has failed. */
static void loop_release_synced(struct local *l)
{
    bool failed = l->store && local_store_failed(l->store);
    struct local_event *event;
    while ((event = TAILQ_FIRST(&l->unsynced)) && (failed || event->sequence <= local_store_synced(l->store))) {
        event->lost = event->sequence > local_store_synced(l->store);
        loop_dequeue(l, event);
        event->sequence = 0;
        loop_enqueue(l, event);
    }
}

/* --- the loop --- */

void local_tick(struct local *l, clock_ms now)
{
    uint64_t sequence;
    l->late = lockspace_next(l->space) <= now && lockspace_tick(l->space, now, TICK_MAX) == TICK_MAX;
    local_commit(l, &sequence);
}

/* Wakes a part of the tickets of the first keeper in `waking`. */
static void loop_wake_some(struct local *l)
{
    struct backend_ticket *tickets[TICK_MAX], *kept[TICK_MAX];
    uint32_t keeper = g_array_index(l->waking, uint32_t, 0);
    size_t count = lockspace_wake(l->space, clock_now(), keeper, tickets, TICK_MAX), used = 0;
    for (size_t i = 0; i < count; i++) {
        if (l->store && tickets[i]->kind == BACKEND_LEASE) {
            kept[used++] = tickets[i];
        }
    }
    if (used) {
        local_store_put_renewals(l->store, kept, used);
    }
    if (count < TICK_MAX) {
        g_array_remove_index(l->waking, 0);
    }
    local_tick(l, clock_now());
}

static void loop_set_alarm(struct local *l)
{
    clock_ms next = lockspace_next(l->space);
    struct itimerspec at = {.it_value = clock_timespec(next)};
    /* a later time is set when the alarm has gone off */
    if (next >= l->armed || l->late) {
        return;
    }
    if (next <= 0) {
        at.it_value = (struct timespec){.tv_nsec = 1};
    }
    if (timerfd_settime(l->alarm.fd, TFD_TIMER_ABSTIME, &at, NULL) == 0) {
        l->armed = next;
    } else {
        log_error("cannot set a timer: %s", g_strerror(errno));
    }
}

/* Before the loop sleeps. */
static void loop_on_prepare(struct ev_loop *loop, struct ev_prepare *watcher, int events)
{
    struct local *l = watcher->data;
    struct local_event *event;
    bool more = false;
    (void)events;
    if (l->late) {
        local_tick(l, clock_now());
    }
    if (l->waking->len) {
        loop_wake_some(l);
    }
    if (!TAILQ_EMPTY(&l->unsynced)) {
        loop_release_synced(l);
    }
    for (int i = 0; i < TICK_MAX && (event = TAILQ_FIRST(&l->ready)); i++) {
        loop_report(l, event);
    }
    if (l->store) {
        more = local_store_step(l->store);
    }
    loop_set_alarm(l);
    ev_clear_pending(loop, watcher); /* events that became ready meanwhile wait for the next turn, after requests */
    if (more || l->late || l->waking->len || !TAILQ_EMPTY(&l->ready)) {
        ev_idle_start(loop, &l->again);
    } else {
        ev_idle_stop(loop, &l->again);
    }
}

static void loop_on_again(struct ev_loop *loop, struct ev_idle *watcher, int events)
{
    (void)loop, (void)watcher, (void)events;
}

static void loop_on_alarm(struct ev_loop *loop, struct ev_io *watcher, int events)
{
    struct local *l = watcher->data;
    uint64_t count;
    (void)loop, (void)events;
    if (read(watcher->fd, &count, sizeof(count)) < 0 && errno == EAGAIN) {
        return;
    }
    l->armed = CLOCK_NEVER;
    l->late = true;
}

static void loop_on_synced(struct ev_loop *loop, struct ev_async *watcher, int events)
{
    (void)loop, (void)watcher, (void)events;
}

/* Called from the journal's thread. */
static void loop_wake(void *arg)
{
    struct local *l = arg;
    ev_async_send(l->loop, &l->synced);
}

int local_loop_init(struct local *l)
{
    int fd = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    TAILQ_INIT(&l->ready);
    TAILQ_INIT(&l->unsynced);
    l->pending = g_hash_table_new(NULL, NULL);
    l->waking = g_array_new(FALSE, FALSE, sizeof(uint32_t));
    l->armed = CLOCK_NEVER;
    ev_prepare_init(&l->prepare, loop_on_prepare);
    ev_idle_init(&l->again, loop_on_again);
    ev_io_init(&l->alarm, loop_on_alarm, fd, EV_READ);
    ev_async_init(&l->synced, loop_on_synced);
    l->prepare.data = l->alarm.data = l;
    return 0;
}

void local_loop_start(struct local *l, struct ev_loop *loop, const struct backend_events *events, void *context)
{
    l->loop = loop;
    l->events = events;
    l->context = context;
    ev_prepare_start(loop, &l->prepare);
    ev_io_start(loop, &l->alarm);
    ev_async_start(loop, &l->synced);
    if (l->store) {
        local_store_on_synced(l->store, loop_wake, l);
    }
}

void local_loop_end(struct local *l)
{
    struct local_event *event;
    if (l->loop) {
        ev_prepare_stop(l->loop, &l->prepare);
        ev_idle_stop(l->loop, &l->again);
        ev_io_stop(l->loop, &l->alarm);
        ev_async_stop(l->loop, &l->synced);
    }
    close(l->alarm.fd);
    while ((event = TAILQ_FIRST(&l->ready)) || (event = TAILQ_FIRST(&l->unsynced))) {
        if (event->flags & EVENT_ENDED) {
            lockspace_ticket_free(event->ticket);
        }
        loop_remove(l, event);
    }
    g_hash_table_unref(l->pending);
    g_array_unref(l->waking);
}
