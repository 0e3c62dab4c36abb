/* tickets: see tickets.h.
 *
 * A value is at most as long as the kernel takes one, so a long queue is read in parts.  Each begins behind a name, so
 * that who comes and goes meanwhile moves no others.
 */
#include "fs/ops/tickets.h"

#include <string.h>

#include "backend/log.h"
#include "fs/hold/hold.h"
#include "fs/hold/meta.h"
#include "fs/kernel/request.h"
#include "fs/kernel/tree.h"
#include "fs/ops/xattr_private.h"

#define TICKETS_PART 256    /* asked of the store at once */
#define TICKETS_VALUE 65536 /* bytes of a value: XATTR_SIZE_MAX of the kernel */

bool tickets_is_attribute(const char *name)
{
    size_t length = strlen(TICKETS_ATTRIBUTE);
    return strncmp(name, TICKETS_ATTRIBUTE, length) == 0 && (!name[length] || name[length] == ':');
}

/* False: it is no ticket. */
static bool tickets_format(GString *line, struct request *r, const struct backend_entry *entry)
{
    const struct backend_info *info = entry->info;
    struct meta meta;
    char name[NAME_BYTES_MAX * 4 + 1], note[META_NOTE_MAX * 4 + 1];
    if (info->type != BACKEND_LOCK || !meta_decode(info->meta, &meta) || !meta.sequence) {
        return false;
    }
    const struct node *node = tree_find(r->fs->tree, r->node, entry->name);
    const struct hold *hold = node ? hold_find_first(node) : NULL;
    bool held = hold && hold->ticket ? hold->ticket->held : info->holders > 0;
    g_autofree char *since = xattr_format_acquired(r->fs, info), *owner = xattr_format_owner(r->fs, node, info);
    if (owner) {
        owner[strcspn(owner, "\n")] = '\0'; /* the first of a surviving lock's processes */
    }
    g_string_printf(line, "%s\t%s\t%s\t%s%s%s\n", log_escape(name, sizeof name, entry->name), held ? "held" : "waiting",
                    since ? since : "", owner ? owner : "", *meta.note ? "\t" : "",
                    log_escape(note, sizeof note, meta.note));
    return true;
}

static void tickets_fetch(struct request *r, const char *after);

static void tickets_fetch_on(struct request *r)
{
    g_autofree char *after = g_steal_pointer(&r->value);
    tickets_fetch(r, after);
}

static void tickets_listed(void *arg, enum backend_result result, const struct backend_entry *entries, size_t count)
{
    struct request *r = arg;
    GString *text = g_string_new(NULL), *line = g_string_new(NULL);
    if (result != BACKEND_OK) {
        bool gone = result == BACKEND_MISSING || result == BACKEND_NOT_DIRECTORY; /* a lock may be there now */
        request_reply(r, gone ? -ENOENT : -EIO);
        count = 0;
    }
    for (size_t i = 0; i < count; i++) {
        if (tickets_format(line, r, &entries[i])) {
            if (text->len + line->len > TICKETS_VALUE) {
                break;
            }
            g_string_append_len(text, line->str, (gssize)line->len);
        }
    }
    if (result == BACKEND_OK && !text->len && count > 0) {
        r->value = g_strdup(entries[count - 1].name); /* no tickets here: go on later, other requests first */
        request_sleep(r, clock_now() + 1, tickets_fetch_on, request_reply_interrupted);
    } else if (result == BACKEND_OK) {
        xattr_reply(r, text->str, text->len);
    }
    g_string_free(line, TRUE);
    g_string_free(text, TRUE);
}

static void tickets_fetch(struct request *r, const char *after)
{
    char path[TREE_PATH_MAX];
    if (request_path(r, path)) {
        backend_tickets(r->fs->backend, path, after, TICKETS_PART, tickets_listed, r);
    }
}

void tickets_get(struct request *r, const char *name, size_t size)
{
    const char *after = strchr(name, ':');
    r->xattr.size = size;
    tickets_fetch(r, after ? after + 1 : "");
}
