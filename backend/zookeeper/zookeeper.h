/* zookeeper: leases in a ZooKeeper ensemble, shared by all hosts that mount it.
 *
 * A lock is a znode whose children are its queue: an ephemeral sequential node for each ticket, by the recipe of
 * Curator's InterProcessMutex (or of kazoo's Lock), so their clients and we exclude each other.  All nodes of a mount
 * belong to its one session and end with it: belief in them ends before the quorum could give the session up.
 */
#ifndef BACKEND_ZOOKEEPER_ZOOKEEPER_H
#define BACKEND_ZOOKEEPER_ZOOKEEPER_H

#include "backend/backend.h"

#define ZOOKEEPER_PORT 2181

/* Where the servers are, as in zookeeper://HOST[:PORT],…/CHROOT: a port behind the last host is that of all which
 * name none.  Free with zookeeper_uri_clear. */
struct zookeeper_uri {
    char **hosts; /* without brackets */
    uint16_t *ports;
    char *chroot; /* "" or "/a/b" */
};

/* 0, or -EINVAL with one line in `error`, and then nothing is to be freed. */
int zookeeper_uri_parse(struct zookeeper_uri *uri, const char *text, char *error, size_t error_size);
void zookeeper_uri_clear(struct zookeeper_uri *uri);

struct zookeeper_options {
    const struct zookeeper_uri *uri;
    const char *digest;   /* "user:password"; NULL: nodes are open to all */
    bool kazoo;           /* names of nodes as kazoo's Lock makes them, else as Curator's mutex does */
    const char *identity; /* tells this mount from all others, also when it starts again; NULL: none does */
    const char *state;    /* a directory of its own for what the next daemon is to know; NULL: nothing is kept */
    int64_t ttl;          /* of most leases: the session is made to fit it */
    bool background;      /* the servers may be away, else they are looked at first */
    uint32_t seed;
};

/* Looks the hosts up and, unless in the background, asks the servers whether a mount can do with them, and so may
 * block.  0, or -errno with one line in `error`; -ENOSYS: this build has no ZooKeeper. Connects when started. */
int zookeeper_new(const struct zookeeper_options *options, struct backend **ret, char *error, size_t error_size);

#endif
