/* format: the format number of a store's data.
 *
 * The leasefs that makes a store writes the number into it, and every mount of a store across a network writes its own
 * number beside it.  Within one number, older and newer versions share the store: an older one ignores what a newer one
 * adds.  A change that an older one would misread takes the next number.  A daemon does not start on a store with a
 * higher number than it knows, or beside a mount that has none.
 */
#pragma once

#include <stdbool.h>

#include "config.h"

/* The error for a store with a higher number, for printf: the store, its number (unsigned), and the highest number that
 * this leasefs knows (unsigned). */
#define FORMAT_TOO_NEW                                                                                                 \
    "%s has format version %u, and leasefs " PACKAGE_VERSION                                                           \
    " knows format versions up to %u: upgrade leasefs on this host"
/* The same beside a mount without a number, for printf: the store, and what names that mount. */
#define FORMAT_MISSING                                                                                                 \
    "%s is in use by %s of a leasefs older than 1.0.0, which would grant the same locks: unmount it, or upgrade "      \
    "leasefs on its host, before this mount"

/* How a mount of this leasefs describes itself to a store: "NUMBER VERSION HOST".  A new string. */
char *format_describe_mount(unsigned number);
/* The number of such a description; 0: it is none. */
unsigned format_read_number(const char *text);
