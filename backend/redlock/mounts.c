/* mounts: the mounts of several masters.  The servers do not know which are there, so a mount asks on the channel that
 * all share, and each answers there: with its version, host and age, as backend_mounts has them.
 */
#include <string.h>

#include "backend/redlock/private.h"

#define MOUNTS_TIME 500 /* ms; a mount that has not answered by then is away */
#define MOUNTS_MAX 10000

static void mounts_answer(struct redlock_flow *flow)
{
    struct remote_request *request = flow->request;
    GString *text = g_string_new(NULL);
    GHashTableIter mounts;
    gpointer line;
    g_hash_table_iter_init(&mounts, flow->mounts);
    while (g_hash_table_iter_next(&mounts, NULL, &line)) {
        g_string_append_printf(text, "%s\n", (const char *)line);
    }
    enum backend_result result = flow->r->up ? BACKEND_OK : BACKEND_UNREACHABLE;
    struct backend_info info = {.type = BACKEND_DIRECTORY, .content = g_string_free_to_bytes(text)};
    request->on_answer(request, &(struct remote_answer){.result = result, .info = &info});
    remote_info_clear(&info);
    redlock_flow_end(flow, true);
}

void redlock_mounts(struct redlock_flow *flow)
{
    remote_make_id(flow->id);
    flow->mounts = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    char *text = g_strdup_printf("m %s", flow->id);
    for (unsigned i = 0; i < flow->r->count; i++) {
        redlock_node_publish(&flow->r->nodes[i], text);
    }
    g_free(text);
    redlock_flow_continue_later(flow, MOUNTS_TIME, mounts_answer);
}

void redlock_mounts_question(struct redlock_node *node, const char *question)
{
    struct redlock *r = node->r;
    char **about = g_strsplit(r->about, " ", 3); /* number, version, host */
    if (remote_is_id(question) && g_strv_length(about) == 3) {
        char *text = g_strdup_printf("i %s %s %s\t%s\t%" G_GINT64_FORMAT, question, r->id, about[1], about[2],
                                     clock_now() - r->started);
        redlock_node_publish(node, text);
        g_free(text);
    }
    g_strfreev(about);
}

void redlock_mounts_answer(struct redlock *r, const char *question, const char *answer)
{
    char **words = g_strsplit(answer, " ", 2);
    struct redlock_flow *flow;
    LIST_FOREACH(flow, &r->flows, link) {
        if (flow->mounts && strcmp(flow->id, question) == 0 && words[0] && words[1] &&
            g_hash_table_size(flow->mounts) < MOUNTS_MAX && !strchr(words[1], '\n')) {
            g_hash_table_replace(flow->mounts, g_strdup(words[0]), g_strdup(words[1]));
        }
    }
    g_strfreev(words);
}
