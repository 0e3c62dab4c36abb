/* file: one file of records; see journal.h for its format.
 *
 * What the files of the journal share, and nobody else includes.  From the top
 * to the ground; a file calls only those below it:
 *
 * directory.c  the state directory: opens and closes the journal
 * compact.c    replaces the journal by a shorter one
 * journal.c    takes records and syncs them
 * file.c       one file of records
 * mark.c       how much of it is surely on the disk
 * map.c        its end, in memory
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

#define JOURNAL_PID_SIZE 16   /* of the lock file, for the process; its marks are behind */
#define JOURNAL_LOCK_SIZE 272 /* with two marks */

#define LOCK_NAME "lock"
#define JOURNAL_NAME "journal"
#define JOURNAL_NEW_NAME "journal.new"

/* A window on a file, from a page's start. */
struct journal_map {
    uint8_t *base;              /* NULL: there is none */
    uint64_t offset;            /* in the file, of its first byte, */
    uint64_t end;               /* and behind its last */
    volatile sig_atomic_t lost; /* the filesystem could not back it */
};

/* Maps the bytes from `from` to `end`; the file must be that long.  0 or -errno. */
int journal_map_open(struct journal_map *map, int fd, uint64_t from, uint64_t end);

/* Copies to offset `at` of the file.  0, or -EIO if the filesystem could not take it; never again after that. */
int journal_map_copy(struct journal_map *map, uint64_t at, const void *data, size_t length);

void journal_map_close(struct journal_map *map);

/* How much of a file is surely on the disk. */
struct journal_mark {
    int fd;           /* the lock file */
    const char *boot; /* the host's boot id now; "": not known */
    uint32_t salt;    /* the file's */
    unsigned slot;    /* which of the two lines */
    uint64_t synced;  /* bytes */
    bool found;       /* there is one of this file: only then may there be zeros behind the last record */
    bool rebooted;    /* and it was made in another boot */
};

/* Fills in slot, synced, found and rebooted.  0 or -errno. */
int journal_mark_read(struct journal_mark *mark);

/* Writes it over the one in its slot.  0 or -errno. */
int journal_mark_write(const struct journal_mark *mark);

struct journal_file {
    int fd;            /* -1: there is none */
    uint32_t salt;     /* of this file's checksums: user data cannot look like a record */
    uint32_t chain;    /* checksum of the last record appended */
    uint64_t sequence; /* of the last record appended */
    uint64_t size;     /* bytes of header and records; the file itself is longer, by zeros, while it is mapped */
    uint64_t room;     /* bytes of the file, from its beginning, that have their place on the disk; 0: not asked for */
    uint32_t written_chain; /* both as of the last record written */
    uint64_t written_sequence;
    GByteArray *batch; /* appended and not yet written */
    struct journal_mark mark;
    bool mappable;          /* its mark is on the disk: records may be written in memory */
    struct journal_map map; /* where they are */
};

/* Creates a file with nothing but its header in it.  0 or -errno. */
int journal_file_create(struct journal_file *file, int directory, const char *name);

/* Reads all records of file->fd and leaves `file` ready to append; a torn tail
 * is cut off.  file->mark has the lock file and the boot id.  0, or -errno with a
 * line in `error` that begins with `path`. */
int journal_file_read(struct journal_file *file, const char *path, journal_replay *replay, void *arg, uint64_t *ret_cut,
                      char *error, size_t error_size);

int journal_file_append(struct journal_file *file, uint8_t type, const void *payload, size_t length);

/* Writes the batch: in memory if the file is mappable and has room, else with
 * write(2).  After an error the batch is dropped and the file as it was before; if
 * that cannot be, the error is not one of a full disk. */
int journal_file_commit(struct journal_file *file);

/* Gives up the room behind the last record, with the zeros in it.  0 or -errno. */
int journal_file_give_room_back(struct journal_file *file);

/* Takes room on the disk for so many bytes beyond the batch.  0 or -errno. */
int journal_file_make_room(struct journal_file *file, uint64_t bytes);

/* Whether room may be there again later: ENOSPC, EDQUOT. */
bool journal_is_full(int error);

enum journal_compaction {
    JOURNAL_COMPACT_NONE,
    JOURNAL_COMPACT_COPYING, /* records go to both files */
    JOURNAL_COMPACT_SYNCING, /* the new file is complete, the thread is to sync it */
    JOURNAL_COMPACT_READY,   /* and has; or compact_error says why not */
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
    atomic_uint_fast64_t committed_size; /* bytes of `file`, as of that or later */
    atomic_uint_fast64_t synced;
    atomic_int failed; /* the errno that ended the journal */
    uint64_t spare;    /* room to be kept behind what is written */
    bool roomless;     /* the filesystem cannot give room ahead */

    pthread_t thread;
    bool threaded;           /* the thread runs */
    pthread_mutex_t mutex;   /* for all below, and for the fds against the thread */
    pthread_cond_t work;     /* the thread waits here */
    pthread_cond_t progress; /* journal_sync_wait waits here */
    bool stop;
    uint64_t wanted;      /* sync at least up to here */
    bool directory_dirty; /* a rename is not yet safe */
    enum journal_compaction compaction;
    uint64_t compactions;             /* how many have begun */
    struct journal_mark compact_mark; /* of the new file, when it was complete */
    bool compact_marked;              /* that is on the disk */
    int compact_error;
    GArray *retired; /* fds for the thread to close, once it does not use them */
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
