/* opening: who is on the way from looking a name up to opening it; see ops/opening.h. */
#include "fs/ops/opening.h"

#include <glib.h>

#include "fs/fs.h"
#include "fs/kernel/tree.h"

/* How long a thread may take between the two, also on a busy machine.  One that was killed never opens. */
#define OPENING_MAX SECOND
/* How long it may take from ESTALE to the second look-up: that waits for the directory's lock, which a process that
 * makes a file may have while it waits for a provisional hold. */
#define OPENING_AGAIN_MAX (30 * SECOND)

struct opening {
    uint64_t node;      /* the kernel's number of what was found: a link changes st_ino */
    uint64_t directory; /* its st_ino, and … */
    guint name;         /* … the hash of the name in it that was found */
    clock_ms since;
    bool again;  /* its open returned ESTALE */
    bool looked; /* its stat of an ended name returned ESTALE */
};

struct openings {
    struct tree *tree;
    GHashTable *threads; /* thread id -> struct opening */
    clock_ms pruned;
};

struct openings *openings_new(struct tree *tree)
{
    struct openings *openings = g_new0(struct openings, 1);
    openings->tree = tree;
    openings->threads = g_hash_table_new_full(g_direct_hash, g_direct_equal, NULL, g_free);
    return openings;
}

void openings_free(struct openings *openings)
{
    g_hash_table_destroy(openings->threads);
    g_free(openings);
}

static struct opening *opening_of(const struct openings *openings, pid_t thread)
{
    return g_hash_table_lookup(openings->threads, GINT_TO_POINTER(thread));
}

static bool opening_is_of(const struct openings *openings, const struct opening *opening, const struct node *node)
{
    return opening->node == tree_id(openings->tree, node);
}

static gboolean opening_is_old(gpointer thread, gpointer value, gpointer now)
{
    const struct opening *opening = value;
    (void)thread;
    return *(const clock_ms *)now - opening->since >= OPENING_AGAIN_MAX;
}

static void openings_note(struct openings *openings, pid_t thread, const struct node *node, bool again, bool looked)
{
    struct opening *opening = g_new(struct opening, 1);
    clock_ms now = clock_now();
    if (now - openings->pruned >= OPENING_MAX) {
        openings->pruned = now;
        g_hash_table_foreach_remove(openings->threads, opening_is_old, &now);
    }
    *opening = (struct opening){.node = node ? tree_id(openings->tree, node) : 0,
                                .directory = node && node->parent ? node->parent->record->ino : 0,
                                .name = node ? g_str_hash(tree_name(node)) : 0,
                                .since = now,
                                .again = again,
                                .looked = looked};
    g_hash_table_replace(openings->threads, GINT_TO_POINTER(thread), opening);
}

void openings_note_lookup(struct openings *openings, pid_t thread, struct node *node)
{
    struct opening *before = opening_of(openings, thread);
    bool refused = before && (before->again || before->looked);
    if (node && (node->record->moved || refused)) {
        node->awaited = node->awaited || refused;
        openings_note(openings, thread, node, refused && before->again, refused && before->looked);
    } else if (refused) {
        before->again = false; /* nothing that a rename could take from it */
        before->looked = true;
        before->node = 0; /* the kernel asks twice: it may find the next one */
    } else if (before) {
        g_hash_table_remove(openings->threads, GINT_TO_POINTER(thread));
    }
}

bool openings_check_open(struct openings *openings, pid_t thread, struct node *node, bool gone)
{
    struct opening *opening = opening_of(openings, thread);
    bool found = opening && opening_is_of(openings, opening, node),
         refused = opening && (opening->again || opening->looked);
    if (refused) {
        opening->again = opening->looked = false;
        node->awaited = false;
    }
    return (!node->record->moved || found) && (!gone || (found && refused));
}

void openings_note_refusal(struct openings *openings, pid_t thread, const struct node *node)
{
    openings_note(openings, thread, node, true, false);
}

bool openings_check_look(struct openings *openings, pid_t thread, const struct node *node, clock_ms when)
{
    struct opening *before = opening_of(openings, thread);
    if (before && (before->again || before->looked) && opening_is_of(openings, before, node) &&
        when - before->since < OPENING_MAX) {
        return true;
    }
    openings_note(openings, thread, NULL, false, true);
    return false;
}

bool openings_has_thread(const struct openings *openings, pid_t thread)
{
    return opening_of(openings, thread) != NULL;
}

bool openings_is_expected(const struct openings *openings, const struct node *directory, const char *name)
{
    clock_ms now = clock_now();
    guint hash = g_str_hash(name);
    GHashTableIter iter;
    gpointer value;
    g_hash_table_iter_init(&iter, openings->threads);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        const struct opening *opening = value;
        if (opening->again && opening->directory == directory->record->ino && opening->name == hash &&
            now - opening->since < OPENING_MAX) {
            return true;
        }
    }
    return false;
}

static gboolean opening_is_for(gpointer thread, gpointer value, gpointer node)
{
    const struct opening *opening = value;
    (void)thread;
    return opening->node == *(const uint64_t *)node;
}

void openings_note_rename(struct openings *openings, struct node *node)
{
    uint64_t number = tree_id(openings->tree, node);
    node->record->moved = true;
    g_hash_table_foreach_remove(openings->threads, opening_is_for, &number);
}
