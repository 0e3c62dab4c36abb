/* group: finds the tickets of a handle or lock owner without a search. */
#include "backend/lockspace/private.h"

guint lockspace_group_hash(gconstpointer group)
{
    const struct group *g = group;
    uint64_t x = g->id ^ (uint64_t)(uintptr_t)g->lock ^ ((uint64_t)g->kind << 62);
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
    return (guint)(x >> 32);
}

gboolean lockspace_group_equal(gconstpointer a, gconstpointer b)
{
    const struct group *g = a, *h = b;
    return g->id == h->id && g->lock == h->lock && g->kind == h->kind;
}

struct group *lockspace_group(struct lockspace *space, enum group_kind kind, uint64_t id, const struct entry *lock)
{
    struct group key = {.id = id, .lock = lock, .kind = kind};
    return g_hash_table_lookup(space->groups, &key);
}

static struct group *group_obtain(struct lockspace *space, enum group_kind kind, uint64_t id, const struct entry *lock)
{
    struct group *g = lockspace_group(space, kind, id, lock);
    if (!g) {
        g = backend_new0(sizeof *g);
        g->id = id;
        g->lock = lock;
        g->kind = kind;
        g_hash_table_add(space->groups, g);
    }
    return g;
}

static void group_add(struct group *g, struct ticket *t)
{
    t->scope->next[g->kind] = g->first;
    g->first = t;
}

static void group_remove(struct group *g, struct ticket *t)
{
    struct ticket **link = &g->first;
    while (*link != t) {
        link = &(*link)->scope->next[g->kind];
    }
    *link = t->scope->next[g->kind];
}

/* Identities do not count in a queue of sequence tickets. */
static bool group_has(const struct ticket *t)
{
    return lockspace_lock_of(t)->type != ENTRY_DIRECTORY;
}

/* Counts it in a group or, if not `in`, takes it out; returns how many others there are. */
static uint32_t group_change(struct lockspace *space, struct ticket *t, enum group_kind kind, uint64_t id, bool in)
{
    const struct entry *lock = kind == GROUP_WAITING ? NULL : lockspace_lock_of(t);
    struct group *g = in ? group_obtain(space, kind, id, lock) : lockspace_group(space, kind, id, lock);
    uint32_t others = in ? g->count++ : --g->count;
    if (kind != GROUP_WAITING || !t->head.held) {
        (in ? group_add : group_remove)(g, t);
    }
    if (g->count == 0) {
        g_hash_table_remove(space->groups, g);
    }
    return others;
}

static uint32_t group_change_all(struct lockspace *space, struct ticket *t, bool in)
{
    uint64_t handle = t->scope->handle, lock_owner = t->scope->lock_owner;
    if (!group_has(t)) {
        return 0;
    }
    uint32_t same_identity = handle ? group_change(space, t, GROUP_HANDLE, handle, in) > 0 : 0;
    if (lock_owner) {
        same_identity += group_change(space, t, GROUP_LOCK_OWNER, lock_owner, in) > 0;
        group_change(space, t, GROUP_WAITING, lock_owner, in);
    }
    return same_identity;
}

uint32_t lockspace_group_join(struct lockspace *space, struct ticket *t)
{
    return group_change_all(space, t, true);
}

uint32_t lockspace_group_leave(struct lockspace *space, struct ticket *t)
{
    return group_change_all(space, t, false);
}
