/* format: the format number of a store's data.
 *
 * The leasefs that makes a store writes the number into it.  Within one number, older and newer versions share the
 * store: an older one ignores what a newer one adds.  A change that an older one would misread takes the next number.
 */
#pragma once

#include "config.h"

/* The error for a store with a higher number, for printf: the store, its number (unsigned), and the highest number that
 * this leasefs knows (unsigned). */
#define FORMAT_TOO_NEW                                                                                                 \
    "%s has format version %u, and leasefs " PACKAGE_VERSION                                                           \
    " knows format versions up to %u: upgrade leasefs on this host"
