/* request: a kernel request on its way to its one reply; see request.h. */
#include "fs/kernel/request.h"

#include <errno.h>
#include <string.h>

#include "fs/kernel/notify.h"
#include "fs/kernel/tree.h"

#define REQUEST_WAKE_LIMIT 2 /* ms; the limit for resuming requests in one turn of the loop */

_Static_assert(sizeof(struct intent) <= KEEP_INTENT_SIZE, "an intent fits");

struct intent *request_intent(struct request *r)
{
    static struct intent unkept;
    return r->kept ? (struct intent *)(void *)r->kept->intent : &unkept;
}

/* The second run raises the look-ups of the node again. */
static void request_take_back_lookup(struct request *r)
{
    struct node *node = r->before->raised ? tree_node(r->fs->tree, r->before->raised) : NULL;
    if (node && node != tree_root(r->fs->tree)) {
        r->raised = tree_ref(node);
        tree_set_lookups(node, r->before->lookups);
    }
}

static void request_recall(struct request *r)
{
    static const struct intent none;
    if (r->kept && memcmp(r->kept->intent, &none, sizeof none) != 0) {
        r->before = g_memdup2(r->kept->intent, sizeof none);
        request_take_back_lookup(r);
    }
}

struct request *request_new(struct fs *fs, fuse_req_t req, enum metrics_operation operation, struct node *node,
                            const char *name)
{
    size_t length = name ? strlen(name) + 1 : 0;
    struct request *r = backend_new0(sizeof *r + length);
    r->name = name ? memcpy(r->storage, name, length) : NULL;
    r->fs = fs;
    r->req = req;
    r->kept = fs->keep ? keep_request_take(fs->keep) : NULL;
    r->node = node ? tree_ref(node) : NULL;
    r->references = 1;
    r->operation = (uint8_t)operation;
    r->since = metrics_clock();
    LIST_INSERT_HEAD(&fs->unanswered, r, unanswered);
    fs->requests++;
    request_recall(r);
    return r;
}

static void request_measure(const struct request *r, int error)
{
    bool inside = r->node && r->node->record->control;
    metrics_count(r->fs->metrics, inside ? METRICS_CONTROL : r->operation, error, r->since, r->queued);
}

/* The kernel has been answered: nothing of the request may be used again. */
static void request_end(struct request *r, int error)
{
    struct fs *fs = r->fs;
    request_measure(r, error);
    request_unpark(r);
    if (r->is_interrupted) {
        TAILQ_REMOVE(&fs->interrupted, r, interrupted);
        r->is_interrupted = false;
    }
    if (error && r->refused) {
        r->refused(r, error);
    }
    if (r->kept) {
        keep_request_done(fs->keep, r->kept);
        r->kept = NULL;
    }
    g_clear_pointer(&r->before, g_free);
    tree_unref(fs->tree, g_steal_pointer(&r->raised));
    g_clear_pointer(&r->caller, owner_unref);
    tree_unref(fs->tree, r->node);
    if (r->other) {
        tree_unref(fs->tree, r->other);
    }
    r->name = NULL;
    g_clear_pointer(&r->value, g_free);
    g_clear_pointer(&r->content.bytes, g_bytes_unref);
    r->req = NULL;
    r->handle = NULL;
    r->node = NULL;
    r->other = NULL;
    r->hold = NULL;
    LIST_REMOVE(r, unanswered);
    fs->requests--;
    fs->answered++;
    request_unref(r);
}

/* libfuse may call this inside fuse_req_interrupt_func, or while it handles the
 * INTERRUPT: only mark and queue. */
static void request_interrupted(fuse_req_t req, void *arg)
{
    struct request *r = arg;
    (void)req;
    if (!r->is_interrupted && !r->cancel_pending) {
        r->is_interrupted = true;
        TAILQ_INSERT_TAIL(&r->fs->interrupted, r, interrupted);
        ev_idle_start(r->fs->loop, &r->fs->interrupts);
    }
}

void request_park(struct request *r, struct request_queue *queue, request_step *answer, request_step *cancel)
{
    r->queue = queue;
    r->next_step = answer;
    r->cancel = cancel;
    TAILQ_INSERT_TAIL(queue, r, parked);
    keep_request_set_waiting(r->kept, true);
    if (r->ticket) {
        r->fs->observer->request_queued(r);
    }
    fuse_req_interrupt_func(r->req, request_interrupted, r);
}

void request_park_for_store(struct request *r, struct request_queue *queue, request_step *answer, request_step *cancel)
{
    request_park(r, queue, answer, cancel);
    r->awaits_store = true;
}

static void request_set_alarm(struct fs *fs)
{
    const struct request *first = TAILQ_FIRST(&fs->sleeping);
    ev_timer_stop(fs->loop, &fs->alarm);
    if (first) {
        ev_now_update(fs->loop);
        ev_timer_set(&fs->alarm, (double)MAX(first->wake - clock_now(), 1) / 1000, 0);
        ev_timer_start(fs->loop, &fs->alarm);
    }
}

void request_sleep(struct request *r, clock_ms when, request_step *answer, request_step *cancel)
{
    struct fs *fs = r->fs;
    struct request *later;
    r->wake = when;
    TAILQ_FOREACH(later, &fs->sleeping, parked) {
        if (later->wake > when) {
            break;
        }
    }
    request_park(r, &fs->sleeping, answer, cancel);
    if (later) {
        TAILQ_REMOVE(&fs->sleeping, r, parked);
        TAILQ_INSERT_BEFORE(later, r, parked);
    }
    request_set_alarm(fs);
}

void request_wake_due(struct fs *fs)
{
    struct request *r;
    clock_ms now = clock_now(); /* a request that sleeps again waits for the next alarm: others come first */
    while ((r = TAILQ_FIRST(&fs->sleeping)) && r->wake <= now && clock_now() - now < REQUEST_WAKE_LIMIT) {
        request_resume(r, BACKEND_OK);
    }
    request_set_alarm(fs);
}

void request_unpark(struct request *r)
{
    if (r->queue) {
        TAILQ_REMOVE(r->queue, r, parked);
        r->queue = NULL;
        keep_request_set_waiting(r->kept, false);
        r->awaits_store = false;
    }
    if (r->is_signalled) { /* if it waits again, libfuse reports the signal again */
        TAILQ_REMOVE(&r->fs->signalled, r, interrupted);
        r->is_interrupted = r->is_signalled = false;
    }
    if (r->listed_waiting) {
        r->fs->observer->request_dequeued(r);
    }
}

void request_resume(void *request, enum backend_result result)
{
    struct request *r = request;
    request_unpark(r);
    r->result = result;
    r->next_step(r);
}

void request_resume_all(struct request_queue *queue, enum backend_result result)
{
    /* One that parks again goes into another queue: this one's owner is settled. */
    struct request_queue all = TAILQ_HEAD_INITIALIZER(all);
    TAILQ_CONCAT(&all, queue, parked);
    struct request *r;
    TAILQ_FOREACH(r, &all, parked) {
        r->queue = &all;
    }
    while ((r = TAILQ_FIRST(&all))) {
        request_resume(r, result);
    }
}

/* ms.  The kernel sends INTERRUPT once for each request, also if the first signal is not fatal and a later one is. */
#define REQUEST_CHECK_SIGNALLED 50
#define REQUEST_CHECK_SIGNALLED_MAX 64 /* requests at a time, the longest unchecked first */

static bool request_is_killed(const struct request *r)
{
    return request_is_foreign(r) || owner_thread_is_killed(r->fs->owners, fuse_req_ctx(r->req)->pid);
}

void request_cancel_interrupted(struct fs *fs)
{
    struct request *r;
    while ((r = TAILQ_FIRST(&fs->interrupted))) {
        TAILQ_REMOVE(&fs->interrupted, r, interrupted);
        r->is_signalled = r->awaits_store && !request_is_killed(r);
        r->is_interrupted = r->is_signalled;
        if (r->is_signalled) {
            TAILQ_INSERT_TAIL(&fs->signalled, r, interrupted);
        } else if (r->queue) {
            request_unpark(r);
            r->cancel(r);
        }
    }
    if (!TAILQ_EMPTY(&fs->signalled) && !ev_is_active(&fs->signals)) {
        ev_timer_set(&fs->signals, REQUEST_CHECK_SIGNALLED / 1000.0, 0);
        ev_timer_start(fs->loop, &fs->signals);
    }
}

void request_check_signalled(struct fs *fs)
{
    struct request *r;
    for (unsigned i = 0; i < REQUEST_CHECK_SIGNALLED_MAX && (r = TAILQ_FIRST(&fs->signalled)); i++) {
        TAILQ_REMOVE(&fs->signalled, r, interrupted);
        TAILQ_INSERT_TAIL(&fs->interrupted, r, interrupted);
        r->is_signalled = false;
    }
    request_cancel_interrupted(fs);
}

bool request_path(struct request *r, char *path)
{
    bool fits = tree_path(r->node, path, TREE_PATH_MAX);
    if (!fits) {
        request_reply(r, -ENAMETOOLONG);
    }
    return fits;
}

bool request_path_in(struct request *r, char *path)
{
    bool fits = tree_child_path(r->other, r->name, path, TREE_PATH_MAX);
    if (!fits) {
        request_reply(r, -ENAMETOOLONG);
    }
    return fits;
}

void request_stat(struct request *r, backend_info_done *answer)
{
    char path[TREE_PATH_MAX];
    if (request_path(r, path)) {
        backend_stat(r->fs->backend, path, answer, r);
    }
}

void request_stat_in(struct request *r, backend_info_done *answer)
{
    char path[TREE_PATH_MAX];
    if (request_path_in(r, path)) {
        backend_stat(r->fs->backend, path, answer, r);
    }
}

void request_reply_interrupted(struct request *r)
{
    request_reply(r, -EINTR);
}

/* The kernel has got an earlier daemon's reply instead, and with it the look-up and the handle. */
static void request_keep_reply(struct request *r)
{
    r->refused = NULL;
    if (r->raised) {
        tree_add_lookup(r->raised);
    }
}

void request_reply(struct request *r, int error)
{
    if (error && r->kept) {
        KEEP_STORE(request_intent(r)->failed, error);
    }
    if (fuse_reply_err(r->req, -error) == -ENOENT && r->before && r->before->replies) {
        request_keep_reply(r);
    }
    request_end(r, error);
}

/* Before a reply by which the kernel gets a reference to r->node. */
static void request_raise(struct request *r)
{
    struct intent *intent = request_intent(r);
    intent->lookups = r->node->record->lookups;
    KEEP_STORE(intent->raised, tree_id(r->fs->tree, r->node));
    tree_add_lookup(r->node);
}

/* The kernel has refused such a reply: because the caller is gone, or because it has got the same from an earlier
 * daemon. */
static bool request_is_lost(const struct request *r, int result)
{
    return result == -ENOENT && !(r->before && r->before->replies);
}

/* The longest time, in milliseconds, for which an answer waits until the kernel has invalidated a name.  Invalidating
 * takes the kernel's lock of the directory.  A call that makes a file in that directory may hold it while it waits for
 * a store, which must not delay the answer for longer.
 *
 * setxattr(2) waits only a moment: it has the kernel's lock of its file, and unlink(2) or rename(2) of that file may
 * hold the directory's lock while it waits for the file's.  On a busy machine that is too short for the notifying
 * thread, so for setxattr(2) the kernel must not cache the name in the first place. */
#define REQUEST_INVALIDATE_MAX 1000
#define REQUEST_INVALIDATE_MAX_SETXATTR 20

/* Calls request_reply_invalidated when somebody may have waited for long enough. */
static void request_start_invalidate_timeout(struct fs *fs)
{
    if (!ev_is_active(&fs->invalidate_timeout)) {
        ev_timer_set(&fs->invalidate_timeout, REQUEST_INVALIDATE_MAX_SETXATTR / 1000.0, 0);
        ev_timer_start(fs->loop, &fs->invalidate_timeout);
    }
}

void request_reply_when_invalidated(struct request *r, int error)
{
    struct fs *fs = r->fs;
    if (!r->node->record->kept && tree_expired(r->node) <= notify_last_expired(fs->notify)) {
        request_reply(r, error);
        return;
    }
    r->error = error;
    r->wake =
        clock_now() + (r->operation == METRICS_SETXATTR ? REQUEST_INVALIDATE_MAX_SETXATTR : REQUEST_INVALIDATE_MAX);
    TAILQ_INSERT_TAIL(&fs->invalidating, r, parked);
    ev_idle_start(fs->loop, &fs->invalidate_idle); /* the name may go only after this in the call under way */
}

static void request_retry_invalidated(void *arg)
{
    request_reply_invalidated(arg);
}

void request_reply_invalidated(struct fs *fs)
{
    uint64_t expired = notify_last_expired(fs->notify), next = UINT64_MAX;
    clock_ms now = clock_now();
    bool expired_all = false;
    for (struct request *r = TAILQ_FIRST(&fs->invalidating), *after; r; r = after) {
        after = TAILQ_NEXT(r, parked);
        if (tree_expired(r->node) <= expired || r->wake <= now) {
            TAILQ_REMOVE(&fs->invalidating, r, parked);
            if (tree_expired(r->node) > expired && !expired_all) {
                notify_expire_all(fs->notify);
                expired_all = true;
            }
            request_reply(r, r->error);
        } else {
            next = MIN(next, tree_expired(r->node));
        }
    }
    if (next != UINT64_MAX) {
        notify_call_when_expired(fs->notify, next, request_retry_invalidated, fs);
        request_start_invalidate_timeout(fs);
    }
}

bool request_reply_open(struct request *r, const struct fuse_entry_param *entry)
{
    int result;
    if (entry) {
        request_raise(r);
    }
    KEEP_STORE(request_intent(r)->replies, 1);
    result = entry ? fuse_reply_create(r->req, entry, &r->file) : fuse_reply_open(r->req, &r->file);
    bool lost = request_is_lost(r, result);
    if (lost && entry) {
        tree_forget(r->fs->tree, r->node, 1);
    }
    request_end(r, 0);
    return !lost;
}

void request_reply_statfs(struct request *r, const struct statvfs *filesystem)
{
    fuse_reply_statfs(r->req, filesystem);
    request_end(r, 0);
}

void request_reply_poll(struct request *r, unsigned events)
{
    fuse_reply_poll(r->req, events);
    request_end(r, 0);
}

void request_reply_entry(struct request *r, const struct fuse_entry_param *entry)
{
    if (entry->ino) {
        request_raise(r);
        KEEP_STORE(request_intent(r)->replies, 1);
    }
    if (request_is_lost(r, fuse_reply_entry(r->req, entry)) && entry->ino) {
        tree_forget(r->fs->tree, r->node, 1);
    }
    request_end(r, entry->ino ? 0 : -ENOENT);
}

void request_reply_attr(struct request *r, const struct stat *attributes, double timeout)
{
    fuse_reply_attr(r->req, attributes, timeout);
    request_end(r, 0);
}

bool request_reply_buffer(struct request *r, const char *buffer, size_t size)
{
    int result = fuse_reply_buf(r->req, buffer, size);
    request_end(r, 0);
    return result != -ENOENT;
}

size_t request_add_name(struct request *r, char *buffer, size_t size, const char *name,
                        const struct fuse_entry_param *entry, off_t next)
{
    return r->read.plus ? fuse_add_direntry_plus(r->req, buffer, size, name, entry, next)
                        : fuse_add_direntry(r->req, buffer, size, name, &entry->attr, next);
}

void request_reply_write(struct request *r, size_t count)
{
    fuse_reply_write(r->req, count);
    request_end(r, 0);
}

void request_reply_lock(struct request *r, const struct flock *lock)
{
    fuse_reply_lock(r->req, lock);
    request_end(r, 0);
}

void request_reply_xattr_size(struct request *r, size_t size)
{
    fuse_reply_xattr(r->req, size);
    request_end(r, 0);
}

void request_reply_readlink(struct request *r, const char *target)
{
    fuse_reply_readlink(r->req, target);
    request_end(r, 0);
}

void request_done(void *arg, enum backend_result result)
{
    request_reply(arg, fs_error(result));
}

/* Unlocking and closing succeed, also if the lock was lost. */
void request_released(void *arg, enum backend_result result)
{
    request_reply_when_invalidated(arg, result == BACKEND_STALE ? 0 : fs_error(result));
}
