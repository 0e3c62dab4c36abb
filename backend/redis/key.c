/* key: names to keys, and calls of scripts.
 *
 * The key of a lock is the prefix and the template with its name in place of
 * {n}; its side keys are lfs:X: and that key.  So a prefix with a {tag}, which
 * Redis Cluster makes a hash slot of, has all keys of its mounts in one slot.  A
 * name is refused whose key would be a side key itself, of whatever lock.
 *
 * The root directory has no key that any name could have, under whatever
 * template: else a name in one mount would be the root of another whose prefix
 * it is.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "backend/log.h"
#include "backend/redis/pack.h"
#include "backend/redis/private.h"

#define SIDE "lfs:"                    /* what all side keys begin with */
#define TIME_MAX INT64_C(315576000000) /* ms: 10 years */
#define FENCE_MAX (UINT64_C(1) << 53)  /* what scripts count to */

/* In a buffer that the next one takes: a call has twenty keys.  As redis_call_key names it. */
static GString *key_make(struct redis *r, char letter, const char *name)
{
    GString *key = g_string_truncate(r->key, 0);
    if (letter) { /* no call in another's arguments: GLib has macros of them that shadow their own variables */
        g_string_append(key, SIDE);
        g_string_append_c(key, letter);
        g_string_append_c(key, ':');
    }
    if (letter == 'm') {
        return g_string_append(key, r->identity);
    }
    g_string_append(key, *name ? "" : SIDE);
    g_string_append(key, r->before);
    g_string_append(key, *name ? name : "/");
    return g_string_append(key, r->behind);
}

char *redis_key(struct redis *r, const char *name)
{
    return redis_side_key(r, 0, name);
}

char *redis_side_key(struct redis *r, char letter, const char *name)
{
    const GString *key = key_make(r, letter, name);
    return g_strndup(key->str, key->len);
}

char *redis_identity(struct redis *r, const char *identity)
{
    char *digest = g_compute_checksum_for_string(G_CHECKSUM_SHA256, identity, -1);
    char *key = g_strdup_printf("%s%.32s", r->before, digest);
    g_free(digest);
    return key;
}

bool redis_key_is_side(const char *key)
{
    return g_str_has_prefix(key, SIDE);
}

/* What stands between the first { and the next } counts, if anything does. */
bool redis_key_has_tag(const char *key)
{
    const char *open = strchr(key, '{'), *close = open ? strchr(open, '}') : NULL;
    return close && close > open + 1;
}

bool redis_key_allowed(struct redis *r, const char *name)
{
    return !*name || !redis_key_is_side(key_make(r, 0, name)->str);
}

char *redis_key_name(struct redis *r, const char *key, size_t length)
{
    size_t side = strlen(SIDE "X:"), before = strlen(r->before), behind = strlen(r->behind);
    if (length > side && memcmp(key, SIDE, strlen(SIDE)) == 0) {
        key += side;
        length -= side;
    }
    return length < before + behind ? NULL : g_strndup(key + before, length - before - behind);
}

/* The argument is one map: a field, whose value follows. */
static void key_add_field(struct redis_call *call, const char *field)
{
    pack_text(call->r->packed, field, strlen(field));
    call->fields++;
}

void redis_call_text(struct redis_call *call, const char *field, const char *text)
{
    key_add_field(call, field);
    pack_text(call->r->packed, text, strlen(text));
}

void redis_call_number(struct redis_call *call, const char *field, int64_t number)
{
    key_add_field(call, field);
    pack_number(call->r->packed, number);
}

void redis_call_flag(struct redis_call *call, const char *field, bool is)
{
    if (is) {
        key_add_field(call, field);
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
    key_add_field(call, field);
    pack_text(call->r->packed, length ? data : "", length);
}

guint redis_call_array(struct redis_call *call, const char *field)
{
    key_add_field(call, field);
    pack_array(call->r->packed);
    return call->r->packed->len - 3;
}

static void key_add_offset(struct redis_call *call, uint64_t offset)
{
    char text[24];
    snprintf(text, sizeof text, "%016" PRIx64, offset);
    pack_text(call->r->packed, text, strlen(text));
}

void redis_call_range(struct redis_call *call, uint64_t lock_owner, uint64_t start, uint64_t end)
{
    redis_call_unsigned(call, "owner", lock_owner);
    key_add_field(call, "start");
    key_add_offset(call, start);
    key_add_field(call, "finish");
    key_add_offset(call, end);
}

void redis_call_segments(struct redis_call *call, const GArray *segments)
{
    guint begin = redis_call_array(call, "segments");
    for (guint i = 0; i < segments->len; i++) {
        const struct backend_segment *s = &g_array_index(segments, struct backend_segment, i);
        key_add_offset(call, s->start);
        key_add_offset(call, s->end);
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

void redis_call_kin(struct redis_call *call, const struct remote_ticket *t, struct backend_identity kin)
{
    redis_call_unsigned(call, "handle", kin.handle);
    redis_call_flag(call, "kin",
                    !t->lock->sequence && remote_ticket_has_compatible(t, kin)); /* in a queue counts decide */
}

void redis_call_claim(struct redis_call *call, const struct remote_ticket *t, const struct backend_claim *claim)
{
    redis_call_number(call, "kind", (int64_t)claim->kind);
    redis_call_number(call, "mode", (int64_t)claim->mode);
    redis_call_number(call, "ttl", claim->ttl);
    redis_call_number(call, "liveness", remote_ticket_liveness(t, claim->ttl));
    redis_call_kin(call, t, BACKEND_IDENTITY(claim));
    if (claim->lock_owner) {
        redis_call_range(call, claim->lock_owner, claim->start, claim->end);
    }
}

static void key_add(struct redis_call *call, const GString *key)
{
    struct redis_argument argument = {g_string_chunk_insert_len(call->r->arena, key->str, (gssize)key->len), key->len};
    g_array_append_val(call->r->arguments, argument);
}

void redis_call_key(struct redis_call *call, char letter, const char *name)
{
    key_add(call, key_make(call->r, letter, name));
}

/* Those of one name, which differ in the letter alone. */
static void key_add_sides(struct redis_call *call, const char *letters, const char *name)
{
    GString *key = key_make(call->r, 'x', name);
    for (; *letters; letters++) {
        key->str[strlen(SIDE)] = *letters;
        key_add(call, key);
    }
}

void redis_call_lock(struct redis_call *call, struct redis *r, enum redis_script_id script, const char *name,
                     bool sequence, const char *numbered)
{
    const char *leaf = "";
    char *directory = sequence ? g_strdup(name) : remote_parent(name, &leaf);
    call->r = r;
    call->script = script;
    redis_call_key(call, sequence ? 'd' : 0, name); /* a queue has no key of its own */
    key_add_sides(call, "otwif", name);
    key_add_sides(call, "dlq", directory);
    redis_call_key(call, 'd', name);
    redis_call_key(call, 'm', NULL);
    key_add_sides(call, numbered && !sequence && remote_is_numbered(leaf) ? numbered : "", directory);
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

void redis_call_word_lease(struct redis_call *call, const char *id, const char *name, bool lease)
{
    char *entry = lease ? g_strconcat(id, " l ", name, NULL) : NULL;
    redis_call_word(call, entry ? entry : "");
    g_free(entry);
}

void redis_call_free(struct redis_call *call, struct redis *r, const char *name)
{
    const char *leaf;
    char *directory = remote_parent(name, &leaf);
    call->r = r;
    call->script = REDIS_ACQUIRE_FREE;
    redis_call_key(call, 0, name);
    key_add_sides(call, "of", name);
    key_add_sides(call, "dl", directory);
    redis_call_key(call, 'd', name);
    redis_call_key(call, 'm', NULL);
    g_free(directory);
}

void redis_call_lone(struct redis_call *call, struct redis *r, const char *name)
{
    const char *leaf;
    char *directory = remote_parent(name, &leaf);
    call->r = r;
    call->script = REDIS_RELEASE_LONE;
    redis_call_key(call, 0, name);
    redis_call_key(call, 'f', name);
    redis_call_key(call, 'l', directory);
    redis_call_key(call, 'm', NULL);
    g_free(directory);
}

void redis_call_leaf(struct redis_call *call, const char *name, bool sequence)
{
    const char *leaf = remote_leaf(name);
    redis_call_text(call, "leaf", leaf);
    redis_call_flag(call, "sequence", sequence);
}

void redis_call_ticket(struct redis_call *call, struct redis *r, enum redis_script_id script,
                       const struct remote_ticket *t)
{
    redis_call_lock(call, r, script, t->lock->name, t->lock->sequence, NULL);
    redis_call_leaf(call, remote_ticket_name(t), t->lock->sequence);
    redis_call_text(call, "ticket", t->id);
}

/* Whether it looks at the version: what changes nothing that is granted need not. */
static bool key_is_of_version(enum redis_script_id script)
{
    static const bool without[REDIS_SCRIPTS] = {
        [REDIS_STAT] = true,         [REDIS_LIST] = true,       [REDIS_NAMES] = true,
        [REDIS_TICKETS] = true,      [REDIS_LEASES] = true,     [REDIS_ENTER] = true,
        [REDIS_RELEASE_LONE] = true, [REDIS_RENEW_MANY] = true, [REDIS_STAT_DIRECTORY] = true};
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

int64_t redis_patience(const struct redis *r)
{
    bool away = !redis_conn_is_up(r->conn) && clock_now() - r->down_since >= r->timeout;
    return away ? MIN(r->timeout, REDIS_TIMEOUT_AWAY) : 0;
}

uint64_t redis_call_send(struct redis_call *call, int64_t timeout, redis_answered *answered, void *arg)
{
    struct redis *r = call->r;
    timeout = timeout ? timeout : redis_patience(r);
    if (key_is_of_version(call->script)) {
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

/* --- replies --- */

static const redisReply *key_element(const redisReply *reply, size_t index)
{
    return reply && reply->type == REDIS_REPLY_ARRAY && index < reply->elements ? reply->element[index] : NULL;
}

const char *redis_text(const redisReply *reply, size_t index)
{
    const redisReply *e = key_element(reply, index);
    if (reply && reply->type == REDIS_REPLY_STRING && index == 0) {
        e = reply;
    }
    return e && (e->type == REDIS_REPLY_STRING || e->type == REDIS_REPLY_STATUS) ? e->str : "";
}

int64_t redis_number(const redisReply *reply, size_t index)
{
    const redisReply *e = key_element(reply, index);
    if (reply && reply->type == REDIS_REPLY_INTEGER && index == 0) {
        e = reply;
    }
    if (e && e->type == REDIS_REPLY_INTEGER) {
        return e->integer;
    }
    return g_ascii_strtoll(redis_text(reply, index), NULL, 10);
}

uint64_t redis_unsigned(const redisReply *reply, size_t index)
{
    const redisReply *e = key_element(reply, index);
    if (e && e->type == REDIS_REPLY_INTEGER) {
        return (uint64_t)e->integer;
    }
    return g_ascii_strtoull(redis_text(reply, index), NULL, 10);
}

uint64_t redis_offset(const redisReply *reply, size_t index)
{
    return g_ascii_strtoull(redis_text(reply, index), NULL, 16);
}

GBytes *redis_bytes(const redisReply *reply, size_t index, size_t max)
{
    const redisReply *e = key_element(reply, index);
    bool is_text = e && e->type == REDIS_REPLY_STRING;
    return g_bytes_new(is_text ? e->str : "", is_text ? MIN((gsize)e->len, max) : 0);
}

int64_t redis_time(const redisReply *reply, size_t index)
{
    return CLAMP(redis_number(reply, index), -1, TIME_MAX);
}

uint32_t redis_count(const redisReply *reply, size_t index)
{
    return (uint32_t)CLAMP(redis_number(reply, index), 0, UINT32_MAX);
}

static bool key_take_fence(uint64_t fence, uint64_t *ret_fence)
{
    if (fence == 0 || fence > FENCE_MAX) {
        return false;
    }
    *ret_fence = fence;
    return true;
}

GArray *redis_segments(const redisReply *reply, size_t index)
{
    const char *text = redis_text(reply, index);
    GArray *segments = *text ? g_array_new(FALSE, FALSE, sizeof(struct backend_segment)) : NULL;
    for (char *at = (char *)text, *mode; *at;) { /* sscanf(3) would look at all the rest for each number */
        struct backend_segment s = {.start = g_ascii_strtoull(at, &mode, 16)};
        s.end = g_ascii_strtoull(mode, &mode, 16);
        s.mode = g_ascii_strtoull(mode, &at, 10) ? BACKEND_SHARED : BACKEND_EXCLUSIVE;
        if (at == mode) {
            break;
        }
        g_array_append_val(segments, s);
    }
    return segments;
}

bool redis_fence(const redisReply *reply, size_t index, uint64_t *ret_fence)
{
    return key_take_fence(redis_unsigned(reply, index), ret_fence);
}

bool redis_fence_of(const char *text, uint64_t *ret_fence)
{
    return key_take_fence(g_ascii_strtoull(text, NULL, 10), ret_fence);
}

static void key_complain(struct redis *r, const char *what, const struct redis_answer *answer, const char *error)
{
    char key[512], text[256];
    char *name = answer->key_count ? g_strndup(answer->keys[0], answer->key_lengths[0]) : NULL;
    if (clock_now() - r->complained >= REDIS_COMPLAIN_EVERY) {
        r->complained = clock_now();
        log_error("the Redis server %s%s%s: %s", what, name ? " for " : "",
                  name ? log_escape(key, sizeof key, name) : "", log_escape(text, sizeof text, error));
    }
    g_free(name);
}

void redis_disbelieve(struct redis *r, const struct redis_answer *answer)
{
    key_complain(r, "gives an answer that cannot be", answer, redis_text(answer->reply, 0));
}

static void key_on_probed(void *arg, const struct redis_answer *answer)
{
    struct remote_request *request = arg;
    redis_of(request)->probing--;
    const char *error = answer->outcome == REMOTE_REFUSED && answer->reply ? answer->reply->str : "";
    if (g_str_has_prefix(error, "WRONGTYPE")) {
        char *quoted = g_shell_quote(request->name), key[512], word[512];
        log_error("%s: the key %s has the wrong type, because another program has written to it: what belongs to it "
                  "gives errors until it is deleted: redis-cli DEL %s",
                  redis_of(request)->address, log_escape(key, sizeof key, request->name),
                  log_escape(word, sizeof word, quoted));
        g_free(quoted);
    }
    remote_request_free(request);
}

/* What the error does not say: which of the script's keys has the wrong type.  So each side key is read by a command
 * that scripts use for its type, too, and the log names those that refuse it. */
static void key_find_wrong_type(struct redis *r, const struct redis_answer *answer)
{
    static const char *const probes[] = {
        ['o'] = "ZCARD",   ['t'] = "ZCARD",   ['w'] = "ZCARD",   ['l'] = "ZCARD",   ['q'] = "ZCARD",
        ['i'] = "HEXISTS", ['d'] = "HEXISTS", ['s'] = "HEXISTS", ['e'] = "HEXISTS", ['f'] = "GET",
        ['v'] = "GET",     ['m'] = "SCARD",   ['r'] = "SCARD"};
    if (r->probing) {
        return;
    }
    GHashTable *seen = g_hash_table_new(g_str_hash, g_str_equal); /* a script of several names may have a key twice */
    for (size_t i = 0; i < answer->key_count; i++) {
        char *key = g_strndup(answer->keys[i], answer->key_lengths[i]);
        unsigned char letter = redis_key_is_side(key) ? (unsigned char)key[strlen(SIDE)] : 0;
        const char *probe = letter < G_N_ELEMENTS(probes) ? probes[letter] : NULL;
        if (!probe || g_hash_table_contains(seen, key)) {
            g_free(key);
            continue;
        }
        struct remote_request *request = remote_request_new(&r->remote, NULL);
        const struct redis_argument words[] = {
            {probe, strlen(probe)}, {key, answer->key_lengths[i]}, {"", 0}}; /* no field is named "" */
        request->name = key;
        g_hash_table_add(seen, key);
        r->probing++;
        redis_conn_command(r->conn, words, strcmp(probe, "HEXISTS") == 0 ? 3 : 2, 0, key_on_probed, request);
    }
    g_hash_table_unref(seen);
}

enum backend_result redis_failure(struct redis *r, const struct redis_answer *answer)
{
    if (answer->outcome != REMOTE_REFUSED) {
        return BACKEND_UNREACHABLE;
    }
    const char *error = answer->reply && answer->reply->str ? answer->reply->str : "";
    if (strstr(error, "WRONGTYPE")) {
        key_find_wrong_type(r, answer);
        return BACKEND_DAMAGED;
    }
    key_complain(r, "refuses", answer, error);
    if (strstr(error, "OOM ")) {
        return BACKEND_FULL;
    }
    return strstr(error, " user_script:") ? BACKEND_DAMAGED : BACKEND_UNREACHABLE; /* an error of Lua's own */
}

enum backend_result redis_result(struct redis *r, const struct redis_answer *answer)
{
    return answer->outcome == REMOTE_ANSWERED ? remote_parse_result(redis_text(answer->reply, 0), BACKEND_UNREACHABLE)
                                              : redis_failure(r, answer);
}
