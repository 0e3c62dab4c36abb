/* crc32c: the Castagnoli checksum (RFC 3720, appendix B.4), with the processor's
 * instruction where there is one. */
#ifndef BACKEND_CRC32C_H
#define BACKEND_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* The checksum of `data` continued from that of what came before it (0 at
 * first). */
uint32_t crc32c(uint32_t before, const void *data, size_t length);

/* The same without the instruction: for processors that lack it, and to test
 * one against the other. */
uint32_t crc32c_portable(uint32_t before, const void *data, size_t length);

#endif
