/* keep: what keeps a ticket in the store, and what ends it there: heartbeat, renewals and releases.
 *
 * Renewals, and releases of what has ended here, are requests that nobody waits for, and there may be very many at
 * once: after a restart or a reconnect all that is held is renewed, and leases that were made together run out
 * together.  They have a lane of their own, in which no more than REMOTE_LANE_MAX are under way, so whoever asks for
 * something waits for no more than these.  The renewal whose deadline is nearest goes first.
 */
#include "backend/remote/remote.h"

static void keep_go_on(struct remote *r);

/* --- the heartbeat of those that wait --- */

int64_t remote_pause(const struct remote_ticket *t)
{
    return MAX(MIN(REMOTE_REFRESH, remote_ticket_liveness(t, t->head.ttl) / 3), REMOTE_REFRESH_MIN);
}

static int keep_by_place(gconstpointer a, gconstpointer b)
{
    uintptr_t x = (uintptr_t)(*(struct remote_ticket *const *)a)->place;
    uintptr_t y = (uintptr_t)(*(struct remote_ticket *const *)b)->place;
    return (x > y) - (x < y);
}

/* Who was spoken for less than half of its pause ago can wait for the next, so those of one pause go together. While
 * the store is away nothing is sent: all ask again when it is back. */
void remote_beat(struct remote *r, clock_ms now)
{
    GPtrArray *due = g_ptr_array_new();
    struct remote_ticket *t;
    r->beat = CLOCK_NEVER;
    LIST_FOREACH(t, &r->waiters, waiters) {
        if (now - t->spoke >= remote_pause(t) / 2) {
            t->spoke = now;
            if (t->state == REMOTE_WAITING && !t->asked && r->store->is_up(r)) {
                g_ptr_array_add(due, t);
            }
        }
        r->beat = MIN(r->beat, t->spoke + remote_pause(t));
    }
    g_ptr_array_sort(due, keep_by_place);
    for (guint i = 0; i < due->len; i += REMOTE_BEAT_MAX) {
        r->store->beat(r, (struct remote_ticket *const *)due->pdata + i, MIN(due->len - i, REMOTE_BEAT_MAX));
    }
    g_ptr_array_free(due, TRUE);
}

/* --- release --- */

/* Its lock owner has asked for some of what it held since, which may be the same ticket to the store. */
static bool keep_is_wanted_again(const struct remote_op *op)
{
    const struct backend_claim *c = &op->claim;
    struct remote_place *place = c->lock_owner ? g_hash_table_lookup(op->r->places, op->name) : NULL;
    struct remote_ticket *t = place ? LIST_FIRST(&place->tickets) : NULL;
    while (t && !(t->lock_owner == c->lock_owner && remote_ticket_covers(t, c->start, c->end))) {
        t = LIST_NEXT(t, link);
    }
    return t;
}

/* It was made weaker by a claim of which nobody knows any more, and others share it. */
static void keep_lose(struct remote_op *op)
{
    struct remote_place *place = g_hash_table_lookup(op->r->places, op->name);
    struct remote_ticket *t = place ? LIST_FIRST(&place->tickets) : NULL;
    while (t && !(t->lock_owner == op->claim.lock_owner && t->state == REMOTE_HELD)) {
        t = LIST_NEXT(t, link);
    }
    if (t) {
        remote_end(op->r, t, BACKEND_LOST, true);
    }
}

/* Tried for as long as the store may know of it, whatever its caller was told. */
static void keep_released(struct remote_op *op, const struct remote_answer *answer)
{
    struct remote *r = op->r;
    int64_t ttl = MIN(op->ttl, REMOTE_RELEASE_MAX);
    if (answer->outcome == REMOTE_ANSWERED && answer->result != BACKEND_OK && !(op->undo && op->done)) {
        keep_lose(op);
        remote_op_finish(op, BACKEND_OK);
        keep_go_on(r);
        return;
    }
    if (answer->outcome == REMOTE_ANSWERED || ttl <= 0 || keep_is_wanted_again(op)) {
        remote_op_finish(op, answer->result);
        keep_go_on(r);
        return;
    }
    if (op->done) {
        op->done(op->arg, answer->result);
    }
    op->done = NULL;
    op->ttl = 0;
    remote_op_send(op, NULL, op->procedure, keep_released, ttl);
}

static struct remote_op *keep_release_op(struct remote *r, const struct remote_ticket *t, const char *why,
                                         backend_done *done, void *arg)
{
    struct remote_op *op = remote_op_done(r, t, done, arg);
    op->claim.sequence = t->place->sequence;
    op->claim.lock_owner = t->lock_owner;
    op->claim.start = t->state != REMOTE_HELD; /* of one that does not hold no bytes */
    op->claim.end = t->state == REMOTE_HELD ? BACKEND_RANGE_MAX : 0;
    op->name = g_strdup(t->place->name);
    op->file = g_strdup(remote_ticket_name(t));
    op->ttl = t->head.ttl;
    op->why = why;
    op->lease = t->head.kind == BACKEND_LEASE;
    op->alone = t->alone && !*why;
    return op;
}

static void keep_send_release(struct remote_op *op)
{
    remote_op_send(op, NULL, REMOTE_RELEASE, keep_released, op->undo ? MIN(REMOTE_UNDO_MAX, op->ttl) : 0);
}

/* Of a ticket of which that is the release. */
static void keep_send_releases(struct remote *r, const struct remote_ticket *t, struct remote_op *op)
{
    if (t->moving) { /* it is under one name or the other */
        struct remote_op *other = remote_op_done(r, t, NULL, NULL);

        other->name = g_strdup(t->moving);
        other->file = g_strdup(t->moving);
        other->ttl = t->head.ttl;
        other->why = op->why;
        keep_send_release(other);
    }
    keep_send_release(op);
}

void remote_send_release(struct remote *r, const struct remote_ticket *t, const char *why, backend_done *done,
                         void *arg)
{
    keep_send_releases(r, t, keep_release_op(r, t, why, done, arg));
}

void remote_send_undo(struct remote *r, const struct remote_ticket *t, backend_done *done, void *arg)
{
    struct remote_op *op = keep_release_op(r, t, "", done, arg);
    op->undo = true;
    keep_send_releases(r, t, op);
}

/* What is given back is forgotten here at once, so that whatever becomes of the request the store holds no less than is
 * believed in here. */
bool remote_release_range(struct backend *b, struct backend_ticket *ticket, uint64_t start, uint64_t end,
                          backend_done *done, void *arg)
{
    struct remote *r = (struct remote *)b;
    struct remote_ticket *t = (struct remote_ticket *)ticket;
    struct remote_op *op = remote_op_done(r, NULL, done, arg);
    op->name = g_strdup(t->place->name);
    op->claim = (struct backend_claim){.lock_owner = t->lock_owner, .start = start, .end = end};
    op->ttl = t->head.ttl;
    bool left = remote_ticket_cut(t, start, end);
    if (!left) {
        remote_ticket_free(r, t);
    }
    remote_op_send(op, NULL, REMOTE_RELEASE_RANGE, keep_released, 0);
    return left;
}

/* --- renewing --- */

/* Whether a request is under way that may change what its lock owner holds. */
static bool keep_is_changing(struct remote *r, const struct remote_ticket *t)
{
    const struct remote_ticket *other;
    const struct remote_op *op;
    LIST_FOREACH(other, &t->place->tickets, link) {
        if (t->lock_owner && (other->asked || other->undoing) && other->lock_owner == t->lock_owner) {
            return true;
        }
    }
    LIST_FOREACH(op, &r->ops, link) {
        if (t->lock_owner && op->claim.lock_owner == t->lock_owner && g_strcmp0(op->name, t->place->name) == 0) {
            return true;
        }
    }
    return false;
}

static void keep_note_renewal(struct remote_op *op, const struct remote_answer *answer)
{
    struct remote *r = op->r;
    struct remote_ticket *t = remote_ticket_find(r, op->token);
    enum backend_result result = answer->result;
    int64_t ttl = MIN(op->ttl, op->left);
    /* Its term is longer by now, or the store has put it back as it was before a change that it has done first. */
    bool again = t && (op->claim.ttl < t->head.ttl || op->changes != t->changes);
    bool confirmed = op->confirm, moved = t && remote_ticket_has_moved(t, op->name);
    bool converted = t && (t->converting || op->claim.mode != (enum backend_mode)t->head.mode ||
                           op->segments != t->segments || keep_is_changing(r, t)); /* each change has its own array */
    remote_op_free(op);
    if (!t || t->state != REMOTE_HELD) {
        return;
    }
    if ((result == BACKEND_STALE && !moved) || (result == BACKEND_BUSY && !converted)) {
        enum backend_end why = t->told_expired && result == BACKEND_STALE ? BACKEND_EXPIRED : BACKEND_LOST;
        remote_end(r, t, why, result == BACKEND_BUSY || t->moving);
        return;
    }
    if (result == BACKEND_OK) {
        t->told_expired = false;
        t->renewing = t->renewing && confirmed;
        clock_ms deadline =
            MIN(t->ends, remote_deadline(answer->sent, MIN(ttl, t->head.ttl))); /* shorter: asked for since */
        t->head.deadline = confirmed ? MAX(t->head.deadline, deadline) : deadline;
        t->refresh = CLOCK_NEVER;
    } else {
        t->refresh = clock_now() + REMOTE_RENEW_RETRY;
    }
    remote_ticket_schedule(r, t);
    if (result == BACKEND_OK && again) {
        remote_extend(r, t);
    }
}

static void keep_renewed(struct remote_op *op, const struct remote_answer *answer)
{
    struct remote *r = op->r;
    keep_note_renewal(op, answer);
    keep_go_on(r);
}

static void keep_renew(struct remote *r, struct remote_ticket *t, bool confirm, bool in_lane)
{
    struct remote_op *op = remote_op_new(r, t);
    op->in_lane = in_lane;
    r->under_way += in_lane;
    op->confirm = confirm;
    op->ttl = op->claim.ttl = t->head.ttl;
    op->left = t->ends == CLOCK_NEVER ? op->ttl : CLAMP(t->ends - clock_now(), 1, op->ttl);
    op->name = g_strdup(t->place->name);
    op->claim.mode = (enum backend_mode)t->head.mode;
    op->changes = t->changes;
    op->segments = t->segments && !keep_is_changing(r, t) ? g_array_ref(t->segments) : NULL;
    remote_op_send(op, t, REMOTE_RENEW, keep_renewed, 0);
}

int remote_compare_lane(const void *a, const void *b)
{
    const struct remote_ticket *x = a, *y = b;
    if (x->in_lane_by != y->in_lane_by) {
        return x->in_lane_by < y->in_lane_by ? -1 : 1;
    }
    return (x->serial > y->serial) - (x->serial < y->serial);
}

/* Sends as many as may be under way. */
static void keep_go_on(struct remote *r)
{
    while (r->under_way < REMOTE_LANE_MAX) {
        struct remote_ticket *t = skiplist_item(skiplist_first(&r->lane));
        struct remote_op *op = TAILQ_FIRST(&r->endings);
        if (t) {
            skiplist_remove(&r->lane, t);
            t->in_lane = false;
            keep_renew(r, t, !t->in_lane_long, true);
        } else if (op) {
            TAILQ_REMOVE(&r->endings, op, lane);
            op->in_lane = true;
            r->under_way++;
            keep_send_release(op);
        } else {
            break;
        }
    }
}

static void keep_in_turn(struct remote *r, struct remote_ticket *t, bool extend)
{
    t->in_lane_long = extend || (t->in_lane && t->in_lane_long);
    if (!t->in_lane) {
        t->in_lane = true;
        t->in_lane_by = t->head.deadline;
        skiplist_insert(&r->lane, t);
        keep_go_on(r);
    }
}

void remote_extend(struct remote *r, struct remote_ticket *t)
{
    t->renewing = true;
    keep_in_turn(r, t, true);
}

void remote_confirm_in_turn(struct remote *r, struct remote_ticket *t)
{
    keep_in_turn(r, t, t->renewing);
}

void remote_confirm(struct remote *r, struct remote_ticket *t)
{
    keep_renew(r, t, !t->renewing, false);
}

/* --- ends, and doubts --- */

void remote_end(struct remote *r, struct remote_ticket *t, enum backend_end why, bool release)
{
    const char *word = why == BACKEND_EXPIRED ? "expired" : "lost";
    if (release && !t->expired && t->moving) {
        remote_send_release(r, t, word, NULL, NULL);
    } else if (release && !t->expired) {
        struct remote_op *op = keep_release_op(r, t, word, NULL, NULL);
        TAILQ_INSERT_TAIL(&r->endings, op, lane);
    }
    if (t->head.user) { /* else it is the store's own */
        r->events->ended(r->context, &t->head, why);
    }
    remote_ticket_free(r, t);
    keep_go_on(r);
}

void remote_tell_expired(struct remote *r, const char *name)
{
    struct remote_place *place = g_hash_table_lookup(r->places, name);
    struct remote_ticket *t;
    struct remote_op *op, *next;
    for (op = TAILQ_FIRST(&r->endings); op; op = next) {
        next = TAILQ_NEXT(op, lane);
        if (strcmp(op->file, name) == 0) {
            TAILQ_REMOVE(&r->endings, op, lane);
            keep_send_release(op);
        }
    }
    for (t = place ? LIST_FIRST(&place->tickets) : NULL; t; t = LIST_NEXT(t, link)) {
        if (t->state == REMOTE_HELD && !t->expired && t->head.deadline <= clock_now()) {
            remote_send_release(r, t, "expired", NULL, NULL);
            t->expired = true;
        }
    }
}

/* Whether the two cannot both hold. */
static bool keep_excludes(const struct remote_ticket *a, const struct remote_ticket *b)
{
    bool kin = backend_identity_matches(BACKEND_IDENTITY(a), BACKEND_IDENTITY(b));
    if (kin || (a->segments && b->segments)) {
        return !kin && backend_segments_conflict(a->segments, b->segments);
    }
    return a->head.mode == BACKEND_EXCLUSIVE || b->head.mode == BACKEND_EXCLUSIVE;
}

void remote_doubt(struct remote *r, struct remote_place *place, const struct remote_ticket *sure)
{
    struct remote_ticket *t;
    LIST_FOREACH(t, &place->tickets, link) {
        bool doubtful = !sure || (t != sure && keep_excludes(t, sure));
        if (doubtful && t->state == REMOTE_HELD && !t->expired && !t->renaming && !t->moving) {
            remote_confirm(r, t);
        }
    }
}
