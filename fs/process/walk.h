/* walk: one look at every process, for the files of dead mounts that it has open.
 *
 * Reads /proc/PID/task/TID/fd, also of a process whose first thread has exited, and of
 * each thread that has a table of descriptors of its own (unshare(CLONE_FILES)).  Asks
 * no file system anything: statx with AT_STATX_DONT_SYNC and an empty mask.
 *
 * A process that ends while it is looked at may have forked.  So a walk makes passes until
 * one has looked into every process that it found and had not looked into before.
 *
 * If a file was not seen, the walk also looks for descriptors that are on their way
 * through a unix socket.
 *
 * Needs CAP_SYS_PTRACE for the processes of other users, and for those with more
 * capabilities.
 */
#ifndef FS_PROCESS_WALK_H
#define FS_PROCESS_WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct walk_file {
    uint64_t device, inode;
};
#define WALK_OTHER 0 /* as the inode: any file of that device that is not in the list */

/* A process that has file number `file` open, or, with WALK_UNSEEN, that could not be looked into. */
#define WALK_UNSEEN UINT32_MAX
struct walk_opener {
    uint32_t file;
    int32_t pid;
    uint32_t uid; /* effective; of an unseen one the owner of its /proc directory */
    uint32_t single_threaded;
};

struct walk_result {
    struct walk_opener *openers;
    size_t count;
    uint64_t processor_ns; /* processor time of the walk */
    uint32_t processes;    /* looked into, with `openers` */
    bool settled;          /* no process ended unlooked in the last pass */
    bool in_flight;        /* a descriptor may be on its way through a unix socket */
};

/* `files` is sorted by device and inode, without doubles.  `proc` is a descriptor of /proc.  0 or -errno; free with
 * walk_clear. */
int walk_processes(int proc, const struct walk_file *files, size_t count, struct walk_result *ret_result);
void walk_clear(struct walk_result *result);

/* Orders files, for qsort. */
int walk_compare_files(const void *a, const void *b);

#endif
