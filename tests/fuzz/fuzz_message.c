/* fuzz_message: an input decides what happens in a world of kernel messages; see fuzz_world.h. */
#include "backend/backend.h"
#include "tests/fuzz/fuzz.h"
#include "tests/message/fuzz_world.h"

static uint32_t pick(void *arg, uint32_t below)
{
    return fuzz_below(arg, below);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_bytes bytes = {data, size};
    fuzz_world_new(fuzz_below(&bytes, 2) ? BACKEND_SOLE_AUTHORITY : 0, pick, &bytes);
    while (bytes.left > 0) {
        fuzz_world_step();
    }
    fuzz_world_end();
    fuzz_world_free();
    return 0;
}
