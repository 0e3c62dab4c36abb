/* file: writes and reads one file of records.
 *
 * Reading distinguishes a torn tail from damage.  Behind a bad record it tries every
 * offset for a good record: one whose checksum continues the chain from the last good
 * record, from the bytes of the bad record, or from the four bytes before the offset
 * (the bad record's stored checksum).  One good record proves damage in the middle.
 */
#include "backend/journal/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/crc32c.h"
#include "backend/format.h"

#define FORMAT 1
#define READ_AHEAD (256 * 1024)
#define BATCH_KEEP (1024 * 1024) /* a larger buffer is freed after its commit */
#define MAP_STEP (64 * 1024)     /* mapped ahead */

static const char magic[8] = "LEASEFS\n";

static uint32_t file_get32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t file_get64(const uint8_t *p)
{
    return file_get32(p) | (uint64_t)file_get32(p + 4) << 32;
}

static void file_put32(uint8_t *p, uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        p[i] = (uint8_t)(value >> 8 * i);
    }
}

static void file_put64(uint8_t *p, uint64_t value)
{
    file_put32(p, (uint32_t)value);
    file_put32(p + 4, (uint32_t)(value >> 32));
}

static int file_write_all(int fd, const uint8_t *data, size_t length)
{
    while (length) {
        ssize_t n = write(fd, data, length);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return -errno;
        }
        data += n;
        length -= (size_t)n;
    }
    return 0;
}

int journal_file_create(struct journal_file *file, int directory, const char *name)
{
    uint8_t header[JOURNAL_HEADER_SIZE];
    uint32_t salt;
    if (getrandom(&salt, sizeof(salt), 0) < 0) { /* never a part of so few bytes */
        return -errno;
    }
    memcpy(header, magic, sizeof(magic));
    file_put32(header + 8, FORMAT);
    file_put32(header + 12, salt);
    file_put32(header + 16, crc32c(0, header, 16));

    int fd = openat(directory, name, O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return -errno;
    }
    int r = file_write_all(fd, header, sizeof(header));
    if (r < 0) {
        close(fd);
        unlinkat(directory, name, 0);
        return r;
    }
    *file = (struct journal_file){.fd = fd, .salt = salt, .chain = file_get32(header + 16), .size = sizeof(header)};
    file->mark.salt = salt;
    file->written_chain = file->chain;
    file->batch = g_byte_array_new();
    return 0;
}

int journal_file_append(struct journal_file *file, uint8_t type, const void *payload, size_t length)
{
    guint used = file->batch->len;
    if (length > JOURNAL_BODY_MAX - JOURNAL_BODY_MIN) {
        return -EMSGSIZE;
    }
    g_byte_array_set_size(file->batch, used + (guint)length + JOURNAL_RECORD_MIN);
    uint8_t *record = file->batch->data + used;
    file_put32(record, (uint32_t)length + JOURNAL_BODY_MIN);
    record[4] = type;
    file_put64(record + 5, ++file->sequence);
    if (length) {
        memcpy(record + 13, payload, length);
    }
    file->chain = crc32c(file->chain ^ file->salt, record, length + 13);
    file_put32(record + 13 + length, file->chain);
    return 0;
}

int journal_file_give_room_back(struct journal_file *file, uint64_t kept)
{
    uint64_t room = file->room > file->size ? MIN(file->room - file->size, kept) : 0, batch = file->batch->len;
    uint64_t end = file->size + (file->mappable ? room : 0);
    journal_map_close(&file->map);
    file->room = end > file->size ? end : 0;
    if (ftruncate(file->fd, (off_t)end) < 0) {
        return -errno;
    }
    file->grown = end > file->size;
    if (room > batch && !file->mappable) { /* it was cut off, too */
        journal_file_make_room(file, room - batch);
    }
    return 0;
}

int journal_file_make_room(struct journal_file *file, uint64_t bytes)
{
    uint64_t need = file->size + file->batch->len + bytes;
    while (fallocate(file->fd, FALLOC_FL_KEEP_SIZE, (off_t)file->size, (off_t)(need - file->size)) < 0) {
        if (errno != EINTR) {
            return -errno;
        }
    }
    file->room = need;
    return 0;
}

/* Maps the part of the file for the batch: 0; 1 if it must be written with write(2), or -errno if the disk is full. */
static int file_map_ahead(struct journal_file *file)
{
    uint64_t need = file->size + file->batch->len;
    if (need <= file->map.end) {
        return 0;
    }
    if (!file->mappable || !file->room) {
        return 1;
    }
    int r = need > file->room ? journal_file_make_room(file, 0) : 0;
    if (r < 0) {
        return r;
    }
    uint64_t end = MIN(file->room, need + MAP_STEP);
    journal_map_close(&file->map);
    if (journal_map_open(&file->map, file->fd, file->size, end) == 0) { /* the file grows only if there is a mapping */
        if (ftruncate(file->fd, (off_t)end) == 0) {
            file->grown = true;
            return 0;
        }
        journal_map_close(&file->map);
    }
    file->mappable = false;
    return file->grown && journal_file_give_room_back(file, 0) < 0 ? -EIO : 1;
}

/* Completes each record before it begins the next: if the process is killed, no good record follows a bad one. */
static int file_copy_batch(struct journal_file *file)
{
    int r = 0;
    for (size_t at = 0, size; r == 0 && at < file->batch->len; at += size) {
        size = file_get32(file->batch->data + at) + 8;
        r = journal_map_copy(&file->map, file->size + at, file->batch->data + at, size);
    }
    return r;
}

static int file_put_batch(struct journal_file *file)
{
    int r = file_map_ahead(file);
    return r < 0 ? r : r ? file_write_all(file->fd, file->batch->data, file->batch->len) : file_copy_batch(file);
}

int journal_file_commit(struct journal_file *file)
{
    guint used = file->batch->len;
    int r = used ? file_put_batch(file) : 0;
    if (used > BATCH_KEEP) {
        g_byte_array_unref(file->batch);
        file->batch = g_byte_array_new();
    } else {
        g_byte_array_set_size(file->batch, 0);
    }
    if (r == 0) {
        file->size += used;
        file->written_chain = file->chain;
        file->written_sequence = file->sequence;
        return 0;
    }
    file->chain = file->written_chain;
    file->sequence = file->written_sequence;
    if (file->map.base && journal_is_full(r)) { /* nothing was written; keep the reserved room */
        return r;
    }
    /* a part that was written may stay if the journal fails: it was not reported, and reading cuts it off */
    if (journal_file_give_room_back(file, 0) < 0 && journal_is_full(r)) {
        return -EIO;
    }
    return r;
}

bool journal_is_full(int error)
{
    return error == -ENOSPC || error == -EDQUOT;
}

static ssize_t file_read_at(int fd, void *to, size_t length, uint64_t offset)
{
    ssize_t n;
    do {
        n = pread(fd, to, length, (off_t)offset);
    } while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}

/* A window on the file: `length` bytes from `offset` are at `data`. */
struct reader {
    int fd;
    uint64_t end; /* of the file */
    uint8_t *buffer;
    size_t room;
    uint8_t *data;
    size_t length;
    uint64_t offset;
};

/* Makes `need` bytes available: 1, 0 if the file ends before, or -errno. */
static int reader_fill(struct reader *r, size_t need)
{
    if (r->length >= need) {
        return 1;
    }
    if (need > r->end - r->offset) {
        return 0;
    }
    if (need + READ_AHEAD > r->room) {
        uint8_t *larger = g_malloc(need + READ_AHEAD);
        if (r->length) {
            memcpy(larger, r->data, r->length);
        }
        g_free(r->buffer);
        r->buffer = larger;
        r->room = need + READ_AHEAD;
    } else {
        memmove(r->buffer, r->data, r->length);
    }
    r->data = r->buffer;
    while (r->length < r->room) {
        ssize_t n = file_read_at(r->fd, r->data + r->length, r->room - r->length, r->offset + r->length);
        if (n < 0) {
            return (int)n;
        }
        if (n == 0) {
            break;
        }
        r->length += (size_t)n;
    }
    return r->length >= need;
}

static void reader_skip(struct reader *r, size_t length)
{
    r->data += length;
    r->length -= length;
    r->offset += length;
}

/* The size of the record at the window's start, if it is whole and its length is
 * valid; 0 if not; or -errno. */
static int reader_record_size(struct reader *r)
{
    int filled = reader_fill(r, JOURNAL_RECORD_MIN);
    if (filled <= 0) {
        return filled;
    }
    uint32_t length = file_get32(r->data);
    if (length < JOURNAL_BODY_MIN || length > JOURNAL_BODY_MAX || !r->data[4]) {
        return 0;
    }
    filled = reader_fill(r, length + 8);
    return filled <= 0 ? filled : (int)length + 8;
}

static uint32_t file_checksum(const struct journal_file *file, uint32_t chain, const uint8_t *record, int size)
{
    return crc32c(chain ^ file->salt, record, (size_t)size - 4);
}

/* 1 if the record at the window's start continues one of these chains, 0 if not, or
 * -errno. */
static int reader_record_is_good(struct reader *r, const struct journal_file *file, const uint32_t *chains,
                                 size_t count)
{
    int size = reader_record_size(r);
    if (size <= 0) {
        return size;
    }
    for (size_t i = 0; i < count; i++) {
        if (file_checksum(file, chains[i], r->data, size) == file_get32(r->data + size - 4)) {
            return 1;
        }
    }
    return 0;
}

/* 1 if a good record follows the bad one at the window's start, 0 if not, or -errno.  From `data_end` on there are only
 * zeros. */
static int reader_good_behind(struct reader *r, const struct journal_file *file, uint64_t data_end)
{
    uint64_t last = file->sequence + 1 + (r->end - r->offset) / JOURNAL_RECORD_MIN;
    uint32_t running = file->chain ^ file->salt; /* checksum of the bytes up to four before the window */
    uint32_t before = 0;                         /* those four */
    for (size_t passed = 0; r->offset < data_end; passed++) {
        int filled = reader_fill(r, 1 + JOURNAL_RECORD_MIN);
        if (filled <= 0) {
            return filled;
        }
        if (passed >= 4) {
            running = crc32c(running, (uint8_t[]){(uint8_t)before}, 1);
        }
        before = before >> 8 | (uint32_t)r->data[0] << 24;
        reader_skip(r, 1);

        uint64_t sequence = file_get64(r->data + 5);
        if (!sequence || sequence > last) {
            continue;
        }
        int good = reader_record_is_good(r, file, (uint32_t[]){file->chain, before, running}, 3);
        if (good) {
            return good;
        }
    }
    return 0;
}

static int file_read_header(struct journal_file *file, struct reader *r, const char *path, char *error,
                            size_t error_size)
{
    int filled = reader_fill(r, JOURNAL_HEADER_SIZE);
    if (filled < 0) {
        return filled;
    }
    if (!filled || memcmp(r->data, magic, sizeof(magic)) != 0 || crc32c(0, r->data, 16) != file_get32(r->data + 16)) {
        g_snprintf(error, error_size,
                   "%s is damaged at offset 0 or is no leasefs journal: move it away to start without leases", path);
        return -EBADMSG;
    }
    if (file_get32(r->data + 8) > FORMAT) {
        g_snprintf(error, error_size, FORMAT_TOO_NEW, path, file_get32(r->data + 8), (unsigned)FORMAT);
        return -EBADMSG;
    }
    file->salt = file_get32(r->data + 12);
    file->chain = file_get32(r->data + 16);
    file->sequence = 0;
    reader_skip(r, JOURNAL_HEADER_SIZE);
    file->mark.salt = file->salt;
    return journal_mark_read(&file->mark);
}

/* Replays records up to the end or the first bad one: 0 at a clean end, 1 at a
 * bad record, or -errno. */
static int file_read_records(struct journal_file *file, struct reader *r, journal_replay *replay, void *arg)
{
    for (;;) {
        int size = reader_record_size(r);
        if (size < 0) {
            return size;
        }
        if (!size) {
            return r->offset < r->end;
        }
        uint32_t chain = file_checksum(file, file->chain, r->data, size);
        if (chain != file_get32(r->data + size - 4) || file_get64(r->data + 5) != file->sequence + 1) {
            return 1;
        }
        int refused = replay(arg, r->data[4], r->data + 13, (size_t)size - JOURNAL_RECORD_MIN);
        if (refused) {
            return refused < 0 ? refused : -EPROTO;
        }
        file->sequence++;
        file->chain = chain;
        reader_skip(r, (size_t)size);
    }
}

/* Where the zeros at the file's end begin, but not before `from`; or -errno. */
static int64_t file_find_zeros(int fd, uint64_t from, uint64_t end)
{
    g_autofree uint8_t *block = g_malloc(READ_AHEAD);
    while (end > from) {
        size_t length = (size_t)MIN(end - from, READ_AHEAD);
        ssize_t n = file_read_at(fd, block, length, end - length);
        if (n < (ssize_t)length) {
            return n < 0 ? n : -EIO;
        }
        for (; length; length--, end--) {
            if (block[length - 1]) {
                return (int64_t)end;
            }
        }
    }
    return (int64_t)from;
}

/* A bad record is at the window's start.  Cuts the file there if no good record follows, or if that part of the file
 * may not have reached the disk when the host stopped. */
static int file_settle_tail(struct journal_file *file, struct reader *r, const char *path, uint64_t *ret_cut,
                            char *error, size_t error_size)
{
    const struct journal_mark *mark = &file->mark;
    uint64_t bad = r->offset;
    int64_t data_end =
        mark->found ? file_find_zeros(r->fd, MAX(bad, MIN(mark->synced, r->end)), r->end) : (int64_t)r->end;
    if (data_end < 0) {
        return (int)data_end;
    }
    if ((uint64_t)data_end == bad) { /* unused room; a copy of the file may lack its blocks */
        file->grown = true;
        file->size = bad;
        return journal_file_make_room(file, r->end - bad) < 0 ? journal_file_give_room_back(file, 0) : 0;
    }
    bool lost = mark->rebooted && bad >= mark->synced;
    int behind = lost ? 0 : reader_good_behind(r, file, (uint64_t)data_end);
    if (behind < 0) {
        return behind;
    }
    if (behind) {
        g_snprintf(error, error_size,
                   "%s is damaged at offset %" PRIu64 " (good records follow it): restore it from a backup, or give up "
                   "what follows with: truncate -s %" PRIu64 " %s",
                   path, bad, bad, path);
        return -EBADMSG;
    }
    if (ftruncate(file->fd, (off_t)bad) < 0 || fsync(file->fd) < 0) {
        return -errno;
    }
    file->size = bad;
    *ret_cut = (uint64_t)data_end - bad;
    return 0;
}

int journal_file_read(struct journal_file *file, const char *path, journal_replay *replay, void *arg, uint64_t *ret_cut,
                      char *error, size_t error_size)
{
    struct reader reader = {.fd = file->fd};
    struct stat st;
    int r;
    *ret_cut = 0;
    *error = '\0';
    if (fstat(file->fd, &st) < 0) {
        r = -errno;
    } else {
        file->size = reader.end = (uint64_t)st.st_size;
        r = file_read_header(file, &reader, path, error, error_size);
        if (r == 0) {
            r = file_read_records(file, &reader, replay, arg);
        }
        if (r > 0) {
            r = file_settle_tail(file, &reader, path, ret_cut, error, error_size);
        }
    }
    file->written_chain = file->chain;
    file->written_sequence = file->sequence;
    if (r < 0 && !*error) {
        g_snprintf(error, error_size, "%s cannot be read at offset %" PRIu64 ": %s", path, reader.offset,
                   g_strerror(-r));
    }
    g_free(reader.buffer);
    return r;
}
