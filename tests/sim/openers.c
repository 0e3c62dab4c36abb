/* openers: finds the simulated programs that have files of a dead mount open (in place of fs/process/openers.c).
 *
 * A walk sees the descriptors of all processes of the host; in every other pair of walks one process in some cannot be
 * looked into.  It walks four times a second, because ends of processes are not reported.  So within a second or two it
 * sees twice that nobody has a file open.
 */
#include <ev.h>
#include <glib.h>

#include "fs/process/openers.h"
#include "fs/process/owner.h"
#include "tests/sim/kernel.h"
#include "tests/sim/process.h"
#include "tests/sim/vfs.h"
#include "tests/support/openers_files.h"

#define OPENERS_TOGETHER 0.1 /* seconds from a question to the walk */
#define OPENERS_PAUSE 0.25
#define OPENERS_UNSEEN 8 /* one process in so many cannot be looked into */

struct openers {
    struct ev_loop *loop;
    struct owner_table *owners;
    const struct host *host;
    dev_t own_device;
    ev_timer timer;
    GPtrArray *files;
    uint64_t walks;
    bool requested;
};

static unsigned openers_threads(const struct process *process)
{
    unsigned count = 0;
    for (unsigned i = 0; i < PROCESS_THREADS; i++) {
        count += process->threads[i] != NULL;
    }
    return count;
}

static bool openers_has(const struct process *process, const struct openers_file *file)
{
    for (unsigned i = 0; i < PROCESS_DESCRIPTORS; i++) {
        const struct kernel_file *open = process->files[i];
        if (open && kernel_device(open->kernel) == file->device && open->node->ino == file->inode) {
            return true;
        }
    }
    return false;
}

static void openers_judge(struct openers *o, struct openers_file *file)
{
    GArray *found = g_array_new(FALSE, FALSE, sizeof(struct openers_process));
    const struct process *process;
    bool complete = true;
    for (size_t i = 0; (process = process_nth(i)); i++) {
        if (process->host != o->host || process->state >= PROCESS_ZOMBIE) {
            continue;
        }
        bool unseen = o->walks % 4 < 2 && world_between(1, OPENERS_UNSEEN) == 1;
        if (!unseen && !openers_has(process, file)) {
            continue;
        }
        struct openers_process one = {.owner = owner_get(o->owners, process->pid),
                                      .uid = process->uid,
                                      .single_threaded = openers_threads(process) == 1,
                                      .unseen = unseen};
        complete = complete && one.owner;
        if (one.owner) {
            g_array_append_val(found, one);
        }
    }
    openers_files_report(file, found, !complete, file->device == o->own_device);
}

static void openers_walk(struct ev_loop *loop, ev_timer *timer, int events)
{
    struct openers *o = timer->data;
    (void)loop, (void)events;
    o->requested = false;
    o->walks++;
    for (guint i = 0; i < o->files->len; i++) {
        struct openers_file *file = g_ptr_array_index(o->files, i);
        if (!file->removed) {
            openers_judge(o, file);
        }
    }
    for (guint i = o->files->len; i-- > 0;) {
        if (((struct openers_file *)g_ptr_array_index(o->files, i))->removed) {
            g_ptr_array_remove_index(o->files, i);
        }
    }
    if (o->files->len) {
        ev_timer_stop(o->loop, &o->timer);
        ev_timer_set(&o->timer, o->requested ? OPENERS_TOGETHER : OPENERS_PAUSE, 0);
        ev_timer_start(o->loop, &o->timer);
    }
}

struct openers *openers_new(struct ev_loop *loop, struct owner_table *owners, int socket)
{
    struct openers *o = g_new0(struct openers, 1);
    (void)socket;
    o->loop = loop;
    o->owners = owners;
    o->host = world_host();
    o->files = openers_files_new();
    ev_timer_init(&o->timer, openers_walk, 0, 0);
    o->timer.data = o;
    return o;
}

void openers_free(struct openers *o)
{
    if (o) {
        ev_timer_stop(o->loop, &o->timer);
        g_ptr_array_free(o->files, TRUE);
        g_free(o);
    }
}

void openers_set_own_device(struct openers *o, dev_t device)
{
    o->own_device = device;
}

struct openers_file *openers_add(struct openers *o, dev_t device, ino_t inode, struct owner *opener, bool hidden,
                                 openers_callback *callback, void *arg)
{
    (void)opener, (void)hidden;
    openers_ask(o);
    return openers_files_add(o->files, device, inode, callback, arg);
}

void openers_ask(struct openers *o)
{
    o->requested = true;
    if (!ev_is_active(&o->timer)) {
        ev_timer_set(&o->timer, OPENERS_TOGETHER, 0);
        ev_timer_start(o->loop, &o->timer);
    }
}

bool openers_is_wanted(const struct openers *o)
{
    return o->requested;
}

void openers_set_waited_for(struct openers *o, bool waited_for)
{
    (void)o, (void)waited_for;
}

void openers_measure(const struct openers *o, struct openers_metrics *ret_metrics)
{
    *ret_metrics = (struct openers_metrics){.walks = o->walks, .files = o->files->len};
}
