/* journal: an append-only file that survives its writer.
 *
 * A state directory (0700, one daemon at a time by flock on DIR/lock) holds
 * DIR/journal: a header and then records
 *
 *     u32 length   of type + sequence + payload
 *     u8  type     1..255
 *     u64 sequence one more than the record before; 1 is the file's first
 *     payload
 *     u32 crc32c   of length, type, sequence and payload, seeded with the
 *                  checksum of the record before (the chain) xor a random
 *                  number in the header, so that user data cannot pass for a
 *                  record
 *
 * all little-endian.  A torn tail is cut off and reported.  A bad record with a
 * good one behind it refuses the start; the message has its offset.  A failed write
 * or fsync is final: from then on append and commit fail with the same errno (see
 * P. Rebello et al., "Can Applications Recover from fsync Failures?", 2020, for why
 * it is not tried again).  A full disk (ENOSPC, EDQUOT) is not final: the whole
 * batch is dropped, and may be appended again.
 *
 * Once journal_make_room has reserved room, records are written to a shared mapping
 * of it, and zeros follow them in the file.  The filesystem may write the pages to
 * the disk in any order, so a file is mapped only while DIR/lock has a mark: the
 * boot, and how much of the file was synced.  In another boot the first bad record
 * behind the synced part is the end, whatever follows it.  write(2) is used where
 * the filesystem cannot reserve room or cannot map.  A mapping that the filesystem
 * cannot back (SIGBUS), or a file that was truncated, is a failed write: EIO.
 *
 * A record is safe from the death of the process once journal_commit has
 * returned 0 (it is in the page cache), and from the death of the host once
 * journal_synced says so.  Does not log; errors come back as text.
 */
#ifndef BACKEND_JOURNAL_JOURNAL_H
#define BACKEND_JOURNAL_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct journal; /* opaque */

/* Takes one record.  A return other than 0 refuses the start. */
typedef int journal_replay(void *arg, uint8_t type, const void *payload, size_t length);

/* Opens or creates the journal in `directory` (created 0700 with its parents if
 * missing) and replays it.  0, or -errno with one line in `error` that says
 * what is wrong and what to do: -EWOULDBLOCK when another daemon has it,
 * -EBADMSG when it is damaged, -EACCES, -ENOSPC…  `*ret_cut` is how many bytes
 * of a torn tail were cut off. */
int journal_open(const char *directory, journal_replay *replay, void *arg, struct journal **ret_journal,
                 uint64_t *ret_cut, char *error, size_t error_size);

/* The same with a given boot id; journal_open uses this host's.  With "" nothing is mapped, and no other boot is
 * recognised.  `lock`: the descriptor of DIR/lock of the daemon before, which may not have let go of it yet; the
 * journal closes it.  Or NULL. */
int journal_open_in_boot(const char *directory, const char *boot, const int *lock, journal_replay *replay, void *arg,
                         struct journal **ret_journal, uint64_t *ret_cut, char *error, size_t error_size);

/* Of DIR/lock, which stays locked while a copy of the descriptor is open. */
int journal_lock_descriptor(const struct journal *j);

/* This host's boot id, "" if it is not known; free it. */
char *journal_boot_id(void);

/* Ends the journal's thread until the next sync.  All that is committed must be
 * synced.  The sandbox needs this, because a thread can drop some rights only for
 * itself. */
void journal_rest(struct journal *j);

/* Are DIR/lock and DIR/journal still the files that were opened?  If not, they or the
 * directory were removed or replaced: another daemon may use that path, and the next one
 * will not find this journal.  A file that was truncated fails the journal. */
bool journal_in_place(struct journal *j);

/* Closes without a sync.  NULL is allowed. */
void journal_close(struct journal *j);

/* Adds a record to the batch in memory.  0, -EMSGSIZE over 16 MiB, or -errno once
 * the journal failed. */
int journal_append(struct journal *j, uint8_t type, const void *payload, size_t length);

/* Writes the batch.  0 or -errno.  After an error report none of the batch as done:
 * if the disk is full (-ENOSPC, -EDQUOT) it is dropped, else the journal has failed
 * for good. */
int journal_commit(struct journal *j);

/* Reserves room on the disk, so that `bytes` more can be appended, and `spare` bytes
 * after them, even if other files fill the disk.  0 or -errno; 1 if the filesystem
 * cannot reserve.  Records that must be written on a full disk go into the spare room
 * without this call. */
int journal_make_room(struct journal *j, size_t bytes, uint64_t spare);

/* Gives up reserved room but for `kept` bytes, for compaction. */
void journal_give_room_back(struct journal *j, uint64_t kept);

/* The errno that ended it (positive), or 0. */
int journal_failed(const struct journal *j);

/* The sequence of the last record committed, over all compactions; and the bytes in
 * the file. */
uint64_t journal_sequence(const struct journal *j);
uint64_t journal_size(const struct journal *j);

/* Group commit.  journal_sync makes the journal's own thread fdatasync up to the last
 * commit.  The thread then calls `synced` (set with journal_on_synced), which must only
 * wake the loop; the loop calls journal_synced.  A failed fsync fails the journal. */
void journal_on_synced(struct journal *j, void (*synced)(void *arg), void *arg);
void journal_sync(struct journal *j);
uint64_t journal_synced(const struct journal *j);

/* Waits for the sync of all that is committed.  0 or -errno. */
int journal_sync_wait(struct journal *j);

/* Compaction, in steps that do not block:
 *
 * 1. journal_compact_begin: from now on each record goes to the old and to a new file.
 * 2. journal_compact_append writes the present state to the new file alone, a part at a
 *    time.  So replay may meet a record twice, or the removal of something unknown.
 * 3. journal_compact_finish: the journal's thread syncs the new file, and calls `synced`.
 * 4. journal_compact_ready, then journal_compact_swap renames it over the old one, and
 *    the thread syncs the directory.
 *
 * The old file is valid until the swap: a crash or an error at any step loses nothing.
 * Each returns 0 or -errno.  journal_compact_abort removes the new file; a swap that fails
 * has done so already. */
int journal_compact_begin(struct journal *j);
int journal_compact_append(struct journal *j, uint8_t type, const void *payload, size_t length);
int journal_compact_finish(struct journal *j);
bool journal_compact_ready(const struct journal *j);
int journal_compact_swap(struct journal *j);
void journal_compact_abort(struct journal *j);

#endif
