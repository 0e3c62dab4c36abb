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

#endif
