/* zookeeper_server: a ZooKeeper server of a check's own.
 *
 * It has a port of 127.0.0.1 and a scratch directory, keeps nothing for long, and ends with the check, however that
 * ends.
 */
#ifndef TESTS_SUPPORT_ZOOKEEPER_SERVER_H
#define TESTS_SUPPORT_ZOOKEEPER_SERVER_H

#include <stdbool.h>
#include <stdint.h>

struct zookeeper_server;

/* Whether there is a java and a ZooKeeper to start at all. */
bool zookeeper_server_exists(void);
/* One that answers. */
struct zookeeper_server *zookeeper_server_start(void);
uint16_t zookeeper_server_port(const struct zookeeper_server *server);
/* How many of its sessions it keeps for them. */
unsigned zookeeper_server_watches(const struct zookeeper_server *server);
/* It is killed and begins again with its data, or, `empty`, without; returns when it answers. */
void zookeeper_server_restart(struct zookeeper_server *server, bool empty);
void zookeeper_server_free(struct zookeeper_server *server);

#endif
