/* zookeeper_model: an ensemble of ZooKeeper servers in the simulator's world, and the connections to it.
 *
 * There is one log.  Each server has applied a part of it, and answers reads from that.  Writes go to the leader, and
 * are answered when the client's own server has applied them.  A server that is cut off from the others, or whose
 * leader is, answers pings and reads until its syncLimit.  The leader has the sessions: it ends one between a timeout
 * and a tick more after it last learnt of the client, which may be half a tick late.  zookeeper_client.c puts the
 * library's functions above this.
 */
#ifndef TESTS_SIM_ZOOKEEPER_MODEL_H
#define TESTS_SIM_ZOOKEEPER_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/sim/world.h"
#include "tests/sim/zookeeper_tree.h"

#define ZKMODEL_SERVERS 3

void zkmodel_begin(void);
/* The timeout that a session gets which asks for that one, in ms. */
int64_t zkmodel_timeout(int64_t requested);

/* --- for the client ------------------------------------------------------------- */

struct zkconn;

enum zkmessage_kind {
    ZKMESSAGE_CONNECT, /* id, timeout and zxid of what it has seen; answered by the same: id 0: expired */
    ZKMESSAGE_PING,    /* the same */
    ZKMESSAGE_REQUEST, /* answered in order */
    ZKMESSAGE_WATCHES, /* paths, as of zxid */
    ZKMESSAGE_CLOSE,   /* the session */
    ZKMESSAGE_EVENT,   /* a watch */
    ZKMESSAGE_END      /* of the connection */
};

struct zkmessage {
    enum zkmessage_kind kind;
    int64_t due;
    clientid_t id;
    int timeout;
    int64_t zxid;
    struct zktree_request *request;
    bool watch;
    struct zktree_answer answer;
    char *path;
    int event;
    GPtrArray *watches; /* of struct zkwatch */
};

struct zkwatch {
    enum { ZKWATCH_NODE, ZKWATCH_ABSENT, ZKWATCH_LIST } kind;
    char *path;
};

/* It is not open yet. */
struct zkconn *zkconn_new(struct host *host, unsigned server);
void zkconn_close(struct zkconn *conn);
void zkconn_send(struct zkconn *conn, struct zkmessage *message);
/* NULL: nothing is there. */
struct zkmessage *zkconn_receive(struct zkconn *conn);
bool zkconn_is_open(const struct zkconn *conn);
bool zkconn_has_failed(const struct zkconn *conn);
/* EV_READ and EV_WRITE. */
int zkconn_ready(const struct zkconn *conn);
/* Nothing goes in or out any more. */
void zkconn_shutdown(struct zkconn *conn);
void zkmessage_free(struct zkmessage *message);

/* --- faults: each returns false where it changes nothing ------------------------- */

/* A daemon was killed: its kernel closes its connections. */
void zkmodel_drop(const struct host *host);
/* Nothing gets through to or from this host, in silence. */
void zkmodel_cut(const struct host *host, bool cut);
unsigned zkmodel_reset(const struct host *host);
bool zkmodel_slow(const struct host *host, int64_t by);

enum zkmodel_state { ZKMODEL_DOWN, ZKMODEL_STOPPED, ZKMODEL_APART, ZKMODEL_LAGS };
/* The leader's number, or -1; any that is not. */
int zkmodel_leader(void);
int zkmodel_follower(void);
void zkmodel_set(unsigned server, enum zkmodel_state state, bool on);
/* All serve, and there is a leader. */
bool zkmodel_is_well(void);
void zkmodel_step_clock(int64_t ms);
/* A client that is no mount deletes one of the tickets below the path; false: there are none. */
bool zkmodel_delete_ticket(const char *path);

#endif
