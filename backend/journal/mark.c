/* mark: records in DIR/lock how much of a journal file is synced.
 *
 * The lock file has a line of MARK_PID bytes with the daemon's process, and two
 * lines of MARK_SIZE bytes: one for the journal, one for the file that compaction
 * writes.  A mark belongs to the file with the same salt.  It is overwritten in
 * place after a sync, and is not synced itself: an older mark is also true.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backend/crc32c.h"
#include "backend/journal/file.h"

#define MARK_SIZE 128
#define MARK_BOOT 40 /* of a boot id: the longest that counts */

/* Formats a mark without its newline.  `*ret_sum`: the checksum of the text before the checksum. */
static void mark_format(char line[MARK_SIZE], uint32_t salt, const char *boot, uint64_t synced, uint32_t *ret_sum)
{
    int length = g_snprintf(line, MARK_SIZE, "journal %08" PRIx32 " boot %.*s synced %" PRIu64 " sum ", salt, MARK_BOOT,
                            boot, synced);
    *ret_sum = crc32c(0, line, (size_t)length);
    g_snprintf(line + length, (gulong)(MARK_SIZE - length), "%08" PRIx32, *ret_sum);
}

static bool mark_parse(struct journal_mark *mark, const char *line)
{
    char boot[MARK_BOOT + 1] = "", again[MARK_SIZE];
    uint32_t salt, sum, right;
    uint64_t synced;
    if (sscanf(line, "journal %8" SCNx32 " boot %40s synced %" SCNu64 " sum %8" SCNx32, &salt, boot, &synced, &sum) !=
        4) {
        return false;
    }
    mark_format(again, salt, boot, synced, &right);
    if (salt != mark->salt || sum != right) {
        return false;
    }
    mark->synced = synced;
    mark->rebooted = *mark->boot && strncmp(mark->boot, boot, MARK_BOOT) != 0;
    return true;
}

int journal_mark_read(struct journal_mark *mark)
{
    char lines[2 * MARK_SIZE + 1] = "";
    ssize_t n;
    do {
        n = pread(mark->fd, lines, sizeof(lines) - 1, JOURNAL_PID_SIZE);
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
        return -errno;
    }
    for (unsigned slot = 0; slot < 2 && !mark->found; slot++) {
        mark->found = mark_parse(mark, lines + (size_t)slot * MARK_SIZE);
        mark->slot = mark->found ? slot : 0;
    }
    return 0;
}

int journal_mark_write(const struct journal_mark *mark)
{
    char line[MARK_SIZE];
    uint32_t sum;
    mark_format(line, mark->salt, mark->boot, mark->synced, &sum);
    size_t length = strlen(line);
    memset(line + length, ' ', sizeof(line) - length - 1);
    line[sizeof(line) - 1] = '\n';
    ssize_t n;
    do {
        n = pwrite(mark->fd, line, sizeof(line), JOURNAL_PID_SIZE + (off_t)mark->slot * MARK_SIZE);
    } while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n < (ssize_t)sizeof(line) ? -EIO : 0;
}
