/* zookeeper: opens and closes the backend; its status. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backend/journal/journal.h"
#include "backend/log.h"
#include "backend/zookeeper/private.h"

static void zookeeper_start(struct remote *remote)
{
    session_start((struct zookeeper *)remote);
}

/* Leaves the session open if it has holders: they may rely on their locks for their whole terms. */
static void zookeeper_free(struct remote *remote, bool holds)
{
    struct zookeeper *z = (struct zookeeper *)remote;
    struct ev_loop *loop = z->remote.loop;
    session_close(z, holds);
    batch_end_all(z);
    if (loop) {
        ev_io_stop(loop, &z->alarm);
        ev_prepare_stop(loop, &z->prepare);
    }
    close(z->alarm.fd);
    g_hash_table_unref(z->nodes);
    g_hash_table_unref(z->watches);
    servers_clear(z);
    g_free(z->chroot);
    g_free(z->digest);
    g_free(z->own);
    g_clear_pointer(&z->about, g_bytes_unref);
    g_free(z->address);
    g_free(z->identity);
    g_free(z->why);
    journal_close(z->state);
    g_free(z);
}

static void zookeeper_status(struct remote *remote, struct backend_status *status)
{
    struct zookeeper *z = (struct zookeeper *)remote;
    status->away = !z->ready;
    status->since = z->changed;
    status->why = z->ready ? NULL : g_strdup(z->why ? z->why : "not connected yet");
    status->address = g_strdup(z->address);
    status->round_trips = z->requests;
    status->reconnects = z->reconnects;
    if (z->ready) {
        const char *server = zoo_get_current_server(z->handle);
        g_ptr_array_add(status->details, g_strdup_printf("session: %s", strrchr(z->own, '/') + 1));
        g_ptr_array_add(status->details, g_strdup_printf("session-timeout: %d ms", zoo_recv_timeout(z->handle)));
        g_ptr_array_add(status->details, g_strdup_printf("belief: %" G_GINT64_FORMAT " ms", z->validity));
        g_ptr_array_add(status->details, g_strdup_printf("server: %s", server ? server : "unknown"));
        g_ptr_array_add(status->details, g_strdup_printf("zxid: %" G_GINT64_FORMAT, z->zxid));
        g_ptr_array_add(status->details, g_strdup_printf("latency: %" G_GINT64_FORMAT " ms", z->latency));
    }
    g_ptr_array_add(status->details, g_strdup_printf("layout: %s", z->kazoo ? "kazoo" : "curator"));
}

static void zookeeper_heartbeat(struct remote *r, struct remote_ticket *const *tickets, size_t count)
{
    for (size_t i = 0; i < count;
         i++) { /* the session keeps waiting tickets alive; but the end of a lock-delay is not reported */
        const struct zk_node *node = node_find((struct zookeeper *)r, tickets[i]->id);
        if (node && node->delayed) {
            remote_heartbeat_reply(r, tickets[i]->id,
                                   &(struct remote_answer){.outcome = REMOTE_ANSWERED,
                                                           .result = BACKEND_QUEUED,
                                                           .wait = MAX(node->delayed - clock_now(), 0)});
        }
    }
}

static bool zookeeper_allows_name(struct remote *r, const char *name)
{
    (void)r;
    return node_is_name(name);
}

/* Other mounts are in the same queue, so it needs no watch_lock. */
static const struct remote_store store = {
    .name = "zookeeper",
    .features = BACKEND_CAN_SEQUENCE | BACKEND_CAN_RENAME | BACKEND_CAN_SHARE,
    .safety = BACKEND_QUORUM,
    .no_range = "a lock of a range of bytes covers the whole lock on ZooKeeper",
    .no_replace = "on ZooKeeper a lock can be renamed to a name that is free, not over another lock",
    .revoke_root = BACKEND_IS_DIRECTORY,
    .rmdir_root = BACKEND_INVALID,
    .start = zookeeper_start,
    .free = zookeeper_free,
    .is_up = session_is_up,
    .allows_name = zookeeper_allows_name,
    .send = update_send,
    .forget = update_forget,
    .heartbeat = zookeeper_heartbeat,
    .watch_name = watch_name,
    .recover = zk_recover,
    .status = zookeeper_status,
};

static char *zookeeper_show(const struct zookeeper_uri *uri)
{
    GString *text = g_string_new("zookeeper://");
    for (guint i = 0; uri->hosts[i]; i++) {
        g_string_append_printf(text, strchr(uri->hosts[i], ':') ? "%s[%s]:%u" : "%s%s:%u", i ? "," : "", uri->hosts[i],
                               uri->ports[i]);
    }
    return g_string_free(g_string_append(text, uri->chroot), FALSE);
}

int zookeeper_new(const struct zookeeper_options *options, struct backend **ret, char *error, size_t error_size)
{
    struct zookeeper *z = g_new0(struct zookeeper, 1);
    int result = remote_init(&z->remote, &store, options->seed);
    if (result == 0) {
        result = session_init(z);
    }
    if (result < 0) {
        snprintf(error, error_size, "cannot make a timer: %s", g_strerror(-result));
        g_free(z);
        return result;
    }
    z->chroot = g_strdup(options->uri->chroot);
    z->digest = g_strdup(options->digest);
    z->kazoo = options->kazoo;
    z->remote.timeout = ZOOKEEPER_TIMEOUT;
    z->session_timeout = CLAMP(2 * options->ttl + 2000, 4000, 120000);
    z->address = zookeeper_show(options->uri);
    z->nodes = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, node_free);
    z->watches = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, (GDestroyNotify)g_ptr_array_unref);
    TAILQ_INIT(&z->batches);
    result = servers_init(z, options->uri, error, error_size);
    result = options->background ? 0 : result < 0 ? result : check_servers(z, error, error_size);
    if (result < 0) {
        backend_free(&z->remote.backend);
        return result;
    }
    z->identity = g_strdup_printf("%s %s", options->identity ? options->identity : "", z->address);
    saved_session_open(z, options->state);
    z->resumes = z->saved.client_id != 0;
    *ret = &z->remote.backend;
    return 0;
}
