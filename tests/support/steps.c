/* steps: see steps.h.  This file is compiled without that option. */
#include "tests/support/steps.h"

static uint64_t steps;

void __sanitizer_cov_trace_pc(void);

void __sanitizer_cov_trace_pc(void)
{
    steps++;
}

uint64_t steps_now(void)
{
    return steps;
}
