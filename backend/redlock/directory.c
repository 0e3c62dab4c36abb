/* directory: directories.
 *
 * One is there when a majority of the servers has it.  A mount gives those that it has seen to a server that comes
 * back, as they are by then: it looks, and looks again if it has changed one itself before all have answered.
 */
#include <stdio.h>
#include <string.h>

#include "backend/redlock/private.h"

/* --- what is asked --- */

static void directory_fill(struct redlock *r, const char *name, const char *what, const struct redlock_directory *d)
{
    const char *leaf;
    char *parent = remote_parent(name, &leaf);
    redlock_poll_key(r, 'D', name);
    redlock_poll_key(r, 'L', name);
    redlock_poll_key(r, 0, name);
    redlock_poll_key(r, 'D', parent);
    redlock_poll_key(r, 0, parent);
    redlock_poll_key(r, 'L', parent);
    redlock_poll_text(r, what);
    redlock_poll_text(r, d->made);
    redlock_poll_text(r, leaf);
    redlock_poll_text(r, !*name ? "" : *parent ? "1" : "0");
    redlock_poll_number(r, d->ttl);
    redlock_poll_number(r, d->revision);
    redlock_poll_bytes(r, d->meta);
    g_free(parent);
}

static struct redlock_directory *directory_of(const struct redlock_call *call)
{
    return g_hash_table_lookup(call->r->directories, call->name);
}

static void directory_tell(struct redlock_call *call, enum backend_result result)
{
    struct remote_request *request = call->request;
    redlock_call_end(call, true);
    remote_request_answer(request, result, 0);
}

/* A change is sent now: a look that was sent before does not tell of it. */
static void directory_cross(const struct redlock_call *change)
{
    struct redlock_call *call;
    LIST_FOREACH(call, &change->r->calls, link) {
        call->crossed = call->crossed || (!call->request && strcmp(call->name, change->name) == 0);
    }
}

static void directory_restore(struct redlock_call *call)
{
    const struct redlock_directory *d = directory_of(call);
    if (d) {
        directory_fill(call->r, call->name, "make", d);
        redlock_poll_send(call->r, NULL, REDLOCK_DIRECTORY, call->r->timeout);
    }
}

static void directory_look(struct redlock_call *call);

/* One that another mount has removed or changed since is so; one of which no majority knows anything is as it was. */
static void directory_on_looked(struct redlock_call *call)
{
    const char *word;
    enum vote_verdict verdict = redlock_ask_verdict(call, "nothing", &word);
    if (verdict == VOTE_OPEN) {
        return;
    }
    if (call->crossed) {
        directory_look(call);
        return;
    }
    if (verdict == VOTE_WON && strcmp(word, "directory") == 0) {
        struct backend_directory newest;
        redlock_ask_note_directory(call, word, &newest);
        g_bytes_unref(newest.meta);
    } else if (verdict != VOTE_AWAY) {
        redlock_seen_forget(call->r, call->name);
    }
    directory_restore(call);
    redlock_call_end(call, true);
}

static void directory_look(struct redlock_call *call)
{
    call->crossed = false;
    redlock_ask_fill_look(call->r, call->name);
    redlock_call_poll(call, REDLOCK_LOOK, call->r->timeout, directory_on_looked);
}

void redlock_directory_restore_all(struct redlock *r)
{
    GHashTableIter each;
    gpointer name;
    g_hash_table_iter_init(&each, r->directories);
    while (g_hash_table_iter_next(&each, &name, NULL)) {
        directory_look(redlock_call_new(r, NULL, name));
    }
}

/* --- making --- */

static void directory_make(struct redlock_call *call);

static void directory_undo(struct redlock_call *call)
{
    const struct redlock_directory d = {.made = call->made};
    redlock_poll_forget(call->poll);
    directory_fill(call->r, call->name, "undo", &d);
    redlock_poll_send(call->r, NULL, REDLOCK_DIRECTORY, REDLOCK_RELEASE_TIME);
}

static void directory_on_made(struct redlock_call *call)
{
    const char *word;
    enum vote_verdict verdict = vote_verdict(&call->poll->vote, "ok", &word);
    if (verdict == VOTE_OPEN) {
        return;
    }
    if (verdict == VOTE_WON) {
        directory_tell(call, BACKEND_OK);
        return;
    }
    enum backend_result result = verdict == VOTE_AWAY    ? BACKEND_UNREACHABLE
                                 : verdict == VOTE_SPLIT ? BACKEND_EXISTS
                                                         : remote_parse_result(word, BACKEND_EXISTS);
    directory_undo(call);
    redlock_seen_forget(call->r, call->name);
    if (verdict == VOTE_SPLIT && ++call->tries < REDLOCK_TRIES) {
        redlock_poll_close(call->poll, false);
        redlock_call_later(call, redlock_call_pause(call->r, 4 * REDLOCK_RETRY * call->tries), directory_make);
    } else {
        directory_tell(call, result);
    }
}

static void directory_make(struct redlock_call *call)
{
    const struct backend_directory *directory = &call->request->directory;
    const struct redlock_directory d = {
        .made = call->made, .ttl = directory->ttl, .revision = clock_wall(), .meta = directory->meta};
    redlock_seen_note(call->r, call->name, d.made, d.revision, directory);
    directory_cross(call);
    directory_fill(call->r, call->name, "make", &d);
    redlock_call_poll(call, REDLOCK_DIRECTORY, call->r->timeout, directory_on_made);
}

void redlock_mkdir(struct redlock_call *call)
{
    call->made = g_uuid_string_random();
    directory_make(call);
}

/* --- removing: if nothing is in it, as far as a majority knows --- */

static void directory_on_removed(struct redlock_call *call)
{
    struct redlock *r = call->r;
    const char *word;
    enum vote_verdict verdict = vote_verdict(&call->poll->vote, "ok", &word);
    if (verdict == VOTE_OPEN) {
        return;
    }
    bool gone = verdict == VOTE_LOST && vote_count(&call->poll->vote, word) >= vote_majority(r->count) &&
                (strcmp(word, "missing") == 0 || strcmp(word, "notdirectory") == 0);
    if (verdict == VOTE_WON || gone) {
        redlock_seen_forget(r, call->name);
    } else { /* some may have removed it */
        directory_restore(call);
    }
    directory_tell(call, verdict == VOTE_WON    ? BACKEND_OK
                         : verdict == VOTE_AWAY ? BACKEND_UNREACHABLE
                         : verdict == VOTE_LOST ? remote_parse_result(word, BACKEND_NOT_EMPTY)
                                                : BACKEND_NOT_EMPTY);
}

static void directory_on_listed(struct redlock_call *call)
{
    const struct redlock_directory d = {.made = ""};
    bool empty = true;
    if (vote_verdict(&call->poll->vote, NULL, NULL) == VOTE_OPEN) {
        return;
    }
    for (unsigned i = 0; i < call->r->count; i++) {
        const struct redlock_ballot *ballot = &call->poll->ballots[i];
        empty =
            empty && !(ballot->words && ballot->words->len > 1 && strcmp(redlock_ballot_text(ballot, 0), "names") == 0);
    }
    if (!empty) {
        directory_tell(call, BACKEND_NOT_EMPTY);
        return;
    }
    directory_cross(call);
    directory_fill(call->r, call->name, "remove", &d);
    redlock_call_poll(call, REDLOCK_DIRECTORY, call->r->timeout, directory_on_removed);
}

void redlock_rmdir(struct redlock_call *call)
{
    redlock_poll_fill_list(call->r, call->name, "", 1000);
    redlock_call_poll(call, REDLOCK_LIST, call->r->timeout, directory_on_listed);
}

/* --- attributes --- */

static void directory_on_set(struct redlock_call *call)
{
    const char *word;
    enum vote_verdict verdict = vote_verdict(&call->poll->vote, "ok", &word);
    if (verdict != VOTE_OPEN) {
        directory_tell(call, verdict == VOTE_WON    ? BACKEND_OK
                             : verdict == VOTE_AWAY ? BACKEND_UNREACHABLE
                                                    : BACKEND_MISSING);
    }
}

void redlock_set_directory(struct redlock_call *call)
{
    const struct backend_directory *directory = &call->request->directory;
    const struct redlock_directory d = {
        .made = "set", .ttl = directory->ttl, .revision = clock_wall(), .meta = directory->meta};
    directory_fill(call->r, call->name, "set", &d);
    redlock_call_poll(call, REDLOCK_DIRECTORY, call->r->timeout, directory_on_set);
}
