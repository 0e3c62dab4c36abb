/* local_fixture: a local backend in a scratch directory, started on the loop of the contract's driver, which can crash,
 * restart and reboot. */
#ifndef TESTS_UNIT_LOCAL_FIXTURE_H
#define TESTS_UNIT_LOCAL_FIXTURE_H

#include "backend/local/local.h"
#include "tests/contract/contract.h"

extern char *local_directory;
/* For the next backend that is opened; all but the directory. */
extern struct local_options local_options;
extern char local_error[512];

/* Checked fixtures; the teardown is contract_teardown. */
void local_setup(void);
void local_setup_synced(void);

struct backend *local_open_at(const char *directory);

/* The backend as a daemon would find it that starts after this one was killed
 * now; the present one is ended. */
void local_crash(void);
void local_restart(void);

/* Turns of the loop for 50 ms. */
void local_let_time_pass(void);

#endif
