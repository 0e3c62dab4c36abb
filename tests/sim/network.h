/* network: the connections between the daemons and the server, in place of sockets and hiredis' reading and writing.
 *
 * What one side says reaches the other later, in order within a connection; each direction can be slow, or silent.  All
 * daemons connect to the one server, by the socket "/sim/redis".
 */
#ifndef TESTS_SIM_NETWORK_H
#define TESTS_SIM_NETWORK_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/sim/world.h"

struct network_socket;
struct redis_model;

#define NETWORK_SERVER "/sim/redis"

void network_begin(void);
struct redis_model *network_server(void);
/* To be called when something was done to the server. */
void network_look_at_server(void);

/* For descriptor.c. */
void network_close(struct network_socket *socket);
int network_ready(const struct network_socket *socket);
/* A daemon was killed: all its connections are closed by its kernel. */
void network_drop(const struct host *host);

/* --- faults ------------------------------------------------------------------- */

/* Nothing gets through to or from this host, in silence. */
void network_cut(const struct host *host, bool cut);
/* All its connections are reset: how many there were. */
unsigned network_reset(const struct host *host);
/* What is said on one of its connections from now on takes so much longer, until that is said otherwise. */
bool network_slow(const struct host *host, bool commands, int64_t by);
/* Of the next reply only a part comes, and then the connection is reset. */
bool network_halve_reply(const struct host *host);

#endif
