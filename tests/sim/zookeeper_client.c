/* zookeeper_client: the functions of libzookeeper-st that leasefs calls, on the ensemble of zookeeper_model.h.
 *
 * It behaves like the library.  Requests are answered in order and once.  When the connection is lost, all pending ones
 * get ZCONNECTIONLOSS, after the session's event.  Answers and events come within zookeeper_process, errors also within
 * zookeeper_interest.  A watch is set when its request has been answered, reports once, and is set again on a new
 * connection.  A server that is silent for two thirds of the timeout is left.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "tests/sim/descriptor.h"
#include "tests/sim/zookeeper_model.h"

#define CLIENT_PAUSE (100 * WORLD_MS)

struct sent {
    enum { SENT_CREATE, SENT_VOID, SENT_STAT, SENT_DATA, SENT_LIST, SENT_NAME, SENT_MULTI } kind;
    union {
        string_completion_t created;
        string_stat_completion_t made;
        void_completion_t none;
        stat_completion_t stat;
        data_completion_t data;
        strings_stat_completion_t list;
    } tell;
    const void *arg;
    struct zktree_request *request; /* NULL: it has been sent */
    char *path;
    bool watch, lists;
    zoo_op_result_t *results;
    struct Stat *stats[ZKTREE_PARTS];
    unsigned count;
};

struct _zhandle {
    struct host *host;
    watcher_fn watcher;
    void *context;
    clientid_t id;
    int state, timeout;
    int64_t heard, spoke; /* CLOCK_MONOTONIC */
    int64_t zxid;
    unsigned server, tried;
    int64_t pause; /* until then, as all servers were tried */
    struct zkconn *conn;
    int fd;
    GQueue *open;       /* of struct sent, in order */
    GPtrArray *watches; /* of struct zkwatch */
    char current[32];
};

/* --- in place of constants ------------------------------------------------------------------ */

const int ZOOKEEPER_WRITE = 1, ZOOKEEPER_READ = 2;
const int ZOO_PERSISTENT = 0, ZOO_EPHEMERAL = 1, ZOO_PERSISTENT_SEQUENTIAL = 2, ZOO_EPHEMERAL_SEQUENTIAL = 3,
          ZOO_CONTAINER = 4;
const int ZOO_EXPIRED_SESSION_STATE = -112, ZOO_AUTH_FAILED_STATE = -113, ZOO_CONNECTING_STATE = 1,
          ZOO_ASSOCIATING_STATE = 2, ZOO_CONNECTED_STATE = 3, ZOO_NOTCONNECTED_STATE = 999;
const int ZOO_CREATED_EVENT = 1, ZOO_DELETED_EVENT = 2, ZOO_CHANGED_EVENT = 3, ZOO_CHILD_EVENT = 4,
          ZOO_SESSION_EVENT = -1;
struct ACL_vector ZOO_OPEN_ACL_UNSAFE, ZOO_CREATOR_ALL_ACL;

const char *zerror(int rc)
{
    static char text[32];
    g_snprintf(text, sizeof text, "error %d", rc);
    return text;
}

void zoo_set_debug_level(ZooLogLevel level)
{
    (void)level;
}

int zoo_set_servers_resolution_delay(zhandle_t *zh, int delay)
{
    (void)zh, (void)delay;
    return ZOK;
}

int zoo_set_servers(zhandle_t *zh, const char *hosts)
{
    (void)zh, (void)hosts; /* the addresses of the model's servers do not change */
    return ZOK;
}

int zoo_add_auth(zhandle_t *zh, const char *scheme, const char *cert, int length, void_completion_t completion,
                 const void *data)
{
    (void)zh, (void)scheme, (void)cert, (void)length, (void)completion, (void)data;
    return ZOK;
}

/* --- the handle --------------------------------------------------------------------------------- */

static void watch_free(void *data)
{
    struct zkwatch *watch = data;
    g_free(watch->path);
    g_free(watch);
}

zhandle_t *zookeeper_init2(const char *hosts, watcher_fn watcher, int timeout, const clientid_t *id, void *context,
                           int flags, log_callback_fn log)
{
    zhandle_t *zh = g_new0(zhandle_t, 1);
    (void)hosts, (void)flags, (void)log;
    *zh = (zhandle_t){.host = world_host(),
                      .watcher = watcher,
                      .context = context,
                      .id = id ? *id : (clientid_t){0},
                      .state = ZOO_NOTCONNECTED_STATE,
                      .timeout = timeout,
                      .server = world_below(ZKMODEL_SERVERS),
                      .fd = -1,
                      .open = g_queue_new(),
                      .watches = g_ptr_array_new_with_free_func(watch_free)};
    return zh;
}

const clientid_t *zoo_client_id(zhandle_t *zh)
{
    return &zh->id;
}

int zoo_recv_timeout(zhandle_t *zh)
{
    return zh->timeout;
}

int zoo_state(zhandle_t *zh)
{
    return zh->state;
}

const char *zoo_get_current_server(zhandle_t *zh)
{
    g_snprintf(zh->current, sizeof zh->current, "10.0.0.%u:2181", zh->server + 1);
    return zh->current;
}

/* --- answers ---------------------------------------------------------------------------------------- */

static void client_note_watch(zhandle_t *zh, const struct sent *sent, int rc)
{
    if (sent->watch && (rc == ZOK || (rc == ZNONODE && sent->kind == SENT_STAT))) {
        struct zkwatch watch = {.kind = sent->lists ? ZKWATCH_LIST
                                        : rc == ZOK ? ZKWATCH_NODE
                                                    : ZKWATCH_ABSENT,
                                .path = g_strdup(sent->path)};
        g_ptr_array_add(zh->watches, g_memdup2(&watch, sizeof watch));
    }
}

static void client_tell(struct sent *sent, int rc, const struct zktree_answer *answer)
{
    switch (sent->kind) {
    case SENT_CREATE:
        sent->tell.made(rc, answer->path, rc == ZOK ? &answer->stat : NULL, sent->arg);
        break;
    case SENT_VOID:
        sent->tell.none(rc, sent->arg);
        break;
    case SENT_STAT:
        sent->tell.stat(rc, rc == ZOK ? &answer->stat : NULL, sent->arg);
        break;
    case SENT_DATA: {
        gsize length = 0;
        const char *bytes = answer->data ? g_bytes_get_data(answer->data, &length) : NULL;
        sent->tell.data(rc, bytes, (int)length, rc == ZOK ? &answer->stat : NULL, sent->arg);
        break;
    }
    case SENT_LIST: {
        struct String_vector strings = {.count = answer->children ? (int)g_strv_length(answer->children) : 0,
                                        .data = answer->children};
        sent->tell.list(rc, &strings, rc == ZOK ? &answer->stat : NULL, sent->arg);
        break;
    }
    case SENT_NAME:
        sent->tell.created(rc, sent->path, sent->arg);
        break;
    case SENT_MULTI:
        for (unsigned i = 0; i < sent->count; i++) {
            sent->results[i].err = rc == ZOK ? ZOK : answer->parts[i];
            if (rc == ZOK && sent->stats[i]) {
                *sent->stats[i] = answer->stat;
            }
        }
        sent->tell.none(rc, sent->arg);
        break;
    }
}

static void sent_free(struct sent *sent)
{
    if (sent->request) {
        zktree_request_free(sent->request);
    }
    g_free(sent->path);
    g_free(sent);
}

static void client_fail_all(zhandle_t *zh, int rc)
{
    static const struct zktree_answer none;
    GQueue *open = zh->open;
    zh->open = g_queue_new(); /* what is asked for meanwhile is for the next connection */
    for (struct sent *sent; (sent = g_queue_pop_head(open));) {
        client_tell(sent, rc, &none);
        sent_free(sent);
    }
    g_queue_free(open);
}

static void client_event(zhandle_t *zh, int state)
{
    zh->watcher(zh, ZOO_SESSION_EVENT, state, "", zh->context);
}

static void client_close_socket(zhandle_t *zh)
{
    if (zh->fd >= 0) {
        descriptor_close(zh->fd);
        zh->fd = -1;
    }
    zh->conn = NULL;
}

static int client_lost(zhandle_t *zh, int rc)
{
    bool connected = zh->state == ZOO_CONNECTED_STATE;
    client_close_socket(zh);
    if (zh->state == ZOO_EXPIRED_SESSION_STATE) {
        client_event(zh, zh->state);
    } else {
        zh->state = ZOO_NOTCONNECTED_STATE;
        if (connected) {
            client_event(zh, ZOO_CONNECTING_STATE);
        }
    }
    client_fail_all(zh, rc);
    zh->server = (zh->server + 1) % ZKMODEL_SERVERS;
    if (++zh->tried % ZKMODEL_SERVERS == 0) {
        zh->pause = host_monotonic(zh->host) + CLIENT_PAUSE;
    }
    return rc;
}

static void client_write(zhandle_t *zh, struct zkmessage *message)
{
    zh->spoke = host_monotonic(zh->host);
    zkconn_send(zh->conn, message);
}

static void client_flush(zhandle_t *zh)
{
    for (GList *at = zh->state == ZOO_CONNECTED_STATE ? zh->open->head : NULL; at; at = at->next) {
        struct sent *sent = at->data;
        if (sent->request) {
            struct zkmessage *message = g_new0(struct zkmessage, 1);
            message->kind = ZKMESSAGE_REQUEST;
            message->request = sent->request;
            message->watch = sent->watch;
            sent->request = NULL;
            client_write(zh, message);
        }
    }
}

static int client_greeted(zhandle_t *zh, const struct zkmessage *message)
{
    if (!message->id.client_id) {
        zh->state = ZOO_EXPIRED_SESSION_STATE;
        return client_lost(zh, ZSESSIONEXPIRED);
    }
    zh->id = message->id;
    zh->timeout = message->timeout;
    zh->state = ZOO_CONNECTED_STATE;
    if (zh->watches->len) {
        struct zkmessage *again = g_new0(struct zkmessage, 1);
        again->kind = ZKMESSAGE_WATCHES;
        again->zxid = zh->zxid;
        again->watches = g_ptr_array_new_with_free_func(watch_free);
        for (guint i = 0; i < zh->watches->len; i++) {
            struct zkwatch watch = *(const struct zkwatch *)zh->watches->pdata[i];
            watch.path = g_strdup(watch.path);
            g_ptr_array_add(again->watches, g_memdup2(&watch, sizeof watch));
        }
        client_write(zh, again);
    }
    client_event(zh, ZOO_CONNECTED_STATE);
    return ZOK;
}

static void client_watched(zhandle_t *zh, const struct zkmessage *message)
{
    bool reported = false;
    for (guint i = zh->watches->len; i-- > 0;) {
        const struct zkwatch *watch = zh->watches->pdata[i];
        bool list = watch->kind == ZKWATCH_LIST;
        bool meant = message->event == ZOO_DELETED_EVENT || list == (message->event == ZOO_CHILD_EVENT);
        if (meant && strcmp(watch->path, message->path) == 0) {
            reported = true;
            g_ptr_array_remove_index(zh->watches, i);
        }
    }
    if (reported) {
        zh->watcher(zh, message->event, ZOO_CONNECTED_STATE, message->path, zh->context);
    }
}

static int client_take(zhandle_t *zh, struct zkmessage *message)
{
    zh->heard = host_monotonic(zh->host);
    if (message->kind == ZKMESSAGE_CONNECT) {
        return client_greeted(zh, message);
    }
    if (message->kind == ZKMESSAGE_EVENT) {
        client_watched(zh, message);
    } else if (message->kind == ZKMESSAGE_REQUEST) {
        struct sent *sent = g_queue_pop_head(zh->open);
        zh->zxid = MAX(zh->zxid, message->zxid);
        client_note_watch(zh, sent, message->answer.rc);
        client_tell(sent, message->answer.rc, &message->answer);
        sent_free(sent);
    }
    return ZOK;
}

/* --- the loop ------------------------------------------------------------------------------------------ */

static int client_connect(zhandle_t *zh)
{
    zh->conn = zkconn_new(zh->host, zh->server);
    zh->fd = descriptor_new(DESCRIPTOR_ZOOKEEPER, zh->conn);
    zh->state = ZOO_CONNECTING_STATE;
    zh->heard = zh->spoke = host_monotonic(zh->host);
    return ZOK;
}

int zookeeper_interest(zhandle_t *zh, int *fd, int *interest, struct timeval *tv)
{
    int64_t now = host_monotonic(zh->host), timeout = zh->timeout * WORLD_MS;
    *fd = -1;
    *interest = 0;
    *tv = (struct timeval){0};
    if (zh->state == ZOO_EXPIRED_SESSION_STATE) {
        return ZINVALIDSTATE;
    }
    if (!zh->conn && now < zh->pause) {
        return ZCONNECTIONLOSS;
    }
    if (!zh->conn) {
        client_connect(zh);
    }
    int64_t silent = timeout * 2 / 3 - (now - zh->heard), quiet = timeout / 3 - (now - zh->spoke);
    if (silent <= 0) {
        return client_lost(zh, ZOPERATIONTIMEOUT);
    }
    if (zh->state == ZOO_CONNECTED_STATE && quiet <= 0) {
        if (g_queue_is_empty(zh->open)) {
            struct zkmessage *ping = g_new0(struct zkmessage, 1);
            ping->kind = ZKMESSAGE_PING;
            client_write(zh, ping);
        }
        quiet = timeout / 3;
    }
    int64_t wait = zh->state == ZOO_CONNECTED_STATE ? MIN(silent, quiet) : silent;
    client_flush(zh);
    *tv =
        (struct timeval){.tv_sec = (time_t)(wait / WORLD_SECOND), .tv_usec = (suseconds_t)(wait % WORLD_SECOND / 1000)};
    *fd = zh->fd;
    *interest = ZOOKEEPER_READ | (zh->state == ZOO_CONNECTING_STATE ? ZOOKEEPER_WRITE : 0);
    return ZOK;
}

int zookeeper_process(zhandle_t *zh, int events)
{
    if (!zh->conn) {
        return zh->state == ZOO_EXPIRED_SESSION_STATE ? ZINVALIDSTATE : ZOK;
    }
    if (zh->state == ZOO_CONNECTING_STATE && events && zkconn_is_open(zh->conn)) {
        struct zkmessage *greeting = g_new0(struct zkmessage, 1);
        *greeting =
            (struct zkmessage){.kind = ZKMESSAGE_CONNECT, .id = zh->id, .timeout = zh->timeout, .zxid = zh->zxid};
        zh->state = ZOO_ASSOCIATING_STATE;
        zh->heard = host_monotonic(zh->host);
        client_write(zh, greeting);
        return ZOK;
    }
    for (struct zkmessage *message; events & ZOOKEEPER_READ && zh->conn && (message = zkconn_receive(zh->conn));) {
        int rc = client_take(zh, message);
        zkmessage_free(message);
        if (rc != ZOK || world_chance(300)) {
            return rc;
        }
    }
    if (events && zh->conn && zkconn_has_failed(zh->conn)) {
        return client_lost(zh, ZCONNECTIONLOSS);
    }
    client_flush(zh);
    return ZOK;
}

int zookeeper_close(zhandle_t *zh)
{
    if (zh->state == ZOO_CONNECTED_STATE) {
        struct zkmessage *close = g_new0(struct zkmessage, 1);
        close->kind = ZKMESSAGE_CLOSE;
        client_flush(zh);
        client_write(zh, close);
    }
    client_close_socket(zh);
    zh->state = 0;
    client_fail_all(zh, ZCLOSING);
    g_queue_free(zh->open);
    g_ptr_array_unref(zh->watches);
    g_free(zh);
    return ZOK;
}

int __wrap_shutdown(int fd, int how);
int __wrap_shutdown(int fd, int how)
{
    struct zkconn *conn = descriptor_object(fd, DESCRIPTOR_ZOOKEEPER);
    (void)how;
    if (conn) {
        zkconn_shutdown(conn);
    }
    return 0;
}

/* --- requests ------------------------------------------------------------------------------------------ */

static GBytes *client_bytes(const char *value, int length)
{
    return length > 0 ? g_bytes_new(value, (gsize)length) : NULL;
}

static struct sent *client_send(zhandle_t *zh, enum zktree_kind kind, const char *path, const void *arg)
{
    struct sent *sent = g_new0(struct sent, 1);
    sent->request = g_new0(struct zktree_request, 1);
    sent->request->kind = kind;
    sent->request->path = g_strdup(path);
    sent->request->version = -1;
    sent->path = g_strdup(path);
    sent->arg = arg;
    g_queue_push_tail(zh->open, sent);
    return sent;
}

static bool client_refuses(const zhandle_t *zh)
{
    return zh->state == ZOO_EXPIRED_SESSION_STATE || zh->state == 0;
}

int zoo_acreate2(zhandle_t *zh, const char *path, const char *value, int length, const struct ACL_vector *acl, int mode,
                 string_stat_completion_t completion, const void *data)
{
    (void)acl;
    if (client_refuses(zh)) {
        return ZINVALIDSTATE;
    }
    struct sent *sent = client_send(zh, ZKTREE_CREATE, path, data);
    sent->kind = SENT_CREATE;
    sent->tell.made = completion;
    sent->request->data = client_bytes(value, length);
    sent->request->mode = mode;
    return ZOK;
}

/* For the check before a mount, which the simulator leaves out. */
int zoo_acreate(zhandle_t *zh, const char *path, const char *value, int length, const struct ACL_vector *acl, int mode,
                string_completion_t completion, const void *data)
{
    (void)zh, (void)path, (void)value, (void)length, (void)acl, (void)mode, (void)completion, (void)data;
    return ZUNIMPLEMENTED;
}

int zoo_adelete(zhandle_t *zh, const char *path, int version, void_completion_t completion, const void *data)
{
    if (client_refuses(zh)) {
        return ZINVALIDSTATE;
    }
    struct sent *sent = client_send(zh, ZKTREE_DELETE, path, data);
    sent->kind = SENT_VOID;
    sent->tell.none = completion;
    sent->request->version = version;
    return ZOK;
}

int zoo_aset(zhandle_t *zh, const char *path, const char *value, int length, int version, stat_completion_t completion,
             const void *data)
{
    if (client_refuses(zh)) {
        return ZINVALIDSTATE;
    }
    struct sent *sent = client_send(zh, ZKTREE_SET, path, data);
    sent->kind = SENT_STAT;
    sent->tell.stat = completion;
    sent->request->data = client_bytes(value, length);
    sent->request->version = version;
    return ZOK;
}

int zoo_aexists(zhandle_t *zh, const char *path, int watch, stat_completion_t completion, const void *data)
{
    if (client_refuses(zh)) {
        return ZINVALIDSTATE;
    }
    struct sent *sent = client_send(zh, ZKTREE_EXISTS, path, data);
    sent->kind = SENT_STAT;
    sent->tell.stat = completion;
    sent->watch = watch;
    return ZOK;
}

int zoo_aget(zhandle_t *zh, const char *path, int watch, data_completion_t completion, const void *data)
{
    if (client_refuses(zh)) {
        return ZINVALIDSTATE;
    }
    struct sent *sent = client_send(zh, ZKTREE_GET, path, data);
    sent->kind = SENT_DATA;
    sent->tell.data = completion;
    sent->watch = watch;
    return ZOK;
}

int zoo_aget_children2(zhandle_t *zh, const char *path, int watch, strings_stat_completion_t completion,
                       const void *data)
{
    if (client_refuses(zh)) {
        return ZINVALIDSTATE;
    }
    struct sent *sent = client_send(zh, ZKTREE_CHILDREN, path, data);
    sent->kind = SENT_LIST;
    sent->tell.list = completion;
    sent->watch = watch;
    sent->lists = true;
    return ZOK;
}

int zoo_async(zhandle_t *zh, const char *path, string_completion_t completion, const void *data)
{
    if (client_refuses(zh)) {
        return ZINVALIDSTATE;
    }
    struct sent *sent = client_send(zh, ZKTREE_NOTHING, path, data);
    sent->kind = SENT_NAME;
    sent->tell.created = completion;
    return ZOK;
}

static void client_init_op(zoo_op_t *op, enum zktree_kind kind)
{
    memset(op, 0, sizeof *op);
    op->type = (int)kind;
}

void zoo_create_op_init(zoo_op_t *op, const char *path, const char *value, int length, const struct ACL_vector *acl,
                        int mode, char *buffer, int size)
{
    (void)buffer, (void)size;
    client_init_op(op, ZKTREE_CREATE);
    op->create_op.path = path;
    op->create_op.data = value;
    op->create_op.datalen = length;
    op->create_op.acl = acl;
    op->create_op.flags = mode;
}

void zoo_delete_op_init(zoo_op_t *op, const char *path, int version)
{
    client_init_op(op, ZKTREE_DELETE);
    op->delete_op.path = path;
    op->delete_op.version = version;
}

void zoo_check_op_init(zoo_op_t *op, const char *path, int version)
{
    client_init_op(op, ZKTREE_CHECK);
    op->check_op.path = path;
    op->check_op.version = version;
}

void zoo_set_op_init(zoo_op_t *op, const char *path, const char *value, int length, int version, struct Stat *stat)
{
    client_init_op(op, ZKTREE_SET);
    op->set_op.path = path;
    op->set_op.data = value;
    op->set_op.datalen = length;
    op->set_op.version = version;
    op->set_op.stat = stat;
}

static struct zktree_request *client_part(const zoo_op_t *op)
{
    struct zktree_request *part = g_new0(struct zktree_request, 1);
    part->kind = (enum zktree_kind)op->type;
    part->version = -1;
    switch (part->kind) {
    case ZKTREE_CREATE:
        part->path = g_strdup(op->create_op.path);
        part->data = client_bytes(op->create_op.data, op->create_op.datalen);
        part->mode = op->create_op.flags;
        break;
    case ZKTREE_SET:
        part->path = g_strdup(op->set_op.path);
        part->data = client_bytes(op->set_op.data, op->set_op.datalen);
        part->version = op->set_op.version;
        break;
    case ZKTREE_CHECK:
        part->path = g_strdup(op->check_op.path);
        part->version = op->check_op.version;
        break;
    default:
        part->path = g_strdup(op->delete_op.path);
        part->version = op->delete_op.version;
        break;
    }
    return part;
}

int zoo_amulti(zhandle_t *zh, int count, const zoo_op_t *ops, zoo_op_result_t *results, void_completion_t completion,
               const void *data)
{
    if (client_refuses(zh)) {
        return ZINVALIDSTATE;
    }
    struct sent *sent = client_send(zh, ZKTREE_MULTI, NULL, data);
    sent->kind = SENT_MULTI;
    sent->tell.none = completion;
    sent->results = results;
    sent->count = sent->request->count = (unsigned)count;
    for (int i = 0; i < count; i++) {
        sent->request->parts[i] = client_part(&ops[i]);
        sent->stats[i] = ops[i].type == ZKTREE_SET ? ops[i].set_op.stat : NULL;
    }
    return ZOK;
}
