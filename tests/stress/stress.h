/* stress: shared by the stress programs: time, seeded randomness, memory shared with children, attributes of locks. */
#ifndef TESTS_STRESS_STRESS_H
#define TESTS_STRESS_STRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define STRESS_MS 1000000LL
#define STRESS_SECOND 1000000000LL

/* Nanoseconds of CLOCK_MONOTONIC, the same for all processes. */
int64_t stress_now(void);
void stress_sleep(int64_t ns);

/* Prints to stderr and exits with status 1. */
_Noreturn void stress_die(const char *format, ...) __attribute__((format(printf, 1, 2)));

struct stress_random {
    uint64_t state;
};

struct stress_random stress_seed(uint64_t seed, uint64_t stream);
uint32_t stress_below(struct stress_random *random, uint32_t limit);
bool stress_chance(struct stress_random *random, uint32_t percent);

/* Zeroed memory, the same for all processes forked later. */
void *stress_share(size_t size);

/* A child that dies with its parent.  0 in the child. */
pid_t stress_fork(void);
/* Waits at most that long for a child; true if it has ended (`ret_status` may be NULL). */
bool stress_wait(pid_t child, int64_t ns, int *ret_status);

/* The number that user.lease.NAME reads as; -errno if it cannot be read. */
int64_t stress_attribute(const char *path, const char *name);

/* A lease that a client left in its first second is ours, its ancestor's: it is given back.  False if `name`, below
 * the mount, is not such a one. */
bool stress_give_back(const char *mount, const char *name);
/* Prints that `name` is still held, and by whom. */
void stress_print_left(const char *mount, const char *name);

/* The queue "qN" of width N; dies if it cannot be there. */
void stress_make_queue(const char *directory, int width);

#endif
