/* zookeeper_tree: the nodes of a ZooKeeper server, and the effects of its requests on them.
 *
 * Pure: no clock, and no sessions except their numbers.  Trees that apply the same requests in the same order are
 * equal, which is how servers agree.  check_zookeeper_like compares it with a real server.
 */
#ifndef TESTS_SIM_ZOOKEEPER_TREE_H
#define TESTS_SIM_ZOOKEEPER_TREE_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>
#include <zookeeper/zookeeper.h>

enum zktree_kind {
    ZKTREE_CREATE,
    ZKTREE_DELETE,
    ZKTREE_SET,
    ZKTREE_MULTI,
    ZKTREE_CHECK, /* only in a multi */
    ZKTREE_CLOSE, /* the session: its ephemeral nodes go */
    ZKTREE_NOTHING,
    ZKTREE_EXISTS, /* from here on it only looks */
    ZKTREE_GET,
    ZKTREE_CHILDREN,
};

#define ZKTREE_PARTS 4

struct zktree_request {
    enum zktree_kind kind;
    char *path;
    GBytes *data; /* NULL: "" */
    int mode;     /* of create: ZOO_EPHEMERAL_SEQUENTIAL and the like */
    int version;  /* -1: any */
    int64_t session;
    unsigned count; /* of a multi */
    struct zktree_request *parts[ZKTREE_PARTS];
};

/* Clear with zktree_answer_clear. */
struct zktree_answer {
    int rc;
    int parts[ZKTREE_PARTS]; /* of a multi: of each */
    struct Stat stat;
    char *path;      /* of create: as made */
    char **children; /* names */
    GBytes *data;
};

struct zktree;

struct zktree *zktree_new(void);
void zktree_free(struct zktree *tree);
/* All further writes have this number and time.  Calls `changed` for each changed node, with ZOO_CREATED_EVENT and
 * similar.
 */
void zktree_do(struct zktree *tree, const struct zktree_request *request, int64_t zxid, int64_t time,
               void (*changed)(void *arg, const char *path, int event), void *arg, struct zktree_answer *answer);
void zktree_answer_clear(struct zktree_answer *answer);
void zktree_request_free(struct zktree_request *request);
/* Paths of containers that had children, and have none: the leader removes them now and then. */
GPtrArray *zktree_empty_containers(const struct zktree *tree);
/* All paths, in order. */
GPtrArray *zktree_paths(const struct zktree *tree);

#endif
