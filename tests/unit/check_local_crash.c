/* check_local_crash: kill -9 at any moment, and compaction at every moment.
 *
 * A child makes random changes and reports each before its call and after its confirmation.  The parent kills it, opens
 * the store, and compares: everything that was confirmed is there, nothing that was released has come back, tokens only
 * grow. The one change that was pending may be there or not.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/local/local.h"
#include "backend/log.h"
#include "tests/contract/contract.h"
#include "tests/support/check_main.h"
#include "tests/support/scratch.h"

enum { NAMES = 24 };

static char *directory;
static char error[512];

/* The expected state of a name. */
struct lease {
    bool held;
    uint64_t fence;
    clock_ms deadline;
    clock_ms acquired;
    int64_t ttl;
    uint32_t content; /* a number, as text */
    uint32_t meta;
};

enum change { NOTHING, ACQUIRE, RELEASE, RENEW, SET, RENAME };

struct report {
    enum change change;
    bool confirmed;
    uint32_t name, other; /* `other`: the new name */
    struct lease lease;   /* confirmed: as it is now; else content and meta as they shall be */
    uint64_t fence;       /* a token that was given */
};

static struct backend *open_at(const char *where, bool sync_always)
{
    struct local_options options = {.directory = where, .sync_always = sync_always, .seed = 3, .compact_min = 8192};
    struct backend *b = NULL;

    ck_assert_msg(local_new(&options, &b, error, sizeof(error)) == 0, "%s", error);
    return b;
}

static const char *name_of(uint32_t i)
{
    static char names[4][32];
    static unsigned next;
    char *name = names[next++ % 4];

    g_snprintf(name, sizeof(names[0]), i % 3 ? "name-%u" : "dir/name-%u", i);
    return name;
}

static GBytes *text_of(uint32_t number)
{
    char text[600];
    int length = g_snprintf(text, sizeof(text), "%u", number);

    /* of many lengths, so that records are, too */
    memset(text + length, '.', number % 500);
    return g_bytes_new(text, (gsize)length + number % 500);
}

static uint32_t number_of(GBytes *bytes)
{
    gsize size = 0;
    const char *text = bytes ? g_bytes_get_data(bytes, &size) : NULL;
    g_autofree char *copy = g_strndup(text ? text : "", size);
    return (uint32_t)g_ascii_strtoull(copy, NULL, 10);
}

/* --- who makes changes --- */

struct worker {
    GRand *random;
    void (*tell)(struct worker *w, const struct report *r);
    void *arg;
    struct backend_ticket *ticket[NAMES];
    struct lease lease[NAMES];
    struct backend_ticket *handle_lock; /* found again; or NULL */
};

static struct contract_log worker_log;

static void tell(struct worker *w, enum change change, bool confirmed, uint32_t name, uint32_t other,
                 const struct lease *lease, uint64_t fence)
{
    struct report r;

    memset(&r, 0, sizeof(r));
    r.change = change;
    r.confirmed = confirmed;
    r.name = name;
    r.other = other;
    r.lease = *lease;
    r.fence = fence;
    w->tell(w, &r);
}

static void take_times(struct lease *lease, const struct backend_ticket *ticket)
{
    lease->held = true;
    lease->fence = ticket->fence;
    lease->deadline = ticket->deadline;
    lease->acquired = ticket->acquired;
    lease->ttl = ticket->ttl;
}

/* At once, or through a provisional lease as close(2) does. */
static void work_acquire(struct worker *w, uint32_t i)
{
    struct lease lease = {.content = g_rand_int(w->random), .meta = g_rand_int(w->random)};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &worker_log);
    bool convert = g_rand_int_range(w->random, 0, 2);

    tell(w, ACQUIRE, false, i, 0, &lease, 0);
    if (convert)
        w->ticket[i] = contract_get(name_of(i), BACKEND_PROVISIONAL, &worker_log);
    claim.ttl = g_rand_int_range(w->random, 100, 1000) * 10000;
    claim.meta = text_of(lease.meta);
    claim.content = text_of(lease.content);
    if (convert)
        ck_assert_int_eq(contract_convert(w->ticket[i], &claim), BACKEND_OK);
    else
        w->ticket[i] = contract_acquire(name_of(i), &claim).ticket;
    ck_assert_ptr_nonnull(w->ticket[i]);
    g_bytes_unref(claim.meta);
    g_bytes_unref(claim.content);
    take_times(&lease, w->ticket[i]);
    w->lease[i] = lease;
    tell(w, ACQUIRE, true, i, 0, &lease, lease.fence);
}

/* Handle locks between the leases: one is found again at most, if the worker was killed while it had it. */
static void work_visit(struct worker *w, uint32_t i)
{
    struct backend_ticket *ticket = contract_get(name_of(i), BACKEND_FLOCK, &worker_log);
    uint64_t fence = ticket->fence;

    ck_assert_int_eq(contract_release(ticket), BACKEND_OK);
    tell(w, NOTHING, true, i, 0, &w->lease[i], fence);
}

/* At once, or by turning into a handle lock first. */
static void work_release(struct worker *w, uint32_t i)
{
    struct backend_claim claim = contract_claim(BACKEND_FLOCK, &worker_log);
    struct lease none = {.held = false};

    tell(w, RELEASE, false, i, 0, &none, 0);
    if (g_rand_int_range(w->random, 0, 2)) {
        ck_assert_int_eq(contract_convert(w->ticket[i], &claim), BACKEND_OK);
        tell(w, RELEASE, true, i, 0, &none, 0);
    }
    ck_assert_int_eq(contract_release(w->ticket[i]), BACKEND_OK);
    w->ticket[i] = NULL;
    w->lease[i] = none;
    tell(w, RELEASE, true, i, 0, &none, 0);
}

static void work_renew(struct worker *w, uint32_t i)
{
    struct backend_renewal renewal = {.ticket = w->ticket[i], .ttl = w->lease[i].ttl + 1};

    tell(w, RENEW, false, i, 0, &w->lease[i], 0);
    backend_renew(contract_backend, &renewal, 1);
    take_times(&w->lease[i], w->ticket[i]);
    tell(w, RENEW, true, i, 0, &w->lease[i], 0);
}

static void work_set(struct worker *w, uint32_t i)
{
    struct lease *lease = &w->lease[i];
    struct backend_change change = {.set = BACKEND_SET_META | BACKEND_SET_CONTENT};

    lease->content = g_rand_int(w->random);
    lease->meta = g_rand_int(w->random);
    tell(w, SET, false, i, 0, lease, 0);
    change.meta = text_of(lease->meta);
    change.content = text_of(lease->content);
    ck_assert_int_eq(contract_set(w->ticket[i], &change), BACKEND_OK);
    g_bytes_unref(change.meta);
    g_bytes_unref(change.content);
    tell(w, SET, true, i, 0, lease, 0);
}

static void work_rename(struct worker *w, uint32_t i)
{
    uint32_t other = (uint32_t)g_rand_int_range(w->random, 0, NAMES);

    if (other == i)
        return;
    tell(w, RENAME, false, i, other, &w->lease[i], 0);
    ck_assert_int_eq(contract_rename_over(w->ticket[i], name_of(other), w->ticket[other]), BACKEND_OK);
    w->ticket[other] = w->ticket[i];
    w->lease[other] = w->lease[i];
    w->ticket[i] = NULL;
    w->lease[i] = (struct lease){.held = false};
    take_times(&w->lease[other], w->ticket[other]);
    tell(w, RENAME, true, i, other, &w->lease[other], w->lease[other].fence);
}

static void work(struct worker *w)
{
    static void (*const free_name[])(struct worker *, uint32_t) = {work_acquire, work_acquire, work_acquire,
                                                                   work_visit};
    static void (*const held_name[])(struct worker *, uint32_t) = {work_release, work_release, work_release,
                                                                   work_renew,   work_set,     work_rename};
    uint32_t i = (uint32_t)g_rand_int_range(w->random, 0, NAMES);

    if (w->ticket[i])
        held_name[g_rand_int_range(w->random, 0, G_N_ELEMENTS(held_name))](w, i);
    else
        free_name[g_rand_int_range(w->random, 0, G_N_ELEMENTS(free_name))](w, i);
    contract_poll(); /* compaction goes on in the loop */
}

static bool worker_found(void *arg, const char *name, struct backend_ticket *ticket, GBytes *meta, GBytes *content)
{
    struct worker *w = arg;
    const char *dash = strrchr(name, '-');

    (void)content;
    if (!ticket)
        return false; /* a directory */
    uint32_t i = dash ? (uint32_t)g_ascii_strtoull(dash + 1, NULL, 10) : 0;

    ticket->user = &worker_log;
    if (ticket->kind == BACKEND_FLOCK) {
        ck_assert_ptr_null(w->handle_lock);
        w->handle_lock = ticket;
        return false;
    }
    w->ticket[i] = ticket;
    take_times(&w->lease[i], ticket);
    w->lease[i].meta = number_of(meta);
    return false;
}

/* Takes up what an earlier worker left. */
static void begin_work(struct worker *w, uint32_t seed, bool sync_always)
{
    w->random = g_rand_new_with_seed(seed);
    contract_start(open_at(directory, sync_always));
    contract_mkdir("dir", NULL);
    backend_recover(contract_backend, worker_found, w);
    if (w->handle_lock)
        ck_assert_int_eq(contract_release(w->handle_lock), BACKEND_OK);
    for (uint32_t i = 0; i < NAMES; i++)
        w->lease[i].content = number_of(contract_stat(name_of(i)).content);
}

/* --- who knows what must be there --- */

struct model {
    struct lease lease[NAMES];
    uint64_t fence;
    struct report open; /* asked for, and not confirmed; or NOTHING */
};

static void apply(struct model *m, const struct report *r)
{
    m->fence = MAX(m->fence, r->fence);
    if (!r->confirmed) {
        m->open = *r;
        return;
    }
    m->open = (struct report){.change = NOTHING};
    if (r->change == RELEASE || r->change == RENAME)
        m->lease[r->name] = (struct lease){.held = false};
    if (r->change == RENAME)
        m->lease[r->other] = r->lease;
    else if (r->change != RELEASE && r->change != NOTHING)
        m->lease[r->name] = r->lease;
}

static struct lease look_at(uint32_t i)
{
    struct backend_info info = contract_stat(name_of(i));
    struct lease lease = {.held = info.type == BACKEND_LOCK};

    if (!lease.held)
        return lease;
    if (info.kind == BACKEND_FLOCK) {
        ck_assert_int_eq(contract_revoke(name_of(i), 0), BACKEND_OK);
        return (struct lease){.held = false};
    }
    ck_assert_int_eq(info.kind, BACKEND_LEASE);
    lease.fence = info.fence;
    lease.deadline = info.deadline;
    lease.acquired = info.acquired;
    lease.ttl = info.ttl;
    lease.content = number_of(info.content);
    lease.meta = number_of(info.meta);
    return lease;
}

static bool same(const struct lease *a, const struct lease *b)
{
    return a->held == b->held &&
           (!a->held || (a->fence == b->fence && a->deadline == b->deadline && a->acquired == b->acquired &&
                         a->ttl == b->ttl && a->content == b->content && a->meta == b->meta));
}

/* Whether the open change explains what was found in the place of what was. */
static bool explained(const struct model *m, uint32_t i, const struct lease *found)
{
    const struct report *open = &m->open;
    const struct lease *was = &m->lease[i];

    switch (open->change) {
    case ACQUIRE:
        return i == open->name && !was->held && found->content == open->lease.content && found->fence > m->fence;
    case RELEASE:
        return i == open->name && !found->held;
    case RENEW:
        return i == open->name && found->held && found->fence == was->fence && found->deadline >= was->deadline;
    case SET:
        return i == open->name && found->fence == was->fence && found->content == open->lease.content &&
               found->meta == open->lease.meta && found->deadline == was->deadline;
    case RENAME:
        return (i == open->name && !found->held) ||
               (i == open->other && found->content == open->lease.content && found->fence > open->lease.fence);
    default:
        return false;
    }
}

/* Opens a copy of what is there and compares; takes over what the open change
 * has done. */
static void compare(struct model *m)
{
    struct backend *present = contract_backend;
    char *copy = scratch_copy(directory);
    struct contract_log log = {0};
    unsigned names = 0, before = 0;
    bool renames = m->open.change == RENAME, moved;
    struct lease replaced = renames ? m->lease[m->open.other] : (struct lease){.held = false};

    contract_start(open_at(copy, false));
    for (uint32_t i = 0; i < NAMES; i++) {
        struct lease found = look_at(i);

        before += m->lease[i].held;
        names += found.held;
        ck_assert_msg(same(&m->lease[i], &found) || explained(m, i, &found),
                      "%s: held %d, was %d; token %" G_GUINT64_FORMAT ", was %" G_GUINT64_FORMAT "; open change %d",
                      name_of(i), found.held, m->lease[i].held, found.fence, m->lease[i].fence, (int)m->open.change);
        m->lease[i] = found;
        m->fence = MAX(m->fence, found.fence);
    }
    moved = renames && !m->lease[m->open.name].held;
    if (renames) /* exactly one of them */
        ck_assert_uint_eq(names, before - (moved && replaced.held));
    if (replaced.held) /* both have changed, or neither */
        ck_assert(moved == (m->lease[m->open.other].fence != replaced.fence));
    m->open = (struct report){.change = NOTHING};
    ck_assert_uint_eq(backend_counts(contract_backend).locks, names);
    ck_assert_uint_gt(contract_get("probe", BACKEND_FLOCK, &log)->fence, m->fence);
    backend_free(contract_backend);
    contract_backend = present;
    scratch_free(copy);
}

/* --- kill -9 --- */

static void tell_parent(struct worker *w, const struct report *r)
{
    if (write(*(int *)w->arg, r, sizeof(*r)) != sizeof(*r))
        _exit(3);
}

static bool read_report(int in, struct report *r)
{
    size_t got = 0;

    while (got < sizeof(*r)) {
        ssize_t n = read(in, (char *)r + got, sizeof(*r) - got);

        if (n <= 0)
            return false;
        got += (size_t)n;
    }
    return true;
}

/* Libcheck tells of each assertion in a file that has no name any more, which a child shares: what
 * one that is killed has half written, its parent cannot read. */
static void leave_libcheck(void)
{
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

    for (int fd = 3; fd < 64; fd++) {
        struct stat st;

        if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 0)
            dup2(null, fd);
    }
    close(null);
}

/* One life of a child: killed after so many reports. */
static void live_and_die(struct model *m, uint32_t seed, int reports, bool sync_always)
{
    int pipes[2], status;
    struct report r;
    pid_t child;

    ck_assert_int_eq(pipe(pipes), 0);
    child = fork();
    if (child < 0) /* and no assertion of the child: it would write among our messages */
        ck_abort_msg("cannot fork");
    if (child == 0) {
        struct worker w = {.tell = tell_parent, .arg = &pipes[1]};

        close(pipes[0]);
        leave_libcheck();
        contract_setup();
        begin_work(&w, seed, sync_always);
        for (;;)
            work(&w);
    }
    close(pipes[1]);
    while (reports-- && read_report(pipes[0], &r))
        apply(m, &r);
    ck_assert_int_eq(kill(child, SIGKILL), 0);
    while (read_report(pipes[0], &r))
        apply(m, &r);
    close(pipes[0]);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFSIGNALED(status), "the child ended by itself: %d", status);
}

static void many_lives(int lives, int most_reports, bool sync_always)
{
    GRand *random = g_rand_new_with_seed(scratch_seed());
    struct model m = {.fence = 0};

    for (int i = 0; i < lives; i++) {
        live_and_die(&m, g_rand_int(random), g_rand_int_range(random, 1, most_reports), sync_always);
        compare(&m);
    }
    g_rand_free(random);
}

START_TEST(kill_at_any_moment_loses_nothing_confirmed)
{
    many_lives(40, 3000, false);
}
END_TEST

START_TEST(kill_at_any_moment_with_sync_always_loses_nothing_confirmed)
{
    many_lives(10, 200, true);
}
END_TEST

/* --- without a kill --- */

static void tell_model(struct worker *w, const struct report *r)
{
    apply(w->arg, r);
}

/* What a crash would leave is looked at all the time, also in the middle of each
 * compaction. */
START_TEST(state_on_disk_is_the_same_at_every_step_of_compaction)
{
    struct model m = {.fence = 0};
    struct worker w = {.tell = tell_model, .arg = &m};
    char *new_file = g_build_filename(directory, "journal.new", NULL);
    bool compacting = false;
    int compactions = 0;

    begin_work(&w, scratch_seed(), false);
    for (int i = 0; i < 3000; i++) {
        bool was = compacting;

        work(&w);
        compacting = g_file_test(new_file, G_FILE_TEST_EXISTS);
        compactions += was && !compacting;
        if (was || compacting || i % 97 == 0)
            compare(&m);
    }
    ck_assert_int_ge(compactions, 3);
    g_rand_free(w.random);
    g_free(new_file);
}
END_TEST

/* Wherever a power cut ends the journal, it can be read. */
START_TEST(journal_cut_anywhere_can_be_opened)
{
    struct model m = {.fence = 0};
    struct worker w = {.tell = tell_model, .arg = &m};
    GBytes *journal;

    begin_work(&w, scratch_seed(), false);
    for (int i = 0; i < 100; i++)
        work(&w);
    journal = scratch_read(directory, "journal");
    for (gsize cut = 20; cut < g_bytes_get_size(journal); cut += 1 + cut % 151) {
        char *copy = scratch_new();

        scratch_write(copy, "journal", g_bytes_get_data(journal, NULL), cut);
        backend_free(open_at(copy, false));
        scratch_free(copy);
    }
    g_bytes_unref(journal);
    g_rand_free(w.random);
}
END_TEST

static void setup(void)
{
    static const struct contract subject = {.open = NULL};

    log_set_level(LOG_LEVEL_ERROR);
    directory = scratch_new();
    contract_use(&subject);
    contract_setup();
}

static void teardown(void)
{
    contract_teardown();
    scratch_free(directory);
}

static Suite *crash_suite(void)
{
    Suite *suite = suite_create("local crash");
    TCase *crashes = tcase_create("crash");

    tcase_add_checked_fixture(crashes, setup, teardown);
    tcase_set_timeout(crashes, 120);
    tcase_add_test(crashes, kill_at_any_moment_loses_nothing_confirmed);
    tcase_add_test(crashes, kill_at_any_moment_with_sync_always_loses_nothing_confirmed);
    tcase_add_test(crashes, state_on_disk_is_the_same_at_every_step_of_compaction);
    tcase_add_test(crashes, journal_cut_anywhere_can_be_opened);
    suite_add_tcase(suite, crashes);
    return suite;
}

int main(void)
{
    return check_main(crash_suite());
}
