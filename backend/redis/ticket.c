/* ticket: tickets of this mount, and when each is to be seen to again.
 *
 *     ASKED ──queued──▶ WAITING ──handed over──▶ CLAIMED ──confirmed──▶ HELD
 *       └───────────────────────granted──────────────────────────────────┘
 *                          ◀──passed over, or the claim is unknown──┘
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/timerfd.h>

#include "backend/log.h"
#include "backend/redis/private.h"

static void make_token(char *token)
{
    unsigned char random[(REDIS_TOKEN_SIZE - 1) / 2];

    while (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) {
    }
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(token + 2 * i, 3, "%02x", random[i]);
}

static struct redis_place *place_of(struct redis *r, const char *name, bool sequence)
{
    GHashTable *table = sequence ? r->queues : r->places;
    struct redis_place *place = g_hash_table_lookup(table, name);

    if (!place) {
        place = g_new0(struct redis_place, 1);
        place->name = g_strdup(name);
        place->sequence = sequence;
        LIST_INIT(&place->tickets);
        g_hash_table_insert(table, place->name, place);
    }
    return place;
}

static void join(struct redis *r, struct redis_ticket *t, const char *name, bool sequence)
{
    t->place = place_of(r, name, sequence);
    t->place->held += t->state == REDIS_HELD;
    LIST_INSERT_HEAD(&t->place->tickets, t, link);
}

static void leave(struct redis *r, struct redis_ticket *t)
{
    struct redis_place *place = t->place;

    LIST_REMOVE(t, link);
    place->held -= t->state == REDIS_HELD;
    if (LIST_EMPTY(&place->tickets)) {
        g_hash_table_remove(place->sequence ? r->queues : r->places, place->name);
        g_free(place->name);
        g_free(place);
    }
}

/* While one waits, a message may come at any time. */
static void count_waiting(struct redis *r, enum redis_state from, enum redis_state to)
{
    bool waited = from == REDIS_WAITING || from == REDIS_CLAIMED, waits = to == REDIS_WAITING || to == REDIS_CLAIMED;

    if (waited == waits)
        return;
    r->waiting = waits ? r->waiting + 1 : r->waiting - 1;
    redis_conn_keep(r->conn, waits ? 1 : -1);
}

struct redis_op *redis_op_new(struct redis *r, const struct redis_ticket *t)
{
    struct redis_op *op = g_new0(struct redis_op, 1);

    op->r = r;
    if (t)
        memcpy(op->token, t->token, sizeof op->token);
    LIST_INSERT_HEAD(&r->ops, op, link);
    return op;
}

void redis_op_free(struct redis_op *op)
{
    LIST_REMOVE(op, link);
    g_clear_pointer(&op->change.meta, g_bytes_unref);
    g_clear_pointer(&op->change.content, g_bytes_unref);
    g_free(op->name);
    g_free(op->file);
    g_free(op->replaced);
    g_free(op);
}

struct redis_op *redis_op_done(struct redis *r, const struct redis_ticket *t, backend_done *done, void *arg)
{
    struct redis_op *op = redis_op_new(r, t);

    op->done = done;
    op->arg = arg;
    return op;
}

void redis_op_finish(struct redis_op *op, enum backend_result result)
{
    if (op->done)
        op->done(op->arg, result);
    redis_op_free(op);
}

struct redis_ticket *redis_ticket_new(struct redis *r, const char *name, const struct backend_claim *claim)
{
    struct redis_ticket *t = g_new0(struct redis_ticket, 1);
    const char *leaf;

    make_token(t->token);
    t->head = (struct backend_ticket){
        .user = claim->user,
        .kind = (uint8_t)claim->kind,
        .mode = (uint8_t)claim->mode,
        .ttl = claim->ttl,
        .acquired = clock_now(),
        .deadline = CLOCK_NEVER,
    };
    t->handle = claim->handle;
    t->party = claim->kind == BACKEND_FCNTL ? claim->party : 0;
    t->start = claim->start;
    t->end = claim->end;
    t->due_after = claim->due;
    t->due = t->refresh = t->next = CLOCK_NEVER;
    t->serial = ++r->serials;
    t->meta = claim->meta ? g_bytes_ref(claim->meta) : NULL;
    t->wait = claim->wait;
    t->content = claim->content ? g_bytes_ref(claim->content) : NULL;
    if (claim->sequence) {
        char *directory = redis_parent(name, &leaf);

        t->name = g_strdup(name);
        join(r, t, directory, true);
        g_free(directory);
    } else {
        join(r, t, name, false);
    }
    g_hash_table_insert(r->tickets, t->token, t);
    skiplist_insert(&r->agenda, t);
    return t;
}

void redis_ticket_free(struct redis *r, struct redis_ticket *t)
{
    if (t->asked) { /* not to be made again, after its release */
        redis_conn_forget(r->conn, t->request);
        redis_op_free(t->asked);
    }
    count_waiting(r, t->state, REDIS_HELD);
    skiplist_remove(&r->agenda, t);
    g_hash_table_remove(r->tickets, t->token);
    leave(r, t);
    g_clear_pointer(&t->meta, g_bytes_unref);
    g_clear_pointer(&t->content, g_bytes_unref);
    g_clear_pointer(&t->segments, g_array_unref);
    g_free(t->name);
    g_free(t->moving);
    g_free(t);
}

struct redis_ticket *redis_ticket_find(struct redis *r, const char *token)
{
    return g_hash_table_lookup(r->tickets, token);
}

void redis_ticket_turn(struct redis *r, struct redis_ticket *t, enum redis_state state)
{
    t->place->held = t->place->held + (state == REDIS_HELD) - (t->state == REDIS_HELD);
    count_waiting(r, t->state, state);
    t->state = state;
    t->head.held = state == REDIS_HELD;
}

void redis_ticket_rename(struct redis *r, struct redis_ticket *t, const char *name)
{
    leave(r, t);
    join(r, t, name, false);
}

bool redis_ticket_has_moved(const struct redis_ticket *t, const char *name)
{
    return t->renaming || strcmp(t->place->name, name) != 0;
}

bool redis_ticket_may_adopt(struct redis *r, const struct redis_ticket *t, const char *token)
{
    const struct redis_ticket *was = redis_ticket_find(r, token);

    if (was == t)
        return true;
    if (!t->party || !redis_is_token(token))
        return false;
    return !was || (was->place == t->place && was->party == t->party && was->state == REDIS_HELD);
}

void redis_ticket_adopt(struct redis *r, struct redis_ticket *t, const char *token)
{
    struct redis_ticket *was = redis_ticket_find(r, token);

    if (was == t)
        return;
    if (was)
        redis_ticket_free(r, was);
    g_hash_table_remove(r->tickets, t->token);
    memcpy(t->token, token, REDIS_TOKEN_SIZE);
    g_hash_table_insert(r->tickets, t->token, t);
}

void redis_ticket_set_alarm(struct redis *r)
{
    const struct redis_ticket *first = skiplist_item(skiplist_first(&r->agenda));
    clock_ms next = first ? MAX(first->next, 1) : CLOCK_NEVER; /* 0 would stop it */
    struct itimerspec at = {.it_value = {.tv_sec = next / 1000, .tv_nsec = next % 1000 * 1000000}};

    /* a later one is set when this one has gone off */
    if (next >= r->armed)
        return;
    if (timerfd_settime(r->alarm.fd, TFD_TIMER_ABSTIME, &at, NULL) == 0)
        r->armed = next;
    else
        log_error("cannot set a timer: %s", g_strerror(errno));
}

void redis_ticket_schedule(struct redis *r, struct redis_ticket *t)
{
    clock_ms next = MIN(MIN(t->due, t->refresh), t->head.deadline);

    if (next != t->next) {
        skiplist_remove(&r->agenda, t);
        t->next = next;
        skiplist_insert(&r->agenda, t);
    }
    redis_ticket_set_alarm(r);
}

void redis_ticket_segments(struct redis_ticket *t, const char *text)
{
    unsigned mode;
    int used;
    struct redis_segment s;

    g_clear_pointer(&t->segments, g_array_unref);
    if (!*text)
        return;
    t->segments = g_array_new(FALSE, FALSE, sizeof s);
    while (sscanf(text, "%" SCNx64 " %" SCNx64 " %u%n", &s.start, &s.end, &mode, &used) == 3) {
        s.mode = mode ? BACKEND_SHARED : BACKEND_EXCLUSIVE;
        g_array_append_val(t->segments, s);
        text += used;
    }
}

bool redis_ticket_has_kin(const struct redis_ticket *t, uint64_t handle, uint64_t party)
{
    struct redis_ticket *other;

    LIST_FOREACH(other, &t->place->tickets, link)
        if (other != t && ((handle && other->handle == handle) || (party && other->party == party)))
            return true;
    return false;
}

/* --- cycles of waits, as fcntl(2) EDEADLK knows them --- */

static bool excludes(uint64_t start, uint64_t end, enum backend_mode mode, const struct redis_ticket *t)
{
    return start <= t->end && t->start <= end && (mode == BACKEND_EXCLUSIVE || t->head.mode == BACKEND_EXCLUSIVE);
}

static bool holds_against(const struct redis_ticket *holder, const struct redis_ticket *t)
{
    if (holder->state != REDIS_HELD || !holder->segments)
        return false;
    for (guint i = 0; i < holder->segments->len; i++) {
        const struct redis_segment *s = &g_array_index(holder->segments, struct redis_segment, i);

        if (excludes(s->start, s->end, s->mode, t))
            return true;
    }
    return false;
}

/* Whether `t` has to wait for `other`: it holds, or stands before it and does not
 * itself wait for what t's party holds. */
static bool blocks(const struct redis_ticket *other, const struct redis_ticket *t)
{
    const struct redis_ticket *k;

    if (!other->party || other->party == t->party)
        return false;
    if (other->state != REDIS_WAITING)
        return holds_against(other, t);
    if (other->head.fence > t->head.fence || !excludes(other->start, other->end, other->head.mode, t))
        return false;
    LIST_FOREACH(k, &t->place->tickets, link)
        if (k->party == t->party && holds_against(k, other))
            return false;
    return true;
}

/* The way to be looked at: each ticket once, each party's once. */
struct search {
    GPtrArray *open;
    GHashTable *tickets, *parties;
    GHashTable *waiting; /* party -> GPtrArray of its tickets that wait; NULL until it is needed */
};

static void follow(struct search *s, struct redis_ticket *t)
{
    if (g_hash_table_add(s->tickets, t))
        g_ptr_array_add(s->open, t);
}

static GHashTable *index_waiting(struct redis *r)
{
    GHashTable *waiting = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, (GDestroyNotify)g_ptr_array_unref);
    GHashTableIter tickets;
    struct redis_ticket *t;

    g_hash_table_iter_init(&tickets, r->tickets);
    while (g_hash_table_iter_next(&tickets, NULL, (gpointer *)&t)) {
        GPtrArray *of_party;

        if (!t->party || t->state != REDIS_WAITING)
            continue;
        of_party = g_hash_table_lookup(waiting, &t->party);
        if (!of_party) {
            of_party = g_ptr_array_new();
            g_hash_table_insert(waiting, &t->party, of_party);
        }
        g_ptr_array_add(of_party, t);
    }
    return waiting;
}

/* What a party holds it may keep for as long as anything for which it waits. */
static void follow_party(struct redis *r, struct search *s, struct redis_ticket *holder)
{
    GPtrArray *of_party;

    if (!g_hash_table_add(s->parties, &holder->party))
        return;
    if (!s->waiting)
        s->waiting = index_waiting(r);
    of_party = g_hash_table_lookup(s->waiting, &holder->party);
    for (guint i = 0; of_party && i < of_party->len; i++)
        follow(s, of_party->pdata[i]);
}

/* Whether `t` waits, in the end, for what its party holds: who holds goes on only
 * when what it waits for elsewhere does, who waits when it holds.  Breadth first,
 * and no longer than users may make it: a cycle behind more is not found. */
static bool reaches_itself(struct redis *r, struct redis_ticket *t)
{
    struct search s = {
        .open = g_ptr_array_new(),
        .tickets = g_hash_table_new(NULL, NULL),
        .parties = g_hash_table_new(g_int64_hash, g_int64_equal),
    };
    unsigned budget = REDIS_SEARCH_MAX;
    bool found = false;

    follow(&s, t);
    for (guint i = 0; i < s.open->len && !found && budget > 0; i++) {
        struct redis_ticket *waiter = s.open->pdata[i], *other;

        LIST_FOREACH(other, &waiter->place->tickets, link) {
            if (--budget == 0)
                break;
            if (!blocks(other, waiter))
                continue;
            found = other->state != REDIS_WAITING && other->party == t->party;
            if (found)
                break;
            if (other->state == REDIS_WAITING)
                follow(&s, other);
            else
                follow_party(r, &s, other);
        }
    }
    g_ptr_array_unref(s.open);
    g_hash_table_unref(s.tickets);
    g_hash_table_unref(s.parties);
    g_clear_pointer(&s.waiting, g_hash_table_unref);
    return found;
}

/* Nobody waits for a party that holds nothing. */
static bool party_holds(struct redis *r, uint64_t party)
{
    GHashTableIter tickets;
    const struct redis_ticket *t;

    g_hash_table_iter_init(&tickets, r->tickets);
    while (g_hash_table_iter_next(&tickets, NULL, (gpointer *)&t))
        if (t->party == party && t->state == REDIS_HELD)
            return true;
    return false;
}

bool redis_ticket_deadlocked(struct redis *r, struct redis_ticket *t)
{
    return t->party && r->waiting > 1 && party_holds(r, t->party) && reaches_itself(r, t);
}
