/* change: what is done to tickets. */
#include <string.h>

#include "backend/remote/remote.h"

void remote_release(struct backend *b, struct backend_ticket *ticket, backend_done *done, void *arg)
{
    struct remote *r = (struct remote *)b;
    struct remote_ticket *t = (struct remote_ticket *)ticket;
    remote_send_release(r, t, "", done, arg);
    remote_ticket_free(r, t);
}

/* --- convert, set --- */

/* Its end is still to be told. */
static bool change_has_ended(const struct remote_ticket *t)
{
    return t->head.deadline <= clock_now();
}

static void change_note_change(struct remote_op *op, const struct backend_change *c)
{
    op->change.set = c->set;
    op->change.meta = c->meta ? g_bytes_ref(c->meta) : NULL;
    op->change.content = c->content ? g_bytes_ref(c->content) : NULL;
}

static void change(struct remote_ticket *t, const struct backend_change *c)
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

static void change_into(struct remote_ticket *t, const struct remote_op *op, clock_ms sent)
{
    t->head.user = op->claim.user;
    t->head.kind = (uint8_t)op->claim.kind;
    t->head.mode = (uint8_t)op->claim.mode;
    t->head.ttl = op->claim.ttl;
    t->handle = op->claim.handle;
    t->lock_owner = op->claim.lock_owner;
    t->start = op->claim.start;
    t->end = op->claim.end;
    t->due_after = op->claim.due;
    g_clear_pointer(&t->segments, g_array_unref);
    if (t->lock_owner) {
        struct backend_segment s = {.start = t->start, .end = t->end, .mode = op->claim.mode};
        t->segments = g_array_append_val(g_array_new(FALSE, FALSE, sizeof s), s);
    }
    remote_ticket_start_term(t, clock_now(), remote_deadline(sent, t->head.ttl));
    change(t, &op->change);
}

static void change_converted(struct remote_op *op, const struct remote_answer *answer);

static void change_send_convert(struct remote_op *op, struct remote_ticket *t, const struct backend_claim *claim,
                                int64_t timeout)
{
    struct backend_change c = {.set =
                                   (claim->meta ? BACKEND_SET_META : 0u) | (claim->content ? BACKEND_SET_CONTENT : 0u),
                               .meta = claim->meta,
                               .content = claim->content};
    change_note_change(op, &c);
    op->claim = *claim;
    op->claim.meta = op->claim.content = NULL;
    op->claim.lock_owner = claim->kind == BACKEND_FCNTL ? claim->lock_owner : 0;
    t->converting++;
    remote_op_send(op, t, REMOTE_CONVERT, change_converted, timeout);
}

static bool change_makes_weaker(const struct remote_op *op, const struct remote_ticket *t)
{
    bool part = op->claim.lock_owner && (op->claim.start > 0 || op->claim.end < BACKEND_RANGE_MAX) &&
                op->r->backend.features & BACKEND_CAN_RANGE;
    return part || (op->claim.mode == BACKEND_SHARED && t->head.mode == BACKEND_EXCLUSIVE);
}

/* The store must not think that it is shared, say, while it is taken for exclusive here, so nothing is told until it
 * does not.  The parts that a lock owner holds cannot be told again in one. */
static void change_convert_back(struct remote *r, struct remote_ticket *t, struct remote_op *forth, bool weaker)
{
    int64_t left = t->head.deadline == CLOCK_NEVER ? REMOTE_RELEASE_MAX : t->head.deadline - clock_now();
    struct backend_claim claim = {
        .user = t->head.user,
        .kind = (enum backend_kind)t->head.kind,
        .mode = (enum backend_mode)t->head.mode,
        .handle = t->handle,
        .lock_owner = t->lock_owner,
        .start = t->start,
        .end = t->end,
        .ttl = t->head.ttl,
        .due = t->due_after,
        .meta = t->meta,
        .content = t->head.content,
    };
    bool ends = left > 0 && (t->lock_owner || (forth && forth->stands));
    if (ends) {
        remote_end(r, t, BACKEND_LOST, true);
    }
    if (left <= 0 || ends) {
        if (forth) {
            remote_op_finish(forth, BACKEND_UNREACHABLE);
        }
        return;
    }
    struct remote_op *back = remote_op_done(r, t, NULL, NULL);
    back->back = true;
    back->weaker = weaker;
    back->forth = forth;
    if (forth) {
        left = weaker ? MIN(left, REMOTE_UNDO_MAX) : 0;
    }
    change_send_convert(back, t, &claim, left);
}

/* What others may have been let into is lost if it is not known in time; else it is tried on. */
static void change_converted_back(struct remote_op *op, const struct remote_answer *answer)
{
    struct remote *r = op->r;
    struct remote_op *forth = op->forth;
    struct remote_ticket *t = remote_ticket_find(r, op->token);
    bool unknown = remote_is_unknown(answer) || answer->outcome == REMOTE_NOT_SENT, weaker = op->weaker;
    if (t) {
        t->converting--;
    }
    if (t && answer->result == BACKEND_OK) {
        change_into(t, op, answer->sent);
        remote_ticket_schedule(r, t);
    } else if (t && answer->result == BACKEND_BUSY && forth && !unknown) { /* others share it: it stands */
        forth->stands = true;
        t->converting++;
        remote_op_free(op);
        remote_op_send(forth, t, REMOTE_CONVERT, change_converted, 0);
        return;
    } else if (t && unknown && !weaker) {
        change_convert_back(r, t, NULL, false);
    } else if (t) {
        remote_end(r, t, BACKEND_LOST, true);
    }
    remote_op_free(op);
    if (forth) {
        remote_op_finish(forth, BACKEND_UNREACHABLE);
    }
}

static void change_converted(struct remote_op *op, const struct remote_answer *answer)
{
    struct remote *r = op->r;
    struct remote_ticket *t = remote_ticket_find(r, op->token);
    enum backend_result result = answer->result;
    if (op->back) {
        change_converted_back(op, answer);
        return;
    }
    if (t) {
        t->converting--;
    }
    if (t && remote_is_unknown(answer)) {
        change_convert_back(r, t, op, change_makes_weaker(op, t));
        return;
    }
    if (t && result == BACKEND_STALE) {
        remote_doubt(r, t->place, NULL);
    } else if (t && result == BACKEND_OK) {
        change_into(t, op, answer->sent);
        remote_ticket_schedule(r, t);
        result = change_has_ended(t) ? BACKEND_STALE : BACKEND_OK; /* answered too late to be believed in */
    }
    remote_op_finish(op, result);
}

void remote_convert(struct backend *b, struct backend_ticket *ticket, const struct backend_claim *claim,
                    backend_done *done, void *arg)
{
    struct remote *r = (struct remote *)b;
    struct remote_ticket *t = (struct remote_ticket *)ticket;
    if (change_has_ended(t)) {
        done(arg, BACKEND_STALE);
        return;
    }
    change_send_convert(remote_op_done(r, t, done, arg), t, claim, 0);
}

static void change_was_set(struct remote_op *op, const struct remote_answer *answer);

static void change_send_set(struct remote_op *op, struct remote_ticket *t)
{
    g_free(op->name);
    op->name = g_strdup(t->place->name);
    remote_op_send(op, t, REMOTE_SET, change_was_set, 0);
}

static void change_was_set(struct remote_op *op, const struct remote_answer *answer)
{
    enum backend_result result = answer->result;
    struct remote_ticket *t = remote_ticket_find(op->r, op->token);
    if (t && result == BACKEND_STALE && remote_ticket_has_moved(t, op->name) && !change_has_ended(t)) {
        change_send_set(op, t);
        return;
    }
    if (t && result == BACKEND_OK) {
        change(t, &op->change);
    } else if (t && result == BACKEND_STALE) {
        remote_doubt(op->r, t->place, NULL);
    }
    remote_op_finish(op, result);
}

void remote_set(struct backend *b, struct backend_ticket *ticket, const struct backend_change *c, backend_done *done,
                void *arg)
{
    struct remote *r = (struct remote *)b;
    struct remote_ticket *t = (struct remote_ticket *)ticket;
    if (change_has_ended(t)) {
        if (done) {
            done(arg, BACKEND_STALE);
        }
        return;
    }
    struct remote_op *op = remote_op_done(r, t, done, arg);
    change_note_change(op, c);
    change_send_set(op, t);
}

/* --- renewing --- */

void remote_renew(struct backend *b, const struct backend_renewal *renewals, size_t count)
{
    struct remote *r = (struct remote *)b;
    clock_ms now = clock_now();
    for (size_t i = 0; i < count; i++) {
        struct remote_ticket *t = (struct remote_ticket *)renewals[i].ticket;
        bool fixed = t->head.kind == BACKEND_LEASE && backend_parse_fixed(t->meta);
        t->head.ttl = renewals[i].ttl;
        t->ends = fixed ? now + t->head.ttl : CLOCK_NEVER;
        t->due_after = renewals[i].due;
        t->due = renewals[i].due > 0 ? now + renewals[i].due : CLOCK_NEVER;
        if (t->state != REMOTE_HELD) {
            t->head.deadline = now + t->head.ttl; /* its life in the store is another matter: see remote_refresh */
        } else if (t->head.deadline <= now) {
            t->renewing = true; /* too late: the loop tells that it is lost */
        } else {
            remote_extend(r, t);
            t->head.deadline = MIN(t->head.deadline, remote_deadline(now, t->head.ttl));
        }
        remote_ticket_schedule(r, t);
    }
}

/* --- rename --- */

static void change_end_as_lost(struct remote *r, const char *token)
{
    struct remote_ticket *t = token ? remote_ticket_find(r, token) : NULL;
    if (t) {
        remote_end(r, t, BACKEND_LOST, true);
    }
}

/* Where the ticket is when the outcome is unknown is not known either: another may
 * have the old name by now, or we the new one.  So both are given back. */
static void change_renamed(struct remote_op *op, const struct remote_answer *answer)
{
    struct remote *r = op->r;
    enum backend_result result = answer->result;
    bool unknown = remote_is_unknown(answer) || (answer->repeated && result == BACKEND_STALE);
    struct remote_ticket *t = remote_ticket_find(r, op->token);
    struct remote_ticket *replaced = op->replaced ? remote_ticket_find(r, op->replaced) : NULL;
    if (t) {
        t->renaming = false;
    }
    if (replaced) {
        replaced->renaming = false;
    }
    if (t && !unknown) {
        g_clear_pointer(&t->moving, g_free);
    }
    if (t && result == BACKEND_OK) {
        remote_ticket_rename(r, t, op->name);
        t->head.fence = answer->fence ? answer->fence : t->head.fence;
    }
    if (result == BACKEND_OK && replaced && strcmp(replaced->place->name, op->name) == 0) {
        remote_end(r, replaced, BACKEND_RELEASED, false);
    }
    if (unknown) {
        change_end_as_lost(r, op->token);
        change_end_as_lost(r, op->replaced);
    }
    remote_op_finish(op, result);
}

void remote_rename(struct backend *b, struct backend_ticket *ticket, const char *name, struct backend_ticket *replaced,
                   backend_done *done, void *arg)
{
    struct remote *r = (struct remote *)b;
    struct remote_ticket *t = (struct remote_ticket *)ticket;
    struct remote_ticket *target = (struct remote_ticket *)replaced;
    if (change_has_ended(t)) {
        done(arg, BACKEND_STALE);
        return;
    }
    struct remote_op *op = remote_op_done(r, t, done, arg);
    op->name = g_strdup(name);
    if (target) {
        op->replaced = g_strdup(target->token);
        target->renaming = true;
    }
    g_free(t->moving);
    t->moving = g_strdup(name);
    t->renaming = true;
    remote_op_send(op, t, REMOTE_RENAME, change_renamed, 0);
}
