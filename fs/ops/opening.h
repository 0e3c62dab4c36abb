/* opening: who is on the way from looking a name up to opening what was found.
 *
 * The kernel opens a node, not a name.  When a rename comes in between, the
 * opener may mean the name that the node had before, and would lock another name
 * than it thinks.  So a node that has moved is opened only by threads that have
 * looked it up since; others are told ESTALE, and the kernel looks the name up
 * again for them, once.  What such a thread finds then is not renamed before it
 * is opened, so nobody is told ESTALE twice.
 *
 * Likewise for what has gone when it is looked at, before it is opened: who was
 * told ESTALE once and has looked the name up again sees what it found, and the
 * name keeps its node until it is opened, also when the lock has ended again.
 */
#ifndef FS_OPS_OPENING_H
#define FS_OPS_OPENING_H

#include <stdbool.h>
#include <sys/types.h>

struct node;
struct openings; /* of a mount */

struct openings *openings_new(void);
void openings_free(struct openings *openings);

/* This thread has looked a name up and found this node; NULL: nothing. */
void openings_note_lookup(struct openings *openings, pid_t thread, struct node *node);
/* It opens the node: true if it means the node's present name, else it is to be
 * told ESTALE.  `gone`: another node has that name by now, which is no reason to tell
 * the same thread ESTALE twice. */
bool openings_check_open(struct openings *openings, pid_t thread, struct node *node, bool gone);
/* It is told ESTALE, and looks the name up again at once. */
void openings_note_refusal(struct openings *openings, pid_t thread, const struct node *node);
/* It looks at a node whose lock has gone: true if it is shown, else it is told
 * ESTALE and looks the name up again. */
bool openings_check_look(struct openings *openings, pid_t thread, const struct node *node);
/* Is one on its way to what has this name that was told ESTALE before? */
bool openings_is_expected(const struct openings *openings, const struct node *directory, const char *name);
/* The node has another name now: who has looked it up means the former one. */
void openings_note_rename(struct openings *openings, struct node *node);

#endif
