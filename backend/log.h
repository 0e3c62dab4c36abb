/* log: one line per event that is worth an operator's attention.
 *
 * To stderr until log_to_syslog() is called.  Names that came from users are
 * to be passed through log_escape().  Library-like modules (skiplist,
 * lockspace, journal) do not log; they return errors.
 */
#ifndef BACKEND_LOG_H
#define BACKEND_LOG_H

#include <stddef.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* Drop messages above this level.  The default is LOG_LEVEL_INFO. */
void log_set_level(enum log_level level);

/* From now on to syslog(3) under this identity (facility daemon). */
void log_to_syslog(const char *ident);

void log_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_warning(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Writes `text` to `buffer` (always terminated, cut to fit) with control
 * characters, backslash and bytes above 0x7e as \xNN.  Returns `buffer`. */
const char *log_escape(char *buffer, size_t size, const char *text);

#endif
