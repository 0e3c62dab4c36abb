/* pack: values as MessagePack; see pack.h. */
#include "backend/redis/pack.h"

#include <string.h>

#define MAP 0xde
#define ARRAY 0xdc
#define TEXT_SHORT 0xa0 /* and the length, below 32 */
#define TEXT 0xdb
#define NUMBER 0xcc /* not negative, of one byte; of 2, 4 and 8 bytes the next ones */
#define NEGATIVE 0xd3
#define TRUE_VALUE 0xc3

/* A byte, and the last `size` bytes of a number, the highest first. */
static void pack_head(GByteArray *to, uint8_t byte, uint64_t number, size_t size)
{
    uint64_t big = GUINT64_TO_BE(number);
    g_byte_array_append(to, &byte, 1);
    g_byte_array_append(to, (const guint8 *)&big + sizeof big - size, (guint)size);
}

void pack_text(GByteArray *to, const void *text, size_t length)
{
    if (length < 32) {
        pack_head(to, (uint8_t)(TEXT_SHORT + length), 0, 0);
    } else {
        pack_head(to, TEXT, length, 4);
    }
    g_byte_array_append(to, text, (guint)length);
}

/* As cmsgpack packs it: scripts compare packed values. */
void pack_number(GByteArray *to, int64_t number)
{
    if (number < 0) {
        pack_head(to, NEGATIVE, (uint64_t)number, 8);
    } else if (number < 128) {
        pack_head(to, (uint8_t)number, 0, 0);
    } else {
        unsigned power = number <= UINT8_MAX ? 0 : number <= UINT16_MAX ? 1 : number <= UINT32_MAX ? 2 : 3;
        pack_head(to, (uint8_t)(NUMBER + power), (uint64_t)number, (size_t)1 << power);
    }
}

void pack_true(GByteArray *to)
{
    pack_head(to, TRUE_VALUE, 0, 0);
}

void pack_map(GByteArray *to)
{
    pack_head(to, MAP, 0, 2);
}

void pack_array(GByteArray *to)
{
    pack_head(to, ARRAY, 0, 2);
}

void pack_count(GByteArray *to, guint begin, guint count)
{
    to->data[begin + 1] = (guint8)(count >> 8);
    to->data[begin + 2] = (guint8)count;
}
