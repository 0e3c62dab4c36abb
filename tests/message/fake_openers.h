/* fake_openers: replaces openers.h by walks whose results and times the check sets. */
#ifndef TESTS_MESSAGE_FAKE_OPENERS_H
#define TESTS_MESSAGE_FAKE_OPENERS_H

#include "fs/process/openers.h"

/* For fs->openers; fs_free frees it. */
struct openers *fake_openers_new(struct owner_table *owners);
/* This process has the file open, or no longer. */
void fake_openers_open(struct openers *openers, uint64_t inode, pid_t pid, bool single_threaded);
void fake_openers_close(struct openers *openers, uint64_t inode, pid_t pid);
/* It is this user's, and not root's. */
void fake_openers_set_user(struct openers *openers, pid_t pid, uid_t uid);
/* It cannot be looked into: it counts for each file. */
void fake_openers_hide(struct openers *openers, pid_t pid);
/* A walk.  A file that nobody is seen with is reported as UNSURE first, and by the next walk in a row as NOBODY. */
void fake_openers_walk(struct openers *openers);
/* How often somebody asked since the last walk; is there a walk every second? */
unsigned fake_openers_requested(const struct openers *openers);
bool fake_openers_is_waited_for(const struct openers *openers);
/* How many files are watched. */
unsigned fake_openers_files(const struct openers *openers);

#endif
