/* sequence: places in a directory's queue; see sequence.h. */
#include "fs/ops/sequence.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/hold/handle.h"
#include "fs/hold/hold.h"
#include "fs/kernel/request.h"
#include "fs/kernel/tree.h"

#define SEQUENCE_DIGITS 10 /* at least: it is the store that numbers */

/* --- creating ---------------------------------------------------------------- */

/* Its file starts with its own name, so that a shell can read which it got. */
static void sequence_write_name(struct request *r)
{
    struct backend_change change = {.set = BACKEND_SET_CONTENT};
    char *line = g_strconcat(tree_name(r->node), "\n", NULL);
    hold_set_size(r->fs, r->hold, strlen(line));
    change.content = g_bytes_new_take(line, r->hold->size);
    backend_set(r->fs->backend, r->hold->ticket, &change, request_resume, r);
    g_bytes_unref(change.content);
}

/* The ticket has this path. */
static void sequence_name(struct request *r, const char *path)
{
    const char *slash = strrchr(path, '/');
    tree_rename(r->fs->tree, r->node, r->node->parent, slash ? slash + 1 : path);
}

static void sequence_has_ticket(struct request *r, struct hold *hold)
{
    hold->closed = !r->handle;
    if (r->handle) {
        handle_set_hold(r->handle, hold);
    }
    if (hold->size) {
        request_resume(r, BACKEND_OK); /* a symbolic link has a content of its own */
    } else {
        sequence_write_name(r);
    }
}

/* The ticket that the handle got when an earlier daemon handled this request.  False: it got none. */
static bool sequence_find_made(struct request *r)
{
    char path[TREE_PATH_MAX];
    struct hold *hold = r->handle ? r->handle->hold : NULL;
    if (!hold || !hold->sequence || !hold->ticket ||
        !backend_ticket_name(r->fs->backend, hold->ticket, path, sizeof path)) {
        return false;
    }
    if (hold->node != r->node) {
        hold_move(r->fs, hold, r->node);
        sequence_name(r, path);
    }
    r->hold = hold;
    sequence_has_ticket(r, hold);
    return true;
}

static void sequence_created(void *arg, enum backend_result result, struct backend_ticket *ticket,
                             const struct backend_info *holder)
{
    struct request *r = arg;
    struct hold *hold = r->hold;
    char path[TREE_PATH_MAX];
    (void)holder;
    if (result != BACKEND_OK && result != BACKEND_QUEUED) {
        r->hold = NULL;
        hold_free(r->fs, hold);
        request_resume(r, result);
        return;
    }
    hold->ticket = ticket;
    backend_ticket_name(r->fs->backend, ticket, path, sizeof path);
    sequence_name(r, path);
    hold_mark_granted(r->fs, hold, ticket);
    sequence_has_ticket(r, hold);
}

void sequence_create(struct request *r, mode_t mode, GBytes *content, request_step *answer)
{
    char path[TREE_PATH_MAX];
    const struct fuse_ctx *context = fuse_req_ctx(r->req);
    enum backend_kind kind = r->handle ? BACKEND_FLOCK : BACKEND_LEASE;
    struct backend_claim claim;
    if (strlen(r->name) + SEQUENCE_DIGITS > NAME_BYTES_MAX) {
        request_reply(r, -ENAMETOOLONG);
        return;
    }
    if (!request_path_in(r, path)) {
        return;
    }
    r->next_step = answer;
    if (sequence_find_made(r)) {
        return;
    }
    r->hold = hold_new(r->fs, r->node, kind, request_caller(r), context->uid, context->gid, mode);
    r->hold->sequence = true;
    r->hold->size = content ? (uint32_t)g_bytes_get_size(content) : 0;
    hold_fill_claim(r->fs, r->hold, kind, r->handle, 0, &claim);
    claim.content = content;
    claim.sequence = claim.wait = true;
    if (!hold_charge(r->fs, r->hold, r->hold->size)) {
        sequence_created(r, BACKEND_QUOTA, NULL, NULL);
        g_bytes_unref(claim.meta);
        return;
    }
    backend_acquire(r->fs->backend, path, &claim, sequence_created, r);
    g_bytes_unref(claim.meta);
}

/* --- waiting for the turn ------------------------------------------------------- */

struct hold *sequence_ticket(struct request *r, struct hold *lease)
{
    struct hold *hold = r->handle->hold;
    if (hold && hold->sequence) {
        return hold;
    }
    /* A ticket that was closed and is a lease: its owner, its owner's descendants, and any process with a handle of its
     * owner may lock it. */
    if (!lease || !lease->sequence) {
        return NULL;
    }
    bool may = hold_is_owned_by(lease, r->handle->opener) ||
               hold_allows_change(r->fs, lease, request_caller(r), request_uid(r));
    return may ? lease : NULL;
}

static void sequence_await_again(struct request *r);

/* The ticket does not hold yet in this mount's view.  If it holds in the store, the event
 * `granted` follows. */
static void sequence_known(void *arg, enum backend_result result, const struct backend_info *info)
{
    struct request *r = arg;
    struct fs *fs = r->fs;
    struct hold *hold = r->hold;
    if (!hold->ticket) {
        request_reply(r, -ESTALE);
    } else if (hold->ticket->held) {
        request_reply(r, 0);
    } else if (result != BACKEND_OK) {
        request_reply(r, fs_error(result));
    } else if (info->ticket == hold->ticket && info->holders) {
        hold_await_outcome(r, hold, sequence_await_again);
    } else {
        request_reply(r, -EAGAIN);
    }
    hold_unref(fs, hold);
}

static void sequence_stat(struct request *r)
{
    char path[TREE_PATH_MAX];
    if (request_path(r, path)) {
        hold_ref(r->hold);
        backend_stat(r->fs->backend, path, sequence_known, r);
    }
}

static void sequence_reply_grant(struct request *r)
{
    struct hold *hold = r->hold;
    if (!hold->ticket) {
        request_reply(r, -ESTALE); /* another request that waited has ended it */
    } else if (hold->ticket->held) {
        request_reply(r, 0);
    } else if (!r->blocks) {
        sequence_stat(r);
    } else {
        r->queued = true;
        hold_await_outcome(r, hold, sequence_await_again); /* its place in the queue is kept */
    }
}

#define SEQUENCE_PAUSE 250 /* ms between two questions whether the store grants again */

/* After a pause, in which the ticket may have ended. */
static void sequence_stat_again(struct request *r)
{
    struct hold *hold = sequence_ticket(r, hold_find_lease_by_path(r->fs, r->node));
    if (hold) {
        sequence_await_grant(r, hold);
    } else {
        request_reply(r, -ESTALE);
    }
}

/* A shared ticket does not become exclusive while others hold, like a read lock of Curator's InterProcessReadWriteLock:
 * two tickets that waited for that would wait for each other.  After the store has lost its data, it waits until the
 * other mounts have restored their tickets. */
static void sequence_await_again(struct request *r)
{
    if (r->result == BACKEND_OK) {
        sequence_reply_grant(r);
    } else if (r->result == BACKEND_GRACE && r->blocks) {
        request_sleep(r, clock_now() + SEQUENCE_PAUSE, sequence_stat_again, request_reply_interrupted);
    } else if (r->result == BACKEND_BUSY) {
        request_reply(r, r->blocks ? -EDEADLK : -EAGAIN);
    } else {
        request_reply(r, fs_error(r->result));
    }
}

void sequence_await_grant(struct request *r, struct hold *hold)
{
    r->hold = hold;
    if (hold->ticket->mode == r->lock.mode) {
        sequence_reply_grant(r);
        return;
    }
    struct backend_claim claim;
    hold_fill_claim(r->fs, hold, hold->kind, NULL, 0, &claim);
    claim.mode = r->lock.mode;
    hold_convert(r, &claim, sequence_await_again);
}
