/* resume: moves a surviving lock to an open file of this mount, by user.lease.resume; see survivor.h.
 *
 * A walk that began after the request finds the processes that have the file of the dead mount open.  The lock
 * keeps its token, mode, bytes, content and rights.  A record lock then belongs to the new open file, as an OFD lock
 * does: which lock owner had it, this daemon does not know.
 */
#include <errno.h>

#include "backend/log.h"
#include "fs/hold/handle.h"
#include "fs/hold/survivor.h"
#include "fs/kernel/tree.h"

/* Only a survivor's user, or the process that took or opened it: another user's process may have waited for it. */
static bool resume_is_allowed(const GArray *processes, const struct hold *hold, const struct owner *who)
{
    const struct hold_heirs *heirs = hold_heirs(hold);
    for (guint i = 0; i < processes->len; i++) {
        const struct openers_process *process = &g_array_index(processes, struct openers_process, i);
        bool opened = heirs && heirs->count && heirs->heir[0] == who;
        if (process->owner == who && !process->unseen) {
            return process->uid == hold->uid || process->uid == 0 || who == hold->owner || opened;
        }
    }
    return false;
}

/* The handle of the request.  SETXATTR does not name a descriptor: at first it is the file that the caller opened last.
 * NULL: there is none, or it has a lock. */
static struct handle *resume_find_handle(struct request *r)
{
    struct handle *h;
    LIST_FOREACH(h, &r->node->handles, link) {
        if (r->resume.handle ? h->id == r->resume.handle : h->opener == request_caller(r)) {
            bool idle = !h->hold && !h->record->ticket && !h->guard && (!h->records || h->records->len == 0);
            return idle ? h : NULL;
        }
    }
    return NULL;
}

static struct hold *resume_find_hold(struct request *r)
{
    struct hold *hold;
    LIST_FOREACH(hold, &tree_current_node(r->fs->tree, r->node)->holds, link) {
        if (hold_holds(hold) && hold->ticket->fence == r->resume.token && hold->kind > BACKEND_LEASE) {
            return hold;
        }
    }
    return NULL;
}

static void resume_try(struct request *r);

/* Ends the request.  With an error the lock is as before. */
static void resume_finish(struct request *r, struct hold *hold, int error)
{
    struct fs *fs = r->fs;
    hold->converting = false;
    request_reply(r, error);
    hold_resume_parked(fs, hold);
    hold_unref(fs, hold);
}

static void resume_stored(void *arg, enum backend_result result)
{
    struct request *r = arg;
    struct hold *hold = r->hold;
    struct handle *h = resume_find_handle(r);
    if (!hold->ticket || !hold_survivor(hold) || result != BACKEND_OK) {
        resume_finish(r, hold, hold->ticket && result != BACKEND_OK ? fs_error(result) : -ESTALE);
        return;
    }
    if (!h) { /* closed or locked meanwhile: the lock stays a survivor */
        hold_store(r->fs, hold);
        resume_finish(r, hold, -EINVAL);
        return;
    }
    survivor_log(hold_survivor(hold), "is resumed by a process that has its file open");
    survivor_keep_resumers(hold);
    hold_set_handle_owner(hold, request_caller(r), h->opener);
    h->record->locking = true;
    h->record->spent = h->record->lost = h->record->wanted = h->record->flushed = false;
    if (hold->kind == BACKEND_FCNTL) {
        hold_set_lock_owner(r->fs, hold, ~hold->ticket->fence); /* no kernel's: its own is not known */
        hold->extra->records->resumed = true;
        handle_add_records(h, hold);
    } else {
        handle_set_hold(h, hold);
        h->record->ticket = hold->sequence;
        hold_extra(hold)->handle = hold->sequence ? NULL : h;
    }
    resume_finish(r, hold, 0);
}

/* A flock gets the handle's identity, by which it is converted later. */
static void resume_begin(struct request *r, struct hold *hold, struct handle *h)
{
    struct backend_claim claim;
    struct owner *before = hold->owner;
    r->hold = hold_ref(hold);
    r->resume.handle = h->id;
    hold->converting = true;
    hold->converting_to = hold->kind;
    hold->owner = request_caller(r);
    hold_fill_claim(r->fs, hold, (enum backend_kind)hold->kind, h, 0, &claim);
    hold->owner = before;
    claim.mode = (enum backend_mode)hold->ticket->mode;
    claim.handle = handle_identity(r->fs, h);
    if (hold->kind == BACKEND_FLOCK && !hold->sequence) {
        backend_convert(r->fs->backend, hold->ticket, &claim, resume_stored, r);
    } else {
        backend_set(r->fs->backend, hold->ticket, &(struct backend_change){.set = BACKEND_SET_META, .meta = claim.meta},
                    resume_stored, r);
    }
    g_bytes_unref(claim.meta);
}

/* Its file is open in the caller, as a walk since the request has seen. */
static void resume_decide(struct request *r, struct hold *hold)
{
    const struct survivor *survivor = hold_survivor(hold);
    const GArray *processes = survivor ? survivor->processes : hold_resumers(hold);
    struct handle *h = resume_find_handle(r);
    if (!processes || !request_caller(r) || !resume_is_allowed(processes, hold, request_caller(r))) {
        request_reply(r, -EPERM);
    } else if (!survivor) {
        request_reply(r, -EBUSY); /* another was first */
    } else if (!h) {
        request_reply(r, -EINVAL);
    } else {
        resume_begin(r, hold, h);
    }
}

static void resume_try(struct request *r)
{
    struct hold *hold = resume_find_hold(r);
    if (!hold) {
        request_reply(r, -ESTALE);
    } else if (hold->converting) {
        hold_await_outcome(r, hold, resume_try);
    } else if (!hold_survivor(hold) || !survivors_await_walk(r, resume_try)) {
        resume_decide(r, hold);
    }
}

void survivors_resume(struct request *r, uint64_t token)
{
    r->resume.token = token;
    r->resume.handle = 0;
    resume_try(r);
}
