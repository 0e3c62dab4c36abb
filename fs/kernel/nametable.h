/* nametable: nodes by parent and name.
 *
 * A hash table that grows and shrinks by one bucket at a time (W. Litwin, "Linear
 * Hashing", 1980): no request waits for a million nodes to be moved.  Users choose the
 * names, so what they cannot know decides where each goes (SipHash).  A node costs it
 * eight bytes and its own `next` and `hash`.
 */
#ifndef FS_KERNEL_NAMETABLE_H
#define FS_KERNEL_NAMETABLE_H

#include <glib.h>
#include <stdint.h>

struct node;

/* By value in its owner; the fields belong to nametable.c. */
struct nametable {
    uint64_t key[2];
    GPtrArray *segments; /* of struct node *[]: the first nodes of that many buckets */
    uint32_t buckets;
    uint32_t count;
};

void nametable_init(struct nametable *table);
/* Frees the table's own memory; nodes are untouched. */
void nametable_clear(struct nametable *table);

struct node *nametable_find(const struct nametable *table, const struct node *parent, const char *name);

/* So many will be added at once: what is there is moved now, while it is little. */
void nametable_expect(struct nametable *table, uint64_t count);

/* Parent and name must not change while it is in; there must be none with both in it. */
void nametable_add(struct nametable *table, struct node *node);
/* In a table in which nothing is looked for by name: a set of nodes, which may have the same. */
void nametable_add_nameless(struct nametable *table, struct node *node);
void nametable_remove(struct nametable *table, struct node *node);

/* Calls `each` for all; it may free the node, if the table is cleared next. */
void nametable_each(const struct nametable *table, void (*each)(void *arg, struct node *node), void *arg);

#endif
