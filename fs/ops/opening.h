/* opening: threads between looking a name up and opening what they found.
 *
 * The kernel opens a node, not a name.  After a rename in between, the opener may mean
 * the old name of the node, and would lock another name than it thinks.  So only threads
 * that have looked it up since may open a renamed node.  Others get ESTALE, and the
 * kernel looks the name up again for them, once.  The node that such a thread finds then
 * is not renamed before the thread has opened it, so nobody gets ESTALE twice.
 *
 * The same holds for a lock that ends before the thread looks at it.  After one ESTALE
 * and a second look-up the thread sees what it found, and the name keeps its node until
 * the thread has opened it, even if the lock has ended again.
 */
#ifndef FS_OPS_OPENING_H
#define FS_OPS_OPENING_H

#include <stdbool.h>
#include <sys/types.h>

#include "backend/clock.h"

struct node;
struct tree;
struct openings; /* one for each mount */

struct openings *openings_new(struct tree *tree);
void openings_free(struct openings *openings);

/* The thread has looked a name up and found this node; NULL: nothing. */
void openings_note_lookup(struct openings *openings, pid_t thread, struct node *node);
/* The thread opens the node.  True if the thread means the node's present name; false: reply ESTALE.  `gone`: the name
 * no longer finds the node; for this reason a thread gets ESTALE only once. */
bool openings_check_open(struct openings *openings, pid_t thread, struct node *node, bool gone);
/* The thread gets ESTALE, so the kernel looks the name up again at once. */
void openings_note_refusal(struct openings *openings, pid_t thread, const struct node *node);
/* The thread looks at a node whose lock is gone; its request came at `when`.  True: show it; false: reply ESTALE, so
 * the kernel looks the name up again. */
bool openings_check_look(struct openings *openings, pid_t thread, const struct node *node, clock_ms when);
/* Is the thread between looking a name up and opening it, as far as is known? */
bool openings_has_thread(const struct openings *openings, pid_t thread);
/* Will a thread that got ESTALE open the node of this name? */
bool openings_is_expected(const struct openings *openings, const struct node *directory, const char *name);
/* The node was renamed: threads that looked it up before mean its old name. */
void openings_note_rename(struct openings *openings, struct node *node);

#endif
