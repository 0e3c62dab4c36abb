/* ticket: tickets of this mount, their states and times; requests. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/timerfd.h>

#include "backend/log.h"
#include "backend/remote/remote.h"

char *remote_parent(const char *name, const char **ret_leaf)
{
    const char *slash = strrchr(name, '/');
    *ret_leaf = slash ? slash + 1 : name;
    return g_strndup(name, slash ? (gsize)(slash - name) : 0);
}

bool remote_is_token(const char *token)
{
    return strlen(token) == REMOTE_TOKEN_SIZE - 1 && strspn(token, "0123456789abcdef") == REMOTE_TOKEN_SIZE - 1;
}

clock_ms remote_deadline(clock_ms sent, int64_t ttl)
{
    return sent + ttl - (ttl / 100 + 2);
}

void remote_make_token(char token[REMOTE_TOKEN_SIZE])
{
    unsigned char random[(REMOTE_TOKEN_SIZE - 1) / 2];
    while (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) {
    }
    for (size_t i = 0; i < sizeof random; i++) {
        token[2 * i] = "0123456789abcdef"[random[i] >> 4];
        token[2 * i + 1] = "0123456789abcdef"[random[i] & 15];
    }
    token[REMOTE_TOKEN_SIZE - 1] = '\0';
}

static struct remote_place *ticket_place_of(struct remote *r, const char *name, bool sequence)
{
    GHashTable *table = sequence ? r->queues : r->places;
    struct remote_place *place = g_hash_table_lookup(table, name);
    if (!place) {
        place = g_new0(struct remote_place, 1);
        place->name = g_strdup(name);
        place->sequence = sequence;
        LIST_INIT(&place->tickets);
        g_hash_table_insert(table, place->name, place);
    }
    return place;
}

static void ticket_join(struct remote *r, struct remote_ticket *t, const char *name, bool sequence)
{
    t->place = ticket_place_of(r, name, sequence);
    t->place->held += t->state == REMOTE_HELD;
    LIST_INSERT_HEAD(&t->place->tickets, t, link);
}

static void ticket_leave(struct remote *r, struct remote_ticket *t)
{
    struct remote_place *place = t->place;
    LIST_REMOVE(t, link);
    place->held -= t->state == REMOTE_HELD;
    if (LIST_EMPTY(&place->tickets)) {
        g_hash_table_remove(place->sequence ? r->queues : r->places, place->name);
        g_free(place->name);
        g_free(place);
    }
}

/* While one waits, a message may come at any time. */
static void ticket_turn_waiting(struct remote *r, struct remote_ticket *t, enum remote_state to)
{
    bool waited = remote_state_waits(t->state), waits = remote_state_waits(to);
    if (waited == waits) {
        return;
    }
    if (waits) {
        LIST_INSERT_HEAD(&r->waiters, t, waiters);
    } else {
        LIST_REMOVE(t, waiters);
    }
    r->waiting = waits ? r->waiting + 1 : r->waiting - 1;
    t->place->waiting = waits ? t->place->waiting + 1 : t->place->waiting - 1;
    r->store->waits(r, t, to);
}

struct remote_op *remote_op_new(struct remote *r, const struct remote_ticket *t)
{
    struct remote_op *op = g_new0(struct remote_op, 1);
    op->r = r;
    if (t) {
        memcpy(op->token, t->token, sizeof op->token);
    }
    LIST_INSERT_HEAD(&r->ops, op, link);
    return op;
}

void remote_op_free(struct remote_op *op)
{
    LIST_REMOVE(op, link);
    op->r->under_way -= op->in_lane;
    g_clear_pointer(&op->change.meta, g_bytes_unref);
    g_clear_pointer(&op->change.content, g_bytes_unref);
    g_clear_pointer(&op->segments, g_array_unref);
    g_free(op->name);
    g_free(op->file);
    g_free(op->replaced);
    g_free(op);
}

struct remote_op *remote_op_done(struct remote *r, const struct remote_ticket *t, backend_done *done, void *arg)
{
    struct remote_op *op = remote_op_new(r, t);
    op->done = done;
    op->arg = arg;
    return op;
}

uint64_t remote_op_send(struct remote_op *op, struct remote_ticket *t, enum remote_procedure procedure,
                        void (*answered)(struct remote_op *op, const struct remote_answer *answer), int64_t timeout)
{
    op->procedure = procedure;
    op->answered = answered;
    op->serial = ++op->r->serials;
    return op->r->store->call(op, t, timeout);
}

bool remote_is_unknown(const struct remote_answer *answer)
{
    return answer->outcome == REMOTE_UNKNOWN || (answer->outcome != REMOTE_ANSWERED && answer->repeated);
}

void remote_op_finish(struct remote_op *op, enum backend_result result)
{
    if (op->done) {
        op->done(op->arg, result);
    }
    remote_op_free(op);
}

struct remote_ticket *remote_ticket_new(struct remote *r, const char *name, const struct backend_claim *claim)
{
    struct remote_ticket *t = g_new0(struct remote_ticket, 1);
    const char *leaf;
    remote_make_token(t->token);
    t->head = (struct backend_ticket){
        .user = claim->user,
        .kind = (uint8_t)claim->kind,
        .mode = (uint8_t)claim->mode,
        .ttl = claim->ttl,
        .acquired = clock_now(),
        .deadline = CLOCK_NEVER,
    };
    t->handle = claim->handle;
    t->lock_owner = claim->kind == BACKEND_FCNTL ? claim->lock_owner : 0;
    t->start = claim->start;
    t->end = claim->end;
    t->due_after = claim->due;
    t->due = t->refresh = t->next = t->ends = CLOCK_NEVER;
    t->serial = ++r->serials;
    t->meta = claim->meta ? g_bytes_ref(claim->meta) : NULL;
    t->wait = claim->wait;
    t->head.content = claim->content ? g_bytes_ref(claim->content) : NULL;
    if (claim->sequence) {
        char *directory = remote_parent(name, &leaf);
        t->name = g_strdup(name);
        ticket_join(r, t, directory, true);
        g_free(directory);
    } else {
        ticket_join(r, t, name, false);
    }
    g_hash_table_insert(r->tickets, t->token, t);
    skiplist_insert(&r->agenda, t);
    return t;
}

void remote_ticket_free(struct remote *r, struct remote_ticket *t)
{
    if (t->asked) { /* not to be made again, after its release */
        r->store->forget(r, t->request);
        remote_op_free(t->asked);
    }
    remote_ticket_turn(r, t, REMOTE_ASKED);
    skiplist_remove(&r->agenda, t);
    if (t->in_lane) {
        skiplist_remove(&r->lane, t);
    }
    g_hash_table_remove(r->tickets, t->token);
    ticket_leave(r, t);
    g_clear_pointer(&t->meta, g_bytes_unref);
    g_clear_pointer(&t->head.content, g_bytes_unref);
    g_clear_pointer(&t->segments, g_array_unref);
    g_free(t->name);
    g_free(t->moving);
    g_free(t);
}

const char *remote_ticket_name(const struct remote_ticket *t)
{
    return t->place->sequence ? t->name : t->place->name;
}

struct remote_ticket *remote_ticket_find(struct remote *r, const char *token)
{
    return g_hash_table_lookup(r->tickets, token);
}

void remote_ticket_turn(struct remote *r, struct remote_ticket *t, enum remote_state state)
{
    t->place->held = t->place->held + (state == REMOTE_HELD) - (t->state == REMOTE_HELD);
    ticket_turn_waiting(r, t, state);
    t->state = state;
    t->head.held = state == REMOTE_HELD;
}

void remote_ticket_rename(struct remote *r, struct remote_ticket *t, const char *name)
{
    ticket_leave(r, t);
    ticket_join(r, t, name, false);
}

bool remote_ticket_has_moved(const struct remote_ticket *t, const char *name)
{
    return t->renaming || strcmp(t->place->name, name) != 0;
}

bool remote_ticket_may_adopt(struct remote *r, const struct remote_ticket *t, const char *token)
{
    const struct remote_ticket *was = remote_ticket_find(r, token);
    if (was == t) {
        return true;
    }
    if (!t->lock_owner || !remote_is_token(token)) {
        return false;
    }
    return !was || (was->place == t->place && was->lock_owner == t->lock_owner && was->state == REMOTE_HELD);
}

void remote_ticket_adopt(struct remote *r, struct remote_ticket *t, const char *token)
{
    struct remote_ticket *was = remote_ticket_find(r, token);
    if (was == t) {
        return;
    }
    if (was) {
        t->converting = was->converting;
        t->head.joined = true;
        t->head.content = g_steal_pointer(&was->head.content); /* the store keeps it with the token */
        t->handle = was->handle;
        remote_ticket_free(r, was);
    }
    g_hash_table_remove(r->tickets, t->token);
    memcpy(t->token, token, REMOTE_TOKEN_SIZE);
    g_hash_table_insert(r->tickets, t->token, t);
}

void remote_ticket_set_alarm(struct remote *r)
{
    const struct remote_ticket *first = skiplist_item(skiplist_first(&r->agenda));
    clock_ms next = MAX(MIN(first ? first->next : CLOCK_NEVER, r->beat), 1); /* 0 would stop it */
    struct itimerspec at = {.it_value = clock_timespec(next)};
    /* a later one is set when this one has gone off */
    if (next >= r->armed) {
        return;
    }
    if (timerfd_settime(r->alarm.fd, TFD_TIMER_ABSTIME, &at, NULL) == 0) {
        r->armed = next;
    } else {
        log_error("cannot set a timer: %s", g_strerror(errno));
    }
}

void remote_ticket_fix_term(struct remote_ticket *t)
{
    bool fixed = t->head.kind == BACKEND_LEASE && backend_parse_fixed(t->meta);
    t->ends = !fixed ? CLOCK_NEVER : t->ends == CLOCK_NEVER ? t->head.deadline : t->ends;
    t->head.deadline = MIN(t->head.deadline, t->ends);
}

void remote_ticket_start_term(struct remote_ticket *t, clock_ms now, clock_ms deadline)
{
    int64_t left = deadline - now, after = t->due_after;
    t->head.deadline = deadline;
    remote_ticket_fix_term(t);
    t->due = after > 0 ? now + (after > left / 4 * 3 ? left / 3 : after) : CLOCK_NEVER;
}

void remote_ticket_schedule(struct remote *r, struct remote_ticket *t)
{
    clock_ms next = MIN(MIN(t->due, t->refresh), t->head.deadline);
    if (next != t->next) {
        skiplist_remove(&r->agenda, t);
        t->next = next;
        skiplist_insert(&r->agenda, t);
    }
    remote_ticket_set_alarm(r);
}

void remote_ticket_segments(struct remote_ticket *t, const char *text)
{
    g_clear_pointer(&t->segments, g_array_unref);
    t->segments = *text ? g_array_new(FALSE, FALSE, sizeof(struct backend_segment)) : NULL;
    for (char *at = (char *)text, *mode; *at;) { /* sscanf(3) would look at all the rest for each number */
        struct backend_segment s = {.start = g_ascii_strtoull(at, &mode, 16)};
        s.end = g_ascii_strtoull(mode, &mode, 16);
        s.mode = g_ascii_strtoull(mode, &at, 10) ? BACKEND_SHARED : BACKEND_EXCLUSIVE;
        if (at == mode) {
            break;
        }
        g_array_append_val(t->segments, s);
    }
    if (t->segments) {
        t->head.mode = (uint8_t)backend_segments_mode(t->segments);
    }
}

bool remote_ticket_covers(const struct remote_ticket *t, uint64_t start, uint64_t end)
{
    bool whole = !t->lock_owner;
    if (start > end) {
        return false;
    }
    bool covers = whole || (t->state != REMOTE_HELD && t->start <= end && start <= t->end);
    for (guint i = 0; t->segments && i < t->segments->len && !covers; i++) {
        const struct backend_segment *s = &g_array_index(t->segments, struct backend_segment, i);
        covers = s->start <= end && start <= s->end;
    }
    return covers;
}

bool remote_ticket_cut(struct remote_ticket *t, uint64_t start, uint64_t end)
{
    if (!t->segments) {
        return start > 0 || end < BACKEND_RANGE_MAX;
    }
    GArray *left = g_array_copy(t->segments);
    backend_segments_set(left, start, end, NULL);
    g_array_unref(t->segments);
    t->segments = left;
    t->head.mode = (uint8_t)backend_segments_mode(left);
    return left->len > 0;
}

bool remote_ticket_has_kin(const struct remote_ticket *t, struct backend_identity kin)
{
    struct remote_ticket *other;
    LIST_FOREACH(other, &t->place->tickets, link) {
        if (other != t && backend_identity_matches(BACKEND_IDENTITY(other), kin)) {
            return true;
        }
    }
    return false;
}

struct remote_ticket *remote_ticket_joins(const struct remote_ticket *t)
{
    struct remote_ticket *other = t->lock_owner ? LIST_FIRST(&t->place->tickets) : NULL;
    while (other && (other == t || other->lock_owner != t->lock_owner || other->state != REMOTE_HELD)) {
        other = LIST_NEXT(other, link);
    }
    return other;
}

int64_t remote_ticket_liveness(const struct remote_ticket *t, int64_t ttl)
{
    return t->place->sequence ? ttl : MIN(ttl, REMOTE_LIVENESS);
}
