/* redis_model_replica: the data for replicas, and their confirmations; Sentinels.
 *
 * nodes.c transports them.
 */
#include "tests/sim/redis_model_private.h"

/* --- WAIT --- */

unsigned model_replica_count(const struct redis_model *m, uint64_t offset)
{
    unsigned count = 0;
    for (unsigned i = 0; i < REDIS_MODEL_REPLICAS; i++) {
        count += m->replicas[i].there && m->replicas[i].offset >= offset;
    }
    return count;
}

static void run_wait(struct model_call *call)
{
    struct redis_client *client = call->client;
    int64_t count, timeout;
    if (call->m->state[REDIS_MODEL_REPLICA]) {
        model_say_error(call, "ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 "
                              "if a replica is configured to be writable (which is not the default) writes to "
                              "replicas are just local and are not propagated.");
    } else if (!slice_number(&call->argv[1], &count)) {
        model_say_error(call, "ERR value is not an integer or out of range");
    } else if (!slice_number(&call->argv[2], &timeout)) {
        model_say_error(call, "ERR timeout is not an integer or out of range");
    } else if (timeout < 0) {
        model_say_error(call, "ERR timeout is negative");
    } else if (model_replica_count(call->m, client->written) >= count) {
        model_say_number(call, model_replica_count(call->m, client->written));
    } else {
        client->waits = true;
        client->wait_count = count;
        client->wait_until = timeout ? call->m->options.now(call->m->options.arg) + timeout * 1000 : INT64_MAX;
    }
}

int64_t model_replica_next(const struct redis_model *m)
{
    const struct redis_client *client;
    int64_t next = INT64_MAX;
    TAILQ_FOREACH(client, &m->clients, link) {
        if (client->waits && !client->closed) {
            next = MIN(next, client->wait_until);
        }
    }
    return next;
}

void model_replica_work(struct redis_model *m)
{
    struct redis_client *client;
    int64_t now = m->options.now(m->options.arg);
    TAILQ_FOREACH(client, &m->clients, link) {
        unsigned count = client->waits ? model_replica_count(m, client->written) : 0;
        if (client->waits && !client->closed && (count >= client->wait_count || client->wait_until <= now)) {
            char text[24];
            int length = g_snprintf(text, sizeof text, ":%u\r\n", count);
            client->waits = false;
            model_deliver(client, text, (size_t)length);
            model_resume(client);
        }
    }
}

void redis_model_acknowledge(struct redis_model *m, unsigned replica, uint64_t offset)
{
    bool there = m->replicas[replica].there;
    m->replicas[replica].there = true;
    m->replicas[replica].offset = there ? MAX(m->replicas[replica].offset, offset) : offset;
    if (!m->state[REDIS_MODEL_PAUSED] && !m->state[REDIS_MODEL_DOWN]) {
        model_replica_work(m);
    }
}

void redis_model_forget_replica(struct redis_model *m, unsigned replica)
{
    m->replicas[replica].there = false;
}

/* --- data --- */

uint64_t redis_model_offset(const struct redis_model *m)
{
    return m->offset;
}

struct redis_model_change *redis_model_snapshot(const struct redis_model *m)
{
    struct redis_model_change *change = model_data_change(&m->data, true);
    change->replid = g_strdup(m->replid);
    return change;
}

void redis_model_apply(struct redis_model *m, const struct redis_model_change *change)
{
    model_data_apply(&m->data, change);
    m->offset++;
    if (change->all) {
        g_free(m->replid);
        m->replid = g_strdup(change->replid);
        g_clear_pointer(&m->former_replid, g_free);
    }
}

/* --- who is the master --- */

static void turn(struct redis_model *m, bool replica)
{
    redis_model_cut_all(m);
    memset(m->replicas, 0, sizeof m->replicas);
    m->state[REDIS_MODEL_REPLICA] = replica;
    model_data_settle(&m->data); /* what it would lose now is another's */
}

void redis_model_promote(struct redis_model *m)
{
    g_free(m->former_replid);
    m->former_replid = m->replid;
    m->replid = model_new_id(m);
    turn(m, false);
}

void redis_model_demote(struct redis_model *m)
{
    turn(m, true);
}

static void run_role(struct model_call *call)
{
    const struct redis_model *m = call->m;
    bool replica = m->state[REDIS_MODEL_REPLICA];
    model_say_array(call, replica ? 5 : 3);
    model_say_text(call, replica ? "slave" : "master");
    if (replica) {
        model_say_text(call, "127.0.0.1");
        model_say_number(call, 1);
        model_say_text(call, "connect");
    }
    model_say_number(call, (int64_t)m->offset);
    if (!replica) {
        model_say_array(call, 0);
    }
}

static void run_sentinel_master(struct model_call *call)
{
    const char *host;
    unsigned port;
    char text[8];
    if (!call->m->options.master) {
        model_say_error(call, "ERR unknown command 'SENTINEL', with args beginning with: ");
        return;
    }
    call->m->options.master(call->m->options.arg, &host, &port);
    g_snprintf(text, sizeof text, "%u", port);
    model_say_array(call, 2);
    model_say_text(call, host);
    model_say_text(call, text);
}

const struct model_command model_replica_commands[] = {
    {"role", 1, MODEL_NOSCRIPT | MODEL_LOADING | MODEL_STALE, 0, 0, 0, run_role},
    {"sentinel|get-master-addr-by-name", 3, MODEL_NOSCRIPT | MODEL_LOADING | MODEL_STALE, 0, 0, 0, run_sentinel_master},
    {"wait", 3, MODEL_NOSCRIPT, 0, 0, 0, run_wait},
    {NULL, 0, 0, 0, 0, 0, NULL},
};
