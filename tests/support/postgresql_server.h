/* postgresql_server: a PostgreSQL server of a check's own.
 *
 * It has a port of 127.0.0.1 and a socket in a scratch directory, writes nothing to disk before it must, and ends with
 * the check, however that ends.  It does not run as root.
 */
#ifndef TESTS_SUPPORT_POSTGRESQL_SERVER_H
#define TESTS_SUPPORT_POSTGRESQL_SERVER_H

#include <stdbool.h>
#include <stdint.h>

struct postgresql_server;

/* Whether there is a server to start at all. */
bool postgresql_server_exists(void);
/* One that answers. */
struct postgresql_server *postgresql_server_start(void);
uint16_t postgresql_server_port(const struct postgresql_server *server);
/* The directory of its socket. */
const char *postgresql_server_socket(const struct postgresql_server *server);
/* Runs statements as its superuser, and returns the first column of the last row; "" without one.  Free it with g_free.
 */
char *postgresql_server_do(const struct postgresql_server *server, const char *statements);
/* All its processes but one end, and begin again with its data; returns when it answers. */
void postgresql_server_restart(struct postgresql_server *server);
void postgresql_server_free(struct postgresql_server *server);

#endif
