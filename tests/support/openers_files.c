/* openers_files: see openers_files.h. */
#include "tests/support/openers_files.h"

#include <ev.h>

#include "fs/process/owner.h"

GPtrArray *openers_files_new(void)
{
    return g_ptr_array_new_with_free_func(g_free);
}

struct openers_file *openers_files_add(GPtrArray *files, dev_t device, ino_t inode, openers_callback *callback,
                                       void *arg)
{
    struct openers_file *file = g_new0(struct openers_file, 1);
    *file = (struct openers_file){.device = device, .inode = inode, .callback = callback, .arg = arg};
    g_ptr_array_add(files, file);
    return file;
}

void openers_remove(struct openers_file *file)
{
    if (file) {
        file->removed = true;
    }
}

void openers_files_report(struct openers_file *file, GArray *processes, bool unsure, bool closed)
{
    file->empty = processes->len || unsure ? 0 : file->empty + 1;
    struct openers_found found = {
        .verdict = file->empty > 1 || closed ? OPENERS_NOBODY
                   : processes->len          ? OPENERS_SOME
                                             : OPENERS_UNSURE,
        .processes = (const struct openers_process *)(const void *)processes->data,
        .count = processes->len,
    };
    file->callback(file, &found, file->arg);
    for (guint i = 0; i < processes->len; i++) {
        owner_unref(g_array_index(processes, struct openers_process, i).owner);
    }
    g_array_free(processes, TRUE);
}
