/* calls: builds and sends calls of scripts. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "backend/redis/pack.h"
#include "backend/redis/private.h"

/* The argument is one map: a field, whose value follows. */
static void calls_add_field(struct redis_call *call, const char *field)
{
    pack_text(call->r->packed, field, strlen(field));
    call->fields++;
}

void redis_call_text(struct redis_call *call, const char *field, const char *text)
{
    calls_add_field(call, field);
    pack_text(call->r->packed, text, strlen(text));
}

void redis_call_number(struct redis_call *call, const char *field, int64_t number)
{
    calls_add_field(call, field);
    pack_number(call->r->packed, number);
}

void redis_call_flag(struct redis_call *call, const char *field, bool is)
{
    if (is) {
        calls_add_field(call, field);
        pack_true(call->r->packed);
    }
}

void redis_call_unsigned(struct redis_call *call, const char *field, uint64_t number)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, number);
    if (number) {
        redis_call_text(call, field, text);
    }
}

void redis_call_bytes(struct redis_call *call, const char *field, GBytes *bytes)
{
    gsize length = 0;
    const void *data = bytes ? g_bytes_get_data(bytes, &length) : "";
    calls_add_field(call, field);
    pack_text(call->r->packed, length ? data : "", length);
}

guint redis_call_array(struct redis_call *call, const char *field)
{
    calls_add_field(call, field);
    pack_array(call->r->packed);
    return call->r->packed->len - 3;
}

static void calls_add_offset(struct redis_call *call, uint64_t offset)
{
    char text[24];
    snprintf(text, sizeof text, "%016" PRIx64, offset);
    pack_text(call->r->packed, text, strlen(text));
}

void redis_call_range(struct redis_call *call, uint64_t lock_owner, uint64_t start, uint64_t end)
{
    redis_call_unsigned(call, "owner", lock_owner);
    calls_add_field(call, "start");
    calls_add_offset(call, start);
    calls_add_field(call, "finish");
    calls_add_offset(call, end);
}

void redis_call_segments(struct redis_call *call, const GArray *segments)
{
    guint begin = redis_call_array(call, "segments");
    for (guint i = 0; i < segments->len; i++) {
        const struct backend_segment *s = &g_array_index(segments, struct backend_segment, i);
        calls_add_offset(call, s->start);
        calls_add_offset(call, s->end);
        pack_number(call->r->packed, (int64_t)s->mode);
    }
    pack_count(call->r->packed, begin, 3 * segments->len);
}

void redis_call_texts(struct redis_call *call, const char *field, const GPtrArray *texts)
{
    guint begin = redis_call_array(call, field);
    for (guint i = 0; i < texts->len; i++) {
        pack_text(call->r->packed, texts->pdata[i], strlen(texts->pdata[i]));
    }
    pack_count(call->r->packed, begin, texts->len);
}

void redis_call_identity(struct redis_call *call, const struct remote_ticket *t, struct backend_identity identity)
{
    redis_call_unsigned(call, "handle", identity.handle);
    redis_call_flag(call, "shares_identity",
                    !t->lock->sequence && remote_ticket_has_compatible(t, identity)); /* in a queue positions decide */
}

void redis_call_claim(struct redis_call *call, const struct remote_ticket *t, const struct backend_claim *claim)
{
    redis_call_number(call, "kind", (int64_t)claim->kind);
    redis_call_number(call, "mode", (int64_t)claim->mode);
    redis_call_number(call, "ttl", claim->ttl);
    redis_call_number(call, "liveness", remote_ticket_liveness(t, claim->ttl));
    redis_call_identity(call, t, BACKEND_IDENTITY(claim));
    if (claim->lock_owner) {
        redis_call_range(call, claim->lock_owner, claim->start, claim->end);
    }
}

static void calls_add(struct redis_call *call, const GString *key)
{
    struct redis_argument argument = {g_string_chunk_insert_len(call->r->arena, key->str, (gssize)key->len), key->len};
    g_array_append_val(call->r->arguments, argument);
}

void redis_call_key(struct redis_call *call, char letter, const char *name)
{
    calls_add(call, redis_key_make(&call->r->keys, letter, name));
}

void redis_call_sides(struct redis_call *call, const char *letters, const char *name)
{
    GString *key = redis_key_make(&call->r->keys, 'x', name);
    for (; *letters; letters++) {
        key->str[strlen(REDIS_SIDE)] = *letters;
        calls_add(call, key);
    }
}

void redis_call_lock(struct redis_call *call, const char *name, bool sequence, const char *numbered)
{
    const char *leaf = "";
    char *directory = sequence ? g_strdup(name) : remote_parent(name, &leaf);
    redis_call_key(call, sequence ? 'd' : 0, name); /* a queue has no key of its own */
    redis_call_sides(call, "otwif", name);
    redis_call_sides(call, "dlq", directory);
    redis_call_key(call, 'd', name);
    redis_call_key(call, 'm', NULL);
    redis_call_sides(call, numbered && !sequence && remote_is_numbered(leaf) ? numbered : "", directory);
    g_free(directory);
}

void redis_call_word(struct redis_call *call, const char *text)
{
    size_t length = strlen(text);
    const char *copy = g_string_chunk_insert_len(call->r->arena, text, (gssize)length);
    call->words[call->word_count++] = (struct redis_argument){copy, length};
}

void redis_call_word_number(struct redis_call *call, int64_t number)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, number);
    redis_call_word(call, text);
}

void redis_call_leaf(struct redis_call *call, const char *name, bool sequence)
{
    const char *leaf = remote_leaf(name);
    redis_call_text(call, "leaf", leaf);
    redis_call_flag(call, "sequence", sequence);
}

char *redis_note(const char *id, bool sequence, const char *name, enum backend_kind kind, GBytes *meta)
{
    if (kind == BACKEND_PROVISIONAL) {
        return g_strdup("");
    }
    if (kind == BACKEND_LEASE) {
        return g_strconcat(id, sequence ? " s " : " l ", name, NULL);
    }
    size_t length = 0;
    const char *pid = backend_parse_pid(meta, &length);
    char holder[16] = ""; /* a pid has at most ten digits */
    memcpy(holder, pid, MIN(length, sizeof holder - 1));
    return g_strconcat(id, sequence ? " q" : " h", holder, " ", name, NULL);
}

void redis_call_ticket(struct redis_call *call, const struct remote_ticket *t)
{
    redis_call_lock(call, t->lock->name, t->lock->sequence, NULL);
    redis_call_leaf(call, remote_ticket_name(t), t->lock->sequence);
    redis_call_text(call, "ticket", t->id);
    redis_call_text(call, "mount", call->r->mount);
}

/* Does the script compare the epoch?  One that changes nothing that was granted need not. */
static bool calls_compares_epoch(enum redis_script_id script)
{
    static const bool without[REDIS_SCRIPTS] = {[REDIS_STAT] = true,
                                                [REDIS_LIST] = true,
                                                [REDIS_NAMES] = true,
                                                [REDIS_TICKETS] = true,
                                                [REDIS_LEASES] = true,
                                                [REDIS_ENTER] = true,
                                                [REDIS_UNCONTENDED_RELEASE] = true,
                                                [REDIS_UNCONTENDED_RENEW_MANY] = true,
                                                [REDIS_STAT_DIRECTORY] = true};
    return !without[script];
}

const struct redis_argument *redis_call_arguments(struct redis_call *call, size_t *ret_keys, size_t *ret_count)
{
    struct redis *r = call->r;
    *ret_keys = r->arguments->len;
    if (call->fields > 0) {
        pack_count(r->packed, 0, call->fields);
        struct redis_argument packed = {(const char *)r->packed->data, r->packed->len};
        g_array_append_val(r->arguments, packed);
    }
    g_array_append_vals(r->arguments, call->words, call->word_count);
    *ret_count = r->arguments->len;
    return (const struct redis_argument *)r->arguments->data;
}

void redis_call_end(struct redis *r)
{
    g_array_set_size(r->arguments, 0);
    g_byte_array_set_size(r->packed, 0);
    pack_map(r->packed);
    g_string_chunk_clear(r->arena);
}

int64_t redis_request_timeout(const struct redis *r)
{
    clock_ms silent = redis_conn_counts(r->conn).silent;
    return silent > 0 && clock_now() - silent >= r->remote.timeout ? MIN(r->remote.timeout, REMOTE_TIMEOUT_AWAY) : 0;
}

uint64_t redis_call_send(struct redis_call *call, int64_t timeout, redis_answered *answered, void *arg)
{
    struct redis *r = call->r;
    timeout = timeout ? timeout : redis_request_timeout(r);
    if (calls_compares_epoch(call->script)) {
        if (call->script == REDIS_RECLAIM || call->script == REDIS_RECOVER) {
            redis_call_key(call, 'r', "");
        }
        redis_call_key(call, 'v', "");
    }
    size_t keys, count;
    const struct redis_argument *arguments = redis_call_arguments(call, &keys, &count);
    uint64_t id =
        redis_conn_call(r->conn, &redis_scripts[call->script], keys, arguments, count, timeout, answered, arg);
    redis_call_end(r);
    return id;
}
