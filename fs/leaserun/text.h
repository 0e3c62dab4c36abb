/* text: prints and unescapes names. */
#ifndef FS_LEASERUN_TEXT_H
#define FS_LEASERUN_TEXT_H

#include <stdio.h>

/* In place: \xNN becomes a byte, as .leasefs and user.lease.owner write it. */
void leaserun_text_unescape(char *text);

/* On one line of a terminal: escapes \ and all but printable ASCII as \xNN. */
void leaserun_text_put(FILE *file, const char *text);

/* A JSON string with its quotes.  A byte that is not UTF-8 becomes the lone surrogate \udcNN, like in Python's file
 * names. */
void leaserun_text_put_json(FILE *file, const char *text);

/* The local time so many seconds (digits) from now, such as 12:00:07.  Returns `text`. */
const char *leaserun_text_until(const char *seconds, char *text, size_t size);

/* Seconds with a unit, such as 40.0s or 12m05s; negative: "-".  Returns `text`. */
const char *leaserun_text_duration(double seconds, char *text, size_t size);

#endif
