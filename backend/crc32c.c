/* crc32c: the Castagnoli checksum, by SSE4.2 or half a byte at a time.
 *
 * Records are short, so the table is kept small (64 bytes) rather than quick.
 */
#include "backend/crc32c.h"

#include <string.h>

uint32_t crc32c_portable(uint32_t before, const void *data, size_t length)
{
    /* remainders of the sixteen half bytes for the reflected polynomial 0x82f63b78 */
    static const uint32_t table[16] = {
        0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
        0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9, 0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
    };
    const uint8_t *bytes = data;
    uint32_t crc = ~before;
    for (size_t i = 0; i < length; i++) {
        crc ^= bytes[i];
        crc = crc >> 4 ^ table[crc & 15];
        crc = crc >> 4 ^ table[crc & 15];
    }
    return ~crc;
}

#ifdef __x86_64__
#include <nmmintrin.h>

__attribute__((target("sse4.2"))) static uint32_t crc32c_sse42(uint32_t before, const void *data, size_t length)
{
    const uint8_t *bytes = data;
    uint64_t crc = ~before;
    for (; length >= 8; bytes += 8, length -= 8) {
        uint64_t word;
        memcpy(&word, bytes, 8);
        crc = _mm_crc32_u64(crc, word);
    }
    while (length--) {
        crc = _mm_crc32_u8((uint32_t)crc, *bytes++);
    }
    return ~(uint32_t)crc;
}
#endif

uint32_t crc32c(uint32_t before, const void *data, size_t length)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("sse4.2")) {
        return crc32c_sse42(before, data, length);
    }
#endif
    return crc32c_portable(before, data, length);
}
