/* scratch: directories and files for the checks of stores on disk. */
#ifndef TESTS_SUPPORT_SCRATCH_H
#define TESTS_SUPPORT_SCRATCH_H

#include <glib.h>
#include <stdint.h>

#include "backend/journal/journal.h"

/* A new empty directory (under TMPDIR or /tmp); scratch_free removes it with
 * the files in it and its sub-directories. */
char *scratch_new(void);
void scratch_free(char *directory);

/* Whole files; a failure ends the check. */
GBytes *scratch_read(const char *directory, const char *name);
void scratch_write(const char *directory, const char *name, const void *data, size_t length);

/* A new directory with copies of the regular files of this one. */
char *scratch_copy(const char *directory);

/* The seed for random checks: CHECK_SEED, or else from the clock; printed. */
uint32_t scratch_seed(void);

/* Records read back: appends each as type byte + payload (GBytes) to the
 * GPtrArray `arg`. */
int scratch_collect(void *arg, uint8_t type, const void *payload, size_t length);
GPtrArray *scratch_records(void);

#endif
