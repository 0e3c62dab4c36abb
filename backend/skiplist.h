/* skiplist: an ordered list with spans, as Redis's sorted sets have.
 *
 * One implementation for its uses: tickets of a queue by number, and blocks (sorted.h) of
 * names in a directory and of tickets by the time of their next event.  Search, insertion,
 * removal, rank of an item and item of a rank are all O(log n); first, last,
 * next and previous are O(1).
 *
 * The list holds pointers to items that the caller owns; their keys must not
 * change while they are in it.  An empty list owns no memory; an item costs
 * about 37 bytes of heap on 64-bit glibc (1.33 levels on average, p = 1/4;
 * W. Pugh, "Skip Lists: A Probabilistic Alternative to Balanced Trees", 1990).
 */
#ifndef BACKEND_SKIPLIST_H
#define BACKEND_SKIPLIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Orders two items: < 0, 0, > 0.  Items of one list never compare equal. */
typedef int skiplist_compare(const void *a, const void *b);

/* The position of `item` relative to a key: < 0 before it, 0 equal, > 0 after it. */
typedef int skiplist_probe(const void *item, const void *key);

/* The fields belong to skiplist.c. */
struct skiplist_level {
    struct skiplist_node *next;
    uint32_t span;
} __attribute__((packed, aligned(4))); /* 12 bytes instead of 16 */

struct skiplist_node {
    struct skiplist_node *previous; /* NULL for the first: nobody points to the head, so it can move */
    void *item;
    struct skiplist_node *next;
    struct skiplist_level upper[]; /* levels 1 and up */
};

/* By value in its owner; initialise with skiplist_init, empty with
 * skiplist_clear.  The fields belong to skiplist.c. */
struct skiplist {
    skiplist_compare *compare;
    struct skiplist_node *head;
    struct skiplist_node *tail;
    uint32_t length;
    uint32_t random : 24;
    uint32_t level : 8;
};

/* `seed` decides the levels: the same seed and the same calls give the same
 * list. */
void skiplist_init(struct skiplist *list, skiplist_compare *compare, uint32_t seed);

/* Forgets all items and frees the list's own memory; items are untouched. */
void skiplist_clear(struct skiplist *list);

/* Returns the item's node, valid until the item is removed.  No item of the list
 * may be this one or compare equal to it. */
struct skiplist_node *skiplist_insert(struct skiplist *list, void *item);

/* Removes the item; false if it is not there. */
bool skiplist_remove(struct skiplist *list, const void *item);

/* The first item for which `probe` is >= 0 (> 0 with `after`), or NULL. */
struct skiplist_node *skiplist_seek(const struct skiplist *list, skiplist_probe *probe, const void *key, bool after);

/* How many items stand before this one, which need not be in the list. */
uint32_t skiplist_rank(const struct skiplist *list, const void *item);

static inline struct skiplist_node *skiplist_first(const struct skiplist *list)
{
    return list->head ? list->head->next : NULL;
}

static inline struct skiplist_node *skiplist_last(const struct skiplist *list)
{
    return list->tail;
}

static inline struct skiplist_node *skiplist_next(const struct skiplist_node *node)
{
    return node->next;
}

static inline struct skiplist_node *skiplist_previous(const struct skiplist_node *node)
{
    return node->previous;
}

/* The item of a node; NULL for a NULL node. */
static inline void *skiplist_item(const struct skiplist_node *node)
{
    return node ? node->item : NULL;
}

/* Replaces a node's item by one of the same position in the order. */
static inline void skiplist_replace(struct skiplist_node *node, void *item)
{
    node->item = item;
}

static inline uint32_t skiplist_length(const struct skiplist *list)
{
    return list->length;
}

#endif
