/* sorted: very many items in order.
 *
 * Items are in blocks of up to 64, and the blocks in a skiplist by their first
 * items.  So a search in a million touches a third of the cache lines that a skiplist
 * of the items would, and an item costs 9 to 12 bytes of heap instead of 37.  A search
 * tries the block of the last search first, because most insertions follow a search for
 * the same key.
 *
 * The set holds pointers to items that the caller owns; their keys must not change
 * while they are in it.  An empty set keeps its last block, a small one, until
 * sorted_clear: many sets have one item at a time.
 */
#ifndef BACKEND_SORTED_H
#define BACKEND_SORTED_H

#include "backend/skiplist.h"

/* By value in its owner; initialise with sorted_init, empty with sorted_clear.  The
 * fields belong to sorted.c. */
struct sorted {
    struct skiplist blocks;
    skiplist_compare *compare;
    struct skiplist_node *recent; /* the block that was searched last, or NULL */
};

/* A place in a set, valid until the set is changed; the fields belong to sorted.c. */
struct sorted_position {
    struct skiplist_node *node; /* of its block; NULL: behind the last item */
    uint32_t index;
};

/* `seed`: see skiplist_init. */
void sorted_init(struct sorted *set, skiplist_compare *compare, uint32_t seed);

/* Forgets all items and frees the set's own memory; items are untouched. */
void sorted_clear(struct sorted *set);

/* No item of the set may be this one or compare equal to it. */
void sorted_insert(struct sorted *set, void *item);

/* Removes the item; false if it is not there. */
bool sorted_remove(struct sorted *set, const void *item);

/* The item for which `probe` is 0, or NULL. */
void *sorted_find(struct sorted *set, skiplist_probe *probe, const void *key);

/* The first item for which `probe` is >= 0 (> 0 with `after`). */
struct sorted_position sorted_seek(struct sorted *set, skiplist_probe *probe, const void *key, bool after);

struct sorted_position sorted_first(const struct sorted *set);
struct sorted_position sorted_next(struct sorted_position place);

/* NULL behind the last. */
void *sorted_item(struct sorted_position place);

/* The last item, or NULL. */
void *sorted_last(const struct sorted *set);

bool sorted_is_empty(const struct sorted *set);

#endif
