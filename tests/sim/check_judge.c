/* check_judge: tests the simulator's judge.  Its verdict on each history of judge_histories.txt must be the one in the
 * file.  It must accept the answers of a correct service, and find nearly every single wrong answer of a faulty one. */
#include "tests/sim/judge.h"

#include "tests/support/check_main.h"

#include <errno.h>
#include <glib.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define TTL (10 * JUDGE_SECOND)
#define MARGIN JUDGE_SECOND

enum { INIT = 1, SHELL, CHILD, OTHER, STRANGER, REMOTE, PROCESSES, PROCESSES_MAX = 32 };

/* The answer to a call, or none yet; or a file. */
struct named {
    uint64_t call, handle;
    enum judge_operation operation;
};

struct world {
    struct judge *judge;
    int64_t now;
    uint64_t id, handle;
    uint32_t mount[PROCESSES_MAX];
    GHashTable *named; /* of struct named */
};

static const struct {
    const char *name;
    struct judge_options options;
} stores[] = {
    {"server", {.ttl = TTL, .settle = 50 * JUDGE_MS, .prompt = 20 * JUDGE_MS, .margin = MARGIN, .remote = true}},
    {"disk", {.ttl = TTL, .settle = 50 * JUDGE_MS, .margin = MARGIN, .keeps = true, .recovers = true}},
    {"recovers", {.ttl = TTL, .settle = 50 * JUDGE_MS, .margin = MARGIN, .remote = true, .recovers = true}},
    {"moves", {.ttl = TTL, .settle = 50 * JUDGE_MS, .margin = MARGIN, .remote = true, .moves = true}},
};

static struct world world_new(const char *store)
{
    struct world w = {.now = 100 * JUDGE_SECOND,
                      .mount[REMOTE] = 1,
                      .named = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free)};
    for (size_t i = 0; i < G_N_ELEMENTS(stores); i++) {
        if (strcmp(stores[i].name, store) == 0) {
            w.judge = judge_new(&stores[i].options);
        }
    }
    ck_assert_msg(w.judge != NULL, "no such store: %s", store);
    judge_fork(w.judge, w.now, INIT, 0, 1, 0, 1);
    judge_fork(w.judge, w.now, SHELL, INIT, 100, 1000, 100);
    for (uint32_t i = CHILD; i < PROCESSES; i++) {
        bool stranger = i == STRANGER;
        judge_fork(w.judge, w.now, i, stranger ? INIT : SHELL, (pid_t)(100 + i), stranger ? 1001 : 1000, 100);
    }
    return w;
}

static void world_free(struct world *w)
{
    judge_free(w->judge);
    g_hash_table_unref(w->named);
}

static void passes(struct world *w, int64_t time)
{
    w->now += time;
}

static uint64_t begin(struct world *w, struct judge_call call)
{
    w->now += JUDGE_MS;
    call.id = ++w->id;
    call.when = w->now;
    call.mount = w->mount[call.process];
    if (call.operation == JUDGE_FLOCK || call.operation == JUDGE_FUNLOCK) {
        call.end = JUDGE_BYTES_MAX;
    }
    judge_call(w->judge, &call);
    return call.id;
}

static void end(struct world *w, uint64_t id, int error)
{
    w->now += JUDGE_MS;
    judge_answer(w->judge,
                 &(struct judge_answer){.id = id, .when = w->now, .error = error, .stat = {.uid = 1000, .nlink = 1}});
}

static void does(struct world *w, struct judge_call call, int error)
{
    end(w, begin(w, call), error);
}

#define ON(process_, name_, operation_, ...)                                                                           \
    ((struct judge_call){.process = process_, .operation = JUDGE_##operation_, .name = name_, ##__VA_ARGS__})
#define BY(process_, handle_, operation_, ...)                                                                         \
    ((struct judge_call){.process = process_, .operation = JUDGE_##operation_, .handle = handle_, ##__VA_ARGS__})

static uint64_t opens(struct world *w, uint32_t process, const char *name)
{
    uint64_t id = begin(w, ON(process, name, OPEN, .flags = JUDGE_CREATE));
    w->now += JUDGE_MS;
    judge_answer(w->judge, &(struct judge_answer){.id = id, .when = w->now, .handle = ++w->handle});
    return w->handle;
}

/* --- steps of written histories ------------------------------------------------------------ */

static const struct {
    const char *name;
    enum judge_operation operation;
    unsigned flags;
} verbs[] = {
    {"excl", JUDGE_OPEN, JUDGE_CREATE | JUDGE_EXCL | JUDGE_WRITES},
    {"create", JUDGE_OPEN, JUDGE_CREATE | JUDGE_WRITES},
    {"write-open", JUDGE_OPEN, JUDGE_WRITES},
    {"open", JUDGE_OPEN, JUDGE_CREATE},
    {"close", JUDGE_CLOSE, 0},
    {"symlink", JUDGE_SYMLINK, 0},
    {"rename", JUDGE_RENAME, 0},
    {"unlink", JUDGE_UNLINK, 0},
    {"mkdir", JUDGE_MKDIR, 0},
    {"rmdir", JUDGE_RMDIR, 0},
    {"read", JUDGE_READ, 0},
    {"write", JUDGE_WRITE, 0},
    {"truncate", JUDGE_TRUNCATE, 0},
    {"fsync", JUDGE_FSYNC, 0},
    {"times", JUDGE_TIMES, 0},
    {"chmod", JUDGE_CHMOD, 0},
    {"stat", JUDGE_STAT, 0},
    {"list", JUDGE_LIST, 0},
    {"get", JUDGE_GETXATTR, 0},
    {"set", JUDGE_SETXATTR, 0},
    {"flock", JUDGE_FLOCK, 0},
    {"unlock", JUDGE_FUNLOCK, 0},
    {"setlk", JUDGE_SETLK, 0},
    {"unlck", JUDGE_UNLCK, 0},
    {"getlk", JUDGE_GETLK, 0},
};

static int error_of(const char *word)
{
    static const struct {
        const char *name;
        int error;
    } errors[] = {{"ok", 0},
                  {"unknown", -1},
                  {"EAGAIN", EAGAIN},
                  {"EBUSY", EBUSY},
                  {"ECONNABORTED", ECONNABORTED},
                  {"EDEADLK", EDEADLK},
                  {"EDQUOT", EDQUOT},
                  {"EEXIST", EEXIST},
                  {"EINTR", EINTR},
                  {"EIO", EIO},
                  {"ENOENT", ENOENT},
                  {"ENOLCK", ENOLCK},
                  {"EPERM", EPERM},
                  {"ESTALE", ESTALE}};
    for (size_t i = 0; i < G_N_ELEMENTS(errors); i++) {
        if (strcmp(errors[i].name, word) == 0) {
            return errors[i].error;
        }
    }
    return INT_MAX;
}

static uint32_t process_of(const char *word)
{
    static const char *const names[] = {"0", "init", "shell", "child", "other", "stranger", "remote"};
    for (uint32_t i = 0; i < G_N_ELEMENTS(names); i++) {
        if (strcmp(names[i], word) == 0) {
            return i;
        }
    }
    uint64_t number = g_ascii_strtoull(word, NULL, 10);
    ck_assert_msg(number > REMOTE && number < PROCESSES_MAX, "no such process: %s", word);
    return (uint32_t)number;
}

/* The time of a text such as ttl+margin-3s, 5ttl or ttl/3. */
static int64_t time_of(const char *text)
{
    static const struct {
        const char *unit;
        int64_t time;
    } units[] = {{"ms", JUDGE_MS}, {"s", JUDGE_SECOND}, {"ttl", TTL}, {"margin", MARGIN}};
    int64_t sum = 0;
    for (const char *at = text; *at;) {
        int64_t sign = *at == '-' ? -1 : 1, time = 0;
        char *after;
        at += *at == '-' || *at == '+';
        int64_t count = g_ascii_strtoll(at, &after, 10);
        count = after == at ? 1 : count;
        for (size_t i = 0; i < G_N_ELEMENTS(units) && !time; i++) {
            time = g_str_has_prefix(after, units[i].unit) ? units[i].time * count : 0;
            at = time ? after + strlen(units[i].unit) : at;
        }
        ck_assert_msg(time != 0, "no such time: %s", text);
        if (*at == '/') {
            time /= g_ascii_strtoll(at + 1, &after, 10);
            at = after;
        }
        sum += sign * time;
    }
    return sum;
}

/* The range of bytes of a text such as 4-5, or 4- (to the end). */
static void range_of(const char *text, int64_t *ret_start, int64_t *ret_end)
{
    char *dash;
    *ret_start = g_ascii_strtoll(text, &dash, 10);
    ck_assert_msg(*dash == '-', "no such range: %s", text);
    *ret_end = dash[1] ? g_ascii_strtoll(dash + 1, NULL, 10) : JUDGE_BYTES_MAX;
}

static void name_it(struct world *w, const char *name, struct named named)
{
    g_hash_table_replace(w->named, g_strdup(name), g_memdup2(&named, sizeof named));
}

static const struct named *find(const struct world *w, const char *name)
{
    const struct named *named = g_hash_table_lookup(w->named, name);
    ck_assert_msg(named != NULL, "no such call or file: %s", name);
    return named;
}

static void argument(struct judge_call *call, char *word, char **ret_text)
{
    char *equals = strchr(word, '=');
    switch (call->operation) {
    case JUDGE_OPEN:
    case JUDGE_CHMOD:
        call->mode = (mode_t)g_ascii_strtoull(word, NULL, 8);
        break;
    case JUDGE_RENAME:
        call->target = word;
        break;
    case JUDGE_SETXATTR:
        ck_assert_msg(equals != NULL, "no value: %s", word);
        *equals = '\0';
        call->value = equals + 1;
        call->size = strlen(equals + 1);
        call->target = *ret_text = g_strconcat("user.lease.", word, NULL);
        break;
    case JUDGE_GETXATTR:
        call->target = *ret_text = g_strconcat("user.lease.", word, NULL);
        break;
    case JUDGE_WRITE:
    case JUDGE_SYMLINK:
        call->value = word;
        call->size = strlen(word);
        break;
    default:
        if (g_ascii_isdigit(*word)) {
            range_of(word, &call->start, &call->end);
        } else {
            unsigned flag = strcmp(word, "shared") == 0 ? JUDGE_SHARE
                            : strcmp(word, "try") == 0  ? JUDGE_TRY
                                                        : JUDGE_OFD;
            ck_assert_msg(flag != JUDGE_OFD || strcmp(word, "ofd") == 0, "no such argument: %s", word);
            call->flags |= flag;
        }
    }
}

/* Does the system call of the words PROCESS CALL FILE ARGUMENT…, which end at an arrow or at the end of the step. */
static struct named calls(struct world *w, char **words)
{
    struct judge_call call = {.process = process_of(words[0]), .operation = JUDGE_OPERATIONS};
    char *text = NULL;
    for (size_t i = 0; i < G_N_ELEMENTS(verbs); i++) {
        if (strcmp(verbs[i].name, words[1]) == 0) {
            call.operation = verbs[i].operation;
            call.flags = verbs[i].flags;
        }
    }
    ck_assert_msg(call.operation != JUDGE_OPERATIONS && words[2], "no such call: %s", words[1]);
    bool locks = call.operation == JUDGE_FLOCK || call.operation == JUDGE_SETLK || call.operation == JUDGE_GETLK;
    const struct named *file = g_hash_table_lookup(w->named, words[2]);
    if (file) {
        call.handle = file->handle;
    } else if (locks) {
        call.handle = opens(w, call.process, words[2]);
    } else {
        call.name = strcmp(words[2], "/") == 0 ? "" : words[2];
    }
    call.end = call.operation == JUDGE_GETLK ? JUDGE_BYTES_MAX : 0;
    for (char **word = words + 3; *word && strcmp(*word, "->") != 0; word++) {
        argument(&call, *word, &text);
    }
    struct named named = {.call = begin(w, call), .handle = call.handle, .operation = call.operation};
    g_free(text);
    return named;
}

/* Gives the judge the answer to the call: the words after the arrow; there may be none. */
static void answers(struct world *w, struct named call, char **words)
{
    struct judge_answer answer = {.id = call.call, .when = w->now += JUDGE_MS, .stat = {.uid = 1000, .nlink = 1}};
    const char *word = words[0] ? words[0] : "ok";
    answer.error = error_of(word);
    bool other = answer.error == INT_MAX;
    answer.error = other ? 0 : answer.error;
    if (call.operation == JUDGE_OPEN && !answer.error) {
        answer.handle = call.handle = ++w->handle;
    }
    if (other && (call.operation == JUDGE_OPEN || call.operation == JUDGE_FLOCK)) {
        name_it(w, word, call);
    } else if (other && call.operation == JUDGE_GETLK && strcmp(word, "none") != 0) {
        answer.conflict.found = true;
        range_of(word, &answer.conflict.start, &answer.conflict.end);
        ck_assert(words[1] && words[2]);
        answer.conflict.pid = (pid_t)g_ascii_strtoll(words[2], NULL, 10);
    } else if (other && call.operation == JUDGE_STAT) {
        answer.stat.mode = (mode_t)g_ascii_strtoull(word, NULL, 8);
    } else if (other) {
        answer.value = word;
        answer.size = strlen(word);
    }
    judge_answer(w->judge, &answer);
}

static void troubles(struct world *w, const char *name, const char *mount, bool begins)
{
    static const char *const names[JUDGE_TROUBLES] = {
        [JUDGE_AWAY] = "away",   [JUDGE_RESET] = "reset",   [JUDGE_STOPPED] = "stopped", [JUDGE_DEAD] = "dead",
        [JUDGE_FAILS] = "fails", [JUDGE_FORGOT] = "forgot", [JUDGE_MOVED] = "moved",     [JUDGE_CUT] = "cut",
        [JUDGE_CLOCK] = "clock", [JUDGE_WALL] = "wall",     [JUDGE_POWER] = "power"};
    int trouble = 0;
    while (trouble < JUDGE_TROUBLES && g_strcmp0(names[trouble], name) != 0) {
        trouble++;
    }
    ck_assert_msg(trouble < JUDGE_TROUBLES, "no such trouble: %s", name);
    judge_trouble(w->judge, w->now += JUDGE_MS, (enum judge_trouble)trouble,
                  strcmp(mount, "all") == 0 ? JUDGE_ALL : (uint32_t)g_ascii_strtoull(mount, NULL, 10), NULL, begins);
}

static void forks(struct world *w, uint32_t parent, char **words)
{
    uint32_t process = process_of(words[0]);
    uid_t uid = 1000;
    pid_t session = 100;
    for (char **word = words + 1; word[0] && word[1]; word += 2) {
        if (strcmp(word[0], "uid") == 0) {
            uid = (uid_t)g_ascii_strtoull(word[1], NULL, 10);
        } else {
            session = (pid_t)g_ascii_strtoull(word[1], NULL, 10);
        }
    }
    w->mount[process] = w->mount[parent];
    judge_fork(w->judge, w->now, process, parent, (pid_t)(100 + process), uid, session);
}

static void watches(struct world *w, enum judge_event event, uint32_t process, const char *word)
{
    const struct named *file = g_hash_table_lookup(w->named, word);
    judge_event(w->judge, w->now, event, process, 0, file ? NULL : word, file ? file->handle : 0);
}

/* Does a step of one process that is no system call.  False: the step is a system call. */
static bool lives(struct world *w, char **words)
{
    static const char *const events[] = {
        [JUDGE_WATCHES] = "watches", [JUDGE_DELETED] = "deleted", [JUDGE_HUNG_UP] = "hung-up"};
    uint32_t process = process_of(words[0]);
    for (size_t i = 0; i < G_N_ELEMENTS(events); i++) {
        if (strcmp(events[i], words[1]) == 0) {
            watches(w, (enum judge_event)i, process, words[2]);
            return true;
        }
    }
    if (strcmp(words[1], "forks") == 0) {
        forks(w, process, words + 2);
    } else if (strcmp(words[1], "gets") == 0) {
        judge_pass(w->judge, w->now, process, find(w, words[2])->handle);
    } else if (strcmp(words[1], "exits") == 0 || strcmp(words[1], "killed") == 0) {
        judge_exit(w->judge, w->now += JUDGE_MS, process, words[1][0] == 'k' ? 9 : 0);
    } else {
        return false;
    }
    return true;
}

static void ends(struct world *w, char **left)
{
    char *names = g_strjoinv("\n", left), *lines = g_strconcat(names, *names ? "\n" : "", NULL);
    judge_end(w->judge, w->now, lines);
    g_free(names);
    g_free(lines);
}

static void step_words(struct world *w, char **words, int count)
{
    size_t last = strlen(words[0]) - 1;
    char **arrow = words;
    while (*arrow && strcmp(*arrow, "->") != 0) {
        arrow++;
    }
    if (words[0][0] == '+') {
        passes(w, time_of(words[0]));
    } else if (strcmp(words[0], "end") == 0) {
        ends(w, words + 1);
    } else if (count < 2) {
        ck_abort_msg("no such step: %s", words[0]);
    } else if (strcmp(words[0], "on") == 0) {
        world_free(w);
        *w = world_new(words[1]);
    } else if (strcmp(words[0], "signal") == 0) {
        judge_signal(w->judge, w->now, find(w, words[1])->call);
    } else if (count == 3 && (strcmp(words[0], "begins") == 0 || strcmp(words[0], "ends") == 0)) {
        troubles(w, words[1], words[2], words[0][0] == 'b');
    } else if (arrow == words + 1) {
        answers(w, *find(w, words[0]), arrow + 1);
    } else if (words[0][last] == ':') {
        words[0][last] = '\0';
        name_it(w, words[0], calls(w, words + 1));
    } else if (!lives(w, words)) {
        struct named call = calls(w, words);
        answers(w, call, *arrow ? arrow + 1 : arrow);
    }
}

/* --- written histories ---------------------------------------------------------------------- */

struct history {
    char *name, *verdict; /* verdict: "good" or a rule; NULL: it is a part of others */
    GPtrArray *steps;
};

static GPtrArray *histories, *parts; /* of struct history */

static void step(struct world *w, const char *text);

/* Does the steps of a part, with `text` in place of $. */
static void include(struct world *w, const char *name, const char *text)
{
    for (guint i = 0; i < parts->len; i++) {
        const struct history *part = parts->pdata[i];
        if (strcmp(part->name, name) == 0) {
            for (guint k = 0; k < part->steps->len; k++) {
                char **pieces = g_strsplit(part->steps->pdata[k], "$", -1), *whole = g_strjoinv(text, pieces);
                step(w, whole);
                g_strfreev(pieces);
                g_free(whole);
            }
            return;
        }
    }
    ck_abort_msg("no such part: %s", name);
}

static void step(struct world *w, const char *text)
{
    char **words;
    int count;
    if (!*text) {
        return;
    }
    if (g_str_has_prefix(text, "as ")) {
        char **halves = g_strsplit(text + 3, " = ", 2);
        include(w, halves[0], halves[1] ? halves[1] : "");
        g_strfreev(halves);
        return;
    }
    ck_assert_msg(g_shell_parse_argv(text, &count, &words, NULL), "no such step: %s", text);
    for (int i = 0; i < count; i++) {
        char *plain = g_strcompress(words[i]); /* \n */
        g_free(words[i]);
        words[i] = plain;
    }
    step_words(w, words, count);
    g_strfreev(words);
}

static void read_line(const char *line, struct history **ret_last)
{
    const char *colon = strrchr(line, ':');
    if (*line == ' ') {
        char **steps = g_strsplit(line, ";", -1);
        for (char **one = steps; *one; one++) {
            g_ptr_array_add((*ret_last)->steps, g_strdup(g_strstrip(*one)));
        }
        g_strfreev(steps);
    } else if (*line && *line != '#') {
        size_t part = g_str_has_prefix(line, "part ") ? strlen("part ") : 0;
        if (!colon) {
            g_error("no verdict: %s", line);
        }
        *ret_last = g_new0(struct history, 1);
        (*ret_last)->name = g_strndup(line + part, (gsize)(colon - line) - part);
        (*ret_last)->verdict = part ? NULL : g_strstrip(g_strdup(colon + 1));
        (*ret_last)->steps = g_ptr_array_new_with_free_func(g_free);
        g_ptr_array_add(part ? parts : histories, *ret_last);
    }
}

static void read_histories(void)
{
    const char *top = g_getenv("top_srcdir") ? g_getenv("top_srcdir") : ".";
    char *path = g_build_filename(top, "tests/sim/judge_histories.txt", NULL), *text;
    if (!g_file_get_contents(path, &text, NULL, NULL)) {
        g_error("%s cannot be read", path);
    }
    char **lines = g_strsplit(text, "\n", -1);
    struct history *last = NULL;
    histories = g_ptr_array_new();
    parts = g_ptr_array_new();
    for (char **line = lines; *line; line++) {
        read_line(*line, &last);
    }
    g_strfreev(lines);
    g_free(text);
    g_free(path);
}

START_TEST(judges_each_history_right)
{
    const struct history *history = histories->pdata[_i];
    struct world w = world_new("server");
    for (guint i = 0; i < history->steps->len; i++) {
        step(&w, history->steps->pdata[i]);
    }
    bool right = true, known = strcmp(history->verdict, "good") == 0;
    for (int i = 0; i < JUDGE_RULES; i++) {
        const char *rule = judge_rule_name((enum judge_rule)i);
        bool broken = judge_broken(w.judge, (enum judge_rule)i) > 0;
        bool expected = strcmp(rule, history->verdict) == 0;
        known = known || expected;
        right = right && broken == expected;
        if (broken != expected) {
            printf("# %s: %s %s\n", history->name, broken ? "breaks" : "does not break", rule);
        }
    }
    ck_assert_msg(known, "no such rule: %s", history->verdict);
    ck_assert_msg(right, "%s is not judged to be %s", history->name, history->verdict);
    world_free(&w);
}
END_TEST

START_TEST(every_rule_is_broken_by_a_history)
{
    for (int i = 0; i < JUDGE_RULES; i++) {
        const char *rule = judge_rule_name((enum judge_rule)i);
        bool found = false;
        for (guint k = 0; k < histories->len; k++) {
            found = found || strcmp(((const struct history *)histories->pdata[k])->verdict, rule) == 0;
        }
        ck_assert_msg(found, "no history breaks the rule %s", rule);
    }
}
END_TEST

/* --- random histories ----------------------------------------------------------------------- */

/* A lock service that is true, of one name; or that tells one lie. */
struct service {
    struct world w;
    GRand *dice;
    uint32_t lease; /* the process whose it is; 0: none */
    struct file {
        uint64_t handle, call; /* call: it waits in that one */
        uint32_t process;
        bool open, holds, shared;
        unsigned turn; /* who waits longer has the lower one */
    } files[12];
    unsigned turn;
    int lie; /* at the how manieth answer that can be one */
    bool lied;
};

static bool next_answer_lies(struct service *s)
{
    bool now = !s->lied && s->lie-- == 0;
    s->lied = s->lied || now;
    return now;
}

static bool service_compatible(const struct service *s, const struct file *file, bool shared)
{
    for (size_t i = 0; i < G_N_ELEMENTS(s->files); i++) {
        const struct file *other = &s->files[i];
        bool before = other->call && (!file->call || other->turn < file->turn);
        if (other != file && ((other->holds && !(other->shared && shared)) || before)) {
            return false;
        }
    }
    return !s->lease;
}

static bool service_free(const struct service *s)
{
    for (size_t i = 0; i < G_N_ELEMENTS(s->files); i++) {
        if (s->files[i].holds || s->files[i].call) {
            return false;
        }
    }
    return !s->lease;
}

/* Grants the lock to the waiters that may hold now. */
static void service_grants(struct service *s)
{
    for (bool granted = true; granted;) {
        granted = false;
        for (size_t i = 0; i < G_N_ELEMENTS(s->files); i++) {
            struct file *file = &s->files[i];
            if (file->call && service_compatible(s, file, file->shared)) {
                end(&s->w, file->call, 0);
                file->call = 0;
                file->holds = granted = true;
            }
        }
    }
}

static bool process_waits(const struct service *s, uint32_t process)
{
    for (size_t i = 0; i < G_N_ELEMENTS(s->files); i++) {
        if (s->files[i].call && s->files[i].process == process) {
            return true;
        }
    }
    return false;
}

static void service_flock(struct service *s, struct file *file, uint32_t process)
{
    bool shared = g_rand_boolean(s->dice), waits = g_rand_boolean(s->dice);
    unsigned flags = (shared ? JUDGE_SHARE : 0) | (waits ? 0 : JUDGE_TRY);
    if (!file->open) {
        file->handle = opens(&s->w, process, "L");
        file->process = process;
        file->open = true;
    } else if (file->process == process && file->holds) {
        does(&s->w, BY(process, file->handle, FUNLOCK), 0);
        file->holds = false;
        service_grants(s);
    } else if (file->process == process && g_rand_int_range(s->dice, 0, 4) == 0) {
        does(&s->w, BY(process, file->handle, CLOSE), 0);
        file->open = false;
    } else if (file->process == process && s->lease != process) {
        bool can = service_compatible(s, file, shared);
        uint64_t call = begin(&s->w, BY(process, file->handle, FLOCK, .flags = flags));
        file->shared = shared;
        if ((can || !waits) && next_answer_lies(s)) {
            end(&s->w, call, can ? EAGAIN : 0);
        } else if (can || !waits) {
            end(&s->w, call, can ? 0 : EAGAIN);
            file->holds = can;
        } else {
            file->call = call;
            file->turn = ++s->turn;
        }
    }
}

static void service_names(struct service *s, uint32_t process)
{
    bool free = service_free(s), can = s->lease == process || (s->lease == SHELL && process != REMOTE);
    bool lie = next_answer_lies(s);
    int error;
    switch (g_rand_int_range(s->dice, 0, 3)) {
    case 0:
        error = free == !lie ? 0 : EEXIST;
        does(&s->w, ON(process, "L", SYMLINK, .value = "x", .size = 1), error);
        s->lease = free && !lie ? process : s->lease;
        break;
    case 1:
        does(&s->w, ON(process, "L", STAT), free == !lie ? ENOENT : 0);
        break;
    default:
        if (s->lease || free) {
            does(&s->w, ON(process, "L", UNLINK), free ? (lie ? 0 : ENOENT) : can == !lie ? 0 : EPERM);
            s->lease = can && !lie ? 0 : s->lease;
            service_grants(s);
        } else {
            s->lied = s->lied && !lie; /* who may remove handle locks is another matter */
        }
        break;
    }
}

/* Returns how many rules were broken; *ret_lied: whether it came to the lie. */
static uint64_t service_run(uint32_t seed, int lie, bool *ret_lied)
{
    struct service s = {.w = world_new("server"), .dice = g_rand_new_with_seed(seed), .lie = lie};
    static const uint32_t processes[] = {SHELL, CHILD, OTHER, REMOTE};
    for (int i = 0; i < 120; i++) {
        uint32_t process = processes[g_rand_int_range(s.dice, 0, 4)];
        passes(&s.w, g_rand_int_range(s.dice, 0, 300) * JUDGE_MS);
        if (process_waits(&s, process)) {
            continue;
        }
        if (g_rand_boolean(s.dice)) {
            service_names(&s, process);
        } else {
            service_flock(&s, &s.files[g_rand_int_range(s.dice, 0, G_N_ELEMENTS(s.files))], process);
        }
    }
    passes(&s.w, JUDGE_SECOND);
    judge_end(s.w.judge, s.w.now, service_free(&s) ? "" : "L\n");
    uint64_t broken = judge_verdict(s.w.judge, NULL);
    world_free(&s.w);
    g_rand_free(s.dice);
    *ret_lied = s.lied;
    return broken;
}

START_TEST(passes_what_a_true_service_answers)
{
    for (uint32_t seed = 0; seed < 300; seed++) {
        bool lied;
        ck_assert_msg(service_run(seed, INT_MAX, &lied) == 0, "a true history is refused: seed %u", seed);
    }
}
END_TEST

/* Not every lie can be found: a refusal just when another call ended the lock may have happened before. */
START_TEST(refuses_nearly_every_single_lie)
{
    unsigned lies = 0, found = 0;
    for (uint32_t seed = 0; seed < 1000; seed++) {
        bool lied;
        uint64_t broken = service_run(seed, (int)(seed % 30), &lied);
        lies += lied;
        found += lied && broken;
    }
    printf("# %u of %u lies are found\n", found, lies);
    ck_assert_uint_gt(lies, 800);
    ck_assert_uint_ge(found * 100, lies * 95);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("judge");
    TCase *tcase = tcase_create("judge");
    read_histories();
    tcase_add_loop_test(tcase, judges_each_history_right, 0, (int)histories->len);
    tcase_add_test(tcase, every_rule_is_broken_by_a_history);
    tcase_add_test(tcase, passes_what_a_true_service_answers);
    tcase_add_test(tcase, refuses_nearly_every_single_lie);
    tcase_set_timeout(tcase, 60);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
