/* node: one server: what it reports of itself, and whether its vote counts.
 *
 * A server that has just started may have lost locks that are held, and could grant them again.  So it has no vote on a
 * claim until every term that it may have granted is over ("delayed restarts").  A server that writes everything to its
 * disk before it answers has its vote at once.
 */
#include <stdio.h>
#include <string.h>

#include "backend/log.h"
#include "backend/redis/info.h"
#include "backend/redlock/private.h"

#define SLACK 1000 /* ms: servers report their uptime in whole seconds */

int64_t redlock_node_hold_off(clock_ms now, clock_ms born, int64_t term)
{
    return MAX(born + term + term / 100 + 2 + SLACK - now, 0);
}

bool redlock_node_is_full(const struct redlock_node *node)
{
    return node->full && clock_now() - node->full < REDIS_FULL_SHOWN;
}

int64_t redlock_node_held_off(const struct redlock_node *node)
{
    int64_t term = node->r->grace ? node->r->grace : node->r->longest;
    return node->lasting ? 0 : redlock_node_hold_off(clock_now(), node->born, term);
}

void redlock_node_stamp(struct redlock_node *node)
{
    redis_conn_stamp(node->conn, redlock_node_held_off(node) > 0 ? "1" : "");
}

bool redlock_node_is_up(const struct redlock_node *node)
{
    return redis_conn_is_up(node->conn);
}

unsigned redlock_nodes_up(const struct redlock *r)
{
    unsigned up = 0;
    for (unsigned i = 0; i < r->count; i++) {
        up += redlock_node_is_up(&r->nodes[i]);
    }
    return up;
}

/* Another configured server that is the same process; NULL: none.  Both may be connecting.  A server that has been away
 * for longer does not count, because it may have moved to this address. */
static const struct redlock_node *node_twin(const struct redlock_node *node, const char *run_id)
{
    for (unsigned i = 0; i < node->r->count; i++) {
        const struct redlock_node *other = &node->r->nodes[i];
        bool there = redlock_node_is_up(other) || clock_now() - other->greeted <= 2 * node->r->remote.timeout;
        if (other != node && there && g_strcmp0(other->run_id, run_id) == 0) {
            return other;
        }
    }
    return NULL;
}

/* Why the server cannot be used, a new string; NULL: it can. */
static char *node_fault(const struct redlock_node *node, const char *info, const char *run_id)
{
    GPtrArray *errors = g_ptr_array_new_with_free_func(g_free);
    g_ptr_array_set_size(node->warnings, 0);
    redis_info_check_master(info, REDIS_SERVER, errors, node->warnings);
    const struct redlock_node *twin = run_id ? node_twin(node, run_id) : NULL;
    char *fault = errors->len > 0 ? g_strdup(errors->pdata[0])
                  : twin ? g_strdup_printf("it is the same server as %s, whose vote would count twice", twin->where)
                         : NULL;
    g_ptr_array_unref(errors);
    return fault;
}

bool redlock_node_greeted(struct redlock_node *node, const redisReply *reply)
{
    const char *info = reply->type == REDIS_REPLY_STRING ? reply->str : "";
    char *run_id = redis_info_field(info, "run_id"), *uptime = redis_info_field(info, "uptime_in_seconds");
    char *fault = node_fault(node, info, run_id);
    if (fault) {
        log_warning("%s: %s", node->where, fault);
    }
    bool usable = !fault;
    node->greeted = usable ? clock_now() : node->greeted;
    if (usable && (!run_id || g_strcmp0(run_id, node->run_id) != 0)) {
        node->lasting = false;
        node->born = clock_now() - (uptime ? 1000 * g_ascii_strtoll(uptime, NULL, 10) : 0);
        g_free(node->run_id);
        node->run_id = g_steal_pointer(&run_id);
        redlock_node_stamp(node);
    }
    g_free(fault);
    g_free(run_id);
    g_free(uptime);
    return usable;
}

static void node_on_configuration(void *arg, const struct redis_answer *answer)
{
    struct redlock_node *node = arg;
    const redisReply *reply = answer->reply;
    bool answered = answer->outcome == REMOTE_ANSWERED && reply->type == REDIS_REPLY_ARRAY;
    unsigned found = 0;
    for (size_t i = 0; answered && i + 1 < reply->elements; i += 2) {
        const redisReply *name = reply->element[i], *value = reply->element[i + 1];
        if (name->type == REDIS_REPLY_STRING && value->type == REDIS_REPLY_STRING) {
            found += strcmp(name->str, "appendonly") == 0 && strcmp(value->str, "yes") == 0;
            found += strcmp(name->str, "appendfsync") == 0 && strcmp(value->str, "always") == 0;
        }
    }
    node->lasting = found == 2;
    int64_t left = redlock_node_held_off(node);
    if (left > 0) {
        log_notice("%s was started lately and may have forgotten locks: its vote does not count for %" G_GINT64_FORMAT
                   " s",
                   node->where, (left + 999) / 1000);
    }
}

void redlock_node_up(struct redlock_node *node)
{
    static const struct redis_argument words[] = {{"CONFIG", 6}, {"GET", 3}, {"append*", 7}};
    node->changed = clock_now();
    if (redlock_node_held_off(node) > 0) {
        redis_conn_command(node->conn, words, G_N_ELEMENTS(words), 0, node_on_configuration, node);
    }
}

void redlock_node_publish(struct redlock_node *node, const char *text)
{
    const struct redis_argument words[] = {
        {"PUBLISH", strlen("PUBLISH")}, {node->r->channel, strlen(node->r->channel)}, {text, strlen(text)}};
    if (redlock_node_is_up(node)) {
        redis_conn_command(node->conn, words, G_N_ELEMENTS(words), 0, NULL, NULL);
    }
}
