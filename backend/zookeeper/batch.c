/* batch: requests sent together, repeated when the connection was lost.
 *
 * The library answers each request once, with ZCONNECTIONLOSS if its outcome is unknown.  After such an answer the flow
 * waits until the session is ready again and begins again, so each flow must find out what an earlier try has done.
 * When its time is up `failed` is called, and later answers are ignored.
 */
#include <string.h>

#include "backend/log.h"
#include "backend/zookeeper/private.h"

#define BATCH_QUOTA_EXCEEDED (-125) /* ZQUOTAEXCEEDED, which 3.8's header does not have */
#define BATCH_COMPLAIN_EVERY 1000   /* ms between logged errors */

static void batch_reply_free(gpointer data)
{
    struct zk_reply *reply = data;
    g_free(reply->name);
    g_strfreev(reply->children);
    g_clear_pointer(&reply->data, g_bytes_unref);
    g_free(reply);
}

static void batch_free(struct zk_batch *batch)
{
    g_ptr_array_unref(batch->replies);
    g_ptr_array_unref(batch->before);
    if (batch->flow->clear) {
        batch->flow->clear(batch);
    }
    g_free(batch->path);
    g_clear_pointer(&batch->draft, node_free);
    g_free(batch);
}

static void batch_begin(struct zk_batch *batch)
{
    ev_timer_stop(batch->z->remote.loop, &batch->soon);
    batch->parked = batch->flow->urgent ? !batch->z->connected : !batch->z->ready;
    if (!batch->parked) {
        batch->flow->begin(batch);
    }
}

/* Calls `next` from the loop, as if an answer had come. */
static void batch_continue_soon(struct zk_batch *batch, zk_step *next)
{
    batch->next = next;
    ev_timer_set(&batch->soon, 0, 0);
    ev_timer_start(batch->z->remote.loop, &batch->soon);
}

/* Lets another flow write to the node. */
static void batch_end_writing(struct zk_batch *batch)
{
    struct zk_batch *other;
    g_clear_pointer(&batch->writes, g_free);
    TAILQ_FOREACH(other, &batch->z->batches, link) {
        if (other->parked && batch->z->ready) {
            batch_continue_soon(other, batch_begin);
        }
    }
}

void batch_end(struct zk_batch *batch)
{
    if (!batch->ended) {
        batch->ended = true;
        TAILQ_REMOVE(&batch->z->batches, batch, link);
        ev_timer_stop(batch->z->remote.loop, &batch->limit);
        ev_timer_stop(batch->z->remote.loop, &batch->soon);
        if (batch->writes) {
            batch_end_writing(batch);
        }
    }
    if (batch->open == 0 && !batch->sending) {
        batch_free(batch);
    }
}

/* All requests of the step are answered. */
static void batch_continue(struct zk_batch *batch)
{
    if (batch->ended) {
        batch_free(batch);
    } else if (batch->lost) {
        batch->was_sent = true;
        batch_begin(batch);
    } else {
        batch->next(batch);
    }
}

/* A batch that is parked behind another flow of this mount tells nothing about the servers. */
static void batch_note_silence(const struct zk_batch *batch)
{
    struct zookeeper *z = batch->z;
    bool waits = batch->open > 0 || !z->ready, long_ago = clock_now() - batch->begun >= ZOOKEEPER_TIMEOUT - 1;
    z->silent = z->silent || (waits && long_ago && z->answered < batch->begun);
}

static void batch_on_limit(struct ev_loop *loop, ev_timer *timer, int events)
{
    struct zk_batch *batch = timer->data;
    (void)loop, (void)events;
    enum remote_outcome outcome = batch->was_sent || !batch->parked ? REMOTE_UNKNOWN : REMOTE_NOT_SENT;
    batch_note_silence(batch);
    if (batch->request) {
        batch->flow->failed(batch, outcome);
        batch->request = NULL;
    }
    if (!batch->flow->persists) {
        batch_end(batch);
    }
}

static void batch_on_timer(struct ev_loop *loop, ev_timer *timer, int events)
{
    (void)loop, (void)events;
    batch_continue(timer->data);
}

void *batch_new(struct zookeeper *z, const struct zk_flow *flow, struct remote_request *request)
{
    struct zk_batch *batch = g_malloc0(flow->size);
    batch->z = z;
    batch->request = request;
    batch->flow = flow;
    batch->replies = g_ptr_array_new_with_free_func(batch_reply_free);
    batch->before = g_ptr_array_new_with_free_func(batch_reply_free);
    ev_init(&batch->limit, batch_on_limit);
    ev_init(&batch->soon, batch_on_timer);
    batch->limit.data = batch->soon.data = batch;
    TAILQ_INSERT_TAIL(&z->batches, batch, link);
    return batch;
}

void batch_start(struct zk_batch *batch, int64_t timeout)
{
    int64_t otherwise = batch->z->silent ? REMOTE_TIMEOUT_AWAY : ZOOKEEPER_TIMEOUT;
    batch->begun = clock_now();
    ev_timer_set(&batch->limit, (double)(timeout ? timeout : otherwise) / 1000, 0);
    ev_timer_start(batch->z->remote.loop, &batch->limit);
    batch_begin(batch);
}

void batch_resume_all(struct zookeeper *z)
{
    for (struct zk_batch *batch = TAILQ_FIRST(&z->batches), *next; batch && z->ready; batch = next) {
        next = TAILQ_NEXT(batch, link);
        if (batch->parked) {
            batch_begin(batch);
        }
    }
}

void batch_end_all(struct zookeeper *z)
{
    while (!TAILQ_EMPTY(&z->batches)) {
        batch_end(TAILQ_FIRST(&z->batches));
    }
}

/* --- answers --- */

static bool batch_is_lost(int rc)
{
    return rc == ZCONNECTIONLOSS || rc == ZOPERATIONTIMEOUT || rc == ZSESSIONEXPIRED || rc == ZCLOSING ||
           rc == ZINVALIDSTATE || rc == ZSESSIONMOVED;
}

static void batch_note_reply(const struct zk_reply *constant, int rc, const struct Stat *stat)
{
    struct zk_reply *reply = (struct zk_reply *)constant;
    struct zk_batch *batch = reply->batch;
    reply->rc = rc;
    if (stat) {
        reply->stat = *stat;
    }
    batch->lost = batch->lost || batch_is_lost(rc);
    if (!batch_is_lost(rc)) {
        batch->z->answered = clock_now();
        batch->z->silent = false;
    }
    if (--batch->open == 0) {
        batch_continue(batch);
    }
}

static void batch_on_void(int rc, const void *reply)
{
    batch_note_reply(reply, rc, NULL);
}

static void batch_on_stat(int rc, const struct Stat *stat, const void *reply)
{
    batch_note_reply(reply, rc, rc == ZOK ? stat : NULL);
}

static void batch_on_data(int rc, const char *value, int length, const struct Stat *stat, const void *data)
{
    struct zk_reply *reply = (struct zk_reply *)data;
    if (rc == ZOK) {
        reply->data = g_bytes_new(value, length > 0 ? (gsize)length : 0);
    }
    batch_note_reply(reply, rc, rc == ZOK ? stat : NULL);
}

static void batch_on_children(int rc, const struct String_vector *strings, const struct Stat *stat, const void *data)
{
    struct zk_reply *reply = (struct zk_reply *)data;
    if (rc == ZOK) {
        reply->children = g_new0(char *, (gsize)strings->count + 1);
        for (int i = 0; i < strings->count; i++) {
            reply->children[i] = g_strdup(strings->data[i]);
        }
    }
    batch_note_reply(reply, rc, rc == ZOK ? stat : NULL);
}

static void batch_on_created(int rc, const char *name, const struct Stat *stat, const void *data)
{
    struct zk_reply *reply = (struct zk_reply *)data;
    reply->name = rc == ZOK ? g_strdup(name) : NULL;
    batch_note_reply(reply, rc, rc == ZOK ? stat : NULL);
}

static void batch_on_string(int rc, const char *name, const void *reply)
{
    (void)name;
    batch_note_reply(reply, rc, NULL);
}

/* --- requests --- */

static struct zk_reply *batch_add_reply(struct zk_batch *batch)
{
    struct zk_reply *reply = g_new0(struct zk_reply, 1);
    if (!batch->sending) { /* the first of this step, which still reads the answers of the one before */
        g_ptr_array_unref(batch->before);
        batch->before = batch->replies;
        batch->replies = g_ptr_array_new_with_free_func(batch_reply_free);
        batch->sending = true;
        batch->lost = false;
        batch->sent = clock_now();
    }
    reply->batch = batch;
    g_ptr_array_add(batch->replies, reply);
    batch->open++;
    batch->z->requests++;
    return reply;
}

/* The library does not answer a request that it refused. */
static void batch_note_refused(struct zk_reply *reply, int rc)
{
    if (rc != ZOK) {
        reply->rc = rc;
        reply->batch->open--;
        reply->batch->lost = reply->batch->lost || batch_is_lost(rc);
    }
}

static struct ACL_vector *batch_acl(const struct zookeeper *z)
{
    return z->digest ? &ZOO_CREATOR_ALL_ACL : &ZOO_OPEN_ACL_UNSAFE;
}

static const char *batch_bytes(GBytes *data, int *ret_length)
{
    gsize length = 0;
    const char *bytes = data ? g_bytes_get_data(data, &length) : NULL;
    *ret_length = (int)length;
    return bytes ? bytes : "";
}

void batch_create(struct zk_batch *batch, const char *path, GBytes *data, int mode)
{
    struct zk_reply *reply = batch_add_reply(batch);
    int length;
    const char *bytes = batch_bytes(data, &length);
    batch_note_refused(
        reply, zoo_acreate2(batch->z->handle, path, bytes, length, batch_acl(batch->z), mode, batch_on_created, reply));
}

void batch_delete(struct zk_batch *batch, const char *path, int version)
{
    struct zk_reply *reply = batch_add_reply(batch);
    batch_note_refused(reply, zoo_adelete(batch->z->handle, path, version, batch_on_void, reply));
}

void batch_set(struct zk_batch *batch, const char *path, GBytes *data, int version)
{
    struct zk_reply *reply = batch_add_reply(batch);
    int length;
    const char *bytes = batch_bytes(data, &length);
    batch_note_refused(reply, zoo_aset(batch->z->handle, path, bytes, length, version, batch_on_stat, reply));
}

void batch_get(struct zk_batch *batch, const char *path)
{
    struct zk_reply *reply = batch_add_reply(batch);
    batch_note_refused(reply, zoo_aget(batch->z->handle, path, 0, batch_on_data, reply));
}

/* The server does not watch a node that does not exist or may not be read. */
static void batch_on_watched(int rc, const char *value, int length, const struct Stat *stat, const void *data)
{
    const struct zk_reply *reply = data;
    if (rc == ZNONODE || rc == ZNOAUTH) {
        g_hash_table_remove(reply->batch->z->watches, reply->name);
    }
    batch_on_data(rc, value, length, stat, data);
}

void batch_watch(struct zk_batch *batch, const char *path, const char *id)
{
    struct zk_reply *reply = batch_add_reply(batch);
    reply->name = g_strdup(path);
    if (id) {
        node_add_watch(batch->z, path, id);
    }
    batch_note_refused(reply, zoo_aget(batch->z->handle, path, 1, batch_on_watched, reply));
}

void batch_exists(struct zk_batch *batch, const char *path)
{
    struct zk_reply *reply = batch_add_reply(batch);
    batch_note_refused(reply, zoo_aexists(batch->z->handle, path, 0, batch_on_stat, reply));
}

void batch_children(struct zk_batch *batch, const char *path, bool watch)
{
    struct zk_reply *reply = batch_add_reply(batch);
    batch_note_refused(reply, zoo_aget_children2(batch->z->handle, path, watch, batch_on_children, reply));
}

void batch_sync(struct zk_batch *batch, const char *path)
{
    struct zk_reply *reply = batch_add_reply(batch);
    batch_note_refused(reply, zoo_async(batch->z->handle, path, batch_on_string, reply));
}

/* Adds the operations that make a node with `data`. */
static void batch_add_node_ops(struct zk_reply *reply, int *count, const char *path, GBytes *data)
{
    int length;
    const char *bytes = batch_bytes(data, &length);
    zoo_create_op_init(&reply->operations[(*count)++], path, "", 0, batch_acl(reply->batch->z), ZOO_PERSISTENT,
                       reply->buffer, sizeof reply->buffer);
    zoo_set_op_init(&reply->operations[(*count)++], path, bytes, length, 0, &reply->stat);
}

static void batch_multi(struct zk_reply *reply, int count)
{
    batch_note_refused(
        reply, zoo_amulti(reply->batch->z->handle, count, reply->operations, reply->results, batch_on_void, reply));
}

void batch_replace(struct zk_batch *batch, const char *path, GBytes *data, int replace)
{
    struct zk_reply *reply = batch_add_reply(batch);
    int count = 0;
    if (replace >= 0) {
        zoo_delete_op_init(&reply->operations[count++], path, replace);
    }
    batch_add_node_ops(reply, &count, path, data);
    if (replace == 1) {
        int length;
        const char *bytes = batch_bytes(data, &length);
        zoo_set_op_init(&reply->operations[count++], path, bytes, length, 1, &reply->stat);
    }
    batch_multi(reply, count);
}

static char *batch_lock_path(const struct zk_node *node)
{
    return g_strndup(node->path, (gsize)(node->leaf - node->path - 1));
}

/* Removes the lock as well if its queue is empty, or makes it again: a container node could end while it is empty. */
void batch_end_hold(struct zk_batch *batch, const char *path, const char *lock, int64_t delay)
{
    GBytes *mark = node_encode_mark(NULL, 0, delay);
    for (int empty = 1; empty >= 0; empty--) {
        struct zk_reply *reply = batch_add_reply(batch);
        int length, count = 0;
        const char *bytes = batch_bytes(mark, &length);
        zoo_delete_op_init(&reply->operations[count++], path, -1);
        if (empty) {
            zoo_delete_op_init(&reply->operations[count++], lock, -1);
        } else {
            zoo_set_op_init(&reply->operations[count++], lock, bytes, length, -1, &reply->stat);
        }
        if (empty && delay > 0) {
            batch_add_node_ops(reply, &count, lock, mark);
        }
        batch_multi(reply, count);
    }
    g_bytes_unref(mark);
}

void batch_guard(struct zk_batch *batch, const char *path, const char *guard, GBytes *data)
{
    struct zk_reply *reply = batch_add_reply(batch);
    int length;
    const char *bytes = batch_bytes(data, &length);
    zoo_delete_op_init(&reply->operations[0], path, -1);
    zoo_create_op_init(&reply->operations[1], guard, bytes, length, batch_acl(batch->z), ZOO_EPHEMERAL, reply->buffer,
                       sizeof reply->buffer);
    batch_multi(reply, 2);
}

void batch_move(struct zk_batch *batch, const struct zk_node *from, const struct zk_node *to, GBytes *data)
{
    struct zk_reply *reply = batch_add_reply(batch);
    int length, mark_length;
    GBytes *mark = node_encode_mark(NULL, 0, 0);
    char *lock = batch_lock_path(from);
    const char *bytes = batch_bytes(data, &length), *mark_bytes = batch_bytes(mark, &mark_length);
    zoo_delete_op_init(&reply->operations[0], from->path, -1);
    zoo_set_op_init(&reply->operations[1], to->path, bytes, length, -1, &reply->stat);
    zoo_set_op_init(&reply->operations[2], lock, mark_bytes, mark_length, -1, NULL);
    batch_multi(reply, from->marked ? 3 : 2);
    g_bytes_unref(mark);
    g_free(lock);
}

void batch_mark_held(struct zk_batch *batch, struct zk_node *node)
{
    if (node->delay > 0 || node->marked) {
        node->marked = true;
        char *path = batch_lock_path(node);
        int64_t bound = node->delay > 0 ? zoo_recv_timeout(batch->z->handle) + node->ttl / 3 : 0;
        GBytes *mark = node_encode_mark(node->leaf, bound, node->delay);
        struct zk_reply *reply = batch_add_reply(batch);
        int length;
        const char *bytes = batch_bytes(mark, &length);
        zoo_check_op_init(&reply->operations[0], node->path, -1);
        zoo_set_op_init(&reply->operations[1], path, bytes, length, -1, &reply->stat);
        batch_multi(reply, 2);
        g_bytes_unref(mark);
        g_free(path);
    }
}

void batch_remove_node(struct zk_batch *batch, const struct zk_node *node, bool lost)
{
    if (node->marked) {
        char *lock = batch_lock_path(node);
        batch_end_hold(batch, node->path, lock, lost ? node->delay : 0);
        g_free(lock);
    } else {
        batch_delete(batch, node->path, -1);
    }
}

void batch_wait(struct zk_batch *batch, int64_t ms, zk_step *next)
{
    batch->next = next;
    batch->lost = false;
    ev_timer_set(&batch->soon, (double)ms / 1000, 0);
    ev_now_update(batch->z->remote.loop);
    ev_timer_start(batch->z->remote.loop, &batch->soon);
}

void batch_then(struct zk_batch *batch, zk_step *next)
{
    batch->lost = batch->sending && batch->lost;
    batch->sending = false;
    batch->next = next;
    if (batch->open == 0) { /* no request was sent */
        batch_continue_soon(batch, next);
    }
}

const struct zk_reply *batch_reply(const struct zk_batch *batch, guint index)
{
    return batch->replies->pdata[index];
}

enum backend_result batch_result(struct zk_batch *batch, int rc)
{
    switch (rc) {
    case ZOK:
        return BACKEND_OK;
    case ZNONODE:
        return BACKEND_MISSING;
    case ZNODEEXISTS:
        return BACKEND_EXISTS;
    case ZNOTEMPTY:
        return BACKEND_NOT_EMPTY;
    case ZBADARGUMENTS:
    case ZMARSHALLINGERROR:
        return BACKEND_INVALID;
    case BATCH_QUOTA_EXCEEDED:
        return BACKEND_FULL;
    default:
        if (clock_now() - batch->z->complained >= BATCH_COMPLAIN_EVERY) {
            batch->z->complained = clock_now();
            log_error("the ZooKeeper server refuses a request in %s: %s", batch->z->address, zerror(rc));
        }
        return BACKEND_UNREACHABLE;
    }
}

/* --- one write to a node at a time --- */

const struct zk_batch *batch_find_writer(const struct zookeeper *z, const char *id)
{
    const struct zk_batch *batch;
    TAILQ_FOREACH(batch, &z->batches, link) {
        if (g_strcmp0(batch->writes, id) == 0) {
            return batch;
        }
    }
    return NULL;
}

bool batch_begin_write(struct zk_batch *batch, const char *id)
{
    const struct zk_batch *writer = batch_find_writer(batch->z, id);
    if (writer) {
        batch->parked = writer != batch;
    } else {
        g_free(batch->writes);
        batch->writes = g_strdup(id);
    }
    return !batch->parked;
}

struct zk_node *batch_begin_draft(struct zk_batch *batch)
{
    g_clear_pointer(&batch->draft, node_free);
    batch->draft = node_copy(node_find(batch->z, batch->writes));
    return batch->draft;
}

void batch_send_draft(struct zk_batch *batch)
{
    struct zk_node *node = node_find(batch->z, batch->writes);
    GBytes *bytes = node_encode(batch->draft, batch->writes);
    node->unconfirmed = true;
    node->may_be_shared = node->may_be_shared || batch->draft->mode == BACKEND_SHARED;
    batch_set(batch, node->path, bytes, -1);
    g_bytes_unref(bytes);
}

enum backend_result batch_confirm_write(struct zk_batch *batch)
{
    int rc = batch_reply(batch, 0)->rc;
    struct zk_node *node = node_find(batch->z, batch->writes);
    if (rc == ZOK && node) {
        node_confirm(node, batch->draft);
    }
    return rc == ZNONODE || (rc == ZOK && !node) ? BACKEND_STALE : batch_result(batch, rc);
}

/* --- answers to remote.h --- */

void batch_finish(struct zk_batch *batch, enum backend_result result)
{
    struct remote_request *request = batch->request;
    struct remote_answer answer = {.outcome = REMOTE_ANSWERED, .result = result, .sent = batch->sent};
    answer.outcome = result == BACKEND_UNREACHABLE ? REMOTE_REFUSED : REMOTE_ANSWERED;
    answer.repeated = batch->was_sent;
    batch->request = NULL;
    if (request) {
        request->on_answer(request, &answer);
    }
    batch_end(batch);
}

static void batch_on_finish_soon(struct zk_batch *batch)
{
    batch_finish(batch, batch->result);
}

void batch_finish_soon(struct zk_batch *batch, enum backend_result result)
{
    batch->result = result;
    batch_then(batch, batch_on_finish_soon);
}
