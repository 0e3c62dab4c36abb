/* local: the calls of backend.h on a lockspace and, except for `memory`, a store.
 *
 * A grant or a change goes into the journal before it is reported.  Where the
 * lockspace must change first, the change is undone if the journal fails.  A release
 * takes effect even if the journal fails.
 */
#include "backend/local/local.h"

#include <errno.h>
#include <string.h>

#include "backend/local/private.h"

static struct local *local_of(struct backend *b)
{
    return (struct local *)b;
}

static bool local_journal_failed(const struct local *l)
{
    return l->store && local_store_failed(l->store);
}

static void local_start(struct backend *b, struct ev_loop *loop, const struct backend_events *events, void *context)
{
    local_of(b)->started = clock_now();
    local_loop_start(local_of(b), loop, events, context);
}

static void local_free(struct backend *b)
{
    struct local *l = local_of(b);
    if (l->store) {
        local_store_on_synced(l->store, NULL, NULL);
    }
    local_loop_end(l);
    local_rename_end_all(l);
    local_store_close(l->store);
    lockspace_free(l->space);
    g_free(l);
}

/* --- claims --- */

/* Records a ticket that was just made, and the numbers of its directory. */
static enum backend_result local_keep_ticket(struct local *l, const struct backend_claim *claim,
                                             const struct backend_ticket *ticket)
{
    enum backend_result result = BACKEND_OK;
    if (l->store && claim->sequence) {
        result = local_store_put_number(l->store, ticket);
    }
    if (result == BACKEND_OK && local_is_recorded(l, ticket)) {
        result = local_store_put_ticket(l->store, ticket, 0);
    }
    return result;
}

static struct backend_ticket *local_acquire(struct backend *b, const char *name, const struct backend_claim *claim,
                                            backend_acquire_done *done, void *arg)
{
    struct local *l = local_of(b);
    clock_ms now = clock_now();
    struct backend_ticket *ticket = NULL;
    struct backend_info holder;
    uint64_t sequence;
    /* a provisional lock or a ticket may become a lease by a close, which cannot be refused any more */
    bool keeps = local_is_kept(l, claim->kind) || claim->kind == BACKEND_PROVISIONAL || claim->sequence;
    enum backend_result result = local_may_grant(l, name, keeps);
    uint64_t fence_sequence = local_fence_sequence(l);
    if (result == BACKEND_OK) {
        lockspace_defer_grants(l->space, fence_sequence > 0);
        result = lockspace_acquire(l->space, now, name, claim, &ticket, &holder);
    }
    enum backend_result kept = ticket ? local_keep_ticket(l, claim, ticket) : BACKEND_OK;
    enum backend_result committed = local_commit(l, &sequence);
    bool lasting = l->store && (claim->kind == BACKEND_LEASE || claim->sequence); /* its record survives the host */
    if (ticket && kept == BACKEND_OK && (lasting || local_is_recorded(l, ticket))) {
        kept = committed;
    }
    /* a ticket that has joined another cannot be undone: it holds, without a record */
    if (kept != BACKEND_OK && !ticket->joined) {
        local_forget(l, ticket);
        lockspace_release(l->space, now, ticket);
        local_commit(l, &sequence);
        result = kept;
        ticket = NULL;
    }
    if (ticket) {
        local_complete_acquire(l, MAX(lasting ? sequence : 0, fence_sequence), done, arg, result, ticket);
    } else {
        done(arg, result, NULL, result == BACKEND_BUSY ? &holder : NULL);
    }
    return ticket;
}

static void local_release(struct backend *b, struct backend_ticket *ticket, backend_done *done, void *arg)
{
    struct local *l = local_of(b);
    uint64_t sequence = 0;
    if (local_has_ended(l, ticket)) {
        if (ticket != l->reporting_end) {
            local_forget(l, ticket);
        }
    } else {
        if (local_is_recorded(l, ticket)) {
            local_store_put_end(l->store, ticket->fence, ticket->kind);
        }
        local_forget(l, ticket);
        lockspace_release(l->space, clock_now(), ticket);
        local_commit(l, &sequence);
    }
    local_complete(l, sequence, done, arg, BACKEND_OK, BACKEND_OK);
}

static bool local_release_range(struct backend *b, struct backend_ticket *ticket, uint64_t start, uint64_t end,
                                backend_done *done, void *arg)
{
    struct local *l = local_of(b);
    enum backend_result result = BACKEND_OK;
    uint64_t sequence, fence = ticket->fence;
    bool recorded = local_is_recorded(l, ticket) && !local_has_ended(l, ticket);
    if (!local_has_ended(l, ticket)) {
        result = lockspace_release_range(l->space, clock_now(), ticket, start, end);
    }
    bool left = result != BACKEND_MISSING;
    if (!left) {
        local_forget(l, ticket);
    }
    if (recorded && left) {
        local_store_put_granted(l->store, ticket); /* after a crash before this it holds more bytes, not fewer */
    } else if (recorded) {
        local_store_put_end(l->store, fence, BACKEND_FCNTL);
    }
    local_commit(l, &sequence);
    local_complete(l, 0, done, arg, left ? result : BACKEND_OK, BACKEND_OK);
    return left;
}

/* Records the lease or handle lock that a conversion will make. */
static enum backend_result local_keep_conversion(struct local *l, clock_ms now, const struct backend_ticket *ticket,
                                                 const struct backend_claim *claim, uint64_t *ret_sequence)
{
    char name[LOCAL_NAME_MAX];
    bool sequence = lockspace_ticket_sequence(ticket);
    struct local_lease lease = {
        .name = name,
        .fence = ticket->fence,
        .flags =
            (uint8_t)((ticket->held ? LOCAL_LEASE_HELD : 0) | (sequence ? LOCAL_LEASE_SEQUENCE : 0) |
                      (claim->mode == BACKEND_SHARED ? LOCAL_LEASE_SHARED : 0) | local_lease_handle_flag(claim->kind)),
        .kind = (uint8_t)claim->kind,
        .ttl = claim->ttl,
        .acquired = ticket->acquired,
        .deadline = now + claim->ttl,
        .meta = claim->meta ? claim->meta : lockspace_ticket_meta(ticket),
        .content = claim->content ? claim->content : ticket->content,
    };
    if (!lockspace_ticket_name(ticket, name, sizeof(name))) {
        return BACKEND_INVALID;
    }
    if (claim->kind == BACKEND_FCNTL && !sequence) {
        lease.segments = backend_segments_new(claim->start, claim->end, claim->mode);
    }
    enum backend_result result = local_store_put_lease(l->store, &lease);
    g_clear_pointer(&lease.segments, g_array_unref);
    return result == BACKEND_OK ? local_commit(l, ret_sequence) : result;
}

/* Corrects the record that local_keep_conversion wrote before the conversion. */
static void local_correct_conversion(struct local *l, const struct backend_ticket *ticket, uint64_t fence,
                                     bool was_kept, bool kept, bool refused)
{
    if (!l->store) {
        return;
    }
    if (refused && kept && was_kept) {
        local_store_put_ticket(l->store, ticket, 0);
    } else if (refused && kept) {
        local_store_put_end(l->store, fence, ticket->kind);
    } else if (!refused && l->store && ticket->fence != fence) {
        local_store_put_granted_as(l->store, ticket, fence); /* it took over its lock owner's earlier ticket */
    } else if (!refused && was_kept && !kept) {
        local_store_put_end(l->store, fence, BACKEND_LEASE);
    }
}

static void local_convert(struct backend *b, struct backend_ticket *ticket, const struct backend_claim *claim,
                          backend_done *done, void *arg)
{
    struct local *l = local_of(b);
    clock_ms now = clock_now();
    bool was_kept = local_is_recorded(l, ticket), was_lasting = l->store && ticket->kind == BACKEND_LEASE;
    bool kept = local_is_kept(l, claim->kind) && (claim->kind == BACKEND_LEASE || ticket->held);
    enum backend_result result = BACKEND_OK;
    uint64_t sequence = 0, after = 0, fence = ticket->fence;
    if (local_has_ended(l, ticket) || lockspace_ticket_is_expired(ticket, now)) {
        result = BACKEND_STALE;
    } else if (l->store && !local_store_in_place(l->store)) {
        result = BACKEND_UNREACHABLE;
    } else if (kept) {
        result = local_keep_conversion(l, now, ticket, claim, &sequence);
    }
    if (result == BACKEND_OK) {
        result = lockspace_convert(l->space, now, ticket, claim);
        local_correct_conversion(l, ticket, fence, was_kept, kept, result != BACKEND_OK);
        local_commit(l, &after);
    }
    /* a handle lock needs no sync, so the conversion of a lease to one does not fail without it */
    bool lasting = kept && claim->kind == BACKEND_LEASE;
    local_complete(l, was_lasting || lasting ? MAX(sequence, after) : 0, done, arg, result,
                   lasting ? BACKEND_UNREACHABLE : result);
}

/* --- changes --- */

static void local_renew(struct backend *b, const struct backend_renewal *renewals, size_t count)
{
    struct local *l = local_of(b);
    clock_ms now = clock_now();
    struct backend_ticket *kept[256];
    size_t used = 0;
    uint64_t sequence;
    bool longer = !l->store || local_store_may_renew(l->store, MIN(count, G_N_ELEMENTS(kept)));
    for (size_t i = 0; i < count; i++) {
        struct backend_ticket *ticket = renewals[i].ticket;
        if (local_has_ended(l, ticket)) {
            continue;
        }
        /* a lease must not end later than its record says; a handle lock's record has no deadline */
        bool timed = ticket->kind == BACKEND_LEASE && l->store;
        int64_t ttl = longer || !timed ? renewals[i].ttl : MIN(renewals[i].ttl, ticket->ttl);
        lockspace_renew(l->space, now, ticket, ttl, renewals[i].due);
        bool ended = local_has_ended(l, ticket);
        if (!ended && ticket->held && renewals[i].keeper) {
            lockspace_rest(l->space, ticket, renewals[i].keeper);
        }
        if (timed && !ended) {
            kept[used++] = ticket;
        }
        if (used == G_N_ELEMENTS(kept)) {
            local_store_put_renewals(l->store, kept, used);
            used = 0;
        }
    }
    if (used) {
        local_store_put_renewals(l->store, kept, used);
    }
    local_commit(l, &sequence);
}

static void local_wake(struct backend *b, uint32_t keeper)
{
    struct local *l = local_of(b);
    g_array_append_val(l->waking, keeper);
    if (l->loop) {
        ev_idle_start(l->loop, &l->again);
    }
}

static void local_set(struct backend *b, struct backend_ticket *ticket, const struct backend_change *change,
                      backend_done *done, void *arg)
{
    struct local *l = local_of(b);
    enum backend_result result = BACKEND_OK;
    uint64_t sequence = 0;
    if (local_has_ended(l, ticket) || lockspace_ticket_is_expired(ticket, clock_now())) {
        result = BACKEND_STALE;
    } else if (local_is_recorded(l, ticket)) {
        result = local_store_put_change(l->store, ticket->fence, change);
        if (result == BACKEND_OK) {
            result = local_commit(l, &sequence);
        }
    }
    if (result == BACKEND_OK || (result == BACKEND_FULL && !done)) { /* see backend_set */
        lockspace_set(ticket, change);
    }
    local_complete(l, sequence, done, arg, result, BACKEND_UNREACHABLE);
}

static void local_revoke(struct backend *b, const char *name, uint64_t fence, const struct backend_match *match,
                         backend_done *done, void *arg)
{
    struct local *l = local_of(b);
    clock_ms now = clock_now();
    uint64_t sequence;
    local_tick(l, now);
    if (match && !lockspace_revoked_match(l->space, name, fence, match)) {
        done(arg, BACKEND_BUSY);
        return;
    }
    enum backend_result result = lockspace_revoke(l->space, now, name, fence);
    local_commit(l, &sequence);
    local_complete_later(l, sequence, done, arg, result, result);
}

/* --- questions --- */

/* Hides a holder that has expired, but has not been ended yet. */
static void local_hide_expired(struct backend_info *info, clock_ms now)
{
    if (info->ticket) {
        info->deadline = backend_ticket_deadline(info->ticket, now);
    }
    bool over = info->ticket ? lockspace_ticket_is_expired(info->ticket, now) : info->deadline <= now;
    if (info->type == BACKEND_LOCK && over) {
        *info = (struct backend_info){.type = BACKEND_NOTHING};
    }
}

static void local_test(struct backend *b, const char *name, const struct backend_claim *claim, backend_info_done *done,
                       void *arg)
{
    struct local *l = local_of(b);
    clock_ms now = clock_now();
    struct backend_info info;
    local_tick(l, now);
    lockspace_test(l->space, name, claim, &info);
    local_hide_expired(&info, now);
    done(arg, BACKEND_OK, &info);
}

static void local_stat(struct backend *b, const char *name, backend_info_done *done, void *arg)
{
    struct local *l = local_of(b);
    clock_ms now = clock_now();
    struct backend_info info;
    local_tick(l, now);
    lockspace_stat(l->space, name, &info);
    local_hide_expired(&info, now);
    done(arg, BACKEND_OK, &info);
}

#define LOCAL_LIST_MAX 4096 /* entries of one listing */

static void local_list(struct backend *b, const char *directory, const char *after, size_t max, backend_list_done *done,
                       void *arg)
{
    struct local *l = local_of(b);
    size_t most = MIN(max, LOCAL_LIST_MAX);
    local_tick(l, clock_now());
    struct backend_entry *entries = g_new(struct backend_entry, most);
    int count = lockspace_list(l->space, directory, after, most, entries);
    if (count < 0) {
        done(arg, (enum backend_result)(-count), NULL, 0);
    } else {
        done(arg, BACKEND_OK, entries, (size_t)count);
    }
    g_free(entries);
}

static void local_tickets(struct backend *b, const char *directory, const char *after, size_t max,
                          backend_list_done *done, void *arg)
{
    struct local *l = local_of(b);
    clock_ms now = clock_now();
    local_tick(l, now);
    g_autofree struct backend_entry *entries = g_new(struct backend_entry, LOCAL_LIST_MAX);
    g_autofree struct backend_info *infos = g_new(struct backend_info, LOCAL_LIST_MAX);
    int count = lockspace_tickets(l->space, directory, after, MIN(max, LOCAL_LIST_MAX), entries, infos);
    for (int i = 0; i < count; i++) {
        local_hide_expired(&infos[i], now);
    }
    done(arg, count < 0 ? (enum backend_result)(-count) : BACKEND_OK, entries, (size_t)MAX(count, 0));
}

static struct backend_counts local_counts(struct backend *b)
{
    return lockspace_counts(local_of(b)->space);
}

static bool local_name(struct backend *b, const struct backend_ticket *ticket, char *buffer, size_t size)
{
    (void)b;
    return lockspace_ticket_name(ticket, buffer, size);
}

static void local_status(struct backend *b, struct backend_status *status)
{
    struct local *l = local_of(b);
    status->since = l->started;
    if (!l->store) {
        return;
    }
    local_store_status(l->store, status);
    g_ptr_array_add(status->details, g_strdup_printf("sync: %s", l->sync_always ? "always" : "no"));
}

/* --- directories --- */

/* The attributes of a directory, with a reference to meta. */
static struct backend_directory local_directory_now(struct local *l, const char *name)
{
    struct backend_info info;
    lockspace_stat(l->space, name, &info);
    if (info.directory.meta) {
        g_bytes_ref(info.directory.meta);
    }
    return info.directory;
}

/* Records the directory's present attributes. */
static enum backend_result local_keep_directory(struct local *l, const char *name, uint64_t *ret_sequence)
{
    struct backend_info info;
    enum backend_result result = BACKEND_OK;
    lockspace_stat(l->space, name, &info);
    if (l->store) {
        result = local_store_put_directory(l->store, name, &info.directory);
    }
    enum backend_result committed = local_commit(l, ret_sequence);
    return result == BACKEND_OK ? committed : result;
}

static void local_mkdir(struct backend *b, const char *name, const struct backend_directory *directory,
                        backend_done *done, void *arg)
{
    struct local *l = local_of(b);
    enum backend_result result = local_may_grant(l, name, true);
    uint64_t sequence = 0;
    local_tick(l, clock_now());
    if (result == BACKEND_OK) {
        result = lockspace_mkdir(l->space, name, directory);
    }
    if (result == BACKEND_OK) {
        result = local_keep_directory(l, name, &sequence);
        if (result != BACKEND_OK) {
            lockspace_rmdir(l->space, name);
        }
    }
    local_complete(l, sequence, done, arg, result, BACKEND_UNREACHABLE);
}

static void local_rmdir(struct backend *b, const char *name, backend_done *done, void *arg)
{
    struct local *l = local_of(b);
    struct backend_directory old = local_directory_now(l, name);
    enum backend_result result = local_journal_failed(l) ? BACKEND_UNREACHABLE : BACKEND_OK;
    uint64_t sequence = 0;
    local_tick(l, clock_now());
    if (result == BACKEND_OK) {
        result = lockspace_rmdir(l->space, name);
    }
    if (result == BACKEND_OK && l->store) {
        result = local_store_put_rmdir(l->store, name);
        if (result == BACKEND_OK) {
            result = local_commit(l, &sequence);
        }
        if (result != BACKEND_OK) {
            lockspace_mkdir(l->space, name, &old);
        }
    }
    g_clear_pointer(&old.meta, g_bytes_unref);
    local_complete(l, sequence, done, arg, result, BACKEND_UNREACHABLE);
}

static void local_set_directory(struct backend *b, const char *name, const struct backend_directory *directory,
                                backend_done *done, void *arg)
{
    struct local *l = local_of(b);
    clock_ms now = clock_now();
    struct backend_directory old = local_directory_now(l, name);
    enum backend_result result = local_journal_failed(l) ? BACKEND_UNREACHABLE : BACKEND_OK;
    uint64_t sequence = 0;
    if (result == BACKEND_OK) {
        result = lockspace_set_directory(l->space, now, name, directory);
    }
    if (result == BACKEND_OK) {
        result = local_keep_directory(l, name, &sequence);
        if (result != BACKEND_OK) {
            lockspace_set_directory(l->space, now, name, &old);
        }
    }
    g_clear_pointer(&old.meta, g_bytes_unref);
    local_complete(l, sequence, done, arg, result, BACKEND_UNREACHABLE);
}

/* --- recovery --- */

struct recovery {
    struct local *local;
    backend_recover_each *found;
    void *arg;
    GBytes *empty;
};

static void local_recover_directory(void *arg, const char *name, const struct backend_directory *directory)
{
    struct recovery *recovery = arg;
    if (*name) {
        recovery->found(recovery->arg, name, NULL, directory->meta, NULL);
    }
}

static void local_recover_ticket(void *arg, const char *name, struct backend_ticket *ticket)
{
    struct recovery *recovery = arg;
    GBytes *content = ticket->content;
    clock_ms now = clock_now();
    if (ticket->guarded) {
        return; /* its holder has lost it */
    }
    bool renewed = recovery->found(recovery->arg, name, ticket, lockspace_ticket_meta(ticket),
                                   content ? content : recovery->empty);
    if (renewed && lockspace_ticket_is_expired(ticket, now)) {
        lockspace_revive(recovery->local->space, now, ticket);
    }
}

static void local_recover(struct backend *b, backend_recover_each *found, void *arg)
{
    struct recovery recovery = {.local = local_of(b), .found = found, .arg = arg, .empty = g_bytes_new(NULL, 0)};
    char cursor[LOCAL_NAME_MAX] = "";
    const size_t part = 1024;
    while (lockspace_visit(local_of(b)->space, cursor, sizeof(cursor), part, local_recover_directory,
                           local_recover_ticket, &recovery) == part) {
        continue;
    }
    g_bytes_unref(recovery.empty);
}

static void local_identify(struct backend *b, struct backend_ticket *ticket, struct backend_identity identity)
{
    lockspace_identify(local_of(b)->space, ticket, identity);
}

static const struct backend_operations operations = {
    .start = local_start,
    .free = local_free,
    .acquire = local_acquire,
    .release = local_release,
    .release_range = local_release_range,
    .convert = local_convert,
    .renew = local_renew,
    .wake = local_wake,
    .set = local_set,
    .revoke = local_revoke,
    .rename = local_rename,
    .test = local_test,
    .stat = local_stat,
    .list = local_list,
    .tickets = local_tickets,
    .mkdir = local_mkdir,
    .rmdir = local_rmdir,
    .set_directory = local_set_directory,
    .recover = local_recover,
    .identify = local_identify,
    .counts = local_counts,
    .name = local_name,
    .status = local_status,
};

int local_new(const struct local_options *options, struct backend **ret_backend, char *error, size_t error_size)
{
    struct local *l = g_new0(struct local, 1);
    int r = local_loop_init(l);
    if (r < 0) {
        g_snprintf(error, error_size, "cannot create a timer: %s", g_strerror(-r));
        g_free(l);
        return r;
    }
    l->head = (struct backend){
        .operations = &operations,
        .name = options->directory ? "local" : "memory",
        .features = BACKEND_CAN_RANGE | BACKEND_CAN_SEQUENCE | BACKEND_CAN_RENAME | BACKEND_CAN_REPLACE |
                    BACKEND_CAN_SHARE | BACKEND_CAN_WATCH | BACKEND_SOLE_AUTHORITY,
        .safety = BACKEND_SINGLE,
    };
    l->space = lockspace_new(&local_listener, l, options->seed);
    l->sync_always = options->directory && options->sync_always;
    if (options->directory) {
        r = local_store_open(options, l->space, &l->store, error, error_size);
    }
    if (r < 0) {
        local_free(&l->head);
        return r;
    }
    *ret_backend = &l->head;
    return 0;
}

int local_lock_descriptor(const struct backend *backend)
{
    const struct local *l = (const struct local *)backend;
    return l->store ? local_store_lock_descriptor(l->store) : -1;
}
