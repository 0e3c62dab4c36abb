/* duration: parses times in options of leasefs and leaserun. */
#ifndef FS_OPTIONS_DURATION_H
#define FS_OPTIONS_DURATION_H

#include <stddef.h>
#include <stdint.h>

#define DURATION_MAX (10LL * 365 * 24 * 3600 * 1000) /* ten years, in milliseconds */

/* "500ms", "30s", "5m", "1h", "2d" or plain seconds (decimals allowed) to
 * milliseconds; -EINVAL when malformed, -ERANGE over DURATION_MAX. */
int duration_parse(const char *text, size_t length, int64_t *ret_ms);

#endif
