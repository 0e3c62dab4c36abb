/* xattr: the attributes user.lease.* of locks and directories; see xattr.h. */
#include "fs/ops/xattr_private.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/xattr.h>
#include <time.h>

#include "backend/log.h"
#include "fs/hold/guard.h"
#include "fs/hold/handle.h"
#include "fs/hold/meta.h"
#include "fs/kernel/tree.h"
#include "fs/ops/directory.h"
#include "fs/ops/mounts.h"
#include "fs/ops/tickets.h"

/* --- reading --------------------------------------------------------------- */

static bool xattr_caller_lost(struct request *r)
{
    struct handle *h;
    for (h = handle_latest(r->fs, r->node, request_caller(r)); h; h = h->older) {
        if (h->record->lost && h->opener) {
            return true;
        }
    }
    return false;
}

static bool xattr_caller_waits(struct request *r)
{
    struct hold *hold;
    LIST_FOREACH(hold, &r->node->waiting, link) {
        if (hold->ticket && !hold->ticket->held && hold_is_owned_by(hold, request_caller(r))) {
            return true;
        }
    }
    return false;
}

/* Does the caller have handles that could hold the lock, and no lock through them, and no lease? */
static bool xattr_caller_is_idle(struct request *r)
{
    const struct handle *h = handle_latest(r->fs, r->node, request_caller(r));
    bool idle = false;
    if (!h || !h->opener || handle_find_hold(r->fs, h)) {
        return false;
    }
    for (; h; h = h->older) {
        idle = idle || h->record->writable || h->record->locking;
    }
    return idle;
}

/* Is the name that of a ticket in its directory's queue? */
static bool xattr_is_ticket(const struct node *node, const struct backend_info *info)
{
    const struct hold *hold = hold_find_first(node);
    struct meta meta;
    if (hold) {
        return hold->sequence;
    }
    return info->type == BACKEND_LOCK && meta_decode(info->meta, &meta) && meta.sequence;
}

static char *xattr_get_state(struct request *r, const struct backend_info *info)
{
    if (xattr_caller_lost(r)) {
        return g_strdup("lost");
    }
    if (xattr_caller_waits(r)) {
        return g_strdup("waiting");
    }
    if (xattr_caller_is_idle(r)) {
        return g_strdup("free");
    }
    /* of a ticket of another mount only the store knows; a store that lost its data has not got this mount's back yet
     */
    if (info->type == BACKEND_NOTHING && hold_find_first(r->node)) {
        return g_strdup("held");
    }
    if (info->guarded) {
        return g_strdup("broken");
    }
    bool held = info->ticket ? info->ticket->held : info->holders > 0 || !xattr_is_ticket(r->node, info);
    bool waits = info->type == BACKEND_LOCK && !held;
    return g_strdup(waits ? "waiting" : info->type == BACKEND_LOCK ? "held" : "free");
}

static char *xattr_get_kind(struct request *r, const struct backend_info *info)
{
    static const char *const names[] = {[BACKEND_PROVISIONAL] = "lease",
                                        [BACKEND_LEASE] = "lease",
                                        [BACKEND_FLOCK] = "flock",
                                        [BACKEND_FCNTL] = "fcntl"};
    if (xattr_is_ticket(r->node, info)) {
        return g_strdup("ticket");
    }
    return info->type == BACKEND_LOCK ? g_strdup(names[info->kind]) : NULL;
}

static char *xattr_get_mode(struct request *r, const struct backend_info *info)
{
    (void)r;
    return info->type == BACKEND_LOCK ? g_strdup(info->mode == BACKEND_SHARED ? "shared" : "exclusive") : NULL;
}

static char *xattr_get_guarantee(struct request *r, const struct backend_info *info)
{
    return info->type == BACKEND_LOCK ? g_strdup(backend_safety_name(r->fs->backend->safety)) : NULL;
}

static char *xattr_get_owner(struct request *r, const struct backend_info *info)
{
    return xattr_format_owner(r->fs, r->node, info);
}

static char *xattr_get_token(struct request *r, const struct backend_info *info)
{
    (void)r;
    if (info->type != BACKEND_LOCK || !info->fence) {
        return NULL;
    }
    return g_strdup_printf("%" PRIu64, info->fence);
}

static char *xattr_get_acquired(struct request *r, const struct backend_info *info)
{
    return xattr_format_acquired(r->fs, info);
}

static char *xattr_get_remaining(struct request *r, const struct backend_info *info)
{
    (void)r;
    if (info->type != BACKEND_LOCK || info->deadline == CLOCK_NEVER) {
        return NULL;
    }
    int64_t left = MAX(info->deadline - clock_now(), 0);
    return g_strdup_printf("%" PRId64 ".%03d", left / 1000, (int)(left % 1000));
}

static char *xattr_duration(int64_t ms)
{
    return g_strdup_printf(ms % 1000 ? "%" PRId64 ".%03d" : "%" PRId64, ms / 1000, (int)(ms % 1000));
}

static char *xattr_get_ttl(struct request *r, const struct backend_info *info)
{
    if (!r->node->directory && (info->type != BACKEND_LOCK || !info->ttl)) {
        return NULL;
    }
    return xattr_duration(r->node->directory ? hold_directory_ttl(r->fs, r->node) : info->ttl);
}

static char *xattr_get_waiters(struct request *r, const struct backend_info *info)
{
    (void)r;
    return g_strdup_printf("%u", info->type == BACKEND_NOTHING ? 0 : info->waiters);
}

static char *xattr_get_position(struct request *r, const struct backend_info *info)
{
    if (!xattr_is_ticket(r->node, info)) {
        return NULL;
    }
    return g_strdup_printf("%u", info->position);
}

static char *xattr_get_name(struct request *r, const struct backend_info *info)
{
    return xattr_is_ticket(r->node, info) ? g_strdup(tree_name(r->node)) : NULL;
}

static char *xattr_get_delay(struct request *r, const struct backend_info *info)
{
    (void)r;
    return xattr_duration(info->directory.delay);
}

static char *xattr_get_width(struct request *r, const struct backend_info *info)
{
    (void)r;
    return g_strdup_printf("%u", info->directory.width);
}

static char *xattr_get_guard(struct request *r, const struct backend_info *info)
{
    struct meta meta;
    unsigned guard = 0;
    (void)r;
    if (info->ticket) {
        guard = guard_duration(info->ticket->user);
    } else if (info->type == BACKEND_LOCK && meta_decode(info->meta, &meta)) {
        guard = meta.guard;
    }
    return guard ? xattr_duration(guard) : NULL;
}

static char *xattr_get_note(struct request *r, const struct backend_info *info)
{
    struct meta meta;
    const char *note = NULL;
    (void)r;
    if (info->ticket) {
        note = hold_note(info->ticket->user);
    } else if (info->type == BACKEND_LOCK && meta_decode(info->meta, &meta) && *meta.note) {
        note = meta.note;
    }
    return g_strdup(note);
}

/* --- the table ------------------------------------------------------------------ */

static const struct xattr xattr_table[] = {
    {"user.lease.state", true, false, false, xattr_get_state, NULL},
    {"user.lease.kind", true, false, true, xattr_get_kind, NULL},
    {"user.lease.mode", true, false, true, xattr_get_mode, NULL},
    {"user.lease.guarantee", true, false, true, xattr_get_guarantee, NULL},
    {"user.lease.owner", true, false, false, xattr_get_owner, NULL},
    {"user.lease.token", true, false, true, xattr_get_token, NULL},
    {"user.lease.acquired", true, false, true, xattr_get_acquired, NULL},
    {"user.lease.remaining", true, false, true, xattr_get_remaining, NULL},
    {"user.lease.ttl", true, true, true, xattr_get_ttl, xattr_set_ttl},
    {"user.lease.waiters", true, true, false, xattr_get_waiters, NULL},
    {"user.lease.position", true, false, false, xattr_get_position, NULL},
    {"user.lease.name", true, false, false, xattr_get_name, NULL},
    {"user.lease.width", false, true, false, xattr_get_width, xattr_set_width},
    {"user.lease.delay", false, true, false, xattr_get_delay, xattr_set_delay},
    {"user.lease.check", true, false, false, NULL, xattr_set_check},
    {"user.lease.release", true, false, false, NULL, xattr_set_release},
    {"user.lease.break", true, false, false, NULL, xattr_set_break},
    {"user.lease.resume", true, false, false, NULL, xattr_set_resume},
    {"user.lease.guard", true, false, true, xattr_get_guard, xattr_set_guard},
    {"user.lease.note", true, false, true, xattr_get_note, xattr_set_note},
};

static const struct xattr *xattr_find(const struct node *node, const char *name)
{
    for (size_t i = 0; i < G_N_ELEMENTS(xattr_table); i++) {
        const struct xattr *attribute = &xattr_table[i];
        if (strcmp(attribute->name, name) == 0) {
            return (node->directory ? attribute->on_directory : attribute->on_lock) ? attribute : NULL;
        }
    }
    return NULL;
}

/* Needs no backend: this mount knows what it holds, and which handles have lost their lock. */
static bool xattr_is_known_here(struct request *r, struct backend_info *ret_info)
{
    const struct xattr *attribute = r->xattr.attribute;
    struct hold *hold = r->node->directory ? NULL : hold_find_first(r->node);
    *ret_info = (struct backend_info){.type = hold ? BACKEND_LOCK : BACKEND_NOTHING};
    ret_info->ticket = hold ? hold->ticket : NULL;
    return (attribute->get == xattr_get_state && (hold || xattr_caller_lost(r) || xattr_caller_is_idle(r))) ||
           (attribute->get == xattr_get_owner && hold);
}

static void xattr_got(void *arg, enum backend_result result, const struct backend_info *info)
{
    struct request *r = arg;
    struct backend_info here;
    bool known = result == BACKEND_OK;
    if (!known && (known = xattr_is_known_here(r, &here))) {
        info = &here;
    } else if (known && r->node->directory && info->type == BACKEND_DIRECTORY) {
        directory_load(r->node, &info->directory);
    }
    g_autofree char *text = known ? r->xattr.attribute->get(r, info) : NULL;
    if (text) {
        xattr_reply(r, text, strlen(text));
    } else {
        request_reply(r, known ? -ENODATA : -EIO);
    }
}

/* The remaining time of a ticket of this mount, as this mount counts it, without the store. */
static void xattr_reply_ticket(struct request *r, struct backend_ticket *ticket, backend_info_done *known)
{
    struct backend_info info = {.type = BACKEND_LOCK,
                                .kind = ticket->kind,
                                .mode = ticket->mode,
                                .fence = ticket->fence,
                                .acquired = ticket->acquired,
                                .deadline = backend_ticket_deadline(ticket, clock_now()),
                                .ttl = ticket->ttl,
                                .ticket = ticket};
    known(r, BACKEND_OK, &info);
}

static void xattr_stat(struct request *r, backend_info_done *known)
{
    bool of_ticket = r->xattr.attribute->of_ticket && !r->node->directory;
    struct hold *hold = of_ticket ? handle_find_shown_to(r->fs, r->node, request_caller(r)) : NULL;
    if (hold) {
        xattr_reply_ticket(r, hold->ticket, known);
    } else {
        request_stat(r, known);
    }
}

void xattr_get(struct request *r, const char *name, size_t size)
{
    r->xattr.attribute = xattr_find(r->node, name);
    r->xattr.size = size;
    if (r->node->directory && tickets_is_attribute(name)) {
        tickets_get(r, name, size);
    } else if (r->node->directory && strcmp(name, MOUNTS_ATTRIBUTE) == 0) {
        mounts_get(r, size);
    } else if (!r->xattr.attribute || !r->xattr.attribute->get) {
        /* of labels and access lists nobody need ask for each file: ls(1) does not */
        request_reply(r, g_str_has_prefix(name, "user.") ? -ENODATA : -EOPNOTSUPP);
    } else {
        xattr_stat(r, xattr_got);
    }
}

static void xattr_listed(void *arg, enum backend_result result, const struct backend_info *info)
{
    struct request *r = arg;
    if (result != BACKEND_OK) {
        request_reply(r, -EIO);
        return;
    }
    GString *list = g_string_new(NULL);
    for (size_t i = 0; i < G_N_ELEMENTS(xattr_table); i++) {
        const struct xattr *attribute = &xattr_table[i];
        bool applies = r->node->directory ? attribute->on_directory : attribute->on_lock;
        g_autofree char *value = applies && attribute->get ? attribute->get(r, info) : NULL;
        if (value) {
            g_string_append_len(list, attribute->name, (gssize)strlen(attribute->name) + 1);
        }
    }
    xattr_reply(r, list->str, list->len);
    g_string_free(list, TRUE);
}

void xattr_list(struct request *r)
{
    request_stat(r, xattr_listed);
}

static void xattr_directory_known(void *arg, enum backend_result result, const struct backend_info *info)
{
    struct request *r = arg;
    if (result != BACKEND_OK || info->type != BACKEND_DIRECTORY) {
        request_reply(r, result != BACKEND_OK ? fs_error(result) : -ESTALE);
    } else {
        directory_load(r->node, &info->directory);
        r->xattr.attribute->set(r);
    }
}

/* A directory's attributes are written together, so those that another mount has set must be read first. */
static void xattr_set_now(struct request *r)
{
    if (!r->node->directory) {
        r->xattr.attribute->set(r);
    } else if (r->node->parent && !r->node->record->hashed) {
        request_reply(r, -ESTALE); /* removed; by that name there may be another's */
    } else {
        request_stat(r, xattr_directory_known);
    }
}

/* One that cannot be read is never there. */
static void xattr_set_if(void *arg, enum backend_result result, const struct backend_info *info)
{
    struct request *r = arg;
    const struct xattr *attribute = r->xattr.attribute;
    g_autofree char *value = result == BACKEND_OK && attribute->get ? attribute->get(r, info) : NULL;
    if (result != BACKEND_OK) {
        request_reply(r, fs_error(result));
    } else if (value && r->xattr.flags & XATTR_CREATE) {
        request_reply(r, -EEXIST);
    } else if (!value && r->xattr.flags & XATTR_REPLACE) {
        request_reply(r, -ENODATA);
    } else {
        xattr_set_now(r);
    }
}

void xattr_set(struct request *r, const char *name, const char *value, size_t size, int flags)
{
    const struct xattr *attribute = xattr_find(r->node, name);
    if (!attribute) {
        request_reply(r, g_str_has_prefix(name, "user.lease.") ? -EINVAL : -EOPNOTSUPP);
    } else if (!attribute->set) {
        request_reply(r, -EPERM);
    } else if (size > 64 || memchr(value, '\0', size)) {
        request_reply(r, -EINVAL);
    } else {
        r->value = g_strndup(value, size);
        r->xattr.attribute = attribute;
        r->xattr.flags = flags;
        if (flags) {
            xattr_stat(r, xattr_set_if);
        } else {
            xattr_set_now(r);
        }
    }
}

void xattr_remove(struct request *r, const char *name)
{
    const struct xattr *attribute = xattr_find(r->node, name);
    const char *none = !attribute                          ? NULL
                       : attribute->set == xattr_set_ttl   ? "auto"
                       : attribute->set == xattr_set_guard ? "0"
                       : attribute->set == xattr_set_note  ? ""
                                                           : NULL;
    if (none) {
        r->value = g_strdup(none);
        r->xattr.attribute = attribute;
        xattr_set_now(r);
    } else {
        request_reply(r, attribute ? -EPERM : -ENODATA);
    }
}
