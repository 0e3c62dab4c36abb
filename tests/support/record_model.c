/* record_model: a store of records in memory; see record_model.h. */
#include "tests/support/record_model.h"

#include <ev.h>
#include <string.h>
#include <sys/queue.h>

#define RECONNECT 30 /* ms */
#define MESSAGE_BYTES 1024
#define EPOCH_1970 1700000000000 /* ms, of a host's first start */

struct value {
    struct store_value store;
};

struct pulse { /* a mount's heartbeat */
    struct record_id mount;
    uint64_t number, incarnation;
    clock_ms at;
    int64_t term;
    char *text;
};

struct model {
    GHashTable *values; /* "SPACE NAME" -> struct value */
    GArray *pulses;     /* struct pulse */
    LIST_HEAD(, model_link) links;
    LIST_HEAD(, request) late; /* of connections that are gone */
    int64_t skew;
    uint64_t floor, requests, changes;
    unsigned generation, again, room, lost_permille;
    GRand *chance;
    char text[16];
};

enum kind { READ, SWAP, EXTEND, LIST, HEARTBEAT, MOUNTS, SEND, WATCH };

/* On its way to the server, or its answer on its way back. */
struct request {
    TAILQ_ENTRY(request) link;
    LIST_ENTRY(request) later;
    enum kind kind;
    clock_ms due;
    bool answered; /* on its way back */
    GArray *keys;  /* struct store_key */
    struct store_change change, *original;
    uint64_t connection, epoch;
    struct record_id mount, to;
    GArray *extensions;
    struct store_extension *original_extensions;
    char *name, *after;
    size_t max;
    struct store_heartbeat heartbeat;
    GBytes *text;
    struct store_answer answer;
    GArray *found; /* struct store_value, store_name or store_mount */
    union {
        void (*read)(void *, const struct store_answer *);
        void (*list)(void *, const struct store_answer *, const struct store_name *, size_t);
        void (*heartbeat)(void *, const struct store_answer *, const struct store_heartbeat *);
        void (*mounts)(void *, const struct store_answer *, const struct store_mount *, size_t);
    } done;
    void *arg;
};

struct message {
    TAILQ_ENTRY(message) link;
    clock_ms due;
    struct store_key key;
    bool has_key, changed;
    struct store_value value;
    GBytes *text;
};

struct model_link {
    struct store store; /* first */
    LIST_ENTRY(model_link) entry;
    struct model *model;
    struct ev_loop *loop;
    const struct store_events *events;
    void *context;
    ev_timer timer;
    int64_t timeout, slow;
    clock_ms connect_at, waits_since;
    bool up, deaf, mute, lose_next, stopped, closed, dropping;
    TAILQ_HEAD(requests, request) out, back;
    TAILQ_HEAD(messages, message) messages;
    GHashTable *watched;
};

/* --- data --- */

clock_ms model_now(const struct model *model)
{
    return clock_now() + EPOCH_1970 + model->skew;
}

static char *model_key(enum store_space space, const char *name)
{
    return g_strdup_printf("%d %s", (int)space, name);
}

static void value_free(gpointer data)
{
    struct value *value = data;
    g_clear_pointer(&value->store.bytes, g_bytes_unref);
    g_free(value);
}

static void model_remove(struct value *value)
{
    g_clear_pointer(&value->store.bytes, g_bytes_unref);
    value->store = (struct store_value){.state = STORE_ABSENT};
}

static struct value *model_find(struct model *model, const struct store_key *key)
{
    g_autofree char *text = model_key(key->space, key->name);
    struct value *value = g_hash_table_lookup(model->values, text);
    if (value && value->store.state != STORE_ABSENT && value->store.end <= model_now(model)) {
        model_remove(value);
    }
    if (value && value->store.state == STORE_ABSENT) {
        g_hash_table_remove(model->values, text);
        value = NULL;
    }
    return value;
}

static struct store_value model_get(struct model *model, const struct store_key *key)
{
    const struct value *value = model_find(model, key);
    return value ? value->store : (struct store_value){.state = STORE_ABSENT};
}

static struct pulse *model_pulse(struct model *model, struct record_id mount)
{
    for (guint i = 0; i < model->pulses->len; i++) {
        struct pulse *pulse = &g_array_index(model->pulses, struct pulse, i);
        if (record_id_equal(pulse->mount, mount) && pulse->at + pulse->term > model_now(model)) {
            return pulse;
        }
    }
    return NULL;
}

/* "a/b" -> "b" if it is in the directory "a"; else NULL. */
static const char *model_leaf_in(const char *name, const char *directory)
{
    size_t length = strlen(directory);
    const char *leaf = length == 0                                                    ? name
                       : strncmp(name, directory, length) == 0 && name[length] == '/' ? name + length + 1
                                                                                      : NULL;
    return leaf && *leaf && !strchr(leaf, '/') ? leaf : NULL;
}

static bool model_is_empty(struct model *model, const char *directory)
{
    GHashTableIter each;
    const char *key;
    const struct value *value;
    g_hash_table_iter_init(&each, model->values);
    while (g_hash_table_iter_next(&each, (gpointer *)&key, (gpointer *)&value)) {
        bool named = key[0] - '0' == STORE_LOCK || key[0] - '0' == STORE_QUEUE || key[0] - '0' == STORE_DIRECTORY;
        if (named && value->store.state != STORE_ABSENT && value->store.end > model_now(model) &&
            model_leaf_in(key + 2, directory)) {
            return false;
        }
    }
    return true;
}

/* --- changes --- */

static bool model_is_expected(struct model *model, const struct store_put *put)
{
    struct store_value value = model_get(model, &put->key);
    switch (put->expect) {
    case STORE_IS_ABSENT:
        return value.state == STORE_ABSENT;
    case STORE_IS_THERE:
        return value.state == STORE_PRESENT || !*put->key.name;
    case STORE_IS_SAME:
        return value.state == STORE_PRESENT && value.stamp == put->stamp && value.end == put->end;
    case STORE_IS_FOREIGN:
        return value.state == STORE_FOREIGN && (put->action == STORE_KEEP || value.stamp == put->stamp);
    default:
        return true;
    }
}

static void model_write(struct model *model, const struct store_put *put)
{
    struct value *value = model_find(model, &put->key);
    clock_ms now = model_now(model);
    if (put->action == STORE_REMOVE) {
        if (value) {
            model_remove(value);
            model_find(model, &put->key);
        }
        return;
    }
    if (!value) {
        value = g_new0(struct value, 1);
        g_hash_table_insert(model->values, model_key(put->key.space, put->key.name), value);
    }
    uint64_t last = MAX(MAX(value->store.stamp, model->floor), MAX(put->floor, (uint64_t)now * 1000 + 999));
    g_clear_pointer(&value->store.bytes, g_bytes_unref);
    value->store = (struct store_value){.state = STORE_PRESENT,
                                        .bytes = g_bytes_ref(put->bytes),
                                        .stamp = last + MAX(put->tokens, 1),
                                        .time = now,
                                        .end = MAX(put->until, now + put->term)};
    /* Rule 2: this store keeps nothing of a value that is removed or has ended, so it keeps the highest stamp of all.
     */
    model->floor = value->store.stamp;
}

static void model_publish(struct model *model, const struct request *r, struct record_id to, GBytes *text,
                          const struct store_key *key)
{
    struct model_link *link;
    LIST_FOREACH(link, &model->links, entry) {
        bool lost = g_rand_int_range(model->chance, 0, 1000) < (int)model->lost_permille;
        if (!record_id_equal(link->store.mount, to) || !link->up || lost) {
            continue;
        }
        struct message *message = g_new0(struct message, 1);
        message->due = clock_now() + link->slow;
        message->text = g_bytes_ref(text);
        if (key) {
            message->has_key = true;
            message->key = (struct store_key){.space = key->space, .name = g_strdup(key->name)};
            message->value = model_get(model, key);
            bool fits = message->value.bytes && g_bytes_get_size(message->value.bytes) <= MESSAGE_BYTES;
            message->value.bytes = fits ? g_bytes_ref(message->value.bytes) : NULL;
        }
        TAILQ_INSERT_TAIL(&link->messages, message, link);
        ev_timer_start(link->loop, &link->timer);
    }
    (void)r;
}

static enum store_result model_check(struct model *model, const struct request *r)
{
    const struct store_change *change = &r->change;
    const struct store_value marker = model_get(model, &(struct store_key){STORE_MARKER, ""});
    const struct pulse *pulse = model_pulse(model, r->mount);
    uint64_t epoch = 0;
    if (!pulse || pulse->number != r->connection) {
        return STORE_OTHER_CONNECTION;
    }
    if (marker.state == STORE_PRESENT) {
        memcpy(&epoch, g_bytes_get_data(marker.bytes, NULL), sizeof epoch);
    }
    if (!change->marker && GUINT64_FROM_LE(epoch) != r->epoch) {
        return STORE_OTHER_EPOCH;
    }
    if (model->again && !change->marker) {
        model->again--;
        return STORE_AGAIN;
    }
    for (unsigned i = 0; i < change->count; i++) {
        if (!model_is_expected(model, &change->puts[i])) {
            return STORE_CHANGED;
        }
    }
    for (unsigned i = 0; i < change->count; i++) {
        const struct store_put *put = &change->puts[i];
        if (put->must_be_empty && !model_is_empty(model, put->key.name)) {
            return STORE_NOT_EMPTY;
        }
        if (put->action == STORE_WRITE && model->room && !model_find(model, &put->key) &&
            g_hash_table_size(model->values) >= model->room) {
            return STORE_FULL;
        }
    }
    return change->not_before > model_now(model) ? STORE_EARLY : STORE_DONE;
}

static void request_add_value(struct request *r, struct store_value value)
{
    value.bytes = value.bytes ? g_bytes_ref(value.bytes) : NULL;
    g_array_append_val(r->found, value);
}

static void model_swap(struct model *model, struct request *r)
{
    struct store_change *change = &r->change;
    r->answer.result = model_check(model, r);
    for (unsigned i = 0; i < change->count && r->answer.result == STORE_DONE; i++) {
        if (change->puts[i].action != STORE_KEEP) {
            model_write(model, &change->puts[i]);
        }
    }
    model->changes += r->answer.result == STORE_DONE;
    for (unsigned i = 0; i < change->count; i++) {
        request_add_value(r, model_get(model, &change->puts[i].key));
    }
    for (guint i = 0; r->answer.result == STORE_DONE && i < change->messages->len; i++) {
        const struct store_message *m = &g_array_index(change->messages, struct store_message, i);
        model_publish(model, r, m->to, m->text, &change->puts[0].key);
    }
}

static void model_extend(struct model *model, struct request *r)
{
    for (guint i = 0; i < r->extensions->len; i++) {
        struct store_extension *x = &g_array_index(r->extensions, struct store_extension, i);
        struct value *value = model_find(model, &x->key);
        bool same = value && value->store.state == STORE_PRESENT && value->store.stamp == x->stamp;
        x->result = same ? STORE_DONE : STORE_CHANGED;
        if (same) {
            value->store.end = x->end = model_now(model) + x->term;
        }
    }
}

static gint model_compare_names(gconstpointer a, gconstpointer b)
{
    return strcmp(((const struct store_name *)a)->leaf, ((const struct store_name *)b)->leaf);
}

static void model_list(struct model *model, struct request *r)
{
    GHashTableIter each;
    const char *key;
    const struct value *value;
    g_hash_table_iter_init(&each, model->values);
    while (g_hash_table_iter_next(&each, (gpointer *)&key, (gpointer *)&value)) {
        bool directory = key[0] - '0' == STORE_DIRECTORY, lock = key[0] - '0' == STORE_LOCK;
        const char *leaf = model_leaf_in(key + 2, r->name);
        if ((directory || lock) && leaf && strcmp(leaf, r->after) > 0 && value->store.state != STORE_ABSENT &&
            value->store.end > model_now(model)) {
            struct store_name name = {.leaf = g_strdup(leaf), .directory = directory, .value = value->store};
            name.value.bytes = value->store.bytes ? g_bytes_ref(value->store.bytes) : NULL;
            g_array_append_val(r->found, name);
        }
    }
    g_array_sort(r->found, model_compare_names);
}

static void model_heartbeat(struct model *model, struct request *r)
{
    struct pulse *pulse = model_pulse(model, r->mount);
    clock_ms now = model_now(model);
    bool other = r->heartbeat.connection
                     ? !pulse || pulse->number != r->heartbeat.connection
                     : r->heartbeat.again && pulse && pulse->incarnation != r->heartbeat.incarnation;
    if (other) {
        r->answer.result = STORE_OTHER_CONNECTION;
        return;
    }
    if (!pulse) {
        struct pulse new = {.mount = r->mount, .text = g_strdup("")};
        g_array_append_val(model->pulses, new);
        pulse = &g_array_index(model->pulses, struct pulse, model->pulses->len - 1);
    }
    if (!r->heartbeat.connection) {
        pulse->number = MAX(pulse->number, (uint64_t)now * 1000) + 1;
        pulse->incarnation = r->heartbeat.incarnation;
    }
    g_free(pulse->text);
    pulse->text = g_strdup(r->heartbeat.text);
    pulse->at = now;
    pulse->term = r->heartbeat.term;
    r->heartbeat.connection = pulse->number;
    g_free((char *)r->heartbeat.generation);
    r->heartbeat.generation = g_strdup(model->text);
}

static void model_mounts(struct model *model, struct request *r)
{
    for (guint i = 0; i < model->pulses->len; i++) {
        const struct pulse *pulse = &g_array_index(model->pulses, struct pulse, i);
        struct store_mount mount = {.mount = pulse->mount, .heartbeat = pulse->at, .text = g_strdup(pulse->text)};
        if (pulse->at + pulse->term > model_now(model)) {
            g_array_append_val(r->found, mount);
        } else {
            g_free((char *)mount.text);
        }
    }
}

static void model_execute(struct model *model, struct request *r)
{
    model->requests++;
    r->answer = (struct store_answer){.result = STORE_DONE, .time = model_now(model)};
    switch (r->kind) {
    case READ:
        for (guint i = 0; i < r->keys->len; i++) {
            request_add_value(r, model_get(model, &g_array_index(r->keys, struct store_key, i)));
        }
        break;
    case SWAP:
        model_swap(model, r);
        break;
    case EXTEND:
        model_extend(model, r);
        break;
    case LIST:
        model_list(model, r);
        break;
    case HEARTBEAT:
        model_heartbeat(model, r);
        break;
    case MOUNTS:
        model_mounts(model, r);
        break;
    case SEND:
        model_publish(model, r, r->to, r->text, NULL);
        break;
    default:
        break;
    }
}

/* --- requests --- */

static void request_free(struct request *r)
{
    for (guint i = 0; r->keys && i < r->keys->len; i++) {
        g_free((char *)g_array_index(r->keys, struct store_key, i).name);
    }
    for (guint i = 0; r->extensions && i < r->extensions->len; i++) {
        g_free((char *)g_array_index(r->extensions, struct store_extension, i).key.name);
    }
    for (guint i = 0; i < r->found->len; i++) {
        if (r->kind == READ || r->kind == SWAP) {
            g_clear_pointer(&g_array_index(r->found, struct store_value, i).bytes, g_bytes_unref);
        } else if (r->kind == LIST) {
            struct store_name *name = &g_array_index(r->found, struct store_name, i);
            g_free((char *)name->leaf);
            g_clear_pointer(&name->value.bytes, g_bytes_unref);
        } else if (r->kind == MOUNTS) {
            g_free((char *)g_array_index(r->found, struct store_mount, i).text);
        }
    }
    for (unsigned i = 0; i < r->change.count; i++) {
        g_free((char *)r->change.puts[i].key.name);
        g_clear_pointer(&r->change.puts[i].bytes, g_bytes_unref);
    }
    for (guint i = 0; r->change.messages && i < r->change.messages->len; i++) {
        g_bytes_unref(g_array_index(r->change.messages, struct store_message, i).text);
    }
    g_clear_pointer(&r->change.messages, g_array_unref);
    g_clear_pointer(&r->keys, g_array_unref);
    g_clear_pointer(&r->extensions, g_array_unref);
    g_array_unref(r->found);
    g_free((char *)r->heartbeat.text);
    g_free((char *)r->heartbeat.generation);
    g_clear_pointer(&r->text, g_bytes_unref);
    g_free(r->name);
    g_free(r->after);
    g_free(r);
}

static void request_answer(struct request *r)
{
    size_t count = MIN(r->found->len, r->max);
    r->answer.keys = (const struct store_value *)(const void *)r->found->data;
    switch (r->kind) {
    case READ:
        r->done.read(r->arg, &r->answer);
        break;
    case SWAP:
        r->original->done(r->original, &r->answer);
        break;
    case EXTEND:
        for (guint i = 0; i < r->extensions->len; i++) {
            const struct store_extension *x = &g_array_index(r->extensions, struct store_extension, i);
            r->original_extensions[i].result = x->result;
            r->original_extensions[i].end = x->end;
        }
        r->done.read(r->arg, &r->answer);
        break;
    case LIST:
        r->done.list(r->arg, &r->answer, (const struct store_name *)(const void *)r->found->data, count);
        break;
    case HEARTBEAT:
        r->done.heartbeat(r->arg, &r->answer, &r->heartbeat);
        break;
    case MOUNTS:
        r->done.mounts(r->arg, &r->answer, (const struct store_mount *)(const void *)r->found->data, r->found->len);
        break;
    default:
        break;
    }
    request_free(r);
}

static struct request *request_new(struct store *s, enum kind kind, guint size)
{
    struct model_link *link = (struct model_link *)s;
    struct request *r = g_new0(struct request, 1);
    r->kind = kind;
    r->due = clock_now() + link->slow;
    r->mount = s->mount;
    r->connection = s->connection;
    r->epoch = s->epoch;
    r->found = g_array_new(FALSE, TRUE, size);
    TAILQ_INSERT_TAIL(&link->out, r, link);
    ev_timer_start(link->loop, &link->timer);
    return r;
}

/* --- the link --- */

static void link_drop(struct model_link *link, bool report)
{
    struct request *r;
    struct requests unanswered = TAILQ_HEAD_INITIALIZER(unanswered);
    link->up = false;
    link->connect_at = clock_now() + RECONNECT;
    while ((r = TAILQ_FIRST(&link->back))) {
        TAILQ_REMOVE(&link->back, r, link);
        TAILQ_INSERT_TAIL(&unanswered, r, link);
    }
    while ((r = TAILQ_FIRST(&link->out))) {
        TAILQ_REMOVE(&link->out, r, link);
        TAILQ_INSERT_TAIL(&unanswered, r, link);
        if (link->stopped && (r->kind == SWAP || r->kind == EXTEND || r->kind == HEARTBEAT)) {
            struct request *late = g_memdup2(r, sizeof *r); /* the server has it, and carries it out when it goes on */
            r->keys = r->extensions = NULL;
            r->change.count = 0;
            r->change.messages = NULL;
            r->heartbeat.text = r->heartbeat.generation = NULL;
            r->text = NULL;
            r->name = r->after = NULL;
            late->found = g_array_new(FALSE, TRUE, sizeof(struct store_value));
            LIST_INSERT_HEAD(&link->model->late, late, later);
        }
    }
    struct message *message;
    while ((message = TAILQ_FIRST(&link->messages))) {
        TAILQ_REMOVE(&link->messages, message, link);
        g_clear_pointer(&message->value.bytes, g_bytes_unref);
        g_bytes_unref(message->text);
        g_free((char *)message->key.name);
        g_free(message);
    }
    if (report) {
        link->events->down(link->context);
        if (link->loop) {
            ev_timer_start(link->loop, &link->timer);
        }
    }
    while ((r = TAILQ_FIRST(&unanswered))) {
        TAILQ_REMOVE(&unanswered, r, link);
        r->answer = (struct store_answer){.result = STORE_UNKNOWN};
        GArray *extensions = r->extensions;
        r->extensions = r->extensions ? r->extensions : g_array_new(FALSE, FALSE, sizeof(struct store_extension));
        g_array_set_size(r->found, 0);
        if (report) {
            request_answer(r);
        } else {
            request_free(r);
        }
        (void)extensions;
    }
}

static void link_deliver(struct model_link *link, struct message *message)
{
    const struct store_key *key = message->has_key ? &message->key : NULL;
    if (message->changed) {
        link->events->changed(link->context, key);
    } else {
        link->events->message(link->context, key, key ? &message->value : NULL, message->text);
    }
    g_clear_pointer(&message->value.bytes, g_bytes_unref);
    g_bytes_unref(message->text);
    g_free((char *)message->key.name);
    g_free(message);
}

static void link_pump(struct model_link *link)
{
    clock_ms now = clock_now();
    struct request *r;
    struct message *message;
    if (!link->up && !link->closed && !link->stopped && now >= link->connect_at) {
        link->up = true;
        link->waits_since = 0;
        link->events->up(link->context);
    }
    while (link->up && !link->stopped && !link->mute && (r = TAILQ_FIRST(&link->out)) && r->due <= now) {
        TAILQ_REMOVE(&link->out, r, link);
        model_execute(link->model, r);
        if (r->kind == SEND || r->kind == WATCH) {
            request_free(r);
        } else {
            r->due = now + link->slow;
            TAILQ_INSERT_TAIL(&link->back, r, link);
        }
    }
    while (link->up && !link->stopped && !link->deaf && !link->mute && (message = TAILQ_FIRST(&link->messages)) &&
           message->due <= now) {
        TAILQ_REMOVE(&link->messages, message, link);
        link_deliver(link, message);
    }
    while (link->up && !link->stopped && !link->deaf && (r = TAILQ_FIRST(&link->back)) && r->due <= now) {
        if (link->lose_next) {
            link->lose_next = false;
            link_drop(link, true);
            break;
        }
        TAILQ_REMOVE(&link->back, r, link);
        request_answer(r);
    }
    bool waits = link->up && (!TAILQ_EMPTY(&link->out) || !TAILQ_EMPTY(&link->back));
    link->waits_since = !waits                                                             ? 0
                        : link->waits_since && (link->stopped || link->deaf || link->mute) ? link->waits_since
                                                                                           : now;
    if (waits && now - link->waits_since >= link->timeout) {
        link->waits_since = 0;
        link_drop(link, true);
    }
}

static void link_on_timer(struct ev_loop *loop, ev_timer *timer, int events)
{
    struct model_link *link = timer->data;
    (void)events;
    ev_timer_stop(loop, timer);
    link_pump(link);
    bool idle = link->up && TAILQ_EMPTY(&link->out) && TAILQ_EMPTY(&link->back) && TAILQ_EMPTY(&link->messages);
    const struct request *r = TAILQ_EMPTY(&link->back) ? TAILQ_FIRST(&link->out) : TAILQ_FIRST(&link->back);
    bool waits = link->slow || link->stopped || link->deaf || link->mute || !link->up || (r && r->due > clock_now());
    if (!idle) {
        ev_timer_set(timer, waits ? 0.002 : 0., 0.);
        ev_timer_start(loop, timer);
    } else {
        ev_timer_set(timer, 0., 0.);
    }
}

void link_be_slow(struct model_link *link, int64_t ms)
{
    link->slow = ms;
}

void link_be_deaf(struct model_link *link)
{
    link->deaf = true;
}

void link_be_mute(struct model_link *link)
{
    link->mute = true;
}

void link_lose_next(struct model_link *link)
{
    link->lose_next = true;
}

void link_stop(struct model_link *link)
{
    link->stopped = true;
}

void link_continue(struct model_link *link)
{
    link->stopped = false;
    link->slow = 0;
}

void model_run_late(struct model *model)
{
    struct request *r;
    while ((r = LIST_FIRST(&model->late))) {
        LIST_REMOVE(r, later);
        model_execute(model, r);
        request_free(r);
    }
}

void link_cut(struct model_link *link, bool closed)
{
    link->closed = closed;
    link->deaf = link->mute = link->lose_next = false;
    if (link->up) {
        link_drop(link, true);
    }
    link->connect_at = clock_now();
}

bool link_is_up(const struct model_link *link)
{
    return link->up;
}

/* --- the store --- */

static void store_start(struct store *s, struct ev_loop *loop, const struct store_events *events, void *context)
{
    struct model_link *link = (struct model_link *)s;
    link->loop = loop;
    link->events = events;
    link->context = context;
    ev_timer_start(loop, &link->timer);
}

static void store_free(struct store *s)
{
    struct model_link *link = (struct model_link *)s;
    link_drop(link, false);
    if (link->loop) {
        ev_timer_stop(link->loop, &link->timer);
    }
    LIST_REMOVE(link, entry);
    g_free(link);
}

static void store_heartbeat_(struct store *s, const struct store_heartbeat *heartbeat,
                             void (*done)(void *, const struct store_answer *, const struct store_heartbeat *),
                             void *arg)
{
    struct request *r = request_new(s, HEARTBEAT, sizeof(struct store_value));
    r->heartbeat = *heartbeat;
    r->heartbeat.text = g_strdup(heartbeat->text);
    r->heartbeat.generation = g_strdup("");
    r->done.heartbeat = done;
    r->arg = arg;
}

static void store_mounts(struct store *s,
                         void (*done)(void *, const struct store_answer *, const struct store_mount *, size_t),
                         void *arg)
{
    struct request *r = request_new(s, MOUNTS, sizeof(struct store_mount));
    r->done.mounts = done;
    r->arg = arg;
}

static void store_read(struct store *s, const struct store_key *keys, size_t count,
                       void (*done)(void *, const struct store_answer *), void *arg)
{
    struct request *r = request_new(s, READ, sizeof(struct store_value));
    r->keys = g_array_new(FALSE, FALSE, sizeof(struct store_key));
    for (size_t i = 0; i < count; i++) {
        struct store_key key = {.space = keys[i].space, .name = g_strdup(keys[i].name)};
        g_array_append_val(r->keys, key);
    }
    r->done.read = done;
    r->arg = arg;
}

static void store_swap(struct store *s, struct store_change *const *changes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct request *r = request_new(s, SWAP, sizeof(struct store_value));
        const struct store_change *from = changes[i];
        r->change = *from;
        r->original = changes[i];
        r->change.messages = g_array_new(FALSE, FALSE, sizeof(struct store_message));
        for (unsigned k = 0; k < from->count; k++) {
            r->change.puts[k].key.name = g_strdup(from->puts[k].key.name);
            r->change.puts[k].bytes = from->puts[k].bytes ? g_bytes_ref(from->puts[k].bytes) : NULL;
        }
        for (guint k = 0; from->messages && k < from->messages->len; k++) {
            struct store_message message = g_array_index(from->messages, struct store_message, k);
            g_bytes_ref(message.text);
            g_array_append_val(r->change.messages, message);
        }
    }
}

static void store_extend(struct store *s, struct store_extension *extensions, size_t count,
                         void (*done)(void *, const struct store_answer *), void *arg)
{
    struct request *r = request_new(s, EXTEND, sizeof(struct store_value));
    r->extensions = g_array_new(FALSE, FALSE, sizeof(struct store_extension));
    r->original_extensions = extensions;
    for (size_t i = 0; i < count; i++) {
        struct store_extension x = extensions[i];
        x.key.name = g_strdup(x.key.name);
        g_array_append_val(r->extensions, x);
    }
    r->done.read = done;
    r->arg = arg;
}

static void store_list(struct store *s, const char *directory, const char *after, size_t max,
                       void (*done)(void *, const struct store_answer *, const struct store_name *, size_t), void *arg)
{
    struct request *r = request_new(s, LIST, sizeof(struct store_name));
    r->name = g_strdup(directory);
    r->after = g_strdup(after);
    r->max = max;
    r->done.list = done;
    r->arg = arg;
}

static void store_send(struct store *s, struct record_id to, GBytes *text)
{
    struct request *r = request_new(s, SEND, sizeof(struct store_value));
    r->to = to;
    r->text = g_bytes_ref(text);
}

static bool store_allows_name(struct store *s, const char *name)
{
    (void)s, (void)name;
    return true;
}

static const struct store_operations store_operations = {
    .name = "model",
    .safety = BACKEND_SINGLE,
    .start = store_start,
    .free = store_free,
    .heartbeat = store_heartbeat_,
    .mounts = store_mounts,
    .read = store_read,
    .swap = store_swap,
    .extend = store_extend,
    .list = store_list,
    .send = store_send,
    .allows_name = store_allows_name,
};

struct store *model_store(struct model *model, int64_t timeout, struct model_link **ret_link)
{
    struct model_link *link = g_new0(struct model_link, 1);
    link->store.operations = &store_operations;
    link->model = model;
    link->timeout = timeout;
    ev_timer_init(&link->timer, link_on_timer, 0., 0.);
    link->timer.data = link;
    TAILQ_INIT(&link->out);
    TAILQ_INIT(&link->back);
    TAILQ_INIT(&link->messages);
    LIST_INSERT_HEAD(&model->links, link, entry);
    if (ret_link) {
        *ret_link = link;
    }
    return &link->store;
}

/* --- the server --- */

static void model_new_generation(struct model *model)
{
    g_snprintf(model->text, sizeof model->text, "g%u", ++model->generation);
}

struct model *model_new(void)
{
    struct model *model = g_new0(struct model, 1);
    model->values = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, value_free);
    model->pulses = g_array_new(FALSE, FALSE, sizeof(struct pulse));
    model->chance = g_rand_new_with_seed(1);
    model->skew = clock_wall() - clock_now() - EPOCH_1970;
    LIST_INIT(&model->links);
    LIST_INIT(&model->late);
    model_new_generation(model);
    return model;
}

static void model_forget_pulses(struct model *model)
{
    for (guint i = 0; i < model->pulses->len; i++) {
        g_free(g_array_index(model->pulses, struct pulse, i).text);
    }
    g_array_set_size(model->pulses, 0);
}

void model_free(struct model *model)
{
    while (!LIST_EMPTY(&model->late)) {
        struct request *r = LIST_FIRST(&model->late);
        LIST_REMOVE(r, later);
        request_free(r);
    }
    model_forget_pulses(model);
    g_array_unref(model->pulses);
    g_hash_table_unref(model->values);
    g_rand_free(model->chance);
    g_free(model);
}

void model_lose_messages(struct model *model, unsigned permille, uint32_t seed)
{
    model->lost_permille = permille;
    g_rand_set_seed(model->chance, seed);
}

void model_step_clock(struct model *model, int64_t ms)
{
    model->skew += ms;
}

void model_restart(struct model *model, bool empty)
{
    struct model_link *link;
    model_forget_pulses(model);
    model_new_generation(model);
    if (empty) {
        g_hash_table_remove_all(model->values);
        model->floor = 0;
    }
    LIST_FOREACH(link, &model->links, entry) {
        if (link->up) {
            link_drop(link, true);
        }
    }
}

void model_answer_again(struct model *model, unsigned times)
{
    model->again = times;
}

void model_set_room(struct model *model, unsigned values)
{
    model->room = values;
}

bool model_foreign_take(struct model *model, const char *name, int64_t ttl)
{
    const struct store_key key = {STORE_LOCK, name};
    if (model_find(model, &key)) {
        return false;
    }
    struct value *value = g_new0(struct value, 1);
    clock_ms now = model_now(model);
    value->store = (struct store_value){
        .state = STORE_FOREIGN, .stamp = ++model->changes, .time = now, .end = ttl ? now + ttl : CLOCK_NEVER};
    g_hash_table_insert(model->values, model_key(STORE_LOCK, name), value);
    return true;
}

void model_foreign_release(struct model *model, const char *name)
{
    const struct store_key key = {STORE_LOCK, name};
    struct value *value = model_find(model, &key);
    if (value && value->store.state == STORE_FOREIGN) {
        value->store.stamp = 0;
        model_remove(value);
        model_find(model, &key);
    }
}

unsigned model_count(const struct model *model, enum store_space space)
{
    GHashTableIter each;
    const char *key;
    const struct value *value;
    unsigned count = 0;
    g_hash_table_iter_init(&each, model->values);
    while (g_hash_table_iter_next(&each, (gpointer *)&key, (gpointer *)&value)) {
        count +=
            key[0] - '0' == (int)space && value->store.state != STORE_ABSENT && value->store.end > model_now(model);
    }
    return count;
}

uint64_t model_requests(const struct model *model)
{
    return model->requests;
}

uint64_t model_changes(const struct model *model)
{
    return model->changes;
}
