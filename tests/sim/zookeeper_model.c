/* zookeeper_model: an ensemble of ZooKeeper servers; see zookeeper_model.h.
 *
 * Each write takes effect at one moment: when the leader accepts it.  A proposal of a lost leader counts as never made;
 * and a request whose connection is lost may take effect nevertheless.
 */
#include "tests/sim/zookeeper_model.h"

#include <ev.h>
#include <string.h>

#define ZKMODEL_RETRY (20 * WORLD_MS)
#define ZKMODEL_WALL INT64_C(1700000000000)

enum { TO_SERVER, TO_CLIENT };
enum { WATCH_NODE = 1, WATCH_LIST = 2 };

struct session {
    clientid_t id;
    int64_t timeout, expires;
    bool alive;
    struct zkconn *conn; /* the last one that it was opened by */
};

/* They are not freed: a world is short. */
struct zkconn {
    const struct host *host;
    unsigned server;
    bool open, refused, reset, closed, ended; /* as the client sees it */
    bool dropped;                             /* by the server */
    bool busy;                                /* something of it is at the leader */
    bool touched;                             /* since its last report to the leader */
    bool shut;
    struct session *session;
    GQueue *packets[2], *received, *arrived;
    bool pumping[2];
    int64_t slow;
    GHashTable *watches; /* path → WATCH_… */
};

struct entry {
    struct zktree_request *request;
    int64_t zxid, time;
    struct zkconn *origin; /* NULL: the leader itself */
    struct zkmessage *message;
};

struct server {
    bool on[4];    /* of enum zkmodel_state */
    bool serves;   /* as one of the quorum */
    int64_t since; /* on[APART or STOPPED] */
    struct zktree *tree;
    guint done;    /* of the log */
    int64_t clock; /* ms that it is fast */
};

static struct {
    struct server servers[ZKMODEL_SERVERS];
    int leader;
    struct zktree *tree; /* all of the log */
    GPtrArray *log, *conns, *sessions;
    int64_t zxid, tick, sync_limit, wall;
    uint32_t cut;
    bool electing;
} ensemble;

/* --- servers ------------------------------------------------------------------------------ */

static bool server_runs(unsigned i)
{
    return !ensemble.servers[i].on[ZKMODEL_DOWN] && !ensemble.servers[i].on[ZKMODEL_STOPPED];
}

static bool server_reaches(unsigned i)
{
    return server_runs(i) && !ensemble.servers[i].on[ZKMODEL_APART];
}

static unsigned servers_that_reach(void)
{
    unsigned count = 0;
    for (unsigned i = 0; i < ZKMODEL_SERVERS; i++) {
        count += server_reaches(i);
    }
    return count;
}

/* With a leader that has a majority. */
static bool server_is_in(unsigned i)
{
    return ensemble.leader >= 0 && server_reaches((unsigned)ensemble.leader) && server_reaches(i) &&
           ensemble.servers[i].serves && servers_that_reach() > ZKMODEL_SERVERS / 2;
}

static void conn_put(struct zkconn *conn, int direction, struct zkmessage *message);
static void server_work(struct zkconn *conn);

static void server_drop(struct zkconn *conn)
{
    if (!conn->dropped) {
        struct zkmessage *end = g_new0(struct zkmessage, 1);
        end->kind = ZKMESSAGE_END;
        conn->dropped = true;
        conn_put(conn, TO_CLIENT, end);
    }
}

static void server_drop_all(unsigned i)
{
    for (guint k = 0; k < ensemble.conns->len; k++) {
        struct zkconn *conn = ensemble.conns->pdata[k];
        if (conn->server == i) {
            server_drop(conn);
        }
    }
}

/* --- the log ------------------------------------------------------------------------------- */

static void conn_tell_watch(struct zkconn *conn, const char *path, int event)
{
    struct zkmessage *message = g_new0(struct zkmessage, 1);
    message->kind = ZKMESSAGE_EVENT;
    message->path = g_strdup(path);
    message->event = event;
    conn_put(conn, TO_CLIENT, message);
}

static void server_changed(void *arg, const char *path, int event)
{
    const struct server *server = arg;
    for (guint i = 0; i < ensemble.conns->len; i++) {
        struct zkconn *conn = ensemble.conns->pdata[i];
        unsigned watched = GPOINTER_TO_UINT(g_hash_table_lookup(conn->watches, path));
        unsigned kinds = event == ZOO_CHILD_EVENT     ? WATCH_LIST
                         : event == ZOO_DELETED_EVENT ? WATCH_NODE | WATCH_LIST
                                                      : WATCH_NODE;
        if (&ensemble.servers[conn->server] == server && !conn->dropped && watched & kinds) {
            g_hash_table_insert(conn->watches, g_strdup(path), GUINT_TO_POINTER(watched & ~kinds));
            conn_tell_watch(conn, path, event);
        }
    }
}

/* The next entry is done by that server; whose it is is answered. */
static void server_do_next(struct server *server)
{
    struct entry *entry = ensemble.log->pdata[server->done++];
    struct zkconn *conn = entry->origin;
    struct zktree_answer answer;
    zktree_do(server->tree, entry->request, entry->zxid, entry->time, server_changed, server, &answer);
    for (guint i = 0; entry->request->kind == ZKTREE_CLOSE && i < ensemble.conns->len; i++) {
        struct zkconn *other = ensemble.conns->pdata[i];
        bool its = other->session && other->session->id.client_id == entry->request->session;
        if (its && &ensemble.servers[other->server] == server) {
            server_drop(other);
        }
    }
    if (conn && &ensemble.servers[conn->server] == server && !conn->dropped) {
        struct zkmessage *message = entry->message;
        entry->message = NULL;
        if (message->kind == ZKMESSAGE_REQUEST) {
            message->answer = answer;
            memset(&answer, 0, sizeof answer);
        }
        message->zxid = entry->zxid;
        conn->busy = false;
        conn_put(conn, TO_CLIENT, message);
        server_work(conn);
    }
    zktree_answer_clear(&answer);
}

static void server_catch_up(struct server *server, guint until)
{
    while (server->done < until) {
        server_do_next(server);
    }
}

struct commit {
    unsigned server;
    guint until;
};

static void server_commit(void *arg)
{
    struct commit *commit = arg;
    struct server *server = &ensemble.servers[commit->server];
    if (server_is_in(commit->server)) {
        server_catch_up(server, commit->until);
        g_free(commit);
    } else if (server->done < commit->until) {
        world_after(ZKMODEL_RETRY, server_commit, commit);
    } else {
        g_free(commit);
    }
}

static int64_t ensemble_time(void)
{
    int64_t fast = ensemble.leader >= 0 ? ensemble.servers[ensemble.leader].clock : 0;
    return ensemble.wall + fast + world_now() / WORLD_MS;
}

/* The moment of a write. */
static void ensemble_append(struct zktree_request *request, struct zkconn *origin, struct zkmessage *message)
{
    struct entry *entry = g_new0(struct entry, 1);
    struct zktree_answer answer;
    *entry = (struct entry){request, ++ensemble.zxid, ensemble_time(), origin, message};
    g_ptr_array_add(ensemble.log, entry);
    zktree_do(ensemble.tree, request, entry->zxid, entry->time, NULL, NULL, &answer);
    world_trace("zk: %lx of session %lx, kind %d: %s is answered %d", (long)entry->zxid, (long)request->session,
                (int)request->kind, answer.path ? answer.path : request->path, answer.rc);
    zktree_answer_clear(&answer);
    int64_t agreed = world_between(50, world_chance(100) ? 20000 : 1000) * WORLD_US;
    for (unsigned i = 0; i < ZKMODEL_SERVERS; i++) {
        struct commit *commit = g_new0(struct commit, 1);
        bool lags = ensemble.servers[i].on[ZKMODEL_LAGS];
        int64_t late =
            lags ? world_between(1, 400) * WORLD_MS : world_between(10, world_chance(50) ? 30000 : 1000) * WORLD_US;
        *commit = (struct commit){i, ensemble.log->len};
        world_after(agreed + late, server_commit, commit);
    }
}

static struct zktree_request *request_of(enum zktree_kind kind, const char *path, int64_t session)
{
    struct zktree_request *request = g_new0(struct zktree_request, 1);
    *request = (struct zktree_request){.kind = kind, .path = g_strdup(path), .version = -1, .session = session};
    return request;
}

/* --- sessions -------------------------------------------------------------------------------- */

static void session_touch(struct session *session)
{
    session->expires = ((world_now() + session->timeout) / ensemble.tick + 1) * ensemble.tick;
}

static struct session *session_of(int64_t id)
{
    for (guint i = 0; i < ensemble.sessions->len; i++) {
        struct session *session = ensemble.sessions->pdata[i];
        if (session->id.client_id == id) {
            return session;
        }
    }
    return NULL;
}

int64_t zkmodel_timeout(int64_t requested)
{
    int64_t tick = ensemble.tick / WORLD_MS;
    return CLAMP(requested, 2 * tick, 20 * tick);
}

static struct session *session_new(int timeout)
{
    struct session *session = g_new0(struct session, 1);
    session->id.client_id = INT64_C(0x100000000000000) + ensemble.sessions->len + 1;
    for (size_t i = 0; i < sizeof session->id.passwd; i++) {
        session->id.passwd[i] = (char)world_random();
    }
    session->timeout = zkmodel_timeout(timeout) * WORLD_MS;
    session->alive = true;
    g_ptr_array_add(ensemble.sessions, session);
    return session;
}

static void session_end(struct session *session, struct zkconn *origin, struct zkmessage *message)
{
    session->alive = false;
    world_trace("zk: session %lx ends", (long)session->id.client_id);
    ensemble_append(request_of(ZKTREE_CLOSE, NULL, session->id.client_id), origin, message);
}

/* The leader looks for what is over, and then hears of whom the others have heard. */
static void ensemble_tick(void *arg)
{
    (void)arg;
    bool led = ensemble.leader >= 0 && server_is_in((unsigned)ensemble.leader);
    for (guint i = 0; led && i < ensemble.sessions->len; i++) {
        struct session *session = ensemble.sessions->pdata[i];
        if (session->alive && session->expires <= world_now()) {
            session_end(session, NULL, NULL);
        }
    }
    for (guint i = 0; led && i < ensemble.conns->len; i++) {
        struct zkconn *conn = ensemble.conns->pdata[i];
        if (conn->touched && conn->session && server_is_in(conn->server)) {
            conn->touched = false;
            session_touch(conn->session);
        }
    }
    world_after(ensemble.tick / 2, ensemble_tick, NULL);
}

static void ensemble_reap(void *arg)
{
    (void)arg;
    if (ensemble.leader >= 0 && server_is_in((unsigned)ensemble.leader)) {
        GPtrArray *paths = zktree_empty_containers(ensemble.tree);
        for (guint i = 0; i < paths->len; i++) {
            ensemble_append(request_of(ZKTREE_DELETE, paths->pdata[i], 0), NULL, NULL);
        }
        g_ptr_array_unref(paths);
    }
    world_after(world_between(100, 6000) * WORLD_MS, ensemble_reap, NULL);
}

/* --- what the leader is asked ------------------------------------------------------------------ */

static void conn_answer_connect(struct zkconn *conn, struct zkmessage *message, struct session *session)
{
    if (session) {
        struct zkconn *former = session->conn;
        if (former && former != conn && former->server == conn->server) {
            server_drop(former);
        }
        session->conn = conn;
        conn->session = session;
        session_touch(session);
    }
    message->id = session ? session->id : (clientid_t){0};
    message->timeout = session ? (int)(session->timeout / WORLD_MS) : 0;
}

static void leader_connect(struct zkconn *conn, struct zkmessage *message)
{
    struct session *session = message->id.client_id ? session_of(message->id.client_id) : session_new(message->timeout);
    bool known =
        session && session->alive &&
        (!message->id.client_id || memcmp(session->id.passwd, message->id.passwd, sizeof session->id.passwd) == 0);
    bool made = !message->id.client_id;
    conn_answer_connect(conn, message, known ? session : NULL);
    if (made) {
        ensemble_append(request_of(ZKTREE_NOTHING, NULL, 0), conn, message);
    } else {
        message->zxid = 0;
        conn->busy = false;
        conn_put(conn, TO_CLIENT, message);
        server_work(conn);
    }
}

static void conn_refuse(struct zkconn *conn, struct zkmessage *message, int rc)
{
    message->answer.rc = rc;
    conn->busy = false;
    conn_put(conn, TO_CLIENT, message);
    server_work(conn);
}

struct forwarded {
    struct zkconn *conn;
    struct zkmessage *message;
};

static void leader_take(void *arg)
{
    struct forwarded *forwarded = arg;
    struct zkconn *conn = forwarded->conn;
    struct zkmessage *message = forwarded->message;
    if (!conn->dropped && !server_is_in(conn->server)) {
        world_after(ZKMODEL_RETRY, leader_take, forwarded);
        return;
    }
    g_free(forwarded);
    if (conn->dropped) {
        zkmessage_free(message);
    } else if (message->kind == ZKMESSAGE_CONNECT) {
        leader_connect(conn, message);
    } else if (conn->session->conn != conn) {
        conn_refuse(conn, message, ZSESSIONMOVED);
    } else if (!conn->session->alive) {
        conn_refuse(conn, message, ZSESSIONEXPIRED);
    } else if (message->kind == ZKMESSAGE_CLOSE) {
        session_end(conn->session, conn, message);
    } else {
        struct zktree_request *request = message->request;
        message->request = NULL;
        request->session = conn->session->id.client_id;
        for (unsigned i = 0; i < request->count; i++) {
            request->parts[i]->session = request->session;
        }
        ensemble_append(request, conn, message);
    }
}

/* --- what a server is asked --------------------------------------------------------------------- */

static void conn_watch(struct zkconn *conn, const char *path, unsigned what)
{
    unsigned watched = GPOINTER_TO_UINT(g_hash_table_lookup(conn->watches, path));
    g_hash_table_insert(conn->watches, g_strdup(path), GUINT_TO_POINTER(watched | what));
}

static void server_look(struct zkconn *conn, struct zkmessage *message)
{
    struct server *server = &ensemble.servers[conn->server];
    const struct zktree_request *request = message->request;
    zktree_do(server->tree, request, 0, 0, NULL, NULL, &message->answer);
    bool list = request->kind == ZKTREE_CHILDREN;
    if (message->watch &&
        (message->answer.rc == ZOK || (request->kind == ZKTREE_EXISTS && message->answer.rc == ZNONODE))) {
        conn_watch(conn, request->path, list ? WATCH_LIST : WATCH_NODE);
    }
    message->zxid = server->done ? ((const struct entry *)ensemble.log->pdata[server->done - 1])->zxid : 0;
    conn_put(conn, TO_CLIENT, message);
}

/* A client that reconnects gets the watches' events of changes since at once. */
static void server_watch_again(struct zkconn *conn, const struct zkmessage *message)
{
    for (guint i = 0; i < message->watches->len; i++) {
        const struct zkwatch *watch = message->watches->pdata[i];
        struct zktree_request look = {.kind = ZKTREE_EXISTS, .path = watch->path};
        struct zktree_answer answer;
        zktree_do(ensemble.servers[conn->server].tree, &look, 0, 0, NULL, NULL, &answer);
        bool there = answer.rc == ZOK, list = watch->kind == ZKWATCH_LIST;
        int event = 0;
        if (watch->kind == ZKWATCH_ABSENT) {
            event = there ? ZOO_CREATED_EVENT : 0;
        } else if (!there) {
            event = ZOO_DELETED_EVENT;
        } else if (list ? answer.stat.pzxid > message->zxid : answer.stat.mzxid > message->zxid) {
            event = list ? ZOO_CHILD_EVENT : ZOO_CHANGED_EVENT;
        }
        if (event) {
            conn_tell_watch(conn, watch->path, event);
        } else {
            conn_watch(conn, watch->path, list ? WATCH_LIST : WATCH_NODE);
        }
    }
}

static void server_work(struct zkconn *conn)
{
    struct zkmessage *message;
    while (!conn->busy && !conn->dropped && server_runs(conn->server) && (message = g_queue_pop_head(conn->received))) {
        bool looks = message->kind == ZKMESSAGE_REQUEST && message->request->kind >= ZKTREE_EXISTS;
        bool first = message->kind == ZKMESSAGE_CONNECT;
        const struct server *server = &ensemble.servers[conn->server];
        int64_t seen = server->done ? ((const struct entry *)ensemble.log->pdata[server->done - 1])->zxid : 0;
        conn->touched = true;
        if (!server->serves || (first ? message->zxid > seen : !conn->session)) {
            server_drop(conn);
            zkmessage_free(message);
        } else if (message->kind == ZKMESSAGE_PING) {
            conn_put(conn, TO_CLIENT, message);
        } else if (looks) {
            server_look(conn, message);
        } else if (message->kind == ZKMESSAGE_WATCHES) {
            server_watch_again(conn, message);
            zkmessage_free(message);
        } else {
            struct forwarded *forwarded = g_new0(struct forwarded, 1);
            *forwarded = (struct forwarded){conn, message};
            conn->busy = true;
            world_after(world_between(20, 500) * WORLD_US, leader_take, forwarded);
        }
    }
}

static void server_work_all(unsigned i)
{
    for (guint k = 0; k < ensemble.conns->len; k++) {
        struct zkconn *conn = ensemble.conns->pdata[k];
        if (conn->server == i) {
            server_work(conn);
        }
    }
}

/* --- leaders ---------------------------------------------------------------------------------------- */

static void server_join(void *arg)
{
    struct server *server = arg;
    unsigned i = (unsigned)(server - ensemble.servers);
    if (server->serves || !server_runs(i)) {
        return;
    }
    if (!server_reaches(i) || ensemble.leader < 0) {
        world_after(ZKMODEL_RETRY, server_join, server);
        return;
    }
    server_catch_up(server, ensemble.log->len);
    server->serves = true;
}

static void ensemble_elect(void *arg)
{
    (void)arg;
    unsigned chosen = world_below(ZKMODEL_SERVERS);
    while (servers_that_reach() > ZKMODEL_SERVERS / 2 && !server_reaches(chosen)) {
        chosen = (chosen + 1) % ZKMODEL_SERVERS;
    }
    if (!server_reaches(chosen) || servers_that_reach() <= ZKMODEL_SERVERS / 2) {
        world_after(100 * WORLD_MS, ensemble_elect, NULL);
        return;
    }
    ensemble.electing = false;
    ensemble.leader = (int)chosen;
    ensemble.zxid = ((ensemble.zxid >> 32) + 1) << 32;
    world_trace("zk: server %u leads", chosen);
    for (unsigned i = 0; i < ZKMODEL_SERVERS; i++) {
        if (server_runs(i)) {
            server_join(&ensemble.servers[i]);
        }
    }
    for (guint i = 0; i < ensemble.sessions->len; i++) {
        session_touch(ensemble.sessions->pdata[i]);
    }
}

static void server_leave(void *arg)
{
    struct server *server = arg;
    server->serves = false;
    server_drop_all((unsigned)(server - ensemble.servers));
}

/* A server that reaches the others again notices it, and drops its clients. */
static void ensemble_lose_leader(void)
{
    ensemble.leader = -1;
    for (unsigned i = 0; i < ZKMODEL_SERVERS; i++) {
        if (server_reaches(i)) {
            server_leave(&ensemble.servers[i]);
        }
    }
    if (!ensemble.electing) {
        ensemble.electing = true;
        world_after(world_between(100, 2000) * WORLD_MS, ensemble_elect, NULL);
    }
}

int zkmodel_leader(void)
{
    return ensemble.leader;
}

int zkmodel_follower(void)
{
    unsigned first = world_below(ZKMODEL_SERVERS);
    for (unsigned i = 0; i < ZKMODEL_SERVERS; i++) {
        unsigned server = (first + i) % ZKMODEL_SERVERS;
        if ((int)server != ensemble.leader && server_is_in(server)) {
            return (int)server;
        }
    }
    return -1;
}

bool zkmodel_is_well(void)
{
    bool well = true;
    for (unsigned i = 0; i < ZKMODEL_SERVERS; i++) {
        well = well && server_is_in(i) && !ensemble.servers[i].on[ZKMODEL_LAGS];
    }
    return well;
}

/* It has not heard of the others for its syncLimit. */
static void server_is_without_quorum(void *arg)
{
    struct server *server = arg;
    unsigned i = (unsigned)(server - ensemble.servers);
    bool out = server->on[ZKMODEL_APART] || server->on[ZKMODEL_STOPPED];
    if (!out || world_now() < server->since + ensemble.sync_limit - ensemble.tick) {
        return;
    }
    if ((int)i == ensemble.leader) {
        ensemble_lose_leader();
    }
    if (server->on[ZKMODEL_STOPPED]) {
        server->serves = false; /* its clients hear of it when it goes on */
    } else {                    /* the others may find out before it does */
        world_after(world_between(0, world_chance(500) ? 2 * ensemble.tick : 0), server_leave, server);
    }
}

void zkmodel_set(unsigned i, enum zkmodel_state state, bool on)
{
    struct server *server = &ensemble.servers[i];
    world_trace("zk: server %u %s %d", i, (const char *const[]){"down", "stopped", "apart", "lags"}[state], on);
    server->on[state] = on;
    if (state == ZKMODEL_DOWN && on) {
        server_leave(server);
        if ((int)i == ensemble.leader) {
            ensemble_lose_leader();
        }
    } else if ((state == ZKMODEL_STOPPED || state == ZKMODEL_APART) && on) {
        server->since = world_now();
        world_after(ensemble.sync_limit + world_between(0, ensemble.tick), server_is_without_quorum, server);
    } else if (!on) {
        if (!server->serves) {
            server_drop_all(i);
        }
        server_work_all(i);
        world_after(world_between(20, 500) * WORLD_MS, server_join, server);
    }
}

void zkmodel_step_clock(int64_t ms)
{
    ensemble.wall += ms;
}

bool zkmodel_delete_ticket(const char *path)
{
    GPtrArray *paths = zktree_paths(ensemble.tree), *found = g_ptr_array_new();
    g_autofree char *prefix = g_strconcat(path, "/", NULL);
    for (guint i = 0; i < paths->len; i++) {
        const char *whole = paths->pdata[i], *leaf = strrchr(whole, '/') + 1;
        bool below = g_str_has_prefix(whole, prefix) && leaf == whole + strlen(prefix);
        if (below && *leaf && g_ascii_isdigit(leaf[strlen(leaf) - 1])) {
            g_ptr_array_add(found, paths->pdata[i]);
        }
    }
    bool any = found->len && ensemble.leader >= 0 && server_is_in((unsigned)ensemble.leader);
    if (any) {
        ensemble_append(request_of(ZKTREE_DELETE, found->pdata[world_below(found->len)], 0), NULL, NULL);
    }
    g_ptr_array_unref(found);
    g_ptr_array_unref(paths);
    return any;
}

/* --- connections ---------------------------------------------------------------------------------------- */

static bool conn_is_cut(const struct zkconn *conn)
{
    return ensemble.cut & 1u << conn->host->index;
}

/* Neither side looks at it any more. */
static void conn_forget(struct zkconn *conn)
{
    if (conn->closed && conn->dropped) {
        g_ptr_array_remove(ensemble.conns, conn);
    }
}

static void conn_deliver(struct zkconn *conn, int direction, struct zkmessage *message)
{
    if (direction == TO_SERVER) {
        if (conn->dropped) {
            zkmessage_free(message);
        } else if (message->kind == ZKMESSAGE_END) {
            conn->dropped = true; /* no client needs a report */
            zkmessage_free(message);
            conn_forget(conn);
        } else {
            g_queue_push_tail(conn->received, message);
            server_work(conn);
        }
    } else if (message->kind == ZKMESSAGE_END) {
        conn->ended = true;
        zkmessage_free(message);
    } else {
        g_queue_push_tail(conn->arrived, message);
    }
}

struct pump {
    struct zkconn *conn;
    int direction;
};

static void conn_pump(void *arg)
{
    struct pump *pump = arg;
    struct zkconn *conn = pump->conn;
    const struct zkmessage *first;
    while ((first = g_queue_peek_head(conn->packets[pump->direction])) && first->due <= world_now() &&
           !conn_is_cut(conn)) {
        conn_deliver(conn, pump->direction, g_queue_pop_head(conn->packets[pump->direction]));
    }
    if (first) {
        world_at(conn_is_cut(conn) ? world_now() + ZKMODEL_RETRY : first->due, conn_pump, pump);
    } else {
        conn->pumping[pump->direction] = false;
        g_free(pump);
    }
}

static void conn_put(struct zkconn *conn, int direction, struct zkmessage *message)
{
    const struct zkmessage *last = g_queue_peek_tail(conn->packets[direction]);
    message->due = world_now() + conn->slow + world_between(30, world_chance(100) ? 3000 : 300) * WORLD_US;
    message->due = last ? MAX(message->due, last->due) : message->due;
    g_queue_push_tail(conn->packets[direction], message);
    if (!conn->pumping[direction]) {
        struct pump *pump = g_new0(struct pump, 1);
        *pump = (struct pump){conn, direction};
        conn->pumping[direction] = true;
        world_at(message->due, conn_pump, pump);
    }
}

static void conn_opened(void *arg)
{
    struct zkconn *conn = arg;
    if (conn_is_cut(conn) && !conn->closed) {
        world_after(ZKMODEL_RETRY, conn_opened, conn);
    } else if (!conn->closed) {
        conn->refused = ensemble.servers[conn->server].on[ZKMODEL_DOWN];
        conn->open = !conn->refused;
        conn->dropped = conn->refused;
    }
}

struct zkconn *zkconn_new(struct host *host, unsigned server)
{
    struct zkconn *conn = g_new0(struct zkconn, 1);
    conn->host = host;
    conn->server = server;
    conn->packets[TO_SERVER] = g_queue_new();
    conn->packets[TO_CLIENT] = g_queue_new();
    conn->received = g_queue_new();
    conn->arrived = g_queue_new();
    conn->watches = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    g_ptr_array_add(ensemble.conns, conn);
    world_after(world_between(50, 1000) * WORLD_US, conn_opened, conn);
    return conn;
}

static void zkconn_end(struct zkconn *conn)
{
    struct zkmessage *end = g_new0(struct zkmessage, 1);
    end->kind = ZKMESSAGE_END;
    conn_put(conn, TO_SERVER, end);
}

void zkconn_close(struct zkconn *conn)
{
    if (!conn->closed && conn->open && !conn->shut) {
        zkconn_end(conn);
    }
    conn->closed = true;
    conn->dropped = conn->dropped || !conn->open;
    conn_forget(conn);
}

void zkconn_shutdown(struct zkconn *conn)
{
    zkconn_close(conn);
    conn->shut = conn->ended = true;
}

void zkconn_send(struct zkconn *conn, struct zkmessage *message)
{
    if (conn->shut) {
        zkmessage_free(message);
    } else {
        conn_put(conn, TO_SERVER, message);
    }
}

struct zkmessage *zkconn_receive(struct zkconn *conn)
{
    return conn->reset ? NULL : g_queue_pop_head(conn->arrived);
}

bool zkconn_is_open(const struct zkconn *conn)
{
    return conn->open;
}

bool zkconn_has_failed(const struct zkconn *conn)
{
    return conn->refused || conn->reset || (conn->ended && g_queue_is_empty(conn->arrived));
}

int zkconn_ready(const struct zkconn *conn)
{
    bool readable = !g_queue_is_empty(conn->arrived) || zkconn_has_failed(conn);
    return (readable ? EV_READ : 0) | (conn->open || conn->refused ? EV_WRITE : 0);
}

void zkmessage_free(struct zkmessage *message)
{
    if (message->request) {
        zktree_request_free(message->request);
    }
    zktree_answer_clear(&message->answer);
    g_clear_pointer(&message->watches, g_ptr_array_unref);
    g_free(message->path);
    g_free(message);
}

/* --- faults of the network ----------------------------------------------------------------------------------- */

void zkmodel_drop(const struct host *host)
{
    for (guint i = ensemble.conns->len; i-- > 0;) {
        struct zkconn *conn = ensemble.conns->pdata[i];
        if (conn->host == host) {
            zkconn_close(conn);
        }
    }
}

void zkmodel_cut(const struct host *host, bool cut)
{
    ensemble.cut = cut ? ensemble.cut | 1u << host->index : ensemble.cut & ~(1u << host->index);
}

unsigned zkmodel_reset(const struct host *host)
{
    unsigned count = 0;
    for (guint i = ensemble.conns->len; i-- > 0;) {
        struct zkconn *conn = ensemble.conns->pdata[i];
        if (conn->host == host && conn->open && !conn->closed && !conn->reset) {
            count++;
            if (world_chance(500)) { /* what was under way is lost, too */
                conn->dropped = true;
            } else {
                zkconn_end(conn);
            }
            conn->reset = true;
        }
    }
    return count;
}

bool zkmodel_slow(const struct host *host, int64_t by)
{
    bool found = false;
    for (guint i = 0; i < ensemble.conns->len; i++) {
        struct zkconn *conn = ensemble.conns->pdata[i];
        if (conn->host == host && !conn->closed) {
            conn->slow = by;
            found = true;
        }
    }
    return found;
}

void zkmodel_begin(void)
{
    ensemble.conns = g_ptr_array_new();
    ensemble.sessions = g_ptr_array_new();
    ensemble.log = g_ptr_array_new();
    ensemble.tree = zktree_new();
    ensemble.tick = (int64_t[]){200, 500, 2000}[world_below(3)] * WORLD_MS;
    ensemble.sync_limit = ensemble.tick * world_between(2, 6);
    ensemble.wall = ZKMODEL_WALL;
    ensemble.zxid = INT64_C(1) << 32;
    ensemble.leader = (int)world_below(ZKMODEL_SERVERS);
    for (unsigned i = 0; i < ZKMODEL_SERVERS; i++) {
        ensemble.servers[i] = (struct server){.serves = true, .tree = zktree_new(), .clock = world_between(-2, 2)};
    }
    world_after(world_between(1, ensemble.tick), ensemble_tick, NULL);
    world_after(world_between(100, 6000) * WORLD_MS, ensemble_reap, NULL);
}
