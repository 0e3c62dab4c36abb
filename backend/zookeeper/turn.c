/* turn: whether it is a ticket's turn: what stands before its node, and what is told then.
 *
 * One that waits watches the last of those before it that excludes it, and looks anew when that changes.  One that does
 * not wait is taken away again, before its caller is told who holds; it looks at the holder in the same flush, so that
 * it refuses others for no longer than it must.  One whose node has gone begins anew.
 */
#include <string.h>

#include "backend/zookeeper/private.h"

struct remote_ticket *turn_ticket(const struct zk_call *call)
{
    return remote_ticket_find(&call->z->remote, call->op->token);
}

void turn_answer(struct zk_call *call, struct remote_answer *answer)
{
    struct remote_op *op = call->op;
    call->op = NULL;
    answer->sent = clock_now(); /* nobody but this mount counts its term */
    answer->repeated = call->was_sent;
    op->answered(op, answer);
    call_end(call);
}

void turn_tell(struct zk_call *call, enum backend_result result)
{
    struct remote_answer answer = {.result = result};
    answer.outcome = result == BACKEND_UNREACHABLE ? REMOTE_REFUSED : REMOTE_ANSWERED;
    turn_answer(call, &answer);
}

static const char *turn_before(const struct zk_call *call, guint index)
{
    return zk_change_of(call)->before->pdata[index];
}

/* Another client has removed its node. */
static void turn_anew(struct zk_call *call)
{
    g_hash_table_remove(call->z->nodes, call->op->token);
    call->flow->begin(call);
}

/* --- refused --- */

static void turn_tell_busy(struct zk_call *call, const struct zk_reply *get)
{
    struct backend_info holder = {.type = BACKEND_LOCK, .holders = 1};
    struct remote_answer answer = {.outcome = REMOTE_ANSWERED, .result = BACKEND_BUSY, .holder = &holder};
    struct zk_data data;
    g_hash_table_remove(call->z->nodes, call->op->token);
    node_decode(get->data, &data);
    ask_describe(call->z, &data, &get->stat, &holder);
    turn_answer(call, &answer);
    node_data_clear(&data);
}

static void turn_on_refused(struct zk_call *call)
{
    const struct zk_reply *get = call_reply(call, 0);
    if (get->rc == ZNONODE) { /* it has gone meanwhile */
        g_hash_table_remove(call->z->nodes, call->op->token);
        zk_change_of(call)->keeps_ticket = true;
        call->flow->begin(call);
    } else {
        turn_tell_busy(call, get);
    }
}

static void turn_on_taken_away(struct zk_call *call)
{
    turn_tell_busy(call, call->before->pdata[0]);
}

static void turn_on_holder(struct zk_call *call)
{
    if (call_reply(call, 0)->rc == ZNONODE) {
        turn_look(call); /* its own ticket is there, and fewer are before it */
    } else {
        call_delete(call, node_of(call->z, call->op->token)->path, -1);
        call_then(call, turn_on_taken_away);
    }
}

/* Three that do not wait could go on for ever without a lock: each finds the ticket of another, takes its own away, and
 * finds that the other's has gone.  So whoever has found that once leaves its own where it is while it looks. */
static void turn_refuse(struct zk_call *call, const struct zk_node *node)
{
    const struct zk_change *change = zk_change_of(call);
    char *holder = node_child(call->path, turn_before(call, 0));
    call_get(call, holder);
    if (!change->keeps_ticket) {
        call_delete(call, node->path, -1);
    }
    call_then(call, change->keeps_ticket ? turn_on_holder : turn_on_refused);
    g_free(holder);
}

/* The lock is a ticket of a queue, which is always held. */
void turn_busy_with_ticket(struct zk_call *call)
{
    call_get(call, call->path);
    call_then(call, turn_on_refused);
}

/* --- queued --- */

static void turn_wait(struct zk_call *call, const struct remote_ticket *t, const char *blocker);

static void turn_on_watched(struct zk_call *call)
{
    const struct zk_change *change = zk_change_of(call);
    const struct remote_ticket *t = turn_ticket(call);
    struct zk_node *node = node_of(call->z, t->token);
    const struct zk_reply *watched = call_reply(call, 0);
    bool freed = watched->rc == ZNONODE;
    if (watched->rc == ZNOAUTH && watched->name) { /* another client lets nobody read it: its end is not told either */
        turn_wait(call, t, NULL);
        return;
    }
    if (watched->children) {
        GPtrArray *queue = node_queue(watched->children);
        guint rank = 0;
        while (rank < queue->len && strcmp(queue->pdata[rank], node->leaf) != 0) {
            rank++;
        }
        freed = rank < change->width;
        g_ptr_array_unref(queue);
    }
    if (t->place->sequence) {
        struct zk_data data;
        node_decode(call_reply(call, 1)->data, &data);
        freed = freed || data.attributes.width != change->width; /* it has changed before it was watched */
        node_data_clear(&data);
    }
    if (freed || node->again) {
        turn_look(call);
        return;
    }
    struct remote_answer answer = {.outcome = REMOTE_ANSWERED,
                                   .result = BACKEND_QUEUED,
                                   .fence = node->fence,
                                   .leaf = t->place->sequence ? node->leaf : "",
                                   .rank = change->before->len,
                                   .wait = -1};
    GPtrArray *holders = g_ptr_array_new_with_free_func(g_free);
    struct zookeeper *z = call->z;
    struct remote_ticket *other;
    LIST_FOREACH(other, &t->place->tickets, link) {
        if (other->state == REMOTE_HELD) {
            g_ptr_array_add(holders, g_strdup(other->token));
        }
    }
    turn_answer(call, &answer);
    for (guint i = 0; i < holders->len; i++) {
        remote_told(&z->remote, holders->pdata[i], REMOTE_WANTED, BACKEND_LOST);
    }
    g_ptr_array_unref(holders);
}

/* For that one; NULL: any of those before it may make room. */
static void turn_wait(struct zk_call *call, const struct remote_ticket *t, const char *blocker)
{
    if (!blocker || (t->place->sequence && zk_change_of(call)->width > 1)) {
        node_note_watch(call->z, call->path, t->token);
        call_children(call, call->path, true);
    } else {
        char *path = node_child(call->path, blocker);
        call_watch(call, path, t->token);
        g_free(path);
    }
    if (t->place->sequence) { /* its width may change */
        call_watch(call, call->path, "");
    }
    call_then(call, turn_on_watched);
}

static void turn_blocked(struct zk_call *call, const char *blocker)
{
    const struct remote_ticket *t = turn_ticket(call);
    if (t->wait) {
        turn_wait(call, t, blocker);
    } else {
        turn_refuse(call, node_of(call->z, t->token));
    }
}

/* --- granted --- */

/* What a lock owner holds: noted in bytes, though the lock is held as a whole. */
static GArray *turn_segments(const struct remote_ticket *t, const struct remote_ticket *was)
{
    GArray *segments =
        was && was->segments ? g_array_copy(was->segments) : g_array_new(FALSE, FALSE, sizeof(struct backend_segment));
    enum backend_mode mode = t->head.mode;
    backend_segments_set(segments, t->start, t->end, &mode);
    return segments;
}

static void turn_tell_granted(struct zk_call *call, const char *token)
{
    struct zookeeper *z = call->z;
    const struct remote_ticket *t = turn_ticket(call), *was = remote_ticket_joins(t);
    const struct zk_node *node = node_of(z, token);
    GString *text = g_string_new(NULL);
    watch_node(z, node->path, token);
    if (t->lock_owner) {
        GArray *segments = turn_segments(t, was);
        for (guint i = 0; i < segments->len; i++) {
            const struct backend_segment *s = &g_array_index(segments, struct backend_segment, i);
            g_string_append_printf(text, "%" G_GINT64_MODIFIER "x %" G_GINT64_MODIFIER "x %u ", s->start, s->end,
                                   s->mode);
        }
        g_array_unref(segments);
    }
    struct remote_answer answer = {.outcome = REMOTE_ANSWERED,
                                   .result = BACKEND_OK,
                                   .fence = node->fence,
                                   .token = token,
                                   .segments = text->str,
                                   .leaf = t->place->sequence ? node->leaf : ""};
    turn_answer(call, &answer);
    g_string_free(text, TRUE);
}

static void turn_on_joined(struct zk_call *call)
{
    const struct remote_ticket *was = remote_ticket_joins(turn_ticket(call));
    enum backend_result result = call_written(call);
    bool there = was && node_of(call->z, was->token) && strcmp(was->token, call->writes) == 0;
    g_hash_table_remove(call->z->nodes, call->op->token);
    if (result == BACKEND_OK && there) {
        turn_tell_granted(call, call->writes);
    } else if (result == BACKEND_OK || result == BACKEND_STALE) {
        call->flow->begin(call);
    } else {
        turn_tell(call, result);
    }
}

enum backend_mode turn_joined_mode(const struct remote_ticket *t, const struct remote_ticket *was)
{
    GArray *segments = turn_segments(t, was);
    enum backend_mode mode = backend_segments_mode(segments);
    g_array_unref(segments);
    return mode;
}

/* Its node does for what it asks for too; `spare` is removed. */
void turn_join(struct zk_call *call, const struct remote_ticket *was, const struct zk_node *spare)
{
    if (!call_may_write(call, was->token)) {
        return;
    }
    struct zk_node *draft = call_draft(call);
    draft->mode = (uint8_t)turn_joined_mode(turn_ticket(call), was);
    call_write(call);
    if (spare) {
        call_delete(call, spare->path, -1);
    }
    call_then(call, turn_on_joined);
}

static void turn_on_marked(struct zk_call *call)
{
    char *token = g_strdup(call->op->token);
    turn_tell_granted(call, token);
    g_free(token);
}

static void turn_granted(struct zk_call *call)
{
    const struct remote_ticket *t = turn_ticket(call), *was = remote_ticket_joins(t);
    if (was && node_of(call->z, was->token)) {
        turn_join(call, was, node_of(call->z, t->token));
        return;
    }
    struct zk_node *node = node_of(call->z, t->token);
    if (node->delay > 0 && node->kind != BACKEND_PROVISIONAL) {
        call_mark(call, node);
        call_then(call, turn_on_marked);
    } else {
        turn_on_marked(call);
    }
}

/* --- delayed: nobody holds it, but who did was lost --- */

static void turn_on_delayed(struct zk_call *call)
{
    const struct zk_change *change = zk_change_of(call);
    struct backend_info holder = {.type = BACKEND_LOCK,
                                  .kind = BACKEND_LEASE,
                                  .acquired = change->delayed_since,
                                  .deadline = change->delayed_until,
                                  .end = BACKEND_RANGE_MAX};
    struct remote_answer answer = {.outcome = REMOTE_ANSWERED, .result = BACKEND_BUSY, .holder = &holder};
    g_hash_table_remove(call->z->nodes, call->op->token);
    turn_answer(call, &answer);
}

static void turn_delay(struct zk_call *call, const struct remote_ticket *t, struct zk_node *node, clock_ms since,
                       clock_ms until)
{
    struct zk_change *change = zk_change_of(call);
    if (t->wait) {
        struct remote_answer answer = {.outcome = REMOTE_ANSWERED,
                                       .result = BACKEND_QUEUED,
                                       .fence = node->fence,
                                       .leaf = "",
                                       .wait = MAX(until - clock_now(), 0)};
        node->delayed = until;
        turn_answer(call, &answer);
    } else {
        change->delayed_until = until;
        change->delayed_since = since;
        call_delete(call, node->path, -1);
        call_then(call, turn_on_delayed);
    }
}

/* --- looking --- */

/* Of those before it only what is not shared stands in the way. */
static void turn_on_modes(struct zk_call *call)
{
    const char *blocker = NULL;
    if (node_of(call->z, call->op->token)->mode == BACKEND_EXCLUSIVE) { /* it has been converted meanwhile */
        turn_look(call);
        return;
    }
    for (guint i = 0; i < zk_change_of(call)->before->len; i++) {
        const struct zk_reply *get = call_reply(call, i);
        struct zk_data data;
        node_decode(get->data, &data);
        if (get->rc != ZNONODE && (!data.ours || data.raises || data.mode == BACKEND_EXCLUSIVE)) {
            blocker = turn_before(call, i);
        }
        node_data_clear(&data);
    }
    if (blocker) {
        turn_blocked(call, blocker);
    } else {
        turn_granted(call);
    }
}

void turn_judge(struct zk_call *call, const struct zk_reply *list, const struct zk_reply *get,
                const struct zk_reply *directory)
{
    struct zk_change *change = zk_change_of(call);
    const struct remote_ticket *t = turn_ticket(call);
    struct zk_node *node = node_of(call->z, t->token);
    node->delay = t->place->sequence ? 0 : node_delay_of(directory->data);
    clock_ms until = t->place->sequence ? 0 : node_delay(call->z, get->data, &get->stat, list->children);
    GPtrArray *queue = node_queue(list->children);
    bool there = false;
    g_clear_pointer(&change->before, g_ptr_array_unref);
    change->before = g_ptr_array_new_with_free_func(g_free);
    for (guint i = 0; i < queue->len && !there; i++) {
        there = strcmp(queue->pdata[i], node->leaf) == 0;
        if (!there && !node_is_kin(call->z, t, queue->pdata[i])) {
            g_ptr_array_add(change->before, g_strdup(queue->pdata[i]));
        }
    }
    g_ptr_array_unref(queue);
    guint before = change->before->len;
    if (!there) { /* another client has removed it */
        turn_anew(call);
    } else if (until > 0 && (before == 0 || node->mode == BACKEND_SHARED)) {
        turn_delay(call, t, node, get->stat.mtime - call->z->server_time, until);
    } else if (before == 0 || (t->place->sequence && before < change->width)) {
        turn_granted(call);
    } else if (node->mode == BACKEND_EXCLUSIVE) {
        turn_blocked(call, turn_before(call, before - 1));
    } else {
        for (guint i = 0; i < before; i++) {
            char *path = node_child(call->path, turn_before(call, i));
            call_get(call, path);
            g_free(path);
        }
        call_then(call, turn_on_modes);
    }
}

void turn_on_undone(struct zk_call *call)
{
    g_hash_table_remove(call->z->nodes, call->op->token);
    turn_tell(call, call->result);
}

/* It was made where no ticket of its sort belongs. */
bool turn_is_misplaced(struct zk_call *call, const struct zk_reply *get)
{
    const struct remote_ticket *t = turn_ticket(call);
    struct zk_data data;
    node_decode(get->data, &data);
    bool directory = data.directory || !*t->place->name;
    zk_change_of(call)->width = data.attributes.width;
    node_data_clear(&data);
    if (directory == t->place->sequence) {
        return false;
    }
    call->result = directory ? BACKEND_IS_DIRECTORY : BACKEND_NOT_DIRECTORY;
    call_delete(call, node_of(call->z, t->token)->path, -1);
    call_then(call, turn_on_undone);
    return true;
}

static void turn_on_looked(struct zk_call *call)
{
    const struct zk_reply *list = call_reply(call, 0), *get = call_reply(call, 1), *directory = call_reply(call, 2);
    if (list->rc != ZOK) {
        turn_anew(call);
    } else if (!turn_is_misplaced(call, get)) {
        turn_judge(call, list, get, directory);
    }
}

/* Of the directory that the lock is in. */
void turn_get_directory(struct zk_call *call)
{
    const char *leaf;
    char *parent = remote_parent(turn_ticket(call)->place->name, &leaf), *path = node_path(call->z, parent);
    call_watch(call, path, "");
    g_free(path);
    g_free(parent);
}

void turn_look(struct zk_call *call)
{
    struct zk_node *node = node_of(call->z, call->op->token);
    node->again = false;
    node->delayed = 0;
    call_children(call, call->path, false);
    call_get(call, call->path);
    turn_get_directory(call);
    call_then(call, turn_on_looked);
}
