/* table: reads .leasefs/locks and .leasefs/waiters of a mount. */
#ifndef FS_LEASERUN_TABLE_H
#define FS_LEASERUN_TABLE_H

#include <stddef.h>

/* Strings are escaped, as the mount writes them (leaserun_text_unescape). */
struct leaserun_row {
    char *line; /* which the strings point into */
    const char *name, *kind, *mode, *host, *command, *note;
    long pid;
    long uid;
    double age;        /* seconds that it holds or waits */
    double remaining;  /* of a lock, seconds; -1: unknown */
    unsigned waiters;  /* of a lock */
    unsigned position; /* of a waiter; 0: unknown */
    size_t number;     /* the line's number in the table */
};

struct leaserun_table {
    struct leaserun_row *rows;
    size_t count;
};

/* `root`: the mount's root.  0 or -errno; there is nothing to free then. */
int leaserun_table_locks(struct leaserun_table *table, const char *root);
int leaserun_table_waiters(struct leaserun_table *table, const char *root);
void leaserun_table_free(struct leaserun_table *table);

#endif
