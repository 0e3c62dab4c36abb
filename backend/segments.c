/* segments: which bytes a lock owner holds, and in which mode; see backend.h. */
#include "backend/backend.h"

static struct backend_segment *segment_at(const GArray *segments, guint i)
{
    return &g_array_index(segments, struct backend_segment, i);
}

static void segments_add(GArray *segments, uint64_t start, uint64_t end, enum backend_mode mode)
{
    struct backend_segment *last = segments->len ? segment_at(segments, segments->len - 1) : NULL;
    if (last && last->mode == mode && last->end == start - 1) {
        last->end = end;
        return;
    }
    struct backend_segment s = {.start = start, .end = end, .mode = mode};
    g_array_append_val(segments, s);
}

GArray *backend_segments_new(uint64_t start, uint64_t end, enum backend_mode mode)
{
    GArray *segments = g_array_new(FALSE, FALSE, sizeof(struct backend_segment));
    segments_add(segments, start, end, mode);
    return segments;
}

void backend_segments_set(GArray *segments, uint64_t start, uint64_t end, const enum backend_mode *mode)
{
    GArray *before = g_array_copy(segments);
    g_array_set_size(segments, 0);
    for (guint i = 0; i < before->len; i++) {
        const struct backend_segment *s = segment_at(before, i);
        if (s->start < start) {
            segments_add(segments, s->start, MIN(s->end, start - 1), s->mode);
        }
    }
    if (mode) {
        segments_add(segments, start, end, *mode);
    }
    for (guint i = 0; i < before->len; i++) {
        const struct backend_segment *s = segment_at(before, i);
        if (s->end > end) {
            segments_add(segments, MAX(s->start, end + 1), s->end, s->mode);
        }
    }
    g_array_unref(before);
}

guint backend_segments_find(const GArray *segments, guint i, uint64_t byte)
{
    for (guint last = segments->len; i < last;) {
        guint middle = i + (last - i) / 2;
        if (segment_at(segments, middle)->end < byte) {
            i = middle + 1;
        } else {
            last = middle;
        }
    }
    return i;
}

const struct backend_segment *backend_segments_conflict(const GArray *segments, const GArray *others)
{
    for (guint i = 0, k = 0; i < segments->len && k < others->len;) {
        const struct backend_segment *s = segment_at(segments, i), *o = segment_at(others, k);
        if (s->end < o->start) {
            i = backend_segments_find(segments, i + 1, o->start);
        } else if (o->end < s->start) {
            k = backend_segments_find(others, k + 1, s->start);
        } else if (s->mode == BACKEND_EXCLUSIVE || o->mode == BACKEND_EXCLUSIVE) {
            return s;
        } else if (s->end < o->end) {
            i++;
        } else {
            k++;
        }
    }
    return NULL;
}

enum backend_mode backend_segments_mode(const GArray *segments)
{
    for (guint i = 0; i < segments->len; i++) {
        if (segment_at(segments, i)->mode == BACKEND_EXCLUSIVE) {
            return BACKEND_EXCLUSIVE;
        }
    }
    return BACKEND_SHARED;
}
