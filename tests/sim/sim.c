/* sim: runs worlds, each from its seed.
 *
 *     sim [-n SEEDS] [-f FIRST] [-o OPERATIONS] [-s STORE] [-w] [-j JOBS] [-q]
 *                                  the worlds of so many seeds; -w: without faults, -q: without stories
 *     sim -1 SEED [-t] [-r]        one world: its story, its trace (-t), the checksum of its trace (-r)
 *
 * Each world runs in a process of its own, so that it begins with the same memory; so addresses, by which tables are
 * ordered, are the same too.  If a world breaks a rule, its plan is reduced as long as the rule is still broken, and
 * the rest is printed as a story.
 */
#include <errno.h>
#include <getopt.h>
#include <glib.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef COVERAGE
#include <gcov.h>
#endif

#include "tests/sim/faults.h"
#include "tests/sim/judge.h"
#include "tests/sim/network.h"
#include "tests/sim/nodes.h"
#include "tests/sim/user.h"
#include "tests/sim/zookeeper_model.h"

#define SIM_JOBS_MAX 16
#define SIM_BROKEN_MAX 5 /* seeds to print */
#define SIM_SHRINK_SECONDS 30.0
#define SIM_SECONDS 60 /* of processor time: a world that takes longer hangs */

/* The result of a world, in memory that it shares with the parent. */
struct result {
    uint64_t seed, sum, calls, steps, faulty;
    int64_t time;
    bool ended;
    char rule[32];
    char why[512];
    uint64_t struck[FAULTS], tried[JUDGE_RULES];
};

struct arguments {
    uint64_t first, seeds;
    unsigned operations, jobs;
    int store;
    bool faults, one, trace, sum, quiet;
};

static struct arguments arguments = {
    .first = 1, .seeds = 100, .operations = 300, .jobs = 2, .store = -1, .faults = true};

/* --- one world -------------------------------------------------------------------- */

struct sim {
    struct plan *plan;
    guint next;
};

static void sim_act(void *arg)
{
    struct sim *sim = arg;
    const struct act *act = &g_array_index(sim->plan->acts, struct act, sim->next++);
    if (act->kind == ACT_FAULT) {
        fault_act(act);
    } else {
        user_act(act);
    }
    if (sim->next < sim->plan->acts->len) {
        world_after(g_array_index(sim->plan->acts, struct act, sim->next).delay, sim_act, sim);
    }
}

static void sim_run_all(struct sim *sim)
{
    if (sim->plan->acts->len) {
        world_after(g_array_index(sim->plan->acts, struct act, 0).delay, sim_act, sim);
    }
    while (sim->next < sim->plan->acts->len && world_step(WORLD_NEVER - 1)) {
    }
}

/* All faults end, all programs end, and what they had runs out. */
static void sim_calm_down(const struct plan *plan, struct mount **mounts)
{
    int64_t term = plan->options.ttl * WORLD_MS;
    faults_end();
    world_run(world_now() + 3 * term + 5 * WORLD_SECOND);
    user_end();
    for (int i = 0; i < 100 && !user_has_ended(); i++) {
        world_run(world_now() + WORLD_SECOND);
    }
    const char *stuck = user_stuck(60 * WORLD_SECOND);
    if (stuck) {
        world_fail("hang", "%s", stuck);
    }
    faults_restart();
    world_run(world_now() + 4 * term + 10 * WORLD_SECOND);
    for (unsigned i = 0; i < plan->mounts; i++) {
        if (mount_state(mounts[i]) != MOUNT_SERVES) {
            world_fail("down", "mount %u does not serve again", i);
        }
    }
}

static ssize_t sim_log(void *cookie, const char *line, size_t size)
{
    (void)cookie;
    world_trace("log: %.*s", (int)size - 1, line);
    return (ssize_t)size;
}

/* As session.c asks for it. */
static int64_t sim_session(const struct plan *plan)
{
    return zkmodel_timeout(CLAMP(2 * plan->options.ttl + 2000, 4000, 120000));
}

static void sim_world(struct plan *plan, struct result *result, FILE *story, FILE *trace, FILE *out)
{
    struct mount *mounts[MOUNTS_MAX];
    struct sim sim = {.plan = plan};
    bool zookeeper = plan->options.store == MOUNT_ZOOKEEPER;
    world_begin(plan->seed);
    world_trace_to(trace);
    if (!arguments.one && !trace) {
        world_hush();
    }
    stderr = fopencookie(NULL, "w", (cookie_io_functions_t){.write = sim_log}); /* the daemons' log */
    setlinebuf(stderr);
    network_begin();
    nodes_begin(&(struct nodes_options){.store = plan->options.store,
                                        .count = plan->options.nodes,
                                        .mounts = plan->mounts,
                                        .ttl = plan->options.ttl,
                                        .away = faults_away,
                                        .moved = faults_moved});
    if (zookeeper) {
        zkmodel_begin();
    }
    int64_t session = zookeeper ? sim_session(plan) : 0;
    struct judge *judge = judge_new(&(struct judge_options){
        .ttl = plan->options.ttl * WORLD_MS,
        .settle = WORLD_SECOND,
        .prompt = 100 * WORLD_MS,
        .margin = 2 * WORLD_SECOND + (session ? (session + 4000) * WORLD_MS : 0), /* and two ticks */
        .validity = (session / 2 - MIN(session / 8, 1000)) * WORLD_MS,
        .remote = mount_is_redis(plan->options.store) || zookeeper,
        .moves = mount_has_nodes(plan->options.store),
        .unfair = plan->options.store == MOUNT_REDLOCK,
        .keeps = plan->options.store == MOUNT_LOCAL || plan->options.store == MOUNT_LOCAL_SYNC,
        .recovers = plan->options.store != MOUNT_MEMORY,
        .plain = zookeeper,
        .same_user = plan->options.owner_user,
        .forgets = plan->options.kernel.can_expire,
        .out = out});
    for (unsigned i = 0; i < plan->mounts; i++) {
        struct mount_options options = plan->options;
        options.kernel.mount = i;
        options.died = faults_died;
        options.rate = world_between(-1000, 1000);
        options.state = zookeeper && world_chance(700);
        mounts[i] = mount_new(i, &options);
    }
    faults_begin(judge, mounts, plan->mounts, plan->options.ttl);
    user_begin(judge, mounts, plan->mounts, story);
    static const char *const stores[] = {"memory",         "local",     "local with sync=always",
                                         "redis",          "zookeeper", "redis+sentinel with wait=1",
                                         "redis+sentinel", "redlock"};
    user_tell("%u mounts of %s, ttl %ld ms", plan->mounts, stores[plan->options.store], (long)plan->options.ttl);
    for (unsigned i = 0; i < plan->mounts; i++) {
        mount_start(mounts[i]);
    }
    bool held_off = plan->options.store == MOUNT_REDLOCK; /* servers that have begun lately grant nothing */
    world_run(100 * WORLD_MS + (held_off ? plan->options.ttl * WORLD_MS * 11 / 10 + 3 * WORLD_SECOND : 0));
    sim_run_all(&sim);
    sim_calm_down(plan, mounts);
    g_autofree char *left = user_list_all(0);
    judge_end(judge, world_now(), left);
    enum judge_rule first;
    result->faulty = judge_verdict(judge, &first);
    if (result->faulty) {
        g_strlcpy(result->rule, judge_rule_name(first), sizeof result->rule);
    }
    result->sum = world_trace_sum();
    result->calls = user_calls();
    result->steps = world_steps();
    result->time = world_now();
    memcpy(result->struck, faults_struck(), sizeof result->struck);
    for (unsigned i = 0; i < JUDGE_RULES; i++) {
        result->tried[i] = judge_tried(judge, (enum judge_rule)i);
    }
    result->ended = true;
}

/* --- worlds in processes ------------------------------------------------------------- */

static struct plan *sim_plan(uint64_t seed)
{
    world_begin(seed ^ 0x706c616e);
    return plan_new(&(struct plan_request){
        .seed = seed, .operations = arguments.operations, .store = arguments.store, .faults = arguments.faults});
}

static struct result *sim_share(size_t count)
{
    return mmap(NULL, count * sizeof(struct result), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

/* The output of its world goes to `output`, or nowhere. */
static pid_t sim_fork(struct plan *plan, struct result *result, const char *output, bool story, bool trace)
{
    memset(result, 0, sizeof *result);
    result->seed = plan->seed;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        FILE *out = freopen(output ? output : "/dev/null", output ? "a" : "w", stdout);
        setlinebuf(out);
        setitimer(ITIMER_PROF, &(struct itimerval){.it_value = {.tv_sec = SIM_SECONDS}}, NULL);
        sim_world(plan, result, story ? out : NULL, trace ? out : NULL, out);
        fflush(NULL);
#ifdef COVERAGE
        __gcov_dump();
#endif
        _exit(result->faulty ? 1 : 0);
    }
    return pid;
}

/* How a world ended that has not told; true if it is well. */
static bool sim_settle(struct result *result, int status)
{
    if (result->ended) {
        return !result->faulty;
    }
    if (WIFSIGNALED(status)) {
        g_snprintf(result->rule, sizeof result->rule, "signal %d", WTERMSIG(status));
    } else {
        g_snprintf(result->rule, sizeof result->rule, "status %d", WEXITSTATUS(status));
    }
    return false;
}

static bool sim_run(struct plan *plan, struct result *result, const char *output, bool story, bool trace)
{
    int status = 0;
    pid_t pid = sim_fork(plan, result, output, story, trace);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return sim_settle(result, status);
}

static double sim_seconds(void)
{
    struct timeval now;
    gettimeofday(&now, NULL);
    return (double)now.tv_sec + (double)now.tv_usec / 1e6;
}

/* --- making a plan smaller --------------------------------------------------------------- */

static struct plan *sim_without(const struct plan *plan, guint from, guint count)
{
    struct plan *smaller = g_memdup2(plan, sizeof *plan);
    smaller->acts = g_array_new(FALSE, FALSE, sizeof(struct act));
    g_array_append_vals(smaller->acts, plan->acts->data, from);
    g_array_append_vals(smaller->acts, &g_array_index(plan->acts, struct act, from + count),
                        plan->acts->len - from - count);
    if (from < smaller->acts->len) { /* the time of what follows stays as it was */
        struct act *next = &g_array_index(smaller->acts, struct act, from);
        for (guint i = from; i < from + count; i++) {
            next->delay += g_array_index(plan->acts, struct act, i).delay;
        }
    }
    return smaller;
}

static struct plan *sim_shrink(struct plan *plan, const char *rule)
{
    struct result *result = sim_share(1);
    unsigned left = 400; /* worlds that may be tried */
    double until = sim_seconds() + SIM_SHRINK_SECONDS;
    for (guint part = MAX(plan->acts->len / 2, 1); left > 0; part = MAX(part / 2, 1)) {
        bool smaller = false;
        for (guint from = 0; from < plan->acts->len && left > 0; left--) {
            struct plan *tried = sim_without(plan, from, MIN(part, plan->acts->len - from));
            if (sim_seconds() > until) {
                plan_free(tried);
                return plan;
            }
            if (!sim_run(tried, result, NULL, false, false) && strcmp(result->rule, rule) == 0) {
                plan_free(plan);
                plan = tried;
                smaller = true;
            } else {
                plan_free(tried);
                from += part;
            }
        }
        if (part == 1 && !smaller) {
            break;
        }
    }
    return plan;
}

static void sim_tell(uint64_t seed, const char *rule)
{
    char path[] = "/tmp/sim-story-XXXXXX";
    char *text = NULL;
    int fd = mkstemp(path);
    struct plan *plan = sim_plan(seed);
    guint before = plan->acts->len;
    plan = sim_shrink(plan, rule);
    sim_run(plan, sim_share(1), path, !arguments.trace, arguments.trace);
    printf("# seed %lu breaks %s; with %u of its %u acts:\n", (unsigned long)seed, rule, plan->acts->len, before);
    if (g_file_get_contents(path, &text, NULL, NULL)) {
        g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
        for (char **line = lines; *line && (**line || line[1]); line++) {
            printf("#   %s\n", *line);
        }
    }
    g_free(text);
    plan_free(plan);
    close(fd);
    unlink(path);
    printf("#   again: sim -1 %lu -o %u%s\n", (unsigned long)seed, arguments.operations, arguments.faults ? "" : " -w");
}

/* --- many ------------------------------------------------------------------------------------ */

struct total {
    uint64_t worlds, broken, calls, steps;
    int64_t time;
    uint64_t struck[FAULTS], tried[JUDGE_RULES];
};

static void sim_add(struct total *total, const struct result *result, bool well)
{
    total->worlds++;
    total->broken += !well;
    total->calls += result->calls;
    total->steps += result->steps;
    total->time += result->time;
    for (unsigned i = 0; i < FAULTS; i++) {
        total->struck[i] += result->struck[i];
    }
    for (unsigned i = 0; i < JUDGE_RULES; i++) {
        total->tried[i] += result->tried[i];
    }
    if (!well) {
        printf("seed %lu: %s\n", (unsigned long)result->seed, result->rule);
        fflush(stdout);
    }
}

static void sim_print(const struct total *total, double seconds)
{
    printf("# worlds: %lu; broken: %lu; calls answered: %lu; steps: %lu; virtual time: %.0f s\n",
           (unsigned long)total->worlds, (unsigned long)total->broken, (unsigned long)total->calls,
           (unsigned long)total->steps, (double)total->time / 1e9);
    printf("# %.1f worlds and %.0f calls a second\n", (double)total->worlds / seconds, (double)total->calls / seconds);
    printf("# faults, and how often they struck:\n");
    for (unsigned i = 0; i < FAULTS; i++) {
        printf("#   %-40s %lu\n", fault_name((enum fault_kind)i), (unsigned long)total->struck[i]);
    }
    printf("# rules, and how often they could have been broken:\n");
    for (unsigned i = 0; i < JUDGE_RULES; i++) {
        printf("#   %-40s %lu\n", judge_rule_name((enum judge_rule)i), (unsigned long)total->tried[i]);
    }
}

static int sim_many(void)
{
    struct result *results = sim_share(SIM_JOBS_MAX);
    pid_t pids[SIM_JOBS_MAX] = {0};
    struct total total = {0};
    struct result broken[SIM_BROKEN_MAX];
    unsigned jobs = MIN(arguments.jobs, SIM_JOBS_MAX), running = 0, shown = 0;
    uint64_t next = arguments.first, end = arguments.first + arguments.seeds;
    double began = sim_seconds();
    while (next < end || running) {
        for (unsigned i = 0; i < jobs && next < end; i++) {
            if (!pids[i]) {
                struct plan *plan = sim_plan(next++);
                pids[i] = sim_fork(plan, &results[i], NULL, false, false);
                plan_free(plan); /* or each fork would copy the tables of more memory than the one before */
                running++;
            }
        }
        int status;
        pid_t pid = waitpid(-1, &status, 0);
        for (unsigned i = 0; i < jobs; i++) {
            if (pids[i] == pid) {
                bool well = sim_settle(&results[i], status);
                sim_add(&total, &results[i], well);
                if (!well && shown < SIM_BROKEN_MAX) {
                    broken[shown++] = results[i];
                }
                pids[i] = 0;
                running--;
            }
        }
    }
    sim_print(&total, MAX(sim_seconds() - began, 0.001));
    for (unsigned i = 0; i < shown && !arguments.quiet; i++) {
        sim_tell(broken[i].seed, broken[i].rule);
    }
    return total.broken ? EXIT_FAILURE : EXIT_SUCCESS;
}

static int sim_one(void)
{
    struct result *result = sim_share(1);
    struct plan *plan = sim_plan(arguments.first);
    bool well = sim_run(plan, result, "/dev/stdout", !arguments.sum && !arguments.trace, arguments.trace);
    if (arguments.sum) {
        printf("%016lx\n", (unsigned long)result->sum);
    } else {
        printf("seed %lu: %s; sum %016lx\n", (unsigned long)arguments.first, well ? "well" : result->rule,
               (unsigned long)result->sum);
    }
    plan_free(plan);
    return well ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int sim_store(const char *name)
{
    static const char *const names[] = {"memory",    "local",    "sync",     "redis",
                                        "zookeeper", "sentinel", "failover", "redlock"};
    for (int i = 0; i < (int)G_N_ELEMENTS(names); i++) {
        if (strcmp(names[i], name) == 0) {
            return i;
        }
    }
    fprintf(stderr, "sim: no such store: %s\n", name);
    exit(2);
}

int main(int argc, char **argv)
{
    int option;
    int before = personality(0xffffffff);
    if (before >= 0 && !(before & ADDR_NO_RANDOMIZE) && !getenv("SIM_ADDRESSES") &&
        personality((unsigned long)before | ADDR_NO_RANDOMIZE) >= 0) {
        setenv("SIM_ADDRESSES", "fixed", 1);
        execv("/proc/self/exe", argv);
    }
    while ((option = getopt(argc, argv, "n:f:o:s:j:1:wtrq")) >= 0) {
        switch (option) {
        case 'n':
            arguments.seeds = strtoull(optarg, NULL, 10);
            break;
        case 'f':
            arguments.first = strtoull(optarg, NULL, 10);
            break;
        case 'o':
            arguments.operations = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case 's':
            arguments.store = sim_store(optarg);
            break;
        case 'j':
            arguments.jobs = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case '1':
            arguments.one = true;
            arguments.first = strtoull(optarg, NULL, 10);
            break;
        case 'w':
            arguments.faults = false;
            break;
        case 't':
            arguments.trace = true;
            break;
        case 'q':
            arguments.quiet = true;
            break;
        case 'r':
            arguments.sum = true;
            break;
        default:
            return 2;
        }
    }
    return arguments.one ? sim_one() : sim_many();
}
