/* remote: begins and ends; connection up and down; timers; see remote.h. */
#include "backend/remote/remote.h"

#include <errno.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* --- the connection --- */

static int remote_by_number(gconstpointer a, gconstpointer b)
{
    const struct remote_ticket *x = *(struct remote_ticket *const *)a, *y = *(struct remote_ticket *const *)b;
    return x->head.fence < y->head.fence ? -1 : x->head.fence > y->head.fence;
}

/* A connection that drops changes no ticket: those that wait stay REMOTE_WAITING, and their callers wait, for as long
 * as the store is away.  This is where they continue. */
void remote_on_up(struct remote *r)
{
    GPtrArray *tickets = g_ptr_array_new();
    GHashTableIter each;
    struct remote_ticket *t;
    g_hash_table_iter_init(&each, r->tickets);
    while (g_hash_table_iter_next(&each, NULL, (gpointer *)&t)) {
        if (t->state != REMOTE_ACQUIRING) {
            g_ptr_array_add(tickets, t);
        }
    }
    g_ptr_array_sort(tickets, remote_by_number);
    for (guint i = 0; i < tickets->len; i++) {
        t = tickets->pdata[i];
        t->lock->watched = false;
        if (t->state == REMOTE_HELD) {
            remote_verify_in_background(r, t);
        } else {
            remote_refresh(r, t);
        }
    }
    g_ptr_array_free(tickets, TRUE);
}

clock_ms remote_first_deadline(const struct remote *r)
{
    GHashTableIter each;
    const struct remote_ticket *t;
    clock_ms now = clock_now(), first = CLOCK_NEVER;
    if (r->store->is_up(r)) {
        return CLOCK_NEVER;
    }
    g_hash_table_iter_init(&each, r->tickets);
    while (g_hash_table_iter_next(&each, NULL, (gpointer *)&t)) {
        if (t->state == REMOTE_HELD && t->due_after > 0 && t->head.deadline > now) {
            first = MIN(first, t->head.deadline);
        }
    }
    return first;
}

void remote_retry_waiter(struct remote *r, struct remote_lock *lock)
{
    struct remote_ticket *t, *first = NULL;
    if (!lock) {
        GHashTableIter each;
        g_hash_table_iter_init(&each, r->locks);
        while (g_hash_table_iter_next(&each, NULL, (gpointer *)&lock)) {
            remote_retry_waiter(r, lock);
        }
        return;
    }
    lock->watched = false;
    LIST_FOREACH(t, &lock->tickets, link) {
        if (t->state == REMOTE_WAITING && (!first || t->head.fence < first->head.fence)) {
            first = t;
        }
    }
    if (first) {
        remote_refresh(r, first);
    }
}

void remote_on_event(struct remote *r, const char *id, enum remote_event event, enum backend_end why)
{
    struct remote_ticket *t = remote_ticket_find(r, id);
    if (!t) {
        return;
    }
    t->uncontended = t->uncontended && event != REMOTE_WANTED;
    bool by_name = t->lock->sequence && (why == BACKEND_BROKEN || why == BACKEND_RELEASED);
    if (event == REMOTE_GRANTED && t->state != REMOTE_HELD) {
        t->granted_unclaimed = true;
        if (t->state != REMOTE_ACQUIRING) {
            remote_refresh(r, t);
        }
    } else if (event == REMOTE_MAY_BE_FREE && t->state == REMOTE_WAITING) {
        remote_refresh(r, t);
    } else if (event == REMOTE_WANTED && t->state == REMOTE_HELD && t->head.user) {
        r->events->wanted(r->context, &t->head);
    } else if (event == REMOTE_ENDED && (t->state == REMOTE_HELD || (t->state != REMOTE_ACQUIRING && by_name))) {
        bool revoked = t->state == REMOTE_HELD && (why == BACKEND_BROKEN || why == BACKEND_RELEASED);
        t->head.guarded = revoked && backend_parse_guard(t->meta) > 0 ? (uint8_t)(1 + why) : 0;
        remote_end_ticket(r, t, why, false); /* a waiter asks again, unless its name was revoked */
    }
}

bool remote_verify_end(struct remote *r, const char *id, enum backend_end why)
{
    struct remote_ticket *t = remote_ticket_find(r, id);
    bool may_report_former = t && t->state == REMOTE_HELD && clock_now() - t->head.acquired < t->head.ttl;
    if ((why != BACKEND_EXPIRED && why != BACKEND_LOST) || !may_report_former || t->renaming || t->moving) {
        return false;
    }
    t->expiry_reported = why == BACKEND_EXPIRED;
    remote_verify_ticket(r, t);
    return true;
}

/* --- time --- */

/* How long before it is due a ticket may be renewed, so that many go in one request. */
static int64_t remote_early_by(const struct remote_ticket *t)
{
    bool renews = t->head.kind != BACKEND_PROVISIONAL && t->due_after == t->head.ttl / 3;
    return renews && t->next == t->due ? t->head.ttl / REMOTE_RENEW_EARLY : 0;
}

static void remote_tick_ticket(struct remote *r, struct remote_ticket *t, clock_ms now)
{
    if (t->state != REMOTE_HELD && t->due <= now && t->head.deadline <= now) {
        t->head.deadline =
            MIN(t->ends, t->head.deadline + now - t->due); /* this process was stopped: the user may renew it */
    }
    if (t->head.deadline <= now) {
        bool lost = t->renewing || !r->store->is_up(r);
        remote_end_ticket(r, t, lost ? BACKEND_LOST : BACKEND_EXPIRED, true);
        return;
    }
    if (t->refresh <= now) {
        t->refresh = CLOCK_NEVER;
        if (t->state == REMOTE_HELD) {
            remote_verify_in_background(r, t);
        } else {
            remote_refresh(r, t);
        }
    }
    if (t->due <= now + remote_early_by(t)) {
        t->due = CLOCK_NEVER; /* it keeps its place in the agenda until it is renewed, or its turn comes again */
        r->events->due(r->context, &t->head); /* may release it */
    } else {
        remote_ticket_schedule(r, t);
    }
}

static void remote_tick(struct remote *r)
{
    r->armed = 0; /* not before the end */
    for (unsigned i = 0; i < REMOTE_RENEWALS_MAX; i++) {
        struct remote_ticket *t = skiplist_item(skiplist_first(&r->agenda));
        clock_ms now = clock_now();
        if (!t || t->next > now + (i > 0 ? remote_early_by(t) : 0)) {
            break;
        }
        remote_tick_ticket(r, t, now);
    }
    if (r->next_heartbeat <= clock_now()) {
        remote_heartbeat(r, clock_now());
    }
    r->armed = CLOCK_NEVER;
    remote_ticket_set_alarm(r);
}

static void remote_on_alarm(struct ev_loop *loop, ev_io *alarm, int revents)
{
    uint64_t times;
    (void)loop, (void)revents;
    if (read(alarm->fd, &times, sizeof times) < 0) {
        return; /* it was set again meanwhile */
    }
    remote_tick(alarm->data);
}

/* --- beginning and end --- */

/* The order of the agenda. */
static int remote_compare_next(const void *a, const void *b)
{
    const struct remote_ticket *x = a, *y = b;
    if (x->next != y->next) {
        return x->next < y->next ? -1 : 1;
    }
    return (x->serial > y->serial) - (x->serial < y->serial);
}

int remote_init_tables(struct remote *r, uint32_t seed)
{
    int alarm = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);
    if (alarm < 0) {
        return -errno;
    }
    ev_io_init(&r->alarm, remote_on_alarm, alarm, EV_READ);
    r->alarm.data = r;
    r->armed = r->next_heartbeat = CLOCK_NEVER;
    r->tickets = g_hash_table_new(g_str_hash, g_str_equal);
    r->locks = g_hash_table_new(g_str_hash, g_str_equal);
    r->queues = g_hash_table_new(g_str_hash, g_str_equal);
    r->directories = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, remote_directory_cache_free);
    skiplist_init(&r->agenda, remote_compare_next, seed);
    skiplist_init(&r->background, remote_compare_background, seed);
    r->watches = g_hash_table_new(g_str_hash, g_str_equal);
    TAILQ_INIT(&r->watched);
    TAILQ_INIT(&r->ended_releases);
    LIST_INIT(&r->requests);
    LIST_INIT(&r->batches);
    LIST_INIT(&r->revocations);
    LIST_INIT(&r->waiters);
    return 0;
}

void remote_start(struct remote *r)
{
    ev_io_start(r->loop, &r->alarm);
}

void remote_clear(struct remote *r)
{
    GHashTableIter each;
    struct remote_ticket *t;
    if (r->loop) {
        ev_io_stop(r->loop, &r->alarm);
    }
    close(r->alarm.fd);
    for (;;) {
        g_hash_table_iter_init(&each, r->tickets);
        if (!g_hash_table_iter_next(&each, NULL, (gpointer *)&t)) {
            break;
        }
        remote_ticket_free(r, t);
    }
    remote_batch_clear(r);
    while (!LIST_EMPTY(&r->requests)) {
        remote_request_free(LIST_FIRST(&r->requests));
    }
    remote_watch_clear(r);
    g_hash_table_unref(r->tickets);
    g_hash_table_unref(r->locks);
    g_hash_table_unref(r->queues);
    g_hash_table_unref(r->directories);
    skiplist_clear(&r->agenda);
    skiplist_clear(&r->background);
}

struct backend_counts remote_count(const struct remote *r)
{
    struct backend_counts counts = {.waiting = r->waiting};
    GHashTable *const tables[] = {r->locks, r->queues};

    for (size_t i = 0; i < G_N_ELEMENTS(tables); i++) {
        GHashTableIter each;
        struct remote_lock *lock;
        g_hash_table_iter_init(&each, tables[i]);
        while (g_hash_table_iter_next(&each, NULL, (gpointer *)&lock)) {
            counts.locks += lock->sequence ? lock->held : lock->held > 0;
        }
    }
    return counts;
}

uint32_t remote_count_waiters(const struct remote *r, const char *name)
{
    const struct remote_lock *lock = g_hash_table_lookup(r->locks, name);
    return lock ? lock->waiting : 0;
}
