/* log: one line per event that is worth an operator's attention.
 *
 * To stderr until log_to_syslog() is called.  Of the lines that differ only in
 * their arguments, 100 are written in ten seconds and the others left out; a line
 * that gives their number follows with the next line after that time, or by
 * log_flush.  At level debug all lines are written.
 *
 * Pass names that came from users through log_escape().  Library-like modules
 * (skiplist, lockspace, journal) do not log; they return errors.
 */
#ifndef BACKEND_LOG_H
#define BACKEND_LOG_H

#include <stdbool.h>
#include <stddef.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_NOTICE, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* Drop messages above this level.  The default is LOG_LEVEL_INFO. */
void log_set_level(enum log_level level);

/* Are messages of this level shown? */
bool log_wants(enum log_level level);

/* "error", "warning", "notice", "info" or "debug". */
bool log_parse_level(const char *name, enum log_level *ret_level);

/* To stderr.  If that is a stream to systemd's journal ($JOURNAL_STREAM), lines have
 * the prefixes of sd-daemon(3), which carry the level. */
void log_to_stderr(void);

/* log_connect_syslog connects to syslog(3), under this identity (facility daemon);
 * call it before the sandbox.  log_to_syslog sends all further lines there; they are
 * dropped if no syslog daemon was there to connect to. */
void log_connect_syslog(const char *ident);
void log_to_syslog(void);

void log_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_warning(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_notice(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* At level warning, and never left out as a repetition: for lines that must be
 * written each time, such as who broke whose lock. */
void log_audit(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Reports how many lines were left out; call it at the end. */
void log_flush(void);

/* Writes `text` to `buffer` (always terminated, cut to fit) with control
 * characters, backslash and bytes above 0x7e as \xNN.  Returns `buffer`. */
const char *log_escape(char *buffer, size_t size, const char *text);

#endif
