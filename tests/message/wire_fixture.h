/* wire_fixture: one mount on a wire, and three unrelated processes that use it. */
#ifndef TESTS_MESSAGE_WIRE_FIXTURE_H
#define TESTS_MESSAGE_WIRE_FIXTURE_H

#include "tests/message/wire.h"

/* A local store has these. */
#define WIRE_LOCAL_FEATURES (BACKEND_CAN_RANGE | BACKEND_CAN_SEQUENCE | BACKEND_SOLE_AUTHORITY)

extern struct wire *w;
extern pid_t alice, bob, carol;
extern struct wire_file a, b, c; /* after wire_setup_files: L, open for reading, by each of them */

/* Makes mount and processes; alice sends the next requests. */
void wire_setup_with(unsigned features);
void wire_setup_on_kernel(unsigned features, unsigned minor);
/* Checked fixtures, of a local store. */
void wire_setup(void);
void wire_setup_files(void);
void wire_teardown(void);

/* The first holder of the name, or NULL; and is it of this kind? */
const struct backend_ticket *holder(const char *name);
bool held_as(const char *name, enum backend_kind kind);
/* Makes a lease of this process, closed, and returns its node. */
uint64_t lease_of(pid_t pid, const char *name);
struct fuse_attr attributes(uint64_t node);
void check_content(struct wire_file file, const char *expected);

#endif
