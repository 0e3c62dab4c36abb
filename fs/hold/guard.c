/* guard: a lock that this mount has lost, while its guard keeps it from others; see guard.h. */
#include "fs/hold/guard.h"

#include <string.h>

#include "fs/hold/handle.h"
#include "fs/hold/quota.h"
#include "fs/kernel/metrics.h"
#include "fs/kernel/tree.h"

unsigned guard_duration(const struct hold *hold)
{
    return hold->has_extra ? hold->extra->guard : 0;
}

void guard_set(struct hold *hold, unsigned milliseconds)
{
    if (milliseconds || hold->has_extra) {
        hold_extra(hold)->guard = (uint16_t)milliseconds;
    }
}

/* If the store could not end the guard, the guard ends at its deadline. */
static void guard_ended(void *arg, enum backend_result result)
{
    (void)arg, (void)result;
}

static struct guard_list *guard_bucket(struct fs *fs, const char *path)
{
    return &fs->guards[nametable_hash(&fs->tree->names, fs->tree->root, path) % GUARD_BUCKETS];
}

static void guard_free(struct fs *fs, struct guard *g)
{
    fs->observer->unguarded(fs, g);
    fs->guarded--;
    LIST_REMOVE(g, link);
    owner_unref(g->owner);
    tree_unref(fs->tree, g->node);
    g_free(g->path);
    g_free(g);
}

bool guard_is_over(const struct guard *g)
{
    return g->deadline <= clock_now();
}

/* What an open file still counts stays. */
static void guard_prune(struct fs *fs, struct guard_list *bucket)
{
    struct guard *next, *g;
    for (g = LIST_FIRST(bucket); g; g = next) {
        next = LIST_NEXT(g, link);
        if (!g->handles && guard_is_over(g)) {
            guard_free(fs, g);
        }
    }
}

struct guard *guard_new(struct fs *fs, struct hold *hold, int64_t delay)
{
    char path[TREE_PATH_MAX];
    if (!tree_path(hold->node, path, sizeof path)) {
        return NULL;
    }
    guard_prune(fs, guard_bucket(fs, path));
    /* Also prune the next bucket in turn, because perhaps no guard ever begins in it again. */
    fs->guard_pruned = (fs->guard_pruned + 1) % GUARD_BUCKETS;
    guard_prune(fs, &fs->guards[fs->guard_pruned]);
    const struct backend_ticket *ticket = hold->ticket;
    struct guard *g = g_new0(struct guard, 1);
    g->node = tree_ref(hold->node);
    g->path = g_strdup(path);
    g->fence = ticket->fence;
    g->since = hold->since;
    g->deadline = MIN(ticket->deadline, clock_now() + guard_duration(hold));
    g->owner = hold->owner ? owner_ref(hold->owner) : NULL;
    g->uid = hold->uid;
    g->account = hold->account;
    g->delay = delay;
    quota_charge_until(fs->quota, g->account, g->deadline + delay);
    g->kind = hold->sequence ? (unsigned)METRICS_TICKET : hold->kind;
    g->mode = ticket->mode;
    LIST_INSERT_HEAD(guard_bucket(fs, path), g, link);
    fs->observer->guarded(fs, g);
    fs->guarded++;
    fs->metrics->guarded[g->kind]++;
    backend_watch(fs->backend, path);
    return g;
}

/* Ends the guard before its deadline.  From now on only the lock-delay keeps the name refused. */
static void guard_end(struct fs *fs, struct guard *g)
{
    quota_end_charge(fs->quota, g->account, g->deadline + g->delay);
    g->deadline = clock_now();
    quota_charge_until(fs->quota, g->account, g->deadline + g->delay);
}

void guard_add_handle(struct fs *fs, struct guard *g, struct handle *handle)
{
    guard_remove_handle(fs, handle, true); /* of an earlier lock that this file has lost */
    handle->guard = g;
    g->handles++;
}

void guard_remove_handle(struct fs *fs, struct handle *handle, bool ends)
{
    struct guard *g = handle->guard;
    handle->guard = NULL;
    if (!g || --g->handles > 0) {
        return;
    }
    if (ends && !guard_is_over(g)) {
        backend_revoke(fs->backend, g->path, g->fence, guard_ended, NULL);
        guard_end(fs, g);
    }
    guard_free(fs, g);
}

bool guard_covers_node(struct fs *fs, const struct node *node)
{
    char path[TREE_PATH_MAX];
    const struct guard *g;
    if (!fs->guarded || !(fs->backend->features & BACKEND_CAN_WATCH) || !tree_path(node, path, sizeof path)) {
        return false; /* nobody would report its end: the store is asked for the name each time */
    }
    LIST_FOREACH(g, guard_bucket(fs, path), link) {
        if (g->node == node && !guard_is_over(g)) {
            return true;
        }
    }
    return false;
}

bool guard_covers_path(struct fs *fs, const char *path)
{
    const struct guard *g;
    LIST_FOREACH(g, guard_bucket(fs, path), link) {
        if (strcmp(g->path, path) == 0 && !guard_is_over(g)) {
            return true;
        }
    }
    return false;
}

void guard_end_path(struct fs *fs, const char *path)
{
    struct guard *g;
    LIST_FOREACH(g, guard_bucket(fs, path), link) {
        if (strcmp(g->path, path) == 0 && !guard_is_over(g)) {
            guard_end(fs, g);
        }
    }
}

unsigned guard_count(struct fs *fs)
{
    const struct guard *g;
    unsigned count = 0;
    for (size_t i = 0; i < GUARD_BUCKETS; i++) {
        guard_prune(fs, &fs->guards[i]);
        LIST_FOREACH(g, &fs->guards[i], link) {
            count += !guard_is_over(g);
        }
    }
    return count;
}

void guard_free_all(struct fs *fs)
{
    for (size_t i = 0; i < GUARD_BUCKETS; i++) {
        while (!LIST_EMPTY(&fs->guards[i])) {
            guard_free(fs, LIST_FIRST(&fs->guards[i]));
        }
    }
}
