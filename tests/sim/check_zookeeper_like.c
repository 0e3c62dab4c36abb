/* check_zookeeper_like: the simulator's nodes (zookeeper_tree.c) beside those of a real server, under random requests.
 */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/sim/zookeeper_tree.h"
#include "tests/support/check_main.h"
#include "tests/support/zookeeper_server.h"

enum { REQUESTS = 2000 };

static uint16_t port;
static zhandle_t *server;
static struct zktree *tree;
static bool connected, answered;
static struct zktree_answer real;
static int64_t zxid;

/* --- the server ------------------------------------------------------------------- */

static void on_event(zhandle_t *handle, int type, int state, const char *path, void *context)
{
    (void)handle, (void)path, (void)context;
    connected = connected || (type == ZOO_SESSION_EVENT && state == ZOO_CONNECTED_STATE);
}

static void turn(void)
{
    struct timeval in;
    int fd = -1, interest = 0;
    zookeeper_interest(server, &fd, &interest, &in);
    struct pollfd wanted = {
        .fd = fd,
        .events = (short)((interest & ZOOKEEPER_READ ? POLLIN : 0) | (interest & ZOOKEEPER_WRITE ? POLLOUT : 0))};
    poll(&wanted, 1, 100);
    zookeeper_process(server, (wanted.revents & POLLIN ? ZOOKEEPER_READ : 0) |
                                  (wanted.revents & POLLOUT ? ZOOKEEPER_WRITE : 0));
}

static void take(int rc, const struct Stat *stat)
{
    real.rc = rc;
    real.stat = rc == ZOK && stat ? *stat : (struct Stat){0};
    answered = true;
}

static void on_void(int rc, const void *data)
{
    (void)data;
    take(rc, NULL);
}

static void on_stat(int rc, const struct Stat *stat, const void *data)
{
    (void)data;
    take(rc, stat);
}

static void on_created(int rc, const char *path, const struct Stat *stat, const void *data)
{
    (void)data;
    real.path = rc == ZOK ? g_strdup(path) : NULL;
    take(rc, stat);
}

static void on_data(int rc, const char *value, int length, const struct Stat *stat, const void *data)
{
    (void)data;
    real.data = rc == ZOK ? g_bytes_new(value, length > 0 ? (gsize)length : 0) : NULL;
    take(rc, stat);
}

static void on_children(int rc, const struct String_vector *names, const struct Stat *stat, const void *data)
{
    (void)data;
    real.children = g_new0(char *, rc == ZOK ? (gsize)names->count + 1 : 1);
    for (int i = 0; rc == ZOK && i < names->count; i++) {
        real.children[i] = g_strdup(names->data[i]);
    }
    take(rc, stat);
}

static const char *bytes_of(const struct zktree_request *q, int *ret_length)
{
    gsize length = 0;
    const char *bytes = q->data ? g_bytes_get_data(q->data, &length) : "";
    *ret_length = (int)length;
    return bytes;
}

static void ask_multi(const struct zktree_request *q, zoo_op_t *ops, zoo_op_result_t *results, struct Stat *stat)
{
    for (unsigned i = 0; i < q->count; i++) {
        const struct zktree_request *part = q->parts[i];
        int length;
        const char *bytes = bytes_of(part, &length);
        if (part->kind == ZKTREE_CREATE) {
            zoo_create_op_init(&ops[i], part->path, bytes, length, &ZOO_OPEN_ACL_UNSAFE, part->mode, NULL, 0);
        } else if (part->kind == ZKTREE_SET) {
            zoo_set_op_init(&ops[i], part->path, bytes, length, part->version, stat);
        } else if (part->kind == ZKTREE_CHECK) {
            zoo_check_op_init(&ops[i], part->path, part->version);
        } else {
            zoo_delete_op_init(&ops[i], part->path, part->version);
        }
    }
    zoo_amulti(server, (int)q->count, ops, results, on_void, NULL);
}

static void ask(const struct zktree_request *q)
{
    zoo_op_t ops[ZKTREE_PARTS];
    zoo_op_result_t results[ZKTREE_PARTS] = {0};
    struct Stat stat;
    int length;
    const char *bytes = bytes_of(q, &length);
    memset(&real, 0, sizeof real);
    answered = false;
    switch (q->kind) {
    case ZKTREE_CREATE:
        zoo_acreate2(server, q->path, bytes, length, &ZOO_OPEN_ACL_UNSAFE, q->mode, on_created, NULL);
        break;
    case ZKTREE_DELETE:
        zoo_adelete(server, q->path, q->version, on_void, NULL);
        break;
    case ZKTREE_SET:
        zoo_aset(server, q->path, bytes, length, q->version, on_stat, NULL);
        break;
    case ZKTREE_MULTI:
        ask_multi(q, ops, results, &stat);
        break;
    case ZKTREE_GET:
        zoo_aget(server, q->path, 0, on_data, NULL);
        break;
    case ZKTREE_CHILDREN:
        zoo_aget_children2(server, q->path, 0, on_children, NULL);
        break;
    default:
        zoo_aexists(server, q->path, 0, on_stat, NULL);
        break;
    }
    while (!answered) {
        turn();
    }
    for (unsigned i = 0; i < q->count; i++) {
        real.parts[i] = results[i].err;
    }
}

/* --- requests ----------------------------------------------------------------------- */

static struct zktree_request *draw_simple(GRand *random, const char *root)
{
    static const char *const names[] = {"a", "b", "a/c", "a/d", "b/e-", "a/e-", "a/c/f"};
    const int modes[] = {ZOO_PERSISTENT, ZOO_EPHEMERAL, ZOO_PERSISTENT_SEQUENTIAL, ZOO_EPHEMERAL_SEQUENTIAL,
                         ZOO_CONTAINER};
    struct zktree_request *q = g_new0(struct zktree_request, 1);
    char text[8];
    int length = snprintf(text, sizeof text, "%d", g_rand_int_range(random, 0, 1000));
    q->kind = (enum zktree_kind)g_rand_int_range(random, ZKTREE_CREATE, ZKTREE_MULTI);
    q->path = g_strconcat(root, "/", names[g_rand_int_range(random, 0, G_N_ELEMENTS(names))], NULL);
    q->version = g_rand_int_range(random, -1, 3);
    q->mode = modes[g_rand_int_range(random, 0, G_N_ELEMENTS(modes))];
    q->data = q->kind == ZKTREE_DELETE ? NULL : g_bytes_new(text, (gsize)length);
    q->session = zoo_client_id(server)->client_id;
    return q;
}

static struct zktree_request *draw(GRand *random, const char *root)
{
    struct zktree_request *q = draw_simple(random, root);
    int dice = g_rand_int_range(random, 0, 10);
    if (dice < 4) {
        q->kind = (enum zktree_kind)g_rand_int_range(random, ZKTREE_EXISTS, ZKTREE_CHILDREN + 1);
    } else if (dice == 4) {
        q->kind = ZKTREE_MULTI;
        q->count = (unsigned)g_rand_int_range(random, 1, ZKTREE_PARTS + 1);
        for (unsigned i = 0; i < q->count; i++) {
            q->parts[i] = draw_simple(random, root);
            q->parts[i]->mode = ZOO_PERSISTENT; /* at some others the library asserts */
            q->parts[i]->kind = g_rand_int_range(random, 0, 4) == 0 ? ZKTREE_CHECK : q->parts[i]->kind;
        }
    }
    return q;
}

/* --- the same ------------------------------------------------------------------------- */

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void check_equal(const struct zktree_request *q, const struct zktree_answer *model, unsigned number)
{
    bool looks = q->kind != ZKTREE_MULTI && q->kind != ZKTREE_DELETE && model->rc == ZOK;
    ck_assert_msg(model->rc == real.rc, "request %u of kind %d, %s: %d, really %d", number, q->kind, q->path, model->rc,
                  real.rc);
    ck_assert_str_eq(model->path && q->kind == ZKTREE_CREATE ? model->path : "", real.path ? real.path : "");
    for (unsigned i = 0; i < q->count; i++) {
        ck_assert_int_eq(model->parts[i], real.parts[i]);
    }
    if (looks) {
        ck_assert_int_eq(model->stat.version, real.stat.version);
        ck_assert_int_eq(model->stat.cversion, real.stat.cversion);
        ck_assert_int_eq(model->stat.numChildren, real.stat.numChildren);
        ck_assert_int_eq(model->stat.dataLength, real.stat.dataLength);
        ck_assert_int_eq(model->stat.ephemeralOwner, real.stat.ephemeralOwner);
        ck_assert_int_eq(model->stat.mzxid == model->stat.czxid, real.stat.mzxid == real.stat.czxid);
        ck_assert_int_eq(model->stat.pzxid == model->stat.czxid, real.stat.pzxid == real.stat.czxid);
    }
    ck_assert(!model->data == !real.data && (!real.data || g_bytes_equal(model->data, real.data)));
    if (real.children && model->children) {
        guint count = g_strv_length(real.children);
        qsort(real.children, count, sizeof *real.children, compare_names);
        qsort(model->children, g_strv_length(model->children), sizeof *model->children, compare_names);
        ck_assert(g_strv_equal((const char *const *)real.children, (const char *const *)model->children));
    }
}

START_TEST(nodes_are_as_a_server_has_them)
{
    GRand *random = g_rand_new_with_seed((guint32)_i);
    g_autofree char *hosts = g_strdup_printf("127.0.0.1:%u", port), *root = g_strdup_printf("/like%d", _i);
    struct zktree_request make = {.kind = ZKTREE_CREATE, .path = root};
    struct zktree_answer model;
    server = zookeeper_init(hosts, on_event, 10000, NULL, NULL, 0);
    tree = zktree_new();
    while (!connected) {
        turn();
    }
    ask(&make);
    zktree_answer_clear(&real);
    zktree_do(tree, &make, ++zxid, 0, NULL, NULL, &model);
    zktree_answer_clear(&model);
    for (unsigned i = 0; i < REQUESTS; i++) {
        struct zktree_request *q = draw(random, root);
        ask(q);
        zktree_do(tree, q, ++zxid, 0, NULL, NULL, &model);
        check_equal(q, &model, i);
        zktree_answer_clear(&real);
        zktree_answer_clear(&model);
        zktree_request_free(q);
    }
    zktree_free(tree);
    zookeeper_close(server);
    g_rand_free(random);
}
END_TEST

int main(void)
{
    if (!zookeeper_server_exists()) {
        puts("1..0 # skip there is no ZooKeeper server");
        return 0;
    }
    struct zookeeper_server *own = zookeeper_server_start();
    port = zookeeper_server_port(own);
    zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);
    Suite *suite = suite_create("the simulator's ZooKeeper");
    TCase *cases = tcase_create("like");
    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, nodes_are_as_a_server_has_them, 1, 4);
    suite_add_tcase(suite, cases);
    int result = check_main(suite);
    zookeeper_server_free(own);
    return result;
}
