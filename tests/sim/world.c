/* world: time, chance, and the choice of the next event; see world.h. */
#include "tests/sim/world.h"

#include <glib.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/loop.h"
#include "tests/sim/task.h"

struct world_event {
    int64_t when;
    uint64_t number;
    void (*then)(void *arg);
    void *arg;
};

static struct {
    int64_t now;
    uint64_t random;
    uint64_t steps;
    uint64_t number;
    uint64_t sum;
    bool hushed;
    FILE *trace;
    struct host *host;
    GArray *events; /* a heap */
    GPtrArray *loops;
} world;

void world_begin(uint64_t seed)
{
    world.random = seed * 0x9e3779b97f4a7c15u + 0x632be59bd9b4e019u;
    world.sum = 0xcbf29ce484222325u;
    world.events = g_array_new(FALSE, FALSE, sizeof(struct world_event));
    world.loops = g_ptr_array_new();
}

/* --- the trace ---------------------------------------------------------------- */

void world_trace_to(void *file)
{
    world.trace = file;
}

void world_hush(void)
{
    world.hushed = true;
}

uint64_t world_trace_sum(void)
{
    return world.sum;
}

static void world_add_to_sum(const void *data, size_t size)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < size; i++) {
        world.sum = (world.sum ^ bytes[i]) * 0x100000001b3u;
    }
}

void world_trace(const char *format, ...)
{
    char line[1024];
    va_list arguments;
    if (world.hushed) {
        return;
    }
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    world_add_to_sum(&world.now, sizeof world.now);
    world_add_to_sum(line, (size_t)MIN(length, (int)sizeof line - 1));
    if (world.trace) {
        fprintf(world.trace, "%12.6f %s\n", (double)world.now / 1e9, line);
    }
}

void world_fail(const char *rule, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("%s: ", rule);
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
    fflush(stdout);
    if (world.trace) {
        fflush(world.trace);
    }
    _Exit(3);
}

/* --- time ---------------------------------------------------------------------- */

int64_t world_now(void)
{
    return world.now;
}

int64_t host_boottime(const struct host *host)
{
    return host->boot + world.now + world.now / 1000000 * host->rate;
}

int64_t host_monotonic(const struct host *host)
{
    return host_boottime(host) - host->asleep;
}

int64_t host_realtime(const struct host *host)
{
    return host_boottime(host) + host->wall;
}

int64_t host_boottime_at(const struct host *host, int64_t boottime)
{
    int64_t passed = boottime - host->boot;
    return passed - passed / (1000000 + host->rate) * host->rate + 10 * WORLD_US;
}

int64_t host_monotonic_at(const struct host *host, int64_t monotonic)
{
    return host_boottime_at(host, monotonic + host->asleep);
}

struct host *world_host(void)
{
    return world.host;
}

struct host *world_enter(struct host *host)
{
    struct host *former = world.host;
    world.host = host;
    return former;
}

static bool world_is_before(const struct world_event *a, const struct world_event *b)
{
    return a->when != b->when ? a->when < b->when : a->number < b->number;
}

void world_at(int64_t when, void (*then)(void *arg), void *arg)
{
    struct world_event event = {MAX(when, world.now), ++world.number, then, arg};
    g_array_append_val(world.events, event);
    struct world_event *heap = (void *)world.events->data;
    guint at = world.events->len - 1;
    for (; at > 0 && world_is_before(&event, &heap[(at - 1) / 2]); at = (at - 1) / 2) {
        heap[at] = heap[(at - 1) / 2];
    }
    heap[at] = event;
}

void world_after(int64_t delay, void (*then)(void *arg), void *arg)
{
    world_at(world.now + delay, then, arg);
}

static struct world_event world_pop(void)
{
    struct world_event *heap = (void *)world.events->data, first = heap[0];
    guint count = world.events->len - 1, at = 0;
    struct world_event last = heap[count];
    g_array_set_size(world.events, count);
    for (;;) {
        guint child = 2 * at + 1;
        if (child + 1 < count && world_is_before(&heap[child + 1], &heap[child])) {
            child++;
        }
        if (child >= count || !world_is_before(&heap[child], &last)) {
            break;
        }
        heap[at] = heap[child];
        at = child;
    }
    if (count) {
        heap[at] = last;
    }
    return first;
}

/* --- chance --------------------------------------------------------------------- */

/* splitmix64 */
uint64_t world_random(void)
{
    uint64_t x = world.random += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint32_t world_below(uint32_t bound)
{
    return (uint32_t)(((world_random() >> 32) * bound) >> 32);
}

int64_t world_between(int64_t least, int64_t most)
{
    return least + (int64_t)(world_random() % (uint64_t)(most - least + 1));
}

bool world_chance(unsigned permille)
{
    return world_below(1000) < permille;
}

/* --- what runs -------------------------------------------------------------------- */

void world_add_loop(struct ev_loop *loop)
{
    g_ptr_array_add(world.loops, loop);
}

void world_remove_loop(struct ev_loop *loop)
{
    g_ptr_array_remove(world.loops, loop);
}

uint64_t world_steps(void)
{
    return world.steps;
}

static bool world_run_something(void)
{
    static struct ev_loop *ready[64];
    size_t loops = 0, tasks = task_ready_count();
    for (guint i = 0; i < world.loops->len && loops < G_N_ELEMENTS(ready); i++) {
        struct ev_loop *loop = g_ptr_array_index(world.loops, i);
        if (loop_has_work(loop)) {
            ready[loops++] = loop;
        }
    }
    if (tasks + loops == 0) {
        return false;
    }
    size_t chosen = tasks + loops == 1 ? 0 : world_below((uint32_t)(tasks + loops));
    if (chosen < tasks) {
        task_run_ready(chosen);
    } else {
        loop_turn(ready[chosen - tasks]);
    }
    world.now += (int64_t)(1 + world_below(20)) * WORLD_US;
    return true;
}

bool world_step(int64_t until)
{
    world.steps++;
    struct world_event *first = world.events->len ? &g_array_index(world.events, struct world_event, 0) : NULL;
    if (first && first->when <= world.now) {
        struct world_event event = world_pop();
        event.then(event.arg);
        return true;
    }
    if (world_run_something()) {
        return true;
    }
    int64_t next = first ? first->when : WORLD_NEVER;
    for (guint i = 0; i < world.loops->len; i++) {
        const struct ev_loop *loop = g_ptr_array_index(world.loops, i);
        int64_t at = loop_next(loop);
        if (at > world.now || !loop_is_running(loop)) { /* else it has work, but another daemon began inside of it */
            next = MIN(next, at);
        }
    }
    if (next > until) {
        return false;
    }
    world.now = MAX(next, world.now + 1);
    return true;
}

void world_run(int64_t until)
{
    while (world.now < until && world_step(until)) {
    }
    world.now = MAX(world.now, until);
}
