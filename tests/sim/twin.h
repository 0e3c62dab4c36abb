/* twin: a real redis-server and a redis_model that get the same input at the same time, and must give the same answers.
 *
 * The server's clock (still_clock.c) moves only by twin_pass and twin_step, and the server deletes expired keys only
 * when it meets them, like the model.  A difference ends the check, with the commands that led to it.
 */
#ifndef TESTS_SIM_TWIN_H
#define TESTS_SIM_TWIN_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

#include "tests/sim/redis_model.h"

struct redis_server;

extern struct redis_model *twin_model;

/* Arguments of a server that can be one, and what must be in its environment meanwhile. */
extern const char *const twin_arguments[];
void twin_before_start(void);
/* Begins, with a server that has begun with those.  The caller frees it behind the end. */
void twin_begin(struct redis_server *server);
void twin_end(void);

void twin_pass(int64_t us);
/* Both clocks are stepped. */
void twin_step(int64_t us);

/* A connection to both. */
struct twin;
struct twin *twin_connect(void);
void twin_close(struct twin *twin);
/* Sets the caller's function for messages; NULL: none. */
void twin_listen(struct twin *twin, void (*on_message)(void *arg, const char *data, size_t length), void *arg);

/* Of a word; strings may have any bytes. */
struct twin_word {
    const char *data;
    size_t length;
};
/* Says it to both, and compares what they say, on this connection and on all others.  The server's reply is valid until
 * the next call. */
const GString *twin_say(struct twin *twin, const struct twin_word *words, size_t count);
/* Of words up to a NULL. */
const GString *twin_do(struct twin *twin, ...) __attribute__((sentinel));
/* A state that both are put in. */
void twin_set(enum redis_model_state state, bool on);

/* All that is at the keys of database 0. */
void twin_compare_keys(void);

/* How many were compared. */
uint64_t twin_commands(void);

#endif
