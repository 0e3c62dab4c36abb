/* loop: what the loop tells, and when it wakes.
 *
 * The lockspace tells of events inside the calls that cause them; here they
 * become notes, at most one for each ticket, which are told before the loop goes
 * to sleep.  Completions that wait for a sync are notes too.  Work is done in
 * parts, with the loop's other watchers between them, so that a million leases
 * that expire together do not keep a request waiting.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "backend/local/private.h"
#include "backend/log.h"

#define TICK_MAX 64 /* tickets ended, and notes told, in one turn of the loop */
#define UNCOMMITTED UINT64_MAX

/* In the order in which they are told. */
enum {
    NOTE_DONE = 1, /* a completion without a ticket */
    NOTE_ACQUIRED = 2,
    NOTE_GRANTED = 4,
    NOTE_WANTED = 8,
    NOTE_DUE = 16,
    NOTE_ENDED = 32,
    NOTE_GONE = 64, /* nothing to tell: frees a ticket that its party has absorbed */
};

struct local_note {
    TAILQ_ENTRY(local_note) link;
    struct backend_ticket *ticket; /* NULL for NOTE_DONE */
    uint64_t sequence;             /* not to be told before the journal is synced up to here */
    unsigned flags;
    bool lost; /* the journal failed before it came that far */
    enum backend_end why;
    enum backend_result result, if_lost;
    backend_done *done;
    backend_acquired *acquired;
    void *arg;
};

/* --- notes --- */

static struct local_note *loop_find(struct local *l, const struct backend_ticket *ticket)
{
    return g_hash_table_size(l->notes) ? g_hash_table_lookup(l->notes, ticket) : NULL;
}

/* On the list that its sequence asks for. */
static void loop_place(struct local *l, struct local_note *note)
{
    if (note->sequence) {
        TAILQ_INSERT_TAIL(&l->unsynced, note, link);
    } else {
        TAILQ_INSERT_TAIL(&l->ready, note, link);
    }
}

static void loop_unplace(struct local *l, struct local_note *note)
{
    if (note->sequence) {
        TAILQ_REMOVE(&l->unsynced, note, link);
    } else {
        TAILQ_REMOVE(&l->ready, note, link);
    }
}

static void loop_remove(struct local *l, struct local_note *note)
{
    loop_unplace(l, note);
    if (note->ticket) {
        g_hash_table_remove(l->notes, note->ticket);
    }
    g_free(note);
}

static struct local_note *loop_add(struct local *l, struct backend_ticket *ticket, unsigned flag)
{
    struct local_note *note = loop_find(l, ticket);
    if (!note) {
        note = g_new0(struct local_note, 1);
        note->ticket = ticket;
        g_hash_table_insert(l->notes, ticket, note);
        loop_place(l, note);
    }
    note->flags |= flag;
    return note;
}

static bool loop_is_kept(const struct local *l, const struct backend_ticket *ticket)
{
    return l->store && ticket->kind == BACKEND_LEASE;
}

static void loop_granted(void *context, struct backend_ticket *ticket)
{
    struct local *l = context;
    struct local_note *note = loop_add(l, ticket, NOTE_GRANTED);
    if (!loop_is_kept(l, ticket)) {
        return;
    }
    local_store_put_granted(l->store, ticket);
    if (l->sync_always) {
        loop_unplace(l, note);
        note->sequence = UNCOMMITTED;
        loop_place(l, note);
    }
}

static void loop_due(void *context, struct backend_ticket *ticket)
{
    loop_add(context, ticket, NOTE_DUE);
}

static void loop_wanted(void *context, struct backend_ticket *ticket)
{
    loop_add(context, ticket, NOTE_WANTED);
}

static void loop_ended(void *context, struct backend_ticket *ticket, enum backend_end why)
{
    struct local *l = context;
    loop_add(l, ticket, NOTE_ENDED)->why = why;
    if (loop_is_kept(l, ticket)) {
        local_store_put_end(l->store, ticket->fence);
    }
}

/* A request waits for a grant: that is still told. */
static void loop_dropped(void *context, struct backend_ticket *ticket)
{
    struct local *l = context;
    struct local_note *note = loop_find(l, ticket);
    if (note && note->flags & NOTE_GRANTED) {
        note->flags = NOTE_GRANTED | NOTE_GONE;
        return;
    }
    if (note) {
        loop_remove(l, note);
    }
    lockspace_ticket_free(ticket);
}

const struct lockspace_listener local_listener = {
    .granted = loop_granted,
    .due = loop_due,
    .ended = loop_ended,
    .wanted = loop_wanted,
    .dropped = loop_dropped,
};

enum backend_result local_commit(struct local *l, uint64_t *ret_sequence)
{
    enum backend_result result = BACKEND_OK;
    struct local_note *note;
    *ret_sequence = 0;
    if (l->store) {
        result = local_store_commit(l->store, ret_sequence);
    }
    if (!l->sync_always) {
        *ret_sequence = 0;
    }
    TAILQ_FOREACH_REVERSE(note, &l->unsynced, local_notes, link) {
        if (note->sequence != UNCOMMITTED) {
            break;
        }
        note->sequence = MAX(*ret_sequence, 1);
    }
    return result;
}

bool local_has_ended(struct local *l, const struct backend_ticket *ticket)
{
    const struct local_note *note = loop_find(l, ticket);
    return ticket == l->telling || (note && note->flags & (NOTE_ENDED | NOTE_GONE));
}

void local_forget(struct local *l, struct backend_ticket *ticket)
{
    struct local_note *note = loop_find(l, ticket);
    bool ended = note && note->flags & (NOTE_ENDED | NOTE_GONE);
    if (note) {
        loop_remove(l, note);
    }
    if (ended) {
        lockspace_ticket_free(ticket);
    }
}

void local_forget_party(struct local *l, const char *name, uint64_t party)
{
    char path[LOCAL_NAME_MAX];
    GHashTableIter iter;
    gpointer ticket, note;
    GPtrArray *found = g_ptr_array_new();
    g_hash_table_iter_init(&iter, l->notes);
    while (g_hash_table_iter_next(&iter, &ticket, &note)) {
        if (((struct local_note *)note)->flags & NOTE_ENDED && ((struct backend_ticket *)ticket)->held &&
            lockspace_ticket_party(ticket) == party && lockspace_ticket_name(ticket, path, sizeof(path)) &&
            strcmp(path, name) == 0) {
            g_ptr_array_add(found, ticket);
        }
    }
    for (guint i = 0; i < found->len; i++) {
        loop_dropped(l, found->pdata[i]);
    }
    g_ptr_array_free(found, TRUE);
}

void local_lose(struct local *l, clock_ms now, struct backend_ticket *ticket)
{
    char name[LOCAL_NAME_MAX];
    if (!lockspace_ticket_name(ticket, name, sizeof(name))) {
        return;
    }
    lockspace_revoke(l->space, now, name, ticket->fence);
    struct local_note *note = loop_find(l, ticket);
    if (note) {
        note->why = BACKEND_LOST;
    }
}

void local_complete_in_turn(struct local *l, uint64_t sequence, backend_done *done, void *arg,
                            enum backend_result result, enum backend_result if_lost)
{
    struct local_note *note = g_new0(struct local_note, 1);
    *note = (struct local_note){
        .sequence = sequence, .flags = NOTE_DONE, .result = result, .if_lost = if_lost, .done = done, .arg = arg};
    loop_place(l, note);
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
        local_complete_in_turn(l, sequence, done, arg, result, if_lost);
    }
}

void local_complete_acquire(struct local *l, uint64_t sequence, backend_acquired *done, void *arg,
                            enum backend_result result, struct backend_ticket *ticket)
{
    if (!sequence || local_store_synced(l->store) >= sequence) {
        done(arg, result, ticket, NULL);
        return;
    }
    struct local_note *note = loop_add(l, ticket, NOTE_ACQUIRED);
    loop_unplace(l, note);
    note->sequence = sequence;
    note->result = result;
    note->acquired = done;
    note->arg = arg;
    loop_place(l, note);
}

/* --- telling --- */

static void loop_tell_acquired(struct local *l, const struct local_note *note)
{
    uint64_t sequence;
    if (!note->lost) {
        note->acquired(note->arg, note->result, note->ticket, NULL);
        return;
    }
    if (local_has_ended(l, note->ticket)) {
        local_forget(l, note->ticket);
    } else {
        local_forget(l, note->ticket);
        lockspace_release(l->space, clock_now(), note->ticket);
        local_commit(l, &sequence);
    }
    note->acquired(note->arg, BACKEND_UNREACHABLE, NULL, NULL);
}

static void loop_tell_granted(struct local *l, const struct local_note *note)
{
    bool unsafe = l->store &&
                  ((loop_is_kept(l, note->ticket) && local_store_failed(l->store)) || !local_store_in_place(l->store));
    uint64_t sequence;
    if (unsafe) {
        /* it could not be made safe, or is another's: nobody must believe in it */
        if (!local_has_ended(l, note->ticket)) {
            local_lose(l, clock_now(), note->ticket);
        }
        local_commit(l, &sequence);
        note->ticket->held = false;
        return;
    }
    l->events->granted(l->context, note->ticket);
}

static void loop_tell_ended(struct local *l, const struct local_note *note)
{
    l->telling = note->ticket;
    l->events->ended(l->context, note->ticket, note->why);
    l->telling = NULL;
    lockspace_ticket_free(note->ticket);
}

/* Tells one thing of a note that is ready; what is told may end the note. */
static void loop_tell(struct local *l, struct local_note *first)
{
    unsigned flag = first->flags & -first->flags;
    struct local_note note = *first;
    first->flags &= ~flag;
    if (!first->flags) {
        loop_remove(l, first);
    }
    switch (flag) {
    case NOTE_DONE:
        note.done(note.arg, note.lost ? note.if_lost : note.result);
        break;
    case NOTE_ACQUIRED:
        loop_tell_acquired(l, &note);
        break;
    case NOTE_GRANTED:
        loop_tell_granted(l, &note);
        break;
    case NOTE_WANTED:
        l->events->wanted(l->context, note.ticket);
        break;
    case NOTE_DUE:
        l->events->due(l->context, note.ticket);
        break;
    case NOTE_ENDED:
        loop_tell_ended(l, &note);
        break;
    case NOTE_GONE:
        lockspace_ticket_free(note.ticket);
        break;
    default:
        g_assert_not_reached();
    }
}

/* Completions and grants that a sync has made safe, or never will. */
static void loop_release_synced(struct local *l)
{
    bool failed = l->store && local_store_failed(l->store);
    struct local_note *note;
    while ((note = TAILQ_FIRST(&l->unsynced)) && (failed || note->sequence <= local_store_synced(l->store))) {
        note->lost = note->sequence > local_store_synced(l->store);
        loop_unplace(l, note);
        note->sequence = 0;
        loop_place(l, note);
    }
}

/* --- the loop --- */

void local_tick(struct local *l, clock_ms now)
{
    uint64_t sequence;
    l->late = lockspace_next(l->space) <= now && lockspace_tick(l->space, now, TICK_MAX) == TICK_MAX;
    local_commit(l, &sequence);
}

static void loop_set_alarm(struct local *l)
{
    clock_ms next = lockspace_next(l->space);
    struct itimerspec at = {.it_value = {.tv_sec = next / 1000, .tv_nsec = next % 1000 * 1000000}};
    /* a later one is set when this one has gone off */
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
    struct local_note *note;
    bool more = false;
    (void)events;
    if (l->late) {
        local_tick(l, clock_now());
    }
    if (!TAILQ_EMPTY(&l->unsynced)) {
        loop_release_synced(l);
    }
    for (int i = 0; i < TICK_MAX && (note = TAILQ_FIRST(&l->ready)); i++) {
        loop_tell(l, note);
    }
    if (l->store) {
        more = local_store_step(l->store);
    }
    loop_set_alarm(l);
    if (more || l->late || !TAILQ_EMPTY(&l->ready)) {
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
    l->notes = g_hash_table_new(NULL, NULL);
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
    struct local_note *note;
    if (l->loop) {
        ev_prepare_stop(l->loop, &l->prepare);
        ev_idle_stop(l->loop, &l->again);
        ev_io_stop(l->loop, &l->alarm);
        ev_async_stop(l->loop, &l->synced);
    }
    close(l->alarm.fd);
    while ((note = TAILQ_FIRST(&l->ready)) || (note = TAILQ_FIRST(&l->unsynced))) {
        if (note->flags & (NOTE_ENDED | NOTE_GONE)) {
            lockspace_ticket_free(note->ticket);
        }
        loop_remove(l, note);
    }
    g_hash_table_unref(l->notes);
}
