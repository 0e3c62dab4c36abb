/* log: one line per event, to stderr or to syslog(3); see log.h.
 *
 * A line goes out with a single write, so that those of two daemons never mix.
 */
#include "backend/log.h"

#include <paths.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

#include "backend/clock.h"

/* At most LOG_BURST lines of one kind are written in LOG_PERIOD. */
#define LOG_PERIOD 10000 /* milliseconds */
#define LOG_BURST 100
#define LOG_KINDS 32 /* counted at a time; a new kind replaces the oldest */

/* Lines with the same address of their format are of one kind. */
struct log_kind {
    const char *format;
    clock_ms began;
    unsigned written;
    unsigned long left_out;
    char example[64]; /* the first line that was left out */
    enum log_level level;
};

static struct {
    enum log_level level;
    bool syslog;
    bool syslog_is_there;
    bool journal; /* stderr is read by systemd-journald */
    struct log_kind kinds[LOG_KINDS];
} sink = {.level = LOG_LEVEL_INFO};

void log_set_level(enum log_level level)
{
    sink.level = level;
}

bool log_wants(enum log_level level)
{
    return level <= sink.level;
}

bool log_parse_level(const char *name, enum log_level *ret_level)
{
    static const char *const names[] = {[LOG_LEVEL_ERROR] = "error",
                                        [LOG_LEVEL_WARNING] = "warning",
                                        [LOG_LEVEL_NOTICE] = "notice",
                                        [LOG_LEVEL_INFO] = "info",
                                        [LOG_LEVEL_DEBUG] = "debug"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(name, names[i]) == 0) {
            *ret_level = (enum log_level)i;
            return true;
        }
    }
    return false;
}

void log_connect_syslog(const char *ident)
{
    openlog(ident, LOG_PID | LOG_NDELAY, LOG_DAEMON);
    /* Without the check each line would try to connect: the sandbox refuses that, and the kernel's audit reports it. */
    sink.syslog_is_there = access(_PATH_LOG, F_OK) == 0;
}

void log_to_syslog(void)
{
    sink.syslog = true;
}

/* systemd.exec(5): JOURNAL_STREAM names the device and inode of the stream. */
void log_to_stderr(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    unsigned long long device, inode;
    struct stat st;
    sink.syslog = false;
    sink.journal = stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 && fstat(STDERR_FILENO, &st) == 0 &&
                   st.st_dev == device && st.st_ino == inode;
}

static void log_write_line(enum log_level level, const char *line)
{
    static const struct {
        int priority;
        const char *prefix;
    } levels[] = {
        [LOG_LEVEL_ERROR] = {LOG_ERR, "error: "},   [LOG_LEVEL_WARNING] = {LOG_WARNING, "warning: "},
        [LOG_LEVEL_NOTICE] = {LOG_NOTICE, ""},      [LOG_LEVEL_INFO] = {LOG_INFO, ""},
        [LOG_LEVEL_DEBUG] = {LOG_DEBUG, "debug: "},
    };

    if (sink.syslog && !sink.syslog_is_there) {
        return;
    }
    if (sink.syslog) {
        syslog(levels[level].priority, "%s%s", levels[level].prefix, line);
    } else if (sink.journal) {
        fprintf(stderr, "<%d>%s\n", levels[level].priority, line);
    } else {
        fprintf(stderr, "leasefs: %s%s\n", levels[level].prefix, line);
    }
}

/* --- lines that repeat --- */

static void log_report_left_out(struct log_kind *kind)
{
    char line[128];
    if (!kind->left_out) {
        return;
    }
    snprintf(line, sizeof(line), "lines like \"%s\" that were left out: %lu", kind->example, kind->left_out);
    log_write_line(kind->level, line);
    kind->left_out = 0;
}

/* Reports the kinds whose period is over, and forgets them. */
static void log_end_periods(clock_ms now)
{
    for (size_t i = 0; i < LOG_KINDS; i++) {
        struct log_kind *kind = &sink.kinds[i];
        if (kind->format && (now - kind->began >= LOG_PERIOD || now < kind->began)) {
            log_report_left_out(kind);
            *kind = (struct log_kind){0};
        }
    }
}

static struct log_kind *log_find_kind(const char *format, enum log_level level, clock_ms now)
{
    struct log_kind *found = &sink.kinds[0];
    for (size_t i = 0; i < LOG_KINDS; i++) {
        struct log_kind *kind = &sink.kinds[i];
        if (kind->format == format) {
            return kind;
        }
        if (found->format && (!kind->format || kind->began < found->began)) {
            found = kind;
        }
    }
    log_report_left_out(found);
    *found = (struct log_kind){.format = format, .began = now, .level = level};
    return found;
}

/* Must this line be left out?  Writes a line about the first that is. */
static bool __attribute__((format(printf, 2, 0)))
log_is_too_many(enum log_level level, const char *format, va_list arguments)
{
    clock_ms now = clock_now();
    char line[128];
    log_end_periods(now);
    struct log_kind *kind = log_find_kind(format, level, now);
    if (kind->written++ < LOG_BURST) {
        return false;
    }
    if (kind->left_out++ == 0) {
        vsnprintf(kind->example, sizeof(kind->example), format, arguments);
        snprintf(line, sizeof(line), "more lines like \"%s\" are left out for up to %d seconds", kind->example,
                 LOG_PERIOD / 1000);
        log_write_line(level, line);
    }
    return true;
}

void log_flush(void)
{
    for (size_t i = 0; i < LOG_KINDS; i++) {
        log_report_left_out(&sink.kinds[i]);
    }
}

static void __attribute__((format(printf, 2, 0))) log_emit(enum log_level level, const char *format, va_list arguments)
{
    char line[2048];
    vsnprintf(line, sizeof(line), format, arguments);
    log_write_line(level, line);
}

static void __attribute__((format(printf, 2, 0)))
log_emit_limited(enum log_level level, const char *format, va_list arguments)
{
    va_list again;
    if (level > sink.level) {
        return;
    }
    va_copy(again, arguments);
    if (level == LOG_LEVEL_DEBUG || !log_is_too_many(level, format, again)) {
        log_emit(level, format, arguments);
    }
    va_end(again);
}

void log_audit(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (sink.level >= LOG_LEVEL_WARNING) {
        log_emit(LOG_LEVEL_WARNING, format, arguments);
    }
    va_end(arguments);
}

#define DEFINE_LOG(name, level)                                                                                        \
    void name(const char *format, ...)                                                                                 \
    {                                                                                                                  \
        va_list arguments;                                                                                             \
                                                                                                                       \
        va_start(arguments, format);                                                                                   \
        log_emit_limited(level, format, arguments);                                                                    \
        va_end(arguments);                                                                                             \
    }

DEFINE_LOG(log_error, LOG_LEVEL_ERROR)
DEFINE_LOG(log_warning, LOG_LEVEL_WARNING)
DEFINE_LOG(log_notice, LOG_LEVEL_NOTICE)
DEFINE_LOG(log_info, LOG_LEVEL_INFO)
DEFINE_LOG(log_debug, LOG_LEVEL_DEBUG)

const char *log_escape(char *buffer, size_t size, const char *text)
{
    static const char digits[] = "0123456789abcdef";
    size_t used = 0;
    if (!size) {
        return buffer;
    }
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        bool plain = c >= 0x20 && c <= 0x7e && c != '\\';
        if (used + (plain ? 1 : 4) >= size) {
            break;
        }
        if (plain) {
            buffer[used++] = (char)c;
        } else {
            buffer[used++] = '\\';
            buffer[used++] = 'x';
            buffer[used++] = digits[c >> 4];
            buffer[used++] = digits[c & 15];
        }
    }
    buffer[used] = '\0';
    return buffer;
}
