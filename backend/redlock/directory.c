/* directory: makes, removes, changes and restores directories.
 *
 * A directory exists if a majority of the servers has it.  When a server comes back, this mount gives it the
 * directories that it has seen.  It reads each first, because another mount may have changed it, and once more if it
 * changes the directory itself before all servers have answered.
 */
#include <stdio.h>
#include <string.h>

#include "backend/redlock/private.h"

/* --- requests --- */

static void directory_fill(struct redlock *r, const char *name, const char *what, const struct remote_directory *d)
{
    const char *leaf;
    char *parent = remote_parent(name, &leaf);
    redlock_poll_key(r, 'D', name);
    redlock_poll_key(r, 'L', name);
    redlock_poll_key(r, 0, name);
    redlock_poll_key(r, 'D', parent);
    redlock_poll_key(r, 0, parent);
    redlock_poll_key(r, 'L', parent);
    redlock_poll_key(r, 'G', name);
    redlock_poll_text(r, what);
    redlock_poll_text(r, d->mark);
    redlock_poll_text(r, leaf);
    redlock_poll_text(r, !*name ? "" : *parent ? "1" : "0");
    redlock_poll_number(r, d->attributes.ttl);
    redlock_poll_number(r, d->revision);
    redlock_poll_bytes(r, d->attributes.meta);
    g_free(parent);
}

static struct remote_directory *directory_of(const struct redlock_flow *flow)
{
    return remote_directory_cache_find(&flow->r->remote, flow->name);
}

static void directory_answer(struct redlock_flow *flow, enum backend_result result)
{
    struct remote_request *request = flow->request;
    redlock_flow_end(flow, true);
    remote_request_answer(request, result, 0);
}

static void directory_restore(struct redlock_flow *flow)
{
    const struct remote_directory *d = directory_of(flow);
    if (d) {
        directory_fill(flow->r, flow->name, "make", d);
        redlock_poll_send(flow->r, NULL, REDLOCK_DIRECTORY, flow->r->remote.timeout);
    }
}

static void directory_look(struct redlock_flow *flow);

/* Takes over what another mount has changed or removed.  Without a majority the directory stays as it is known here. */
static void directory_on_read(struct redlock_flow *flow)
{
    const char *word;
    enum vote_verdict verdict = redlock_query_verdict(flow, "nothing", &word);
    if (verdict == VOTE_OPEN) {
        return;
    }
    if (flow->restore.outdated) {
        directory_look(flow);
        return;
    }
    if (verdict == VOTE_WON && strcmp(word, "directory") == 0) {
        struct backend_directory newest;
        redlock_query_note_directory(flow, word, &newest);
        g_bytes_unref(newest.meta);
    } else if (verdict != VOTE_AWAY) {
        remote_directory_cache_remove(&flow->r->remote, flow->name);
    }
    directory_restore(flow);
    redlock_flow_end(flow, true);
}

static void directory_look(struct redlock_flow *flow)
{
    flow->restore.outdated = false;
    redlock_query_fill(flow->r, flow->name);
    redlock_flow_poll(flow, REDLOCK_LOOK, flow->r->remote.timeout, directory_on_read);
}

/* A change is sent now: reads that were sent before will not have it. */
static void directory_outdate_reads(const struct redlock_flow *change)
{
    struct redlock_flow *flow;
    LIST_FOREACH(flow, &change->r->flows, link) {
        if (flow->on_answer == directory_on_read && strcmp(flow->name, change->name) == 0) {
            flow->restore.outdated = true;
        }
    }
}

void redlock_directory_restore_all(struct redlock *r)
{
    GHashTableIter each;
    gpointer name;
    g_hash_table_iter_init(&each, r->remote.directories);
    while (g_hash_table_iter_next(&each, &name, NULL)) {
        directory_look(redlock_flow_new(r, NULL, name));
    }
}

/* Undoes what the flow's poll has made or removed. */
static void directory_undo(struct redlock_flow *flow)
{
    const struct remote_directory d = {.mark = flow->directory.id};
    redlock_poll_forget(flow->poll);
    directory_fill(flow->r, flow->name, "undo", &d);
    redlock_poll_send(flow->r, NULL, REDLOCK_DIRECTORY, REDLOCK_RELEASE_TIME);
}

static void directory_repeat_later(struct redlock_flow *flow, void (*repeat)(struct redlock_flow *flow))
{
    redlock_poll_close(flow->poll, false);
    redlock_flow_continue_later(flow, redlock_flow_pause(flow->r, 4 * REDLOCK_RETRY * flow->tries), repeat);
}

/* --- making --- */

static void directory_make(struct redlock_flow *flow);

static void directory_on_made(struct redlock_flow *flow)
{
    const char *word;
    enum vote_verdict verdict = vote_verdict(&flow->poll->vote, "ok", &word);
    if (verdict == VOTE_OPEN) {
        return;
    }
    if (verdict == VOTE_WON) {
        directory_answer(flow, BACKEND_OK);
        return;
    }
    enum backend_result result = verdict == VOTE_AWAY    ? BACKEND_UNREACHABLE
                                 : verdict == VOTE_SPLIT ? BACKEND_EXISTS
                                                         : remote_parse_result(word, BACKEND_EXISTS);
    directory_undo(flow);
    remote_directory_cache_remove(&flow->r->remote, flow->name);
    if (verdict == VOTE_SPLIT && ++flow->tries < REDLOCK_TRIES) {
        directory_repeat_later(flow, directory_make);
    } else {
        directory_answer(flow, result);
    }
}

static void directory_make(struct redlock_flow *flow)
{
    const struct backend_directory *directory = &flow->request->directory;
    const struct remote_directory d = {.mark = flow->directory.id, .attributes = *directory, .revision = clock_wall()};
    remote_directory_cache_add(&flow->r->remote, flow->name, &d);
    directory_outdate_reads(flow);
    directory_fill(flow->r, flow->name, "make", &d);
    redlock_flow_poll(flow, REDLOCK_DIRECTORY, flow->r->remote.timeout, directory_on_made);
}

void redlock_mkdir(struct redlock_flow *flow)
{
    remote_make_id(flow->directory.id);
    directory_make(flow);
}

/* --- removing: if it is empty on a majority --- */

/* Of two mounts that remove it at once neither may have a majority: then each undoes its part, and tries again. */
static void directory_on_removed(struct redlock_flow *flow)
{
    struct redlock *r = flow->r;
    const char *word;
    enum vote_verdict verdict = vote_verdict(&flow->poll->vote, "ok", &word);
    bool refused = verdict == VOTE_LOST && vote_count(&flow->poll->vote, word) >= vote_majority(r->count);
    if (verdict == VOTE_OPEN || (verdict == VOTE_LOST && !refused && flow->poll->open > 0)) {
        return;
    }
    bool gone = refused && (strcmp(word, "missing") == 0 || strcmp(word, "notdirectory") == 0);
    if (verdict == VOTE_WON || gone) {
        remote_directory_cache_remove(&r->remote, flow->name);
    } else {
        directory_undo(flow);
    }
    if (verdict == VOTE_SPLIT && ++flow->tries < REDLOCK_TRIES) {
        directory_repeat_later(flow, redlock_rmdir);
        return;
    }
    directory_answer(flow, verdict == VOTE_WON     ? BACKEND_OK
                           : refused               ? remote_parse_result(word, BACKEND_NOT_EMPTY)
                           : verdict == VOTE_SPLIT ? BACKEND_NOT_EMPTY
                                                   : BACKEND_UNREACHABLE);
}

static void directory_on_listed(struct redlock_flow *flow)
{
    const struct remote_directory d = {.mark = flow->directory.id};
    bool empty = true;
    if (vote_verdict(&flow->poll->vote, NULL, NULL) == VOTE_OPEN) {
        return;
    }
    for (unsigned i = 0; i < flow->r->count; i++) {
        const struct redlock_ballot *ballot = &flow->poll->ballots[i];
        empty =
            empty && !(ballot->words && ballot->words->len > 1 && strcmp(redlock_ballot_text(ballot, 0), "names") == 0);
    }
    if (!empty) {
        directory_answer(flow, BACKEND_NOT_EMPTY);
        return;
    }
    remote_make_id(flow->directory.id);
    directory_outdate_reads(flow);
    directory_fill(flow->r, flow->name, "remove", &d);
    redlock_flow_poll(flow, REDLOCK_DIRECTORY, flow->r->remote.timeout, directory_on_removed);
}

void redlock_rmdir(struct redlock_flow *flow)
{
    redlock_poll_fill_list(flow->r, flow->name, "", 1000);
    redlock_flow_poll(flow, REDLOCK_LIST, flow->r->remote.timeout, directory_on_listed);
}

/* --- attributes --- */

static void directory_on_set(struct redlock_flow *flow)
{
    const char *word;
    enum vote_verdict verdict = vote_verdict(&flow->poll->vote, "ok", &word);
    if (verdict != VOTE_OPEN) {
        directory_answer(flow, verdict == VOTE_WON    ? BACKEND_OK
                               : verdict == VOTE_AWAY ? BACKEND_UNREACHABLE
                                                      : BACKEND_MISSING);
    }
}

void redlock_set_directory(struct redlock_flow *flow)
{
    const struct backend_directory *directory = &flow->request->directory;
    const struct remote_directory d = {.mark = (char *)"set", .attributes = *directory, .revision = clock_wall()};
    directory_fill(flow->r, flow->name, "set", &d);
    redlock_flow_poll(flow, REDLOCK_DIRECTORY, flow->r->remote.timeout, directory_on_set);
}
