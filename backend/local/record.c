/* record: encodes and decodes journal payloads, field by field. */
#include "backend/local/record.h"

#include <string.h>

#define NO_BYTES UINT32_MAX
#define TIME_LIMIT (INT64_C(1) << 59) /* milliseconds */

static void record_put_u8(GByteArray *out, uint8_t value)
{
    g_byte_array_append(out, &value, 1);
}

static void local_record_u32(GByteArray *out, uint32_t value)
{
    value = GUINT32_TO_LE(value);
    g_byte_array_append(out, (const guint8 *)&value, sizeof(value));
}

void local_record_u64(GByteArray *out, uint64_t value)
{
    value = GUINT64_TO_LE(value);
    g_byte_array_append(out, (const guint8 *)&value, sizeof(value));
}

static void record_put_i64(GByteArray *out, int64_t value)
{
    local_record_u64(out, (uint64_t)value);
}

/* With its length before it. */
static void record_put_data(GByteArray *out, const void *data, size_t length)
{
    uint32_t le = GUINT32_TO_LE((uint32_t)length);
    guint at = out->len;
    g_byte_array_set_size(out, at + (guint)(sizeof le + length));
    memcpy(out->data + at, &le, sizeof le);
    if (length > 0) {
        memcpy(out->data + at + sizeof le, data, length);
    }
}

void local_record_string(GByteArray *out, const char *text)
{
    record_put_data(out, text, strlen(text) + 1);
}

void local_record_bytes(GByteArray *out, GBytes *bytes)
{
    gsize length;
    if (!bytes) {
        local_record_u32(out, NO_BYTES);
        return;
    }
    const void *data = g_bytes_get_data(bytes, &length);
    record_put_data(out, data, length);
}

void local_record_session(GByteArray *out, const struct local_session *session)
{
    record_put_i64(out, session->boottime);
    record_put_i64(out, session->wall);
    local_record_string(out, session->boot_id);
}

static void record_put_handle(GByteArray *out, const struct local_lease *lease)
{
    guint count = lease->segments ? lease->segments->len : 0;
    record_put_u8(out, lease->kind);
    local_record_u32(out, count);
    for (guint i = 0; i < count; i++) {
        const struct backend_segment *s = &g_array_index(lease->segments, struct backend_segment, i);
        local_record_u64(out, s->start);
        local_record_u64(out, s->end);
        record_put_u8(out, (uint8_t)s->mode);
    }
}

/* Every grant makes one, so what has a fixed size is appended in one piece. */
void local_record_lease(GByteArray *out, const struct local_lease *lease)
{
    struct __attribute__((packed)) {
        uint64_t fence, replaces;
        uint8_t flags;
        uint64_t ttl, acquired, deadline;
    } head = {GUINT64_TO_LE(lease->fence),
              GUINT64_TO_LE(lease->replaces),
              lease->flags,
              GUINT64_TO_LE((uint64_t)lease->ttl),
              GUINT64_TO_LE((uint64_t)lease->acquired),
              GUINT64_TO_LE((uint64_t)lease->deadline)};
    g_byte_array_append(out, (const guint8 *)&head, sizeof head);
    local_record_string(out, lease->name);
    local_record_bytes(out, lease->meta);
    local_record_bytes(out, lease->content);
    if (lease->flags & LOCAL_LEASE_TARGET) {
        local_record_u64(out, lease->target);
    }
    if (lease->flags & LOCAL_LEASE_HANDLE) {
        record_put_handle(out, lease);
    }
}

void local_record_directory(GByteArray *out, const char *name, const struct backend_directory *directory)
{
    local_record_string(out, name);
    record_put_i64(out, directory->ttl);
    local_record_u32(out, directory->width);
    record_put_i64(out, directory->delay);
    local_record_u64(out, directory->sequence);
    local_record_bytes(out, directory->meta);
}

/* The next `length` bytes, or NULL. */
static const uint8_t *record_take(struct local_reader *in, size_t length)
{
    const uint8_t *at = in->at;
    if (in->bad || in->left < length) {
        in->bad = true;
        return NULL;
    }
    in->at += length;
    in->left -= length;
    return at;
}

uint8_t local_read_u8(struct local_reader *in)
{
    const uint8_t *at = record_take(in, 1);
    return at ? *at : 0;
}

static uint32_t local_read_u32(struct local_reader *in)
{
    const uint8_t *at = record_take(in, 4);
    uint32_t value = 0;
    if (at) {
        memcpy(&value, at, sizeof(value));
    }
    return GUINT32_FROM_LE(value);
}

uint64_t local_read_u64(struct local_reader *in)
{
    const uint8_t *at = record_take(in, 8);
    uint64_t value = 0;
    if (at) {
        memcpy(&value, at, sizeof(value));
    }
    return GUINT64_FROM_LE(value);
}

int64_t local_read_time(struct local_reader *in)
{
    int64_t time = (int64_t)local_read_u64(in);
    if (time < -TIME_LIMIT || time > TIME_LIMIT) {
        in->bad = true;
        return 0;
    }
    return time;
}

const char *local_read_string(struct local_reader *in)
{
    uint32_t length = local_read_u32(in);
    const uint8_t *at = record_take(in, length);
    if (!at || !length || memchr(at, '\0', length) != at + length - 1) {
        in->bad = true;
        return "";
    }
    return (const char *)at;
}

GBytes *local_read_shared(struct local_reader *in, GBytes **last)
{
    uint32_t length = local_read_u32(in);
    if (length == NO_BYTES) {
        return NULL;
    }
    const uint8_t *at = record_take(in, length);
    if (!at) {
        return NULL;
    }
    if (!*last || g_bytes_get_size(*last) != length || memcmp(g_bytes_get_data(*last, NULL), at, length) != 0) {
        g_clear_pointer(last, g_bytes_unref);
        *last = g_bytes_new(at, length);
    }
    return g_bytes_ref(*last);
}

GBytes *local_read_bytes(struct local_reader *in)
{
    GBytes *last = NULL, *bytes = local_read_shared(in, &last);
    g_clear_pointer(&last, g_bytes_unref);
    return bytes;
}

void local_read_session(struct local_reader *in, struct local_session *ret_session)
{
    ret_session->boottime = local_read_time(in);
    ret_session->wall = local_read_time(in);
    ret_session->boot_id = local_read_string(in);
}

/* Segments are in order, and none overlaps another. */
static void record_read_handle(struct local_reader *in, struct local_lease *ret_lease)
{
    ret_lease->kind = local_read_u8(in);
    uint32_t count = local_read_u32(in);
    uint64_t next = 0;
    bool ranged = ret_lease->kind == BACKEND_FCNTL && !(ret_lease->flags & LOCAL_LEASE_SEQUENCE);
    in->bad |= (ret_lease->kind != BACKEND_FLOCK && ret_lease->kind != BACKEND_FCNTL) || (count > 0 && !ranged);
    if (count > 0) {
        ret_lease->segments = g_array_new(FALSE, FALSE, sizeof(struct backend_segment));
    }
    for (uint32_t i = 0; i < count && !in->bad; i++) {
        struct backend_segment s;
        s.start = local_read_u64(in);
        s.end = local_read_u64(in);
        s.mode = local_read_u8(in) ? BACKEND_SHARED : BACKEND_EXCLUSIVE;
        in->bad |= s.start < next || s.end < s.start || (i > 0 && next == 0);
        next = s.end + 1; /* 0 after the last possible byte */
        g_array_append_val(ret_lease->segments, s);
    }
}

void local_read_lease(struct local_reader *in, GBytes **last_meta, struct local_lease *ret_lease)
{
    ret_lease->fence = local_read_u64(in);
    ret_lease->replaces = local_read_u64(in);
    ret_lease->flags = local_read_u8(in);
    ret_lease->ttl = local_read_time(in);
    ret_lease->acquired = local_read_time(in);
    ret_lease->deadline = local_read_time(in);
    ret_lease->name = local_read_string(in);
    ret_lease->meta = local_read_shared(in, last_meta);
    ret_lease->content = local_read_bytes(in);
    ret_lease->target = ret_lease->flags & LOCAL_LEASE_TARGET ? local_read_u64(in) : 0;
    ret_lease->kind = BACKEND_LEASE;
    ret_lease->segments = NULL;
    if (ret_lease->flags & LOCAL_LEASE_HANDLE) {
        record_read_handle(in, ret_lease);
    }
}

const char *local_read_directory(struct local_reader *in, struct backend_directory *ret_directory)
{
    const char *name = local_read_string(in);
    ret_directory->ttl = local_read_time(in);
    ret_directory->width = local_read_u32(in);
    ret_directory->delay = local_read_time(in);
    ret_directory->sequence = local_read_u64(in);
    ret_directory->meta = local_read_bytes(in);
    return name;
}
