/* change: what is done to tickets. */
#include <string.h>

#include "backend/redis/private.h"

/* --- release --- */

void redis_release(struct backend *b, struct backend_ticket *ticket, backend_done *done, void *arg)
{
    struct redis *r = (struct redis *)b;
    struct redis_ticket *t = (struct redis_ticket *)ticket;

    redis_send_release(r, t, "", done, arg);
    redis_ticket_free(r, t);
}

static void on_range_released(void *arg, const struct redis_answer *answer);

static void send_release_range(struct redis_op *op, int64_t timeout)
{
    struct redis_call call = {0};

    redis_call_lock(&call, op->r, REDIS_RELEASE_RANGE, op->name, false, NULL);
    redis_call_leaf(&call, op->name, false);
    redis_call_text(&call, op->r->mount);
    redis_call_unsigned(&call, op->claim.party);
    redis_call_offset(&call, op->claim.start);
    redis_call_offset(&call, op->claim.end);
    redis_call_send(&call, timeout, on_range_released, op);
}

static bool has_party(struct redis *r, const char *name, uint64_t party)
{
    struct redis_place *place = g_hash_table_lookup(r->places, name);
    struct redis_ticket *t;

    for (t = place ? LIST_FIRST(&place->tickets) : NULL; t && t->party != party; t = LIST_NEXT(t, link)) {
    }
    return t;
}

static void on_range_released(void *arg, const struct redis_answer *answer)
{
    struct redis_op *op = arg;
    struct redis *r = op->r;
    int64_t ttl = MIN(op->ttl, REDIS_RELEASE_MAX);

    if (answer->outcome != REDIS_REPLY) {
        enum backend_result result = redis_failure(r, answer);

        if (op->done)
            op->done(op->arg, result);
        op->done = NULL;
        op->ttl = 0;
        /* what was forgotten here; unless its party has asked for more since, which may be the same to the server */
        if (ttl > 0 && !has_party(r, op->name, op->claim.party))
            send_release_range(op, ttl);
        else
            redis_op_free(op);
        return;
    }
    for (size_t i = 0; i + 1 < answer->reply->elements; i += 2) {
        struct redis_ticket *t = redis_ticket_find(r, redis_text(answer->reply, i));
        const char *left = redis_text(answer->reply, i + 1);

        if (t && (t->state != REDIS_HELD || t->party != op->claim.party || strcmp(t->place->name, op->name) != 0))
            continue; /* not one of those that were asked about */
        if (t && *left)
            redis_ticket_segments(t, left);
        else if (t)
            redis_ticket_free(r, t);
    }
    redis_op_finish(op, BACKEND_OK);
}

void redis_release_range(struct backend *b, const char *name, uint64_t party, uint64_t start, uint64_t end,
                         backend_done *done, void *arg)
{
    struct redis *r = (struct redis *)b;
    struct redis_place *place = g_hash_table_lookup(r->places, name);
    struct redis_op *op = redis_op_done(r, NULL, done, arg);
    struct redis_ticket *t, *next;

    op->name = g_strdup(name);
    op->claim = (struct backend_claim){.party = party, .start = start, .end = end};
    send_release_range(op, 0);
    for (t = place && start == 0 && end == BACKEND_RANGE_MAX ? LIST_FIRST(&place->tickets) : NULL; t; t = next) {
        next = LIST_NEXT(t, link);
        if (t->party == party && t->state == REDIS_HELD) {
            op->ttl = MAX(op->ttl, t->head.ttl);
            redis_ticket_free(r, t);
        }
    }
}

/* --- convert, set --- */

/* Its end is still to be told. */
static bool has_ended(const struct redis_ticket *t)
{
    return t->head.deadline <= clock_now();
}

static void change(struct redis_ticket *t, const struct backend_change *c)
{
    if (c->set & BACKEND_SET_META) {
        g_clear_pointer(&t->meta, g_bytes_unref);
        t->meta = c->meta ? g_bytes_ref(c->meta) : NULL;
    }
    if (c->set & BACKEND_SET_CONTENT) {
        g_clear_pointer(&t->content, g_bytes_unref);
        t->content = c->content ? g_bytes_ref(c->content) : NULL;
    }
}

static void add_change(struct redis_call *call, struct redis_op *op, const struct backend_change *c)
{
    redis_call_text(call, c->set & BACKEND_SET_META ? "1" : "0");
    redis_call_bytes(call, c->meta);
    redis_call_text(call, c->set & BACKEND_SET_CONTENT ? "1" : "0");
    redis_call_bytes(call, c->content);
    op->change.set = c->set;
    op->change.meta = c->meta ? g_bytes_ref(c->meta) : NULL;
    op->change.content = c->content ? g_bytes_ref(c->content) : NULL;
}

static void on_converted(void *arg, const struct redis_answer *answer);

static void send_convert(struct redis_op *op, struct redis_ticket *t, const struct backend_claim *claim,
                         int64_t timeout)
{
    bool by_party = claim->kind == BACKEND_FCNTL && claim->party;
    struct backend_change c = {.set =
                                   (claim->meta ? BACKEND_SET_META : 0u) | (claim->content ? BACKEND_SET_CONTENT : 0u),
                               .meta = claim->meta,
                               .content = claim->content};
    struct redis_call call = {0};

    op->claim = *claim;
    op->claim.meta = op->claim.content = NULL;
    redis_call_ticket(&call, op->r, REDIS_CONVERT, t);
    redis_call_number(&call, (int64_t)claim->kind);
    redis_call_number(&call, (int64_t)claim->mode);
    redis_call_unsigned(&call, claim->handle);
    redis_call_unsigned(&call, by_party ? claim->party : 0);
    redis_call_offset(&call, claim->start);
    redis_call_offset(&call, claim->end);
    redis_call_number(&call, claim->ttl);
    redis_call_text(&call, redis_ticket_has_kin(t, claim->handle, by_party ? claim->party : 0) ? "1" : "0");
    redis_call_number(&call, t->place->sequence ? claim->ttl : MIN(claim->ttl, REDIS_LIVENESS));
    add_change(&call, op, &c);
    redis_call_send(&call, timeout, on_converted, op);
}

/* Its user was told that nothing has changed, so the server must not think that
 * it is shared, say, while it is taken for exclusive here.  The parts that a party
 * holds cannot be told again in one. */
static void convert_back(struct redis *r, struct redis_ticket *t)
{
    int64_t left = t->head.deadline == CLOCK_NEVER ? REDIS_RELEASE_MAX : t->head.deadline - clock_now();
    struct backend_claim claim = {
        .user = t->head.user,
        .kind = (enum backend_kind)t->head.kind,
        .mode = (enum backend_mode)t->head.mode,
        .handle = t->handle,
        .party = t->party,
        .start = t->start,
        .end = t->end,
        .ttl = t->head.ttl,
        .due = t->due_after,
        .meta = t->meta,
        .content = t->content,
    };
    struct redis_op *op;

    if (left <= 0)
        return; /* it is about to end */
    if (t->party) {
        redis_ticket_end(r, t, BACKEND_LOST, true);
        return;
    }
    op = redis_op_done(r, t, NULL, NULL);
    op->back = true;
    send_convert(op, t, &claim, left);
}

static void on_converted(void *arg, const struct redis_answer *answer)
{
    struct redis_op *op = arg;
    struct redis *r = op->r;
    struct redis_ticket *t = redis_ticket_find(r, op->token);
    enum backend_result result = redis_result(r, answer);

    if (t && answer->outcome == REDIS_UNKNOWN) {
        convert_back(r, t);
    } else if (t && result != BACKEND_OK && op->back) {
        redis_ticket_end(r, t, BACKEND_LOST, true);
    } else if (t && result == BACKEND_STALE) {
        redis_ticket_doubt(r, t->place, NULL);
    } else if (t && result == BACKEND_OK) {
        t->head.user = op->claim.user;
        t->head.kind = (uint8_t)op->claim.kind;
        t->head.mode = (uint8_t)op->claim.mode;
        t->head.ttl = op->claim.ttl;
        t->handle = op->claim.handle;
        t->party = op->claim.kind == BACKEND_FCNTL ? op->claim.party : 0;
        t->start = op->claim.start;
        t->end = op->claim.end;
        t->due_after = op->claim.due;
        t->due = op->claim.due > 0 ? clock_now() + op->claim.due : CLOCK_NEVER;
        g_clear_pointer(&t->segments, g_array_unref);
        if (t->party) {
            struct redis_segment s = {.start = t->start, .end = t->end, .mode = op->claim.mode};

            t->segments = g_array_append_val(g_array_new(FALSE, FALSE, sizeof s), s);
        }
        t->head.deadline = redis_deadline(answer->sent, t->head.ttl);
        change(t, &op->change);
        redis_ticket_schedule(r, t);
    }
    redis_op_finish(op, result);
}

void redis_convert(struct backend *b, struct backend_ticket *ticket, const struct backend_claim *claim,
                   backend_done *done, void *arg)
{
    struct redis *r = (struct redis *)b;
    struct redis_ticket *t = (struct redis_ticket *)ticket;
    bool by_party = claim->kind == BACKEND_FCNTL && claim->party;

    if (has_ended(t) || (by_party && claim->start > claim->end)) {
        done(arg, has_ended(t) ? BACKEND_STALE : BACKEND_INVALID);
        return;
    }
    send_convert(redis_op_done(r, t, done, arg), t, claim, 0);
}

static void on_set(void *arg, const struct redis_answer *answer);

static void send_set(struct redis_op *op, const struct redis_ticket *t, const struct backend_change *c)
{
    struct redis_call call = {0};

    g_free(op->name);
    op->name = g_strdup(t->place->name);
    redis_call_ticket(&call, op->r, REDIS_SET, t);
    add_change(&call, op, c);
    redis_call_send(&call, 0, on_set, op);
}

static void on_set(void *arg, const struct redis_answer *answer)
{
    struct redis_op *op = arg;
    struct redis_ticket *t = redis_ticket_find(op->r, op->token);
    enum backend_result result = redis_result(op->r, answer);

    if (t && result == BACKEND_STALE && redis_ticket_has_moved(t, op->name) && !has_ended(t)) {
        struct backend_change change = op->change;

        op->change = (struct backend_change){0};
        send_set(op, t, &change);
        g_clear_pointer(&change.meta, g_bytes_unref);
        g_clear_pointer(&change.content, g_bytes_unref);
        return;
    }
    if (t && result == BACKEND_OK)
        change(t, &op->change);
    else if (t && result == BACKEND_STALE)
        redis_ticket_doubt(op->r, t->place, NULL);
    redis_op_finish(op, result);
}

void redis_set(struct backend *b, struct backend_ticket *ticket, const struct backend_change *c, backend_done *done,
               void *arg)
{
    struct redis *r = (struct redis *)b;
    struct redis_ticket *t = (struct redis_ticket *)ticket;

    if (has_ended(t))
        done(arg, BACKEND_STALE);
    else
        send_set(redis_op_done(r, t, done, arg), t, c);
}

/* --- renewing --- */

void redis_renew(struct backend *b, const struct backend_renewal *renewals, size_t count)
{
    struct redis *r = (struct redis *)b;
    clock_ms now = clock_now();

    for (size_t i = 0; i < count; i++) {
        struct redis_ticket *t = (struct redis_ticket *)renewals[i].ticket;

        t->head.ttl = renewals[i].ttl;
        t->due_after = renewals[i].due;
        t->due = renewals[i].due > 0 ? now + renewals[i].due : CLOCK_NEVER;
        if (t->head.deadline <= now) {
            t->renewing = true; /* too late: the loop tells that it is lost */
        } else if (t->state == REDIS_HELD) {
            redis_extend(r, t);
            t->head.deadline = MIN(t->head.deadline, redis_deadline(now, t->head.ttl));
        } else {
            t->head.deadline = now + t->head.ttl; /* its life in the server is another matter: see redis_refresh */
        }
        redis_ticket_schedule(r, t);
    }
}

/* --- by name --- */

static void end_as_lost(struct redis *r, const char *token)
{
    struct redis_ticket *t = token ? redis_ticket_find(r, token) : NULL;

    if (t)
        redis_ticket_end(r, t, BACKEND_LOST, true);
}

/* Where the ticket is when the outcome is unknown is not known either: another may
 * have the old name by now, or we the new one.  So both are given back. */
static void on_renamed(void *arg, const struct redis_answer *answer)
{
    struct redis_op *op = arg;
    struct redis *r = op->r;
    struct redis_ticket *t = redis_ticket_find(r, op->token);
    struct redis_ticket *replaced = op->replaced ? redis_ticket_find(r, op->replaced) : NULL;
    enum backend_result result = redis_result(r, answer);
    bool unknown = answer->outcome == REDIS_UNKNOWN ||
                   (answer->repeated && (answer->outcome == REDIS_ERROR || result == BACKEND_STALE));

    if (t)
        t->renaming = false;
    if (replaced)
        replaced->renaming = false;
    if (t && !unknown)
        g_clear_pointer(&t->moving, g_free);
    if (t && result == BACKEND_OK) {
        redis_ticket_rename(r, t, op->name);
        redis_fence(answer->reply, 1, &t->head.fence);
    }
    if (result == BACKEND_OK && replaced && strcmp(replaced->place->name, op->name) == 0)
        redis_ticket_end(r, replaced, BACKEND_RELEASED, false);
    if (unknown) {
        end_as_lost(r, op->token);
        end_as_lost(r, op->replaced);
    }
    redis_op_finish(op, result);
}

void redis_rename(struct backend *b, struct backend_ticket *ticket, const char *name, struct backend_ticket *replaced,
                  backend_done *done, void *arg)
{
    struct redis *r = (struct redis *)b;
    struct redis_ticket *t = (struct redis_ticket *)ticket;
    struct redis_ticket *over = (struct redis_ticket *)replaced;
    struct redis_call call = {0};
    struct redis_op *op;
    const char *leaf;

    if (!*name || !redis_key_allowed(r, name) || t->place->sequence) {
        done(arg, *name ? BACKEND_INVALID : BACKEND_IS_DIRECTORY);
        return;
    }
    if (has_ended(t)) {
        done(arg, BACKEND_STALE);
        return;
    }
    op = redis_op_done(r, t, done, arg);
    op->name = g_strdup(name);
    if (over) {
        op->replaced = g_strdup(over->token);
        over->renaming = true;
    }
    g_free(t->moving);
    t->moving = g_strdup(name);
    t->renaming = true;
    redis_call_lock(&call, r, REDIS_RENAME, t->place->name, false, NULL);
    redis_call_lock(&call, r, REDIS_RENAME, name, false, "i");
    redis_call_leaf(&call, t->place->name, false);
    redis_call_text(&call, t->token);
    g_free(redis_parent(name, &leaf));
    redis_call_text(&call, leaf);
    redis_call_text(&call, strchr(name, '/') ? "1" : "0");
    redis_call_text(&call, name);
    redis_call_text(&call, over ? over->token : "");
    redis_call_send(&call, 0, on_renamed, op);
}
