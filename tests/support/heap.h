/* heap: counts allocated bytes, for tests of the cost of a structure. */
#ifndef TESTS_SUPPORT_HEAP_H
#define TESTS_SUPPORT_HEAP_H

#include <malloc.h>
#include <stddef.h>

/* Only without a sanitizer, which has a heap of its own, and with a C library that counts in size_t. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !__GLIBC_PREREQ(2, 33)
#define HEAP_IS_MEASURED 0
static inline size_t heap_bytes(void)
{
    return 0;
}
#else
#define HEAP_IS_MEASURED 1
static inline size_t heap_bytes(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}
#endif

#endif
