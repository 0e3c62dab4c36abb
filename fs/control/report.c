/* report: what the log says of locks; see report.h. */
#include "fs/control/report.h"

#include "backend/log.h"
#include "fs/hold/hold.h"
#include "fs/hold/meta.h"
#include "fs/hold/survivor.h"
#include "fs/kernel/request.h"
#include "fs/kernel/tree.h"

#define REPORT_NAME 512
#define REPORT_COMMAND (sizeof((struct meta *)NULL)->command * 4)

static void report_add_holder(GString *text, const char *host, pid_t pid, const char *command, uid_t uid)
{
    char at[sizeof((struct meta *)NULL)->host * 4], what[REPORT_COMMAND];
    g_string_append_printf(text, "%s%s (pid %d, uid %u, host %s)", text->len ? "\n" : "",
                           log_escape(what, sizeof what, command), pid, uid, log_escape(at, sizeof at, host));
}

static void report_add_hold(struct fs *fs, GString *text, struct hold *hold)
{
    const struct survivor *survivor = hold_survivor(hold);
    struct owner *owner = survivor ? survivor_process(survivor) : hold_update_owner(hold);
    report_add_holder(text, fs->host, owner ? owner_pid(owner) : 0, owner ? owner_command(owner) : "?", hold->uid);
}

/* Its owner is gone, and nobody has inherited it.  One that ended well may have
 * relied on the lease being there for longer. */
static void report_abandoned(const char *name, struct hold *hold, const char *who)
{
    if (owner_end(hold->owner) == OWNER_FAILED) {
        log_info("%s: lease expired: its owner, %s, crashed or was killed", name, who);
    } else {
        log_notice(
            "%s: lease expired: its owner, %s, exited without removing it. To hold a lock while a command runs, use "
            "leaserun LOCK COMMAND or flock LOCK COMMAND; for a fixed time, setfattr -n user.lease.ttl -v TIME LOCK",
            name, who);
    }
}

/* It ran out.  With a fixed term that was intended; after its owner's death it is worth knowing; while its owner lives,
 * a process slept for too long. */
static void report_expired(const char *name, struct hold *hold, const char *who)
{
    if (hold->kind == BACKEND_PROVISIONAL) {
        return;
    }
    if (hold->fixed || !hold->owner) {
        log_debug("%s: the lock of %s ended with its term", name, who);
    } else if (hold->kind == BACKEND_LEASE && !hold_needs_renewal(hold)) {
        report_abandoned(name, hold, who);
    } else {
        log_warning("%s: the lock of %s expired while it was in use: this host or its daemon was suspended", name, who);
    }
}

void report_ended(struct fs *fs, struct hold *hold, enum backend_end why)
{
    char path[TREE_PATH_MAX], name[REPORT_NAME];
    if (why == BACKEND_EXPIRED && (hold->fixed || !hold->owner) && !log_wants(LOG_LEVEL_DEBUG)) {
        return; /* there may be a million of these at once */
    }
    GString *who = g_string_new(NULL);
    report_add_hold(fs, who, hold);
    log_escape(name, sizeof name, tree_path(hold->node, path, sizeof path) ? path : "?");
    if (why == BACKEND_EXPIRED) {
        report_expired(name, hold, who->str);
    } else if (why == BACKEND_LOST) {
        log_warning("%s: the lock of %s was lost: it could not be renewed in time", name, who->str);
    } else if (why == BACKEND_BROKEN && !(fs->backend->features & BACKEND_SOLE_AUTHORITY)) {
        /* Perhaps through another mount, whose log says by whom. */
        log_warning("%s: the lock of %s was broken", name, who->str);
    } else {
        log_debug("%s: the lock of %s was %s", name, who->str,
                  why == BACKEND_BROKEN ? "broken" : "released by its token");
    }
    g_string_free(who, TRUE);
}

void report_contended(struct request *r, struct hold *lease)
{
    char path[TREE_PATH_MAX], name[REPORT_NAME], what[REPORT_COMMAND];
    struct owner *who = request_caller(r), *owner = hold_update_owner(lease);
    log_escape(name, sizeof name, tree_path(lease->node, path, sizeof path) ? path : "?");
    log_notice("%s: write refused: pid %d (%s) is a child of the holder, pid %d, but is not the holder. Let the holder "
               "itself write: echo \"$(date)\" >LOCK, or exec 9>>LOCK; date >&9",
               name, who ? owner_pid(who) : 0, log_escape(what, sizeof what, who ? owner_command(who) : "?"),
               owner ? owner_pid(owner) : 0);
}

char *report_holders(struct fs *fs, const struct node *node, const struct backend_info *info)
{
    GString *text = g_string_new(NULL);
    struct meta meta;
    struct hold *hold;
    unsigned count = 0;
    for (hold = LIST_FIRST(&node->holds); hold && count < HOLD_SHOWN_MAX; hold = LIST_NEXT(hold, link)) {
        if (hold_holds(hold)) {
            report_add_hold(fs, text, hold);
            count++;
        }
    }
    if (!text->len && meta_decode(info->meta, &meta)) {
        report_add_holder(text, meta.host, meta.pid, meta.command, meta.uid);
    }
    if (!text->len) {
        g_string_append(text, "an unknown holder");
    }
    return g_string_free(text, FALSE);
}

void report_broken(struct request *r, const char *path, const char *holders)
{
    char name[REPORT_NAME], what[REPORT_COMMAND];
    struct owner *who = request_caller(r);
    log_escape(name, sizeof name, path);
    log_escape(what, sizeof what, who ? owner_command(who) : "?");
    g_auto(GStrv) lines = g_strsplit(holders, "\n", -1);
    for (size_t i = 0; lines[i]; i++) {
        log_audit("%s: the lock of %s was broken by %s (pid %d, uid %u)", name, lines[i], what,
                  who ? owner_pid(who) : 0, request_uid(r));
    }
}
