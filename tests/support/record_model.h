/* record_model: a store of records in memory, for one process with several mounts; see backend/record/store.h.
 *
 * Each mount has a link, which may be slow, lose answers, stop, or be cut.  A frozen server carries
 * out late what was sent on a link that stopped, also if the mount has given its connection up since.
 */
#ifndef TESTS_SUPPORT_RECORD_MODEL_H
#define TESTS_SUPPORT_RECORD_MODEL_H

#include "backend/record/store.h"

struct model;      /* the server */
struct model_link; /* of a mount; valid as long as its store, or the model if that is freed first */

struct model *model_new(void);
void model_free(struct model *model);
/* A store for engine_new.  `timeout` in ms: a request without an answer for so long ends the connection. */
struct store *model_store(struct model *model, int64_t timeout, struct model_link **ret_link);

/* --- faults --- */

void link_be_slow(struct model_link *link, int64_t ms);
/* Requests are carried out, and what is answered is lost. */
void link_be_deaf(struct model_link *link);
/* Requests and messages are held back; answers that are on their way arrive. */
void link_be_mute(struct model_link *link);
/* The next answer is lost, and the connection with it. */
void link_lose_next(struct model_link *link);
void link_stop(struct model_link *link);
/* Ends both of these faults: slow and stopped. */
void link_continue(struct model_link *link);
/* Carries out what was sent on links that stopped, and whose connections have ended since. */
void model_run_late(struct model *model);
/* Cuts the connection; `closed`: there is no new one until this is called without. */
void link_cut(struct model_link *link, bool closed);
bool link_is_up(const struct model_link *link);

/* So many of 1000 messages are lost. */
void model_lose_messages(struct model *model, unsigned permille, uint32_t seed);
/* Steps the store's clock. */
void model_step_clock(struct model *model, int64_t ms);
/* Restarts it: heartbeats are gone, and all connections; `empty`: all data. */
void model_restart(struct model *model, bool empty);
/* Requests of each connection are answered with AGAIN so often. */
void model_answer_again(struct model *model, unsigned times);
/* No value may be written that makes more than so many. */
void model_set_room(struct model *model, unsigned values);

/* --- another client --- */

/* False: the key is there. */
bool model_foreign_take(struct model *model, const char *name, int64_t ttl);
void model_foreign_release(struct model *model, const char *name);

/* --- questions --- */

/* Values in the space; names that are free have none. */
unsigned model_count(const struct model *model, enum store_space space);
/* Requests that were carried out. */
uint64_t model_requests(const struct model *model);
uint64_t model_changes(const struct model *model);
clock_ms model_now(const struct model *model);

#endif
