/* twin: a real redis-server and a redis_model that are told the same, at the same
 * time, and must say the same.
 *
 * The server's clock stands still but for twin_pass and twin_step (still_clock.c is
 * preloaded into it), and it deletes keys that have expired only when it meets them,
 * as a model does that is not told to work.  What differs ends the check, with the
 * commands that led there.
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
/* What it was sent: set by the caller, who is told; NULL: nobody. */
void twin_listen(struct twin *twin, void (*told)(void *arg, const char *data, size_t length), void *arg);

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
