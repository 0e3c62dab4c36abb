/* session: the one session of a mount, and how long it may be believed in.
 *
 * A follower that is cut off from the quorum goes on answering pings, so belief counts from before the last write
 * that was acknowledged, and a heartbeat is such a write.  A touch of the session reaches the leader half a tick late
 * at worst: whatever was acknowledged at T follows an acknowledged write of at most `belief` before, so the quorum
 * keeps the session until T - belief + its timeout - a quarter of two ticks, which is past T + belief.
 * Where belief ends, all that was held is lost here, and a new session is made: nothing of the old one can stay.
 */
#include <errno.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "backend/log.h"
#include "backend/zookeeper/private.h"

#define SESSION_RETRY 0.1   /* s, when no server can be reached */
#define SESSION_MARGIN 1000 /* ms: half of a server's tick, and of what it takes to tell */

bool session_is_up(struct remote *r)
{
    return ((struct zookeeper *)r)->ready;
}

/* --- belief --- */

static void session_believe(struct zookeeper *z, clock_ms sent)
{
    z->acked = MAX(z->acked, sent);
    clock_ms end = z->acked + z->belief;
    struct itimerspec at = {.it_value = clock_timespec(end)};
    if (timerfd_settime(z->alarm.fd, TFD_TIMER_ABSTIME, &at, NULL) < 0) {
        log_error("cannot set a timer: %s", g_strerror(errno));
    }
}

static void session_on_beaten(struct zk_call *call)
{
    struct zookeeper *z = call->z;
    const struct zk_reply *set = call_reply(call, 0);
    if (set->rc == ZOK) {
        clock_ms now = clock_now();
        z->server_time = set->stat.mtime - now;
        z->latency = now - call->sent;
        z->zxid = set->stat.mzxid;
        session_believe(z, call->sent);
    } else if (set->rc == ZNONODE) { /* somebody has removed it, but not the session */
        log_warning("the node %s was removed by another client of the ZooKeeper server", z->own);
        call_create(call, z->own, NULL, ZOO_EPHEMERAL);
        call_set(call, z->own, NULL, -1);
        call_then(call, call_end);
        return;
    }
    call_end(call);
}

static void session_send_beat(struct zk_call *call)
{
    call->z->beaten = clock_now();
    call_set(call, call->z->own, NULL, -1);
    call_then(call, session_on_beaten);
}

void session_beat(struct zookeeper *z)
{
    if (z->ready) {
        static const struct zk_flow beat = {sizeof(struct zk_call), .begin = session_send_beat};
        call_start(call_new(z, &beat, NULL), z->belief);
    }
}

static void session_on_beat(struct ev_loop *loop, ev_timer *timer, int events)
{
    (void)loop, (void)events;
    session_beat(timer->data);
}

/* --- its beginning --- */

static void session_is_there(struct zk_call *call)
{
    struct zookeeper *z = call->z;
    const struct zk_reply *last = call_reply(call, call->replies->len - 1);
    const struct zk_reply *made = call_reply(call, call->replies->len - 2);
    const struct zk_reply *hidden = call_reply(call, call->replies->len - 3);
    last = hidden->rc == ZOK ? last : hidden;
    if (last->rc != ZOK) {
        const char *why = zerror(made->rc == ZOK || made->rc == ZNODEEXISTS ? last->rc : made->rc);
        log_error("the ZooKeeper server refuses the node %s: %s", z->own, why);
        g_free(z->why);
        z->why = g_strdup(why);
        call_end(call);
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
    z->latency = z->changed - call->sent;
    session_believe(z, call->sent);
    ev_timer_again(z->remote.loop, &z->beat);
    call_end(call);
    call_resume_all(z);
    remote_up(&z->remote);
    watch_look_all(z);
}

/* The chroot, what is hidden in it, and in that the session's own node. */
static void session_greet(struct zk_call *call)
{
    struct zookeeper *z = call->z;
    GBytes *base = node_encode_base();
    for (char *slash = z->own, *leaf = strrchr(z->own, '/'); (slash = strchr(slash + 1, '/'));) {
        char *path = g_strndup(z->own, (gsize)(slash - z->own));
        call_create(call, path, slash == leaf ? base : NULL, ZOO_PERSISTENT);
        if (slash == leaf) {
            call_get(call, path);
        }
        g_free(path);
    }
    g_bytes_unref(base);
    call_create(call, z->own, NULL, ZOO_EPHEMERAL);
    call_set(call, z->own, NULL, -1);
    call_then(call, session_is_there);
}

static void session_connected(struct zookeeper *z)
{
    int timeout = zoo_recv_timeout(z->handle);
    const clientid_t *id = zoo_client_id(z->handle);
    z->connected = true;
    if (id->client_id != z->saved.client_id) {
        state_keep(z, id);
    }
    z->belief = timeout / 2 - MIN(timeout / 8, SESSION_MARGIN);
    z->beat.repeat = (double)z->belief / 3000;
    g_free(z->own);
    z->own = g_strdup_printf("%s/" ZOOKEEPER_HIDDEN "/%016" G_GINT64_MODIFIER "x", z->chroot, (guint64)id->client_id);
    static const struct zk_flow greet = {sizeof(struct zk_call), .begin = session_greet, .urgent = true};
    call_start(call_new(z, &greet, NULL), timeout);
}

static void session_away(struct zookeeper *z, const char *why)
{
    if (z->connected || !z->why) {
        log_warning("the ZooKeeper server is away: %s", why);
        z->changed = clock_now();
        g_free(z->why);
        z->why = g_strdup(why);
    }
    z->connected = z->ready = false;
}

/* A node that is watched has changed: who waits looks again; the node of one that holds may be gone. */
static void session_changed(struct zookeeper *z, int type, const char *path)
{
    gpointer key = NULL, found = NULL;
    if (!g_hash_table_steal_extended(z->watches, path, &key, &found)) {
        return;
    }
    GPtrArray *tokens = found;
    for (guint i = 0; i < tokens->len; i++) {
        const char *token = tokens->pdata[i];
        struct zk_node *node = node_of(z, token);
        bool own = node && strcmp(node->path, path) == 0;
        if (!*token && type == ZOO_CHANGED_EVENT) {
            watch_directory(z, path);
        } else if (!*token && type == ZOO_CHILD_EVENT) {
            node_note_watch(z, path, ""); /* this one is still to come */
        } else if (!own) {
            if (node) {
                node->again = true; /* should it be looking just now */
            }
            remote_told(&z->remote, token, REMOTE_MAY_BE_FREE, BACKEND_LOST);
        } else if (type == ZOO_DELETED_EVENT && node->leaves) {
            continue; /* by this mount */
        } else if (type == ZOO_DELETED_EVENT) {
            watch_node_gone(z, token);
        } else {
            watch_node(z, path, token);
        }
    }
    g_ptr_array_unref(tokens);
    g_free(key);
}

static void session_on_event(zhandle_t *handle, int type, int state, const char *path, void *context)
{
    struct zookeeper *z = context;
    if (type != ZOO_SESSION_EVENT) {
        session_changed(z, type, path);
        watch_changed(z, path);
    } else if (state == ZOO_CONNECTED_STATE) {
        z->handle = handle; /* it may come before its maker has returned */
        session_connected(z);
    } else if (state == ZOO_EXPIRED_SESSION_STATE) {
        z->expired = true;
    } else if (state == ZOO_AUTH_FAILED_STATE) {
        session_away(z, "the credentials are refused");
    } else {
        session_away(z, "the connection was lost");
    }
}

void session_on_log(const char *message)
{
    log_debug("libzookeeper: %s", message);
}

static void session_open(struct zookeeper *z)
{
    z->expired = false;
    z->handle = zookeeper_init2(z->hosts, session_on_event, (int)z->asked, z->saved.client_id ? &z->saved : NULL, z,
                                ZOO_NO_LOG_CLIENTENV, session_on_log);
    if (!z->handle) {
        session_away(z, g_strerror(errno));
        return;
    }
    zoo_set_servers_resolution_delay(z->handle, -1); /* they are numbers */
    if (z->digest) {
        zoo_add_auth(z->handle, "digest", z->digest, (int)strlen(z->digest), NULL, NULL);
    }
}

void session_close(struct zookeeper *z, bool keep)
{
    struct ev_loop *loop = z->remote.loop;
    z->connected = z->ready = false;
    if (loop) {
        ev_io_stop(loop, &z->io);
        ev_timer_stop(loop, &z->timer);
        ev_timer_stop(loop, &z->beat);
    }
    if (z->handle) {
        if (keep && z->io.fd >= 0) {
            shutdown(z->io.fd, SHUT_RDWR); /* so that the servers do not hear of it */
        }
        zookeeper_close(z->handle);
    }
    if (!keep) {
        state_keep(z, NULL);
    }
    z->handle = NULL;
    g_hash_table_remove_all(z->nodes);
    g_hash_table_remove_all(z->watches);
}

/* All that was held by it is lost, and who waits is to queue anew. */
static void session_lost(struct zookeeper *z, const char *why)
{
    GPtrArray *held = g_ptr_array_new_with_free_func(g_free);
    GHashTableIter each;
    struct remote_ticket *t;
    session_away(z, why);
    z->resumes = false;
    g_hash_table_iter_init(&each, z->remote.tickets);
    while (g_hash_table_iter_next(&each, NULL, (gpointer *)&t)) {
        if (t->state == REMOTE_HELD) {
            g_ptr_array_add(held, g_strdup(t->token));
        }
    }
    for (guint i = 0; i < held->len; i++) {
        remote_told(&z->remote, held->pdata[i], REMOTE_ENDED, BACKEND_LOST);
    }
    g_ptr_array_unref(held);
    session_close(z, false); /* which may take its time */
    session_open(z);
}

void session_abandon(struct zookeeper *z, const char *why)
{
    session_away(z, why);
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

/* What the library waits for, before the loop does.  Until it is connected each socket may be another one of the same
 * number, which the loop would not see. */
static void session_on_prepare(struct ev_loop *loop, ev_prepare *prepare, int revents)
{
    struct zookeeper *z = prepare->data;
    struct timeval in = {.tv_sec = 1};
    int fd = -1, interest = 0;
    (void)revents;
    if (!z->handle) {
        session_open(z);
    } else if (z->ready && clock_now() - z->beaten > z->belief / 2) { /* the host was suspended, its timers too */
        session_beat(z);
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
    if (read(alarm->fd, &times, sizeof times) > 0 && clock_now() >= z->acked + z->belief && z->handle) {
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
    ev_set_priority(&z->alarm, EV_MAXPRI); /* nothing is answered before */
    ev_io_init(&z->io, session_on_io, -1, 0);
    ev_init(&z->timer, session_on_timer);
    ev_init(&z->beat, session_on_beat);
    ev_prepare_init(&z->prepare, session_on_prepare);
    z->alarm.data = z->io.data = z->timer.data = z->beat.data = z->prepare.data = z;
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
