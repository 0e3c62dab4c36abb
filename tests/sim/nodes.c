/* nodes: the servers' machines; see nodes.h. */
#include "tests/sim/nodes.h"

#include <glib.h>
#include <stdio.h>
#include <string.h>

#include "tests/sim/redis_model.h"

#define NODES_TICK (100 * WORLD_MS)
#define NODES_DOWN_AFTER (500 * WORLD_MS) /* a Sentinel takes a server for down that it has not reached for so long */
#define NODES_AGAIN (20 * WORLD_MS)
#define NODES_NOTICE                                                                                                   \
    (4 * WORLD_SECOND) /* in that time all mounts have noticed that a server is there again; and one of                \
                        * several masters is given what it lacks when that is renewed next */
#define NODES_QUORUM 2 /* of three Sentinels */

struct nodes_packet {
    int64_t due;
    uint64_t link, offset;
    struct redis_model_change *change;
};

struct node {
    unsigned index;
    struct redis_model *server, *sentinel; /* sentinel: NULL, if there are none */
    int64_t rate;
    /* The server: */
    uint64_t epoch; /* of the master that it follows, or is */
    unsigned master;
    uint64_t reign;       /* grows whenever its connections with replicas end */
    uint64_t link;        /* the same of its connection with its master */
    uint64_t link_reign;  /* the master's, when it was made */
    bool linked, has_all; /* there is one; and since it was started it has had all data */
    GQueue *packets;      /* to it */
    bool pumping;
    int64_t slow;
    int64_t steady[MOUNTS_MAX]; /* from then on the mount counts on it */
    /* The Sentinel: */
    uint64_t known, voted; /* epochs: of the master that it knows, and of its last vote */
    unsigned chosen;
    int64_t heard[NETWORK_NODES], looked, next_try;
};

static struct {
    struct nodes_options options;
    struct node nodes[NETWORK_NODES];
    bool away[MOUNTS_MAX];
    int64_t changed; /* when the last was promoted */
    uint64_t promotions;
} nodes;

static bool nodes_has_sentinels(void)
{
    return nodes.options.store == MOUNT_SENTINEL || nodes.options.store == MOUNT_FAILOVER;
}

static bool node_runs(const struct redis_model *server)
{
    return !redis_model_is(server, REDIS_MODEL_DOWN) && !redis_model_is(server, REDIS_MODEL_PAUSED);
}

static bool node_is_master(const struct node *node)
{
    return !redis_model_is(node->server, REDIS_MODEL_REPLICA);
}

static bool nodes_are_parted(const struct node *a, const struct node *b)
{
    return a != b && network_is_parted(MOUNTS_MAX + a->index, MOUNTS_MAX + b->index);
}

/* --- what is written reaches replicas --------------------------------------------- */

struct nodes_acknowledgement {
    struct node *master, *replica;
    uint64_t reign, offset;
};

/* One that was sent before its replica turned to another master arrives all the same. */
static void nodes_acknowledged(void *arg)
{
    struct nodes_acknowledgement *a = arg;
    if (a->reign == a->master->reign && nodes_are_parted(a->master, a->replica)) {
        world_after(NODES_AGAIN, nodes_acknowledged, a);
        return;
    }
    if (a->reign == a->master->reign && !redis_model_is(a->master->server, REDIS_MODEL_DOWN)) {
        redis_model_acknowledge(a->master->server, a->replica->index, a->offset);
        network_look_at_server();
    }
    g_free(a);
}

static void nodes_take(struct node *replica, const struct nodes_packet *packet)
{
    struct node *master = &nodes.nodes[replica->master];
    if (packet->link == replica->link) {
        redis_model_apply(replica->server, packet->change);
        replica->has_all = true; /* what comes first is all */
        const struct nodes_acknowledgement a = {master, replica, master->reign, packet->offset};
        world_after(world_between(30, 500) * WORLD_US, nodes_acknowledged, g_memdup2(&a, sizeof a));
    }
    redis_model_change_free(packet->change);
}

static void nodes_pump(void *arg)
{
    struct node *replica = arg;
    struct nodes_packet *first;
    while ((first = g_queue_peek_head(replica->packets)) && first->due <= world_now()) {
        bool current = first->link == replica->link;
        if (current && (nodes_are_parted(replica, &nodes.nodes[replica->master]) || !node_runs(replica->server))) {
            break;
        }
        nodes_take(replica, first);
        g_free(g_queue_pop_head(replica->packets));
    }
    replica->pumping = first != NULL;
    if (first) {
        world_at(MAX(first->due, world_now() + NODES_AGAIN), nodes_pump, replica);
    }
}

static void nodes_send(const struct node *master, struct node *replica, struct redis_model_change *change)
{
    const struct nodes_packet *last = g_queue_peek_tail(replica->packets);
    int64_t due = world_now() + replica->slow + world_between(30, world_chance(50) ? 20000 : 300) * WORLD_US;
    struct nodes_packet packet = {last ? MAX(due, last->due) : due, replica->link, redis_model_offset(master->server),
                                  change};
    g_queue_push_tail(replica->packets, g_memdup2(&packet, sizeof packet));
    if (!replica->pumping) {
        replica->pumping = true;
        world_at(packet.due, nodes_pump, replica);
    }
}

static void nodes_wrote(void *arg, struct redis_model_change *change)
{
    const struct node *master = arg;
    for (unsigned i = 0; i < nodes.options.count; i++) {
        struct node *replica = &nodes.nodes[i];
        if (replica->linked && replica->master == master->index && replica->link_reign == master->reign) {
            nodes_send(master, replica, redis_model_change_copy(change));
        }
    }
    redis_model_change_free(change);
}

static void node_unlink(struct node *node)
{
    struct node *master = &nodes.nodes[node->master];
    if (node->linked && !nodes_are_parted(node, master)) {
        redis_model_forget_replica(master->server, node->index);
    }
    node->linked = false;
    node->link++;
}

static void node_link(struct node *node)
{
    struct node *master = &nodes.nodes[node->master];
    if (node->linked && node->link_reign != master->reign) {
        node_unlink(node);
    }
    if (!node->linked && !node_is_master(node) && node_is_master(master) && node_runs(node->server) &&
        node_runs(master->server) && !nodes_are_parted(node, master)) {
        node->linked = true;
        node->link++;
        node->link_reign = master->reign;
        nodes_send(master, node, redis_model_snapshot(master->server));
    }
}

/* --- who is the master -------------------------------------------------------------- */

static void node_promote(struct node *node, uint64_t epoch)
{
    node_unlink(node);
    node->reign++;
    node->epoch = epoch;
    node->master = node->index;
    redis_model_promote(node->server);
    nodes.changed = world_now();
    nodes.promotions++;
    world_trace("node %u is the master of epoch %lu", node->index, (unsigned long)epoch);
    nodes.options.moved();
    network_look_at_server();
    nodes_look();
}

static void node_follow(struct node *node, unsigned master, uint64_t epoch)
{
    bool was_master = node->master == node->index;
    node_unlink(node);
    node->reign++;
    node->epoch = epoch;
    node->master = master;
    redis_model_demote(node->server);
    world_trace("node %u follows node %u", node->index, master);
    if (was_master) {
        nodes.options.moved();
    }
    network_look_at_server();
    nodes_look();
}

unsigned nodes_master(void)
{
    unsigned master = 0;
    for (unsigned i = 0; i < nodes.options.count; i++) {
        const struct node *node = &nodes.nodes[i];
        master = node->epoch > nodes.nodes[master].epoch ||
                         (node->master == i && node_is_master(node) && node->epoch == nodes.nodes[master].epoch)
                     ? i
                     : master;
    }
    return nodes.nodes[master].master;
}

/* --- Sentinels -------------------------------------------------------------------------- */

static bool sentinel_reaches(const struct node *s, const struct node *node)
{
    return node_runs(node->server) && !nodes_are_parted(s, node);
}

static bool sentinel_hears(const struct node *s, const struct node *other)
{
    return node_runs(other->sentinel) && !nodes_are_parted(s, other);
}

static void sentinel_learn(struct node *s, uint64_t epoch, unsigned master)
{
    char text[128];
    unsigned before = s->chosen;
    s->known = epoch;
    s->voted = MAX(s->voted, epoch);
    s->chosen = master;
    s->heard[master] = world_now();
    g_snprintf(text, sizeof text, NODES_MASTER_NAME " %s 6379 %s 6379", nodes_address(before), nodes_address(master));
    redis_model_do(s->sentinel, "PUBLISH", "+switch-master", text, NULL);
    network_look_at_server();
}

static bool sentinel_misses(const struct node *s, unsigned master)
{
    return s->chosen == master && world_now() - s->heard[master] > NODES_DOWN_AFTER;
}

struct sentinel_order {
    struct node *s, *node;
    uint64_t epoch;
};

static void sentinel_promotes(void *arg)
{
    struct sentinel_order *order = arg;
    struct node *node = order->node;
    if (sentinel_reaches(order->s, node) && node->epoch < order->epoch) {
        node_promote(node, order->epoch);
    }
    g_free(order);
}

/* Mostly the one that has most; what a replica has told may be old, so it may be any. */
static struct node *sentinel_candidate(const struct node *s, unsigned master)
{
    struct node *best = NULL;
    bool any = world_chance(400);
    for (unsigned i = 0; i < nodes.options.count; i++) {
        struct node *node = &nodes.nodes[i];
        if (i != master && node->master == master && !node_is_master(node) && node->has_all &&
            sentinel_reaches(s, node) &&
            (!best ||
             (any ? world_chance(500) : redis_model_offset(node->server) > redis_model_offset(best->server)))) {
            best = node;
        }
    }
    return best;
}

/* The server to promote in a new epoch, or NULL. */
static struct node *sentinel_elect(const struct node *s, uint64_t *ret_epoch)
{
    struct node *best = sentinel_candidate(s, s->chosen);
    unsigned votes = 0;
    uint64_t epoch = 0;
    if (!best) {
        return NULL;
    }
    for (unsigned i = 0; i < nodes.options.count; i++) {
        if (sentinel_hears(s, &nodes.nodes[i])) {
            epoch = MAX(epoch, nodes.nodes[i].voted);
            votes++;
        }
    }
    if (votes < NODES_QUORUM) {
        return NULL;
    }
    epoch++;
    for (unsigned i = 0; i < nodes.options.count; i++) {
        if (sentinel_hears(s, &nodes.nodes[i])) {
            nodes.nodes[i].voted = epoch;
        }
    }
    *ret_epoch = epoch;
    return best;
}

static bool sentinel_fail_over(struct node *s)
{
    struct sentinel_order order = {.s = s};
    order.node = sentinel_elect(s, &order.epoch);
    if (order.node) {
        world_after(world_between(1, 50) * WORLD_MS, sentinel_promotes, g_memdup2(&order, sizeof order));
    }
    return order.node;
}

static void sentinel_tick(struct node *s)
{
    int64_t now = world_now();
    bool slept = now - s->looked > NODES_DOWN_AFTER;
    unsigned missing = 0;
    s->looked = now;
    for (unsigned i = 0; i < nodes.options.count; i++) {
        struct node *node = &nodes.nodes[i];
        if (slept || sentinel_reaches(s, node)) {
            s->heard[i] = now;
        }
        missing += sentinel_hears(s, node) && sentinel_misses(node, s->chosen);
        bool promoted = node->master == i && node->epoch > s->known && sentinel_reaches(s, node);
        if (promoted && world_chance(500)) {
            sentinel_learn(s, node->epoch, i);
        } else if (node->known > s->known && sentinel_hears(s, node) && world_chance(300)) {
            sentinel_learn(s, node->known, node->chosen);
        } else if (node->epoch < s->known && i != s->chosen && sentinel_reaches(s, node) && world_chance(200)) {
            node_follow(node, s->chosen, s->known);
        }
    }
    if (sentinel_misses(s, s->chosen) && missing >= NODES_QUORUM && now >= s->next_try) {
        s->next_try = now + world_between(500, 2000) * WORLD_MS;
        sentinel_fail_over(s);
    }
}

static void sentinel_master(void *arg, const char **ret_host, unsigned *ret_port)
{
    *ret_host = nodes_address(((const struct node *)arg)->chosen);
    *ret_port = 6379;
}

/* --- does a mount have what it needs? -------------------------------------------------- */

/* It has closed, and grants nothing yet. */
static bool nodes_is_closed(const struct node *master)
{
    return strstr(redis_model_do(master->server, "GET", "lfs:v:lfs:/", NULL), " c ") != NULL;
}

/* Data that was sent while it was slow comes late, and so does later data. */
static bool node_is_late(const struct node *node)
{
    const struct nodes_packet *last = g_queue_peek_tail(node->packets);
    return node->slow || (last && last->due > world_now() + NODES_TICK);
}

static bool nodes_has_master(unsigned mount)
{
    const struct node *master = &nodes.nodes[nodes_master()];
    bool replica = false, well = node_runs(master->server) && node_is_master(master) &&
                                 !network_is_parted(mount, MOUNTS_MAX + master->index) &&
                                 (nodes.promotions == 0 || world_now() - nodes.changed > NODES_NOTICE);
    for (unsigned i = 0; well && i < nodes.options.count; i++) {
        const struct node *node = &nodes.nodes[i];
        bool other = node != master && node_is_master(node) && node_runs(node->server);
        bool stale = node_runs(node->sentinel) && node->chosen != master->index;
        well = !other && !stale && world_now() >= node->steady[mount];
        replica = replica || (node != master && node->linked && node->has_all && node_runs(node->server) &&
                              !node_is_late(node) && !nodes_are_parted(node, master));
    }
    return well && replica && !nodes_is_closed(master);
}

static bool nodes_has_majority(unsigned mount)
{
    unsigned count = 0;
    for (unsigned i = 0; i < nodes.options.count; i++) {
        const struct node *node = &nodes.nodes[i];
        count +=
            node_runs(node->server) && !network_is_parted(mount, MOUNTS_MAX + i) && world_now() >= node->steady[mount];
    }
    return count > nodes.options.count / 2;
}

void nodes_look(void)
{
    for (unsigned i = 0; mount_has_nodes(nodes.options.store) && i < nodes.options.mounts; i++) {
        bool away = !(nodes_has_sentinels() ? nodes_has_master(i) : nodes_has_majority(i));
        for (unsigned k = 0; k < nodes.options.count; k++) { /* and when it is joined again it takes a moment */
            struct node *node = &nodes.nodes[k];
            if (network_is_parted(i, MOUNTS_MAX + k) || !node_runs(node->server)) {
                int64_t given = nodes_has_sentinels() ? 0 : nodes.options.ttl * WORLD_MS / 3;
                node->steady[i] = MAX(node->steady[i], world_now() + NODES_NOTICE + given);
            }
        }
        if (away != nodes.away[i]) {
            nodes.away[i] = away;
            nodes.options.away(i, away);
        }
    }
}

static void nodes_tick(void *arg)
{
    (void)arg;
    for (unsigned i = 0; nodes_has_sentinels() && i < nodes.options.count; i++) {
        node_link(&nodes.nodes[i]);
        if (node_runs(nodes.nodes[i].sentinel)) {
            sentinel_tick(&nodes.nodes[i]);
        }
    }
    nodes_look();
    world_after(NODES_TICK, nodes_tick, NULL);
}

/* --- faults ------------------------------------------------------------------------------- */

void nodes_stop(unsigned index, bool stop)
{
    struct node *node = &nodes.nodes[index];
    redis_model_set(node->server, REDIS_MODEL_PAUSED, stop);
    if (node->sentinel && (!stop || world_chance(500))) {
        redis_model_set(node->sentinel, REDIS_MODEL_PAUSED, stop);
    }
    network_look_at_server();
    nodes_look();
}

void nodes_kill(unsigned index)
{
    struct node *node = &nodes.nodes[index];
    node->reign++;
    node_unlink(node);
    redis_model_set(node->server, REDIS_MODEL_DOWN, true);
    network_look_at_server();
    nodes_look();
}

bool nodes_start(unsigned index, bool empty)
{
    struct node *node = &nodes.nodes[index];
    int64_t term = nodes.options.ttl * WORLD_MS;
    if (nodes_has_sentinels() && nodes_master() == index) {
        return false;
    }
    if (empty) {
        redis_model_lose(node->server, REDIS_MODEL_NOTHING);
        node->has_all = false;
    }
    redis_model_set(node->server, REDIS_MODEL_DOWN, false);
    for (unsigned i = 0; i < MOUNTS_MAX; i++) {
        node->steady[i] = world_now() + NODES_NOTICE + (nodes_has_sentinels() ? 0 : term + term / 100);
    }
    network_look_at_server();
    nodes_look();
    return true;
}

void nodes_slow(unsigned node, int64_t by)
{
    nodes.nodes[node].slow = by;
    nodes_look();
}

bool nodes_fail_over(void)
{
    struct node *s = &nodes.nodes[world_below(nodes.options.count)];
    return node_runs(s->sentinel) && sentinel_fail_over(s);
}

bool nodes_fail_over_now(void)
{
    struct node *s = &nodes.nodes[world_below(nodes.options.count)];
    uint64_t epoch;
    struct node *best = node_runs(s->sentinel) ? sentinel_elect(s, &epoch) : NULL;
    if (best) {
        node_promote(best, epoch);
    }
    return best;
}

/* --- beginning ------------------------------------------------------------------------------ */

static int64_t node_clock(void *arg)
{
    return network_clock(((const struct node *)arg)->rate);
}

const char *nodes_address(unsigned node)
{
    static const char *const addresses[NETWORK_NODES] = {"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"};
    return addresses[node];
}

unsigned nodes_count(void)
{
    return nodes.options.count;
}

struct redis_model *nodes_server(unsigned node)
{
    return nodes.nodes[node].server;
}

static void node_begin(struct node *node)
{
    bool many = nodes.options.count > 1;
    int64_t apart = nodes.options.ttl * 1000 / 4; /* as far as clocks are */
    struct redis_model_options options = {.seed = (uint32_t)world_random(),
                                          .now = node_clock,
                                          .wall = INT64_C(1700000000000000) + (many ? world_between(-apart, apart) : 0),
                                          .undo = 64,
                                          .ready = network_hear,
                                          .arg = node};
    node->rate = many ? world_between(-1000, 1000) : 0;
    node->packets = g_queue_new();
    if (nodes_has_sentinels()) {
        options.wrote = nodes_wrote;
    }
    node->server = redis_model_new(&options);
    network_add(node->server, node->index, 6379, node->rate);
    if (nodes_has_sentinels()) {
        options.wrote = NULL;
        options.seed = (uint32_t)world_random();
        options.master = sentinel_master;
        node->sentinel = redis_model_new(&options);
        network_add(node->sentinel, node->index, NODES_SENTINEL_PORT, node->rate);
        node->has_all = true;
        redis_model_set(node->server, REDIS_MODEL_REPLICA, node->index > 0);
    }
}

void nodes_begin(const struct nodes_options *options)
{
    nodes.options = *options;
    for (unsigned i = 0; i < options->count; i++) {
        nodes.nodes[i].index = i;
        nodes.nodes[i].master = nodes_has_sentinels() ? 0 : i;
        node_begin(&nodes.nodes[i]);
    }
    if (mount_has_nodes(options->store)) {
        world_after(NODES_TICK, nodes_tick, NULL);
    }
}
