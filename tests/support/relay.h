/* relay: a proxy between mounts and their servers, on the check's loop: the faults of a network, or of a server, for
 * the mounts that it leads. */
#ifndef TESTS_SUPPORT_RELAY_H
#define TESTS_SUPPORT_RELAY_H

#include <stdint.h>

struct ev_loop;

/* A port of 127.0.0.1 that leads to that one; until relay_end. */
uint16_t relay_to(struct ev_loop *loop, uint16_t port);
void relay_end(void);
/* From now on requests are passed on, and what is answered is lost. */
void relay_be_deaf(void);
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

#endif
