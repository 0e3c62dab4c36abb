/* acquire: taking a lock, and waiting for it: the recipe of Curator's mutex.
 *
 * A ticket is a node behind those that were made before.  Who has made it sees all of these when it lists them (a
 * session sees no less than what its own write came after), so what it finds before itself is all that will ever
 * stand there.  One that waits watches the last of these that excludes it, and lists anew when that changes.  One that
 * does not wait is taken away again, before its caller is told who holds; it looks at the holder in the same flush, so
 * that it refuses others for no longer than it must.
 */
#include <string.h>

#include "backend/log.h"
#include "backend/zookeeper/private.h"

static struct remote_ticket *acquire_ticket(const struct zk_call *call)
{
    return remote_ticket_find(&call->z->remote, call->op->token);
}

static void acquire_answer(struct zk_call *call, struct remote_answer *answer)
{
    struct remote_op *op = call->op;
    call->op = NULL;
    answer->sent = clock_now(); /* nobody but this mount counts its term */
    answer->repeated = call->was_sent;
    op->answered(op, answer);
    call_end(call);
}

static void acquire_tell(struct zk_call *call, enum backend_result result)
{
    struct remote_answer answer = {.result = result};
    answer.outcome = result == BACKEND_UNREACHABLE ? REMOTE_REFUSED : REMOTE_ANSWERED;
    acquire_answer(call, &answer);
}

static const char *acquire_before(const struct zk_call *call, guint index)
{
    return call->children->pdata[index];
}

static void acquire_create(struct zk_call *call);
static void acquire_look(struct zk_call *call);

/* --- refused --- */

static void acquire_on_refused(struct zk_call *call)
{
    const struct zk_reply *get = call_reply(call, 0);
    struct backend_info holder = {.type = BACKEND_LOCK, .holders = 1};
    struct remote_answer answer = {.outcome = REMOTE_ANSWERED, .result = BACKEND_BUSY, .holder = &holder};
    struct zk_data data;
    g_hash_table_remove(call->z->nodes, call->op->token);
    if (get->rc == ZNONODE) { /* it has gone meanwhile */
        acquire_create(call);
        return;
    }
    node_decode(get->data, &data);
    ask_describe(call->z, &data, &get->stat, &holder);
    acquire_answer(call, &answer);
    node_data_clear(&data);
}

static void acquire_refuse(struct zk_call *call, const struct zk_node *node)
{
    char *holder = node_child(call->path, acquire_before(call, 0));
    call_get(call, holder);
    call_delete(call, node->path, -1);
    call_then(call, acquire_on_refused);
    g_free(holder);
}

/* The lock is a ticket of a queue, which is always held. */
static void acquire_busy_with_ticket(struct zk_call *call)
{
    call_get(call, call->path);
    call_then(call, acquire_on_refused);
}

/* --- queued --- */

static void acquire_on_watched(struct zk_call *call)
{
    const struct remote_ticket *t = acquire_ticket(call);
    struct zk_node *node = node_of(call->z, t->token);
    const struct zk_reply *watched = call_reply(call, 0);
    bool freed = watched->rc == ZNONODE;
    if (watched->children) {
        GPtrArray *queue = node_queue(watched->children);
        guint rank = 0;
        while (rank < queue->len && strcmp(queue->pdata[rank], node->leaf) != 0) {
            rank++;
        }
        freed = rank < call->number;
        g_ptr_array_unref(queue);
    }
    if (freed || node->again) {
        acquire_look(call);
        return;
    }
    struct remote_answer answer = {.outcome = REMOTE_ANSWERED,
                                   .result = BACKEND_QUEUED,
                                   .fence = node->fence,
                                   .leaf = t->place->sequence ? node->leaf : "",
                                   .rank = call->children->len,
                                   .wait = -1};
    GPtrArray *holders = g_ptr_array_new_with_free_func(g_free);
    struct zookeeper *z = call->z;
    struct remote_ticket *other;
    LIST_FOREACH(other, &t->place->tickets, link) {
        if (other->state == REMOTE_HELD) {
            g_ptr_array_add(holders, g_strdup(other->token));
        }
    }
    acquire_answer(call, &answer);
    for (guint i = 0; i < holders->len; i++) {
        remote_told(&z->remote, holders->pdata[i], REMOTE_WANTED, BACKEND_LOST);
    }
    g_ptr_array_unref(holders);
}

static void acquire_wait(struct zk_call *call, const struct remote_ticket *t, const char *blocker)
{
    char *path = node_child(call->path, blocker);
    if (t->place->sequence && call->number > 1) { /* any of those before may make room */
        node_note_watch(call->z, call->path, t->token);
        call_children(call, call->path, true);
    } else {
        node_note_watch(call->z, path, t->token);
        call_exists(call, path, true);
    }
    if (t->place->sequence) { /* its width may change */
        node_note_watch(call->z, call->path, t->token);
        call_exists(call, call->path, true);
    }
    call_then(call, acquire_on_watched);
    g_free(path);
}

static void acquire_blocked(struct zk_call *call, const char *blocker)
{
    const struct remote_ticket *t = acquire_ticket(call);
    if (t->wait) {
        acquire_wait(call, t, blocker);
    } else {
        acquire_refuse(call, node_of(call->z, t->token));
    }
}

/* --- granted --- */

/* The ticket with which its lock owner holds already. */
static struct remote_ticket *acquire_joins(const struct remote_ticket *t)
{
    struct remote_ticket *other = t->lock_owner ? LIST_FIRST(&t->place->tickets) : NULL;
    while (other && (other == t || other->lock_owner != t->lock_owner || other->state != REMOTE_HELD)) {
        other = LIST_NEXT(other, link);
    }
    return other;
}

/* What a lock owner holds: noted in bytes, though the lock is held as a whole. */
static GArray *acquire_segments(const struct remote_ticket *t, const struct remote_ticket *was)
{
    GArray *segments =
        was && was->segments ? g_array_copy(was->segments) : g_array_new(FALSE, FALSE, sizeof(struct backend_segment));
    enum backend_mode mode = t->head.mode;
    backend_segments_set(segments, t->start, t->end, &mode);
    return segments;
}

static void acquire_tell_granted(struct zk_call *call, const char *token)
{
    struct zookeeper *z = call->z;
    const struct remote_ticket *t = acquire_ticket(call), *was = acquire_joins(t);
    const struct zk_node *node = node_of(z, token);
    GString *text = g_string_new(NULL);
    watch_node(z, node->path, token);
    if (t->lock_owner) {
        GArray *segments = acquire_segments(t, was);
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
    acquire_answer(call, &answer);
    g_string_free(text, TRUE);
}

static void acquire_on_joined(struct zk_call *call)
{
    struct remote_ticket *was = acquire_joins(acquire_ticket(call));
    bool there = was && node_of(call->z, was->token) && call_reply(call, 0)->rc == ZOK;
    g_hash_table_remove(call->z->nodes, call->op->token);
    if (there) {
        char *token = g_strdup(was->token);
        acquire_tell_granted(call, token);
        g_free(token);
    } else {
        acquire_begin(call);
    }
}

/* Its node does for what it asks for too; `spare` is removed. */
static void acquire_join(struct zk_call *call, const struct remote_ticket *was, const struct zk_node *spare)
{
    struct zk_node *node = node_of(call->z, was->token);
    GArray *segments = acquire_segments(acquire_ticket(call), was);
    node->mode = (uint8_t)backend_segments_mode(segments);
    g_array_unref(segments);
    GBytes *bytes = node_encode(node, was->token);
    call_set(call, node->path, bytes);
    if (spare) {
        call_delete(call, spare->path, -1);
    }
    call_then(call, acquire_on_joined);
    g_bytes_unref(bytes);
}

static void acquire_on_marked(struct zk_call *call)
{
    char *token = g_strdup(call->op->token);
    acquire_tell_granted(call, token);
    g_free(token);
}

static void acquire_granted(struct zk_call *call)
{
    const struct remote_ticket *t = acquire_ticket(call), *was = acquire_joins(t);
    if (was && node_of(call->z, was->token)) {
        acquire_join(call, was, node_of(call->z, t->token));
        return;
    }
    struct zk_node *node = node_of(call->z, t->token);
    if (node->delay > 0 && node->kind != BACKEND_PROVISIONAL) {
        call_mark(call, node);
        call_then(call, acquire_on_marked);
    } else {
        acquire_on_marked(call);
    }
}

/* --- delayed: nobody holds it, but who did was lost --- */

static void acquire_on_delayed(struct zk_call *call)
{
    struct backend_info holder = {.type = BACKEND_LOCK,
                                  .kind = BACKEND_LEASE,
                                  .acquired = call->since,
                                  .deadline = (clock_ms)call->number,
                                  .end = BACKEND_RANGE_MAX};
    struct remote_answer answer = {.outcome = REMOTE_ANSWERED, .result = BACKEND_BUSY, .holder = &holder};
    g_hash_table_remove(call->z->nodes, call->op->token);
    acquire_answer(call, &answer);
}

static void acquire_delay(struct zk_call *call, const struct remote_ticket *t, struct zk_node *node, clock_ms since,
                          clock_ms until)
{
    if (t->wait) {
        struct remote_answer answer = {.outcome = REMOTE_ANSWERED,
                                       .result = BACKEND_QUEUED,
                                       .fence = node->fence,
                                       .leaf = "",
                                       .wait = MAX(until - clock_now(), 0)};
        node->delayed = until;
        acquire_answer(call, &answer);
    } else {
        call->number = (uint64_t)until;
        call->since = since;
        call_delete(call, node->path, -1);
        call_then(call, acquire_on_delayed);
    }
}

/* --- looking --- */

/* Of those before it only what is not shared stands in the way. */
static void acquire_on_modes(struct zk_call *call)
{
    const char *blocker = NULL;
    for (guint i = 0; i < call->children->len; i++) {
        const struct zk_reply *get = call_reply(call, i);
        struct zk_data data;
        node_decode(get->data, &data);
        if (get->rc != ZNONODE && (!data.ours || data.raises || data.mode == BACKEND_EXCLUSIVE)) {
            blocker = acquire_before(call, i);
        }
        node_data_clear(&data);
    }
    if (blocker) {
        acquire_blocked(call, blocker);
    } else {
        acquire_granted(call);
    }
}

/* Whether tickets of this mount do not exclude each other. */
static bool acquire_are_kin(const struct remote_ticket *a, const struct remote_ticket *b)
{
    if (a->lock_owner && b->lock_owner) {
        return a->lock_owner == b->lock_owner;
    }
    return a->handle && a->handle == b->handle;
}

static bool acquire_is_of_kin(const struct zk_call *call, const struct remote_ticket *t, const char *leaf)
{
    const struct remote_ticket *other;
    LIST_FOREACH(other, &t->place->tickets, link) {
        const struct zk_node *node = other != t && acquire_are_kin(t, other) ? node_of(call->z, other->token) : NULL;
        if (node && strcmp(node->leaf, leaf) == 0) {
            return true;
        }
    }
    return false;
}

/* The lock-delay of the directory. */
static int64_t acquire_delay_of(const struct zk_reply *directory)
{
    struct zk_data data;
    node_decode(directory->data, &data);
    node_data_clear(&data);
    return data.attributes.delay;
}

static void acquire_judge(struct zk_call *call, const struct zk_reply *list, const struct zk_reply *get,
                          const struct zk_reply *directory)
{
    const struct remote_ticket *t = acquire_ticket(call);
    struct zk_node *node = node_of(call->z, t->token);
    node->delay = t->place->sequence ? 0 : acquire_delay_of(directory);
    clock_ms until = t->place->sequence ? 0 : node_delay(call->z, get->data, &get->stat, list->children);
    GPtrArray *queue = node_queue(list->children);
    bool there = false;
    g_clear_pointer(&call->children, g_ptr_array_unref);
    call->children = g_ptr_array_new_with_free_func(g_free);
    for (guint i = 0; i < queue->len && !there; i++) {
        there = strcmp(queue->pdata[i], node->leaf) == 0;
        if (!there && !acquire_is_of_kin(call, t, queue->pdata[i])) {
            g_ptr_array_add(call->children, g_strdup(queue->pdata[i]));
        }
    }
    g_ptr_array_unref(queue);
    guint before = call->children->len;
    if (!there) { /* another client has removed it */
        g_hash_table_remove(call->z->nodes, t->token);
        acquire_create(call);
    } else if (before == 0 && until > 0) {
        acquire_delay(call, t, node, get->stat.mtime - call->z->server_time, until);
    } else if (before == 0 || (t->place->sequence && before < call->number)) {
        acquire_granted(call);
    } else if (t->head.mode == BACKEND_EXCLUSIVE) {
        acquire_blocked(call, acquire_before(call, before - 1));
    } else {
        for (guint i = 0; i < before; i++) {
            char *path = node_child(call->path, acquire_before(call, i));
            call_get(call, path);
            g_free(path);
        }
        call_then(call, acquire_on_modes);
    }
}

static void acquire_on_undone(struct zk_call *call)
{
    g_hash_table_remove(call->z->nodes, call->op->token);
    acquire_tell(call, (enum backend_result)call->max);
}

/* It was made where no ticket of its sort belongs. */
static bool acquire_is_misplaced(struct zk_call *call, const struct zk_reply *get)
{
    const struct remote_ticket *t = acquire_ticket(call);
    struct zk_data data;
    node_decode(get->data, &data);
    bool directory = data.directory || !*t->place->name;
    call->number = data.attributes.width;
    node_data_clear(&data);
    if (directory == t->place->sequence) {
        return false;
    }
    call->max = directory ? BACKEND_IS_DIRECTORY : BACKEND_NOT_DIRECTORY;
    call_delete(call, node_of(call->z, t->token)->path, -1);
    call_then(call, acquire_on_undone);
    return true;
}

static void acquire_on_looked(struct zk_call *call)
{
    const struct zk_reply *list = call_reply(call, 0), *get = call_reply(call, 1), *directory = call_reply(call, 2);
    if (list->rc != ZOK) {
        g_hash_table_remove(call->z->nodes, call->op->token);
        acquire_create(call);
    } else if (!acquire_is_misplaced(call, get)) {
        acquire_judge(call, list, get, directory);
    }
}

/* Of the directory that the lock is in. */
static void acquire_get_directory(struct zk_call *call)
{
    const char *leaf;
    char *parent = remote_parent(acquire_ticket(call)->place->name, &leaf), *path = node_path(call->z, parent);
    call_get(call, path);
    g_free(path);
    g_free(parent);
}

static void acquire_look(struct zk_call *call)
{
    struct zk_node *node = node_of(call->z, call->op->token);
    node->again = false;
    node->delayed = 0;
    call_children(call, call->path, false);
    call_get(call, call->path);
    acquire_get_directory(call);
    call_then(call, acquire_on_looked);
}

/* --- its node --- */

static void acquire_on_created(struct zk_call *call);

/* There was no node of the lock: it is made, if its directory is there, and the ticket's in it. */
static void acquire_on_parent(struct zk_call *call)
{
    const struct zk_reply *get = call_reply(call, 0), *made = call_reply(call, 1), *create = call_reply(call, 2);
    const struct remote_ticket *t = acquire_ticket(call);
    bool in_root = !strchr(t->place->name, '/');
    struct zk_data data;
    node_decode(get->data, &data);
    bool well = in_root || data.directory;
    node_data_clear(&data);
    if (well && (made->rc == ZOK || made->rc == ZNODEEXISTS)) {
        g_ptr_array_remove_range(call->replies, 0, 2);
        acquire_on_created(call);
    } else if (well) {
        acquire_tell(call, call_result(call, made->rc));
    } else {
        call->max = made->rc == ZNOCHILDRENFOREPHEMERALS || (get->rc == ZOK && get->stat.numChildren > 0)
                        ? BACKEND_NOT_DIRECTORY
                        : BACKEND_MISSING;
        if (create->rc == ZOK) {
            call_delete(call, create->name, -1);
        }
        if (made->rc == ZOK) {
            call_delete(call, call->path, 0);
        }
        call_then(call, acquire_on_undone);
    }
}

static void acquire_send_create(struct zk_call *call)
{
    const struct remote_ticket *t = acquire_ticket(call);
    char *prefix = node_prefix(call->z, t);
    struct zk_node *node = node_note(call->z, t, NULL, 0);
    GBytes *bytes = node_encode(node, t->token);
    call_create(call, prefix, bytes, ZOO_EPHEMERAL_SEQUENTIAL);
    call_children(call, call->path, false);
    call_get(call, call->path);
    acquire_get_directory(call);
    g_bytes_unref(bytes);
    node_free(node);
    g_free(prefix);
}

/* What would be removed once it is empty could not tell of a lock-delay. */
static void acquire_make_lock(struct zk_call *call, bool delays)
{
    const struct remote_ticket *t = acquire_ticket(call);
    int32_t number;
    const char *leaf = remote_leaf(t->place->name);
    if (t->place->sequence || node_number(leaf, &number)) { /* which would be a ticket of the directory */
        acquire_tell(call, t->place->sequence ? BACKEND_MISSING : BACKEND_INVALID);
    } else {
        acquire_get_directory(call);
        call_create(call, call->path, NULL, delays ? ZOO_PERSISTENT : ZOO_CONTAINER);
        acquire_send_create(call);
        call_then(call, acquire_on_parent);
    }
}

/* The servers count in 32 bits, and then go on giving the last number. */
static bool acquire_is_in_order(const char *path)
{
    int32_t number;
    return node_number(path, &number) && number < INT32_MAX;
}

static void acquire_on_created(struct zk_call *call)
{
    const struct zk_reply *create = call_reply(call, 0), *list = call_reply(call, 1), *get = call_reply(call, 2),
                          *directory = call_reply(call, 3);
    const struct remote_ticket *t = acquire_ticket(call);
    if (create->rc == ZNONODE) {
        acquire_make_lock(call, acquire_delay_of(directory) > 0);
    } else if (create->rc == ZNOCHILDRENFOREPHEMERALS) {
        acquire_busy_with_ticket(call);
    } else if (create->rc != ZOK) {
        acquire_tell(call, call_result(call, create->rc));
    } else if (!acquire_is_in_order(create->name)) {
        call->max = BACKEND_FULL;
        call_delete(call, create->name, -1);
        call_then(call, acquire_on_undone);
    } else {
        node_note(call->z, t, create->name, (uint64_t)create->stat.czxid);
        if (list->rc != ZOK) {
            acquire_look(call);
        } else if (!acquire_is_misplaced(call, get)) {
            acquire_judge(call, list, get, directory);
        }
    }
}

static void acquire_create(struct zk_call *call)
{
    acquire_send_create(call);
    call_then(call, acquire_on_created);
}

/* --- what an earlier try has made, of which the answer was lost, or its session is over --- */

static void acquire_on_removed(struct zk_call *call)
{
    call->found(call);
}

static void acquire_on_data(struct zk_call *call)
{
    for (guint i = 0, answers = call->replies->len; i < answers; i++) {
        struct zk_data data;
        node_decode(call_reply(call, i)->data, &data);
        if (strcmp(data.token, call->name) != 0) {
            g_clear_pointer(&call->children->pdata[i], g_free);
        }
        node_data_clear(&data);
    }
    for (guint i = 0; i < call->children->len; i++) {
        if (call->children->pdata[i]) {
            call_delete(call, call->children->pdata[i], -1);
        }
    }
    call_then(call, acquire_on_removed);
}

static void acquire_on_searched(struct zk_call *call)
{
    node_take_queue(&call->children, call->path, call_reply(call, 1)->children);
    for (guint i = call->children->len; i-- > 0;) {
        if (!call->flag && !node_is_of(strrchr(call->children->pdata[i], '/') + 1, call->name)) {
            g_ptr_array_remove_index(call->children, i);
        }
    }
    for (guint i = 0; i < call->children->len; i++) {
        call_get(call, call->children->pdata[i]);
    }
    call_then(call, call->children->len > 0 ? acquire_on_data : acquire_on_removed);
}

void acquire_remove(struct zk_call *call, zk_step *next)
{
    call->found = next;
    call_sync(call, call->path);
    call_children(call, call->path, false);
    call_then(call, acquire_on_searched);
}

void acquire_begin(struct zk_call *call)
{
    const struct remote_ticket *t = acquire_ticket(call), *was = acquire_joins(t);
    if (!call->path) {
        call->path = node_path(call->z, t->place->name);
    }
    const struct zk_node *held = was ? node_of(call->z, was->token) : NULL;
    if (held && (held->mode == BACKEND_EXCLUSIVE || t->head.mode == BACKEND_SHARED)) {
        acquire_join(call, was, node_of(call->z, t->token));
    } else if (node_of(call->z, t->token)) {
        acquire_look(call);
    } else if (call->was_sent) {
        acquire_remove(call, acquire_create);
    } else {
        acquire_create(call);
    }
}

/* --- the operation --- */

/* What the servers could not keep, or would take for a ticket. */
static enum backend_result acquire_check(const char *name, const struct backend_claim *claim)
{
    const char *leaf = remote_leaf(name);
    if (!*name) {
        return BACKEND_IS_DIRECTORY;
    }
    if (claim->kind == BACKEND_FCNTL && claim->start > claim->end) {
        return BACKEND_INVALID;
    }
    if (claim->sequence && (!g_str_has_suffix(leaf, "-") || strlen(leaf) + 10 > 255)) {
        return BACKEND_INVALID;
    }
    return node_is_name(name) ? BACKEND_OK : BACKEND_INVALID;
}

struct backend_ticket *zk_acquire(struct backend *b, const char *name, const struct backend_claim *claim,
                                  backend_acquired *done, void *arg)
{
    struct zookeeper *z = (struct zookeeper *)b;
    enum backend_result result = acquire_check(name, claim);
    if (result != BACKEND_OK) {
        done(arg, result, NULL, NULL);
        return NULL;
    }
    if (claim->kind == BACKEND_FCNTL && (claim->start > 0 || claim->end < BACKEND_RANGE_MAX) && !z->told_of_ranges) {
        log_notice("a lock of a range of bytes covers the whole lock on ZooKeeper");
        z->told_of_ranges = true;
    }
    remote_tell_expired(&z->remote, name);
    struct remote_ticket *t = remote_ticket_new(&z->remote, name, claim);
    remote_acquire(&z->remote, t, done, arg);
    return &t->head;
}
