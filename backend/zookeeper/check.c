/* check: tries the servers once before a mount: can it get a session, and make nodes?  It blocks, because there is no
 * loop yet. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "backend/format.h"
#include "backend/log.h"
#include "backend/zookeeper/private.h"

#define CHECK_TIME 10000   /* ms */
#define CHECK_SESSION 6000 /* ms: the library leaves a silent address after a third of it */
#define CHECK_RETRY 100    /* ms, when no server can be reached */

struct check {
    bool connected;
    unsigned open; /* requests */
    int refusal;   /* the first refusing answer, or ZOK */
    int last;
    char *hidden;     /* the path of the hidden node */
    char *format;     /* the mount that made it: see node_format */
    char *unnumbered; /* the session of a mount without a format number; NULL: there is none */
    zhandle_t *handle;
};

/* A request for the node of one session. */
struct check_session {
    struct check *check;
    char *name;
};

static void check_on_event(zhandle_t *handle, int type, int state, const char *path, void *context)
{
    struct check *check = context;
    (void)handle, (void)path;
    if (type == ZOO_SESSION_EVENT) {
        check->connected = state == ZOO_CONNECTED_STATE;
    }
}

static void check_on_created(int rc, const char *path, const void *data)
{
    struct check *check = (struct check *)data;
    (void)path;
    check->open--;
    check->last = rc;
    if (rc != ZOK && rc != ZNODEEXISTS && check->refusal == ZOK) {
        check->refusal = rc;
    }
}

static void check_on_format(int rc, const char *value, int length, const struct Stat *stat, const void *data)
{
    struct check *check = (struct check *)data;
    (void)stat;
    check->open--;
    check->format = rc == ZOK && value ? node_format(value, length) : NULL;
}

/* Ignores a session that has ended, or whose node this user may not read. */
static void check_on_session(int rc, const char *value, int length, const struct Stat *stat, const void *data)
{
    struct check_session *session = (struct check_session *)data;
    struct check *check = session->check;
    char *about = g_strndup(value ? value : "", (gsize)MAX(length, 0));
    (void)stat;
    check->open--;
    if (rc == ZOK && format_read_number(about) == 0 && !check->unnumbered) {
        check->unnumbered = g_steal_pointer(&session->name);
    }
    g_free(about);
    g_free(session->name);
    g_free(session);
}

/* The sessions of mounts have names of 16 digits; others are those of checks. */
static void check_on_sessions(int rc, const struct String_vector *names, const struct Stat *stat, const void *data)
{
    (void)stat;
    struct check *check = (struct check *)data;
    check->open--;
    for (int32_t i = 0; rc == ZOK && i < names->count; i++) {
        const char *name = names->data[i];
        if (strlen(name) != 16 || strspn(name, "0123456789abcdef") != 16) {
            continue;
        }
        struct check_session *session = g_new(struct check_session, 1);
        *session = (struct check_session){.check = check, .name = g_strdup(name)};
        char *path = g_strdup_printf("%s/%s", check->hidden, name);
        if (zoo_aget(check->handle, path, 0, check_on_session, session) == ZOK) {
            check->open++;
        } else {
            g_free(session->name);
            g_free(session);
        }
        g_free(path);
    }
}

static void check_turn(zhandle_t *handle, clock_ms end)
{
    struct timeval in = {0};
    int fd = -1, interest = 0, left = (int)MAX(end - clock_now(), 0);
    if (zookeeper_interest(handle, &fd, &interest, &in) != ZOK) {
        poll(NULL, 0, MIN(CHECK_RETRY, left));
        return;
    }
    short wanted = (short)((interest & ZOOKEEPER_READ ? POLLIN : 0) | (interest & ZOOKEEPER_WRITE ? POLLOUT : 0));
    struct pollfd server = {.fd = fd, .events = wanted};
    poll(&server, 1, (int)MIN(in.tv_sec * 1000 + in.tv_usec / 1000 + 1, left));
    zookeeper_process(handle, (server.revents & ~POLLOUT ? ZOOKEEPER_READ : 0) |
                                  (server.revents & POLLOUT ? ZOOKEEPER_WRITE : 0));
}

/* Makes the nodes that a mount makes when its session begins, and reads the format number and those of other mounts. */
static void check_request_nodes(struct check *check, const struct zookeeper *z)
{
    zhandle_t *handle = check->handle;
    const struct ACL_vector *rights = z->digest ? &ZOO_CREATOR_ALL_ACL : &ZOO_OPEN_ACL_UNSAFE;
    char *own = g_strdup_printf("%s/" ZOOKEEPER_HIDDEN "/check-%016" G_GINT64_MODIFIER "x", z->chroot,
                                (guint64)zoo_client_id(handle)->client_id);
    GBytes *base = node_encode_base();
    gsize size;
    const char *bytes = g_bytes_get_data(base, &size);
    for (char *slash = own, *leaf = strrchr(own, '/'); (slash = strchr(slash + 1, '/'));) {
        char *path = g_strndup(own, (gsize)(slash - own));
        bool hidden = slash == leaf;
        check->open += zoo_acreate(handle, path, hidden ? bytes : NULL, hidden ? (int)size : -1, rights, 0,
                                   check_on_created, check) == ZOK;
        g_free(path);
    }
    g_bytes_unref(base);
    check->open += zoo_acreate(handle, own, NULL, -1, rights, ZOO_EPHEMERAL, check_on_created, check) == ZOK;
    check->open += zoo_aget(handle, check->hidden, 0, check_on_format, check) == ZOK;
    check->open += zoo_aget_children2(handle, check->hidden, 0, check_on_sessions, check) == ZOK;
    g_free(own);
}

static void check_clear(struct check *check)
{
    g_free(check->hidden);
    g_free(check->format);
    g_free(check->unnumbered);
}

static int check_judge_format(const struct check *check, const struct zookeeper *z, char *error, size_t error_size)
{
    char text[256];
    if (check->format && format_read_number(check->format) > ZOOKEEPER_FORMAT) {
        const char *of = strchr(check->format, ' ');
        char *store = g_strdup_printf("%s: the store, made by leasefs%s,", z->address,
                                      log_escape(text, sizeof text, of ? of : ""));
        snprintf(error, error_size, FORMAT_TOO_NEW, store, format_read_number(check->format), ZOOKEEPER_FORMAT);
        g_free(store);
        return -EPROTONOSUPPORT;
    }
    if (check->unnumbered) {
        char *store = g_strdup_printf("%s: the store", z->address);
        snprintf(text, sizeof text, "a mount (session 0x%s)", check->unnumbered);
        snprintf(error, error_size, FORMAT_MISSING, store, text);
        g_free(store);
        return -EPROTONOSUPPORT;
    }
    return 0;
}

int check_servers(const struct zookeeper *z, char *error, size_t error_size)
{
    struct check check = {.last = ZCONNECTIONLOSS, .hidden = g_strconcat(z->chroot, "/" ZOOKEEPER_HIDDEN, NULL)};
    clock_ms end = clock_now() + CHECK_TIME;
    zhandle_t *handle =
        zookeeper_init2(z->hosts, check_on_event, CHECK_SESSION, NULL, &check, ZOO_NO_LOG_CLIENTENV, session_on_log);
    if (!handle) {
        int result = -errno;
        snprintf(
            error, error_size,
            "%s: the ZooKeeper library cannot use these addresses: %s: check that this host has a network of their "
            "kind, IPv4 or IPv6",
            z->address, g_strerror(errno));
        check_clear(&check);
        return result;
    }
    zoo_set_servers_resolution_delay(handle, -1);
    if (z->digest) {
        zoo_add_auth(handle, "digest", z->digest, (int)strlen(z->digest), NULL, NULL);
    }
    while (!check.connected && clock_now() < end) {
        check_turn(handle, end);
    }
    check.handle = handle;
    if (check.connected) {
        check_request_nodes(&check, z);
    }
    while (check.open > 0 && clock_now() < end) {
        check_turn(handle, end);
    }
    int last = check.last, refusal = check.refusal;
    zookeeper_close(handle); /* which calls what is open */
    int format = last == ZOK ? check_judge_format(&check, z, error, error_size) : 0;
    check_clear(&check);
    if (last == ZOK) {
        return format;
    }
    if (refusal == ZNOAUTH) {
        snprintf(error, error_size,
                 "%s: no right to make nodes in it: put USER:PASSWORD of its owner in a file with mode 0600 and mount "
                 "with -o credentials=FILE",
                 z->address);
        return -EACCES;
    }
    if (refusal != ZOK && refusal != ZCONNECTIONLOSS) {
        snprintf(error, error_size, "%s: its nodes cannot be made: %s", z->address, zerror(refusal));
        return -EIO;
    }
    snprintf(error, error_size,
             "%s: no ZooKeeper server gave a session within %d seconds: check the ports, and that most of the servers "
             "run, or "
             "mount with the option background, which waits for them",
             z->address, CHECK_TIME / 1000);
    return -EHOSTUNREACH;
}
