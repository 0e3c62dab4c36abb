/* fuzz_world: messages in a world, selected by a source of numbers.
 *
 * It sends valid and mangled requests, and makes late, reordered and failing answers, interrupts, deaths, expiry and
 * locks of other mounts.  Every request that must have an answer gets exactly one; the sanitizers watch the rest.
 *
 * It keeps the promises of the kernel: node ids and file handles are valid and of the right type, and nothing is
 * released or forgotten that a request still uses.  There is one world at a time.
 */
#ifndef TESTS_MESSAGE_FUZZ_WORLD_H
#define TESTS_MESSAGE_FUZZ_WORLD_H

#include <stdint.h>

/* A number from 0 on that is less than `below`. */
typedef uint32_t fuzz_pick(void *arg, uint32_t below);

/* `features` of enum backend_feature, besides ranges and sequences. */
void fuzz_world_new(unsigned features, fuzz_pick *pick, void *arg);
/* One message, or something else that happens, and a move of the world. */
void fuzz_world_step(void);
/* All that is waited for comes, and all is closed: what must be so then is checked. */
void fuzz_world_end(void);
void fuzz_world_free(void);

#endif
