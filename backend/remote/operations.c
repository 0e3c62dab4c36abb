/* operations: the table of operations of every store across a network.
 *
 * Refuses names that the store cannot have, and features that it lacks.  Makes the requests about names, and calls
 * their completions.
 */
#include <stdio.h>

#include "backend/log.h"
#include "backend/remote/remote.h"

/* Logs that the store lacks a feature, and says so. */
static enum backend_result operations_lacks(const char *notice)
{
    log_notice("%s", notice);
    return BACKEND_UNSUPPORTED;
}

static enum backend_result operations_lacks_once(const char *notice, bool *noticed)
{
    if (!*noticed) {
        log_notice("%s", notice);
    }
    *noticed = true;
    return BACKEND_UNSUPPORTED;
}

/* --- tickets --- */

static enum backend_result operations_check_claim(struct remote *r, const char *name, const struct backend_claim *claim)
{
    const struct remote_store *store = r->store;
    unsigned missing =
        (claim->sequence ? BACKEND_CAN_SEQUENCE : 0u) | (claim->mode == BACKEND_SHARED ? BACKEND_CAN_SHARE : 0u);
    const char *leaf = remote_leaf(name);
    if (!*name) {
        return BACKEND_IS_DIRECTORY;
    }
    if (missing & ~r->backend.features) {
        return operations_lacks_once(store->no_share, &r->share_noticed);
    }
    if (claim->sequence && (!g_str_has_suffix(leaf, "-") || strlen(leaf) + 10 > 255)) {
        return BACKEND_INVALID;
    }
    return store->allows_name(r, name) ? BACKEND_OK : BACKEND_INVALID;
}

static struct backend_ticket *operations_acquire(struct backend *b, const char *name, const struct backend_claim *claim,
                                                 backend_acquire_done *done, void *arg)
{
    struct remote *r = (struct remote *)b;
    enum backend_result result = operations_check_claim(r, name, claim);
    if (result != BACKEND_OK) {
        done(arg, result, NULL, NULL);
        return NULL;
    }
    bool part = claim->kind == BACKEND_FCNTL && (claim->start > 0 || claim->end < BACKEND_RANGE_MAX);
    if (part && !(b->features & BACKEND_CAN_RANGE)) {
        operations_lacks_once(r->store->no_range, &r->range_noticed);
    }
    remote_report_expired(r, name);
    struct remote_ticket *t = remote_ticket_new(r, name, claim);
    remote_acquire(r, t, done, arg);
    return &t->head;
}

static void operations_release(struct backend *b, struct backend_ticket *ticket, backend_done *done, void *arg)
{
    remote_release((struct remote *)b, (struct remote_ticket *)ticket, done, arg);
}

static bool operations_cancel(struct backend *b, struct backend_ticket *ticket)
{
    return remote_cancel((struct remote *)b, (struct remote_ticket *)ticket);
}

static bool operations_release_range(struct backend *b, struct backend_ticket *ticket, uint64_t start, uint64_t end,
                                     backend_done *done, void *arg)
{
    return remote_release_range((struct remote *)b, (struct remote_ticket *)ticket, start, end, done, arg);
}

static void operations_convert(struct backend *b, struct backend_ticket *ticket, const struct backend_claim *claim,
                               backend_done *done, void *arg)
{
    if (claim->mode == BACKEND_SHARED && !(b->features & BACKEND_CAN_SHARE)) {
        done(arg, BACKEND_UNSUPPORTED);
    } else {
        remote_convert((struct remote *)b, (struct remote_ticket *)ticket, claim, done, arg);
    }
}

static void operations_renew(struct backend *b, const struct backend_renewal *renewals, size_t count)
{
    remote_renew((struct remote *)b, renewals, count);
}

static void operations_set(struct backend *b, struct backend_ticket *ticket, const struct backend_change *change,
                           backend_done *done, void *arg)
{
    remote_set((struct remote *)b, (struct remote_ticket *)ticket, change, done, arg);
}

static void operations_rename(struct backend *b, struct backend_ticket *ticket, const char *name,
                              struct backend_ticket *replaced, backend_done *done, void *arg)
{
    struct remote *r = (struct remote *)b;
    struct remote_ticket *t = (struct remote_ticket *)ticket, *target = (struct remote_ticket *)replaced;
    if (!(b->features & BACKEND_CAN_RENAME)) {
        done(arg, operations_lacks(r->store->no_rename));
    } else if (target && strcmp(target->lock->name, name) == 0 && !(b->features & BACKEND_CAN_REPLACE)) {
        done(arg, operations_lacks(r->store->no_replace));
    } else if (!*name || !r->store->allows_name(r, name) || t->lock->sequence) {
        done(arg, *name ? BACKEND_INVALID : BACKEND_IS_DIRECTORY);
    } else {
        remote_report_expired(r, name);
        remote_rename(r, t, name, target, done, arg);
    }
}

/* --- names --- */

static void operations_on_answer(struct remote_request *request, const struct remote_answer *answer)
{
    if (request->procedure == REMOTE_TEST || request->procedure == REMOTE_STAT || request->procedure == REMOTE_MOUNTS) {
        request->known(request->arg, answer->result, answer->result == BACKEND_OK ? answer->info : NULL);
    } else if (request->done) {
        request->done(request->arg, answer->result);
    }
    remote_request_free(request);
}

/* About a name, and no ticket. */
static struct remote_request *operations_request(struct remote *r, enum remote_procedure procedure, const char *name,
                                                 void *arg)
{
    struct remote_request *request = remote_request_new(r, procedure, NULL, name);
    remote_report_expired(r, name);
    request->arg = arg;
    return request;
}

static void operations_send(struct remote_request *request)
{
    remote_request_send(request, NULL, operations_on_answer, 0);
}

static void operations_revoke(struct backend *b, const char *name, uint64_t fence, const struct backend_match *match,
                              backend_done *done, void *arg)
{
    struct remote *r = (struct remote *)b;
    if (!*name || !r->store->allows_name(r, name)) {
        done(arg, *name ? BACKEND_MISSING : r->store->revoke_root);
        return;
    }
    struct remote_request *request = operations_request(r, REMOTE_REVOKE, name, arg);
    request->done = done;
    request->fence = fence;
    request->match = match ? g_memdup2(match, sizeof *match) : NULL;
    operations_send(request);
}

static void operations_ask(struct remote *r, enum remote_procedure procedure, const char *name,
                           const struct backend_claim *claim, backend_info_done *done, void *arg)
{
    if (!r->store->allows_name(r, name)) {
        done(arg, BACKEND_OK, &(struct backend_info){.type = BACKEND_NOTHING});
        return;
    }
    struct remote_request *request = operations_request(r, procedure, name, arg);
    request->known = done;
    if (claim) {
        request->claim = *claim;
        request->claim.lock_owner = claim->kind == BACKEND_FCNTL ? claim->lock_owner : 0;
        request->claim.meta = request->claim.content = NULL;
    }
    operations_send(request);
}

static void operations_test(struct backend *b, const char *name, const struct backend_claim *claim,
                            backend_info_done *done, void *arg)
{
    if (!*name || claim->sequence) {
        done(arg, BACKEND_OK, &(struct backend_info){.type = BACKEND_NOTHING});
    } else {
        operations_ask((struct remote *)b, REMOTE_TEST, name, claim, done, arg);
    }
}

static void operations_stat(struct backend *b, const char *name, backend_info_done *done, void *arg)
{
    operations_ask((struct remote *)b, REMOTE_STAT, name, NULL, done, arg);
}

static void operations_mounts(struct backend *b, backend_info_done *done, void *arg)
{
    operations_ask((struct remote *)b, REMOTE_MOUNTS, "", NULL, done, arg);
}

static void operations_send_list(struct remote *r, enum remote_procedure procedure, const char *directory,
                                 const char *after, size_t max, backend_list_done *done, void *arg)
{
    if (!r->store->allows_name(r, directory)) {
        done(arg, BACKEND_MISSING, NULL, 0);
        return;
    }
    struct remote_request *request = operations_request(r, procedure, directory, arg);
    request->listed = done;
    remote_listing_start(request, after, max);
}

static void operations_list(struct backend *b, const char *directory, const char *after, size_t max,
                            backend_list_done *done, void *arg)
{
    operations_send_list((struct remote *)b, REMOTE_LIST, directory, after, max, done, arg);
}

static void operations_tickets(struct backend *b, const char *directory, const char *after, size_t max,
                               backend_list_done *done, void *arg)
{
    if (b->features & BACKEND_CAN_SEQUENCE) {
        operations_send_list((struct remote *)b, REMOTE_TICKETS, directory, after, max, done, arg);
    } else {
        done(arg, BACKEND_OK, NULL, 0);
    }
}

/* --- directories --- */

static void operations_send_directory(struct remote *r, enum remote_procedure procedure, const char *name,
                                      const struct backend_directory *directory, backend_done *done, void *arg)
{
    static const struct backend_directory plain = {.width = 1};
    struct remote_request *request = operations_request(r, procedure, name, arg);
    request->done = done;
    request->directory = directory ? *directory : plain;
    request->directory.meta = directory && directory->meta ? g_bytes_ref(directory->meta) : NULL;
    operations_send(request);
}

void remote_send_directory(struct remote *r, enum remote_procedure procedure, const char *name,
                           const struct backend_directory *directory)
{
    operations_send_directory(r, procedure, name, directory, NULL, NULL);
}

static void operations_change_directory(struct backend *b, enum remote_procedure procedure, const char *name,
                                        const struct backend_directory *directory, backend_done *done, void *arg)
{
    struct remote *r = (struct remote *)b;
    bool queues = directory && (directory->width > 1 || directory->delay > 0);
    if (queues && !(b->features & BACKEND_CAN_SHARE)) {
        done(arg, operations_lacks(r->store->no_width));
    } else if (!r->store->allows_name(r, name)) {
        done(arg, BACKEND_INVALID);
    } else {
        operations_send_directory(r, procedure, name, directory, done, arg);
    }
}

static void operations_mkdir(struct backend *b, const char *name, const struct backend_directory *directory,
                             backend_done *done, void *arg)
{
    if (!*name) {
        done(arg, BACKEND_EXISTS);
    } else {
        operations_change_directory(b, REMOTE_MKDIR, name, directory, done, arg);
    }
}

static void operations_rmdir(struct backend *b, const char *name, backend_done *done, void *arg)
{
    if (!*name) {
        done(arg, ((struct remote *)b)->store->rmdir_root);
    } else {
        operations_change_directory(b, REMOTE_RMDIR, name, NULL, done, arg);
    }
}

static void operations_set_directory(struct backend *b, const char *name, const struct backend_directory *directory,
                                     backend_done *done, void *arg)
{
    operations_change_directory(b, REMOTE_SET_DIRECTORY, name, directory, done, arg);
}

/* --- the rest --- */

static void operations_start(struct backend *b, struct ev_loop *loop, const struct backend_events *events,
                             void *context)
{
    struct remote *r = (struct remote *)b;
    r->loop = loop;
    r->events = events;
    r->context = context;
    remote_start(r);
    r->store->start(r);
}

static void operations_free(struct backend *b)
{
    struct remote *r = (struct remote *)b;
    bool holds = remote_count(r).locks > 0;
    remote_revocation_clear_all(r);
    remote_clear(r);
    r->store->free(r, holds);
}

static void operations_watch(struct backend *b, const char *name)
{
    struct remote *r = (struct remote *)b;
    if (r->store->watch_name) {
        remote_watch(r, name);
    }
}

static void operations_on_limit(struct ev_loop *loop, ev_timer *limit, int events)
{
    (void)loop, (void)events;
    *(bool *)limit->data = true;
}

static bool operations_is_recovering(const struct remote *r)
{
    return r->store->is_recovering && r->store->is_recovering(r);
}

static void operations_identify(struct backend *b, struct backend_ticket *ticket, struct backend_identity identity)
{
    struct remote_ticket *t = (struct remote_ticket *)ticket;
    (void)b;
    t->handle = identity.handle;
    t->lock_owner = t->head.kind == BACKEND_FCNTL ? identity.lock_owner : 0;
}

static void operations_recover(struct backend *b, backend_recover_each *found, void *arg)
{
    struct remote *r = (struct remote *)b;
    bool late = false;
    ev_timer limit;
    if (r->store->recover) {
        r->store->recover(r, found, arg);
    }
    if (!operations_is_recovering(r)) {
        return;
    }
    ev_timer_init(&limit, operations_on_limit, (double)r->timeout / 1000, 0);
    limit.data = &late;
    ev_now_update(r->loop);
    ev_timer_start(r->loop, &limit);
    while (operations_is_recovering(r) && !late) {
        ev_run(r->loop, EVRUN_ONCE);
    }
    ev_timer_stop(r->loop, &limit);
}

static struct backend_counts operations_counts(struct backend *b)
{
    const struct remote *r = (const struct remote *)b;
    struct backend_counts counts = remote_count(r);
    counts.recovering = operations_is_recovering(r);
    return counts;
}

static bool operations_name(struct backend *b, const struct backend_ticket *ticket, char *buffer, size_t size)
{
    (void)b;
    return g_strlcpy(buffer, remote_ticket_name((const struct remote_ticket *)ticket), size) < size;
}

static void operations_status(struct backend *b, struct backend_status *status)
{
    struct remote *r = (struct remote *)b;
    status->has_connections = true;
    r->store->status(r, status);
}

static const struct backend_operations operations = {
    .start = operations_start,
    .free = operations_free,
    .acquire = operations_acquire,
    .release = operations_release,
    .cancel = operations_cancel,
    .release_range = operations_release_range,
    .convert = operations_convert,
    .renew = operations_renew,
    .set = operations_set,
    .revoke = operations_revoke,
    .rename = operations_rename,
    .test = operations_test,
    .stat = operations_stat,
    .list = operations_list,
    .tickets = operations_tickets,
    .mounts = operations_mounts,
    .mkdir = operations_mkdir,
    .rmdir = operations_rmdir,
    .set_directory = operations_set_directory,
    .watch = operations_watch,
    .recover = operations_recover,
    .identify = operations_identify,
    .counts = operations_counts,
    .status = operations_status,
    .name = operations_name,
};

int remote_init(struct remote *r, const struct remote_store *store, uint32_t seed)
{
    r->store = store;
    r->backend = (struct backend){
        .operations = &operations,
        .name = store->name,
        .features = store->features | (store->watch_name ? BACKEND_CAN_WATCH : 0),
        .safety = store->safety,
    };
    return remote_init_tables(r, seed);
}
