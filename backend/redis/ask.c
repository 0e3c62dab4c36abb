/* ask: questions, and directories. */
#include <string.h>

#include "backend/redis/pack.h"
#include "backend/redis/private.h"

#define ASK_DIRECTORIES_MAX 4096 /* whose attributes are remembered */
#define ASK_DELAYED_PART 64      /* locks that one request tells of their lock-delay */

/* Whether a ticket is on that name, or may be, after a rename that is not answered. */
static bool ask_is_of(const struct remote_ticket *t, const char *name)
{
    return strcmp(remote_ticket_name(t), name) == 0 || (t->moving && strcmp(t->moving, name) == 0);
}

/* Element `first` and on: kind, mode, number, age, time left, ttl, meta,
 * ticket, start, end, mount.  An age or time of -1 (or -2) is not known. */
void redis_describe(struct redis *r, const char *name, const redisReply *reply, size_t first, struct backend_info *info)
{
    clock_ms now = clock_now();
    int64_t age = redis_time(reply, first + 3), left = redis_time(reply, first + 4);
    int64_t ttl = redis_time(reply, first + 5), kind = redis_number(reply, first);
    struct remote_ticket *t = remote_ticket_find(&r->remote, redis_text(reply, first + 7));
    info->type = BACKEND_LOCK;
    info->kind = kind >= BACKEND_PROVISIONAL && kind <= BACKEND_FCNTL ? (enum backend_kind)kind : BACKEND_LEASE;
    info->mode = redis_number(reply, first + 1) ? BACKEND_SHARED : BACKEND_EXCLUSIVE;
    redis_fence(reply, first + 2, &info->fence);
    info->acquired = age >= 0 ? now - age : CLOCK_NEVER;
    info->deadline = left >= 0 ? now + left : CLOCK_NEVER;
    info->ttl = ttl >= 0 ? ttl : left >= 0 ? left : 0;
    info->meta =
        *redis_text(reply, first + 7) ? redis_bytes(reply, first + 6, REDIS_META_MAX) : NULL; /* no mount's has none */
    info->guarded = *redis_text(reply, first + 7) == 'g';                                     /* see revoke.lua */
    info->start = redis_offset(reply, first + 8);
    info->end = redis_offset(reply, first + 9);
    if (t && t->state != REMOTE_ACQUIRING && ask_is_of(t, name)) {
        remote_ticket_describe(t, info);
    }
}

bool redis_is_expired(struct redis *r, const redisReply *reply, size_t first, const struct backend_info *info)
{
    return strcmp(redis_text(reply, first + 10), r->mount) == 0 &&
           (!info->ticket || info->ticket->deadline <= clock_now());
}

void redis_info_clear(struct backend_info *info)
{
    g_clear_pointer(&info->meta, g_bytes_unref);
    g_clear_pointer(&info->content, g_bytes_unref);
    g_clear_pointer(&info->directory.meta, g_bytes_unref);
}

static void ask_directory_free(gpointer data)
{
    struct backend_directory *d = data;
    g_clear_pointer(&d->meta, g_bytes_unref);
    g_free(d);
}

uint64_t redis_sequence(struct redis *r, const char *name, uint64_t next)
{
    struct backend_directory *known = r->directories ? g_hash_table_lookup(r->directories, name) : NULL;
    if (known) {
        known->sequence = MAX(known->sequence, next);
    }
    return known ? known->sequence : next;
}

static void ask_remember(struct redis *r, const char *name, const struct backend_directory *directory)
{
    if (!r->directories) {
        r->directories = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, ask_directory_free);
    }
    if (g_hash_table_size(r->directories) >= ASK_DIRECTORIES_MAX) {
        g_hash_table_remove_all(r->directories);
    }
    struct backend_directory *d = g_new(struct backend_directory, 1);
    *d = *directory;
    d->meta = d->meta ? g_bytes_ref(d->meta) : NULL;
    d->sequence = redis_sequence(r, name, d->sequence);
    g_hash_table_insert(r->directories, g_strdup(name), d);
}

static void ask_on_stat(void *arg, const struct redis_answer *answer);

/* `no_directory`: it was none when it was last asked for. */
static void ask_send_stat(struct remote_request *request, bool no_directory)
{
    struct redis_call call = {0};
    const char *leaf;
    char *directory = remote_parent(request->name, &leaf);
    redis_call_lock(&call, redis_of(request), REDIS_STAT, request->name, false, NULL);
    redis_call_key(&call, 'q', request->name);
    for (const char *letter = remote_is_numbered(leaf) ? "otiw" : ""; *letter; letter++) {
        redis_call_key(&call, *letter, directory);
    }
    g_free(directory);
    redis_call_leaf(&call, request->name, false);
    redis_call_flag(&call, "root", !*request->name);
    redis_call_flag(&call, "no_directory", no_directory);
    redis_call_send(&call, 0, ask_on_stat, request);
}

/* Whether it cannot hold if the server is right: nobody does, or one who excludes it. */
static bool ask_is_contradicted(const struct remote_ticket *t, const struct backend_info *info)
{
    bool exclusive = info->mode == BACKEND_EXCLUSIVE || t->head.mode == BACKEND_EXCLUSIVE;
    bool excluded = exclusive && info->holders > 0 && remote_ticket_covers(t, info->start, info->end);
    return t->state == REMOTE_HELD && (info->type != BACKEND_LOCK || excluded);
}

/* The server says that nobody of this mount holds a name, or another who excludes
 * what is thought to hold here: that is asked for, and the question put again
 * behind it, so that whoever asked does not hear of it before those who hold. */
static bool ask_again(struct remote_request *request, const struct backend_info *info)
{
    struct remote_ticket *t;
    const char *leaf;
    char *directory = remote_parent(request->name, &leaf);
    struct remote_lock *lock = g_hash_table_lookup(request->r->locks, request->name);
    if (!lock && remote_is_numbered(leaf)) {
        lock = g_hash_table_lookup(request->r->queues, directory);
    }
    g_free(directory);
    t = lock && !request->again && !info->ticket ? LIST_FIRST(&lock->tickets) : NULL;
    while (t && !ask_is_contradicted(t, info)) {
        t = LIST_NEXT(t, link);
    }
    if (!t) {
        return false;
    }
    remote_verify(request->r, lock, NULL);
    request->again = true;
    ask_send_stat(request, false);
    return true;
}

static void ask_on_stat(void *arg, const struct redis_answer *answer)
{
    struct remote_request *request = arg;
    struct redis *r = redis_of(request);
    const redisReply *reply = answer->reply;
    bool counted = reply && reply->type == REDIS_REPLY_INTEGER; /* see ask_whether_there */
    bool more = reply && reply->type == REDIS_REPLY_NIL;        /* see ask_for_directory */
    if (more || (counted && reply->integer != 0)) {
        ask_send_stat(request, counted && reply->integer < 2);
        return;
    }
    struct backend_info info = {.type = BACKEND_NOTHING};
    const char *word = redis_text(reply, 0);
    enum backend_result result = answer->outcome == REMOTE_ANSWERED ? BACKEND_OK : redis_failure(r, answer);
    if (result == BACKEND_OK && strcmp(word, "lock") == 0) {
        redis_describe(r, request->name, reply, 1, &info);
        info.content = redis_bytes(reply, 12, REDIS_CONTENT_MAX);
        info.holders = redis_count(reply, 13);
        info.waiters = redis_count(reply, 14);
        info.position = redis_count(reply, 15);
        if (redis_is_expired(r, reply, 1, &info) && info.holders > 1 && !request->again) { /* the others are as good */
            redis_info_clear(&info);
            request->again = true;
            ask_send_stat(request, true);
            return;
        }
        if (redis_is_expired(r, reply, 1, &info)) {
            info.type = BACKEND_NOTHING;
        }
    } else if (result == BACKEND_OK && strcmp(word, "directory") == 0) {
        info.type = BACKEND_DIRECTORY;
        info.directory = (struct backend_directory){
            .ttl = MAX(redis_time(reply, 1), 0),
            .width = MAX(redis_count(reply, 2), 1),
            .delay = MAX(redis_time(reply, 3), 0),
            .meta = redis_bytes(reply, 5, REDIS_META_MAX),
        };
        redis_fence(reply, 4, &info.directory.sequence);
        info.waiters = redis_count(reply, 6);
        ask_remember(r, request->name, &info.directory);
    } else if (result == BACKEND_OK && (counted || strcmp(word, "nothing") == 0)) {
        info.waiters = redis_count(reply, 1);
    } else if (result == BACKEND_OK) {
        redis_disbelieve(r, answer);
        result = BACKEND_UNREACHABLE;
    }
    if (result == BACKEND_OK && ask_again(request, &info)) {
        redis_info_clear(&info);
        return;
    }
    request->on_answer(request, &(struct remote_answer){.outcome = answer->outcome, .result = result, .info = &info});
    redis_info_clear(&info);
}

/* Most names that are looked up are free, as what is to be created is: that nothing is there, and nobody waits, costs
 * the server a tenth of what stat.lua does.  What is named twice counts twice. */
static void ask_whether_there(struct remote_request *request)
{
    struct redis *r = redis_of(request);
    char *lock = redis_key(r, request->name), *queue = redis_side_key(r, 'o', request->name);
    char *directory = redis_side_key(r, 'd', request->name);
    const struct redis_argument words[] = {{"EXISTS", 6},
                                           {lock, strlen(lock)},
                                           {queue, strlen(queue)},
                                           {directory, strlen(directory)},
                                           {directory, strlen(directory)}};
    redis_conn_command(r->conn, words, G_N_ELEMENTS(words), redis_patience(r), ask_on_stat, request);
    g_free(lock);
    g_free(queue);
    g_free(directory);
}

/* What was a directory is looked up on the way to each name in it. */
static void ask_for_directory(struct remote_request *request)
{
    struct redis_call call = {.r = redis_of(request), .script = REDIS_STAT_DIRECTORY};
    redis_call_key(&call, 'd', request->name);
    redis_call_key(&call, 'q', request->name);
    redis_call_send(&call, 0, ask_on_stat, request);
}

/* As far as this mount knows. */
static bool ask_is_directory(struct redis *r, const char *name)
{
    return r->directories && g_hash_table_contains(r->directories, name);
}

static bool ask_is_free(struct redis *r, const char *name)
{
    return *name && !remote_is_numbered(remote_leaf(name)) && !g_hash_table_contains(r->remote.locks, name) &&
           !g_hash_table_contains(r->watches, name) && !ask_is_directory(r, name);
}

void redis_stat(struct remote_request *request)
{
    struct redis *r = redis_of(request);
    if (ask_is_free(r, request->name)) {
        ask_whether_there(request);
    } else if (*request->name && ask_is_directory(r, request->name)) {
        ask_for_directory(request);
    } else {
        ask_send_stat(request, false);
    }
}

/* --- directories --- */

static void ask_on_directory(void *arg, const struct redis_answer *answer);

void redis_change_directory(struct remote_request *request)
{
    const struct backend_directory *d = &request->directory;
    const char *what = request->procedure == REMOTE_MKDIR   ? "make"
                       : request->procedure == REMOTE_RMDIR ? "remove"
                                                            : "set";
    struct redis_call call = {.r = redis_of(request), .script = REDIS_DIRECTORY};
    const char *leaf;
    char *parent = remote_parent(request->name, &leaf), nonce[24];
    g_snprintf(nonce, sizeof nonce, "%08x%08x", g_random_int(), g_random_int());
    redis_call_key(&call, 0, request->name);
    for (const char *letter = "otwifdlq"; *letter; letter++) {
        redis_call_key(&call, *letter, request->name);
    }
    redis_call_key(&call, 'd', parent);
    redis_call_key(&call, 'm', NULL);
    redis_call_key(&call, 'l', parent);
    redis_call_key(&call, 0, parent);
    redis_call_text(&call, "leaf", leaf);
    redis_call_flag(&call, "sequence", request->procedure == REMOTE_SET_DIRECTORY);
    redis_call_text(&call, "what", what);
    redis_call_flag(&call, "needed", *parent);
    redis_call_flag(&call, "root", !*request->name);
    redis_call_number(&call, "ttl", d->ttl);
    redis_call_number(&call, "width", d->width);
    redis_call_number(&call, "delay", d->delay);
    redis_call_number(&call, "next", (int64_t)d->sequence);
    redis_call_bytes(&call, "meta", d->meta);
    redis_call_text(&call, "nonce", nonce);
    redis_call_send(&call, 0, ask_on_directory, request);
    g_free(parent);
}

/* What was left over in it is removed. */
static void ask_on_swept(void *arg, enum backend_result result, const struct backend_entry *entries, size_t count)
{
    struct remote_request *request = arg;
    (void)entries;
    if (result == BACKEND_OK && count == 0) {
        redis_change_directory(request);
    } else {
        remote_request_answer(request, result == BACKEND_OK ? BACKEND_NOT_EMPTY : result, 0);
    }
}

/* --- a lock-delay that was set: locks that are there already are told of it, some after the others.  request->after is
 * the last of the directory's names to which that was done; "": it was done to all --- */

static void ask_on_delayed_names(void *arg, const struct redis_answer *answer);

static void ask_send_delayed(struct remote_request *request)
{
    struct redis_call call = {.r = redis_of(request), .script = REDIS_LIST};
    redis_call_key(&call, 'l', request->name);
    redis_call_key(&call, 'd', request->name);
    redis_call_key(&call, 0, request->name);
    redis_call_text(&call, "after", request->after ? request->after : "");
    redis_call_number(&call, "max", ASK_DELAYED_PART);
    redis_call_flag(&call, "needed", *request->name);
    redis_call_send(&call, 0, ask_on_delayed_names, request);
}

static void ask_on_delayed(void *arg, const struct redis_answer *answer)
{
    struct remote_request *request = arg;
    enum backend_result result = redis_result(redis_of(request), answer);
    if (result == BACKEND_OK && *request->after) {
        ask_send_delayed(request);
    } else {
        remote_request_answer(request, result, 0);
    }
}

static void ask_on_delayed_names(void *arg, const struct redis_answer *answer)
{
    struct remote_request *request = arg;
    struct redis *r = redis_of(request);
    const redisReply *reply = answer->reply;
    enum backend_result result = redis_result(r, answer);
    if (result != BACKEND_OK) {
        remote_request_answer(request, result == BACKEND_MISSING ? BACKEND_OK : result, 0); /* removed since */
        return;
    }
    GPtrArray *leaves = g_ptr_array_new();
    struct redis_call call = {0};
    for (size_t i = 2; i < MIN(reply->elements, 2 + ASK_DELAYED_PART); i++) {
        const char *leaf = redis_text(reply, i);
        char *path = *request->name ? g_strconcat(request->name, "/", leaf, NULL) : g_strdup(leaf);
        if (remote_is_component(leaf) && redis_key_allowed(r, path)) {
            redis_call_lock(&call, r, REDIS_DELAY, path, false, NULL);
            g_ptr_array_add(leaves, (char *)leaf);
        }
        g_free(path);
    }
    bool more = !request->after || strcmp(redis_text(reply, 1), request->after) > 0;
    g_free(request->after);
    request->after = g_strdup(more ? redis_text(reply, 1) : "");
    if (leaves->len > 0) {
        redis_call_texts(&call, "leaves", leaves);
        redis_call_send(&call, 0, ask_on_delayed, request);
    } else if (*request->after) {
        ask_send_delayed(request);
    } else {
        remote_request_answer(request, BACKEND_OK, 0);
    }
    g_ptr_array_unref(leaves);
}

static void ask_on_directory(void *arg, const struct redis_answer *answer)
{
    struct remote_request *request = arg;
    struct redis *r = redis_of(request);
    if (answer->outcome == REMOTE_ANSWERED && strcmp(redis_text(answer->reply, 0), "delayed") == 0) {
        ask_send_delayed(request);
        return;
    }
    enum backend_result result = redis_result(r, answer);
    if (result == BACKEND_NOT_EMPTY && !request->again) {
        request->again = true;
        backend_list(&r->remote.backend, request->name, "", 1, ask_on_swept, request);
        return;
    }
    if (result == BACKEND_MISSING && answer->repeated && request->procedure == REMOTE_RMDIR) {
        result = BACKEND_OK; /* removed by the first try, whose answer was lost */
    }
    remote_request_answer(request, result, 0);
}

void redis_restore_directory(struct redis *r, const char *name)
{
    const struct backend_directory *known = r->directories ? g_hash_table_lookup(r->directories, name) : NULL;
    if (*name || known) {
        remote_send_directory(&r->remote, *name ? REMOTE_MKDIR : REMOTE_SET_DIRECTORY, name, known);
    }
}
