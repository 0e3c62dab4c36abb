/* redis_server: a Redis server of a check's own.
 *
 * It has a Unix socket and a port of 127.0.0.1 in a scratch directory, keeps
 * nothing on disk unless told to, and ends with the check, however that ends.
 */
#ifndef TESTS_SUPPORT_REDIS_SERVER_H
#define TESTS_SUPPORT_REDIS_SERVER_H

#include <stdbool.h>
#include <stdint.h>

struct redis_server;

/* Whether there is a redis-server, or what REDIS_SERVER names, to start at all. */
bool redis_server_exists(void);

/* A server that answers.  `arguments` (NULL-terminated, may be NULL) are further
 * ones of redis-server, kept for when it is started again. */
struct redis_server *redis_server_start(const char *const *arguments);
/* One that is not started yet. */
struct redis_server *redis_server_new(const char *const *arguments);
void redis_server_free(struct redis_server *server);

const char *redis_server_socket(const struct redis_server *server);
uint16_t redis_server_port(const struct redis_server *server);

/* Each returns when it is done. */
void redis_server_stop(struct redis_server *server);   /* SIGTERM */
void redis_server_again(struct redis_server *server);  /* with the same port, socket and directory */
void redis_server_pause(struct redis_server *server);  /* SIGSTOP: connections are accepted, nothing is answered */
void redis_server_resume(struct redis_server *server); /* SIGCONT */

/* As redis-cli, on a connection of its own; an error ends the check.  Formats as
 * redisCommand.  Returns the reply if it is an integer. */
long long redis_server_do(struct redis_server *server, const char *format, ...);
/* The password for that; borrowed. */
void redis_server_use_password(struct redis_server *server, const char *password);

#endif
