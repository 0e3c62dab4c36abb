/* rename: moves a ticket from one record to another, in one change of both; see private.h. */
#include <string.h>

#include "backend/record/private.h"

static enum backend_result rename_check_target(const struct lock *target, const char *leaf)
{
    if (target->in_lock) {
        return BACKEND_NOT_DIRECTORY;
    }
    bool known = target->known && target->lock.state == STORE_ABSENT && !lock_is_directory(target);
    bool missing = known && target->parent_known && target->parent.state == STORE_ABSENT && strchr(target->name, '/');
    if (missing || (leaf && !lock_is_directory(target))) {
        return BACKEND_MISSING;
    }
    return !leaf && lock_is_directory(target) ? BACKEND_IS_DIRECTORY : BACKEND_OK;
}

static void rename_apply(struct op *op, struct scratch *s)
{
    struct backend_ticket *present = scratch_find(s, op->lock, op->id);
    struct backend_ticket *moved = op->tried ? scratch_find(s, op->target, op->id) : NULL;
    g_autofree char *path = scratch_path(s, op->target, op->target_leaf);
    const char *leaf = op->target_leaf;
    struct backend_ticket *replaced = record_id_is_set(op->replaced) ? scratch_find(s, op->target, op->replaced) : NULL;
    op->result = rename_check_target(op->target, leaf);
    if (moved && (op->target != op->lock || !present)) {
        op->result = BACKEND_OK;
        return;
    }
    if (op->abandoned || !op->ticket || !present || present->guarded) {
        op->result = BACKEND_STALE;
    }
    if (op->result != BACKEND_OK) {
        return;
    }
    if (s->engine->closed) {
        op->result = BACKEND_UNREACHABLE;
        return;
    }
    record_grant(s->space, s->now, scratch_directory(s, op->target)); /* a name with waiters only is not free */
    scratch_settle_grants(s);
    op->result = lockspace_rename(s->space, s->now, present, path, replaced && !replaced->guarded ? replaced : NULL);
    s->dirty = s->dirty || op->result == BACKEND_OK;
    scratch_settle_grants(s);
}

/* Ops that were called after the rename find the ticket at its new name. */
static void rename_move_ops(const struct ticket *t, struct lock *from, struct lock *to)
{
    struct op *each, *next;
    for (each = TAILQ_FIRST(&from->ops); each; each = next) {
        next = TAILQ_NEXT(each, link);
        if (each->ticket == t && !each->target) {
            TAILQ_REMOVE(&from->ops, each, link);
            TAILQ_INSERT_TAIL(&to->ops, each, link);
            each->lock = to;
            g_free(each->leaf);
            each->leaf = g_strdup(t->leaf);
        }
    }
    lock_make_ready(to);
}

static struct ticket *rename_find_replaced(const struct op *op)
{
    struct ticket *t = record_id_is_set(op->replaced) ? ticket_find(op->lock->engine, op->replaced) : NULL;
    return t && t->lock == op->target ? t : NULL;
}

static void rename_settle(struct op *op)
{
    struct ticket *t = op->ticket, *replaced = rename_find_replaced(op);
    if (t) {
        t->renaming = false;
    }
    if (replaced) {
        replaced->renaming = false;
        replaced->why = op->result == BACKEND_OK ? 1 + BACKEND_RELEASED : replaced->why;
    }
    if (op->result == BACKEND_OK && t) {
        const struct record_ticket *from = record_find(op->target->record, t->id);
        bool late = ticket_is_expired(t);
        ticket_move(t, op->target, op->target_leaf);
        rename_move_ops(t, op->lock, op->target);
        t->head.fence = from ? from->fence : t->head.fence;
        t->wanted = 0;
        op->result = late ? BACKEND_STALE : BACKEND_OK;
        if (late && replaced) {
            replaced->why = 1 + BACKEND_LOST;
        }
        op->ticket = NULL; /* it is of another lock now */
    } else if (op->result == BACKEND_OK) {
        op->result = BACKEND_STALE;
    }
    op_answer(op, op->result);
}

/* Whether it was carried out is not known, and may not be for long: both are lost. */
static void rename_abandon(struct op *op)
{
    bool unknown = op->tried || op->lock->busy;
    struct ticket *t = op->ticket, *replaced;
    op->abandoned = true;
    if (unknown && t) {
        ticket_end(t, BACKEND_LOST);
        replaced = rename_find_replaced(op);
        if (replaced) {
            ticket_end(replaced, BACKEND_LOST);
        }
        op->lock->look = op->target->look = true;
    }
    op_answer(op, BACKEND_UNREACHABLE);
}

static const struct op_type op_rename = {
    .apply = rename_apply, .settle = rename_settle, .abandon = rename_abandon, .is_single = true};

void engine_rename(struct backend *b, struct backend_ticket *ticket, const char *name, struct backend_ticket *replaced,
                   backend_done *done, void *arg)
{
    struct engine *e = (struct engine *)b;
    struct ticket *t = (struct ticket *)ticket;
    const char *leaf;
    bool good = engine_allows_name(e, name) && *name && !t->sequence;
    if (!good || ticket_is_expired(t)) {
        done(arg, good ? BACKEND_STALE : BACKEND_INVALID);
        return;
    }
    struct lock *target = lock_obtain(e, name, &leaf);
    lock_end_expired(target);
    struct op *op = op_new(e, &op_rename, t->lock, t);
    op->target = target;
    target->pins++;
    op->target_leaf = g_strdup(leaf);
    t->renaming = true;
    if (replaced) {
        op->replaced = ((struct ticket *)replaced)->id;
        ((struct ticket *)replaced)->renaming = true;
    }
    op->done = done;
    op->arg = arg;
    op_push(op);
}
