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

GBytes *meta_encode(const struct meta *m)
{
    char heirs[META_HEIRS_MAX * 32 + 2] = "-";
    size_t length = 0;
    for (size_t i = 0; i < m->heirs; i++) {
        length += (size_t)snprintf(heirs + length, sizeof heirs - length, "%s%d:%" PRIu64, i ? "," : "", m->heir[i].pid,
                                   m->heir[i].start);
    }
    if (m->inode && m->heirs < META_HEIRS_MAX - 1) { /* a handle lock has one heir at most */
        snprintf(heirs + length, sizeof heirs - length, "@%u:%u:%" PRIu64, major(m->device), minor(m->device),
                 m->inode);
    }
    char times[META_TIMES_MAX] = "-";
    if (m->has_times) {
        snprintf(times, sizeof times, "%" PRId64 ".%09ld,%" PRId64 ".%09ld", (int64_t)m->times[0].tv_sec,
                 m->times[0].tv_nsec, (int64_t)m->times[1].tv_sec, m->times[1].tv_nsec);
    }
    char text[1024];
    unsigned flags = (m->fixed ? META_FIXED : 0u) + (m->sequence ? META_SEQUENCE : 0u) + m->guard * BACKEND_GUARD_UNIT;
    int size = snprintf(text, sizeof text, "1 %s %d %" PRIu64 " %u %u %o %u %s %s %s %s", m->host, m->pid, m->start,
                        m->uid, m->gid, m->mode, flags, times, m->boot, heirs, m->command);
    return g_bytes_new(text, (gsize)MIN(size, (int)sizeof text - 1));
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
}

static void meta_decode_heirs(const char *text, struct meta *m)
{
    meta_decode_file(text, m);
    m->heirs = 0;
    while (m->heirs < META_HEIRS_MAX) {
        int pid, used = 0;
        uint64_t start;
        if (sscanf(text, "%d:%" SCNu64 "%n", &pid, &start, &used) != 2) {
            return;
        }
        m->heir[m->heirs].pid = pid;
        m->heir[m->heirs].start = start;
        m->heirs++;
        text += used;
        text += *text == ',';
    }
}

bool meta_decode(GBytes *bytes, struct meta *m)
{
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
    return true;
}
