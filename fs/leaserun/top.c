/* top: see top.h.
 *
 * A terminal is only asked for what every one can do: the cursor home, and clear to
 * the end of the line and of the screen.
 */
#include "fs/leaserun/top.h"

#include <err.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "fs/leaserun/failure.h"
#include "fs/leaserun/mount.h"
#include "fs/leaserun/table.h"
#include "fs/leaserun/text.h"

#define TOP_INTERVAL 1000 /* milliseconds */
#define TOP_WIDTH 80      /* of a terminal that does not tell */
#define TOP_HEIGHT 24
#define TOP_LINE_MAX 1024

/* A lock and whom it keeps waiting. */
struct top_entry {
    const struct leaserun_row *row;
    unsigned waiters;
    double longest; /* has waited, seconds */
};

struct top {
    const char *root;
    struct leaserun_table locks, waiters;
    struct top_entry *entries; /* of all locks */
    int rows, columns;         /* that fit; 0: all */
    bool json;
};

/* --- what blocks whom ----------------------------------------------------------- */

/* What a ticket waits for is its directory; what another waits for is the name. */
static size_t top_queue_length(const struct leaserun_row *row)
{
    const char *slash = strcmp(row->kind, "ticket") == 0 ? strrchr(row->name, '/') : NULL;
    return slash ? (size_t)(slash - row->name) : strcmp(row->kind, "ticket") == 0 ? 0 : strlen(row->name);
}

static int top_compare_queues(const void *first, const void *second)
{
    const struct leaserun_row *a = first, *b = second;
    bool ticket = strcmp(a->kind, "ticket") == 0, other = strcmp(b->kind, "ticket") == 0;
    size_t left = top_queue_length(a), right = top_queue_length(b);
    int order = ticket != other ? (ticket ? 1 : -1) : memcmp(a->name, b->name, left < right ? left : right);
    return order || left == right ? order : left < right ? -1 : 1;
}

static int top_compare_entries(const void *left, const void *right)
{
    const struct top_entry *a = left, *b = right;
    int by_name = strcmp(a->row->name, b->row->name);
    return a->waiters != b->waiters   ? (a->waiters < b->waiters ? 1 : -1)
           : a->longest != b->longest ? (a->longest < b->longest ? 1 : -1)
           : by_name                  ? by_name
                                      : (a->row->pid > b->row->pid) - (a->row->pid < b->row->pid);
}

static void top_count(const struct top *top, struct top_entry *entry)
{
    const struct leaserun_row *rows = top->waiters.rows;
    size_t low = 0, high = top->waiters.count; /* the first of its queue is in [low, high] */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (top_compare_queues(&rows[middle], entry->row) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    for (; low < top->waiters.count && top_compare_queues(&rows[low], entry->row) == 0; low++) {
        entry->waiters++;
        entry->longest = rows[low].age > entry->longest ? rows[low].age : entry->longest;
    }
}

static int top_read(struct top *top)
{
    int result = leaserun_table_locks(&top->locks, top->root);
    if (result < 0) {
        return result;
    }
    result = leaserun_table_waiters(&top->waiters, top->root);
    top->entries = result < 0 ? NULL : calloc(top->locks.count + 1, sizeof *top->entries);
    if (!top->entries) {
        leaserun_table_free(&top->locks);
        leaserun_table_free(&top->waiters);
        return result < 0 ? result : -ENOMEM;
    }
    if (top->waiters.count) {
        qsort(top->waiters.rows, top->waiters.count, sizeof *top->waiters.rows, top_compare_queues);
    }
    for (size_t i = 0; i < top->locks.count; i++) {
        top->entries[i].row = &top->locks.rows[i];
        top_count(top, &top->entries[i]);
    }
    qsort(top->entries, top->locks.count, sizeof *top->entries, top_compare_entries);
    return 0;
}

static void top_forget(struct top *top)
{
    leaserun_table_free(&top->locks);
    leaserun_table_free(&top->waiters);
    free(top->entries);
    top->entries = NULL;
}

/* --- showing ----------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static void top_line(const struct top *top, const char *format, ...)
{
    char line[TOP_LINE_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (top->columns) {
        printf("%.*s\033[K\r\n", top->columns - 1, line);
    } else {
        puts(line);
    }
}

static void top_show(const struct top *top)
{
    char age[32], left[32], longest[32];
    size_t count = top->locks.count, fit = top->rows > 4 ? (size_t)top->rows - 4 : 1;
    time_t now = time(NULL);
    struct tm local;
    char clock[16] = "";
    if (localtime_r(&now, &local)) {
        strftime(clock, sizeof clock, "%H:%M:%S", &local);
    }
    top_line(top, "%s  %s: %zu held, %zu waiting%s", clock, top->root, count, top->waiters.count,
             top->rows ? "   (q quits)" : "");
    top_line(top, "%7s %7s %7s %7s  %-6s %-9s %s", "WAITERS", "LONGEST", "AGE", "LEFT", "KIND", "MODE", "NAME  HOLDER");
    for (size_t i = 0; i < count && (!top->rows || i < fit); i++) {
        const struct top_entry *entry = &top->entries[i];
        const struct leaserun_row *row = entry->row;
        bool noted = strcmp(row->note, "-") != 0;
        top_line(top, "%7u %7s %7s %7s  %-6s %-9s %s  %s:%ld %s%s%s", entry->waiters,
                 leaserun_text_duration(entry->waiters ? entry->longest : -1, longest, sizeof longest),
                 leaserun_text_duration(row->age, age, sizeof age),
                 leaserun_text_duration(row->remaining, left, sizeof left), row->kind, row->mode, row->name, row->host,
                 row->pid, row->command, noted ? ": " : "", noted ? row->note : "");
    }
    if (top->rows && count > fit) {
        top_line(top, "and %zu more", count - fit);
    }
}

static void top_json_text(const char *key, const char *escaped)
{
    char *text = strdup(escaped);
    if (text) {
        leaserun_text_unescape(text);
        printf("\"%s\":", key);
        leaserun_text_put_json(stdout, text);
        putchar(',');
    }
    free(text);
}

/* Negative: not known. */
static void top_json_number(const char *key, double number)
{
    if (number < 0) {
        printf(",\"%s\":null", key);
    } else {
        printf(",\"%s\":%.3f", key, number);
    }
}

static void top_show_json(const struct top *top)
{
    fputs("{\"mount\":", stdout);
    leaserun_text_put_json(stdout, top->root);
    printf(",\"waiting\":%zu,\"locks\":[", top->waiters.count);
    for (size_t i = 0; i < top->locks.count; i++) {
        const struct top_entry *entry = &top->entries[i];
        const struct leaserun_row *row = entry->row;
        fputs(i ? ",{" : "{", stdout);
        top_json_text("name", row->name);
        top_json_text("kind", row->kind);
        top_json_text("mode", row->mode);
        top_json_text("host", row->host);
        top_json_text("command", row->command);
        if (strcmp(row->note, "-") != 0) {
            top_json_text("note", row->note);
        } else {
            fputs("\"note\":null,", stdout);
        }
        printf("\"pid\":%ld,\"uid\":%ld,\"age\":%.3f,\"waiters\":%u", row->pid, row->uid, row->age, entry->waiters);
        top_json_number("longest", entry->waiters ? entry->longest : -1);
        top_json_number("left", row->remaining);
        putchar('}');
    }
    puts("]}");
}

static int top_once(struct top *top)
{
    int result = top_read(top);
    if (result < 0) {
        return leaserun_failure(top->root, -result);
    }
    if (top->json) {
        top_show_json(top);
    } else {
        top_show(top);
    }
    top_forget(top);
    return fflush(stdout) == 0 ? 0 : EX_IOERR;
}

/* --- live ---------------------------------------------------------------------------- */

static void top_measure(struct top *top)
{
    struct winsize size;
    bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row && size.ws_col;
    top->rows = known ? size.ws_row : TOP_HEIGHT;
    top->columns = known ? size.ws_col : TOP_WIDTH;
}

/* A child refreshes, because it hangs while the daemon does.  Its exit status is an errno. */
static pid_t top_refresh(struct top *top)
{
    pid_t child = fork();
    if (child != 0) {
        return child;
    }
    int result = top_read(top);
    if (result == 0) {
        top_measure(top);
        fputs("\033[H", stdout);
        top_show(top);
        fputs("\033[J", stdout);
        fflush(stdout);
    }
    _exit(-result);
}

/* Until *child has ended and the next refresh is due: the signal that ends all, or -1 when q was typed; 0: go on.
 * Sets the child's exit status, and *child to 0 when it has ended. */
static int top_await(int signals, pid_t *child, int *ret_status)
{
    struct pollfd fds[2] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = signals, .events = POLLIN}};
    struct signalfd_siginfo info;
    char key;
    bool due = false, ended = false;
    while (!due || !ended) {
        due = poll(fds, 2, due ? -1 : TOP_INTERVAL) == 0 || due;
        if (fds[1].revents && read(signals, &info, sizeof info) == (ssize_t)sizeof info) {
            if (info.ssi_signo != SIGWINCH && info.ssi_signo != SIGCHLD) {
                return (int)info.ssi_signo;
            }
            due = due || info.ssi_signo == SIGWINCH;
        }
        if (fds[0].revents) {
            ssize_t size = read(STDIN_FILENO, &key, 1);
            if (size <= 0 || key == 'q' || key == 'Q') {
                return -1;
            }
            due = true;
        }
        if (!ended && waitpid(*child, ret_status, WNOHANG) == *child) {
            ended = true;
            *child = 0;
        }
    }
    return 0;
}

static int top_live(struct top *top, const struct termios *modes)
{
    static const int ending[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGWINCH, SIGCHLD};
    struct termios raw = *modes;
    sigset_t set;
    int end = 0, result = 0;
    pid_t child = 0;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof ending / sizeof ending[0]; i++) {
        sigaddset(&set, ending[i]);
    }
    sigprocmask(SIG_BLOCK, &set, NULL);
    int signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
    fputs("\033[H\033[J", stdout);
    while (end == 0 && result == 0) {
        int status = 0;
        child = top_refresh(top);
        result = child < 0 ? -errno : 0;
        end = result == 0 ? top_await(signals, &child, &status) : 0;
        result = WIFEXITED(status) ? -WEXITSTATUS(status) : result;
        if (end == SIGTSTP) { /* as the terminal was, until it goes on */
            tcsetattr(STDIN_FILENO, TCSADRAIN, modes);
            raise(SIGSTOP);
            tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
            end = 0;
        }
    }
    tcsetattr(STDIN_FILENO, TCSADRAIN, modes);
    if (child > 0) {
        kill(child, SIGKILL); /* init reaps it: it may hang as the daemon does */
    }
    if (end > 0) {
        raise(end);
        sigprocmask(SIG_UNBLOCK, &set, NULL);
    }
    return result < 0 ? leaserun_failure(top->root, -result) : 0;
}

int leaserun_top(const struct leaserun_arguments *arguments)
{
    char directory[PATH_MAX];
    struct termios modes;
    const char *path = arguments->count ? arguments->locks[0] : ".", *term = getenv("TERM");
    if (!realpath(path, directory)) {
        warn("%s", path);
        return EX_NOINPUT;
    }
    struct leaserun_mount *mount = malloc(sizeof *mount);
    int result = mount ? leaserun_mount_find(mount, directory) : -ENOMEM;
    if (result < 0 || !mount->readable) {
        free(mount);
        warnx("%s is not in a leasefs whose .leasefs can be seen: name a mount point", directory);
        return EX_NOINPUT;
    }
    struct top top = {.root = mount->root, .json = arguments->json};
    bool live =
        !top.json && isatty(STDOUT_FILENO) && tcgetattr(STDIN_FILENO, &modes) == 0 && term && strcmp(term, "dumb") != 0;
    int status = live ? top_live(&top, &modes) : top_once(&top);
    free(mount);
    return status;
}
