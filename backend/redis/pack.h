/* pack: values as MessagePack, which scripts read with cmsgpack.unpack.
 *
 * A map or an array says how many values follow, so the count of one that is still
 * growing is written last: pack_count at the place where it began.
 */
#ifndef BACKEND_REDIS_PACK_H
#define BACKEND_REDIS_PACK_H

#include <glib.h>
#include <stdint.h>

void pack_text(GByteArray *to, const void *text, size_t length);
void pack_number(GByteArray *to, int64_t number);
void pack_true(GByteArray *to);
/* Begin with a count of 0. */
void pack_map(GByteArray *to);
void pack_array(GByteArray *to);
/* Of the map (its pairs) or array that begins at that byte; below 65,536. */
void pack_count(GByteArray *to, guint begin, guint count);

#endif
