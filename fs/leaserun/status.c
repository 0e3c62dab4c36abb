/* status: see status.h.
 *
 * A lock's attributes have its holders and the number of its waiters, on every mount.  Only
 * the waiter's own mount knows who waits for a name: .leasefs/waiters.  The tickets of a
 * queue are in user.lease.tickets of its directory, on every mount.
 */
#include "fs/leaserun/status.h"

#include <err.h>
#include <errno.h>
#include <limits.h>
#include <linux/limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <sysexits.h>

#include "fs/leaserun/lock.h"
#include "fs/leaserun/report.h"
#include "fs/leaserun/table.h"
#include "fs/leaserun/text.h"

#define STATUS_TEXT_MAX 65536

/* Nothing is an empty text. -errno. */
static int status_text(const char *path, const char *name, char *text, size_t size)
{
    ssize_t length = lgetxattr(path, name, text, size - 1);
    text[length < 0 ? 0 : length] = '\0';
    bool none = length >= 0 || errno == ENOENT || errno == ENODATA || errno == EOPNOTSUPP || errno == EPERM;
    return none ? 0 : -errno;
}

static struct leaserun_process *status_add(struct leaserun_process **list, size_t *count)
{
    struct leaserun_process *larger = realloc(*list, (*count + 1) * sizeof **list);
    if (!larger) {
        return NULL;
    }
    *list = larger;
    larger[*count] = (struct leaserun_process){.seconds = -1};
    return &larger[(*count)++];
}

/* A line of user.lease.owner: host pid uid command. */
static bool status_parse_owner(struct leaserun_process *who, const char *line)
{
    _Static_assert(sizeof who->host == 256 && sizeof who->command == 128, "the widths below");
    int used = 0;
    bool parsed = sscanf(line, "%255s %ld %ld %127[^\n]%n", who->host, &who->pid, &who->uid, who->command, &used) >= 3;
    leaserun_text_unescape(who->host);
    leaserun_text_unescape(who->command);
    return parsed;
}

static int status_add_owners(struct leaserun_process **list, size_t *count, const char *path)
{
    char *text = malloc(STATUS_TEXT_MAX), *rest = text, *line;
    int result = text ? status_text(path, "user.lease.owner", text, STATUS_TEXT_MAX) : -ENOMEM;
    while (result == 0 && rest && (line = strsep(&rest, "\n"))) {
        struct leaserun_process *who = *line ? status_add(list, count) : NULL;
        if (who && status_parse_owner(who, line)) {
            result = status_text(path, "user.lease.acquired", who->since, sizeof who->since);
        }
    }
    free(text);
    return result;
}

static int status_number(const char *path, const char *name, char *digits, size_t size)
{
    int result = status_text(path, name, digits, size);
    digits[strspn(digits, "0123456789.")] = '\0';
    return result;
}

/* --- a lock -------------------------------------------------------------------- */

static void status_add_row(struct leaserun_process *who, const struct leaserun_row *row)
{
    snprintf(who->host, sizeof who->host, "%s", row->host);
    snprintf(who->command, sizeof who->command, "%s", row->command);
    leaserun_text_unescape(who->host);
    leaserun_text_unescape(who->command);
    who->pid = row->pid;
    who->uid = row->uid;
    who->seconds = row->age;
}

/* Those of this mount, by the path within it. */
static void status_add_rows(struct leaserun_process **list, size_t *count, const struct leaserun_table *table,
                            const char *name)
{
    char path[PATH_MAX];
    for (size_t i = 0; i < table->count; i++) {
        const struct leaserun_row *row = &table->rows[i];
        snprintf(path, sizeof path, "%s", row->name);
        leaserun_text_unescape(path);
        struct leaserun_process *who = strcmp(path, name) == 0 ? status_add(list, count) : NULL;
        if (who) {
            status_add_row(who, row);
        }
    }
}

/* What the attributes do not tell: who waits, and who holds a symbolic link. */
static void status_add_tables(struct leaserun_report_lock *report, const struct leaserun_lock *lock)
{
    struct leaserun_table table;
    char name[2 * PATH_MAX];
    const char *inner = strcmp(lock->mount.inner, "/") == 0 ? "" : lock->mount.inner + 1;
    snprintf(name, sizeof name, "%s%s%s", inner, *inner ? "/" : "", strrchr(lock->name, '/') + 1);
    if (!lock->mount.readable) {
        return;
    }
    if (report->held && !report->holder_count && leaserun_table_locks(&table, lock->mount.root) == 0) {
        status_add_rows(&report->holders, &report->holder_count, &table, name);
        leaserun_table_free(&table);
    }
    if (!report->ticket && leaserun_table_waiters(&table, lock->mount.root) == 0) {
        status_add_rows(&report->waiting, &report->waiting_count, &table, name);
        leaserun_table_free(&table);
    }
}

static int status_of_lock(struct leaserun_report_lock *report, const struct leaserun_lock *lock)
{
    struct stat st;
    char state[32], position[32] = "";
    const char *path = lock->name;
    bool there = lstat(path, &st) == 0;
    int result = there || errno == ENOENT ? 0 : -errno;
    result = result < 0 ? result : status_text(path, "user.lease.state", state, sizeof state);
    report->held = there && (strcmp(state, "held") == 0 || S_ISLNK(st.st_mode));
    if (!there || result < 0) {
        return result;
    }
    result = status_text(path, "user.lease.kind", report->kind, sizeof report->kind);
    result = result ? result : status_text(path, "user.lease.mode", report->mode, sizeof report->mode);
    result = result ? result : status_text(path, "user.lease.acquired", report->since, sizeof report->since);
    result = result ? result : status_number(path, "user.lease.token", report->token, sizeof report->token);
    result = result ? result : status_number(path, "user.lease.remaining", report->left, sizeof report->left);
    result = result ? result : status_number(path, "user.lease.ttl", report->ttl, sizeof report->ttl);
    result = result ? result : status_number(path, "user.lease.waiters", report->waiters, sizeof report->waiters);
    result = result ? result : status_number(path, "user.lease.position", position, sizeof position);
    report->ticket = position[0] != '\0';
    if (result == 0 && S_ISLNK(st.st_mode)) {
        snprintf(report->kind, sizeof report->kind, "lease");
    }
    if (result == 0 && report->held) {
        result = status_add_owners(&report->holders, &report->holder_count, path);
    }
    status_add_tables(report, lock);
    return result;
}

/* --- a queue --------------------------------------------------------------------- */

/* A line of user.lease.tickets: name, state, when it was made and its owner, with tabs between them.  `ret_name`: of
 * NAME_MAX + 1 bytes.  False: there is no memory. */
static bool status_add_ticket(struct leaserun_report_lock *report, char *line, char *ret_name)
{
    const char *name = strsep(&line, "\t"), *state = strsep(&line, "\t"), *since = strsep(&line, "\t");
    bool waits = state && strcmp(state, "waiting") == 0;
    struct leaserun_process *who = waits ? status_add(&report->waiting, &report->waiting_count)
                                         : status_add(&report->holders, &report->holder_count);
    if (!who) {
        return false;
    }
    char *unescaped = strdup(name);
    if (unescaped) {
        leaserun_text_unescape(unescaped);
        snprintf(ret_name, NAME_MAX + 1, "%s", unescaped);
        snprintf(who->ticket, sizeof who->ticket, "%s", unescaped);
        snprintf(who->since, sizeof who->since, "%s", since ? since : "");
        status_parse_owner(who, line ? line : "");
    }
    free(unescaped);
    return unescaped;
}

/* The attribute whose value begins behind that ticket.  A name that is too long for it is cut off, and what begins
 * with the same bytes is passed over. */
static void status_name_part(char *ret_attribute, const char *after)
{
    int size = snprintf(ret_attribute, XATTR_NAME_MAX + 1, "user.lease.tickets%s%s", *after ? ":" : "", after);
    if (size > XATTR_NAME_MAX) {
        ret_attribute[XATTR_NAME_MAX - 1] = '\xff';
    }
}

static int status_add_tickets(struct leaserun_report_lock *report, const char *directory)
{
    char attribute[XATTR_NAME_MAX + 1], last[NAME_MAX + 1] = "", *text = malloc(XATTR_SIZE_MAX + 1);
    ssize_t length = text ? 1 : -1;
    while (length > 0) {
        status_name_part(attribute, last);
        length = lgetxattr(directory, attribute, text, XATTR_SIZE_MAX);
        char *rest = text, *line;
        text[length < 0 ? 0 : length] = '\0';
        while (length > 0 && (line = strsep(&rest, "\n")) && *line) {
            length = status_add_ticket(report, line, last) ? length : -1;
        }
    }
    int error = errno;
    free(text);
    return length < 0 ? -error : 0;
}

static int status_of_queue(struct leaserun_report_lock *report, const struct leaserun_lock *lock)
{
    int result = status_add_tickets(report, lock->directory);
    report->held = report->holder_count > 0;
    snprintf(report->kind, sizeof report->kind, "queue");
    snprintf(report->waiters, sizeof report->waiters, "%zu", report->waiting_count);
    return result ? result : status_number(lock->directory, "user.lease.width", report->width, sizeof report->width);
}

int leaserun_status(const struct leaserun_arguments *arguments)
{
    struct leaserun_lock *lock = calloc(1, sizeof *lock);
    int status = lock ? leaserun_lock_find(lock, arguments->locks[0]) : EX_OSERR;
    if (status) {
        free(lock);
        return status;
    }
    bool queue = lock->name[strlen(lock->name) - 1] == '-';
    struct leaserun_report_lock report = {.name = queue ? lock->directory : lock->name, .grace = lock->mount.grace};
    leaserun_mount_find(&lock->mount, lock->directory);
    int result = queue ? status_of_queue(&report, lock) : status_of_lock(&report, lock);
    if (result < 0) {
        errno = -result;
        if (queue && result == -ENODATA) {
            warnx("%s: the leasefs that serves it is older than this leaserun: mount it again", report.name);
        } else {
            warn("%s", report.name);
        }
        status = result == -EACCES ? EX_NOINPUT : EX_UNAVAILABLE;
    } else {
        leaserun_report_print(&report, arguments->json);
        status = fflush(stdout) != 0 ? EX_IOERR : report.held ? 0 : LEASERUN_EXIT_FREE;
    }
    free(report.holders);
    free(report.waiting);
    free(lock);
    return status;
}
