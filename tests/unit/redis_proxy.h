/* redis_proxy: a proxy between mounts and their Redis server, on the check's loop, that loses or changes the server's
 * answers.
 */
#ifndef TESTS_UNIT_REDIS_PROXY_H
#define TESTS_UNIT_REDIS_PROXY_H

#include <glib.h>
#include <stdbool.h>

struct ev_loop;
struct redis_proxy;

/* Listens in a scratch directory, and leads to the server's socket. */
struct redis_proxy *redis_proxy_new(struct ev_loop *loop, const char *server);
void redis_proxy_free(struct redis_proxy *proxy);
const char *redis_proxy_socket(const struct redis_proxy *proxy);

/* The next `times` pieces of output of the server, on any connection, that contain
 * `text` are lost; `close`: and the connection with them.  Borrowed; it is the
 * only rule. */
void redis_proxy_lose(struct redis_proxy *proxy, const char *text, unsigned times, bool close);
/* The next `times` requests that contain `text` are carried out, their answers
 * are lost, and the connection with them. */
void redis_proxy_lose_answer(struct redis_proxy *proxy, const char *text, unsigned times);
/* The next piece that is asked and contains `text` is held back, while the connection ends for who has asked; until
 * redis_proxy_forward_held passes it on. */
void redis_proxy_hold_back(struct redis_proxy *proxy, const char *text);
void redis_proxy_forward_held(struct redis_proxy *proxy);
/* May change each piece of output of the server; NULL: none does. */
typedef void redis_proxy_forge_piece(void *arg, GString *piece);
void redis_proxy_forge(struct redis_proxy *proxy, redis_proxy_forge_piece *forge, void *arg);
/* How often a rule was applied. */
unsigned redis_proxy_lost(const struct redis_proxy *proxy);

#endif
