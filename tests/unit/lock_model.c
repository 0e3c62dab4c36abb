/* lock_model: see lock_model.h. */
#include "tests/unit/lock_model.h"

#include <stdlib.h>

enum { VIEWS = MODEL_TICKETS + MODEL_LOCK_OWNERS * MODEL_CELLS };

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

static int compare_views(const void *a, const void *b)
{
    const struct model_view *x = a, *y = b;
    if (x->t.fence != y->t.fence) {
        return x->t.fence < y->t.fence ? -1 : 1;
    }
    return (x->t.part > y->t.part) - (x->t.part < y->t.part);
}

static bool same_ticket(const struct model_ticket *a, const struct model_ticket *b)
{
    return a->used && b->used && a->fence == b->fence && a->part == b->part;
}

/* The runs of equal cells, as tickets. */
static unsigned runs(const struct lock_model *m, unsigned lock, unsigned lock_owner, struct model_view *views)
{
    unsigned count = 0;
    const struct model_ticket *cells = m->cells[lock][lock_owner];
    for (unsigned i = 0; i < MODEL_CELLS; i++) {
        if (!cells[i].used) {
            continue;
        }
        if (i > 0 && same_ticket(&cells[i - 1], &cells[i])) {
            views[count - 1].t.last = i;
            continue;
        }
        views[count] = (struct model_view){.t = cells[i]};
        views[count].t.first = views[count].t.last = i;
        count++;
    }
    return count;
}

unsigned lock_model_views(const struct lock_model *m, unsigned lock, bool held, struct model_view *views)
{
    unsigned count = 0;
    for (unsigned i = 0; i < MODEL_TICKETS; i++) {
        const struct model_ticket *t = &m->tickets[i];
        if (t->used && t->lock == lock && t->held == held) {
            views[count++] = (struct model_view){.t = *t, .origin = (struct model_ticket *)t};
        }
    }
    for (unsigned lock_owner = 1; held && lock_owner < MODEL_LOCK_OWNERS; lock_owner++) {
        count += runs(m, lock, lock_owner, views + count);
    }
    qsort(views, count, sizeof(*views), compare_views);
    return count;
}

static bool kin(const struct model_ticket *a, const struct model_ticket *b)
{
    bool handle = a->handle && a->handle == b->handle && !(a->lock_owner && b->lock_owner);
    return handle || (a->lock_owner && a->lock_owner == b->lock_owner);
}

static bool conflict(const struct model_ticket *a, const struct model_ticket *b)
{
    bool apart = a->kind == BACKEND_FCNTL && b->kind == BACKEND_FCNTL && (a->last < b->first || b->last < a->first);
    return !(a->mode == BACKEND_SHARED && b->mode == BACKEND_SHARED) && !kin(a, b) && !apart;
}

static unsigned blockers(const struct lock_model *m, const struct model_ticket *t, struct model_view *found)
{
    struct model_view *held = g_new(struct model_view, VIEWS), *waiting = g_new(struct model_view, VIEWS);
    unsigned holders = lock_model_views(m, t->lock, true, held);
    unsigned waiters = lock_model_views(m, t->lock, false, waiting);
    unsigned count = 0;
    for (unsigned i = 0; i < holders; i++) {
        if (conflict(&held[i].t, t)) {
            found[count++] = held[i];
        }
    }
    for (unsigned i = 0; i < waiters && waiting[i].t.fence < t->fence; i++) {
        bool passed = false;
        for (unsigned k = 0; k < holders; k++) {
            passed |= kin(&held[k].t, t) && conflict(&held[k].t, &waiting[i].t);
        }
        if (conflict(&waiting[i].t, t) && !passed) {
            found[count++] = waiting[i];
        }
    }
    g_free(held);
    g_free(waiting);
    return count;
}

bool lock_model_blocker(const struct lock_model *m, const struct model_ticket *t, struct model_view *ret_blocker)
{
    struct model_view *found = g_new(struct model_view, VIEWS);
    unsigned count = blockers(m, t, found);
    if (count > 0 && ret_blocker) {
        *ret_blocker = found[0];
    }
    g_free(found);
    return count > 0;
}

static unsigned first_byte(const struct model_view *view)
{
    return view->t.kind == BACKEND_FCNTL ? view->t.first : 0;
}

bool lock_model_lowest(const struct lock_model *m, const struct model_ticket *t, struct model_view *ret_blocker)
{
    struct model_view *found = g_new(struct model_view, VIEWS), *lowest = found;
    unsigned count = blockers(m, t, found);
    for (unsigned i = 1; i < count && (!found[i].origin || found[i].origin->held); i++) {
        lowest = first_byte(&found[i]) < first_byte(lowest) ? &found[i] : lowest;
    }
    if (count > 0) {
        *ret_blocker = *lowest;
    }
    g_free(found);
    return count > 0;
}

static void start_term(const struct lock_model *m, struct model_ticket *t)
{
    t->deadline = m->now + t->ttl;
    t->due = t->due_after > 0 ? m->now + t->due_after : CLOCK_NEVER;
}

/* Empties cells first..last; the right one of two pieces gets a part of its own. */
static void clear_cells(struct lock_model *m, unsigned lock, uint64_t lock_owner, unsigned first, unsigned last)
{
    struct model_ticket *cells = m->cells[lock][lock_owner];
    struct model_view views[MODEL_CELLS];
    unsigned count = runs(m, lock, (unsigned)lock_owner, views);
    for (unsigned i = 0; i < count; i++) {
        const struct model_ticket *run = &views[i].t;
        if (run->first < first && run->last > last) {
            m->next_part++;
            for (unsigned c = last + 1; c <= run->last; c++) {
                cells[c].part = m->next_part;
            }
        } else if (run->first >= first && run->last <= last) {
            m->dropped++;
        }
    }
    for (unsigned c = first; c <= last; c++) {
        cells[c].used = false;
    }
}

/* What a lock owner is granted: its cells become this, and so do neighbours of the same mode. */
static void put_cells(struct lock_model *m, const struct model_ticket *t)
{
    struct model_ticket *cells = m->cells[t->lock][t->lock_owner];
    struct model_view views[MODEL_CELLS];
    unsigned first = t->first, last = t->last;
    unsigned count = runs(m, t->lock, (unsigned)t->lock_owner, views);
    for (unsigned i = 0; i < count; i++) {
        const struct model_ticket *run = &views[i].t;
        if (run->mode == t->mode && run->first <= t->last + 1 && run->last + 1 >= t->first) {
            first = MIN(first, run->first);
            last = MAX(last, run->last);
            clear_cells(m, t->lock, t->lock_owner, run->first, run->last);
        }
    }
    clear_cells(m, t->lock, t->lock_owner, t->first, t->last);
    for (unsigned c = first; c <= last; c++) {
        cells[c] = *t;
    }
}

static void end(struct lock_model *m, const struct model_view *v, enum backend_end why)
{
    g_string_append_printf(m->log, "ended %" G_GUINT64_FORMAT " %d;", v->t.fence, why);
    if (v->origin) {
        v->origin->used = false;
    } else {
        for (unsigned c = v->t.first; c <= v->t.last; c++) {
            m->cells[v->t.lock][v->t.lock_owner][c].used = false;
        }
    }
}

static void hold(struct lock_model *m, struct model_ticket *t)
{
    t->held = true;
    m->granted[t->lock] = MAX(m->granted[t->lock], t->fence);
    start_term(m, t);
    if (t->kind == BACKEND_FCNTL && t->lock_owner) {
        t->real = NULL;
        put_cells(m, t);
        t->used = false;
    }
}

static void update(struct lock_model *m, unsigned lock)
{
    struct model_view *waiting = g_new(struct model_view, VIEWS);
    bool changed = true;
    while (changed) {
        changed = false;
        unsigned count = lock_model_views(m, lock, false, waiting);
        for (unsigned i = 0; i < count && !changed; i++) {
            struct model_ticket *t = waiting[i].origin;
            if (lock_model_blocker(m, t, NULL)) {
                continue;
            }
            changed = true;
            if (t->deadline <= m->now) {
                end(m, &waiting[i], BACKEND_EXPIRED);
                continue;
            }
            if (t->fence < m->granted[lock]) {
                t->fence = m->next_fence++;
            }
            hold(m, t);
            g_string_append_printf(m->log, "granted %" G_GUINT64_FORMAT ";", t->fence);
        }
    }
    g_free(waiting);
}

/* Whether somebody in the way of `t` waits, along any number of others, for what
 * `lock_owner` holds.  `visited` are tickets; each is looked at once. */
static bool reaches(const struct lock_model *m, const struct model_ticket *t, uint64_t lock_owner, bool *visited)
{
    struct model_view *found = g_new(struct model_view, VIEWS);
    unsigned count = blockers(m, t, found);
    bool reached = false;
    for (unsigned i = 0; i < count && !reached; i++) {
        const struct model_ticket *o = &found[i].t;
        reached = o->held && o->lock_owner == lock_owner;
        for (unsigned k = 0; k < MODEL_TICKETS && !reached; k++) {
            const struct model_ticket *u = &m->tickets[k];
            bool next =
                o->held ? u->used && !u->held && o->lock_owner && u->lock_owner == o->lock_owner : found[i].origin == u;
            if (next && u->lock_owner && !visited[k]) {
                visited[k] = true;
                reached = reaches(m, u, lock_owner, visited);
            }
        }
    }
    g_free(found);
    return reached;
}

enum backend_result lock_model_acquire(struct lock_model *m, const struct model_ticket *wanted, bool wait,
                                       struct model_ticket **ret_ticket)
{
    struct model_ticket t = *wanted;
    struct model_view blocker;
    bool blocked;
    t.used = true;
    for (;;) {
        t.fence = m->next_fence;
        blocked = lock_model_blocker(m, &t, &blocker);
        if (!blocked || blocker.t.deadline > m->now) {
            break;
        }
        end(m, &blocker, BACKEND_EXPIRED);
        update(m, t.lock);
    }
    bool visited[MODEL_TICKETS] = {false};
    if (blocked && !wait) {
        return BACKEND_BUSY;
    }
    if (blocked && t.lock_owner && reaches(m, &t, t.lock_owner, visited)) {
        return BACKEND_DEADLOCK;
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
        *ret_ticket = m->tickets[slot].used ? *ret_ticket : NULL;
        update(m, t.lock);
        return BACKEND_OK;
    }
    struct model_view *held = g_new(struct model_view, VIEWS);
    unsigned holders = lock_model_views(m, t.lock, true, held);
    for (unsigned i = 0; i < holders && i < 64; i++) {
        if (conflict(&held[i].t, &t)) {
            g_string_append_printf(m->log, "wanted %" G_GUINT64_FORMAT ";", held[i].t.fence);
        }
    }
    g_free(held);
    return BACKEND_QUEUED;
}

void lock_model_release(struct lock_model *m, struct model_ticket *t)
{
    t->used = false;
    update(m, t->lock);
}

void lock_model_release_range(struct lock_model *m, unsigned lock, uint64_t lock_owner, unsigned first, unsigned last)
{
    clear_cells(m, lock, lock_owner, first, last);
    update(m, lock);
}

enum backend_result lock_model_convert(struct lock_model *m, struct model_ticket *t, const struct model_ticket *wanted)
{
    if (t->deadline <= m->now) {
        return BACKEND_STALE;
    }
    bool excluded = t->held;
    while (excluded) {
        struct model_view *held = g_new(struct model_view, VIEWS);
        unsigned holders = lock_model_views(m, t->lock, true, held);
        unsigned i = 0;
        while (i < holders && (held[i].origin == t || !conflict(&held[i].t, wanted))) {
            i++;
        }
        excluded = i < holders;
        bool expired = excluded && held[i].t.deadline <= m->now;
        if (expired) {
            end(m, &held[i], BACKEND_EXPIRED);
            update(m, t->lock);
        }
        g_free(held);
        if (excluded && !expired) {
            return BACKEND_BUSY;
        }
    }
    t->kind = wanted->kind;
    t->mode = wanted->mode;
    t->handle = wanted->handle;
    t->ttl = wanted->ttl;
    t->due_after = wanted->due_after;
    start_term(m, t);
    update(m, t->lock);
    return BACKEND_OK;
}

void lock_model_renew(struct lock_model *m, struct model_ticket *t, int64_t ttl, int64_t due_after)
{
    if (t->deadline <= m->now) {
        struct model_view view = {.t = *t, .origin = t};
        end(m, &view, BACKEND_LOST);
        update(m, t->lock);
        return;
    }
    t->ttl = ttl;
    t->due_after = due_after;
    start_term(m, t);
}

enum backend_result lock_model_revoke(struct lock_model *m, unsigned lock, uint64_t fence)
{
    struct model_view *held = g_new(struct model_view, VIEWS);
    unsigned holders = lock_model_views(m, lock, true, held);
    bool ended = false;
    for (unsigned i = 0; i < holders; i++) {
        if (!fence || held[i].t.fence == fence) {
            end(m, &held[i], fence ? BACKEND_RELEASED : BACKEND_BROKEN);
            ended = true;
        }
    }
    update(m, lock);
    g_free(held);
    return ended ? BACKEND_OK : holders > 0 ? BACKEND_STALE : BACKEND_MISSING;
}

enum backend_result lock_model_rename(struct lock_model *m, struct model_ticket *t, unsigned lock,
                                      struct model_ticket *replaced)
{
    struct model_view *held = g_new(struct model_view, VIEWS);
    enum backend_result result = t->held && t->deadline > m->now ? BACKEND_OK : BACKEND_STALE;
    bool over = false, again = result == BACKEND_OK && lock != t->lock;
    while (again) {
        unsigned holders = lock_model_views(m, lock, true, held);
        over = holders > 0 && replaced && held[0].origin == replaced && replaced->deadline > m->now;
        again = holders > over && held[over].t.deadline <= m->now;
        if (again) {
            end(m, &held[over], BACKEND_EXPIRED);
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
            end(m, &held[0], BACKEND_RELEASED);
            if (lock_model_views(m, lock, false, held) > 0) {
                g_string_append_printf(m->log, "wanted %" G_GUINT64_FORMAT ";", t->fence);
            }
            update(m, lock);
        }
        update(m, left);
    }
    g_free(held);
    return result;
}

/* The earliest event of all; false if there is none. */
static bool earliest(const struct lock_model *m, clock_ms *ret_when, struct model_view *ret_view)
{
    struct model_view *views = g_new(struct model_view, VIEWS);
    bool found = false;
    for (unsigned lock = 0; lock < MODEL_LOCKS; lock++) {
        for (int held = 0; held < 2; held++) {
            unsigned count = lock_model_views(m, lock, held, views);
            for (unsigned i = 0; i < count; i++) {
                clock_ms when = MIN(views[i].t.deadline, views[i].t.due);
                if (!found || when < *ret_when || (when == *ret_when && compare_views(&views[i], ret_view) < 0)) {
                    *ret_when = when;
                    *ret_view = views[i];
                    found = true;
                }
            }
        }
    }
    g_free(views);
    return found;
}

void lock_model_tick(struct lock_model *m)
{
    struct model_view v;
    clock_ms when;
    while (earliest(m, &when, &v) && when <= m->now) {
        if (v.t.deadline <= m->now) {
            end(m, &v, BACKEND_EXPIRED);
            update(m, v.t.lock);
            continue;
        }
        g_string_append_printf(m->log, "due %" G_GUINT64_FORMAT ";", v.t.fence);
        if (v.origin) {
            v.origin->due = CLOCK_NEVER;
        }
        for (unsigned c = v.t.first; !v.origin && c <= v.t.last; c++) {
            m->cells[v.t.lock][v.t.lock_owner][c].due = CLOCK_NEVER;
        }
    }
}

clock_ms lock_model_next(const struct lock_model *m)
{
    struct model_view v;
    clock_ms when = CLOCK_NEVER;
    return earliest(m, &when, &v) ? when : CLOCK_NEVER;
}

unsigned lock_model_waiting(const struct lock_model *m)
{
    unsigned count = 0;
    for (unsigned i = 0; i < MODEL_TICKETS; i++) {
        count += m->tickets[i].used && !m->tickets[i].held;
    }
    return count;
}
