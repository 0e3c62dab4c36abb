/* session: the one session of a mount, and how long it is valid.
 *
 * A follower that is cut off from the quorum goes on answering pings.  So only an acknowledged write, such as a
 * heartbeat, proves that the session is alive: for `validity` from when it was sent.  When that has passed, this mount
 * loses all its locks and opens a new session.
 *
 * Why others cannot have them before: the leader may learn up to half a tick late that a session is used.  An answer at
 * T follows an acknowledged write that was sent at T - validity or later.  So the quorum keeps the session at least
 * until T - validity + its timeout - a quarter of two ticks, which is after T + validity.
 */
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "backend/format.h"
#include "backend/log.h"
#include "backend/zookeeper/private.h"

#define SESSION_RETRY 0.1 /* s, when no server can be reached */

bool session_is_up(const struct remote *r)
{
    return ((struct zookeeper *)r)->ready;
}

/* --- validity --- */

static void session_extend_validity(struct zookeeper *z, clock_ms sent)
{
    z->acknowledged = MAX(z->acknowledged, sent);
    clock_ms end = z->acknowledged + z->validity;
    struct itimerspec at = {.it_value = clock_timespec(end)};
    if (timerfd_settime(z->alarm.fd, TFD_TIMER_ABSTIME, &at, NULL) < 0) {
        log_error("cannot set a timer: %s", g_strerror(errno));
    }
}

static void session_on_heartbeat(struct zk_batch *batch)
{
    struct zookeeper *z = batch->z;
    const struct zk_reply *set = batch_reply(batch, 0);
    if (set->rc == ZOK) {
        clock_ms now = clock_now();
        z->server_time = set->stat.mtime - now;
        z->latency = now - batch->sent;
        z->zxid = set->stat.mzxid;
        session_extend_validity(z, batch->sent);
    } else if (set->rc == ZNONODE) { /* another client has removed it, but the session lives */
        log_warning("the node %s was removed by another client of the ZooKeeper server", z->own);
        batch_create(batch, z->own, z->about, ZOO_EPHEMERAL);
        batch_set(batch, z->own, z->about, -1);
        batch_then(batch, batch_end);
        return;
    }
    batch_end(batch);
}

static void session_begin_heartbeat(struct zk_batch *batch)
{
    batch->z->heartbeat_sent = clock_now();
    batch_set(batch, batch->z->own, batch->z->about, -1);
    batch_then(batch, session_on_heartbeat);
}

static void session_send_heartbeat(struct zookeeper *z)
{
    if (z->ready) {
        static const struct zk_flow heartbeat = {sizeof(struct zk_batch), .begin = session_begin_heartbeat};
        batch_start(batch_new(z, &heartbeat, NULL), z->validity);
    }
}

static void session_on_heartbeat_timer(struct ev_loop *loop, ev_timer *timer, int events)
{
    (void)loop, (void)events;
    session_send_heartbeat(timer->data);
}

/* --- the beginning of a session --- */

/* Notes why the session cannot be used. */
static void session_refuse(struct zookeeper *z, const char *why)
{
    g_free(z->why);
    z->why = g_strdup(why);
}

/* Did a version with a higher format number make the hidden node with these data? */
static bool session_is_of_newer_format(struct zookeeper *z, GBytes *hidden)
{
    gsize size = 0;
    const char *bytes = hidden ? g_bytes_get_data(hidden, &size) : NULL;
    char *format = bytes ? node_format(bytes, (gssize)size) : NULL;
    bool newer = format && format_read_number(format) > ZOOKEEPER_FORMAT;
    if (newer) {
        char *store = g_strdup_printf("the store, made by leasefs%s,", strchr(format, ' ') ? strchr(format, ' ') : "");
        char *why = g_strdup_printf(FORMAT_TOO_NEW, store, format_read_number(format), ZOOKEEPER_FORMAT);
        log_error("%s: %s", z->address, why);
        session_refuse(z, why);
        g_free(why);
        g_free(store);
    }
    g_free(format);
    return newer;
}

static void session_on_greeted(struct zk_batch *batch)
{
    struct zookeeper *z = batch->z;
    const struct zk_reply *last = batch_reply(batch, batch->replies->len - 1);
    const struct zk_reply *made = batch_reply(batch, batch->replies->len - 2);
    const struct zk_reply *hidden = batch_reply(batch, batch->replies->len - 3);
    last = hidden->rc == ZOK ? last : hidden;
    if (last->rc != ZOK) {
        const char *why = zerror(made->rc == ZOK || made->rc == ZNODEEXISTS ? last->rc : made->rc);
        log_error("the ZooKeeper server refuses the node %s: %s", z->own, why);
        session_refuse(z, why);
        batch_end(batch);
        return;
    }
    if (session_is_of_newer_format(z, hidden->data)) {
        batch_end(batch);
        return;
    }
    if (z->was_up) {
        log_info("the ZooKeeper server is there again");
        z->reconnects++;
    }
    g_clear_pointer(&z->why, g_free);
    z->was_up = z->ready = true;
    z->base = node_base(hidden->data, &hidden->stat);
    z->changed = clock_now();
    z->server_time = last->stat.mtime - z->changed;
    z->latency = z->changed - batch->sent;
    session_extend_validity(z, batch->sent);
    ev_timer_again(z->remote.loop, &z->heartbeat);
    batch_end(batch);
    batch_resume_all(z);
    remote_on_up(&z->remote);
    remote_watch_changed(&z->remote, NULL); /* changes during a cut were not reported */
}

/* Makes the chroot, the hidden node in it, and in that the session's own node. */
static void session_greet(struct zk_batch *batch)
{
    struct zookeeper *z = batch->z;
    GBytes *base = node_encode_base();
    for (char *slash = z->own, *leaf = strrchr(z->own, '/'); (slash = strchr(slash + 1, '/'));) {
        char *path = g_strndup(z->own, (gsize)(slash - z->own));
        batch_create(batch, path, slash == leaf ? base : NULL, ZOO_PERSISTENT);
        if (slash == leaf) {
            batch_get(batch, path);
        }
        g_free(path);
    }
    g_bytes_unref(base);
    batch_create(batch, z->own, z->about, ZOO_EPHEMERAL);
    batch_set(batch, z->own, z->about, -1);
    batch_then(batch, session_on_greeted);
}

static void session_connected(struct zookeeper *z)
{
    int timeout = zoo_recv_timeout(z->handle);
    const clientid_t *id = zoo_client_id(z->handle);
    z->connected = true;
    if (id->client_id != z->saved.client_id) {
        saved_session_write(z, id);
    }
    z->validity = timeout / 2 - MIN(timeout / 8, ZOOKEEPER_MARGIN);
    z->heartbeat.repeat = (double)z->validity / 3000;
    g_clear_pointer(&z->about, g_bytes_unref);
    z->about = node_encode_session(timeout);
    g_free(z->own);
    z->own = node_session_path(z, id->client_id);
    static const struct zk_flow greet = {sizeof(struct zk_batch), .begin = session_greet, .urgent = true};
    batch_start(batch_new(z, &greet, NULL), timeout);
}

static void session_note_disconnect(struct zookeeper *z, const char *why)
{
    if (z->connected || !z->why) {
        log_warning("the ZooKeeper server is away: %s", why);
        z->changed = clock_now();
        g_free(z->why);
        z->why = g_strdup(why);
    }
    z->connected = z->ready = false;
}

/* A watched node has changed: waiting tickets read their queue again; the node of a holder may be removed. */
static void session_on_node_event(struct zookeeper *z, int type, const char *path)
{
    gpointer key = NULL, found = NULL;
    if (!g_hash_table_steal_extended(z->watches, path, &key, &found)) {
        return;
    }
    GPtrArray *ids = found;
    for (guint i = 0; i < ids->len; i++) {
        const char *id = ids->pdata[i];
        struct zk_node *node = node_find(z, id);
        bool own = node && strcmp(node->path, path) == 0;
        if (!*id && type == ZOO_CHANGED_EVENT) {
            watch_directory(z, path);
        } else if (!*id && type == ZOO_CHILD_EVENT) {
            node_add_watch(z, path, ""); /* the watch of its data is still set */
        } else if (!own) {
            if (node) {
                node->blocker_changed = true; /* if its queue is being read just now */
            }
            remote_on_event(&z->remote, id, REMOTE_MAY_BE_FREE, BACKEND_LOST);
        } else if (type == ZOO_DELETED_EVENT && node->removing) {
            continue; /* by this mount */
        } else if (type == ZOO_DELETED_EVENT) {
            watch_report_end(z, id);
        } else {
            watch_node(z, path, id);
        }
    }
    g_ptr_array_unref(ids);
    g_free(key);
}

static void session_on_event(zhandle_t *handle, int type, int state, const char *path, void *context)
{
    struct zookeeper *z = context;
    if (type != ZOO_SESSION_EVENT) {
        session_on_node_event(z, type, path);
        if (strlen(path) > strlen(z->chroot)) {
            remote_watch_changed(&z->remote, path + strlen(z->chroot) + 1);
        }
    } else if (state == ZOO_CONNECTED_STATE) {
        z->handle = handle; /* the event may come before zookeeper_init2 has returned */
        session_connected(z);
    } else if (state == ZOO_EXPIRED_SESSION_STATE) {
        z->expired = true;
    } else if (state == ZOO_AUTH_FAILED_STATE) {
        session_note_disconnect(z, "the credentials are refused");
    } else {
        session_note_disconnect(z, "the connection was lost");
    }
}

void session_on_log(const char *message)
{
    log_debug("libzookeeper: %s", message);
}

static void session_open(struct zookeeper *z)
{
    z->expired = false;
    if (!z->hosts) {
        session_note_disconnect(z, "the name of no server can be resolved");
        return;
    }
    z->handle = zookeeper_init2(z->hosts, session_on_event, (int)z->session_timeout,
                                z->saved.client_id ? &z->saved : NULL, z, ZOO_NO_LOG_CLIENTENV, session_on_log);
    if (!z->handle) {
        session_note_disconnect(z, g_strerror(errno));
        return;
    }
    zoo_set_servers_resolution_delay(z->handle, -1); /* the addresses are numeric */
    if (z->digest) {
        zoo_add_auth(z->handle, "digest", z->digest, (int)strlen(z->digest), NULL, NULL);
    }
}

/* The library's close informs the server, and waits: up to 3 s to send that, and 1.5 s for the answer.  The mount needs
 * no answer, so it shuts the socket down for reading, which ends that wait.  `keep`: sends nothing, so that the servers
 * do not close the session.  If earlier requests are unsent, it sends nothing either: the session ends with its
 * timeout. */
static void session_prepare_close(struct zookeeper *z, bool keep)
{
    struct pollfd server = {.fd = z->io.fd, .events = POLLOUT};
    if (zoo_state(z->handle) == ZOO_CONNECTED_STATE) {
        bool unsent = z->io.events & EV_WRITE || poll(&server, 1, 0) != 1;
        shutdown(z->io.fd, keep || unsent ? SHUT_RDWR : SHUT_RD);
    }
}

void session_close(struct zookeeper *z, bool keep)
{
    struct ev_loop *loop = z->remote.loop;
    z->connected = z->ready = false;
    if (loop) {
        ev_io_stop(loop, &z->io);
        ev_timer_stop(loop, &z->timer);
        ev_timer_stop(loop, &z->heartbeat);
    }
    if (z->handle) {
        session_prepare_close(z, keep);
        zookeeper_close(z->handle);
    }
    if (!keep) {
        saved_session_write(z, NULL);
    }
    z->handle = NULL;
    g_hash_table_remove_all(z->nodes);
    g_hash_table_remove_all(z->watches);
}

/* All its locks are lost, and waiting tickets queue again. */
static void session_lost(struct zookeeper *z, const char *why)
{
    GPtrArray *held = g_ptr_array_new_with_free_func(g_free);
    GHashTableIter each;
    struct remote_ticket *t;
    session_note_disconnect(z, why);
    z->resumes = false;
    g_hash_table_iter_init(&each, z->remote.tickets);
    while (g_hash_table_iter_next(&each, NULL, (gpointer *)&t)) {
        if (t->state == REMOTE_HELD) {
            g_ptr_array_add(held, g_strdup(t->id));
        }
    }
    for (guint i = 0; i < held->len; i++) {
        remote_on_event(&z->remote, held->pdata[i], REMOTE_ENDED, BACKEND_LOST);
    }
    g_ptr_array_unref(held);
    session_close(z, false);
    session_open(z);
}

void session_abandon(struct zookeeper *z, const char *why)
{
    session_note_disconnect(z, why);
    session_close(z, true);
    z->saved = (clientid_t){0};
    session_open(z);
}

/* --- the loop --- */

static void session_process(struct zookeeper *z, int events)
{
    if (z->handle) {
        zookeeper_process(z->handle, events);
    }
    if (z->expired) {
        session_lost(z, z->resumes ? "the session of the daemon before has expired, and what it held is free"
                                   : "the session has expired");
    }
}

static void session_on_io(struct ev_loop *loop, ev_io *io, int revents)
{
    (void)loop;
    session_process(io->data, (revents & EV_READ ? ZOOKEEPER_READ : 0) | (revents & EV_WRITE ? ZOOKEEPER_WRITE : 0));
}

static void session_on_timer(struct ev_loop *loop, ev_timer *timer, int events)
{
    (void)loop, (void)events;
    session_process(timer->data, 0);
}

/* Passes the descriptor and events that the library waits for to the loop.  Until it is connected, a new socket can
 * have the number of the one before, which the loop would not notice. */
static void session_on_prepare(struct ev_loop *loop, ev_prepare *prepare, int revents)
{
    struct zookeeper *z = prepare->data;
    struct timeval in = {.tv_sec = 1};
    int fd = -1, interest = 0;
    (void)revents;
    if (!z->connected) {
        servers_look_up(z);
    }
    if (!z->handle) {
        session_open(z);
    } else if (z->ready &&
               clock_now() - z->heartbeat_sent > z->validity / 2) { /* the host was suspended, with its timers */
        session_send_heartbeat(z);
    }
    int rc = z->handle ? zookeeper_interest(z->handle, &fd, &interest, &in) : ZSYSTEMERROR;
    int events = (interest & ZOOKEEPER_READ ? EV_READ : 0) | (interest & ZOOKEEPER_WRITE ? EV_WRITE : 0);
    bool settled = z->handle && zoo_state(z->handle) == ZOO_CONNECTED_STATE;
    if (!settled || z->io.fd != fd || (z->io.events & (EV_READ | EV_WRITE)) != events || !ev_is_active(&z->io)) {
        ev_io_stop(loop, &z->io);
        ev_io_set(&z->io, fd, events);
        if (fd >= 0 && events) {
            ev_io_start(loop, &z->io);
        }
    }
    ev_timer_stop(loop, &z->timer);
    ev_timer_set(&z->timer, rc == ZOK ? (double)in.tv_sec + (double)in.tv_usec / 1e6 : SESSION_RETRY, 0);
    ev_timer_start(loop, &z->timer);
}

static void session_on_alarm(struct ev_loop *loop, ev_io *alarm, int events)
{
    struct zookeeper *z = alarm->data;
    uint64_t times;
    (void)loop, (void)events;
    if (read(alarm->fd, &times, sizeof times) > 0 && clock_now() >= z->acknowledged + z->validity && z->handle) {
        session_lost(z, "no write was acknowledged for too long to believe in the session");
    }
}

int session_init(struct zookeeper *z)
{
    int alarm = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);
    if (alarm < 0) {
        return -errno;
    }
    ev_io_init(&z->alarm, session_on_alarm, alarm, EV_READ);
    ev_set_priority(&z->alarm, EV_MAXPRI); /* before any answer is read */
    ev_io_init(&z->io, session_on_io, -1, 0);
    ev_init(&z->timer, session_on_timer);
    ev_init(&z->heartbeat, session_on_heartbeat_timer);
    ev_prepare_init(&z->prepare, session_on_prepare);
    z->alarm.data = z->io.data = z->timer.data = z->heartbeat.data = z->prepare.data = z;
    z->changed = clock_now();
    zoo_set_debug_level(ZOO_LOG_LEVEL_WARN);
    return 0;
}

void session_start(struct zookeeper *z)
{
    ev_io_start(z->remote.loop, &z->alarm);
    ev_prepare_start(z->remote.loop, &z->prepare);
    session_open(z);
}
