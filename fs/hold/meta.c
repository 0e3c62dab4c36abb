/* meta: what the filesystem keeps with a lease in the store; see meta.h. */
#include "fs/hold/meta.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "backend/backend.h"
#include "fs/hold/rights.h"

#define META_TIMES_MAX 80 /* also in meta_decode */

enum { META_FIXED = 1, META_SEQUENCE = 2 };

/* `at` is behind what is written already; returns what is behind it then.  snprintf takes ten times as long, and a
 * ticket or a lock on a new file has another meta each time. */
static char *meta_put_number(char *at, char before, uint64_t number, unsigned base)
{
    char digits[24];
    size_t first = sizeof digits;
    do {
        digits[--first] = "0123456789abcdef"[number % base];
        number /= base;
    } while (number > 0);
    *at = before;
    return mempcpy(at + 1, digits + first, sizeof digits - first);
}

static char *meta_put_text(char *at, const char *text)
{
    *at = ' ';
    return stpcpy(at + 1, text);
}

static char *meta_put_processes(char *at, char before, const struct meta *m, size_t first, size_t count)
{
    for (size_t i = first; i < first + count; i++) {
        at = meta_put_number(at, i > first ? ',' : before, (uint64_t)m->heir[i].pid, 10);
        at = meta_put_number(at, ':', m->heir[i].start, 10);
    }
    return at;
}

static char *meta_put_heirs(char *at, const struct meta *m)
{
    at = meta_put_processes(at, ' ', m, 0, m->heirs);
    if (m->heirs == 0) {
        *at++ = ' ';
    }
    if (m->inode && m->heirs < META_HEIRS_MAX - 1) { /* a handle lock has one heir at most */
        at = meta_put_number(at, '@', major(m->device), 10);
        at = meta_put_number(at, ':', minor(m->device), 10);
        at = meta_put_number(at, ':', m->inode, 10);
    } else if (m->heirs == 0) {
        *at++ = '-';
    }
    if (m->nonce && m->heirs < META_HEIRS_MAX - 3) {
        at = meta_put_number(at, '=', m->nonce, 16);
        at = meta_put_number(at, ':', m->handle, 16);
        at = meta_put_number(at, ':', m->lock_owner, 16);
    }
    return meta_put_processes(at, '/', m, m->heirs, m->partners);
}

GBytes *meta_encode(const struct meta *m)
{
    char times[META_TIMES_MAX] = "-";
    if (m->has_times) {
        snprintf(times, sizeof times, "%" PRId64 ".%09ld,%" PRId64 ".%09ld", (int64_t)m->times[0].tv_sec,
                 m->times[0].tv_nsec, (int64_t)m->times[1].tv_sec, m->times[1].tv_nsec);
    }
    char text[1024], *at = text;
    _Static_assert(sizeof m->host + sizeof m->boot + sizeof m->command + sizeof m->note + sizeof times +
                           META_HEIRS_MAX * 32 + 7 * 21 <
                       sizeof text,
                   "a meta fits");
    *at++ = '1';
    at = meta_put_text(at, m->host);
    at = meta_put_number(at, ' ', (uint64_t)m->pid, 10);
    at = meta_put_number(at, ' ', m->start, 10);
    at = meta_put_number(at, ' ', m->uid, 10);
    at = meta_put_number(at, ' ', m->gid, 10);
    at = meta_put_number(at, ' ', m->mode, 8);
    at = meta_put_number(
        at, ' ', (m->fixed ? META_FIXED : 0u) + (m->sequence ? META_SEQUENCE : 0u) + m->guard * BACKEND_GUARD_UNIT, 10);
    at = meta_put_text(at, times);
    at = meta_put_text(at, m->boot);
    at = meta_put_heirs(at, m);
    at = meta_put_text(at, m->command);
    if (*m->note) {
        *at = '\t';
        at = stpcpy(at + 1, m->note);
    }
    return g_bytes_new(text, (gsize)(at - text));
}

static void meta_decode_times(const char *text, struct meta *m)
{
    int64_t seconds[2];
    unsigned nanoseconds[2];
    m->has_times = sscanf(text, "%" SCNd64 ".%9u,%" SCNd64 ".%9u", &seconds[0], &nanoseconds[0], &seconds[1],
                          &nanoseconds[1]) == 4;
    for (int i = 0; i < 2; i++) {
        m->times[i] =
            m->has_times ? (struct timespec){clock_time(seconds[i]), (long)nanoseconds[i]} : (struct timespec){0};
    }
}

static void meta_decode_file(const char *text, struct meta *m)
{
    unsigned major, minor;
    const char *file = strchr(text, '@');
    bool known = file && sscanf(file, "@%u:%u:%" SCNu64, &major, &minor, &m->inode) == 3;
    m->device = known ? makedev(major, minor) : 0;
    m->inode = known ? m->inode : 0;
    const char *kept = strchr(text, '=');
    if (!kept || sscanf(kept, "=%" SCNx64 ":%" SCNx64 ":%" SCNx64, &m->nonce, &m->handle, &m->lock_owner) != 3) {
        m->nonce = m->handle = m->lock_owner = 0;
    }
}

static size_t meta_decode_processes(const char *text, struct meta *m, size_t first)
{
    size_t i = first;
    int pid, used = 0;
    uint64_t start;
    while (i < META_HEIRS_MAX && sscanf(text, "%d:%" SCNu64 "%n", &pid, &start, &used) == 2) {
        m->heir[i].pid = pid;
        m->heir[i].start = start;
        i++;
        text += used;
        text += *text == ',';
    }
    return i - first;
}

static void meta_decode_heirs(const char *text, struct meta *m)
{
    const char *partners = strchr(text, '/');
    meta_decode_file(text, m);
    m->heirs = meta_decode_processes(text, m, 0);
    m->partners = partners ? meta_decode_processes(partners + 1, m, m->heirs) : 0;
}

bool meta_decode(GBytes *bytes, struct meta *ret_meta)
{
    struct meta decoded, *m = &decoded;
    gsize size = 0;
    const char *data = bytes ? g_bytes_get_data(bytes, &size) : NULL;
    char text[1024], times[META_TIMES_MAX], heirs[META_HEIRS_MAX * 32 + 2];
    if (!data || size >= sizeof text) {
        return false;
    }
    memcpy(text, data, size);
    text[size] = '\0';
    unsigned flags;
    int used = 0;
    int fields = sscanf(text, "1 %255s %d %" SCNu64 " %u %u %o %u %79s %39s %257s %n", m->host, &m->pid, &m->start,
                        &m->uid, &m->gid, &m->mode, &flags, times, m->boot, heirs, &used);
    if (fields != 10 || !used) {
        return false;
    }
    char *note = strchr(text + used, '\t');
    snprintf(m->note, sizeof m->note, "%s", note ? note + 1 : "");
    if (note) {
        *note = '\0';
    }
    snprintf(m->command, sizeof m->command, "%s", text + used);
    /* A lock is never what makes a program run as somebody else, whatever is written there. */
    m->mode &= S_ISDIR(m->mode) ? S_IFMT | 07777 : S_IFMT | RIGHTS_MODE;
    if (!S_ISDIR(m->mode) && !S_ISLNK(m->mode)) {
        m->mode = S_IFREG | (m->mode & RIGHTS_MODE);
    }
    m->fixed = flags & META_FIXED;
    m->sequence = flags & META_SEQUENCE;
    m->guard = MIN(flags / BACKEND_GUARD_UNIT, BACKEND_GUARD_MAX);
    meta_decode_times(times, m);
    meta_decode_heirs(heirs, m);
    *ret_meta = decoded;
    return true;
}
