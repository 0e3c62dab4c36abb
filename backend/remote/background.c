/* background: renewals and releases, which nobody waits for; ends of tickets.
 *
 * There may be very many at once: after a restart or a reconnect, all tickets are renewed; leases that were made
 * together expire together.  The cost of those that are pending is at most REMOTE_BACKGROUND_MAX, so a request that a
 * user waits for is behind these at most.  The renewal with the nearest deadline goes first.
 * Those of one turn of the loop are a batch, which a store sends in one request if it can; remote.c lets tickets that
 * are renewed soon be due with the first.
 */
#include "backend/remote/remote.h"

static void background_send_next(struct remote *r);

/* --- release --- */

/* Has its lock owner claimed some of these bytes since?  To the store that may be the same ticket. */
static bool background_is_acquired_again(const struct remote_request *request)
{
    struct remote_lock *lock = request->lock_owner ? g_hash_table_lookup(request->r->locks, request->name) : NULL;
    struct remote_ticket *t = lock ? LIST_FIRST(&lock->tickets) : NULL;
    while (t && !(t->lock_owner == request->lock_owner &&
                  remote_ticket_covers(t, request->release.start, request->release.end))) {
        t = LIST_NEXT(t, link);
    }
    return t;
}

/* A claim that has ended has weakened the ticket of its lock owner, and others share the lock. */
static void background_lose_joined(struct remote_request *request)
{
    struct remote_lock *lock = g_hash_table_lookup(request->r->locks, request->name);
    struct remote_ticket *t = lock ? LIST_FIRST(&lock->tickets) : NULL;
    while (t && !(t->lock_owner == request->lock_owner && t->state == REMOTE_HELD)) {
        t = LIST_NEXT(t, link);
    }
    if (t) {
        remote_end_ticket(request->r, t, BACKEND_LOST, true);
    }
}

/* Repeated for as long as the ticket may be in the store, whatever its caller got. */
static void background_on_released(struct remote_request *request, const struct remote_answer *answer)
{
    struct remote *r = request->r;
    int64_t ttl = MIN(request->ttl, REMOTE_RELEASE_MAX);
    if (answer->outcome == REMOTE_ANSWERED && answer->result == BACKEND_MISSING) { /* or an earlier attempt ended it */
        remote_request_finish(request, request->release.held && !answer->repeated ? BACKEND_STALE : BACKEND_OK);
        background_send_next(r);
        return;
    }
    if (answer->outcome == REMOTE_ANSWERED && answer->result != BACKEND_OK &&
        !(request->release.undo && request->done)) {
        background_lose_joined(request);
        remote_request_finish(request, BACKEND_OK);
        background_send_next(r);
        return;
    }
    if (answer->outcome == REMOTE_ANSWERED || ttl <= 0 || background_is_acquired_again(request)) {
        remote_request_finish(request, answer->result);
        background_send_next(r);
        return;
    }
    if (request->done) {
        request->done(request->arg, answer->result);
    }
    request->done = NULL;
    request->ttl = 0;
    remote_request_send(request, NULL, background_on_released, ttl);
}

static struct remote_request *background_release_request(struct remote *r, const struct remote_ticket *t,
                                                         const char *why, backend_done *done, void *arg)
{
    struct remote_request *request = remote_request_new(r, REMOTE_RELEASE, t, t->lock->name);
    request->done = done;
    request->arg = arg;
    request->ttl = t->head.ttl;
    request->lock_owner = t->lock_owner;
    request->release.ticket_name = g_strdup(remote_ticket_name(t));
    request->release.sequence = t->lock->sequence;
    request->release.kind = t->head.kind;
    request->release.meta = t->meta ? g_bytes_ref(t->meta) : NULL;
    request->release.start = t->state != REMOTE_HELD; /* no bytes if it does not hold */
    request->release.end = t->state == REMOTE_HELD ? BACKEND_RANGE_MAX : 0;
    request->release.why = why;
    request->release.uncontended = t->uncontended && !*why;
    request->release.held = t->state == REMOTE_HELD && !*why && !t->moving;
    return request;
}

static void background_send_release(struct remote_request *request)
{
    remote_request_send(request, NULL, background_on_released,
                        request->release.undo ? MIN(REMOTE_UNDO_MAX, request->ttl) : 0);
}

/* `request`: the release of `t`. */
static void background_send_releases(struct remote *r, const struct remote_ticket *t, struct remote_request *request)
{
    if (t->moving) { /* it is under one name or the other */
        struct remote_request *other = remote_request_new(r, REMOTE_RELEASE, t, t->moving);
        other->release.ticket_name = g_strdup(t->moving);
        other->release.why = request->release.why;
        other->ttl = t->head.ttl;
        background_send_release(other);
    }
    background_send_release(request);
}

void remote_send_release(struct remote *r, const struct remote_ticket *t, const char *why, backend_done *done,
                         void *arg)
{
    background_send_releases(r, t, background_release_request(r, t, why, done, arg));
}

void remote_send_undo(struct remote *r, const struct remote_ticket *t, backend_done *done, void *arg)
{
    struct remote_request *request = background_release_request(r, t, "", done, arg);
    request->release.undo = true;
    background_send_releases(r, t, request);
}

/* The ticket loses the bytes at once, so that the store never holds less for this mount than the mount relies on. */
bool remote_release_range(struct remote *r, struct remote_ticket *t, uint64_t start, uint64_t end, backend_done *done,
                          void *arg)
{
    bool whole = !(r->backend.features & (BACKEND_CAN_RANGE | BACKEND_CAN_SHARE)),
         left = remote_ticket_cut_range(t, start, end);
    if (left && whole) { /* the store has no bytes */
        if (done) {
            done(arg, BACKEND_OK);
        }
        return true;
    }
    if (whole) {
        remote_send_release(r, t, "", done, arg);
        remote_ticket_free(r, t);
        return false;
    }
    struct remote_request *request = remote_request_new(r, REMOTE_RELEASE_RANGE, NULL, t->lock->name);
    request->done = done;
    request->arg = arg;
    request->ttl = t->head.ttl;
    request->lock_owner = t->lock_owner;
    request->release.start = start;
    request->release.end = end;
    if (!left) {
        remote_ticket_free(r, t);
    }
    remote_request_send(request, NULL, background_on_released, 0);
    return left;
}

/* --- renewing --- */

static bool background_is_converting(struct remote *r, const struct remote_ticket *t)
{
    const struct remote_request *request;
    LIST_FOREACH(request, &r->requests, link) {
        if (request->procedure == REMOTE_CONVERT && g_str_equal(request->id, t->id)) {
            return true;
        }
    }
    return false;
}

/* Is a request pending that may change what its lock owner holds? */
static bool background_lock_owner_is_changing(struct remote *r, const struct remote_ticket *t)
{
    const struct remote_ticket *other;
    const struct remote_request *request;
    LIST_FOREACH(other, &t->lock->tickets, link) {
        if (t->lock_owner && (other->acquiring || other->undoing) && other->lock_owner == t->lock_owner) {
            return true;
        }
    }
    LIST_FOREACH(request, &r->requests, link) {
        if (t->lock_owner && request->lock_owner == t->lock_owner && g_strcmp0(request->name, t->lock->name) == 0) {
            return true;
        }
    }
    return false;
}

static void background_note_renewal(struct remote_request *request, const struct remote_answer *answer)
{
    struct remote *r = request->r;
    struct remote_ticket *t = remote_ticket_find(r, request->id);
    enum backend_result result = answer->result;
    int64_t ttl = request->ttl, left = request->renewal.left;
    /* Its term is longer by now, or it was changed since: the store may have restored it as it was before. */
    bool again = t && (ttl < t->head.ttl || request->renewal.changes != t->changes);
    bool extends = !request->renewal.verify_only, moved = t && remote_ticket_has_moved(t, request->name);
    bool converted = t && result == BACKEND_BUSY &&
                     (request->renewal.mode != (enum backend_mode)t->head.mode ||
                      request->renewal.segments != t->segments || /* every change makes a new array */
                      background_is_converting(r, t) || background_lock_owner_is_changing(r, t));
    remote_request_free(request);
    if (!t || t->state != REMOTE_HELD) {
        return;
    }
    if ((result == BACKEND_STALE && !moved) || (result == BACKEND_BUSY && !converted)) {
        enum backend_end why = t->expiry_reported && result == BACKEND_STALE ? BACKEND_EXPIRED : BACKEND_LOST;
        remote_end_ticket(r, t, why, result == BACKEND_BUSY || t->moving);
        return;
    }
    if (result == BACKEND_OK) {
        t->expiry_reported = false;
        t->refresh = CLOCK_NEVER;
        if (extends) {
            t->renewing = t->renewing && ttl < t->head.ttl;
            t->head.deadline =
                MIN(t->ends, remote_deadline(answer->sent, MIN(left, t->head.ttl))); /* a shorter ttl was set since */
        }
    } else {
        t->refresh = clock_now() + REMOTE_RENEW_RETRY;
    }
    remote_ticket_schedule(r, t);
    if (result == BACKEND_OK && again) {
        remote_verify_in_background(r, t);
    }
}

static void background_on_renewed(struct remote_request *request, const struct remote_answer *answer)
{
    struct remote *r = request->r;
    background_note_renewal(request, answer);
    background_send_next(r);
}

/* The term of a renewal, ms.  A verification asks only for what is left of the term that this mount relies on: or else
 * each new connection would renew the lease of a process that is dead. */
static int64_t background_term(const struct remote_ticket *t, bool verify_only)
{
    return verify_only              ? CLAMP(remote_time_left(t), 1, t->head.ttl)
           : t->ends == CLOCK_NEVER ? t->head.ttl
                                    : CLAMP(t->ends - clock_now(), 1, t->head.ttl);
}

static void background_send_renewal(struct remote *r, struct remote_ticket *t, bool verify_only, bool in_background)
{
    struct remote_request *request = remote_request_new(r, REMOTE_RENEW, t, t->lock->name);
    request->background_cost = !in_background ? 0 : t->uncontended ? 1 : REMOTE_BACKGROUND_COST;
    r->background_pending += request->background_cost;
    request->renewal.verify_only = verify_only;
    request->ttl = t->head.ttl;
    request->renewal.left = background_term(t, verify_only);
    request->renewal.mode = (enum backend_mode)t->head.mode;
    request->renewal.changes = t->changes;
    request->renewal.segments =
        t->segments && !background_lock_owner_is_changing(r, t) ? g_array_ref(t->segments) : NULL;
    remote_request_send(request, t, background_on_renewed, 0);
}

void remote_batch_free(struct remote_batch *batch)
{
    LIST_REMOVE(batch, link);
    g_free(batch);
}

static void background_send_batch(struct remote *r)
{
    struct remote_batch *batch = g_steal_pointer(&r->batch);
    ev_clear_pending(r->loop, &r->batching);
    r->store->renew(r, batch);
}

static void background_on_batch(struct ev_loop *loop, ev_prepare *batching, int events)
{
    (void)loop, (void)events;
    background_send_batch(batching->data);
}

void remote_batch_add(struct remote *r, struct remote_request *request)
{
    if (!r->batch) {
        r->batch = g_new(struct remote_batch, 1);
        r->batch->r = r;
        r->batch->count = 0;
        LIST_INSERT_HEAD(&r->batches, r->batch, link);
        ev_prepare_init(&r->batching, background_on_batch);
        ev_set_priority(&r->batching, EV_MINPRI);
        r->batching.data = r;
        ev_feed_event(r->loop, &r->batching, EV_CUSTOM);
    }
    g_strlcpy(r->batch->ids[r->batch->count], request->id, REMOTE_ID_SIZE);
    r->batch->requests[r->batch->count++] = request;
    if (r->batch->count == REMOTE_RENEWALS_MAX) {
        background_send_batch(r);
    }
}

void remote_batch_clear(struct remote *r)
{
    if (r->batch) {
        ev_clear_pending(r->loop, &r->batching);
        r->batch = NULL;
    }
    while (!LIST_EMPTY(&r->batches)) {
        remote_batch_free(LIST_FIRST(&r->batches));
    }
}

int remote_compare_background(const void *a, const void *b)
{
    const struct remote_ticket *x = a, *y = b;
    if (x->background_order != y->background_order) {
        return x->background_order < y->background_order ? -1 : 1;
    }
    return (x->serial > y->serial) - (x->serial < y->serial);
}

/* Sends as many as may be pending. */
static void background_send_next(struct remote *r)
{
    while (r->background_pending < REMOTE_BACKGROUND_MAX) {
        struct remote_ticket *t = skiplist_item(skiplist_first(&r->background));
        struct remote_request *request = TAILQ_FIRST(&r->ended_releases);
        if (t) {
            skiplist_remove(&r->background, t);
            t->in_background = false;
            background_send_renewal(r, t, !t->background_extends, true);
        } else if (request) {
            TAILQ_REMOVE(&r->ended_releases, request, release.ended);
            request->background_cost = REMOTE_BACKGROUND_COST;
            r->background_pending += request->background_cost;
            background_send_release(request);
        } else {
            break;
        }
    }
}

static void background_queue_renewal(struct remote *r, struct remote_ticket *t, bool extend)
{
    t->background_extends = extend || (t->in_background && t->background_extends);
    if (!t->in_background) {
        t->in_background = true;
        t->background_order = t->head.deadline;
        skiplist_insert(&r->background, t);
        background_send_next(r);
    }
}

void remote_extend(struct remote *r, struct remote_ticket *t)
{
    t->renewing = true;
    background_queue_renewal(r, t, true);
}

void remote_verify_in_background(struct remote *r, struct remote_ticket *t)
{
    background_queue_renewal(r, t, t->renewing);
}

void remote_verify_ticket(struct remote *r, struct remote_ticket *t)
{
    background_send_renewal(r, t, !t->renewing, false);
}

/* --- ends, and verifying --- */

void remote_end_ticket(struct remote *r, struct remote_ticket *t, enum backend_end why, bool release)
{
    const char *word = why == BACKEND_EXPIRED ? "expired" : "lost";
    if (release && !t->expiry_sent && t->moving) {
        remote_send_release(r, t, word, NULL, NULL);
    } else if (release && !t->expiry_sent) {
        struct remote_request *request = background_release_request(r, t, word, NULL, NULL);
        TAILQ_INSERT_TAIL(&r->ended_releases, request, release.ended);
    }
    if (t->head.user) { /* NULL: the store's own ticket */
        r->events->ended(r->context, &t->head, why);
    }
    remote_ticket_free(r, t);
    background_send_next(r);
}

void remote_report_expired(struct remote *r, const char *name)
{
    struct remote_lock *lock = g_hash_table_lookup(r->locks, name);
    struct remote_ticket *t;
    struct remote_request *request, *next;
    for (request = TAILQ_FIRST(&r->ended_releases); request; request = next) {
        next = TAILQ_NEXT(request, release.ended);
        if (strcmp(request->release.ticket_name, name) == 0) {
            TAILQ_REMOVE(&r->ended_releases, request, release.ended);
            background_send_release(request);
        }
    }
    for (t = lock ? LIST_FIRST(&lock->tickets) : NULL; t; t = LIST_NEXT(t, link)) {
        if (t->state == REMOTE_HELD && !t->expiry_sent && t->head.deadline <= clock_now()) {
            remote_send_release(r, t, "expired", NULL, NULL);
            t->expiry_sent = true;
        }
    }
}

/* Can the two not both hold? */
static bool background_conflicts(const struct remote_ticket *a, const struct remote_ticket *b)
{
    bool compatible = backend_identity_matches(BACKEND_IDENTITY(a), BACKEND_IDENTITY(b));
    if (compatible || (a->segments && b->segments)) {
        return !compatible && backend_segments_conflict(a->segments, b->segments);
    }
    return a->head.mode == BACKEND_EXCLUSIVE || b->head.mode == BACKEND_EXCLUSIVE;
}

void remote_verify(struct remote *r, struct remote_lock *lock, const struct remote_ticket *holder)
{
    struct remote_ticket *t;
    LIST_FOREACH(t, &lock->tickets, link) {
        bool conflicts = !holder || (t != holder && background_conflicts(t, holder));
        if (conflicts && t->state == REMOTE_HELD && !t->expiry_sent && !t->renaming && !t->moving) {
            remote_verify_ticket(r, t);
        }
    }
}

/* Does the answer say that the ticket cannot hold?  Nobody holds the name, or a conflicting ticket does. */
static bool background_is_contradicted(const struct remote_ticket *t, const struct backend_info *info)
{
    bool exclusive = info->mode == BACKEND_EXCLUSIVE || t->head.mode == BACKEND_EXCLUSIVE;
    bool excluded = exclusive && info->holders > 0 && remote_ticket_covers(t, info->start, info->end);
    return t->state == REMOTE_HELD && (info->type != BACKEND_LOCK || excluded);
}

/* The lock of a name, or the queue of a name that may be a sequence ticket's. */
static struct remote_lock *background_lock_of(struct remote *r, const char *name)
{
    const char *leaf;
    char *directory = remote_parent(name, &leaf);
    struct remote_lock *lock = g_hash_table_lookup(r->locks, name);
    if (!lock && remote_is_numbered(leaf)) {
        lock = g_hash_table_lookup(r->queues, directory);
    }
    g_free(directory);
    return lock;
}

bool remote_stat_again(struct remote_request *request, struct backend_info *info, bool own)
{
    bool expired = remote_info_is_expired(info, own);
    struct remote_lock *lock = background_lock_of(request->r, request->name);
    if (request->verified) {
        info->type = expired ? BACKEND_NOTHING : info->type;
        return false;
    }
    request->verified = expired && info->holders > 1; /* another holder may be named */
    if (request->verified) {
        return true;
    }
    info->type = expired ? BACKEND_NOTHING : info->type;
    struct remote_ticket *t = lock && !info->ticket ? LIST_FIRST(&lock->tickets) : NULL;
    while (t && !background_is_contradicted(t, info)) {
        t = LIST_NEXT(t, link);
    }
    if (t) {
        remote_verify(request->r, lock, NULL);
        request->verified = true;
    }
    return t;
}
