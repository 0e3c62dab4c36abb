/* fuzz: shared by the fuzz targets.
 *
 * A target is a program with LLVMFuzzerTestOneInput.  `make fuzz` builds them with clang's libFuzzer, which makes
 * inputs. In any other build driver.c runs the stored inputs of corpus/, so that every failure that was found once is
 * tested again.
 */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What must be so, whatever the input. */
#define FUZZ_MUST(condition)                                                                                           \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

/* An input as a source of numbers; 0 when it is used up. */
struct fuzz_bytes {
    const uint8_t *data;
    size_t left;
};

static inline uint32_t fuzz_byte(struct fuzz_bytes *bytes)
{
    if (bytes->left == 0) {
        return 0;
    }
    bytes->left--;
    return *bytes->data++;
}

static inline uint32_t fuzz_below(struct fuzz_bytes *bytes, uint32_t below)
{
    uint32_t number = fuzz_byte(bytes);
    for (uint32_t most = below - 1; most > 0xff; most >>= 8) {
        number = number << 8 | fuzz_byte(bytes);
    }
    return number % below;
}

#endif
