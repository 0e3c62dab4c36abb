/* mounts: the mounts of an ensemble.  Each has a session, whose node names its version and host. */
#include <string.h>

#include "backend/zookeeper/private.h"

static void mounts_finish(struct zk_batch *batch, enum backend_result result, const struct backend_info *info)
{
    struct remote_request *request = batch->request;
    batch->request = NULL;
    request->on_answer(request, &(struct remote_answer){.result = result, .info = info});
    batch_end(batch);
}

static void mounts_failed(struct zk_batch *batch, enum remote_outcome outcome)
{
    batch->request->on_answer(batch->request,
                              &(struct remote_answer){.outcome = outcome, .result = BACKEND_UNREACHABLE});
}

static void mounts_add(GString *text, const struct zookeeper *z, const struct zk_reply *reply)
{
    gsize size = 0;
    const char *bytes = reply->data ? g_bytes_get_data(reply->data, &size) : NULL;
    char *about = g_strndup(bytes, MIN(size, 512)), version[64], host[256];
    if (reply->rc == ZOK && sscanf(about, "%*u %63s %255s", version, host) == 2) {
        g_string_append_printf(text, "%s\t%s\t%" G_GINT64_FORMAT "\n", version, host,
                               MAX(clock_now() - (reply->stat.ctime - z->server_time), 0));
    }
    g_free(about);
}

static void mounts_on_sessions(struct zk_batch *batch)
{
    GString *text = g_string_new(NULL);
    for (guint i = 0; i < batch->replies->len; i++) {
        mounts_add(text, batch->z, batch_reply(batch, i));
    }
    struct backend_info info = {.type = BACKEND_DIRECTORY, .content = g_string_free_to_bytes(text)};
    mounts_finish(batch, BACKEND_OK, &info);
    remote_info_clear(&info);
}

/* The sessions of mounts have names of 16 digits. */
static void mounts_on_names(struct zk_batch *batch)
{
    const struct zk_reply *list = batch_reply(batch, 1);
    if (list->rc != ZOK) {
        mounts_finish(batch, batch_result(batch, list->rc), NULL);
        return;
    }
    for (char **name = list->children; *name; name++) {
        char *path = strlen(*name) == 16 ? node_child(batch->path, *name) : NULL;
        if (path) {
            batch_get(batch, path);
        }
        g_free(path);
    }
    batch_then(batch, mounts_on_sessions);
}

static void mounts_begin(struct zk_batch *batch)
{
    batch_sync(batch, batch->path);
    batch_children(batch, batch->path, false);
    batch_then(batch, mounts_on_names);
}

void mounts_start(struct remote_request *request)
{
    static const struct zk_flow ask = {sizeof(struct zk_batch), .begin = mounts_begin, .failed = mounts_failed};
    struct zookeeper *z = (struct zookeeper *)request->r;
    struct zk_batch *batch = batch_new(z, &ask, request);
    batch->path = node_child(z->chroot, ZOOKEEPER_HIDDEN);
    batch_start(batch, 0);
}
