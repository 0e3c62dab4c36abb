/* fake_redis: a Redis server whose faults a check sets, on the check's loop.
 *
 * It answers the first requests of a connection, and any other command with the number of such commands so far; a rule
 * may set another answer.
 */
#ifndef TESTS_UNIT_FAKE_REDIS_H
#define TESTS_UNIT_FAKE_REDIS_H

#include <glib.h>
#include <limits.h>
#include <stdint.h>

struct ev_loop;
struct fake_redis;

/* What a rule may do besides sending the bytes of a reply. */
extern const char FAKE_REDIS_SILENT[]; /* no answer to this and any later command on this connection */
extern const char FAKE_REDIS_LATE[];   /* no answer; it comes with another rule's bytes */
extern const char FAKE_REDIS_CLOSE[];  /* ends the connection */
extern const char FAKE_REDIS_RESET[];  /* the same with RST */
extern const char FAKE_REDIS_HALF[];   /* half of the usual answer, then the end */

struct fake_redis *fake_redis_new(struct ev_loop *loop);
void fake_redis_free(struct fake_redis *fake);
uint16_t fake_redis_port(const struct fake_redis *fake); /* of 127.0.0.1 */

/* The next `times` commands that begin with `prefix` are answered so; rules that
 * were made first are used first.  Texts are borrowed. */
#define FAKE_REDIS_ALWAYS UINT_MAX
void fake_redis_rule(struct fake_redis *fake, const char *prefix, const char *answer, unsigned times);
/* There are none any more. */
void fake_redis_behave(struct fake_redis *fake);

/* The commands since the last fake_redis_clear that are not of a set-up, in order,
 * over all connections, with semicolons between; borrowed until the next call. */
const char *fake_redis_commands(struct fake_redis *fake);
void fake_redis_clear(struct fake_redis *fake);

/* Writes to the connections that have subscribed. */
void fake_redis_push(struct fake_redis *fake, const char *bytes);
/* Writes to the others: what was FAKE_REDIS_LATE. */
void fake_redis_say(struct fake_redis *fake, const char *bytes);

/* How many connections were made, and how many reads brought something. */
unsigned fake_redis_connections(const struct fake_redis *fake);
unsigned fake_redis_reads(const struct fake_redis *fake);
/* How many ended so that what was on its way is lost (RST). */
unsigned fake_redis_resets(const struct fake_redis *fake);

#endif
