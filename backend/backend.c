/* backend: the calls of backend.h, each passed on to the implementation. */
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

void backend_start(struct backend *b, struct ev_loop *loop, const struct backend_events *events, void *context)
{
    b->operations->start(b, loop, events, context);
}

void backend_free(struct backend *b)
{
    if (b) {
        b->operations->free(b);
    }
}

struct backend_ticket *backend_acquire(struct backend *b, const char *name, const struct backend_claim *claim,
                                       backend_acquired *done, void *arg)
{
    return b->operations->acquire(b, name, claim, done, arg);
}

void backend_release(struct backend *b, struct backend_ticket *ticket, backend_done *done, void *arg)
{
    b->operations->release(b, ticket, done, arg);
}

void backend_release_range(struct backend *b, const char *name, uint64_t lock_owner, uint64_t start, uint64_t end,
                           backend_done *done, void *arg)
{
    b->operations->release_range(b, name, lock_owner, start, end, done, arg);
}

void backend_convert(struct backend *b, struct backend_ticket *ticket, const struct backend_claim *claim,
                     backend_done *done, void *arg)
{
    b->operations->convert(b, ticket, claim, done, arg);
}

void backend_renew(struct backend *b, const struct backend_renewal *renewals, size_t count)
{
    b->operations->renew(b, renewals, count);
}

void backend_set(struct backend *b, struct backend_ticket *ticket, const struct backend_change *change,
                 backend_done *done, void *arg)
{
    b->operations->set(b, ticket, change, done, arg);
}

void backend_revoke(struct backend *b, const char *name, uint64_t fence, backend_done *done, void *arg)
{
    b->operations->revoke(b, name, fence, NULL, done, arg);
}

void backend_revoke_matching(struct backend *b, const char *name, uint64_t fence, const struct backend_match *match,
                             backend_done *done, void *arg)
{
    b->operations->revoke(b, name, fence, match, done, arg);
}

bool backend_matches(const struct backend_match *match, GBytes *meta)
{
    gsize size = 0, length = strlen(match->text);
    const char *data = meta ? g_bytes_get_data(meta, &size) : NULL;
    const char *at = data, *end = data + size;
    for (unsigned word = 1; at && word < match->word; word++) {
        at = memchr(at, ' ', (size_t)(end - at));
        at = at ? at + 1 : NULL;
    }
    return at && (size_t)(end - at) >= length && memcmp(at, match->text, length) == 0 &&
           (at + length == end || at[length] == ' ');
}

void backend_rename(struct backend *b, struct backend_ticket *ticket, const char *name, struct backend_ticket *replaced,
                    backend_done *done, void *arg)
{
    b->operations->rename(b, ticket, name, replaced, done, arg);
}

void backend_test(struct backend *b, const char *name, const struct backend_claim *claim, backend_known *done,
                  void *arg)
{
    b->operations->test(b, name, claim, done, arg);
}

void backend_stat(struct backend *b, const char *name, backend_known *done, void *arg)
{
    b->operations->stat(b, name, done, arg);
}

void backend_watch(struct backend *b, const char *name)
{
    if (b->operations->watch) {
        b->operations->watch(b, name);
    }
}

void backend_list(struct backend *b, const char *directory, const char *after, size_t max, backend_listed *done,
                  void *arg)
{
    b->operations->list(b, directory, after, max, done, arg);
}

void backend_mkdir(struct backend *b, const char *name, const struct backend_directory *directory, backend_done *done,
                   void *arg)
{
    b->operations->mkdir(b, name, directory, done, arg);
}

void backend_rmdir(struct backend *b, const char *name, backend_done *done, void *arg)
{
    b->operations->rmdir(b, name, done, arg);
}

void backend_set_directory(struct backend *b, const char *name, const struct backend_directory *directory,
                           backend_done *done, void *arg)
{
    b->operations->set_directory(b, name, directory, done, arg);
}

void backend_recover(struct backend *b,
                     void (*found)(void *arg, const char *name, struct backend_ticket *ticket, GBytes *meta), void *arg)
{
    b->operations->recover(b, found, arg);
}

struct backend_counts backend_counts(struct backend *b)
{
    return b->operations->counts(b);
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

bool backend_name(struct backend *b, const struct backend_ticket *ticket, char *buffer, size_t size)
{
    return b->operations->name(b, ticket, buffer, size);
}
