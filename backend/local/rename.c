/* rename: gives a lock another name.  With sync=always it completes after the sync. */
#include <string.h>

#include "backend/local/private.h"

struct local_rename {
    LIST_ENTRY(local_rename) link;
    struct local *local;
    char *old, *name;
    uint64_t fence; /* after the rename */
    backend_done *done;
    void *arg;
};

static void rename_free(struct local_rename *rename)
{
    LIST_REMOVE(rename, link);
    g_free(rename->old);
    g_free(rename->name);
    g_free(rename);
}

void local_rename_end_all(struct local *l)
{
    while (!LIST_EMPTY(&l->renames)) {
        rename_free(LIST_FIRST(&l->renames));
    }
}

/* One record has both the lease after the rename and the end of the replaced one: a
 * crash leaves both as they were or both changed. */
static enum backend_result rename_keep(struct local *l, const struct backend_ticket *ticket, const char *name,
                                       const struct backend_ticket *replaced, uint64_t *ret_sequence)
{
    bool target = replaced && local_is_recorded(l, replaced);
    struct local_lease lease;
    local_store_describe_ticket(ticket, name, &lease);
    lease.fence = lockspace_next_fence(l->space);
    lease.replaces = ticket->fence;
    lease.target = target ? replaced->fence : 0;
    lease.flags |= target ? LOCAL_LEASE_TARGET : 0;
    enum backend_result result = local_store_put_lease(l->store, &lease);
    return result == BACKEND_OK ? local_commit(l, ret_sequence) : result;
}

/* The sync failed, so the journal may have either name.  Gives the lease its old name back, or ends it as LOST if
 * another holds that name by now. */
static void rename_undo(const struct local_rename *rename)
{
    struct local *l = rename->local;
    struct backend_info info;
    uint64_t sequence;
    clock_ms now = clock_now();
    lockspace_stat(l->space, rename->name, &info);
    bool there = info.type == BACKEND_LOCK && info.fence == rename->fence;
    if (there && lockspace_rename(l->space, now, info.ticket, rename->old, NULL) != BACKEND_OK) {
        local_lose(l, now, info.ticket);
    }
    local_commit(l, &sequence);
}

static void rename_on_synced(void *arg, enum backend_result result)
{
    struct local_rename *rename = arg;
    if (result == BACKEND_UNREACHABLE) {
        rename_undo(rename);
    }
    rename->done(rename->arg, result);
    rename_free(rename);
}

void local_rename(struct backend *b, struct backend_ticket *ticket, const char *name, struct backend_ticket *replaced,
                  backend_done *done, void *arg)
{
    struct local *l = (struct local *)b;
    clock_ms now = clock_now();
    bool kept = local_is_recorded(l, ticket);
    uint64_t sequence = 0, after = 0;
    char old[LOCAL_NAME_MAX];
    enum backend_result result = local_may_grant(l, name, kept);
    if (replaced && local_has_ended(l, replaced)) {
        replaced = NULL;
    }
    if (local_has_ended(l, ticket) || !lockspace_ticket_name(ticket, old, sizeof(old))) {
        result = BACKEND_STALE;
    }
    if (result == BACKEND_OK) {
        result = lockspace_may_rename(l->space, now, ticket, name, replaced);
    }
    if (result == BACKEND_OK && strcmp(old, name) != 0) {
        if (kept) {
            result = rename_keep(l, ticket, name, replaced, &sequence);
        }
        if (result == BACKEND_OK) {
            sequence = MAX(sequence, local_fence_sequence(l));
            result = lockspace_rename(l->space, now, ticket, name, replaced);
        }
    }
    local_commit(l, &after);
    if (result == BACKEND_OK && sequence && done) {
        struct local_rename *rename = g_new(struct local_rename, 1);
        *rename = (struct local_rename){
            .local = l, .old = g_strdup(old), .name = g_strdup(name), .fence = ticket->fence, .done = done, .arg = arg};
        LIST_INSERT_HEAD(&l->renames, rename, link);
        done = rename_on_synced;
        arg = rename;
    }
    local_complete(l, MAX(sequence, after), done, arg, result, BACKEND_UNREACHABLE);
}
