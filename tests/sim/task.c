/* task: the threads of simulated programs and daemons; see task.h. */
#include "tests/sim/task.h"

#include <errno.h>
#include <glib.h>
#include <pthread.h>
#include <stdlib.h>
#include <ucontext.h>

#define TASK_STACK (128 << 10)

struct task {
    ucontext_t context;
    void *stack;
    struct host *host;
    const bool *halted;
    void (*run)(void *arg);
    void *arg;
    const void *awaits; /* a condition variable */
    bool ready, done;
};

static struct {
    GPtrArray *all, *ready, *stacks;
    struct task *current;
    ucontext_t world;
    struct task_maker maker;
    const void *world_awaits; /* the condition variable that a loop's own thread waits for */
} tasks;

static void task_main(void)
{
    struct task *task = tasks.current;
    task->run(task->arg);
    task->done = true;
    for (;;) {
        swapcontext(&task->context, &tasks.world);
    }
}

struct task *task_new(struct host *host, const bool *halted, void (*run)(void *arg), void *arg)
{
    struct task *task = g_new0(struct task, 1);
    if (!tasks.all) {
        tasks.all = g_ptr_array_new();
        tasks.ready = g_ptr_array_new();
        tasks.stacks = g_ptr_array_new();
    }
    task->host = host;
    task->halted = halted;
    task->run = run;
    task->arg = arg;
    task->stack =
        tasks.stacks->len ? g_ptr_array_remove_index(tasks.stacks, tasks.stacks->len - 1) : malloc(TASK_STACK);
    getcontext(&task->context);
    task->context.uc_stack.ss_sp = task->stack;
    task->context.uc_stack.ss_size = TASK_STACK;
    task->context.uc_link = NULL;
    makecontext(&task->context, task_main, 0);
    g_ptr_array_add(tasks.all, task);
    task->ready = true;
    return task;
}

void task_free(struct task *task)
{
    g_ptr_array_remove(tasks.all, task);
    g_ptr_array_add(tasks.stacks, task->stack);
    g_free(task);
}

struct task *task_current(void)
{
    return tasks.current;
}

void task_wait(void)
{
    struct task *task = tasks.current;
    if (!task->ready) {
        swapcontext(&task->context, &tasks.world);
    }
    task->ready = false;
}

static void task_slept(void *arg)
{
    task_wake(arg);
}

void task_sleep(int64_t duration)
{
    int64_t until = world_now() + duration;
    world_at(until, task_slept, tasks.current);
    while (world_now() < until) {
        task_wait();
    }
}

void task_wake(struct task *task)
{
    if (task) {
        task->ready = true;
    }
}

static bool task_can_run(const struct task *task)
{
    return task->ready && !task->done && !(task->halted && *task->halted) && !(task->host && task->host->suspended);
}

size_t task_ready_count(void)
{
    if (!tasks.all) {
        return 0;
    }
    g_ptr_array_set_size(tasks.ready, 0);
    for (guint i = 0; i < tasks.all->len; i++) {
        if (task_can_run(g_ptr_array_index(tasks.all, i))) {
            g_ptr_array_add(tasks.ready, g_ptr_array_index(tasks.all, i));
        }
    }
    return tasks.ready->len;
}

static void task_run(struct task *task)
{
    struct task *former = tasks.current;
    struct host *host = world_enter(task->host);
    tasks.current = task;
    task->ready = false;
    swapcontext(&tasks.world, &task->context);
    tasks.current = former;
    world_enter(host);
}

void task_run_ready(size_t which)
{
    task_run(g_ptr_array_index(tasks.ready, which));
}

/* --- threads of a daemon ----------------------------------------------------------- */

struct task_maker task_set_maker(struct task_maker maker)
{
    struct task_maker former = tasks.maker;
    tasks.maker = maker;
    return former;
}

/* In place of pthread_ and g_thread_. */
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *arg);
int __wrap_pthread_join(pthread_t thread, void **ret);
int __wrap_pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes);
int __wrap_pthread_mutex_destroy(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex);
int __wrap_pthread_cond_init(pthread_cond_t *condition, const pthread_condattr_t *attributes);
int __wrap_pthread_cond_destroy(pthread_cond_t *condition);
int __wrap_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex);
int __wrap_pthread_cond_signal(pthread_cond_t *condition);
int __wrap_pthread_cond_broadcast(pthread_cond_t *condition);
int __wrap_pthread_sigmask(int how, const sigset_t *set, sigset_t *old);
GThread *__wrap_g_thread_new(const char *name, GThreadFunc run, gpointer arg);
gpointer __wrap_g_thread_join(GThread *thread);

static struct task *task_of_thread(void *(*run)(void *), void *arg)
{
    return task_new(tasks.maker.host, tasks.maker.halted, (void (*)(void *))(void (*)(void))run, arg);
}

/* The caller may be the loop's own thread: then the world goes on meanwhile. */
static void task_let_others_run(void)
{
    if (tasks.current) {
        task_wait();
    } else if (!world_step(WORLD_NEVER - 1)) {
        world_fail("hang", "a daemon waits for a thread that will never do it");
    }
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *arg)
{
    (void)attributes;
    *thread = (pthread_t)task_of_thread(run, arg);
    return 0;
}

int __wrap_pthread_join(pthread_t thread, void **ret)
{
    struct task *task = (struct task *)thread;
    (void)ret;
    while (!task->done) {
        task_let_others_run();
    }
    task_free(task);
    return 0;
}

GThread *__wrap_g_thread_new(const char *name, GThreadFunc run, gpointer arg)
{
    (void)name;
    return (GThread *)task_of_thread(run, arg);
}

gpointer __wrap_g_thread_join(GThread *thread)
{
    __wrap_pthread_join((pthread_t)thread, NULL);
    return NULL;
}

/* One thread runs at a time, and none gives way while it has a mutex, but by waiting for a condition. */
int __wrap_pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes)
{
    (void)mutex, (void)attributes;
    return 0;
}

int __wrap_pthread_mutex_destroy(pthread_mutex_t *mutex)
{
    (void)mutex;
    return 0;
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
    (void)mutex;
    return 0;
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    (void)mutex;
    return 0;
}

int __wrap_pthread_cond_init(pthread_cond_t *condition, const pthread_condattr_t *attributes)
{
    (void)condition, (void)attributes;
    return 0;
}

int __wrap_pthread_cond_destroy(pthread_cond_t *condition)
{
    (void)condition;
    return 0;
}

int __wrap_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex)
{
    (void)mutex;
    struct task *task = tasks.current;
    if (task) {
        task->awaits = condition;
        while (task->awaits) {
            task_wait();
        }
        return 0;
    }
    tasks.world_awaits = condition;
    while (tasks.world_awaits) {
        task_let_others_run();
    }
    return 0;
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *condition)
{
    for (guint i = 0; tasks.all && i < tasks.all->len; i++) {
        struct task *task = g_ptr_array_index(tasks.all, i);
        if (task->awaits == condition) {
            task->awaits = NULL;
            task_wake(task);
        }
    }
    if (tasks.world_awaits == condition) {
        tasks.world_awaits = NULL;
    }
    return 0;
}

int __wrap_pthread_cond_signal(pthread_cond_t *condition)
{
    return __wrap_pthread_cond_broadcast(condition); /* a wake-up without a reason is allowed */
}

int __wrap_pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
    (void)how, (void)set, (void)old;
    return 0;
}
