/* verdict: acts on what a walk through the processes found of surviving locks; see survivor.h.
 *
 * A walk reports one file after the other.  verdict_settle, called from the loop, does once
 * what concerns several of them.
 */
#include <errno.h>
#include <string.h>

#include "backend/log.h"
#include "fs/hold/survivor.h"
#include "fs/kernel/tree.h"

#define VERDICT_RETRY (SECOND / 10)   /* between two looks whether a walk is over */
#define VERDICT_WALK_MAX (SECOND * 2) /* a request that was refused waits no longer for a walk */

/* A question to the store: about a request that waits, or about the waiters for a survivor. */
struct survivor_question {
    LIST_ENTRY(survivor_question) link;
    struct fs *fs;
    struct request *r; /* counted, or NULL */
    struct hold *hold; /* counted, or NULL */
};

static void question_ask(struct fs *fs, const struct node *node, struct request *r, struct hold *hold,
                         backend_info_done *answer)
{
    char path[TREE_PATH_MAX];
    if (tree_path(node, path, sizeof path)) {
        struct survivor_question *question = g_new(struct survivor_question, 1);
        *question =
            (struct survivor_question){.fs = fs, .r = r ? request_ref(r) : NULL, .hold = hold ? hold_ref(hold) : NULL};
        LIST_INSERT_HEAD(&fs->survivors->questions, question, link);
        backend_stat(fs->backend, path, answer, question);
    }
}

static void question_free(struct survivor_question *question)
{
    LIST_REMOVE(question, link);
    if (question->r) {
        request_unref(question->r);
    }
    if (question->hold) {
        hold_unref(question->fs, question->hold);
    }
    g_free(question);
}

/* --- waiting for oneself --------------------------------------------------------- */

/* Is all that holds the name here a surviving lock of this process alone?  Sets how many hold. */
static bool verdict_is_only_of(const struct node *node, const struct owner *who, uint32_t *ret_holders)
{
    const struct hold *hold;
    *ret_holders = 0;
    LIST_FOREACH(hold, &node->holds, link) {
        const struct survivor *survivor = hold_survivor(hold);
        if (hold_holds(hold) && (!survivor || !survivor_is_only_of(survivor, who))) {
            return false;
        }
        *ret_holders += hold_holds(hold);
    }
    return *ret_holders > 0;
}

static bool verdict_waits_for_itself(struct request *r, uint32_t *ret_holders)
{
    return r->req && r->queue && r->queued && request_caller(r) &&
           verdict_is_only_of(tree_current_node(r->fs->tree, r->node), request_caller(r), ret_holders);
}

/* Another mount may hold it, too: then the wait can end. */
static void verdict_on_holders(void *arg, enum backend_result result, const struct backend_info *info)
{
    struct survivor_question *question = arg;
    struct request *r = question->r;
    uint32_t here;
    if (result == BACKEND_OK && verdict_waits_for_itself(r, &here) && info->holders <= here) {
        r->deadlocked = true;
        request_unpark(r);
        r->cancel(r);
    }
    question_free(question);
}

/* A walk that began before the request may have seen a descriptor that its process has closed since: the next one
 * decides. */
static bool verdict_is_later(struct request *r)
{
    bool later = r->walk_since;
    if (!later) {
        r->walk_since = clock_now();
        openers_ask(r->fs->openers);
    }
    return later;
}

static void verdict_find_deadlocks(const struct node *node, GPtrArray *found)
{
    const struct hold *hold;
    struct request *r;
    uint32_t here;
    LIST_FOREACH(hold, &node->waiting, link) {
        for (r = hold_first_parked(hold); r; r = TAILQ_NEXT(r, parked)) {
            if (verdict_waits_for_itself(r, &here) && verdict_is_later(r) && !g_ptr_array_find(found, r, NULL)) {
                g_ptr_array_add(found, request_ref(r));
            }
        }
    }
}

static void verdict_end_deadlocks(struct fs *fs)
{
    GPtrArray *found = g_ptr_array_new();
    const struct survivor *survivor;
    LIST_FOREACH(survivor, &fs->survivors->list, link) {
        verdict_find_deadlocks(survivor->hold->node, found);
    }
    for (guint i = 0; i < found->len; i++) {
        struct request *r = g_ptr_array_index(found, i);
        question_ask(fs, r->node, r, NULL, verdict_on_holders);
        request_unref(r);
    }
    g_ptr_array_free(found, TRUE);
}

/* --- who waits ------------------------------------------------------------------------ */

static void verdict_set_waited_for(struct fs *fs)
{
    const struct survivor *survivor;
    bool wanted = false;
    LIST_FOREACH(survivor, &fs->survivors->list, link) {
        wanted = wanted || (survivor->wanted && survivor->file);
    }
    openers_set_waited_for(fs->openers, wanted);
}

static void verdict_on_waiters(void *arg, enum backend_result result, const struct backend_info *info)
{
    struct survivor_question *question = arg;
    struct survivor *survivor = hold_survivor(question->hold);
    if (result == BACKEND_OK && survivor) {
        survivor->wanted = info->waiters > 0;
        verdict_set_waited_for(question->fs);
    }
    question_free(question);
}

/* The store does not say when somebody gives up waiting. */
static void verdict_count_waiters(struct fs *fs)
{
    GPtrArray *wanted = g_ptr_array_new();
    const struct survivor *survivor;
    LIST_FOREACH(survivor, &fs->survivors->list, link) {
        if (survivor->wanted) {
            g_ptr_array_add(wanted, hold_ref(survivor->hold));
        }
    }
    for (guint i = 0; i < wanted->len; i++) {
        struct hold *hold = g_ptr_array_index(wanted, i);
        question_ask(fs, hold->node, NULL, hold, verdict_on_waiters);
        hold_unref(fs, hold);
    }
    g_ptr_array_free(wanted, TRUE);
    verdict_set_waited_for(fs);
}

/* --- after a walk ------------------------------------------------------------------- */

static bool verdict_is_unsure(const struct node *node)
{
    const struct hold *hold;
    LIST_FOREACH(hold, &node->holds, link) {
        const struct survivor *survivor = hold_survivor(hold);
        if (survivor && survivor->file && (survivor->unsure || !survivor->walked)) {
            return true;
        }
    }
    return false;
}

static void verdict_resume_asking(struct fs *fs)
{
    struct request_queue asking;
    struct request *r;
    clock_ms now = clock_now();
    bool pending = openers_is_wanted(fs->openers);
    TAILQ_INIT(&asking);
    TAILQ_CONCAT(&asking, &fs->survivors->asking, parked);
    TAILQ_FOREACH(r, &asking, parked) {
        r->queue = &asking; /* one that is resumed may end another */
    }
    while ((r = TAILQ_FIRST(&asking))) {
        bool ready = !pending && !verdict_is_unsure(tree_current_node(fs->tree, r->node));
        if (ready || now - r->walk_since >= VERDICT_WALK_MAX) {
            request_resume(r, BACKEND_OK);
        } else {
            TAILQ_REMOVE(&asking, r, parked);
            TAILQ_INSERT_TAIL(&fs->survivors->asking, r, parked);
            r->queue = &fs->survivors->asking;
        }
    }
}

static void verdict_schedule(struct fs *fs, int64_t ms)
{
    ev_timer *settle = &fs->survivors->settle;
    if (!ev_is_active(settle) || ms == 0) {
        ev_timer_stop(fs->loop, settle);
        ev_timer_set(settle, (double)ms / 1000, 0);
        ev_timer_start(fs->loop, settle);
    }
}

static void verdict_settle(struct ev_loop *loop, ev_timer *timer, int events)
{
    struct fs *fs = timer->data;
    (void)loop;
    (void)events;
    verdict_resume_asking(fs);
    if (!openers_is_wanted(fs->openers)) {
        verdict_end_deadlocks(fs);
    }
    verdict_count_waiters(fs);
    if (!TAILQ_EMPTY(&fs->survivors->asking)) {
        verdict_schedule(fs, VERDICT_RETRY);
    }
}

#define VERDICT_NAME 512

void survivor_log(const struct survivor *survivor, const char *what)
{
    char path[TREE_PATH_MAX], name[VERDICT_NAME], command[OWNER_COMMAND_MAX * 4];
    const struct hold *hold = survivor->hold;
    struct owner *owner = hold->owner;
    log_escape(name, sizeof name, tree_path(hold->node, path, sizeof path) ? path : "?");
    log_info("%s: the %s of process %d (%s) on %s, uid %u, %s", name,
             hold->sequence                ? "ticket"
             : hold->kind == BACKEND_FLOCK ? "flock"
                                           : "record lock",
             owner ? owner_pid(owner) : 0, log_escape(command, sizeof command, owner ? owner_command(owner) : "?"),
             survivor->fs->host, hold->uid, what);
}

static void verdict_found(struct openers_file *file, const struct openers_found *found, void *arg)
{
    struct survivor *survivor = arg;
    struct fs *fs = survivor->fs;
    (void)file;
    survivor_set_processes(survivor, found);
    verdict_schedule(fs, 0);
    if (found->verdict == OPENERS_NOBODY) {
        survivor_log(survivor, "which survived its daemon, is released: no process has its file open any more");
        hold_release(fs, survivor->hold, NULL, NULL);
    }
}

/* --- beginning and ending ------------------------------------------------------------- */

#define VERDICT_LOGGED_MAX 100 /* of these the log names each */

void survivor_new(struct fs *fs, struct hold *hold, dev_t device, uint64_t inode, struct owner *opener)
{
    struct survivor *survivor = g_new0(struct survivor, 1);
    *survivor = (struct survivor){
        .fs = fs, .hold = hold, .device = device, .inode = inode, .wanted = true, /* by another mount, perhaps */
    };
    survivor->processes = g_array_new(FALSE, FALSE, sizeof(struct openers_process));
    hold_extra(hold)->survivor = survivor;
    LIST_INSERT_HEAD(&fs->survivors->list, survivor, link);
    fs->survivors->count++;
    bool known = device && inode;
    survivor->inode = known ? inode : 0;
    if (known && fs->openers) {
        survivor->file = openers_add(fs->openers, device, inode, opener, !opener, verdict_found, survivor);
    }
    if (fs->survivors->count <= VERDICT_LOGGED_MAX) {
        survivor_log(survivor, known ? "survives its daemon: it stays until no process has its file open"
                                     : "has survived its daemon, but its file is not known: it ends with its term");
    }
}

bool survivors_await_walk(struct request *r, request_step *again)
{
    struct fs *fs = r->fs;
    const struct hold *hold;
    bool found = false;
    bool ended = clock_now() - fs->survivors->last_end < VERDICT_WALK_MAX;
    if (r->walk_since || !fs->openers || (LIST_EMPTY(&fs->survivors->list) && !ended)) {
        return false;
    }
    LIST_FOREACH(hold, &tree_current_node(fs->tree, r->node)->holds, link) {
        const struct survivor *survivor = hold_survivor(hold);
        found = found || (survivor && survivor->file);
    }
    if (!found && !ended) {
        return false;
    }
    r->walk_since = clock_now();
    if (!found) {
        again(r);
        return true;
    }
    openers_ask(fs->openers);
    request_park(r, &fs->survivors->asking, again, request_reply_interrupted);
    verdict_schedule(fs, VERDICT_RETRY);
    return true;
}

struct survivors *survivors_new(struct fs *fs)
{
    struct survivors *survivors = g_new0(struct survivors, 1);
    TAILQ_INIT(&survivors->asking);
    survivors->last_end = -VERDICT_WALK_MAX; /* none */
    ev_timer_init(&survivors->settle, verdict_settle, 0, 0);
    survivors->settle.data = fs;
    return survivors;
}

void survivors_stop(struct fs *fs)
{
    ev_timer_stop(fs->loop, &fs->survivors->settle);
    while (!LIST_EMPTY(&fs->survivors->questions)) {
        question_free(LIST_FIRST(&fs->survivors->questions));
    }
}

void survivors_free(struct fs *fs)
{
    g_clear_pointer(&fs->survivors, g_free);
}
