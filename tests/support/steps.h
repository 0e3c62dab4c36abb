/* steps: counts the steps of a call, so that a test can say how they grow with the number of tickets.
 *
 * A step is a basic block.  The program's objects are compiled with -fsanitize-coverage=trace-pc: the compiler calls
 * __sanitizer_cov_trace_pc at each.  So each loop counts, and time does not.  Libraries are not counted.
 */
#ifndef TESTS_SUPPORT_STEPS_H
#define TESTS_SUPPORT_STEPS_H

#include <stdint.h>

/* All so far. */
uint64_t steps_now(void);

/* What a search in a tree takes, at most, beside ten thousand tickets more than beside ten. */
#define STEPS_EXTRA 4000

#endif
