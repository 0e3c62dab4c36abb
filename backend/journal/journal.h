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
 * all little-endian.  Reading stops at a torn tail, which is cut off and
 * reported; a bad record with a good one behind it refuses the start and says
 * at which offset.  A failed write or fsync is final: from then on append and
 * commit fail with the same errno (see P. Rebello et al., "Can Applications
 * Recover from fsync Failures?", 2020, for why it is not tried again).  A full
 * disk (ENOSPC, EDQUOT) is not: what did not fit is dropped whole and may be
 * appended again.
 *
 * Once journal_make_room has taken room, records are written to a shared mapping
 * of it, and the file is longer than its records by zeros.  The filesystem may
 * put its pages on the disk in any order, so a file is mapped only while DIR/lock
 * says in which boot, and how much of the file was synced.  In another boot the
 * first bad record behind that is the end, whatever follows it.  Where the file
 * system gives no room ahead, or cannot map, write(2) is used.  A mapping that the
 * filesystem cannot back (SIGBUS), or a file that somebody has cut, is a failed
 * write: EIO.
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

/* One record read back.  A return other than 0 refuses the start. */
typedef int journal_replay(void *arg, uint8_t type, const void *payload, size_t length);

/* Opens or creates the journal in `directory` (created 0700 with its parents if
 * missing) and replays it.  0, or -errno with one line in `error` that says
 * what is wrong and what to do: -EWOULDBLOCK when another daemon has it,
 * -EBADMSG when it is damaged, -EACCES, -ENOSPC…  `*ret_cut` is how many bytes
 * of a torn tail were cut off. */
int journal_open(const char *directory, journal_replay *replay, void *arg, struct journal **ret_journal,
                 uint64_t *ret_cut, char *error, size_t error_size);

/* The same; journal_open takes the boot id of this host.  Without one ("") nothing is mapped, and no other boot is
 * recognised. */
int journal_open_in_boot(const char *directory, const char *boot, journal_replay *replay, void *arg,
                         struct journal **ret_journal, uint64_t *ret_cut, char *error, size_t error_size);

/* This host's boot id, to be freed; "" if it is not known. */
char *journal_boot_id(void);

/* Ends the journal's thread, which the next sync starts again.  What is committed
 * must be synced.  So for a moment the caller's thread is the only one: some
 * rights can be given up by each thread only for itself. */
void journal_rest(struct journal *j);

/* Whether DIR/lock and DIR/journal still are the files that were opened.  A file that
 * was cut fails the journal.  If they are not, somebody has removed or replaced them or the directory: another daemon
 * may lock what is at that path now, and the next one to start will not find this journal. */
bool journal_in_place(struct journal *j);

/* Closes without a sync.  NULL is allowed. */
void journal_close(struct journal *j);

/* Adds a record to the batch in memory.  0, -EMSGSIZE over 16 MiB, or -errno once
 * the journal failed. */
int journal_append(struct journal *j, uint8_t type, const void *payload, size_t length);

/* Writes the batch.  0 or -errno; after an error none of the
 * batch may be told to anybody: it is dropped if the disk is full (-ENOSPC,
 * -EDQUOT), else the journal has failed for good. */
int journal_commit(struct journal *j);

/* Takes room on the disk, so that `bytes` more can be appended and `spare` bytes
 * after them, whatever else fills the disk meanwhile.  0 or -errno; 1 if the
 * filesystem cannot do that.  What must be written on a full disk needs no
 * asking: it goes into what was kept spare before. */
int journal_make_room(struct journal *j, size_t bytes, uint64_t spare);

/* Gives up what was taken ahead: compaction may need it more. */
void journal_give_room_back(struct journal *j);

/* The errno that ended it (positive), or 0. */
int journal_failed(const struct journal *j);

/* The sequence of the last record committed, which grows also across
 * compaction, and bytes in the file. */
uint64_t journal_sequence(const struct journal *j);
uint64_t journal_size(const struct journal *j);

/* Group commit.  journal_sync asks the journal's own thread to fdatasync up to
 * the last commit; `synced` (set with journal_on_synced) is called from *that
 * thread* after each, and must only wake the loop, which then asks
 * journal_synced how far it got.  A failed fsync fails the journal. */
void journal_on_synced(struct journal *j, void (*synced)(void *arg), void *arg);
void journal_sync(struct journal *j);
uint64_t journal_synced(const struct journal *j);

/* Waits for the sync of all that is committed.  0 or -errno. */
int journal_sync_wait(struct journal *j);

/* Compaction, in steps that do not block: after journal_compact_begin every
 * record appended goes to the old and to a new file; the caller also writes the
 * present state to the new file alone with journal_compact_append, a part at a
 * time (so replay must take a record again without harm, and a removal of what
 * it does not know); journal_commit writes both; journal_compact_finish has the
 * journal's thread fsync the new file; when journal_compact_ready says so (the
 * thread calls `synced` then too), journal_compact_swap renames it over the old
 * one and the thread syncs the directory.  The old file rules until then: a
 * crash or an error at any step loses nothing.  Each returns 0 or -errno;
 * journal_compact_abort removes the new file, as a swap that fails has done. */
int journal_compact_begin(struct journal *j);
int journal_compact_append(struct journal *j, uint8_t type, const void *payload, size_t length);
int journal_compact_finish(struct journal *j);
bool journal_compact_ready(const struct journal *j);
int journal_compact_swap(struct journal *j);
void journal_compact_abort(struct journal *j);

#endif
