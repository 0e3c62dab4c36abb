/* status: see status.h.
 *
 * A lock's attributes have its holders and the number of its waiters, on every mount.  Only
 * the waiter's own mount knows who waits for a name: .leasefs/waiters.  The tickets of a
 * queue are in user.lease.tickets of its directory, on every mount.
 */
#include "fs/leaserun/status.h"

#include <dirent.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <sysexits.h>
#include <unistd.h>

#include "fs/leaserun/failure.h"
#include "fs/leaserun/table.h"
#include "fs/leaserun/text.h"

#define STATUS_TEXT_MAX 65536

/* Nothing is an empty text. -errno. */
static int status_text(const char *path, const char *name, char *text, size_t size)
{
    ssize_t length = lgetxattr(path, name, text, size - 1);
    text[length < 0 ? 0 : length] = '\0';
    bool none = errno == ENOENT || errno == ENOTDIR || errno == ENODATA || errno == EOPNOTSUPP || errno == EPERM;
    return length >= 0 || none ? 0 : -errno;
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

/* The mount's tables, sorted by name.  Each is read once, when the first lock of a directory needs it.  A table that
 * cannot be read counts as empty. */
struct status_tables {
    struct leaserun_table locks, waiters;
    bool has_locks, has_waiters;
};

static void status_clear_tables(struct status_tables *tables)
{
    leaserun_table_free(&tables->locks);
    leaserun_table_free(&tables->waiters);
}

static int status_compare_rows(const void *left, const void *right)
{
    const struct leaserun_row *a = left, *b = right;
    int names = strcmp(a->name, b->name);
    return names ? names : (a->number > b->number) - (a->number < b->number);
}

static void status_sort_table(struct leaserun_table *table)
{
    if (table->count) {
        qsort(table->rows, table->count, sizeof *table->rows, status_compare_rows);
    }
}

/* Appends the processes of the table's lines with this name, in the order of the table. */
static void status_add_rows(struct leaserun_process **list, size_t *count, const struct leaserun_table *table,
                            const char *name)
{
    size_t low = 0, high = table->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        bool before = strcmp(table->rows[middle].name, name) < 0;
        low = before ? middle + 1 : low;
        high = before ? high : middle;
    }
    for (; low < table->count && strcmp(table->rows[low].name, name) == 0; low++) {
        struct leaserun_process *who = status_add(list, count);
        if (who) {
            status_add_row(who, &table->rows[low]);
        }
    }
}

/* The lock's path within the mount, escaped like the names in the mount's tables; the caller frees it.  NULL: no
 * memory. */
static char *status_name_inside(const struct leaserun_lock *lock)
{
    char *name = NULL;
    size_t size;
    FILE *file = open_memstream(&name, &size);
    const char *inner = strcmp(lock->mount.inner, "/") == 0 ? "" : lock->mount.inner + 1;
    if (!file) {
        return NULL;
    }
    leaserun_text_put(file, inner);
    fputs(*inner ? "/" : "", file);
    leaserun_text_put(file, strrchr(lock->name, '/') + 1);
    fclose(file);
    return name;
}

/* Reads from the tables what the attributes do not have: the waiters, and the holder of a symbolic link. */
static void status_add_tables(struct leaserun_report_lock *report, const struct leaserun_lock *lock,
                              struct status_tables *tables)
{
    bool held = report->held && !report->holder_count;
    bool awaited = !report->ticket && *report->waiters && strcmp(report->waiters, "0") != 0;
    char *name = lock->mount.readable && (held || awaited) ? status_name_inside(lock) : NULL;
    if (name && held) {
        if (!tables->has_locks && leaserun_table_locks(&tables->locks, lock->mount.root) == 0) {
            status_sort_table(&tables->locks);
        }
        tables->has_locks = true;
        status_add_rows(&report->holders, &report->holder_count, &tables->locks, name);
    }
    if (name && awaited) {
        if (!tables->has_waiters && leaserun_table_waiters(&tables->waiters, lock->mount.root) == 0) {
            status_sort_table(&tables->waiters);
        }
        tables->has_waiters = true;
        status_add_rows(&report->waiting, &report->waiting_count, &tables->waiters, name);
    }
    free(name);
}

static int status_of_lock(struct leaserun_report_lock *report, const struct leaserun_lock *lock,
                          struct status_tables *tables)
{
    struct stat st;
    char state[32], position[32] = "";
    const char *path = lock->name;
    bool there = lstat(path, &st) == 0;
    int result = there || errno == ENOENT || errno == ENOTDIR ? 0 : -errno;
    result = result < 0 ? result : status_text(path, "user.lease.state", state, sizeof state);
    report->broken = there && strcmp(state, "broken") == 0;
    report->held = there && (report->broken || strcmp(state, "held") == 0 || S_ISLNK(st.st_mode));
    if (!there || result < 0) {
        return result;
    }
    result = status_text(path, "user.lease.kind", report->kind, sizeof report->kind);
    result = result ? result : status_text(path, "user.lease.mode", report->mode, sizeof report->mode);
    result = result ? result : status_text(path, "user.lease.acquired", report->since, sizeof report->since);
    result = result ? result : status_text(path, "user.lease.note", report->note, sizeof report->note);
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
    status_add_tables(report, lock, tables);
    return result;
}

/* --- a queue --------------------------------------------------------------------- */

/* Adds the ticket of a line of user.lease.tickets: name, state, time at which the ticket was made, owner and, if it has
 * one, its note, with tabs between them.  `ret_name` has NAME_MAX + 1 bytes.  False: no memory. */
static bool status_add_ticket(struct leaserun_report_lock *report, char *line, char *ret_name)
{
    const char *name = strsep(&line, "\t"), *state = strsep(&line, "\t"), *since = strsep(&line, "\t");
    const char *owner = strsep(&line, "\t");
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
        if (line) {
            leaserun_text_unescape(line);
        }
        snprintf(who->note, sizeof who->note, "%s", line ? line : "");
        status_parse_owner(who, owner ? owner : "");
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
    char attribute[XATTR_NAME_MAX + 1], last[NAME_MAX + 1] = "", before[NAME_MAX + 1];
    char *text = malloc(XATTR_SIZE_MAX + 1);
    ssize_t length = text ? 1 : -1;
    while (length > 0) {
        status_name_part(attribute, last);
        memcpy(before, last, sizeof before);
        length = lgetxattr(directory, attribute, text, XATTR_SIZE_MAX);
        char *rest = text, *line;
        text[length < 0 ? 0 : length] = '\0';
        while (length > 0 && (line = strsep(&rest, "\n")) && *line) {
            length = status_add_ticket(report, line, last) ? length : -1;
        }
        if (length > 0 && strcmp(last, before) <= 0) {
            break; /* the last part had no later ticket */
        }
    }
    int error = errno;
    free(text);
    return length < 0 ? -error : 0;
}

static unsigned long status_ticket_number(const struct leaserun_process *who)
{
    const char *dash = strrchr(who->ticket, '-');
    return dash ? strtoul(dash + 1, NULL, 10) : 0;
}

static int status_compare_tickets(const void *left, const void *right)
{
    unsigned long a = status_ticket_number(left), b = status_ticket_number(right);
    return (a > b) - (a < b);
}

static void status_sort_tickets(struct leaserun_process *list, size_t count)
{
    if (count) {
        qsort(list, count, sizeof *list, status_compare_tickets);
    }
}

static int status_of_queue(struct leaserun_report_lock *report, const struct leaserun_lock *lock)
{
    int result = status_add_tickets(report, lock->directory);
    status_sort_tickets(report->holders, report->holder_count); /* the attribute sorts them by name */
    status_sort_tickets(report->waiting, report->waiting_count);
    report->held = report->holder_count > 0;
    snprintf(report->kind, sizeof report->kind, "queue");
    snprintf(report->waiters, sizeof report->waiters, "%zu", report->waiting_count);
    return result ? result : status_number(lock->directory, "user.lease.width", report->width, sizeof report->width);
}

static int status_read(const struct leaserun_lock *lock, struct leaserun_report_lock *report,
                       struct status_tables *tables)
{
    bool queue = lock->name[strlen(lock->name) - 1] == '-';
    *report = (struct leaserun_report_lock){.name = queue ? lock->directory : lock->name, .grace = lock->mount.grace};
    return queue ? status_of_queue(report, lock) : status_of_lock(report, lock, tables);
}

int leaserun_status_read(const struct leaserun_lock *lock, struct leaserun_report_lock *report)
{
    struct status_tables tables = {0};
    int result = status_read(lock, report, &tables);
    status_clear_tables(&tables);
    return result;
}

void leaserun_status_clear(struct leaserun_report_lock *report)
{
    free(report->holders);
    free(report->waiting);
}

/* --- a directory --------------------------------------------------------------------- */

/* The locks in a directory and below, and the queues there that have tickets. */
struct status_list {
    struct leaserun_report_lock *reports; /* each with a name of its own */
    size_t count;
    struct status_tables tables;
};

static int status_compare_names(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

/* The names of a queue's tickets, sorted; the caller frees the array.  NULL: no memory. */
static const char **status_tickets(const struct leaserun_report_lock *queue, size_t *ret_count)
{
    size_t count = 0;
    const char **names = calloc(queue->holder_count + queue->waiting_count + 1, sizeof *names);
    for (size_t i = 0; names && i < queue->holder_count; i++) {
        names[count++] = queue->holders[i].ticket;
    }
    for (size_t i = 0; names && i < queue->waiting_count; i++) {
        names[count++] = queue->waiting[i].ticket;
    }
    if (names) {
        qsort(names, count, sizeof *names, status_compare_names);
    }
    *ret_count = count;
    return names;
}

static int status_list_add(struct status_list *list, const struct leaserun_report_lock *report)
{
    struct leaserun_report_lock *larger = realloc(list->reports, (list->count + 1) * sizeof *larger);
    char *name = strdup(report->name);
    list->reports = larger ? larger : list->reports;
    if (!larger || !name) {
        free(name);
        return -ENOMEM;
    }
    larger[list->count] = *report;
    larger[list->count++].name = name;
    return 0;
}

static void status_list_clear(struct status_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free((char *)list->reports[i].name);
        leaserun_status_clear(&list->reports[i]);
    }
    free(list->reports);
    status_clear_tables(&list->tables);
}

/* Appends "/NAME".  False: it is too long. */
static bool status_append(char *path, const char *name)
{
    size_t length = strlen(path);
    bool top = length == 1; /* "/" */
    int size = snprintf(path + length, PATH_MAX - length, "%s%s", top ? "" : "/", name);
    return size > 0 && (size_t)size < PATH_MAX - length;
}

static int status_list_directory(struct status_list *list, struct leaserun_lock *lock,
                                 const struct leaserun_report_lock *queue);

/* One that is gone by now is left out, and of one that may not be read there is its name. */
static int status_list_lock(struct status_list *list, const struct leaserun_lock *lock)
{
    struct leaserun_report_lock report;
    int result = status_read(lock, &report, &list->tables);
    result = result == -EACCES ? 0 : result;
    result = result == 0 && report.held ? status_list_add(list, &report) : result;
    if (result < 0 || !report.held) {
        leaserun_status_clear(&report);
    }
    return result;
}

/* Does this result of opening a listed directory mean that the directory can be skipped?  It may be gone by now, a lock
 * or a link may have its name, or the user may not read it. */
static bool status_is_gone(int result)
{
    return result == -EACCES || result == -ENOENT || result == -ENOTDIR || result == -ENODATA;
}

static int status_list_queue(struct status_list *list, struct leaserun_lock *lock)
{
    struct leaserun_report_lock report;
    int result = status_read(lock, &report, &list->tables);
    bool used = result == 0 && report.holder_count + report.waiting_count > 0;
    result = status_is_gone(result) ? 0 : result;
    result = result == 0 ? status_list_directory(list, lock, &report) : result;
    result = result == 0 && used ? status_list_add(list, &report) : result;
    if (result < 0 || !used) {
        leaserun_status_clear(&report);
    }
    return result;
}

/* `lock` names the directory, also when this returns; meanwhile it names the entry. */
static int status_list_entry(struct status_list *list, struct leaserun_lock *lock, const struct dirent *entry)
{
    size_t directory = strlen(lock->directory), inner = strlen(lock->mount.inner);
    int result = 0;
    if (entry->d_type == DT_DIR) {
        if (status_append(lock->directory, entry->d_name) && status_append(lock->mount.inner, entry->d_name)) {
            snprintf(lock->name, sizeof lock->name, "-"); /* its queue */
            result = status_list_queue(list, lock);
        }
    } else {
        snprintf(lock->name, sizeof lock->name, "%s", lock->directory);
        result = status_append(lock->name, entry->d_name) ? status_list_lock(list, lock) : 0;
    }
    lock->directory[directory] = '\0';
    lock->mount.inner[inner] = '\0';
    return result;
}

/* Appends the directory's entries to an array of `*count` entries; the caller frees each entry and the array.  0 or
 * -errno. */
static int status_read_directory(const char *path, struct dirent ***entries, size_t *count)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); /* it may be a link by now */
    DIR *directory = fd >= 0 ? fdopendir(fd) : NULL;
    struct dirent *entry;
    int result = directory ? 0 : -errno;
    if (fd >= 0 && !directory) {
        close(fd);
    }
    while (result == 0 && (errno = 0, entry = readdir(directory))) {
        struct dirent **larger = realloc(*entries, (*count + 1) * sizeof *larger);
        *entries = larger ? larger : *entries;
        struct dirent *copy = larger ? malloc(entry->d_reclen) : NULL;
        if (copy) {
            (*entries)[(*count)++] = memcpy(copy, entry, entry->d_reclen);
        }
        result = copy ? 0 : -ENOMEM;
    }
    result = result == 0 ? -errno : result;
    if (directory) {
        closedir(directory);
    }
    return status_is_gone(result) ? 0 : result;
}

/* Reads all names and closes the directory before it goes into a subdirectory: a user may nest more directories than a
 * process may have descriptors. */
static int status_list_directory(struct status_list *list, struct leaserun_lock *lock,
                                 const struct leaserun_report_lock *queue)
{
    size_t tickets, count = 0;
    struct dirent **entries = NULL;
    const char **names = status_tickets(queue, &tickets);
    int result = names ? status_read_directory(lock->directory, &entries, &count) : -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        const char *name = entries[i]->d_name;
        bool ticket = bsearch(&name, names, tickets, sizeof *names, status_compare_names);
        if (result == 0 && strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && !ticket) {
            result = status_list_entry(list, lock, entries[i]);
        }
        free(entries[i]);
    }
    free(entries);
    free(names);
    return result;
}

static int status_failed(const struct leaserun_report_lock *report, int result)
{
    if (result == -ENODATA) {
        warnx("%s: the leasefs that serves it is older than this leaserun: mount it again", report->name);
        return EX_UNAVAILABLE;
    }
    return leaserun_failure(report->name, -result);
}

int leaserun_status(const struct leaserun_arguments *arguments)
{
    struct leaserun_report_lock report;
    struct status_list list = {0};
    struct leaserun_lock *lock = calloc(1, sizeof *lock);
    int status = lock ? leaserun_lock_find(lock, arguments->locks[0]) : EX_OSERR;
    if (status) {
        free(lock);
        return status;
    }
    bool directory = lock->name[strlen(lock->name) - 1] == '-';
    leaserun_mount_find(&lock->mount, lock->directory);
    int result = status_read(lock, &report, &list.tables);
    result = result == 0 && directory ? status_list_directory(&list, lock, &report) : result;
    if (result < 0) {
        status = status_failed(&report, result);
    } else {
        leaserun_report_print(&report, directory, list.reports, list.count, arguments->json);
        status = fflush(stdout) != 0 ? EX_IOERR : report.held || list.count ? 0 : LEASERUN_EXIT_FREE;
    }
    status_list_clear(&list);
    leaserun_status_clear(&report);
    free(lock);
    return status;
}
