/* ticket: tickets of this mount, their states and times; requests. */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/timerfd.h>

#include "backend/log.h"
#include "backend/remote/remote.h"

static struct remote_lock *ticket_place_of(struct remote *r, const char *name, bool sequence)
{
    GHashTable *table = sequence ? r->queues : r->locks;
    struct remote_lock *lock = g_hash_table_lookup(table, name);
    if (!lock) {
        lock = g_new0(struct remote_lock, 1);
        lock->name = g_strdup(name);
        lock->sequence = sequence;
        LIST_INIT(&lock->tickets);
        g_hash_table_insert(table, lock->name, lock);
    }
    return lock;
}

static void ticket_join(struct remote *r, struct remote_ticket *t, const char *name, bool sequence)
{
    t->lock = ticket_place_of(r, name, sequence);
    t->lock->held += t->state == REMOTE_HELD;
    LIST_INSERT_HEAD(&t->lock->tickets, t, link);
}

static void ticket_leave(struct remote *r, struct remote_ticket *t)
{
    struct remote_lock *lock = t->lock;
    LIST_REMOVE(t, link);
    lock->held -= t->state == REMOTE_HELD;
    if (LIST_EMPTY(&lock->tickets)) {
        g_hash_table_remove(lock->sequence ? r->queues : r->locks, lock->name);
        g_free(lock->name);
        g_free(lock);
    }
}

/* The store listens for events while a ticket waits. */
static void ticket_turn_waiting(struct remote *r, struct remote_ticket *t, enum remote_state to)
{
    bool waited = remote_state_waits(t->state), waits = remote_state_waits(to);
    if (waited == waits) {
        return;
    }
    if (waits) {
        LIST_INSERT_HEAD(&r->waiters, t, waiters);
    } else {
        LIST_REMOVE(t, waiters);
    }
    r->waiting = waits ? r->waiting + 1 : r->waiting - 1;
    t->lock->waiting = waits ? t->lock->waiting + 1 : t->lock->waiting - 1;
    if (r->store->on_waiting) {
        r->store->on_waiting(r, t, to);
    }
    if (t->lock->waiting == 0 && !t->lock->sequence) {
        remote_watch_resume(r, t->lock->name, to == REMOTE_HELD);
    }
}

struct remote_request *remote_request_new(struct remote *r, enum remote_procedure procedure,
                                          const struct remote_ticket *t, const char *name)
{
    struct remote_request *request = g_new0(struct remote_request, 1);
    request->r = r;
    request->procedure = procedure;
    request->name = g_strdup(name);
    if (t) {
        memcpy(request->id, t->id, sizeof request->id);
    }
    LIST_INSERT_HEAD(&r->requests, request, link);
    return request;
}

void remote_listing_free_info(struct backend_entry *entry)
{
    if (entry->info) {
        remote_info_clear((struct backend_info *)entry->info);
        g_free((struct backend_info *)entry->info);
    }
}

static void ticket_free_listing(struct remote_listing *listing)
{
    for (guint i = 0; listing && i < listing->entries->len; i++) {
        remote_listing_free_info(&g_array_index(listing->entries, struct backend_entry, i));
    }
    if (listing) {
        g_array_unref(listing->entries);
        g_string_chunk_free(listing->names);
        g_free(listing->after);
        g_free(listing);
    }
}

void remote_request_free(struct remote_request *request)
{
    LIST_REMOVE(request, link);
    request->r->background_pending -= request->background_cost;
    g_free(request->name);
    g_free(request->release.ticket_name);
    g_clear_pointer(&request->release.meta, g_bytes_unref);
    g_clear_pointer(&request->renewal.segments, g_array_unref);
    g_clear_pointer(&request->update.change.meta, g_bytes_unref);
    g_clear_pointer(&request->update.change.content, g_bytes_unref);
    g_free(request->replaced);
    g_free(request->match);
    ticket_free_listing(request->listing);
    g_clear_pointer(&request->directory.meta, g_bytes_unref);
    g_free(request);
}

uint64_t remote_request_send(struct remote_request *request, struct remote_ticket *t,
                             void (*answered)(struct remote_request *request, const struct remote_answer *answer),
                             int64_t timeout)
{
    request->on_answer = answered;
    request->serial = ++request->r->serials;
    return request->r->store->send(request, t, timeout);
}

bool remote_outcome_is_unknown(const struct remote_answer *answer)
{
    return answer->outcome == REMOTE_UNKNOWN || (answer->outcome != REMOTE_ANSWERED && answer->repeated);
}

void remote_request_set_change(struct remote_request *request, const struct backend_change *c)
{
    request->update.change.set = c->set;
    request->update.change.meta = c->meta ? g_bytes_ref(c->meta) : NULL;
    request->update.change.content = c->content ? g_bytes_ref(c->content) : NULL;
}

void remote_request_answer(struct remote_request *request, enum backend_result result, clock_ms sent)
{
    request->on_answer(
        request, &(struct remote_answer){.outcome = result == BACKEND_UNREACHABLE ? REMOTE_REFUSED : REMOTE_ANSWERED,
                                         .result = result,
                                         .sent = sent});
}

void remote_request_finish(struct remote_request *request, enum backend_result result)
{
    if (request->done) {
        request->done(request->arg, result);
    }
    remote_request_free(request);
}

struct remote_ticket *remote_ticket_new(struct remote *r, const char *name, const struct backend_claim *claim)
{
    struct remote_ticket *t = g_new0(struct remote_ticket, 1);
    const char *leaf;
    remote_make_id(t->id);
    t->head = (struct backend_ticket){
        .user = claim->user,
        .kind = (uint8_t)claim->kind,
        .mode = (uint8_t)claim->mode,
        .ttl = claim->ttl,
        .acquired = clock_now(),
        .deadline = CLOCK_NEVER,
    };
    t->handle = claim->handle;
    t->lock_owner = claim->kind == BACKEND_FCNTL ? claim->lock_owner : 0;
    t->start = claim->start;
    t->end = claim->end;
    t->due_after = claim->due;
    t->due = t->refresh = t->next = t->ends = CLOCK_NEVER;
    t->serial = ++r->serials;
    t->meta = claim->meta ? g_bytes_ref(claim->meta) : NULL;
    t->wait = claim->wait;
    t->head.content = claim->content ? g_bytes_ref(claim->content) : NULL;
    if (claim->sequence) {
        char *directory = remote_parent(name, &leaf);
        t->name = g_strdup(name);
        ticket_join(r, t, directory, true);
        g_free(directory);
    } else {
        ticket_join(r, t, name, false);
    }
    g_hash_table_insert(r->tickets, t->id, t);
    skiplist_insert(&r->agenda, t);
    return t;
}

/* The deadline of a recovered lease is that of its term, which may be fixed. */
static void ticket_fix_term(struct remote_ticket *t)
{
    bool fixed = t->head.kind == BACKEND_LEASE && backend_parse_fixed(t->meta);
    t->ends = !fixed ? CLOCK_NEVER : t->ends == CLOCK_NEVER ? t->head.deadline : t->ends;
    t->head.deadline = MIN(t->head.deadline, t->ends);
}

struct remote_ticket *remote_ticket_restore(struct remote *r, const char *name, const struct backend_claim *claim,
                                            const struct remote_restored *restored)
{
    struct remote_ticket *t = remote_ticket_new(r, name, claim);
    remote_ticket_adopt_id(r, t, restored->id);
    remote_ticket_set_state(r, t, restored->waits ? REMOTE_WAITING : REMOTE_HELD);
    t->wait = true;
    t->refresh = restored->waits ? clock_now() + REMOTE_HEARTBEAT_MIN : CLOCK_NEVER;
    t->head.fence = restored->fence;
    t->head.acquired = restored->acquired;
    t->head.deadline = restored->deadline;
    ticket_fix_term(t);
    return t;
}

void remote_log_lost(const char *name, pid_t pid)
{
    char escaped[NAME_MAX], process[32] = "a process";
    if (pid > 0) {
        g_snprintf(process, sizeof process, "process %d", (int)pid);
    }
    log_warning("%s: the lock of %s is lost: it ended in the store before this daemon started, and the process "
                "may still rely on it",
                log_escape(escaped, sizeof escaped, name), process);
}

void remote_ticket_free(struct remote *r, struct remote_ticket *t)
{
    if (t->acquiring) { /* must not be sent again after the release */
        r->store->forget(r, t->acquiring_call);
        remote_request_free(t->acquiring);
    }
    remote_ticket_set_state(r, t, REMOTE_ACQUIRING);
    skiplist_remove(&r->agenda, t);
    if (t->in_background) {
        skiplist_remove(&r->background, t);
    }
    g_hash_table_remove(r->tickets, t->id);
    ticket_leave(r, t);
    g_clear_pointer(&t->meta, g_bytes_unref);
    g_clear_pointer(&t->head.content, g_bytes_unref);
    g_clear_pointer(&t->segments, g_array_unref);
    g_free(t->name);
    g_free(t->moving);
    g_free(t);
}

const char *remote_ticket_name(const struct remote_ticket *t)
{
    return t->lock->sequence ? t->name : t->lock->name;
}

struct remote_ticket *remote_ticket_find(struct remote *r, const char *id)
{
    return g_hash_table_lookup(r->tickets, id);
}

void remote_ticket_set_state(struct remote *r, struct remote_ticket *t, enum remote_state state)
{
    t->lock->held = t->lock->held + (state == REMOTE_HELD) - (t->state == REMOTE_HELD);
    ticket_turn_waiting(r, t, state);
    t->state = state;
    t->head.held = state == REMOTE_HELD;
}

void remote_ticket_change(struct remote_ticket *t, const struct backend_change *c)
{
    t->changes++;
    if (c->set & BACKEND_SET_META) {
        g_clear_pointer(&t->meta, g_bytes_unref);
        t->meta = c->meta ? g_bytes_ref(c->meta) : NULL;
    }
    if (c->set & BACKEND_SET_CONTENT) {
        g_clear_pointer(&t->head.content, g_bytes_unref);
        t->head.content = c->content ? g_bytes_ref(c->content) : NULL;
    }
}

bool remote_ticket_is_expired(const struct remote_ticket *t)
{
    return t->head.deadline <= clock_now();
}

void remote_ticket_rename(struct remote *r, struct remote_ticket *t, const char *name)
{
    ticket_leave(r, t);
    ticket_join(r, t, name, false);
}

bool remote_ticket_has_moved(const struct remote_ticket *t, const char *name)
{
    return t->renaming || strcmp(t->lock->name, name) != 0;
}

bool remote_ticket_accepts_id(struct remote *r, const struct remote_ticket *t, const char *id)
{
    const struct remote_ticket *was = remote_ticket_find(r, id);
    if (was == t) {
        return true;
    }
    if (!t->lock_owner || !remote_is_id(id)) {
        return false;
    }
    return !was || (was->lock == t->lock && was->lock_owner == t->lock_owner && was->state == REMOTE_HELD);
}

void remote_ticket_adopt_id(struct remote *r, struct remote_ticket *t, const char *id)
{
    struct remote_ticket *was = remote_ticket_find(r, id);
    if (was == t) {
        return;
    }
    if (was) {
        t->head.joined = true;
        t->head.content = g_steal_pointer(&was->head.content); /* the store keeps it with the ticket id */
        t->handle = was->handle;
        remote_ticket_free(r, was);
    }
    g_hash_table_remove(r->tickets, t->id);
    memcpy(t->id, id, REMOTE_ID_SIZE);
    g_hash_table_insert(r->tickets, t->id, t);
}

void remote_ticket_set_alarm(struct remote *r)
{
    const struct remote_ticket *first = skiplist_item(skiplist_first(&r->agenda));
    clock_ms next = MAX(MIN(first ? first->next : CLOCK_NEVER, r->next_heartbeat), 1); /* 0 would stop it */
    struct itimerspec at = {.it_value = clock_timespec(next)};
    /* a later one is set when this one fires */
    if (next >= r->armed) {
        return;
    }
    if (timerfd_settime(r->alarm.fd, TFD_TIMER_ABSTIME, &at, NULL) == 0) {
        r->armed = next;
    } else {
        log_error("cannot set a timer: %s", g_strerror(errno));
    }
}

void remote_ticket_start_term(struct remote_ticket *t, clock_ms now, clock_ms deadline)
{
    int64_t left = deadline - now, after = t->due_after;
    t->head.deadline = deadline;
    ticket_fix_term(t);
    t->due = after > 0 ? now + (after > left / 4 * 3 ? left / 3 : after) : CLOCK_NEVER;
}

void remote_ticket_schedule(struct remote *r, struct remote_ticket *t)
{
    clock_ms next = MIN(MIN(t->due, t->refresh), t->head.deadline);
    if (next != t->next) {
        skiplist_remove(&r->agenda, t);
        t->next = next;
        skiplist_insert(&r->agenda, t);
    }
    remote_ticket_set_alarm(r);
}

void remote_ticket_set_segments(struct remote_ticket *t, const GArray *segments)
{
    g_clear_pointer(&t->segments, g_array_unref);
    if (segments) {
        t->segments = g_array_copy((GArray *)segments);
        t->head.mode = (uint8_t)backend_segments_mode(t->segments);
    }
}

GArray *remote_ticket_join_segments(const struct remote_ticket *t, const struct remote_ticket *joined)
{
    enum backend_mode mode = (enum backend_mode)t->head.mode;
    GArray *segments = joined && joined->segments ? g_array_copy(joined->segments)
                                                  : g_array_new(FALSE, FALSE, sizeof(struct backend_segment));
    backend_segments_set(segments, t->start, t->end, &mode);
    return segments;
}

void remote_ticket_describe(struct remote_ticket *t, struct backend_info *info)
{
    info->ticket = &t->head;
    info->fence = t->head.fence;
    info->acquired = t->head.acquired;
    info->deadline = t->head.deadline;
    info->ttl = t->head.ttl;
}

void remote_describe_own(struct remote *r, const char *id, const char *name, struct backend_info *info)
{
    struct remote_ticket *t = remote_ticket_find(r, id);
    if (t && t->state != REMOTE_ACQUIRING &&
        (strcmp(remote_ticket_name(t), name) == 0 || g_strcmp0(t->moving, name) == 0)) {
        remote_ticket_describe(t, info);
    }
}

bool remote_info_is_expired(const struct backend_info *info, bool own)
{
    return info->type == BACKEND_LOCK && own && (!info->ticket || info->ticket->deadline <= clock_now());
}

void remote_info_clear(struct backend_info *info)
{
    g_clear_pointer(&info->meta, g_bytes_unref);
    g_clear_pointer(&info->content, g_bytes_unref);
    g_clear_pointer(&info->directory.meta, g_bytes_unref);
}

bool remote_ticket_covers(const struct remote_ticket *t, uint64_t start, uint64_t end)
{
    bool whole = !t->lock_owner;
    if (start > end) {
        return false;
    }
    bool covers = whole || (t->state != REMOTE_HELD && t->start <= end && start <= t->end);
    for (guint i = 0; t->segments && i < t->segments->len && !covers; i++) {
        const struct backend_segment *s = &g_array_index(t->segments, struct backend_segment, i);
        covers = s->start <= end && start <= s->end;
    }
    return covers;
}

bool remote_ticket_cut_range(struct remote_ticket *t, uint64_t start, uint64_t end)
{
    if (!t->segments) {
        return start > 0 || end < BACKEND_RANGE_MAX;
    }
    GArray *left = g_array_copy(t->segments);
    backend_segments_set(left, start, end, NULL);
    g_array_unref(t->segments);
    t->segments = left;
    t->head.mode = (uint8_t)backend_segments_mode(left);
    return left->len > 0;
}

bool remote_ticket_has_compatible(const struct remote_ticket *t, struct backend_identity identity)
{
    struct remote_ticket *other;
    LIST_FOREACH(other, &t->lock->tickets, link) {
        if (other != t && backend_identity_matches(BACKEND_IDENTITY(other), identity)) {
            return true;
        }
    }
    return false;
}

struct remote_ticket *remote_ticket_find_joined(const struct remote_ticket *t)
{
    struct remote_ticket *other = t->lock_owner ? LIST_FIRST(&t->lock->tickets) : NULL;
    while (other && (other == t || other->lock_owner != t->lock_owner || other->state != REMOTE_HELD)) {
        other = LIST_NEXT(other, link);
    }
    return other;
}

int64_t remote_ticket_liveness(const struct remote_ticket *t, int64_t ttl)
{
    return t->lock->sequence ? ttl : MIN(ttl, REMOTE_LIVENESS);
}
