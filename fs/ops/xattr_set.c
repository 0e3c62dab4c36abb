/* xattr_set: setting the attributes user.lease.*; see xattr.h.  A value is taken
 * when the backend has answered what this mount does not know. */
#include "fs/ops/xattr_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/control/report.h"
#include "fs/hold/guard.h"
#include "fs/hold/handle.h"
#include "fs/hold/meta.h"
#include "fs/hold/rights.h"
#include "fs/hold/survivor.h"
#include "fs/kernel/tree.h"
#include "fs/ops/directory.h"

static int xattr_error(enum backend_result result)
{
    return result == BACKEND_MISSING ? -ESTALE : result == BACKEND_BUSY ? -EPERM : fs_error(result);
}

static void xattr_done(struct request *r)
{
    request_reply(r, xattr_error(r->result));
}

/* What an earlier daemon meant to end has ended. */
static void xattr_revoked(void *arg, enum backend_result result)
{
    struct request *r = arg;
    bool done = result == BACKEND_STALE && request_begun_before(r);
    request_reply_when_invalidated(r, done ? 0 : xattr_error(result));
}

/* A change that the store refused is undone here; then the store's values replace the others. */
static void xattr_directory_stored(struct request *r)
{
    struct backend_directory *own = &r->node->directory->attributes;
    if (r->result != BACKEND_OK) {
        r->directory.meta = own->meta;
        *own = r->directory;
        directory_reload(r, xattr_done);
    } else {
        xattr_done(r);
    }
}

/* A directory's attributes are for its owner and root. */
static void xattr_store_directory(struct request *r, const struct backend_directory *attributes)
{
    if (request_uid(r) != 0 && request_uid(r) != r->node->directory->uid) {
        request_reply(r, -EPERM);
        return;
    }
    GBytes *meta = r->node->directory->attributes.meta;
    r->directory = r->node->directory->attributes;
    r->node->directory->attributes = *attributes;
    r->node->directory->attributes.meta = meta;
    directory_store(r, xattr_directory_stored);
}

static void xattr_set_directory_ttl(struct request *r, int64_t ttl)
{
    struct backend_directory attributes = r->node->directory->attributes;
    attributes.ttl = ttl;
    xattr_store_directory(r, &attributes);
}

/* A count or a fencing token: decimal digits, optionally a newline. */
static bool xattr_parse_number(const char *text, uint64_t *ret_number)
{
    char *end;
    errno = 0;
    uint64_t number = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || errno || (*end && strcmp(end, "\n") != 0)) {
        return false;
    }
    *ret_number = number;
    return true;
}

void xattr_set_delay(struct request *r)
{
    struct backend_directory attributes = r->node->directory->attributes;
    const char *text = r->value;
    if (strcmp(text, "0") == 0) {
        attributes.delay = 0;
    } else if (options_duration(text, strlen(text), &attributes.delay) != 0) {
        request_reply(r, -EINVAL);
        return;
    }
    xattr_store_directory(r, &attributes);
}

void xattr_set_width(struct request *r)
{
    struct backend_directory attributes = r->node->directory->attributes;
    uint64_t width;
    if (!xattr_parse_number(r->value, &width) || width < 1 || width > UINT32_MAX) {
        request_reply(r, -EINVAL);
        return;
    }
    attributes.width = (uint32_t)width;
    xattr_store_directory(r, &attributes);
}

/* This mount does not hold it: does another? */
static void xattr_refused(void *arg, enum backend_result result, const struct backend_info *info)
{
    struct request *r = arg;
    if (result != BACKEND_OK) {
        request_reply(r, fs_error(result));
    } else {
        request_reply(r, info->type == BACKEND_LOCK ? -EPERM : -ESTALE);
    }
}

/* May the caller set an attribute of this lock?  If not, the request is answered, or `again` continues it once a
 * conversion is over. */
static bool xattr_may_set(struct request *r, struct hold *hold, void (*again)(struct request *r))
{
    if (!hold) {
        request_stat(r, xattr_refused);
    } else if (!hold_allows_change(r->fs, hold, request_caller(r), request_uid(r))) {
        request_reply(r, -EPERM);
    } else if (hold->converting) {
        hold_await_outcome(r, hold, again);
    } else if (hold->kind == BACKEND_PROVISIONAL) {
        request_reply(r, -EINVAL); /* it has its second */
    } else {
        return true;
    }
    return false;
}

static struct hold *xattr_shown_hold(struct request *r)
{
    struct hold *hold = handle_find_shown_to(r->fs, r->node, request_caller(r));
    return hold ? hold : hold_find_first(r->node);
}

/* That the term is fixed, or no longer, is noted: now the term itself.  In this order
 * a store that is full refuses before anything has changed. */
static void xattr_term_noted(struct request *r)
{
    struct fs *fs = r->fs;
    struct hold *hold = r->hold;
    enum backend_result result = r->result;
    hold->fixed = r->term.fixed;
    if (result == BACKEND_OK && !hold->ticket) {
        result = BACKEND_STALE;
    } else if (result == BACKEND_OK && !hold_set_term(fs, hold, r->term.ttl)) {
        hold_store(fs, hold);
        result = BACKEND_FULL;
    }
    request_reply(r, fs_error(result));
    hold_unpin(fs, hold);
}

static void xattr_set_term(struct request *r, struct hold *hold, int64_t ttl)
{
    r->term.fixed = hold->fixed;
    r->term.ttl = ttl;
    hold->fixed = ttl > 0 && hold->kind == BACKEND_LEASE;
    hold_pin_lease(hold); /* a handle's lock would have the term, and not be renewed for as long as it lives */
    hold_store_for(r, hold, xattr_term_noted);
}

void xattr_set_ttl(struct request *r)
{
    int64_t ttl = 0; /* "auto" */
    const char *text = r->value;
    if (strcmp(text, "auto") != 0 && options_duration(text, strlen(text), &ttl) != 0) {
        request_reply(r, -EINVAL);
        return;
    }
    if (r->node->directory) {
        xattr_set_directory_ttl(r, ttl);
        return;
    }
    struct hold *hold = hold_find_lease(r->node);
    hold = hold && hold->since ? hold : xattr_shown_hold(r);
    if (xattr_may_set(r, hold, xattr_set_ttl)) {
        xattr_set_term(r, hold, ttl);
    }
}

static void xattr_guard_noted(struct request *r)
{
    struct fs *fs = r->fs;
    struct hold *hold = r->hold;
    enum backend_result result = r->result == BACKEND_OK && !hold->ticket ? BACKEND_STALE : r->result;
    if (result != BACKEND_OK) {
        guard_set(hold, (unsigned)r->term.ttl);
        hold_store(fs, hold);
    }
    request_reply(r, fs_error(result));
    hold_unpin(fs, hold);
}

void xattr_set_guard(struct request *r)
{
    int64_t guard = 0;
    const char *text = r->value;
    struct hold *hold = xattr_shown_hold(r);
    bool none = strcmp(text, "0") == 0;
    if ((!none && options_duration(text, strlen(text), &guard) != 0) || guard > BACKEND_GUARD_MAX) {
        request_reply(r, -EINVAL);
    } else if (xattr_may_set(r, hold, xattr_set_guard)) {
        r->term.ttl = guard_duration(hold);
        guard_set(hold, (unsigned)guard);
        hold_pin_lease(hold);
        hold_store_for(r, hold, xattr_guard_noted);
    }
}

/* r->value is the note before. */
static void xattr_note_stored(struct request *r)
{
    struct fs *fs = r->fs;
    struct hold *hold = r->hold;
    enum backend_result result = r->result == BACKEND_OK && !hold->ticket ? BACKEND_STALE : r->result;
    if (result != BACKEND_OK) {
        hold_set_note(hold, r->value);
        hold_store(fs, hold);
    }
    request_reply(r, fs_error(result));
    hold_unpin(fs, hold);
}

/* Everybody sees it on one line: without control characters. */
static bool xattr_is_note(const char *text)
{
    while (*text && !g_ascii_iscntrl(*text)) {
        text++;
    }
    return !*text;
}

void xattr_set_note(struct request *r)
{
    struct hold *hold = xattr_shown_hold(r);
    if (!xattr_is_note(r->value)) {
        request_reply(r, -EINVAL);
    } else if (xattr_may_set(r, hold, xattr_set_note)) {
        char *before = g_strdup(hold_note(hold) ? hold_note(hold) : "");
        hold_set_note(hold, r->value);
        g_free(r->value);
        r->value = before;
        hold_pin_lease(hold);
        hold_store_for(r, hold, xattr_note_stored);
    }
}

static void xattr_checked(void *arg, enum backend_result result, const struct backend_info *info)
{
    struct request *r = arg;
    uint64_t token = 0;
    xattr_parse_number(r->value, &token);
    bool current =
        result == BACKEND_OK && info->type == BACKEND_LOCK && !info->guarded && token && info->fence == token;
    request_reply(r, result != BACKEND_OK ? -EIO : current ? 0 : -ESTALE);
}

/* Is it the token of a holder of this mount?  Each shared holder has a token of its own. */
static bool xattr_is_held_here(const struct node *node, uint64_t token)
{
    const struct hold *hold;
    LIST_FOREACH(hold, &node->holds, link) {
        if (hold->ticket && hold->ticket->held && hold->ticket->fence == token) {
            return true;
        }
    }
    return false;
}

void xattr_set_check(struct request *r)
{
    uint64_t token;
    if (!xattr_parse_number(r->value, &token)) {
        request_reply(r, -EINVAL);
    } else if (xattr_is_held_here(r->node, token)) {
        request_reply(r, 0);
    } else {
        request_stat(r, xattr_checked);
    }
}

/* Root ends all holders and guards; other users only if all of them are their own. */
static void xattr_revoke_own(struct request *r, const char *path, uint64_t token, backend_done *done)
{
    struct backend_match match = {.word = META_UID_WORD};
    KEEP_STORE(request_intent(r)->begun, 1);
    if (request_uid(r) == 0) {
        backend_revoke(r->fs->backend, path, token, done, r);
    } else {
        snprintf(match.text, sizeof match.text, "%u", request_uid(r));
        backend_revoke_matching(r->fs->backend, path, token, &match, done, r);
    }
}

/* May the caller write the attribute now?  The kernel checked the rights of an earlier holder, and a token can be
 * guessed. */
static void xattr_release_known(void *arg, enum backend_result result, const struct backend_info *info)
{
    struct request *r = arg;
    const struct fuse_ctx *context = fuse_req_ctx(r->req);
    char path[TREE_PATH_MAX];
    uint64_t token = 0;
    if (result != BACKEND_OK || info->type != BACKEND_LOCK) {
        bool done = request_begun_before(r);
        request_reply(r, result != BACKEND_OK ? fs_error(result) : done ? 0 : -ESTALE);
        return;
    }
    struct rights rights = rights_of(info);
    xattr_parse_number(r->value, &token);
    if (!request_begun_before(r) &&
        !rights_allow(&rights, RIGHTS_WRITE, request_caller(r), context->uid, context->gid)) {
        request_reply(r, -EACCES);
    } else if (!request_path(r, path)) {
        return;
    } else if (info->fence == token && request_uid(r) != 0) {
        struct backend_match any = {.text = ""};
        KEEP_STORE(request_intent(r)->begun, 1);
        backend_revoke_matching(r->fs->backend, path, token, &any, xattr_revoked, r);
    } else {
        xattr_revoke_own(r, path, token,
                         xattr_revoked); /* L has the rights of its first holder, not of those that share it */
    }
}

void xattr_set_release(struct request *r)
{
    uint64_t token;
    if (!xattr_parse_number(r->value, &token)) {
        request_reply(r, -EINVAL);
    } else if (token == 0) {
        request_reply(r, -ESTALE);
    } else {
        request_stat(r, xattr_release_known);
    }
}

/* r->value now names the former holder. */
static void xattr_broken(void *arg, enum backend_result result)
{
    struct request *r = arg;
    char path[TREE_PATH_MAX];
    if (result == BACKEND_OK && tree_path(r->node, path, sizeof path)) {
        report_broken(r, path, r->value);
    }
    if (result == BACKEND_BUSY && request_uid(r) == 0) {
        request_reply(r, -EBUSY); /* broken meanwhile, and guarded */
    } else {
        xattr_revoked(r, result);
    }
}

/* Did an earlier daemon break the lock that it found?  Then another may have it, or a guard keeps it. */
static bool xattr_is_broken(const struct request *r, const struct backend_info *info)
{
    return request_begun_before(r) && (info->type != BACKEND_LOCK || info->fence != r->before->fence ||
                                       info->guarded != (r->before->guarded != 0));
}

static void xattr_break_known(void *arg, enum backend_result result, const struct backend_info *info)
{
    struct request *r = arg;
    char path[TREE_PATH_MAX];
    if (result == BACKEND_OK && xattr_is_broken(r, info)) {
        request_reply(r, 0);
        return;
    }
    if (result != BACKEND_OK || info->type != BACKEND_LOCK) {
        request_reply(r, result != BACKEND_OK ? fs_error(result) : -ESTALE);
        return;
    }
    bool force = strtoull(r->value, NULL, 10) == 2;
    if (info->guarded && !force) {
        request_reply(r, -EBUSY); /* the old holder may still run */
    } else if (request_path(r, path)) {
        struct intent *intent = request_intent(r);
        intent->fence = info->fence;
        intent->guarded = info->guarded;
        KEEP_STORE(intent->begun, 1);
        g_free(r->value);
        r->value = report_holders(r->fs, r->node, info);
        if (request_uid(r) == 0 && !force) {
            static const struct backend_match any = {.text = ""}; /* ends no guard, if another break comes first */
            backend_revoke_matching(r->fs->backend, path, 0, &any, xattr_broken, r);
        } else {
            xattr_revoke_own(r, path, 0, xattr_broken);
        }
    }
}

void xattr_set_break(struct request *r)
{
    uint64_t how;
    if (!xattr_parse_number(r->value, &how) || how < 1 || how > 2) {
        request_reply(r, -EINVAL);
    } else if (how == 2 && request_uid(r) != 0) {
        request_reply(r, -EPERM);
    } else {
        request_stat(r, xattr_break_known);
    }
}

void xattr_set_resume(struct request *r)
{
    uint64_t token;
    if (xattr_parse_number(r->value, &token)) {
        survivors_resume(r, token);
    } else {
        request_reply(r, -EINVAL);
    }
}
