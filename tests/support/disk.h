/* disk: a disk that fails on demand, and knows what a power cut would leave.
 *
 * For programs that are linked with disk_wraps of Makefile.am: their calls on files, from any thread, go through here,
 * and so do getrandom and pthread_create.
 */
#ifndef TESTS_SUPPORT_DISK_H
#define TESTS_SUPPORT_DISK_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum disk_call {
    DISK_WRITE,
    DISK_SYNC, /* fdatasync and fsync */
    DISK_ROOM, /* fallocate */
    DISK_OPEN,
    DISK_OPENAT,
    DISK_LOCK, /* flock */
    DISK_PREAD,
    DISK_PWRITE,
    DISK_STAT, /* fstat */
    DISK_STATAT,
    DISK_TRUNCATE,
    DISK_RENAME,
    DISK_RANDOM,
    DISK_THREAD, /* pthread_create */
    DISK_CALLS
};

/* The next call of this kind but `skip` fails with `number`, once, or `before` runs
 * before it, where that is not NULL.  A write of `number` 0 takes half of its bytes. */
void disk_plan(enum disk_call call, unsigned skip, int number, void (*before)(void));

/* Forgets what is planned; true if it has happened, all of it. */
bool disk_happened(void);

/* All writes fail with `number` from now on; 0: none does. */
void disk_fail_writes(int number);

/* No write takes more than so many bytes; 0: any number. */
void disk_shorten_writes(size_t at_most);

/* All further reservations of room fail with `number`: ENOSPC for a full disk, EOPNOTSUPP for one that cannot reserve;
 * 0: none. */
void disk_fail_room(int number);

/* Syncs of this inode (0: of all) fail with `number`; 0: none does. */
void disk_fail_syncs(int number, ino_t inode);

/* Syncs begun from now on do not return until this is called with false. */
void disk_hold_syncs(bool hold);

/* From now on remembers, at each sync that succeeds, what the file held before
 * it, and of a directory the inode of the file `name` in it. */
void disk_remember(const char *name);

/* What a power cut would leave of an inode (a new reference, NULL if it was
 * never synced), and which inode would have the name. */
GBytes *disk_durable(ino_t inode);
ino_t disk_durable_name(void);

#endif
