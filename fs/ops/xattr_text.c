/* xattr_text: values of attributes as text, and the reply with one; see xattr_private.h. */
#include "fs/ops/xattr_private.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "backend/log.h"
#include "fs/hold/hold.h"
#include "fs/hold/meta.h"
#include "fs/hold/survivor.h"
#include "fs/kernel/request.h"
#include "fs/kernel/tree.h"

/* `note` follows the command. */
static void xattr_add_owner(GString *text, const char *host, pid_t pid, uid_t uid, const char *command,
                            const char *note)
{
    char escaped[OWNER_COMMAND_MAX * 4 + 1];
    g_string_append_printf(text, "%s%s %d %u %s%s", text->len ? "\n" : "", host, pid, uid,
                           log_escape(escaped, sizeof escaped, command), note);
}

static void xattr_add_hold(struct fs *fs, GString *text, struct hold *hold)
{
    const struct survivor *survivor = hold_survivor(hold);
    const GArray *processes = survivor ? survivor->processes : NULL;
    for (guint i = 0; processes && i < processes->len; i++) {
        const struct openers_process *process = &g_array_index(processes, struct openers_process, i);
        xattr_add_owner(text, fs->host, owner_pid(process->owner), process->uid, owner_command(process->owner),
                        SURVIVOR_NOTE);
    }
    if (!processes || !processes->len) {
        struct owner *owner = hold_update_owner(hold);
        xattr_add_owner(text, fs->host, owner ? owner_pid(owner) : 0, hold->uid, owner ? owner_command(owner) : "?",
                        survivor ? SURVIVOR_NOTE : "");
    }
}

char *xattr_format_owner(struct fs *fs, const struct node *node, const struct backend_info *info)
{
    GString *text = g_string_new(NULL);
    struct meta meta;
    struct hold *hold;
    unsigned count = 0;
    for (hold = node ? LIST_FIRST(&node->holds) : NULL; hold && count < HOLD_SHOWN_MAX; hold = LIST_NEXT(hold, link)) {
        if (hold_holds(hold)) {
            xattr_add_hold(fs, text, hold);
            count++;
        }
    }
    bool elsewhere = info->type == BACKEND_LOCK && (!text->len || !info->ticket);
    if (elsewhere && meta_decode(info->meta, &meta)) {
        xattr_add_owner(text, meta.host, meta.pid, meta.uid, meta.command, "");
    } else if (elsewhere) {
        xattr_add_owner(text, "?", 0, 0, "?", ""); /* a client that is no mount */
    }
    return g_string_free(text, !text->len);
}

char *xattr_format_acquired(struct fs *fs, const struct backend_info *info)
{
    if (info->type != BACKEND_LOCK || info->acquired == CLOCK_NEVER) {
        return NULL;
    }
    int64_t wall = fs_wall(fs, info->acquired);
    time_t seconds = clock_time(wall / 1000);
    struct tm utc;
    char day[32];
    gmtime_r(&seconds, &utc);
    strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &utc);
    return g_strdup_printf("%s.%03dZ", day, (int)(wall % 1000));
}

void xattr_reply(struct request *r, const char *text, size_t length)
{
    if (r->xattr.size == 0) {
        request_reply_xattr_size(r, length);
    } else if (length > r->xattr.size) {
        request_reply(r, -ERANGE);
    } else {
        request_reply_buffer(r, text, length);
    }
}
