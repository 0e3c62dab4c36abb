/* skiplist: see skiplist.h for what it promises.
 *
 * Positions count from 1, the head stands at 0 and the end (a NULL link) at
 * length + 1; the span of a link is the distance between the positions it
 * joins.  So the span of a link on the lowest level is always 1 and is not
 * stored, and three quarters of all nodes are three pointers: 32 bytes of heap.
 */
#include "backend/skiplist.h"

#include <glib.h>

enum { LEVELS_MAX = 16 }; /* enough for 4^16 items, more than `length` can count */

/* On each level the last node before a position, and that node's position. */
struct path {
    struct skiplist_node *node[LEVELS_MAX];
    uint32_t position[LEVELS_MAX];
};

static size_t skiplist_node_size(unsigned levels)
{
    return sizeof(struct skiplist_node) + (levels - 1) * sizeof(struct skiplist_level);
}

static struct skiplist_node *skiplist_link_next(const struct skiplist_node *node, unsigned level)
{
    return level == 0 ? node->next : node->upper[level - 1].next;
}

static uint32_t skiplist_link_span(const struct skiplist_node *node, unsigned level)
{
    return level == 0 ? 1 : node->upper[level - 1].span;
}

static void skiplist_link_set(struct skiplist_node *node, unsigned level, struct skiplist_node *next, uint32_t span)
{
    if (level == 0) {
        node->next = next;
    } else {
        node->upper[level - 1].next = next;
        node->upper[level - 1].span = span;
    }
}

/* A level is one higher with probability 1/4.  The 24 bits of state run through
 * a full-period generator; a mixer makes its weak low bits usable. */
static unsigned skiplist_random_levels(struct skiplist *list)
{
    list->random = (list->random * 1140671485u + 12820163u) & 0xffffffu;
    uint32_t x = list->random;
    x = (x ^ (x >> 15)) * 0x2c1b3c6du;
    x = (x ^ (x >> 12)) * 0x297a2d39u;
    x ^= x >> 15;
    unsigned levels = 1 + (x ? (unsigned)__builtin_ctz(x) / 2 : LEVELS_MAX);
    return MIN(levels, (unsigned)LEVELS_MAX);
}

/* Goes past every item that compares below `limit` against the key: with 0 to
 * the first that is not before it, with 1 to the first after it.  A link that
 * was looked at one level above is not compared again. */
static struct skiplist_node *skiplist_descend(const struct skiplist *list, skiplist_compare *compare, const void *key,
                                              int limit, struct path *path, uint32_t *ret_position)
{
    struct skiplist_node *node = list->head;
    struct skiplist_node *beyond = NULL;
    uint32_t position = 0;
    for (unsigned level = list->level; level-- > 0;) {
        struct skiplist_node *next = skiplist_link_next(node, level);
        while (next && next != beyond && compare(next->item, key) < limit) {
            position += skiplist_link_span(node, level);
            node = next;
            next = skiplist_link_next(node, level);
        }
        beyond = next;
        if (path) {
            path->node[level] = node;
            path->position[level] = position;
        }
    }
    if (ret_position) {
        *ret_position = position;
    }
    return node;
}

/* Gives the head `levels` levels; the new ones lead to the end. */
static void skiplist_raise_head(struct skiplist *list, unsigned levels)
{
    bool first = !list->head;
    list->head = g_realloc(list->head, skiplist_node_size(levels));
    if (first) {
        *list->head = (struct skiplist_node){0};
    }
    for (unsigned level = first ? 0 : list->level; level < levels; level++) {
        skiplist_link_set(list->head, level, NULL, list->length + 1);
    }
    list->level = levels & 0xffu;
}

void skiplist_init(struct skiplist *list, skiplist_compare *compare, uint32_t seed)
{
    *list = (struct skiplist){.compare = compare, .random = (seed ^ (seed >> 24)) & 0xffffffu};
}

void skiplist_clear(struct skiplist *list)
{
    struct skiplist_node *node = list->head;
    while (node) {
        struct skiplist_node *next = node->next;
        g_free(node);
        node = next;
    }
    list->head = NULL;
    list->tail = NULL;
    list->length = 0;
    list->level = 0;
}

struct skiplist_node *skiplist_insert(struct skiplist *list, void *item)
{
    struct path path;
    unsigned levels = skiplist_random_levels(list);
    if (levels > list->level) {
        skiplist_raise_head(list, levels);
    }
    struct skiplist_node *before = skiplist_descend(list, list->compare, item, 0, &path, NULL);
    struct skiplist_node *node = g_malloc(skiplist_node_size(levels));
    uint32_t position = path.position[0] + 1;

    node->item = item;
    node->previous = before == list->head ? NULL : before;
    for (unsigned level = 0; level < list->level; level++) {
        struct skiplist_node *from = path.node[level];
        struct skiplist_node *next = skiplist_link_next(from, level);
        uint32_t span = skiplist_link_span(from, level) + 1;
        if (level < levels) {
            uint32_t distance = position - path.position[level];
            skiplist_link_set(node, level, next, span - distance);
            skiplist_link_set(from, level, node, distance);
        } else {
            skiplist_link_set(from, level, next, span);
        }
    }
    if (node->next) {
        node->next->previous = node;
    } else {
        list->tail = node;
    }
    list->length++;
    return node;
}

bool skiplist_remove(struct skiplist *list, const void *item)
{
    struct path path;
    if (!list->head) {
        return false;
    }
    struct skiplist_node *node = skiplist_descend(list, list->compare, item, 0, &path, NULL)->next;
    if (!node || node->item != item) {
        return false;
    }
    for (unsigned level = 0; level < list->level; level++) {
        struct skiplist_node *from = path.node[level];
        struct skiplist_node *next = skiplist_link_next(from, level);
        uint32_t span = skiplist_link_span(from, level) - 1;
        if (next == node) {
            skiplist_link_set(from, level, skiplist_link_next(node, level), span + skiplist_link_span(node, level));
        } else {
            skiplist_link_set(from, level, next, span);
        }
    }
    if (node->next) {
        node->next->previous = node->previous;
    } else {
        list->tail = node->previous;
    }
    g_free(node);
    list->length--;
    while (list->level > 1 && !skiplist_link_next(list->head, list->level - 1u)) {
        list->level--;
    }
    if (list->length == 0) {
        skiplist_clear(list);
    }
    return true;
}

struct skiplist_node *skiplist_seek(const struct skiplist *list, skiplist_probe *probe, const void *key, bool after)
{
    return list->head ? skiplist_descend(list, probe, key, after ? 1 : 0, NULL, NULL)->next : NULL;
}

uint32_t skiplist_rank(const struct skiplist *list, const void *item)
{
    uint32_t position = 0;
    if (list->head) {
        skiplist_descend(list, list->compare, item, 0, NULL, &position);
    }
    return position;
}
