/* record: the bytes of a record; see record.h.
 *
 * All numbers are varints (LEB128) unless a size is given, least significant byte first.
 *
 *     u8 'L' or 'D' (lock, directory), u8 version 1, u8 flags: GRANTED_NEW, ENDS_WITH_RECORD
 *     tokens, granted (with GRANTED_NEW the index of a new token); with ENDS_WITH_RECORD: after
 *     D: ttl, width, delay, sequence, 16 bytes made, meta (length + 1, bytes; 0: NULL)
 *     mounts: count, 16 bytes each
 *     tickets: count, and for each: flags, kind, 16 bytes id, index of its mount + 1 (0: none), fence (with FENCE_NEW
 *         its index among the new tokens), acquired unless ACQUIRED_NEW; of a holder: deadline (with DEADLINE_NEW a
 *         term) unless ENDS_WITH_RECORD, and guarded; ttl; 8 bytes handle, 8 bytes lock owner, each if flagged; D: leaf
 *         (length, bytes); segments: count, each: start, end - start, mode; meta, content (as above)
 */
#include "backend/lockspace/record.h"

#include <string.h>

enum { VERSION = 1, GRANTED_NEW = 1, ENDS_WITH_RECORD = 2, LEAF_MAX = 255, MOUNTS_MAX = RECORD_TICKETS_MAX };

enum {
    TICKET_HELD = 1,
    TICKET_CLAIM = 2,
    TICKET_SEQUENCE = 4,
    TICKET_SHARED = 8,
    TICKET_APART = 16,
    TICKET_FENCE_NEW = 32,
    TICKET_ACQUIRED_NEW = 64,
    TICKET_DEADLINE_NEW = 128,
    TICKET_HANDLE = 256,
    TICKET_LOCK_OWNER = 512,
    TICKET_SEGMENTS = 1024,
    TICKET_FLAGS = 2047
};

/* --- values --- */

struct record *record_new(bool directory)
{
    struct record *record = backend_new0(sizeof *record);
    record->directory = directory;
    record->attributes.width = 1;
    record->tickets = g_ptr_array_new_with_free_func(record_ticket_free);
    return record;
}

struct record *record_copy(const struct record *record)
{
    struct record *copy = backend_new0(sizeof *copy);
    *copy = *record;
    copy->attributes.meta = record->attributes.meta ? g_bytes_ref(record->attributes.meta) : NULL;
    copy->tickets = g_ptr_array_new_full(record->tickets->len + 1, record_ticket_free);
    for (guint i = 0; i < record->tickets->len; i++) {
        g_ptr_array_add(copy->tickets, record_ticket_copy(record->tickets->pdata[i]));
    }
    return copy;
}

void record_free(struct record *record)
{
    if (record) {
        g_clear_pointer(&record->attributes.meta, g_bytes_unref);
        g_ptr_array_unref(record->tickets);
        g_free(record);
    }
}

void record_ticket_free(gpointer data)
{
    struct record_ticket *t = data;
    g_clear_pointer(&t->segments, g_array_unref);
    g_clear_pointer(&t->meta, g_bytes_unref);
    g_clear_pointer(&t->content, g_bytes_unref);
    g_free(t->leaf);
    g_free(t);
}

struct record_ticket *record_ticket_copy(const struct record_ticket *ticket)
{
    struct record_ticket *t = backend_new0(sizeof *t);
    *t = *ticket;
    t->leaf = g_strdup(ticket->leaf);
    t->segments = ticket->segments ? g_array_copy(ticket->segments) : NULL;
    t->meta = ticket->meta ? g_bytes_ref(ticket->meta) : NULL;
    t->content = ticket->content ? g_bytes_ref(ticket->content) : NULL;
    return t;
}

struct record_ticket *record_find(const struct record *record, struct record_id id)
{
    for (guint i = 0; i < record->tickets->len; i++) {
        struct record_ticket *t = record->tickets->pdata[i];
        if (record_id_equal(t->id, id)) {
            return t;
        }
    }
    return NULL;
}

/* --- writing --- */

static void write_u8(GByteArray *out, unsigned value)
{
    uint8_t byte = (uint8_t)value;
    g_byte_array_append(out, &byte, 1);
}

static void write_number(GByteArray *out, uint64_t value)
{
    for (; value >= 0x80; value >>= 7) {
        write_u8(out, (unsigned)(value & 0x7f) | 0x80);
    }
    write_u8(out, (unsigned)value);
}

static void write_u64(GByteArray *out, uint64_t value)
{
    value = GUINT64_TO_LE(value);
    g_byte_array_append(out, (const guint8 *)&value, sizeof value);
}

static void write_id(GByteArray *out, struct record_id id)
{
    write_u64(out, id.half[0]);
    write_u64(out, id.half[1]);
}

static void write_bytes(GByteArray *out, GBytes *bytes)
{
    gsize size = 0;
    const void *data = bytes ? g_bytes_get_data(bytes, &size) : NULL;
    write_number(out, bytes ? size + 1 : 0);
    if (size) {
        g_byte_array_append(out, data, (guint)size);
    }
}

static void write_segments(GByteArray *out, const GArray *segments)
{
    write_number(out, segments->len);
    for (guint i = 0; i < segments->len; i++) {
        const struct backend_segment *s = &g_array_index(segments, struct backend_segment, i);
        write_number(out, s->start);
        write_number(out, s->end - s->start);
        write_u8(out, s->mode);
    }
}

/* The index of the mount of each ticket, plus 1; writes the table. */
static guint *write_mounts(GByteArray *out, const GPtrArray *tickets)
{
    guint *indexes = g_new0(guint, tickets->len + 1);
    guint count = 0;
    GArray *mounts = g_array_new(FALSE, FALSE, sizeof(struct record_id));
    for (guint i = 0; i < tickets->len; i++) {
        const struct record_ticket *t = tickets->pdata[i];
        guint at = record_id_is_set(t->mount) ? 0 : count;
        while (at < count && !record_id_equal(g_array_index(mounts, struct record_id, at), t->mount)) {
            at++;
        }
        if (record_id_is_set(t->mount)) {
            indexes[i] = at + 1;
            if (at == count) {
                g_array_append_val(mounts, t->mount);
                count++;
            }
        }
    }
    write_number(out, count);
    for (guint i = 0; i < count; i++) {
        write_id(out, g_array_index(mounts, struct record_id, i));
    }
    g_array_unref(mounts);
    return indexes;
}

static void write_ticket(GByteArray *out, const struct record *record, const struct record_ticket *t, guint mount,
                         clock_ms now)
{
    bool fence_new = t->fence >= RECORD_NEW_TOKENS;
    write_number(out, (t->held ? TICKET_HELD : 0u) | (t->claim ? TICKET_CLAIM : 0u) |
                          (t->sequence ? TICKET_SEQUENCE : 0u) | (t->mode == BACKEND_SHARED ? TICKET_SHARED : 0u) |
                          (t->content_apart ? TICKET_APART : 0u) | (fence_new ? TICKET_FENCE_NEW : 0u) |
                          (t->acquired_new ? TICKET_ACQUIRED_NEW : 0u) | (t->deadline_new ? TICKET_DEADLINE_NEW : 0u) |
                          (t->handle ? TICKET_HANDLE : 0u) | (t->lock_owner ? TICKET_LOCK_OWNER : 0u) |
                          (t->segments ? TICKET_SEGMENTS : 0u));
    write_number(out, t->kind);
    write_id(out, t->id);
    write_number(out, mount);
    write_number(out, fence_new ? t->fence - RECORD_NEW_TOKENS : t->fence);
    if (!t->acquired_new) {
        write_number(out, (uint64_t)t->acquired);
    }
    if (t->held && !record->ends_with_record) {
        write_number(out, (uint64_t)(t->deadline_new ? MAX(t->deadline - now, 0) : t->deadline));
    }
    if (t->held) {
        write_number(out, t->guarded);
    }
    write_number(out, (uint64_t)t->ttl);
    if (t->handle) {
        write_u64(out, t->handle);
    }
    if (t->lock_owner) {
        write_u64(out, t->lock_owner);
    }
    if (record->directory) {
        size_t length = strlen(t->leaf);
        write_number(out, length);
        g_byte_array_append(out, (const guint8 *)t->leaf, (guint)length);
    }
    if (t->segments) {
        write_segments(out, t->segments);
    }
    write_bytes(out, t->meta);
    write_bytes(out, t->content);
}

GBytes *record_write(const struct record *record, clock_ms now)
{
    GByteArray *out = g_byte_array_sized_new(256);
    bool granted_new = record->granted >= RECORD_NEW_TOKENS;
    write_u8(out, record->directory ? 'D' : 'L');
    write_u8(out, VERSION);
    write_u8(out, (granted_new ? GRANTED_NEW : 0u) | (record->ends_with_record ? ENDS_WITH_RECORD : 0u));
    write_number(out, record->tokens);
    write_number(out, granted_new ? record->granted - RECORD_NEW_TOKENS : record->granted);
    if (record->ends_with_record) {
        write_number(out, (uint64_t)record->after);
    }
    if (record->directory) {
        write_number(out, (uint64_t)record->attributes.ttl);
        write_number(out, record->attributes.width);
        write_number(out, (uint64_t)record->attributes.delay);
        write_number(out, record->attributes.sequence);
        write_id(out, record->made);
        write_bytes(out, record->attributes.meta);
    }
    guint *mounts = write_mounts(out, record->tickets);
    write_number(out, record->tickets->len);
    for (guint i = 0; i < record->tickets->len; i++) {
        write_ticket(out, record, record->tickets->pdata[i], mounts[i], now);
    }
    g_free(mounts);
    if (out->len > RECORD_BYTES_MAX || record->tickets->len > RECORD_TICKETS_MAX) {
        g_byte_array_unref(out);
        return NULL;
    }
    return g_byte_array_free_to_bytes(out);
}

/* --- reading --- */

struct reader {
    const uint8_t *at, *end;
    bool bad;
    uint64_t stamp;
    clock_ms time, record_end;
    uint32_t tokens;
    GArray *mounts;
};

static unsigned read_u8(struct reader *in)
{
    if (in->at == in->end) {
        in->bad = true;
        return 0;
    }
    return *in->at++;
}

/* At most `max`; 0 if it is bad. */
static uint64_t read_number(struct reader *in, uint64_t max)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        unsigned byte = read_u8(in);
        uint64_t part = byte & 0x7f;
        if (shift == 63 && part > 1) {
            break;
        }
        value |= part << shift;
        if (!(byte & 0x80)) {
            in->bad = in->bad || value > max;
            return in->bad ? 0 : value;
        }
    }
    in->bad = true;
    return 0;
}

static int64_t read_time(struct reader *in)
{
    return (int64_t)read_number(in, RECORD_FOREVER);
}

static const uint8_t *read_part(struct reader *in, size_t size)
{
    const uint8_t *at = in->at;
    if ((size_t)(in->end - in->at) < size) {
        in->bad = true;
        return NULL;
    }
    in->at += size;
    return at;
}

static uint64_t read_u64(struct reader *in)
{
    uint64_t value = 0;
    const uint8_t *part = read_part(in, sizeof value);
    if (part) {
        memcpy(&value, part, sizeof value);
    }
    return GUINT64_FROM_LE(value);
}

static struct record_id read_id(struct reader *in)
{
    struct record_id id;
    id.half[0] = read_u64(in);
    id.half[1] = read_u64(in);
    return id;
}

static GBytes *read_bytes(struct reader *in)
{
    uint64_t size = read_number(in, RECORD_BYTES_MAX);
    const uint8_t *part = size > 1 ? read_part(in, (size_t)size - 1) : NULL;
    return size == 0 || in->bad ? NULL : g_bytes_new(part, (gsize)size - 1);
}

/* A component of a path, or "". */
static char *read_leaf(struct reader *in)
{
    size_t length = (size_t)read_number(in, LEAF_MAX);
    const uint8_t *part = read_part(in, length);
    if (!part || memchr(part, '/', length) || memchr(part, '\0', length)) {
        in->bad = true;
        return g_strdup("");
    }
    return g_strndup((const char *)part, length);
}

/* In order; no segment overlaps another, or touches one of its own mode. */
static GArray *read_segments(struct reader *in)
{
    uint64_t count = read_number(in, RECORD_TICKETS_MAX);
    GArray *segments = g_array_new(FALSE, FALSE, sizeof(struct backend_segment));
    for (uint64_t i = 0; i < count && !in->bad; i++) {
        struct backend_segment s = {.start = read_number(in, UINT64_MAX)};
        s.end = s.start + read_number(in, UINT64_MAX - s.start);
        unsigned mode = read_u8(in);
        s.mode = (enum backend_mode)mode;
        const struct backend_segment *last =
            i ? &g_array_index(segments, struct backend_segment, segments->len - 1) : NULL;
        bool after = !last || (last->end < s.start && (last->mode != s.mode || last->end + 1 < s.start));
        in->bad = in->bad || mode > BACKEND_SHARED || !after;
        g_array_append_val(segments, s);
    }
    in->bad = in->bad || count == 0;
    return segments;
}

static uint64_t read_token(struct reader *in, bool is_new)
{
    if (is_new) {
        uint64_t index = read_number(in, RECORD_TICKETS_MAX * 4);
        in->bad = in->bad || index >= in->tokens;
        return in->stamp - in->tokens + 1 + index;
    }
    return read_number(in, RECORD_NEW_TOKENS - 1);
}

static struct record_ticket *read_ticket(struct reader *in, const struct record *record)
{
    struct record_ticket *t = backend_new0(sizeof *t);
    unsigned flags = (unsigned)read_number(in, TICKET_FLAGS);
    t->held = flags & TICKET_HELD;
    t->claim = flags & TICKET_CLAIM;
    t->sequence = flags & TICKET_SEQUENCE;
    t->mode = flags & TICKET_SHARED ? BACKEND_SHARED : BACKEND_EXCLUSIVE;
    t->content_apart = flags & TICKET_APART;
    t->kind = (uint8_t)read_number(in, RECORD_DELAY);
    t->id = read_id(in);
    size_t mount = (size_t)read_number(in, in->mounts->len);
    if (mount) {
        t->mount = g_array_index(in->mounts, struct record_id, mount - 1);
    }
    t->fence = read_token(in, flags & TICKET_FENCE_NEW);
    t->acquired = flags & TICKET_ACQUIRED_NEW ? in->time : read_time(in);
    if (!t->held) {
        t->deadline = CLOCK_NEVER;
    } else if (record->ends_with_record) {
        t->deadline = in->record_end - record->after;
    } else {
        t->deadline = (flags & TICKET_DEADLINE_NEW ? in->time : 0) + read_time(in);
    }
    t->guarded = t->held ? (uint8_t)read_number(in, 1 + BACKEND_LOST) : 0;
    t->ttl = read_time(in);
    t->handle = flags & TICKET_HANDLE ? read_u64(in) : 0;
    t->lock_owner = flags & TICKET_LOCK_OWNER ? read_u64(in) : 0;
    t->leaf = record->directory ? read_leaf(in) : NULL;
    t->segments = flags & TICKET_SEGMENTS ? read_segments(in) : NULL;
    t->meta = read_bytes(in);
    t->content = read_bytes(in);
    bool delay = t->kind == RECORD_DELAY, ranged = t->kind == BACKEND_FCNTL && !t->sequence;
    bool unnamed = t->leaf && !*t->leaf;
    in->bad = in->bad || ranged != (t->segments != NULL) || (t->sequence && !record->directory) ||
              (t->claim && (!t->held || t->guarded || delay)) || (delay && (!t->held || t->guarded)) ||
              (delay ? mount > 0 || record_id_is_set(t->id) : !mount || !record_id_is_set(t->id)) ||
              (unnamed && !(delay && t->sequence)) || (delay && t->sequence && !unnamed) || t->fence == 0;
    return t;
}

static void read_attributes(struct reader *in, struct record *record)
{
    record->attributes.ttl = read_time(in);
    record->attributes.width = (uint32_t)read_number(in, UINT32_MAX);
    record->attributes.delay = read_time(in);
    record->attributes.sequence = read_number(in, INT64_MAX);
    record->made = read_id(in);
    record->attributes.meta = read_bytes(in);
    in->bad = in->bad || record->attributes.width == 0;
}

/* Fencing tokens grow from ticket to ticket.  The name of a sequence ticket is of no other, and a lock has
 * one lock-delay. */
static bool record_is_consistent(const struct record *record)
{
    GHashTable *leaves = g_hash_table_new(g_str_hash, g_str_equal);
    GHashTable *delays = g_hash_table_new(g_str_hash, g_str_equal);
    bool good = !record->ends_with_record || (record->tickets->len == 1 && !record->directory);
    for (guint i = 0; i < record->tickets->len && good; i++) {
        struct record_ticket *t = record->tickets->pdata[i];
        const struct record_ticket *last = i ? record->tickets->pdata[i - 1] : NULL;
        const struct record_ticket *other = t->leaf && *t->leaf ? g_hash_table_lookup(leaves, t->leaf) : NULL;
        good = (!last || last->fence < t->fence) && (!other || (!other->sequence && !t->sequence)) &&
               (t->kind != RECORD_DELAY || g_hash_table_add(delays, t->leaf ? t->leaf : ""));
        if (t->leaf && *t->leaf) {
            g_hash_table_insert(leaves, t->leaf, t);
        }
    }
    g_hash_table_unref(leaves);
    g_hash_table_unref(delays);
    return good;
}

struct record *record_read(GBytes *bytes, bool directory, uint64_t stamp, clock_ms time, clock_ms end)
{
    gsize size;
    const uint8_t *data = g_bytes_get_data(bytes, &size);
    struct reader in = {.at = data, .end = data + size, .stamp = stamp, .time = time, .record_end = end};
    struct record *record = record_new(directory);
    in.mounts = g_array_new(FALSE, FALSE, sizeof(struct record_id));
    in.bad = size > RECORD_BYTES_MAX || stamp >= RECORD_NEW_TOKENS || read_u8(&in) != (directory ? 'D' : 'L') ||
             read_u8(&in) != VERSION;
    unsigned flags = read_u8(&in);
    record->ends_with_record = flags & ENDS_WITH_RECORD;
    record->tokens = in.tokens = (uint32_t)read_number(&in, RECORD_TICKETS_MAX * 4);
    in.bad = in.bad || flags > (GRANTED_NEW | ENDS_WITH_RECORD) || in.tokens > stamp;
    record->granted = read_token(&in, flags & GRANTED_NEW);
    record->after = record->ends_with_record ? read_time(&in) : 0;
    if (directory) {
        read_attributes(&in, record);
    }
    for (uint64_t n = read_number(&in, MOUNTS_MAX); n > 0 && !in.bad; n--) {
        struct record_id mount = read_id(&in);
        in.bad = in.bad || !record_id_is_set(mount);
        g_array_append_val(in.mounts, mount);
    }
    for (uint64_t n = read_number(&in, RECORD_TICKETS_MAX); n > 0 && !in.bad; n--) {
        g_ptr_array_add(record->tickets, read_ticket(&in, record));
    }
    g_array_unref(in.mounts);
    if (in.bad || in.at != in.end || !record_is_consistent(record)) {
        record_free(record);
        return NULL;
    }
    return record;
}
