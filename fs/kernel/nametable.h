/* nametable: nodes by parent and name.
 *
 * A hash table that grows and shrinks by one bucket at a time (W. Litwin, "Linear
 * Hashing", 1980), so that no request waits for a million nodes to be moved.  Users
 * choose the names, so the hash has a random key (SipHash).  A node costs eight bytes
 * here, and its own fields `next` and `hash`.
 */
#ifndef FS_KERNEL_NAMETABLE_H
#define FS_KERNEL_NAMETABLE_H

#include <glib.h>
#include <stdint.h>

struct node;

/* By value in its owner; the fields belong to nametable.c. */
struct nametable {
    uint64_t key[2];
    GPtrArray *segments; /* of struct node *[]: the first node of each bucket */
    uint32_t buckets;
    uint32_t count;
};

void nametable_init(struct nametable *table);
/* Frees the table's own memory; nodes are untouched. */
void nametable_clear(struct nametable *table);

/* The hash of a name in a directory.  It stays the same while the table exists.  A user cannot choose names with equal
 * hashes. */
uint32_t nametable_hash(const struct nametable *table, const struct node *parent, const char *name);
struct node *nametable_find(const struct nametable *table, const struct node *parent, const char *name);

/* Prepares for so many additions at once: moves the present nodes now, while they are few. */
void nametable_expect(struct nametable *table, uint64_t count);

/* Parent and name must not change while the node is in the table.  No other node in it may have both. */
void nametable_add(struct nametable *table, struct node *node);
/* For a table without look-ups: a set of nodes, some of them with the same name. */
void nametable_add_nameless(struct nametable *table, struct node *node);
void nametable_remove(struct nametable *table, struct node *node);

/* Calls `each` for all nodes.  It may free the node if the caller clears the table next. */
void nametable_each(const struct nametable *table, void (*each)(void *arg, struct node *node), void *arg);

#endif
