/* private: shared by options.c and mount_option.c. */
#ifndef FS_OPTIONS_PRIVATE_H
#define FS_OPTIONS_PRIVATE_H

#include "fs/options/options.h"

struct options_parse {
    struct options *options;
    bool is_helper; /* called as mount.leasefs, by mount(8) */
    bool sloppy;    /* -s: unknown options are dropped */
    const char
        *only[1 << OPTIONS_KINDS]; /* for each set of kinds, the first option given that only they have; or NULL */
    const char *shown;             /* an option that mount tables show, which a remount may repeat; or NULL */
    char *error;
    size_t error_size;
};

/* Writes the error; returns -EINVAL. */
int options_fail(struct options_parse *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Parses one option of an -o list, with its backslashes.  0 or -EINVAL. */
int options_parse_mount_option(struct options_parse *p, const char *word);

/* Whether `word` turns into `name` by at most `edits` letters that are left out, added, changed or swapped; capitals
 * are small letters, and '-' is '_'. */
bool options_is_near(const char *word, const char *name, unsigned edits);

/* The -o option that is meant by a word that is none, as --help shows it, such as "ttl=TIME": a new string, or NULL. */
char *options_guess_mount_option(const char *word);

/* Adds an option for libfuse, escaped as in a list. */
int options_add_fuse(struct options_parse *p, const char *word);

#endif
