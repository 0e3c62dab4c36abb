/* update: sets, renews, renames and releases tickets. */
#include <string.h>

#include "backend/remote/remote.h"

void remote_release(struct remote *r, struct remote_ticket *t, backend_done *done, void *arg)
{
    remote_send_release(r, t, "", done, arg);
    remote_ticket_free(r, t);
}

/* --- set --- */

static void update_on_set(struct remote_request *request, const struct remote_answer *answer);

static void update_send_set(struct remote_request *request, struct remote_ticket *t)
{
    g_free(request->name);
    request->name = g_strdup(t->lock->name);
    remote_request_send(request, t, update_on_set, 0);
}

static void update_on_set(struct remote_request *request, const struct remote_answer *answer)
{
    enum backend_result result = answer->result;
    struct remote_ticket *t = remote_ticket_find(request->r, request->id);
    if (t && result == BACKEND_STALE && remote_ticket_has_moved(t, request->name) && !remote_ticket_is_expired(t)) {
        update_send_set(request, t);
        return;
    }
    if (t && result == BACKEND_OK) {
        remote_ticket_change(t, &request->update.change);
        result = remote_ticket_is_expired(t) ? BACKEND_STALE : BACKEND_OK; /* the answer came after its deadline */
    } else if (t && result == BACKEND_STALE) {
        remote_verify(request->r, t->lock, NULL);
    }
    remote_request_finish(request, result);
}

void remote_set(struct remote *r, struct remote_ticket *t, const struct backend_change *c, backend_done *done,
                void *arg)
{
    if (remote_ticket_is_expired(t)) {
        if (done) {
            done(arg, BACKEND_STALE);
        }
        return;
    }
    struct remote_request *request = remote_request_new(r, REMOTE_SET, t, NULL);
    request->done = done;
    request->arg = arg;
    remote_request_set_change(request, c);
    update_send_set(request, t);
}

/* --- renewing --- */

void remote_renew(struct remote *r, const struct backend_renewal *renewals, size_t count)
{
    clock_ms now = clock_now();
    for (size_t i = 0; i < count; i++) {
        struct remote_ticket *t = (struct remote_ticket *)renewals[i].ticket;
        bool fixed = t->head.kind == BACKEND_LEASE && backend_parse_fixed(t->meta);
        t->head.ttl = renewals[i].ttl;
        t->ends = fixed ? now + t->head.ttl : CLOCK_NEVER;
        t->due_after = renewals[i].due;
        t->due = renewals[i].due > 0 ? now + renewals[i].due : CLOCK_NEVER;
        if (t->state != REMOTE_HELD) {
            t->head.deadline = now + t->head.ttl; /* heartbeats keep it alive in the store: see remote_heartbeat */
        } else if (t->head.deadline <= now) {
            t->renewing = true; /* too late: the loop reports it as lost */
        } else {
            remote_extend(r, t);
            t->head.deadline = MIN(t->head.deadline, remote_deadline(now, t->head.ttl));
        }
        remote_ticket_schedule(r, t);
    }
}

/* --- rename --- */

static void update_end_as_lost(struct remote *r, const char *id)
{
    struct remote_ticket *t = id ? remote_ticket_find(r, id) : NULL;
    if (t) {
        remote_end_ticket(r, t, BACKEND_LOST, true);
    }
}

/* If the outcome is unknown, so is the name that the ticket has: another may have the old name by now, or this mount
 * the new one.  So both are released.  If the answer came after the term, the ticket it replaced is lost, too. */
static void update_on_renamed(struct remote_request *request, const struct remote_answer *answer)
{
    struct remote *r = request->r;
    enum backend_result result = answer->result;
    bool unknown = remote_outcome_is_unknown(answer) || (answer->repeated && result == BACKEND_STALE);
    struct remote_ticket *t = remote_ticket_find(r, request->id);
    struct remote_ticket *replaced = request->replaced ? remote_ticket_find(r, request->replaced) : NULL;
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
        remote_ticket_rename(r, t, request->name);
        t->head.fence = answer->fence ? answer->fence : t->head.fence;
    }
    bool late = result == BACKEND_OK && (!t || remote_ticket_is_expired(t));
    if (result == BACKEND_OK && replaced && strcmp(replaced->lock->name, request->name) == 0) {
        remote_end_ticket(r, replaced, late ? BACKEND_LOST : BACKEND_RELEASED, false);
    }
    if (unknown) {
        update_end_as_lost(r, request->id);
        update_end_as_lost(r, request->replaced);
    }
    remote_request_finish(request, late ? BACKEND_STALE : result);
}

void remote_rename(struct remote *r, struct remote_ticket *t, const char *name, struct remote_ticket *replaced,
                   backend_done *done, void *arg)
{
    if (remote_ticket_is_expired(t)) {
        done(arg, BACKEND_STALE);
        return;
    }
    struct remote_request *request = remote_request_new(r, REMOTE_RENAME, t, name);
    request->done = done;
    request->arg = arg;
    if (replaced) {
        request->replaced = g_strdup(replaced->id);
        replaced->renaming = true;
    }
    g_free(t->moving);
    t->moving = g_strdup(name);
    t->renaming = true;
    t->uncontended = false;
    remote_request_send(request, t, update_on_renamed, 0);
}
