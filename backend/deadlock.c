/* deadlock: cycles of waits; see deadlock.h. */
#include "backend/deadlock.h"

#include <glib.h>

#define DEADLOCK_TICKETS_MAX 1000

struct deadlock {
    const struct deadlock_rules *rules;
    void *store;
    uint64_t lock_owner;
    GPtrArray *open;         /* tickets to visit, each once */
    GHashTable *tickets;     /* all that are or were in `open` */
    GHashTable *lock_owners; /* whose tickets were visited */
    unsigned budget;
    bool found;
};

bool deadlock_may_take(struct deadlock *s, unsigned tickets)
{
    s->budget -= MIN(tickets, s->budget);
    return !s->found && s->budget > 0;
}

void deadlock_add_ticket(struct deadlock *s, const void *ticket)
{
    if (g_hash_table_add(s->tickets, (gpointer)ticket)) {
        g_ptr_array_add(s->open, (gpointer)ticket);
    }
}

void deadlock_add_blocker(struct deadlock *s, const void *ticket, const uint64_t *lock_owner, bool waits)
{
    if (*lock_owner == 0) {
        return;
    }
    if (waits) { /* also if it is of the same lock owner: another thread's wait closes no cycle */
        deadlock_add_ticket(s, ticket);
    } else if (*lock_owner == s->lock_owner) {
        s->found = true;
    } else if (g_hash_table_add(s->lock_owners, (gpointer)lock_owner)) {
        /* a holder may keep its lock as long as any of its waits lasts */
        s->rules->visit_tickets(s, s->store, *lock_owner);
    }
}

bool deadlock_search(const struct deadlock_rules *rules, void *store, const void *ticket, uint64_t lock_owner)
{
    struct deadlock s = {
        .rules = rules,
        .store = store,
        .lock_owner = lock_owner,
        .open = g_ptr_array_new(),
        .tickets = g_hash_table_new(NULL, NULL),
        .lock_owners = g_hash_table_new(g_int64_hash, g_int64_equal),
        .budget = DEADLOCK_TICKETS_MAX,
    };
    deadlock_add_ticket(&s, ticket);
    for (guint i = 0; i < s.open->len && !s.found && s.budget > 0; i++) {
        rules->visit_blockers(&s, store, s.open->pdata[i]);
    }
    g_ptr_array_unref(s.open);
    g_hash_table_unref(s.tickets);
    g_hash_table_unref(s.lock_owners);
    return s.found;
}
