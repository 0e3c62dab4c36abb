/* backend: what the calls of backend.h need besides a store; see backend.h. */
#include "backend/backend.h"

#include <string.h>

const char *backend_result_name(enum backend_result result)
{
    static const char *const names[] = {
        [BACKEND_OK] = "ok",
        [BACKEND_QUEUED] = "queued",
        [BACKEND_BUSY] = "busy",
        [BACKEND_MISSING] = "missing",
        [BACKEND_EXISTS] = "exists",
        [BACKEND_NOT_EMPTY] = "not-empty",
        [BACKEND_IS_DIRECTORY] = "is-directory",
        [BACKEND_NOT_DIRECTORY] = "not-directory",
        [BACKEND_STALE] = "stale",
        [BACKEND_DEADLOCK] = "deadlock",
        [BACKEND_FULL] = "full",
        [BACKEND_QUOTA] = "quota",
        [BACKEND_INVALID] = "invalid",
        [BACKEND_GRACE] = "grace",
        [BACKEND_UNREACHABLE] = "unreachable",
        [BACKEND_UNSUPPORTED] = "unsupported",
        [BACKEND_DAMAGED] = "damaged",
    };
    return (size_t)result < G_N_ELEMENTS(names) ? names[result] : "unknown";
}

const char *backend_safety_name(enum backend_safety safety)
{
    static const char *const names[] = {
        [BACKEND_SINGLE] = "single", [BACKEND_REPLICATED] = "replicated", [BACKEND_QUORUM] = "quorum"};
    return names[safety];
}

/* Word number `word` of meta, or NULL; *ret_end is the end of meta. */
static const char *backend_find_word(GBytes *meta, unsigned word, const char **ret_end)
{
    gsize size = 0;
    const char *at = meta ? g_bytes_get_data(meta, &size) : NULL;
    *ret_end = at + size;
    for (unsigned i = 1; at && i < word; i++) {
        at = memchr(at, ' ', (size_t)(*ret_end - at));
        at = at ? at + 1 : NULL;
    }
    return at;
}

bool backend_matches(const struct backend_match *match, GBytes *meta)
{
    gsize length = strlen(match->text);
    const char *end, *at = backend_find_word(meta, match->word, &end);
    return !length || (at && (size_t)(end - at) >= length && memcmp(at, match->text, length) == 0 &&
                       (at + length == end || at[length] == ' '));
}

/* The word with the guard; 0 if it is no number.  A number that is too large becomes some number above the maximum. */
static int64_t backend_parse_flags(GBytes *meta)
{
    const char *end, *at = backend_find_word(meta, BACKEND_GUARD_WORD, &end);
    int64_t sum = 0;
    for (; at && at < end && *at >= '0' && *at <= '9'; at++) {
        sum = sum > BACKEND_GUARD_MAX * BACKEND_GUARD_UNIT ? sum : sum * 10 + (*at - '0');
    }
    return at && (at == end || *at == ' ') ? sum : 0;
}

const char *backend_parse_pid(GBytes *meta, size_t *ret_length)
{
    const char *end = NULL, *at = backend_find_word(meta, BACKEND_PID_WORD, &end);
    size_t length = 0;
    while (at && at + length < end && at[length] >= '0' && at[length] <= '9') {
        length++;
    }
    *ret_length = length;
    return at ? at : "";
}

int64_t backend_parse_guard(GBytes *meta)
{
    return MIN(backend_parse_flags(meta) / BACKEND_GUARD_UNIT, BACKEND_GUARD_MAX);
}

bool backend_parse_fixed(GBytes *meta)
{
    return backend_parse_flags(meta) & BACKEND_FIXED;
}

void backend_status(struct backend *b, struct backend_status *ret_status)
{
    *ret_status = (struct backend_status){
        .details = g_ptr_array_new_with_free_func(g_free),
        .warnings = g_ptr_array_new_with_free_func(g_free),
    };
    if (b->operations->status) {
        b->operations->status(b, ret_status);
    }
}

void backend_status_clear(struct backend_status *status)
{
    g_free(status->why);
    g_free(status->address);
    g_ptr_array_unref(status->details);
    g_ptr_array_unref(status->warnings);
    *status = (struct backend_status){0};
}
