/* zookeeper: leases in a ZooKeeper ensemble, shared by all hosts that mount it.
 *
 * A lock is a znode whose children are its queue: an ephemeral sequential node for each ticket, by the recipe of
 * Curator's InterProcessMutex (or of kazoo's Lock), so leasefs and their clients exclude each other.  All nodes of a
 * mount belong to its one session and end with it.  Before the quorum can end the session, the mount ends its locks as
 * lost.
 */
#ifndef BACKEND_ZOOKEEPER_ZOOKEEPER_H
#define BACKEND_ZOOKEEPER_ZOOKEEPER_H

#include "backend/backend.h"

#define ZOOKEEPER_PORT 2181

/* The servers, as in zookeeper://HOST[:PORT],…/CHROOT.  A port after the last host is for all hosts without one.
 * Free with zookeeper_uri_clear. */
struct zookeeper_uri {
    char **hosts; /* without brackets */
    uint16_t *ports;
    char *chroot; /* "" or "/a/b" */
};

/* Returns 0, or -EINVAL and one line in `error`; then there is nothing to free. */
int zookeeper_uri_parse(struct zookeeper_uri *uri, const char *text, char *error, size_t error_size);
void zookeeper_uri_clear(struct zookeeper_uri *uri);

struct zookeeper_options {
    const struct zookeeper_uri *uri;
    const char *digest;   /* "user:password"; NULL: nodes are open to all */
    bool kazoo;           /* node names of kazoo's Lock instead of Curator's mutex */
    const char *identity; /* of this mount, the same when it starts again; NULL: none */
    const char *state;    /* its own directory, for the next daemon; NULL: saves nothing */
    int64_t ttl;          /* of most leases, ms: the session timeout follows from it */
    bool background;      /* start without trying the servers */
    uint32_t seed;
};

/* Resolves the hosts and, unless in the background, tries the servers, so it may block for ten seconds.  Returns 0, or
 * -errno and one line in `error`; -ENOSYS: this build has no ZooKeeper.  Connects when started. */
int zookeeper_new(const struct zookeeper_options *options, struct backend **ret, char *error, size_t error_size);

#endif
