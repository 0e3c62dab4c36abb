/* openers_files: the files of a stand-in for fs/process/openers.c, and what it reports of them. */
#ifndef TESTS_SUPPORT_OPENERS_FILES_H
#define TESTS_SUPPORT_OPENERS_FILES_H

#include <glib.h>

#include "fs/process/openers.h"

struct openers_file {
    dev_t device;
    ino_t inode;
    unsigned empty; /* walks in a row that saw nobody */
    bool removed;
    openers_callback *callback;
    void *arg;
};

GPtrArray *openers_files_new(void); /* of struct openers_file */
struct openers_file *openers_files_add(GPtrArray *files, dev_t device, ino_t inode, openers_callback *callback,
                                       void *arg);
/* A walk has seen these struct openers_process, with references to their owners; frees them.  `unsure`: it may have
 * missed one.  `closed`: nobody has the file open, whatever was seen. */
void openers_files_report(struct openers_file *file, GArray *processes, bool unsure, bool closed);

#endif
