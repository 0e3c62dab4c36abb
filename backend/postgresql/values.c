/* values: the parameters of a call, and the values of its answer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/postgresql/private.h"

#define CALL_TIME_MAX 315360000000 /* ms: ten years */
#define CALL_OFFSET_BIT (UINT64_C(1) << 63)

/* --- parameters --- */

static void call_add(struct pq_parameters *p, const void *data, size_t length, bool binary)
{
    if (!p->bytes) {
        p->bytes = g_byte_array_new();
    }
    g_assert(p->count < PQ_PARAMETERS_MAX);
    p->at[p->count].offset = p->bytes->len;
    p->at[p->count].length = (int)length;
    p->at[p->count].binary = binary;
    p->count++;
    g_byte_array_append(p->bytes, data, (guint)length);
    g_byte_array_append(p->bytes, (const guint8 *)"", 1); /* a text ends with NUL */
}

void pq_add_null(struct pq_parameters *p)
{
    call_add(p, "", 0, false);
    p->at[p->count - 1].length = -1;
}

void pq_add_text(struct pq_parameters *p, const char *text)
{
    if (text) {
        call_add(p, text, strlen(text), false);
    } else {
        pq_add_null(p);
    }
}

void pq_add_number(struct pq_parameters *p, int64_t number)
{
    char text[24];
    g_snprintf(text, sizeof text, "%" G_GINT64_FORMAT, number);
    pq_add_text(p, text);
}

void pq_add_flag(struct pq_parameters *p, bool is)
{
    pq_add_text(p, is ? "t" : "f");
}

void pq_add_nonzero(struct pq_parameters *p, uint64_t number)
{
    if (number) {
        pq_add_number(p, (int64_t)number);
    } else {
        pq_add_null(p);
    }
}

static int64_t call_signed(uint64_t offset)
{
    return (int64_t)(offset ^ CALL_OFFSET_BIT);
}

void pq_add_offset(struct pq_parameters *p, uint64_t offset)
{
    pq_add_number(p, call_signed(offset));
}

void pq_add_path(struct pq_parameters *p, const char *path)
{
    call_add(p, path, strlen(path), true);
}

void pq_add_bytes(struct pq_parameters *p, GBytes *bytes)
{
    gsize length = 0;
    const void *data = bytes ? g_bytes_get_data(bytes, &length) : NULL;
    call_add(p, data ? data : "", length, true);
}

void pq_add_segments(struct pq_parameters *p, const GArray *segments, enum backend_mode mode)
{
    GString *text = g_string_new("{");
    for (guint i = 0; i < segments->len; i++) {
        const struct backend_segment *s = &g_array_index(segments, struct backend_segment, i);
        if (s->mode != mode) {
            continue;
        }
        g_string_append_printf(text, "%s[%" G_GINT64_FORMAT ",", text->len > 1 ? "," : "", call_signed(s->start));
        if (s->end == BACKEND_RANGE_MAX) {
            g_string_append(text, ")");
        } else {
            g_string_append_printf(text, "%" G_GINT64_FORMAT "]", call_signed(s->end));
        }
    }
    g_string_append_c(text, '}');
    pq_add_text(p, text->str);
    g_string_free(text, TRUE);
}

void pq_add_texts(struct pq_parameters *p, const char *const *texts, size_t count)
{
    GString *text = g_string_new("{");
    for (size_t i = 0; i < count; i++) {
        g_string_append(text, i > 0 ? ",\"" : "\"");
        for (const char *c = texts[i]; *c; c++) {
            g_string_append(text, *c == '"' || *c == '\\' ? "\\" : "");
            g_string_append_c(text, *c);
        }
        g_string_append_c(text, '"');
    }
    g_string_append_c(text, '}');
    pq_add_text(p, text->str);
    g_string_free(text, TRUE);
}

void pq_add_numbers(struct pq_parameters *p, const int64_t *numbers, size_t count)
{
    GString *text = g_string_new("{");
    for (size_t i = 0; i < count; i++) {
        g_string_append_printf(text, "%s%" G_GINT64_FORMAT, i > 0 ? "," : "", numbers[i]);
    }
    g_string_append_c(text, '}');
    pq_add_text(p, text->str);
    g_string_free(text, TRUE);
}

void pq_add_paths(struct pq_parameters *p, const char *const *paths, size_t count)
{
    static const char digits[] = "0123456789abcdef";
    GString *text = g_string_new("{");
    for (size_t i = 0; i < count; i++) {
        g_string_append(text, i > 0 ? ",\"\\\\x" : "\"\\\\x");
        for (const unsigned char *c = (const unsigned char *)paths[i]; *c; c++) {
            g_string_append_c(text, digits[*c >> 4]);
            g_string_append_c(text, digits[*c & 15]);
        }
        g_string_append_c(text, '"');
    }
    g_string_append_c(text, '}');
    pq_add_text(p, text->str);
    g_string_free(text, TRUE);
}

void pq_add_name(struct pq_parameters *p, const char *name)
{
    const char *leaf;
    char *parent = remote_parent(name, &leaf);
    pq_add_path(p, name);
    pq_add_path(p, *name ? parent : "/"); /* the root has none */
    pq_add_path(p, leaf);
    g_free(parent);
}

char *pq_lock_path(const char *name, bool sequence)
{
    return g_strconcat(name, sequence ? "/" : "", NULL);
}

/* --- values --- */

/* Numbers are kept within bounds, because SQL clients may have written to the table. */
static int call_column(const PGresult *rows, int row, const char *column)
{
    int at = rows && row < PQntuples(rows) ? PQfnumber(rows, column) : -1;
    return at >= 0 && !PQgetisnull(rows, row, at) ? at : -1;
}

const char *pq_text(const PGresult *rows, int row, const char *column)
{
    int at = call_column(rows, row, column);
    return at >= 0 ? PQgetvalue(rows, row, at) : "";
}

static bool pq_is_null(const PGresult *rows, int row, const char *column)
{
    return call_column(rows, row, column) < 0;
}

int64_t pq_number(const PGresult *rows, int row, const char *column)
{
    const char *text = pq_text(rows, row, column);
    return *text ? MIN(g_ascii_strtoll(text, NULL, 10), CALL_TIME_MAX) : -1;
}

uint64_t pq_fence(const PGresult *rows, int row, const char *column)
{
    const char *text = pq_text(rows, row, column);
    return *text == '-' ? 0 : g_ascii_strtoull(text, NULL, 10);
}

static uint64_t pq_offset(const PGresult *rows, int row, const char *column)
{
    return (uint64_t)g_ascii_strtoll(pq_text(rows, row, column), NULL, 10) ^ CALL_OFFSET_BIT;
}

GBytes *pq_bytes(const PGresult *rows, int row, const char *column, size_t max)
{
    const char *text = pq_text(rows, row, column);
    size_t length = g_str_has_prefix(text, "\\x") ? MIN((strlen(text) - 2) / 2, max) : 0;
    guint8 *data = g_malloc(length + 1);
    for (size_t i = 0; i < length; i++) {
        data[i] = (guint8)(g_ascii_xdigit_value(text[2 + 2 * i]) << 4 | g_ascii_xdigit_value(text[3 + 2 * i]));
    }
    return g_bytes_new_take(data, length);
}

char *pq_name(const PGresult *rows, int row, const char *column)
{
    GBytes *bytes = pq_bytes(rows, row, column, POSTGRESQL_CONTENT_MAX);
    gsize length;
    const char *data = g_bytes_get_data(bytes, &length);
    char *name = length > 0 && !memchr(data, 0, length) ? g_strndup(data, length) : NULL;
    g_bytes_unref(bytes);
    return name;
}

enum backend_result pq_result(const struct pq_answer *answer, const char *column)
{
    static const char *const done[] = {"granted", "gone", "free", "restored", NULL};
    if (answer->outcome != REMOTE_ANSWERED) {
        return answer->result;
    }
    int at = column ? PQfnumber(answer->rows, column) : 0;
    const char *word = at >= 0 && PQntuples(answer->rows) > 0 ? PQgetvalue(answer->rows, 0, at) : "";
    return g_strv_contains(done, word)   ? BACKEND_OK
           : strcmp(word, "queued") == 0 ? BACKEND_QUEUED
                                         : remote_parse_result(word, BACKEND_DAMAGED);
}

void pq_describe(struct remote *r, const char *name, const PGresult *rows, struct backend_info *info)
{
    clock_ms now = clock_now();
    int64_t age = pq_number(rows, 0, "age"), left = pq_number(rows, 0, "remaining"), ttl = pq_number(rows, 0, "ttl");
    int64_t kind = pq_number(rows, 0, "kind");
    const char *mount = pq_text(rows, 0, "mount");
    info->type = BACKEND_LOCK;
    info->kind = kind >= BACKEND_PROVISIONAL && kind <= BACKEND_FCNTL ? (enum backend_kind)kind : BACKEND_LEASE;
    info->mode = pq_number(rows, 0, "mode") == 1 ? BACKEND_SHARED : BACKEND_EXCLUSIVE;
    info->fence = pq_fence(rows, 0, "number");
    info->acquired = age >= 0 ? now - age : CLOCK_NEVER;
    info->deadline = left >= 0 ? now + left : CLOCK_NEVER;
    info->ttl = ttl >= 0 ? ttl : left >= 0 ? left : 0;
    info->meta = *mount && strcmp(mount, "sql") != 0 ? pq_bytes(rows, 0, "meta", POSTGRESQL_META_MAX) : NULL;
    info->guarded = strcmp(mount, "guard") == 0;
    info->start = pq_is_null(rows, 0, "first") ? 0 : pq_offset(rows, 0, "first");
    info->end = pq_is_null(rows, 0, "last") ? BACKEND_RANGE_MAX : pq_offset(rows, 0, "last");
    remote_describe_own(r, pq_text(rows, 0, "id"), name, info);
}
