/* file: one file of records; see journal.h for its format.
 *
 * Only the files of the journal include this.  Each calls only those below it:
 *
 * directory.c  the state directory: opens and closes the journal
 * compact.c    replaces the journal by a shorter one
 * journal.c    appends records and syncs them
 * file.c       one file of records
 * mark.c       records how much of a file is synced
 * map.c        the end of a file, mapped to memory
 */
#ifndef BACKEND_JOURNAL_FILE_H
#define BACKEND_JOURNAL_FILE_H

#include <glib.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "backend/journal/journal.h"

#define JOURNAL_HEADER_SIZE 20 /* magic, version, salt, crc32c */
#define JOURNAL_BODY_MIN 9     /* type and sequence */
#define JOURNAL_RECORD_MIN 17  /* with length and checksum */
#define JOURNAL_BODY_MAX (16U * 1024 * 1024)

#define JOURNAL_PID_SIZE 16   /* the lock file begins with the daemon's pid */
#define JOURNAL_LOCK_SIZE 272 /* and two marks follow */

#define LOCK_NAME "lock"
#define JOURNAL_NAME "journal"
#define JOURNAL_NEW_NAME "journal.new"

/* A part of a file in memory; it begins at a page. */
struct journal_map {
    uint8_t *base;              /* NULL: nothing is mapped */
    uint64_t offset;            /* of its first byte in the file */
    uint64_t end;               /* offset behind its last byte */
    volatile sig_atomic_t lost; /* the filesystem could not back a page */
};

/* Maps the bytes from `from` to `end`; the file must be that long.  0 or -errno. */
int journal_map_open(struct journal_map *map, int fd, uint64_t from, uint64_t end);

/* Copies to offset `at` of the file.  0, or -EIO if the filesystem could not back a page; then close the map. */
int journal_map_copy(struct journal_map *map, uint64_t at, const void *data, size_t length);

void journal_map_close(struct journal_map *map);

/* How much of a file is synced. */
struct journal_mark {
    int fd;           /* the lock file */
    const char *boot; /* the host's boot id now; "": not known */
    uint32_t salt;    /* the file's */
    unsigned slot;    /* which of the two lines */
    uint64_t synced;  /* bytes */
    bool found;       /* the lock file has a mark of this file: only then may zeros follow the last record */
    bool rebooted;    /* the mark was made in another boot */
};

/* Fills in slot, synced, found and rebooted.  0 or -errno. */
int journal_mark_read(struct journal_mark *mark);

/* Overwrites the mark in its slot.  0 or -errno. */
int journal_mark_write(const struct journal_mark *mark);

struct journal_file {
    int fd;                 /* -1: none */
    uint32_t salt;          /* random, part of each checksum: user data cannot look like a record */
    uint32_t chain;         /* checksum of the last record appended */
    uint64_t sequence;      /* of the last record appended */
    uint64_t size;          /* bytes of header and records; while the file is mapped, zeros follow */
    uint64_t room;          /* bytes of the file for which the disk has reserved blocks; 0: none */
    bool grown;             /* the file is longer than its records: zeros, for the mapping */
    uint32_t written_chain; /* of the last record written */
    uint64_t written_sequence;
    GByteArray *batch; /* appended and not yet written */
    struct journal_mark mark;
    bool mappable; /* its mark is on the disk, so records may be written in memory */
    struct journal_map map;
};

/* Creates a file that has only a header.  0 or -errno. */
int journal_file_create(struct journal_file *file, int directory, const char *name);

/* Reads all records of file->fd, cuts off a torn tail, and makes `file` ready to
 * append.  The caller sets the fd and boot id of file->mark.  0, or -errno with a
 * line in `error` that begins with `path`. */
int journal_file_read(struct journal_file *file, const char *path, journal_replay *replay, void *arg, uint64_t *ret_cut,
                      char *error, size_t error_size);

int journal_file_append(struct journal_file *file, uint8_t type, const void *payload, size_t length);

/* Writes the batch: in memory if the file is mappable and has room, else with
 * write(2).  0 or -errno.  If the disk is full the batch is dropped, and the file is
 * as it was before; after any other error the file's end is not known. */
int journal_file_commit(struct journal_file *file);

/* Cuts off what is behind the last record; `kept` bytes of the room there stay reserved.  0 or -errno. */
int journal_file_give_room_back(struct journal_file *file, uint64_t kept);

/* Reserves room on the disk for so many bytes after the batch.  0 or -errno. */
int journal_file_make_room(struct journal_file *file, uint64_t bytes);

/* Is this an error of a full disk: ENOSPC or EDQUOT? */
bool journal_is_full(int error);

enum journal_compaction {
    JOURNAL_COMPACT_NONE,
    JOURNAL_COMPACT_COPYING, /* records go to both files */
    JOURNAL_COMPACT_SYNCING, /* the new file is complete, and the thread syncs it */
    JOURNAL_COMPACT_READY,   /* it is synced, or compact_error is set */
};

struct journal {
    char *path; /* of the directory, for messages */
    char *boot; /* the host's boot id */
    int directory;
    int lock;
    struct journal_file file;
    struct journal_file next; /* the file that compaction writes */
    uint64_t appended;        /* sequence of the last record appended, over all files */
    atomic_uint_fast64_t committed;
    atomic_uint_fast64_t committed_size; /* bytes of `file` then or later */
    atomic_uint_fast64_t synced;
    atomic_int failed; /* the errno that ended the journal */
    uint64_t spare;    /* room to reserve behind the records */
    bool roomless;     /* the filesystem cannot reserve room */

    pthread_t thread;
    bool threaded;           /* the thread runs */
    pthread_mutex_t mutex;   /* guards the fields below, and closing of fds that the thread uses */
    pthread_cond_t work;     /* the thread waits here */
    pthread_cond_t progress; /* journal_sync_wait waits here */
    bool stop;
    uint64_t wanted;      /* sync at least up to here */
    bool directory_dirty; /* a rename is not synced yet */
    enum journal_compaction compaction;
    uint64_t compactions;             /* how many have begun */
    struct journal_mark compact_mark; /* of the new file, when it was complete */
    bool compact_marked;              /* that mark is on the disk */
    int compact_error;
    GArray *retired; /* fds that the thread closes in its next round */
    void (*on_synced)(void *arg);
    void *on_synced_arg;
};

/* Fails the journal for good.  Returns -error. */
int journal_fail(struct journal *j, int error);

/* Starts the thread if it does not run yet; call with the mutex held. */
int journal_need_thread(struct journal *j);

/* Closes an fd when the thread no longer uses it; call with the mutex held. */
void journal_retire(struct journal *j, int fd);

#endif
