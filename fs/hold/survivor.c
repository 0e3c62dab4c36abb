/* survivor: what is known of a handle lock whose daemon has ended; see survivor.h. */
#include "fs/hold/survivor.h"

#include "fs/kernel/tree.h"

static void survivor_clear_processes(GArray *processes)
{
    for (guint i = 0; i < processes->len; i++) {
        owner_unref(g_array_index(processes, struct openers_process, i).owner);
    }
    g_array_set_size(processes, 0);
}

void survivor_free(struct hold *hold)
{
    struct survivor *survivor = hold_survivor(hold);
    if (!survivor) {
        return;
    }
    hold->extra->survivor = NULL;
    survivor->fs->survivors->count--;
    survivor->fs->survivors->last_end = clock_now();
    LIST_REMOVE(survivor, link);
    openers_remove(survivor->file);
    survivor_clear_processes(survivor->processes);
    g_array_unref(survivor->processes);
    g_free(survivor);
}

void survivor_keep_resumers(struct hold *hold)
{
    struct survivor *survivor = hold_survivor(hold);
    hold->extra->resumers = survivor->processes;
    survivor->processes = g_array_new(FALSE, FALSE, sizeof(struct openers_process));
    survivor_free(hold);
}

void survivor_free_resumers(struct hold *hold)
{
    GArray *resumers = hold_resumers(hold);
    if (resumers) {
        survivor_clear_processes(resumers);
        g_array_unref(resumers);
    }
}

void survivor_set_processes(struct survivor *survivor, const struct openers_found *found)
{
    for (size_t i = 0; i < found->count; i++) {
        owner_ref(found->processes[i].owner); /* before that of the last time is given back */
    }
    survivor_clear_processes(survivor->processes);
    g_array_append_vals(survivor->processes, found->processes, (guint)found->count);
    survivor->unsure = found->verdict == OPENERS_UNSURE;
    survivor->walked = true;
}

bool survivor_is_only_of(const struct survivor *survivor, const struct owner *who)
{
    const struct openers_process *first = &g_array_index(survivor->processes, struct openers_process, 0);
    return survivor->processes->len == 1 && !first->unseen && first->single_threaded && first->owner == who;
}

bool survivor_allows_change(const struct survivor *survivor, struct owner *who, uid_t uid)
{
    if (uid != 0 && uid != survivor->hold->uid) {
        return false;
    }
    for (guint i = 0; i < survivor->processes->len; i++) {
        const struct openers_process *process = &g_array_index(survivor->processes, struct openers_process, i);
        bool holders = !process->unseen && process->uid == survivor->hold->uid;
        if (holders &&
            (process->owner == who || (owner_alive(process->owner) && owner_descends(who, process->owner)))) {
            return true;
        }
    }
    return false;
}

struct owner *survivor_process(const struct survivor *survivor)
{
    struct owner *taker = survivor->hold->owner, *seen = NULL, *unseen = NULL;
    for (guint i = survivor->processes->len; i-- > 0;) {
        const struct openers_process *process = &g_array_index(survivor->processes, struct openers_process, i);
        if (process->owner == taker) {
            return taker;
        }
        *(process->unseen ? &unseen : &seen) = process->owner;
    }
    return seen ? seen : unseen ? unseen : taker;
}

void survivor_set_wanted(struct survivor *survivor)
{
    struct openers *openers = survivor->fs->openers;
    survivor->wanted = true;
    if (openers && survivor->file) {
        openers_set_waited_for(openers, true);
        openers_ask(openers);
    }
}

void survivors_check(struct fs *fs, const struct node *node)
{
    const struct hold *hold = node ? LIST_FIRST(&node->holds) : NULL;
    if (LIST_EMPTY(&fs->survivors->list) || !fs->openers) {
        return;
    }
    while (hold && !hold_survivor(hold)) {
        hold = LIST_NEXT(hold, link);
    }
    if (!node || hold) {
        openers_ask(fs->openers);
    }
}
