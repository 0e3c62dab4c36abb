/* sorted: see sorted.h for what it promises.
 *
 * A full block gives items to the block before it if that has room, and else is split in two
 * halves.  But an item behind its last goes to the next block or, if that is full too, to a
 * new one between them: so items that are inserted in order fill their blocks.  A block that
 * has become small joins the next if both together are at most half a block.
 */
#include "backend/sorted.h"

#include <glib.h>
#include <string.h>

enum { BLOCK_MAX = 64, BLOCK_STEP = 16, BLOCK_FIRST = 4 };

struct block {
    skiplist_compare *compare;
    uint32_t count; /* 0 only if it is the only one */
    uint32_t room;
    void *items[];
};

struct sorted_key {
    skiplist_probe *probe;
    const void *key;
};

static int block_compare(const void *a, const void *b)
{
    const struct block *x = a, *y = b;
    return x->compare(x->items[0], y->items[0]);
}

static int block_probe(const void *item, const void *key)
{
    const struct block *block = item;
    const struct sorted_key *k = key;
    return k->probe(block->items[0], k->key);
}

static struct block *block_new(skiplist_compare *compare, uint32_t room)
{
    struct block *block = g_malloc(sizeof *block + room * sizeof(void *));
    *block = (struct block){.compare = compare, .room = room};
    return block;
}

/* Gives the block of a node room for `count` items. */
static struct block *block_resize(struct skiplist_node *node, uint32_t count)
{
    struct block *block = skiplist_item(node);
    uint32_t room = (count + BLOCK_STEP - 1) / BLOCK_STEP * BLOCK_STEP;
    if (count > block->room || room + BLOCK_STEP < block->room) {
        block = g_realloc(block, sizeof *block + room * sizeof(void *));
        block->room = room;
        skiplist_replace(node, block);
    }
    return block;
}

/* How many of its items compare below `limit` against the key; fastest for a key behind them all. */
static uint32_t block_rank(const struct block *block, skiplist_probe *probe, const void *key, int limit)
{
    uint32_t low = 0, high = block->count - 1;
    if (block->count == 0 || probe(block->items[high], key) < limit) {
        return block->count;
    }
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (probe(block->items[middle], key) < limit) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The last block that does not begin after the key, else the first; NULL in an empty set. */
static struct skiplist_node *sorted_block(struct sorted *set, skiplist_probe *probe, const void *key)
{
    struct sorted_key k = {.probe = probe, .key = key};
    struct skiplist_node *node = set->recent;
    if (skiplist_length(&set->blocks) <= 1) {
        return skiplist_first(&set->blocks);
    }
    if (!node || block_probe(skiplist_item(node), &k) > 0 ||
        (skiplist_next(node) && block_probe(skiplist_item(skiplist_next(node)), &k) <= 0)) {
        struct skiplist_node *after = skiplist_seek(&set->blocks, block_probe, &k, true);
        node = after ? skiplist_previous(after) : skiplist_last(&set->blocks);
        node = node ? node : after;
    }
    set->recent = node;
    return node;
}

void sorted_init(struct sorted *set, skiplist_compare *compare, uint32_t seed)
{
    *set = (struct sorted){.compare = compare};
    skiplist_init(&set->blocks, block_compare, seed);
}

void sorted_clear(struct sorted *set)
{
    for (struct skiplist_node *node = skiplist_first(&set->blocks); node; node = skiplist_next(node)) {
        g_free(skiplist_item(node));
    }
    skiplist_clear(&set->blocks);
    set->recent = NULL;
}

/* Moves the items of this node's block from `from` on to a new block; both have room for one more. */
static void sorted_split(struct sorted *set, struct skiplist_node *node, uint32_t from)
{
    struct block *block = skiplist_item(node);
    struct block *next = block_new(set->compare, BLOCK_MAX / 2 + BLOCK_STEP);
    next->count = block->count - from;
    memcpy(next->items, block->items + from, next->count * sizeof(void *));
    block->count = from;
    block_resize(node, from + 1);
    skiplist_insert(&set->blocks, next);
}

/* Fills the block before this node's with this block's first items, if at most `most` are needed; returns how
 * many. */
static uint32_t sorted_give(struct skiplist_node *node, uint32_t most)
{
    struct skiplist_node *previous = skiplist_previous(node);
    struct block *block = skiplist_item(node), *before = skiplist_item(previous);
    uint32_t count = before ? BLOCK_MAX - before->count : 0;
    if (count < BLOCK_MAX / 4 || count > most) {
        return 0;
    }
    before = block_resize(previous, BLOCK_MAX);
    memcpy(before->items + before->count, block->items, count * sizeof(void *));
    before->count = BLOCK_MAX;
    block->count -= count;
    memmove(block->items, block->items + count, block->count * sizeof(void *));
    return count;
}

static void sorted_begin_block(struct sorted *set, void *item, uint32_t room)
{
    struct block *block = block_new(set->compare, room);
    block->items[0] = item;
    block->count = 1;
    skiplist_insert(&set->blocks, block);
}

void sorted_insert(struct sorted *set, void *item)
{
    struct skiplist_node *node = sorted_block(set, set->compare, item);
    if (!node) {
        sorted_begin_block(set, item, BLOCK_FIRST);
        return;
    }
    struct block *block = skiplist_item(node);
    uint32_t at = block_rank(block, set->compare, item, 0);
    if (block->count == BLOCK_MAX && at == BLOCK_MAX) {
        node = skiplist_next(node);
        block = skiplist_item(node);
        at = 0;
    }
    if (!block || (block->count == BLOCK_MAX && at == 0)) {
        sorted_begin_block(set, item, BLOCK_MAX);
        return;
    }
    if (block->count == BLOCK_MAX) {
        at -= sorted_give(node, MIN(at, BLOCK_MAX - 1));
    }
    if (block->count == BLOCK_MAX) {
        sorted_split(set, node, BLOCK_MAX / 2);
        node = at > BLOCK_MAX / 2 ? skiplist_next(node) : node;
        at = at > BLOCK_MAX / 2 ? at - BLOCK_MAX / 2 : at;
        block = skiplist_item(node);
    }
    if (block->count == block->room) {
        block = block_resize(node, block->count + 1);
    }
    memmove(block->items + at + 1, block->items + at, (block->count - at) * sizeof(void *));
    block->items[at] = item;
    block->count++;
}

static void sorted_end_block(struct sorted *set, struct block *block)
{
    skiplist_remove(&set->blocks, block);
    g_free(block);
    set->recent = NULL;
}

/* Joins the next block to this node's block if both are small. */
static void sorted_join(struct sorted *set, struct skiplist_node *node)
{
    struct block *block = skiplist_item(node);
    struct block *next = skiplist_item(skiplist_next(node));
    uint32_t count = block->count + (next ? next->count : 0);
    if (next && count <= BLOCK_MAX / 2) {
        block = block_resize(node, count);
        memcpy(block->items + block->count, next->items, next->count * sizeof(void *));
        sorted_end_block(set, next);
        block->count = count;
    } else {
        block_resize(node, block->count);
    }
}

bool sorted_remove(struct sorted *set, const void *item)
{
    struct skiplist_node *node = sorted_block(set, set->compare, item);
    struct block *block = skiplist_item(node);
    uint32_t at = node ? block_rank(block, set->compare, item, 0) : 0;
    if (!node || at == block->count || block->items[at] != item) {
        return false;
    }
    if (block->count == 1 && skiplist_length(&set->blocks) > 1) {
        sorted_end_block(set, block);
        return true;
    }
    block->count--;
    memmove(block->items + at, block->items + at + 1, (block->count - at) * sizeof(void *));
    sorted_join(set, node);
    return true;
}

struct sorted_position sorted_seek(struct sorted *set, skiplist_probe *probe, const void *key, bool after)
{
    struct sorted_position place = {.node = sorted_block(set, probe, key)};
    if (place.node) {
        const struct block *block = skiplist_item(place.node);
        place.index = block_rank(block, probe, key, after ? 1 : 0);
        if (place.index == block->count) {
            place = (struct sorted_position){.node = skiplist_next(place.node)};
        }
    }
    return place;
}

void *sorted_find(struct sorted *set, skiplist_probe *probe, const void *key)
{
    void *item = sorted_item(sorted_seek(set, probe, key, false));
    return item && probe(item, key) == 0 ? item : NULL;
}

struct sorted_position sorted_first(const struct sorted *set)
{
    return (struct sorted_position){.node = skiplist_first(&set->blocks)};
}

struct sorted_position sorted_next(struct sorted_position place)
{
    const struct block *block = skiplist_item(place.node);
    if (++place.index == block->count) {
        place = (struct sorted_position){.node = skiplist_next(place.node)};
    }
    return place;
}

void *sorted_item(struct sorted_position place)
{
    const struct block *block = skiplist_item(place.node);
    return block && place.index < block->count ? block->items[place.index] : NULL;
}

void *sorted_last(const struct sorted *set)
{
    const struct block *block = skiplist_item(skiplist_last(&set->blocks));
    return block && block->count > 0 ? block->items[block->count - 1] : NULL;
}

bool sorted_is_empty(const struct sorted *set)
{
    return !sorted_last(set);
}
