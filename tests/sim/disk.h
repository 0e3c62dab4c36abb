/* disk: the disk of a local store.
 *
 * A disk is a directory of one host with its files.  It has the page cache of each, and what has reached the disk by a
 * sync or by chance.  When a daemon dies nothing is lost; when the host dies the page cache is.
 */
#ifndef TESTS_SIM_DISK_H
#define TESTS_SIM_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct disk;
struct disk_open;

/* The directory "/sim/INDEX". */
struct disk *disk_new(unsigned index);
/* `cut` is called in the middle of a write when disk_cut_at_write has asked for that; it does not return. */
void disk_on_cut(struct disk *disk, void (*cut)(void *arg), void *arg);

ssize_t disk_write(struct disk_open *file, const void *data, size_t size);
void disk_close(struct disk_open *file);

/* --- faults ------------------------------------------------------------------ */

/* All further writes that have room fail with `error`: ENOSPC, EIO; 0: none. */
void disk_fail_writes(struct disk *disk, int error);
void disk_fail_syncs(struct disk *disk, bool fail);
/* The next one takes only a part. */
void disk_shorten_write(struct disk *disk);
/* The next one does, whatever room it has: EINTR, ENOSPC. */
void disk_fail_next_write(struct disk *disk, int error);
/* The next one is done twice. */
void disk_double_write(struct disk *disk);
/* The daemon is killed in the middle of the next one but so many. */
void disk_cut_at_write(struct disk *disk, unsigned writes);
/* When what is on the platter was written, the last of it. */
int64_t disk_written(const struct disk *disk);
/* The host loses its power.  Of the writes since the last sync a part remains, or none: the first bytes, or any pages
 * of a file that was overwritten or written in memory.  Returns how many bytes are lost. */
size_t disk_lose_power(struct disk *disk);
/* A bit of the journal is another: of the last bytes, or anywhere. False: there is no journal. */
bool disk_flip(struct disk *disk, bool last);
/* Was a write doubled, or a bit flipped, since the last question? */
bool disk_was_damaged(struct disk *disk);
/* Nobody has a descriptor of it any more. */
void disk_forget_opens(struct disk *disk);
/* Moves the journal away, as an administrator does whom a message advises so. */
void disk_remove(struct disk *disk);

#endif
