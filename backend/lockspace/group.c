/* group: finds the tickets of a handle or lock owner without a search. */
#include "backend/lockspace/private.h"

guint lockspace_group_hash(gconstpointer group)
{
    const struct group *g = group;
    uint64_t x = g->id ^ (uint64_t)(uintptr_t)g->place ^ ((uint64_t)g->kind << 62);
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
    return (guint)(x >> 32);
}

gboolean lockspace_group_equal(gconstpointer a, gconstpointer b)
{
    const struct group *g = a, *h = b;
    return g->id == h->id && g->place == h->place && g->kind == h->kind;
}

struct group *lockspace_group(struct lockspace *space, enum group_kind kind, uint64_t id, const struct entry *place)
{
    struct group key = {.id = id, .place = place, .kind = kind};
    return g_hash_table_lookup(space->groups, &key);
}

static struct group *group_obtain(struct lockspace *space, enum group_kind kind, uint64_t id, const struct entry *place)
{
    struct group *g = lockspace_group(space, kind, id, place);
    if (!g) {
        g = g_new0(struct group, 1);
        g->id = id;
        g->place = place;
        g->kind = kind;
        g_hash_table_add(space->groups, g);
    }
    return g;
}

static void group_forget_if_empty(struct lockspace *space, struct group *g)
{
    if (g->count == 0) {
        g_hash_table_remove(space->groups, g);
    }
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

/* Sequence tickets have no kin: all that stand in their queue count. */
static bool group_has(const struct ticket *t)
{
    return lockspace_place(t)->type != ENTRY_DIRECTORY;
}

uint32_t lockspace_group_join(struct lockspace *space, struct ticket *t)
{
    uint32_t kin = 0;
    if (!group_has(t)) {
        return 0;
    }
    for (enum group_kind kind = GROUP_HANDLE; kind <= GROUP_LOCK_OWNER; kind++) {
        uint64_t id = kind == GROUP_HANDLE ? t->scope->handle : t->scope->lock_owner;
        if (id) {
            struct group *g = group_obtain(space, kind, id, lockspace_place(t));
            kin += g->count++ > 0;
            group_add(g, t);
        }
    }
    if (t->scope->lock_owner) {
        struct group *g = group_obtain(space, GROUP_WAITING, t->scope->lock_owner, NULL);
        g->count++;
        if (!t->head.held) {
            group_add(g, t);
        }
    }
    return kin;
}

uint32_t lockspace_group_leave(struct lockspace *space, struct ticket *t)
{
    uint32_t kin = 0;
    if (!group_has(t)) {
        return 0;
    }
    for (enum group_kind kind = GROUP_HANDLE; kind <= GROUP_LOCK_OWNER; kind++) {
        uint64_t id = kind == GROUP_HANDLE ? t->scope->handle : t->scope->lock_owner;
        if (id) {
            struct group *g = lockspace_group(space, kind, id, lockspace_place(t));
            kin += --g->count > 0;
            group_remove(g, t);
            group_forget_if_empty(space, g);
        }
    }
    if (t->scope->lock_owner) {
        struct group *g = lockspace_group(space, GROUP_WAITING, t->scope->lock_owner, NULL);
        g->count--;
        if (!t->head.held) {
            group_remove(g, t);
        }
        group_forget_if_empty(space, g);
    }
    return kin;
}
