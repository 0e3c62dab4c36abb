/* user: the programs of a world: their calls, and their reports of these to the judge. */
#ifndef TESTS_SIM_USER_H
#define TESTS_SIM_USER_H

#include "tests/sim/judge.h"
#include "tests/sim/mount.h"
#include "tests/sim/plan.h"

/* The lines of the story: what users see.  NULL: nobody reads it. */
void user_begin(struct judge *judge, struct mount **mounts, unsigned count, void *story);
void user_tell(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Of kernel_options. */
void user_deleted(unsigned mount, uint32_t process, const char *name);
void user_polled(unsigned mount, uint64_t handle);

/* Lets it happen, or gives it to its program, which does it after what it has still to do. */
void user_act(const struct act *act);

/* SIGKILL to all of a host: it has lost its power. */
void user_kill_all(unsigned mount);
/* Ends all programs; and whether all have ended. */
void user_end(void);
bool user_has_ended(void);
/* The names that a listing of all directories through the mount shows, each with a newline; of the world's end. */
char *user_list_all(unsigned mount);
/* Calls that have been answered. */
uint64_t user_calls(void);
/* A call that has waited for that long, or NULL. */
const char *user_stuck(int64_t duration);

#endif
