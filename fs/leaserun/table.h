/* table: what .leasefs/locks and .leasefs/waiters of a mount tell. */
#ifndef FS_LEASERUN_TABLE_H
#define FS_LEASERUN_TABLE_H

#include <stddef.h>

/* Texts are escaped, as the mount writes them (leaserun_text_unescape). */
struct leaserun_row {
    char *line; /* what the texts are parts of */
    const char *name, *kind, *mode, *host, *command;
    long pid;
    long uid;
    double age;       /* seconds: held, or waiting for so long */
    double remaining; /* of a lock, seconds; -1: not told */
    unsigned waiters; /* of a lock */
    unsigned place;   /* of a waiter; 0: not told */
};

struct leaserun_table {
    struct leaserun_row *rows;
    size_t count;
};

/* Of the mount whose root is `root`.  -errno; nothing is to be freed then. */
int leaserun_table_locks(struct leaserun_table *table, const char *root);
int leaserun_table_waiters(struct leaserun_table *table, const char *root);
void leaserun_table_free(struct leaserun_table *table);

#endif
