/* fake_openers: see fake_openers.h. */
#include "tests/message/fake_openers.h"

#include <ev.h>
#include <glib.h>

#include "fs/process/owner.h"
#include "tests/support/openers_files.h"

struct fake_opener {
    uint64_t inode; /* 0: it is hidden */
    pid_t pid;
    bool single_threaded;
    uid_t uid;
};

struct openers {
    struct owner_table *owners;
    GArray *open; /* struct fake_opener */
    GPtrArray *files;
    unsigned requested, walks;
    bool waited_for;
};

struct openers *fake_openers_new(struct owner_table *owners)
{
    struct openers *o = g_new0(struct openers, 1);
    o->owners = owners;
    o->open = g_array_new(FALSE, FALSE, sizeof(struct fake_opener));
    o->files = openers_files_new();
    return o;
}

void openers_free(struct openers *o)
{
    if (o) {
        g_array_free(o->open, TRUE);
        g_ptr_array_free(o->files, TRUE);
        g_free(o);
    }
}

void openers_set_own_device(struct openers *o, dev_t device)
{
    (void)o, (void)device;
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
    o->requested++;
}

bool openers_is_wanted(const struct openers *o)
{
    return o->requested > 0;
}

void openers_set_waited_for(struct openers *o, bool waited_for)
{
    o->waited_for = waited_for;
}

void openers_measure(const struct openers *o, struct openers_metrics *ret_metrics)
{
    *ret_metrics = (struct openers_metrics){.walks = o->walks, .last_ns = 1500000, .files = fake_openers_files(o)};
}

void fake_openers_open(struct openers *o, uint64_t inode, pid_t pid, bool single_threaded)
{
    struct fake_opener opener = {.inode = inode, .pid = pid, .single_threaded = single_threaded};
    g_array_append_val(o->open, opener);
}

void fake_openers_set_user(struct openers *o, pid_t pid, uid_t uid)
{
    for (guint i = 0; i < o->open->len; i++) {
        struct fake_opener *opener = &g_array_index(o->open, struct fake_opener, i);
        opener->uid = opener->pid == pid ? uid : opener->uid;
    }
}

void fake_openers_hide(struct openers *o, pid_t pid)
{
    fake_openers_open(o, 0, pid, true);
}

void fake_openers_close(struct openers *o, uint64_t inode, pid_t pid)
{
    for (guint i = 0; i < o->open->len; i++) {
        const struct fake_opener *opener = &g_array_index(o->open, struct fake_opener, i);
        if (opener->inode == inode && opener->pid == pid) {
            g_array_remove_index(o->open, i);
            return;
        }
    }
}

static bool fake_is_watched(const struct openers *o, uint64_t inode)
{
    for (guint i = 0; i < o->files->len; i++) {
        const struct openers_file *file = g_ptr_array_index(o->files, i);
        if (!file->removed && file->inode == inode) {
            return true;
        }
    }
    return false;
}

static bool fake_has_open(const struct openers *o, const struct fake_opener *opener, const struct openers_file *file)
{
    bool other = file->inode == OPENERS_OTHER && !fake_is_watched(o, opener->inode);
    return !opener->inode || opener->inode == file->inode || other;
}

static void fake_report(struct openers *o, struct openers_file *file)
{
    GArray *processes = g_array_new(FALSE, FALSE, sizeof(struct openers_process));
    for (guint i = 0; i < o->open->len; i++) {
        const struct fake_opener *opener = &g_array_index(o->open, struct fake_opener, i);
        if (fake_has_open(o, opener, file)) {
            struct openers_process process = {.owner = owner_get(o->owners, opener->pid),
                                              .uid = opener->uid,
                                              .single_threaded = opener->single_threaded,
                                              .unseen = !opener->inode};
            if (process.owner) {
                g_array_append_val(processes, process);
            }
        }
    }
    openers_files_report(file, processes, false, false);
}

void fake_openers_walk(struct openers *o)
{
    o->requested = 0;
    o->walks++;
    for (guint i = 0; i < o->files->len; i++) {
        struct openers_file *file = g_ptr_array_index(o->files, i);
        if (!file->removed) {
            fake_report(o, file);
        }
    }
}

unsigned fake_openers_requested(const struct openers *o)
{
    return o->requested;
}

bool fake_openers_is_waited_for(const struct openers *o)
{
    return o->waited_for;
}

unsigned fake_openers_files(const struct openers *o)
{
    unsigned count = 0;
    for (guint i = 0; i < o->files->len; i++) {
        count += !((const struct openers_file *)g_ptr_array_index(o->files, i))->removed;
    }
    return count;
}
