/* spans: which tickets of a queue cover which bytes.
 *
 * A treap: a search tree by first byte, and a heap by a random priority, which keeps it balanced (R. Seidel and
 * C. Aragon, "Randomized Search Trees", 1996).  Each node knows how far the spans below it reach, and the oldest
 * fencing token among them, so a search enters only subtrees that may have a result.
 */
#include "backend/lockspace/private.h"

struct span {
    struct span *left, *right;
    struct ticket *ticket; /* NULL: the scope's, which may pass to another ticket */
    struct scope *scope;
    uint64_t fence; /* the ticket's */
    uint64_t start, end;
    /* of this node and all below it, [1] counts only exclusive spans: */
    uint64_t reach[2];  /* the last byte */
    uint64_t oldest[2]; /* the lowest fencing token; UINT64_MAX: none */
    uint32_t priority;
    bool exclusive;
};

static int span_compare(const struct span *s, uint64_t start, uint64_t fence)
{
    return s->start != start ? (s->start < start ? -1 : 1) : (s->fence > fence) - (s->fence < fence);
}

static void span_update(struct span *s)
{
    for (int x = 0; x < 2; x++) {
        bool counts = !x || s->exclusive;
        s->reach[x] = counts ? s->end : 0;
        s->oldest[x] = counts ? s->fence : UINT64_MAX;
        for (int side = 0; side < 2; side++) {
            const struct span *below = side ? s->right : s->left;
            s->reach[x] = below ? MAX(s->reach[x], below->reach[x]) : s->reach[x];
            s->oldest[x] = below ? MIN(s->oldest[x], below->oldest[x]) : s->oldest[x];
        }
    }
}

static struct span *span_merge(struct span *left, struct span *right)
{
    if (!left || !right) {
        return left ? left : right;
    }
    struct span *top = left->priority > right->priority ? left : right;
    if (top == left) {
        left->right = span_merge(left->right, right);
    } else {
        right->left = span_merge(left, right->left);
    }
    span_update(top);
    return top;
}

/* Splits a tree at the key of `at`. */
static void span_split(struct span *s, const struct span *at, struct span **ret_left, struct span **ret_right)
{
    if (!s) {
        *ret_left = *ret_right = NULL;
        return;
    }
    if (span_compare(s, at->start, at->fence) < 0) {
        span_split(s->right, at, &s->right, ret_right);
        *ret_left = s;
    } else {
        span_split(s->left, at, ret_left, &s->left);
        *ret_right = s;
    }
    span_update(s);
}

static struct span *span_insert(struct span *root, struct span *s)
{
    if (!root || s->priority > root->priority) {
        span_split(root, s, &s->left, &s->right);
        root = s;
    } else if (span_compare(root, s->start, s->fence) > 0) {
        root->left = span_insert(root->left, s);
    } else {
        root->right = span_insert(root->right, s);
    }
    span_update(root);
    return root;
}

static struct span *span_remove(struct span *root, uint64_t start, uint64_t fence)
{
    int order = span_compare(root, start, fence);
    if (order == 0) {
        struct span *rest = span_merge(root->left, root->right);
        g_free(root);
        return rest;
    }
    if (order > 0) {
        root->left = span_remove(root->left, start, fence);
    } else {
        root->right = span_remove(root->right, start, fence);
    }
    span_update(root);
    return root;
}

/* Calls `each` for each segment of the ticket that touches these bytes. */
static void spans_each(struct lockspace *space, struct spans *spans, struct ticket *t, uint64_t start, uint64_t end,
                       void (*each)(struct lockspace *space, struct spans *spans, struct ticket *t,
                                    const struct backend_segment *segment))
{
    const GArray *segments = lockspace_segments(t);
    if (!segments) {
        each(space, spans, t, &(struct backend_segment){.end = BACKEND_RANGE_MAX, .mode = t->head.mode});
    }
    for (guint i = segments ? backend_segments_find(segments, 0, start) : 0; segments && i < segments->len; i++) {
        const struct backend_segment *s = &g_array_index(segments, struct backend_segment, i);
        if (s->start > end) {
            return;
        }
        each(space, spans, t, s);
    }
}

static void spans_add_segment(struct lockspace *space, struct spans *spans, struct ticket *t,
                              const struct backend_segment *segment)
{
    struct span *s = backend_new0(sizeof *s);
    s->ticket = lockspace_segments(t) ? NULL : t;
    s->scope = t->scope;
    s->fence = t->head.fence;
    s->start = segment->start;
    s->end = segment->end;
    s->exclusive = segment->mode == BACKEND_EXCLUSIVE;
    s->priority = lockspace_random(space);
    spans->root = span_insert(spans->root, s);
}

static void spans_remove_segment(struct lockspace *space, struct spans *spans, struct ticket *t,
                                 const struct backend_segment *segment)
{
    (void)space;
    spans->root = span_remove(spans->root, segment->start, t->head.fence);
}

void lockspace_spans_add(struct lockspace *space, struct spans *spans, struct ticket *t, uint64_t start, uint64_t end)
{
    if (t->scope) {
        t->scope->ticket = t;
    }
    spans_each(space, spans, t, start, end, spans_add_segment);
}

void lockspace_spans_remove(struct lockspace *space, struct spans *spans, struct ticket *t, uint64_t start,
                            uint64_t end)
{
    spans_each(space, spans, t, start, end, spans_remove_segment);
}

void lockspace_spans_clear(struct spans *spans)
{
    while (spans->root) {
        struct span *root = spans->root;
        spans->root = span_merge(root->left, root->right);
        g_free(root);
    }
}

static const struct span *span_next(const struct span *s, const struct span_search *search)
{
    bool x = search->exclusive;
    if (!s || s->reach[x] < search->start || s->oldest[x] >= search->before) {
        return NULL;
    }
    if (!search->begun || span_compare(s, search->at, search->fence) > 0) {
        const struct span *found = span_next(s->left, search);
        if (found) {
            return found;
        }
        if (s->start > search->end) {
            return NULL;
        }
        if (s->end >= search->start && s->fence < search->before && (!x || s->exclusive)) {
            return s;
        }
    }
    return span_next(s->right, search);
}

struct ticket *lockspace_spans_next(const struct spans *spans, struct span_search *search)
{
    const struct span *s = span_next(spans->root, search);
    if (!s) {
        return NULL;
    }
    search->begun = true;
    search->at = s->start;
    search->fence = s->fence;
    return s->ticket ? s->ticket : s->scope->ticket;
}
