/* log: one line per event, to stderr or to syslog(3).
 *
 * A line goes out with a single write, so that those of two daemons never mix.
 */
#include "log.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <syslog.h>

static struct {
    enum log_level level;
    bool syslog;
} sink = {LOG_LEVEL_INFO, false};

void log_set_level(enum log_level level)
{
    sink.level = level;
}

void log_to_syslog(const char *ident)
{
    openlog(ident, LOG_PID, LOG_DAEMON);
    sink.syslog = true;
}

static void __attribute__((format(printf, 2, 0))) emit(enum log_level level, const char *format, va_list arguments)
{
    static const struct {
        int priority;
        const char *prefix;
    } levels[] = {
        [LOG_LEVEL_ERROR] = {LOG_ERR, "error: "},
        [LOG_LEVEL_WARNING] = {LOG_WARNING, "warning: "},
        [LOG_LEVEL_INFO] = {LOG_INFO, ""},
        [LOG_LEVEL_DEBUG] = {LOG_DEBUG, "debug: "},
    };
    char line[2048];

    if (level > sink.level)
        return;
    vsnprintf(line, sizeof(line), format, arguments);
    if (sink.syslog)
        syslog(levels[level].priority, "%s%s", levels[level].prefix, line);
    else
        fprintf(stderr, "leasefs: %s%s\n", levels[level].prefix, line);
}

#define DEFINE_LOG(name, level)                                                                                        \
    void name(const char *format, ...)                                                                                 \
    {                                                                                                                  \
        va_list arguments;                                                                                             \
                                                                                                                       \
        va_start(arguments, format);                                                                                   \
        emit(level, format, arguments);                                                                                \
        va_end(arguments);                                                                                             \
    }

DEFINE_LOG(log_error, LOG_LEVEL_ERROR)
DEFINE_LOG(log_warning, LOG_LEVEL_WARNING)
DEFINE_LOG(log_info, LOG_LEVEL_INFO)
DEFINE_LOG(log_debug, LOG_LEVEL_DEBUG)

const char *log_escape(char *buffer, size_t size, const char *text)
{
    static const char digits[] = "0123456789abcdef";
    size_t used = 0;

    if (!size)
        return buffer;
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        bool plain = c >= 0x20 && c <= 0x7e && c != '\\';

        if (used + (plain ? 1 : 4) >= size)
            break;
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
