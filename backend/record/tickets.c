/* tickets: acquires, claims, releases, converts, sets and renews tickets; see private.h. */
#include <string.h>

#include "backend/record/private.h"

enum { QUOTA = RECORD_TICKETS_MAX / 4, UID_WORD = 5 };

static struct engine *engine_of(struct backend *b)
{
    return (struct engine *)b;
}

/* --- help --- */

/* The ticket of the op in the record; NULL: it is not there, or only its guard is. */
static struct backend_ticket *op_find(const struct op *op, struct scratch *s)
{
    struct backend_ticket *present = record_id_is_set(op->id) ? scratch_find(s, op->lock, op->id) : NULL;
    return present && !present->guarded ? present : NULL;
}

static clock_ms op_new_deadline(const struct scratch *s, const struct ticket *t, int64_t ttl)
{
    bool runs_on = t && t->sequence && t->state == TICKET_WAITING; /* its term runs while it waits */
    return s->now + (runs_on ? MAX(t->head.deadline - clock_now(), 1) : ttl);
}

/* Content that does not fit into the record is a value of its own. */
static void op_keep_content(struct scratch *s, struct backend_ticket *ticket, struct record_ticket *tag,
                            GBytes *content)
{
    /* Rule 12.  (Else one lock with 64 KiB of content makes each swap of its record as long.) */
    bool apart = content && g_bytes_get_size(content) > RECORD_CONTENT_MAX;
    if (apart || tag->content_apart) {
        scratch_add_content(s, tag->id, apart ? content : NULL);
    }
    if (apart) {
        lockspace_set(ticket, &(struct backend_change){.set = BACKEND_SET_CONTENT});
    }
    tag->content_apart = apart;
}

/* A ticket that has taken over the one of its lock owner keeps that one's id: so a lock owner's ticket has the same id
 * whatever comes of the answer to this op. */
static void op_join(struct op *op, struct scratch *s, struct record_ticket *tag)
{
    if (s->absorbed) {
        if (tag->content_apart) {
            scratch_add_content(s, tag->id, NULL); /* it has the content of that one, too */
        }
        tag->id = op->joined = s->absorbed->id;
        tag->content_apart = s->absorbed->content_apart;
        s->absorbed = NULL;
    }
}

/* --- acquire --- */

struct quota {
    const char *uid;
    size_t length;
    unsigned total, own;
};

static const char *quota_uid(GBytes *meta, size_t *ret_length)
{
    gsize size = 0;
    const char *at = meta ? g_bytes_get_data(meta, &size) : NULL, *end = at ? at + size : NULL;
    for (unsigned word = 1; at && word < UID_WORD; word++) {
        at = memchr(at, ' ', (size_t)(end - at));
        at = at ? at + 1 : NULL;
    }
    const char *stop = at ? memchr(at, ' ', (size_t)(end - at)) : NULL;
    *ret_length = stop ? (size_t)(stop - at) : 0;
    return stop ? at : NULL;
}

static void quota_count(void *arg, const char *leaf, struct backend_ticket *ticket)
{
    struct quota *quota = arg;
    size_t length;
    const char *uid = quota_uid(lockspace_ticket_meta(ticket), &length);
    (void)leaf;
    quota->total++;
    quota->own += uid && quota->uid && length == quota->length && memcmp(uid, quota->uid, length) == 0;
}

/* Rule 12: one user has at most a quarter of a record.  (Else a user fills the queue of a lock, and nobody else can
 * wait for it.) */
static enum backend_result acquire_check_room(const struct op *op, struct scratch *s)
{
    struct quota quota = {0};
    quota.uid = quota_uid(op->claim.meta, &quota.length);
    if (op->lock->record->tickets->len < QUOTA) {
        return BACKEND_OK;
    }
    record_visit(s->space, scratch_directory(s, op->lock), quota_count, &quota);
    bool root = quota.uid && quota.length == 1 && *quota.uid == '0';
    return quota.total >= RECORD_TICKETS_MAX ? BACKEND_FULL : quota.own >= QUOTA && !root ? BACKEND_QUOTA : BACKEND_OK;
}

void op_describe(struct op *op, const struct backend_info *holder)
{
    const struct record_ticket *tag = holder->ticket ? holder->ticket->user : NULL;
    op->holder = tag ? tag->id : (struct record_id){{0}};
    op_set_info(op, holder);
    op->info.ticket = NULL;
    op->apart = tag && tag->content_apart;
}

/* An earlier attempt was carried out, or another mount has granted it: it gets a term from now. */
static void acquire_take_present(struct op *op, struct scratch *s, struct backend_ticket *present)
{
    struct record_ticket *tag = present->user;
    s->dirty = true;
    op->result = present->held ? BACKEND_OK : BACKEND_QUEUED;
    if (!present->held) {
        return;
    }
    tag->claim = false;
    if (present->kind == BACKEND_FCNTL) {
        lockspace_claim(s->space, s->now, present);
        op_join(op, s, tag);
    }
    record_set_deadline(s->space, present, op_new_deadline(s, op->ticket, op->claim.ttl));
    scratch_settle_grants(s);
}

/* Rule 13: while the store is closed nothing new is granted.  Those that wait queue.  (Else, after the store has lost
 * its data, somebody gets the lock of a holder that has not put it back yet.) */
static void acquire_when_closed(struct op *op, struct scratch *s)
{
    op->result = BACKEND_UNREACHABLE;
    if (!op->claim.wait || op->claim.sequence || !op->ticket) {
        return;
    }
    struct record_ticket *waits = ticket_describe(op->ticket);
    waits->held = false;
    waits->deadline = CLOCK_NEVER;
    g_ptr_array_add(s->fresh, waits);
    op->result = record_put(s->space, s->now, scratch_directory(s, op->lock), waits, NULL);
    op->result = op->result == BACKEND_OK ? BACKEND_QUEUED : op->result;
    waits->deadline = waits->acquired = 0; /* both are new */
    s->dirty = true;
}

static void acquire_apply_new(struct op *op, struct scratch *s)
{
    struct backend_claim claim = op->claim;
    struct backend_ticket *ticket = NULL;
    struct backend_info holder;
    g_autofree char *path = scratch_path(s, op->lock, op->leaf);
    claim.user = NULL;
    claim.due = 0;
    claim.handle = engine_identity(s->engine, claim.handle);
    claim.lock_owner = engine_identity(s->engine, claim.lock_owner);
    op->result = acquire_check_room(op, s);
    if (op->result != BACKEND_OK) {
        return;
    }
    op->result = lockspace_acquire(s->space, s->now, path, &claim, &ticket, &holder);
    if (op->result == BACKEND_BUSY) {
        op_describe(op, &holder);
    }
    if (!ticket) {
        return;
    }
    s->dirty = true;
    struct record_ticket *tag = scratch_tag(s, ticket, op->id);
    op_join(op, s, tag);
    if (!ticket->joined) {
        op_keep_content(s, ticket, tag, claim.content);
    }
    if (op->result == BACKEND_QUEUED) {
        record_set_deadline(s->space, ticket, CLOCK_NEVER);
    }
    scratch_settle_grants(s);
}

static void acquire_apply(struct op *op, struct scratch *s)
{
    struct backend_ticket *present = op->tried ? op_find(op, s) : NULL;
    op->joined = (struct record_id){{0}};
    if (op->abandoned || !op->ticket) {
        op->result = BACKEND_UNREACHABLE;
        if (present) {
            scratch_release(s, present);
        }
        return;
    }
    op->result = scratch_check_name(s, op);
    if (op->result != BACKEND_OK) {
        return;
    }
    if (present) {
        acquire_take_present(op, s, present);
    } else if (s->engine->closed) {
        acquire_when_closed(op, s);
    } else {
        acquire_apply_new(op, s);
    }
}

/* What the ticket is, as the record says. */
static void ticket_take(struct ticket *t, const struct record_ticket *from)
{
    t->head.fence = from->fence;
    t->head.mode = from->mode;
    ticket_set_segments(t, from->held ? from->segments : NULL);
    if (from->leaf && (!t->leaf || strcmp(t->leaf, from->leaf) != 0)) {
        g_free(t->leaf);
        t->leaf = g_strdup(from->leaf);
    }
}

/* `t` has taken over the ticket with which its lock owner held already. */
static void ticket_join(struct ticket *t, struct record_id joined)
{
    struct ticket *old = record_id_is_set(joined) ? ticket_find(t->lock->engine, joined) : NULL;
    if (!old || old == t) {
        return;
    }
    const struct backend_change change = {
        .set = BACKEND_SET_META | BACKEND_SET_CONTENT, .meta = old->meta, .content = old->head.content};
    t->head.acquired = old->head.acquired;
    t->head.joined = true;
    ticket_change(t, &change);
    t->handle = old->handle;
    ticket_free(old);
    ticket_set_id(t, joined);
}

bool ticket_begin_hold(struct ticket *t, struct record_id joined, clock_ms sent)
{
    clock_ms now = clock_now();
    bool waited = t->state == TICKET_WAITING;
    clock_ms deadline = waited && t->sequence ? t->head.deadline : engine_deadline(sent, t->head.ttl);
    const struct record_ticket *from = record_find(t->lock->record, record_id_is_set(joined) ? joined : t->id);
    if (!from || !from->held || deadline <= now) {
        return false;
    }
    t->head.acquired = now;
    ticket_join(t, joined);
    ticket_take(t, from);
    ticket_set_state(t, TICKET_HOLDS);
    if (waited && t->sequence) {
        ticket_schedule(t);
    } else {
        ticket_start_term(t, now, deadline);
    }
    return true;
}

void op_finish_info(struct op *op)
{
    const struct engine *e = op->lock->engine;
    struct ticket *t = record_id_is_set(op->holder) ? ticket_find(e, op->holder) : NULL;
    bool foreign = op->info.kind == (enum backend_kind)RECORD_FOREIGN_HOLDER;
    if (foreign) {
        op->info.kind = BACKEND_LEASE;
        op->info.fence = 0;
        op->info.acquired = CLOCK_NEVER;
        op->info.deadline = op->lock->lock.end;
    } else {
        op->info.acquired -= e->offset;
    }
    if (op->info.deadline < RECORD_FOREVER) {
        op->info.deadline -= e->offset;
    }
    if (t && t->state != TICKET_ACQUIRING) {
        op->info.ticket = &t->head;
        op->info.acquired = t->head.acquired;
        op->info.deadline = t->head.deadline;
        op->info.fence = t->head.fence;
    }
}

void lock_end_expired(struct lock *lock)
{
    struct ticket *t;
    LIST_FOREACH(t, &lock->tickets, link) {
        if (ticket_is_expired(t) && !t->ending) {
            struct op *op = op_new(lock->engine, &op_end, lock, t);
            op->why = t->renewing || !lock->engine->up ? BACKEND_LOST : BACKEND_EXPIRED;
            t->why = (uint8_t)(1 + op->why);
            t->ending = true;
            op_push(op);
        }
    }
}

static void acquire_settle(struct op *op)
{
    struct ticket *t = op->ticket;
    clock_ms now = clock_now();
    if (!t) {
        return; /* released meanwhile */
    }
    if (op->result == BACKEND_OK && !ticket_begin_hold(t, op->joined, op->sent)) {
        op->result = BACKEND_UNREACHABLE; /* engine_observe removes it from the record */
    } else if (op->result == BACKEND_QUEUED) {
        const struct record_ticket *from = record_find(op->lock->record, t->id);
        if (from) {
            t->head.acquired = now;
            ticket_set_state(t, TICKET_WAITING);
            ticket_take(t, from);
            ticket_start_term(t, now, engine_deadline(op->sent, t->head.ttl));
        } else {
            op->result = BACKEND_UNREACHABLE;
        }
    } else if (op->result == BACKEND_BUSY) {
        op_finish_info(op);
    }
    if (op->result != BACKEND_OK && op->result != BACKEND_QUEUED) {
        ticket_free(t);
    }
    op_answer(op, op->result);
}

/* The ticket with which its lock owner holds already; NULL: none. */
static struct ticket *ticket_find_joined(const struct ticket *t)
{
    struct ticket *other;
    LIST_FOREACH(other, &t->lock->tickets, link) {
        if (t->head.kind == BACKEND_FCNTL && other != t && other->state == TICKET_HOLDS &&
            other->lock_owner == t->lock_owner && t->lock_owner) {
            return other;
        }
    }
    return NULL;
}

/* May the request let others in beside what this ticket holds?  Then it is not given up while its caller holds that: it
 * is carried out when the store is there again, or the lock is lost at its deadline. */
static bool op_may_weaken(const struct op *op, const struct ticket *held)
{
    struct backend_segment s = {.start = op->claim.start, .end = op->claim.end, .mode = BACKEND_SHARED};
    bool found = held && held->head.mode == BACKEND_EXCLUSIVE && op->claim.mode == BACKEND_SHARED;
    GArray *segments = g_array_new(FALSE, FALSE, sizeof s);
    g_array_append_val(segments, s);
    found = found && (!held->segments || backend_segments_conflict(held->segments, segments));
    g_array_unref(segments);
    return found;
}

static void acquire_abandon(struct op *op)
{
    struct ticket *joined = op->ticket ? ticket_find_joined(op->ticket) : NULL;
    if (op_may_weaken(op, joined) && op_postpone(op, ENGINE_RETRY)) {
        return;
    }
    op->abandoned = true;
    if (op->ticket && op->acquired) {
        ticket_free(op->ticket);
        op_answer(op, BACKEND_UNREACHABLE);
    }
}

static const struct op_type op_acquire = {
    .apply = acquire_apply, .settle = acquire_settle, .abandon = acquire_abandon, .is_blind = true};

struct backend_ticket *engine_acquire(struct backend *b, const char *name, const struct backend_claim *claim,
                                      backend_acquire_done *done, void *arg)
{
    struct engine *e = engine_of(b);
    const char *leaf = NULL;
    bool good = engine_allows_name(e, name) && (claim->kind != BACKEND_FCNTL || claim->start <= claim->end);
    if (!*name || !good) {
        done(arg, *name ? BACKEND_INVALID : BACKEND_IS_DIRECTORY, NULL, NULL);
        return NULL;
    }
    struct lock *lock;
    if (claim->sequence) {
        g_autofree char *directory = engine_parent(name, &leaf);
        lock = lock_obtain_named(e, directory);
    } else {
        lock = lock_obtain(e, name, &leaf);
    }
    lock_end_expired(lock);
    struct ticket *t = ticket_new(e, lock, leaf, claim);
    struct op *op = op_new(e, &op_acquire, lock, t);
    op_set_claim(op, claim);
    op->acquired = done;
    op->arg = arg;
    op_push(op);
    return &t->head;
}

/* --- a waiter that is not in the record any more --- */

static void requeue_apply(struct op *op, struct scratch *s)
{
    struct backend_ticket *present = op_find(op, s);
    op->result = scratch_check_name(s, op);
    if (!op->ticket || op->result != BACKEND_OK || present) {
        return;
    }
    /* Its fencing token is its place, which it keeps.  Once somebody behind it has been granted, it gets a new token
     * with its own grant. */
    struct record_ticket *waits = ticket_describe(op->ticket);
    waits->held = false;
    g_ptr_array_add(s->fresh, waits);
    if (record_put(s->space, s->now, scratch_directory(s, op->lock), waits, NULL) == BACKEND_OK) {
        op_keep_content(s, scratch_find(s, op->lock, op->id), waits, op->ticket->head.content);
        waits->acquired = 0;
        s->dirty = true;
        scratch_settle_grants(s);
    }
}

static void requeue_settle(struct op *op)
{
    if (op->ticket) {
        op->ticket->requeued = false;
    }
    if (op->ticket && op->result != BACKEND_OK) {
        ticket_end(op->ticket, BACKEND_LOST); /* its directory is gone */
    }
}

const struct op_type op_requeue = {.apply = requeue_apply, .settle = requeue_settle, .is_lasting = true};

/* --- claim --- */

static void claim_apply(struct op *op, struct scratch *s)
{
    struct backend_ticket *present = op_find(op, s);
    op->joined = (struct record_id){{0}};
    op->result = !present ? BACKEND_STALE : present->held ? BACKEND_OK : BACKEND_QUEUED;
    if (op->result != BACKEND_OK) {
        return;
    }
    if (!op->ticket) {
        scratch_release(s, present); /* its caller has gone: Rule 8 */
        op->result = BACKEND_STALE;
        return;
    }
    op->claim.ttl = present->ttl;
    acquire_take_present(op, s, present);
}

static void claim_settle(struct op *op)
{
    struct ticket *t = op->ticket;
    struct engine *e = op->lock->engine;
    if (!t) {
        return;
    }
    t->claiming = false;
    if (op->result == BACKEND_OK && t->state == TICKET_WAITING && ticket_begin_hold(t, op->joined, op->sent)) {
        e->events->granted(e->context, &t->head);
    }
}

const struct op_type op_claim = {.apply = claim_apply, .settle = claim_settle, .is_lasting = true};

/* --- release --- */

static void release_apply(struct op *op, struct scratch *s)
{
    struct backend_ticket *present = op_find(op, s);
    op->result = present || op->tried || op->is_lenient ? BACKEND_OK : BACKEND_STALE;
    if (present) {
        scratch_release(s, present);
    }
}

static void release_settle(struct op *op)
{
    op_answer(op, op->result);
}

static const struct op_type op_release = {.apply = release_apply, .settle = release_settle, .is_lasting = true};

void engine_release(struct backend *b, struct backend_ticket *ticket, backend_done *done, void *arg)
{
    struct engine *e = engine_of(b);
    struct ticket *t = (struct ticket *)ticket;
    struct op *each, *op = op_new(e, &op_release, t->lock, t);
    TAILQ_FOREACH(each, &t->lock->ops, link) {
        if (each->ticket == t && each->acquired) {
            each->acquired = NULL;
            each->abandoned = true;
        }
    }
    op->is_lenient = t->state != TICKET_HOLDS;
    op->done = done;
    op->arg = arg;
    op_push(op);
    ticket_free(t);
}

bool engine_cancel(struct backend *b, struct backend_ticket *ticket)
{
    struct ticket *t = (struct ticket *)ticket;
    if ((t->head.kind == BACKEND_FCNTL && t->claiming) || (t->state == TICKET_ACQUIRING && ticket_find_joined(t))) {
        return false;
    }
    engine_release(b, ticket, NULL, NULL);
    return true;
}

/* --- release of a range --- */

static void release_range_apply(struct op *op, struct scratch *s)
{
    struct backend_ticket *present = op_find(op, s);
    op->result = BACKEND_OK;
    if (present && present->held && present->kind == BACKEND_FCNTL) {
        op->result = lockspace_release_range(s->space, s->now, present, op->start, op->end);
        s->dirty = true;
        scratch_settle_grants(s);
    }
}

static const struct op_type op_release_range = {
    .apply = release_range_apply, .settle = release_settle, .is_lasting = true};

bool engine_release_range(struct backend *b, struct backend_ticket *ticket, uint64_t start, uint64_t end,
                          backend_done *done, void *arg)
{
    struct engine *e = engine_of(b);
    struct ticket *t = (struct ticket *)ticket;
    if (t->state != TICKET_HOLDS || !t->segments) {
        engine_release(b, ticket, done, arg);
        return false;
    }
    GArray *left = g_array_copy(t->segments);
    backend_segments_set(left, start, end, NULL);
    if (left->len == 0 || left->len > RECORD_TICKETS_MAX) {
        bool some = left->len > 0;
        g_array_unref(left);
        if (!some) {
            engine_release(b, ticket, done, arg);
        } else if (done) {
            done(arg, BACKEND_QUOTA);
        }
        return some;
    }
    ticket_set_segments(t, left);
    t->head.mode = (uint8_t)backend_segments_mode(left);
    g_array_unref(left);
    struct op *op = op_new(e, &op_release_range, t->lock, t);
    op->start = start;
    op->end = end;
    op->done = done;
    op->arg = arg;
    op->changes = true;
    op_push(op);
    return true;
}

/* --- convert --- */

static void convert_apply(struct op *op, struct scratch *s)
{
    struct backend_ticket *present = op_find(op, s);
    struct backend_claim claim = op->claim;
    op->joined = (struct record_id){{0}};
    op->result = BACKEND_STALE;
    if (!present || !op->ticket || op->abandoned || (present->held && ticket_is_expired(op->ticket))) {
        return; /* what an attempt has changed is put back: see engine_observe */
    }
    claim.user = present->user;
    claim.due = 0;
    claim.handle = engine_identity(s->engine, claim.handle);
    claim.lock_owner = engine_identity(s->engine, claim.lock_owner);
    bool stronger = present->held && present->mode == BACKEND_SHARED && claim.mode == BACKEND_EXCLUSIVE;
    if (s->engine->closed && stronger) {
        op->result = BACKEND_GRACE;
        return;
    }
    op->result = lockspace_convert(s->space, s->now, present, &claim);
    if (op->result != BACKEND_OK) {
        return;
    }
    s->dirty = true;
    struct record_ticket *tag = present->user;
    op_join(op, s, tag);
    if (claim.content) {
        op_keep_content(s, present, tag, claim.content);
    }
    record_set_deadline(s->space, present, present->held ? s->now + claim.ttl : CLOCK_NEVER);
    scratch_settle_grants(s);
}

static void convert_settle(struct op *op)
{
    struct ticket *t = op->ticket;
    const struct backend_claim *claim = &op->claim;
    const struct record_ticket *from =
        t ? record_find(op->lock->record, record_id_is_set(op->joined) ? op->joined : t->id) : NULL;
    clock_ms now = clock_now();
    op->lock->look = op->lock->look || op->abandoned;
    if (op->result == BACKEND_OK && (!t || !from)) {
        op->result = BACKEND_STALE;
    } else if (op->result == BACKEND_OK) {
        bool held = t->state == TICKET_HOLDS;
        const struct backend_change change = {.set = (claim->meta ? BACKEND_SET_META : 0u) |
                                                     (claim->content ? BACKEND_SET_CONTENT : 0u),
                                              .meta = claim->meta,
                                              .content = claim->content};
        ticket_change(t, &change);
        t->head.user = claim->user;
        t->head.kind = (uint8_t)claim->kind;
        t->head.ttl = claim->ttl;
        t->handle = claim->handle;
        t->lock_owner = claim->lock_owner;
        t->start = claim->kind == BACKEND_FCNTL ? claim->start : 0;
        t->end = claim->kind == BACKEND_FCNTL ? claim->end : BACKEND_RANGE_MAX;
        t->due_after = claim->due;
        ticket_join(t, op->joined);
        ticket_take(t, from);
        ticket_start_term(t, now, held ? engine_deadline(op->sent, claim->ttl) : now + claim->ttl);
    }
    op_answer(op, op->result);
}

static void convert_abandon(struct op *op)
{
    bool holds = op->ticket && op->ticket->state == TICKET_HOLDS;
    if (holds && op_may_weaken(op, op->ticket) && op_postpone(op, ENGINE_RETRY)) {
        return;
    }
    op->abandoned = true;
    op_answer(op, BACKEND_UNREACHABLE);
}

static const struct op_type op_convert = {.apply = convert_apply, .settle = convert_settle, .abandon = convert_abandon};

void engine_convert(struct backend *b, struct backend_ticket *ticket, const struct backend_claim *claim,
                    backend_done *done, void *arg)
{
    struct ticket *t = (struct ticket *)ticket;
    if (ticket_is_expired(t)) {
        done(arg, BACKEND_STALE);
        return;
    }
    struct op *op = op_new(engine_of(b), &op_convert, t->lock, t);
    op_set_claim(op, claim);
    op->done = done;
    op->arg = arg;
    op->changes = true;
    op_push(op);
}

/* --- renew --- */

static void renew_apply(struct op *op, struct scratch *s)
{
    struct backend_ticket *present = op_find(op, s);
    const struct ticket *t = op->ticket;
    op->result = present && present->held ? BACKEND_OK : BACKEND_STALE;
    if (!t || !present || !present->held) {
        return;
    }
    op->ttl = t->head.ttl;
    lockspace_renew(s->space, s->now, present, op->ttl, 0);
    record_set_deadline(s->space, present, s->now + op->ttl);
    s->dirty = true;
    struct record_ticket *tag = present->user;
    tag->claim = false;
    if (tag->content_apart && t->head.content) {
        scratch_add_content(s, tag->id, t->head.content);
    }
}

static void renew_settle(struct op *op)
{
    struct ticket *t = op->ticket;
    if (!t) {
        return;
    }
    t->renewing = false;
    if (t->state == TICKET_HOLDS && op->result == BACKEND_OK) {
        t->head.deadline = engine_deadline(op->sent, op->ttl);
        t->retry = CLOCK_NEVER;
        ticket_schedule(t);
    }
}

const struct op_type op_renew = {.apply = renew_apply, .settle = renew_settle, .is_lasting = true};

void ticket_push_renewal(struct ticket *t)
{
    t->renewing = true;
    op_push(op_new(t->lock->engine, &op_renew, t->lock, t));
}

void engine_renew(struct backend *b, const struct backend_renewal *renewals, size_t count)
{
    struct engine *e = engine_of(b);
    clock_ms now = clock_now();
    for (size_t i = 0; i < count; i++) {
        struct ticket *t = (struct ticket *)renewals[i].ticket;
        clock_ms longest = now + renewals[i].ttl;
        if (ticket_is_expired(t)) {
            continue; /* the agenda reports it */
        }
        t->head.ttl = renewals[i].ttl;
        t->due_after = renewals[i].due;
        t->due = renewals[i].due > 0 ? now + renewals[i].due : CLOCK_NEVER;
        t->head.deadline = t->state == TICKET_HOLDS ? MIN(t->head.deadline, longest) : longest;
        ticket_schedule(t);
        if (t->state == TICKET_HOLDS && !t->renewing) {
            t->renewing = true;
            g_ptr_array_add(e->extending, t);
        }
    }
    if (e->loop) {
        ev_feed_event(e->loop, &e->flush, EV_PREPARE);
    }
}

/* --- set --- */

static void set_apply(struct op *op, struct scratch *s)
{
    struct backend_ticket *present = op_find(op, s);
    op->result = present && op->ticket ? BACKEND_OK : BACKEND_STALE;
    if (op->result != BACKEND_OK) {
        return;
    }
    lockspace_set(present, &op->change);
    if (op->change.set & BACKEND_SET_CONTENT) {
        op_keep_content(s, present, present->user, op->change.content);
    }
    s->dirty = true;
}

static void set_settle(struct op *op)
{
    if (op->ticket && op->result == BACKEND_OK) {
        ticket_change(op->ticket, &op->change);
    }
    op_answer(op, op->ticket ? op->result : BACKEND_STALE);
}

static const struct op_type op_set = {.apply = set_apply, .settle = set_settle};
static const struct op_type op_set_later = {.apply = set_apply, .settle = set_settle, .is_lasting = true};

void engine_set(struct backend *b, struct backend_ticket *ticket, const struct backend_change *change,
                backend_done *done, void *arg)
{
    struct ticket *t = (struct ticket *)ticket;
    if (ticket_is_expired(t)) {
        if (done) {
            done(arg, BACKEND_STALE);
        }
        return;
    }
    struct op *op = op_new(engine_of(b), done ? &op_set : &op_set_later, t->lock, t);
    op->change = *change;
    op->change.meta = change->meta ? g_bytes_ref(change->meta) : NULL;
    op->change.content = change->content ? g_bytes_ref(change->content) : NULL;
    op->done = done;
    op->arg = arg;
    op_push(op);
}

/* --- what the engine does by itself --- */

/* The ticket's user has had the event `ended`. */
static void end_apply(struct op *op, struct scratch *s)
{
    struct backend_ticket *present = op_find(op, s);
    if (present && present->held) {
        record_end(s->space, s->now, present, op->why);
        s->dirty = true;
        scratch_settle_grants(s);
    } else if (present) {
        scratch_release(s, present);
    }
}

static void nothing_to_settle(struct op *op)
{
    (void)op;
}

const struct op_type op_end = {.apply = end_apply, .settle = nothing_to_settle, .is_lasting = true};

/* A recovered ticket has the identity that its daemon before gave it, which no claim of this one has. */
static void identify_apply(struct op *op, struct scratch *s)
{
    struct backend_ticket *present = op_find(op, s);
    const struct ticket *t = op->ticket;
    if (present && t) {
        record_identify(s->space, present,
                        (struct backend_identity){engine_identity(s->engine, t->handle),
                                                  engine_identity(s->engine, t->lock_owner)});
        s->dirty = true;
    }
}

static const struct op_type op_identify = {.apply = identify_apply, .settle = nothing_to_settle, .is_lasting = true};

void engine_identify(struct backend *b, struct backend_ticket *ticket, struct backend_identity identity)
{
    struct ticket *t = (struct ticket *)ticket;
    t->handle = identity.handle;
    t->lock_owner = identity.lock_owner;
    op_push(op_new(engine_of(b), &op_identify, t->lock, t));
}

/* Rule 7: a ticket of this mount that this mount does not know.  (Its caller was answered while its request was on the
 * way; nobody would ever release it.) */
static void remove_apply(struct op *op, struct scratch *s)
{
    struct backend_ticket *present = op_find(op, s);
    const struct record_ticket *tag = present ? present->user : NULL;
    if (tag && record_id_equal(tag->mount, s->engine->store->mount) && !ticket_find(s->engine, op->id)) {
        scratch_release(s, present);
    }
}

const struct op_type op_remove = {.apply = remove_apply, .settle = nothing_to_settle, .is_lasting = true};

/* Puts the ticket into the record as its user relies on it: the store has lost it, or has something else because the
 * answer to a call was lost.  BUSY: others have been let in. */
static void restore_apply(struct op *op, struct scratch *s)
{
    struct ticket *t = op->ticket;
    struct backend_ticket *present = scratch_find(s, op->lock, op->id);
    op->result = scratch_check_name(s, op);
    if (!t || t->state != TICKET_HOLDS || (present && present->guarded) || op->result != BACKEND_OK) {
        return;
    }
    struct record_ticket *wanted = ticket_describe(t);
    bool whole = t->head.kind != BACKEND_FCNTL && !t->sequence && t->head.mode == BACKEND_EXCLUSIVE;
    bool later_grant = !present && whole && op->lock->record->granted > t->head.fence;
    const struct record_ticket *tag = present ? present->user : NULL;
    wanted->deadline = s->now + MAX(t->head.deadline - clock_now(), 1);
    wanted->content_apart = tag && tag->content_apart;
    g_ptr_array_add(s->fresh, wanted);
    op->result =
        later_grant ? BACKEND_BUSY : record_put(s->space, s->now, scratch_directory(s, op->lock), wanted, present);
    if (op->result == BACKEND_OK) {
        if (!present) {
            op_keep_content(s, scratch_find(s, op->lock, op->id), wanted, t->head.content);
        }
        wanted->deadline = 0; /* it is new */
        s->dirty = true;
        scratch_settle_grants(s);
    } else if (present) {
        scratch_release(s, present);
    }
}

static void restore_settle(struct op *op)
{
    struct ticket *t = op->ticket;
    if (t && op->result == BACKEND_BUSY) {
        ticket_end(t, BACKEND_LOST);
    } else if (op->result != BACKEND_OK) {
        op->lock->pause = clock_now() + ENGINE_RETRY; /* its directory is not there yet */
    } else if (t) {
        op->lock->engine->restored++;
    }
}

const struct op_type op_restore = {.apply = restore_apply, .settle = restore_settle, .is_lasting = true};

/* Ends all that has expired, grants waiters, and removes waiters of mounts that are gone. */

struct dead {
    const GArray *alive;
    struct record_id own;
    GPtrArray *found;
};

static void touch_find_dead(void *arg, const char *leaf, struct backend_ticket *ticket)
{
    struct dead *dead = arg;
    const struct record_ticket *tag = ticket->user;
    (void)leaf;
    /* Rule 4: one that holds ends at its deadline and at nothing else.  (A mount that was paused has no heartbeat, and
     * still relies on what it holds.) */
    if (!tag || !record_id_is_set(tag->mount) || record_id_equal(tag->mount, dead->own) ||
        (ticket->held && !tag->claim)) {
        return;
    }
    for (guint i = 0; i < dead->alive->len; i++) {
        if (record_id_equal(g_array_index(dead->alive, struct record_id, i), tag->mount)) {
            return;
        }
    }
    g_ptr_array_add(dead->found, ticket);
}

static void touch_apply(struct op *op, struct scratch *s)
{
    struct engine *e = s->engine;
    const char *directory = scratch_directory(s, op->lock);
    struct dead dead = {.alive = e->mounts, .own = e->store->mount, .found = g_ptr_array_new()};
    /* Rule 4: after a new connection nobody's heartbeat is judged before a whole term has passed.  (A server that was
     * down has dropped all heartbeats.) */
    if (e->mounts && clock_now() >= e->judges_from) {
        record_visit(s->space, directory, touch_find_dead, &dead);
    }
    for (guint i = 0; i < dead.found->len; i++) {
        scratch_release(s, dead.found->pdata[i]);
    }
    g_ptr_array_unref(dead.found);
    record_grant(s->space, s->now, directory);
    scratch_settle_grants(s);
    s->dirty = s->dirty || op->fence;
}

const struct op_type op_touch = {.apply = touch_apply, .settle = nothing_to_settle, .is_lasting = true};
