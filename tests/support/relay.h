/* relay: proxies between mounts and their servers, on the check's loop: the faults of a network, or of a server, for
 * the mounts that they lead, and answers that are lost or changed.
 */
#ifndef TESTS_SUPPORT_RELAY_H
#define TESTS_SUPPORT_RELAY_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

struct ev_loop;
struct relay;

/* Makes a relay to this port of 127.0.0.1; relay_end ends all relays. */
struct relay *relay_to(struct ev_loop *loop, uint16_t port);
/* The port of 127.0.0.1 on which the relay listens. */
uint16_t relay_port(const struct relay *relay);
void relay_end(void);

/* --- faults of all relays --- */

/* From now on requests are passed on, and what is answered is lost. */
void relay_be_deaf(void);
/* From now on requests are lost, and what is answered, or reported, is passed on. */
void relay_be_mute(void);
/* The next answer is lost, and all connections with it; then all is passed on. */
void relay_cut(void);
/* All connections are cut, and none is accepted, until relay_reset. */
void relay_close(void);
/* Nothing is passed on, in silence, as if the server were stopped, until relay_continue. */
void relay_stop(void);
void relay_continue(void);
/* Each piece of data comes so much later, until relay_continue. */
void relay_be_slow(int64_t ms);
/* Cuts all connections; from then on all is passed on. */
void relay_reset(void);

/* --- rules of one relay; texts are borrowed --- */

/* The next `times` pieces of output of the server, on any connection, that contain `text` are lost; `close`: and the
 * connection with them. */
void relay_lose(struct relay *relay, const char *text, unsigned times, bool close);
/* The next `times` requests that contain `text` are carried out; their answers are lost, and the connection with them.
 */
void relay_lose_answer(struct relay *relay, const char *text, unsigned times);
/* The number of answers that these two functions have lost. */
unsigned relay_lost(const struct relay *relay);
/* The next piece of a request that contains `text` is held back, and its connection ends; until relay_forward_held
 * passes it on. */
void relay_hold_back(struct relay *relay, const char *text);
void relay_forward_held(struct relay *relay);
/* May change each piece of output of the server; NULL: none does. */
typedef void relay_forge_piece(void *arg, GString *piece);
void relay_forge(struct relay *relay, relay_forge_piece *forge, void *arg);

#endif
