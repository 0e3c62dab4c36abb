/* lock_model: see lock_model.h. */
#include "tests/unit/lock_model.h"

#include <stdlib.h>

struct lock_model *lock_model_new(void)
{
    struct lock_model *m = g_new0(struct lock_model, 1);
    m->next_fence = 1;
    m->log = g_string_new(NULL);
    return m;
}

void lock_model_free(struct lock_model *m)
{
    g_string_free(m->log, TRUE);
    g_free(m);
}

static int compare_tickets(const void *a, const void *b)
{
    const struct model_ticket *x = *(struct model_ticket *const *)a, *y = *(struct model_ticket *const *)b;
    return (x->fence > y->fence) - (x->fence < y->fence);
}

unsigned lock_model_tickets(const struct lock_model *m, unsigned lock, bool held, struct model_ticket **tickets)
{
    unsigned count = 0;
    for (unsigned i = 0; i < MODEL_TICKETS; i++) {
        const struct model_ticket *t = &m->tickets[i];
        if (t->used && t->lock == lock && t->held == held) {
            tickets[count++] = (struct model_ticket *)t;
        }
    }
    qsort(tickets, count, sizeof(struct model_ticket *), compare_tickets);
    return count;
}

void lock_model_ask(struct model_ticket *t, unsigned first, unsigned last)
{
    for (unsigned c = 0; c < MODEL_CELLS; c++) {
        t->cells[c] = c >= first && c <= last ? (signed char)t->mode : MODEL_FREE;
    }
}

static bool compatible(const struct model_ticket *a, const struct model_ticket *b)
{
    return a->lock_owner && b->lock_owner ? a->lock_owner == b->lock_owner : a->handle && a->handle == b->handle;
}

/* The first cell in which `a` excludes `b`; MODEL_CELLS: none. */
static unsigned conflict_at(const struct model_ticket *a, const struct model_ticket *b)
{
    unsigned c = compatible(a, b) ? MODEL_CELLS : 0;
    while (c < MODEL_CELLS && (a->cells[c] == MODEL_FREE || b->cells[c] == MODEL_FREE ||
                               (a->cells[c] == BACKEND_SHARED && b->cells[c] == BACKEND_SHARED))) {
        c++;
    }
    return c;
}

static bool conflict(const struct model_ticket *a, const struct model_ticket *b)
{
    return conflict_at(a, b) < MODEL_CELLS;
}

static bool has_whole(const struct model_ticket *t)
{
    bool whole = t->cells[0] != MODEL_FREE;
    for (unsigned c = 1; c < MODEL_CELLS; c++) {
        whole = whole && t->cells[c] == t->cells[0];
    }
    return whole;
}

/* Does one that waits wait for what the identity of `t` holds? */
static bool waits_for(const struct lock_model *m, const struct model_ticket *waiter, const struct model_ticket *t)
{
    struct model_ticket *held[MODEL_TICKETS];
    unsigned holders = lock_model_tickets(m, t->lock, true, held);
    bool waits = false;
    for (unsigned k = 0; k < holders; k++) {
        waits |= compatible(held[k], t) &&
                 (conflict(held[k], waiter) || (has_whole(held[k]) && !compatible(held[k], waiter)));
    }
    return waits;
}

/* The first of the cells around one that are alike. */
static unsigned first_alike(const struct model_ticket *t, unsigned c)
{
    while (t->kind == BACKEND_FCNTL && c > 0 && t->cells[c - 1] == t->cells[c]) {
        c--;
    }
    return t->kind == BACKEND_FCNTL ? c : 0;
}

/* Adds one to found[from..count], which the lowest ranges begin. */
static unsigned add_blocker(const struct model_ticket *t, struct model_ticket **found, unsigned from, unsigned count,
                            struct model_ticket *blocker)
{
    unsigned i = count;
    unsigned first = first_alike(blocker, conflict_at(blocker, t));
    for (; i > from && first < first_alike(found[i - 1], conflict_at(found[i - 1], t)); i--) {
        found[i] = found[i - 1];
    }
    found[i] = blocker;
    return count + 1;
}

static unsigned blockers(const struct lock_model *m, const struct model_ticket *t, struct model_ticket **found)
{
    struct model_ticket *held[MODEL_TICKETS], *waiting[MODEL_TICKETS];
    unsigned holders = lock_model_tickets(m, t->lock, true, held);
    unsigned waiters = lock_model_tickets(m, t->lock, false, waiting);
    unsigned count = 0;
    for (unsigned i = 0; i < holders; i++) {
        if (conflict(held[i], t)) {
            count = add_blocker(t, found, 0, count, held[i]);
        }
    }
    unsigned from = count;
    for (unsigned i = 0; i < waiters && waiting[i]->fence < t->fence; i++) {
        if (conflict(waiting[i], t) && !waits_for(m, waiting[i], t)) {
            count = add_blocker(t, found, from, count, waiting[i]);
        }
    }
    return count;
}

struct model_ticket *lock_model_blocker(const struct lock_model *m, const struct model_ticket *t)
{
    struct model_ticket *found[MODEL_TICKETS];
    return blockers(m, t, found) > 0 ? found[0] : NULL;
}

struct model_ticket *lock_model_lowest(const struct lock_model *m, const struct model_ticket *t, unsigned *ret_first,
                                       unsigned *ret_last)
{
    struct model_ticket *lowest = lock_model_blocker(m, t);
    *ret_first = lowest ? first_alike(lowest, conflict_at(lowest, t)) : 0;
    for (*ret_last = *ret_first;
         lowest && *ret_last + 1 < MODEL_CELLS && lowest->cells[*ret_last + 1] == lowest->cells[*ret_first];) {
        ++*ret_last;
    }
    return lowest;
}

static void start_term(const struct lock_model *m, struct model_ticket *t)
{
    t->deadline = m->now + t->ttl;
    t->requested = false;
    t->due = t->due_after > 0 ? m->now + t->due_after : CLOCK_NEVER;
}

static void end(struct lock_model *m, struct model_ticket *t, enum backend_end why)
{
    g_string_append_printf(m->log, "ended %" G_GUINT64_FORMAT " %d;", t->fence, why);
    t->used = false;
}

struct model_ticket *lock_model_held_by(struct lock_model *m, unsigned lock, uint64_t lock_owner)
{
    for (unsigned i = 0; i < MODEL_TICKETS && lock_owner; i++) {
        struct model_ticket *t = &m->tickets[i];
        if (t->used && t->held && !t->apart && t->lock == lock && t->kind == BACKEND_FCNTL &&
            t->lock_owner == lock_owner) {
            return t;
        }
    }
    return NULL;
}

static void set_mode(struct model_ticket *t)
{
    t->mode = BACKEND_SHARED;
    for (unsigned c = 0; c < MODEL_CELLS; c++) {
        t->mode = t->cells[c] == BACKEND_EXCLUSIVE ? BACKEND_EXCLUSIVE : t->mode;
    }
}

/* What a lock owner holds is one ticket. */
static void join(struct lock_model *m, struct model_ticket *t)
{
    struct model_ticket *held = NULL;
    if (t->kind == BACKEND_FCNTL) {
        t->apart = true;
        held = lock_model_held_by(m, t->lock, t->lock_owner);
        t->apart = false;
    }
    if (!held) {
        return;
    }
    for (unsigned c = 0; c < MODEL_CELLS; c++) {
        t->cells[c] = t->cells[c] == MODEL_FREE ? held->cells[c] : t->cells[c];
    }
    set_mode(t);
    t->fence = held->fence;
    t->handle = held->handle;
    held->used = false;
    m->absorbed++;
}

static void hold(struct lock_model *m, struct model_ticket *t)
{
    t->held = true;
    m->granted[t->lock] = MAX(m->granted[t->lock], t->fence);
    start_term(m, t);
}

/* Not before its `due` was reported and handled. */
static bool is_over(const struct lock_model *m, const struct model_ticket *t)
{
    return t->deadline <= m->now && t->due > m->now && !t->requested;
}

static void update(struct lock_model *m, unsigned lock)
{
    struct model_ticket *waiting[MODEL_TICKETS];
    bool changed = true;
    while (changed) {
        changed = false;
        unsigned count = lock_model_tickets(m, lock, false, waiting);
        for (unsigned i = 0; i < count && !changed; i++) {
            struct model_ticket *t = waiting[i];
            if (lock_model_blocker(m, t)) {
                continue;
            }
            changed = true;
            if (is_over(m, t)) {
                end(m, t, BACKEND_EXPIRED);
                continue;
            }
            if (t->fence < m->granted[lock]) {
                t->fence = m->next_fence++;
            }
            hold(m, t);
            t->apart = t->kind == BACKEND_FCNTL;
            g_string_append_printf(m->log, "granted %" G_GUINT64_FORMAT ";", t->fence);
        }
    }
}

void lock_model_claim(struct lock_model *m, struct model_ticket *t)
{
    join(m, t);
    update(m, t->lock);
}

/* Whether somebody in the way of `t` waits, along any number of others, for what
 * `lock_owner` holds.  `visited` are tickets; each is looked at once. */
static bool reaches(const struct lock_model *m, const struct model_ticket *t, uint64_t lock_owner, bool *visited)
{
    struct model_ticket *found[MODEL_TICKETS];
    unsigned count = blockers(m, t, found);
    bool reached = false;
    for (unsigned i = 0; i < count && !reached; i++) {
        const struct model_ticket *o = found[i];
        reached = o->held && o->lock_owner == lock_owner;
        for (unsigned k = 0; k < MODEL_TICKETS && !reached; k++) {
            const struct model_ticket *u = &m->tickets[k];
            bool next = o->held ? u->used && !u->held && o->lock_owner && u->lock_owner == o->lock_owner : o == u;
            if (next && u->lock_owner && !visited[k]) {
                visited[k] = true;
                reached = reaches(m, u, lock_owner, visited);
            }
        }
    }
    return reached;
}

enum backend_result lock_model_acquire(struct lock_model *m, const struct model_ticket *wanted, bool wait,
                                       struct model_ticket **ret_ticket)
{
    struct model_ticket t = *wanted;
    struct model_ticket *blocked;
    t.used = true;
    for (;;) {
        t.fence = m->next_fence;
        blocked = lock_model_blocker(m, &t);
        if (!blocked || !is_over(m, blocked)) {
            break;
        }
        end(m, blocked, BACKEND_EXPIRED);
        update(m, t.lock);
    }
    bool visited[MODEL_TICKETS] = {false};
    if (blocked && !wait) {
        return BACKEND_BUSY;
    }
    if (blocked && t.lock_owner && reaches(m, &t, t.lock_owner, visited)) {
        return BACKEND_DEADLOCK;
    }
    struct model_ticket *waiting[MODEL_TICKETS];
    unsigned waiters = lock_model_tickets(m, t.lock, false, waiting);
    for (unsigned i = 0; blocked && i < waiters; i++) {
        if (waits_for(m, waiting[i], &t) && waits_for(m, &t, waiting[i])) {
            return BACKEND_DEADLOCK;
        }
    }
    m->next_fence++;
    start_term(m, &t);
    unsigned slot = 0;
    while (m->tickets[slot].used) {
        slot++;
    }
    m->tickets[slot] = t;
    *ret_ticket = &m->tickets[slot];
    if (!blocked) {
        hold(m, *ret_ticket);
        join(m, *ret_ticket);
        update(m, t.lock);
        return BACKEND_OK;
    }
    struct model_ticket *held[MODEL_TICKETS];
    unsigned holders = lock_model_tickets(m, t.lock, true, held);
    for (unsigned i = 0; i < holders && i < 64; i++) {
        if (conflict(held[i], &t)) {
            g_string_append_printf(m->log, "wanted %" G_GUINT64_FORMAT ";", held[i]->fence);
        }
    }
    return BACKEND_QUEUED;
}

void lock_model_release(struct lock_model *m, struct model_ticket *t)
{
    t->used = false;
    update(m, t->lock);
}

enum backend_result lock_model_release_range(struct lock_model *m, struct model_ticket *t, unsigned first,
                                             unsigned last)
{
    bool left = false;
    for (unsigned c = 0; c < MODEL_CELLS; c++) {
        t->cells[c] = c >= first && c <= last ? MODEL_FREE : t->cells[c];
        left |= t->cells[c] != MODEL_FREE;
    }
    set_mode(t);
    t->used = left;
    update(m, t->lock);
    return left ? BACKEND_OK : BACKEND_MISSING;
}

enum backend_result lock_model_convert(struct lock_model *m, struct model_ticket *t, const struct model_ticket *wanted)
{
    if (is_over(m, t)) {
        return BACKEND_STALE;
    }
    bool excluded = t->held;
    while (excluded) {
        struct model_ticket claim = *wanted, *found[MODEL_TICKETS];
        claim.lock = t->lock;
        claim.fence = 0; /* waiters do not count */
        unsigned count = blockers(m, &claim, found);
        unsigned i = count > 0 && found[0] == t;
        excluded = i < count;
        bool expired = excluded && is_over(m, found[i]);
        if (expired) {
            end(m, found[i], BACKEND_EXPIRED);
            update(m, t->lock);
        }
        if (excluded && !expired) {
            return BACKEND_BUSY;
        }
    }
    t->kind = wanted->kind;
    t->mode = wanted->mode;
    t->handle = wanted->handle;
    lock_model_ask(t, 0, MODEL_CELLS - 1);
    t->ttl = wanted->ttl;
    t->due_after = wanted->due_after;
    start_term(m, t);
    update(m, t->lock);
    return BACKEND_OK;
}

void lock_model_renew(struct lock_model *m, struct model_ticket *t, int64_t ttl, int64_t due_after)
{
    if (t->held && is_over(m, t)) {
        end(m, t, BACKEND_LOST);
        update(m, t->lock);
        return;
    }
    t->ttl = ttl;
    t->due_after = due_after;
    start_term(m, t);
}

enum backend_result lock_model_revoke(struct lock_model *m, unsigned lock, uint64_t fence)
{
    struct model_ticket *held[MODEL_TICKETS];
    unsigned holders = lock_model_tickets(m, lock, true, held);
    bool ended = false;
    for (unsigned i = 0; i < holders; i++) {
        if (!fence || held[i]->fence == fence) {
            end(m, held[i], fence ? BACKEND_RELEASED : BACKEND_BROKEN);
            ended = true;
        }
    }
    update(m, lock);
    return ended ? BACKEND_OK : holders > 0 ? BACKEND_STALE : BACKEND_MISSING;
}

enum backend_result lock_model_rename(struct lock_model *m, struct model_ticket *t, unsigned lock,
                                      struct model_ticket *replaced)
{
    struct model_ticket *held[MODEL_TICKETS];
    enum backend_result result = t->held && !is_over(m, t) ? BACKEND_OK : BACKEND_STALE;
    bool over = false, again = result == BACKEND_OK && lock != t->lock;
    while (again) {
        unsigned holders = lock_model_tickets(m, lock, true, held);
        over = holders > 0 && replaced && held[0] == replaced && !is_over(m, replaced);
        again = holders > over && is_over(m, held[over]);
        if (again) {
            end(m, held[over], BACKEND_EXPIRED);
            update(m, lock);
        } else {
            result = holders > over ? BACKEND_BUSY : BACKEND_OK;
        }
    }
    if (result == BACKEND_OK && lock != t->lock) {
        unsigned left = t->lock;
        t->lock = lock;
        t->fence = m->granted[lock] = m->next_fence++;
        if (over) {
            end(m, held[0], BACKEND_RELEASED);
            if (lock_model_tickets(m, lock, false, held) > 0) {
                g_string_append_printf(m->log, "wanted %" G_GUINT64_FORMAT ";", t->fence);
            }
            update(m, lock);
        }
        update(m, left);
    }
    return result;
}

static clock_ms next_event(const struct model_ticket *t)
{
    return t->requested ? CLOCK_NEVER : MIN(t->deadline, t->due);
}

/* That with the earliest event of all, or NULL. */
static struct model_ticket *earliest(struct lock_model *m)
{
    struct model_ticket *first = NULL;
    for (unsigned i = 0; i < MODEL_TICKETS; i++) {
        struct model_ticket *t = &m->tickets[i];
        if (t->used && (!first || next_event(t) < next_event(first) ||
                        (next_event(t) == next_event(first) && t->fence < first->fence))) {
            first = t;
        }
    }
    return first;
}

void lock_model_tick(struct lock_model *m)
{
    struct model_ticket *t;
    while ((t = earliest(m)) && next_event(t) <= m->now) {
        if (is_over(m, t)) {
            end(m, t, BACKEND_EXPIRED);
            update(m, t->lock);
            continue;
        }
        t->deadline += !t->held && t->deadline <= m->now ? m->now - t->due : 0;
        g_string_append_printf(m->log, "due %" G_GUINT64_FORMAT ";", t->fence);
        t->due = CLOCK_NEVER;
        t->requested = true;
    }
}

clock_ms lock_model_next(struct lock_model *m)
{
    const struct model_ticket *t = earliest(m);
    return t ? next_event(t) : CLOCK_NEVER;
}

unsigned lock_model_waiting(const struct lock_model *m)
{
    unsigned count = 0;
    for (unsigned i = 0; i < MODEL_TICKETS; i++) {
        count += m->tickets[i].used && !m->tickets[i].held;
    }
    return count;
}
