/* locate: which server has the data; see locate.h.
 *
 * One is asked after the other: its name is looked up, each address tried, all questions sent at once.  A Sentinel's
 * connection is kept behind its answer, to hear of +switch-master: who has nothing to ask a frozen master would find it
 * alive again later, and not know that there is another one by then.  When that connection ends others are asked
 * quietly.
 */
#include "backend/redis/conn/locate.h"

#include <ev.h>
#include <glib.h>
#include <string.h>

#include "backend/log.h"
#include "backend/redis/conn/link.h"
#include "backend/remote/remote.h"
#include "backend/remote/resolve.h"

#define SWITCHED "+switch-master"

enum locate_state {
    LOCATE_IDLE,
    LOCATE_ASKING,
    LOCATE_WATCHING, /* a Sentinel reports when the master changes */
    LOCATE_WAITING   /* others must be asked quietly */
};

/* Answers in the order of the questions. */
enum locate_step { LOCATE_AUTH, LOCATE_FIRST, LOCATE_SECOND };

struct redis_locate {
    struct redis_locate_options options;
    struct ev_loop *loop;
    redis_located *located;
    void *arg;

    enum locate_state state;
    bool quietly; /* nobody waits for the answer */
    guint count;  /* of hosts */
    guint host;   /* the host that is asked, or was asked last */
    guint left;   /* to be asked */
    struct remote_resolve *resolve;
    GArray *addresses; /* of the host */
    guint address;     /* the address that is tried */
    struct redis_link link;
    enum locate_step step;
    int64_t slot;
    char *found; /* the host that was named */
    uint16_t found_port;
    GString *errors; /* of the hosts that were asked */
    struct ev_timer timer;
};

static void locate_stop(struct redis_locate *l)
{
    ev_timer_stop(l->loop, &l->timer);
    remote_resolve_cancel(l->resolve);
    l->resolve = NULL;
    redis_link_close(&l->link);
    g_clear_pointer(&l->addresses, g_array_unref);
    g_clear_pointer(&l->found, g_free);
    l->state = LOCATE_IDLE;
}

static void locate_set_timer(struct redis_locate *l, int64_t ms)
{
    ev_timer_stop(l->loop, &l->timer);
    ev_timer_set(&l->timer, (double)ms / 1000, 0);
    ev_timer_start(l->loop, &l->timer);
}

/* --- one after the other --- */

static void locate_connect(struct redis_locate *l);
static void locate_on_resolved(void *arg, GArray *addresses, const char *error);

static void locate_fail_attempt(struct redis_locate *l)
{
    if (l->quietly) {
        l->state = LOCATE_WAITING;
        locate_set_timer(l, REDIS_LOCATE_RETRY);
    } else {
        l->located(l->arg, NULL, 0, l->errors->str);
    }
}

static void locate_next(struct redis_locate *l)
{
    const struct redis_uri *uri = l->options.uri;
    locate_stop(l);
    if (l->left == 0) {
        locate_fail_attempt(l);
        return;
    }
    l->left--;
    l->host = (l->host + 1) % l->count;
    l->state = LOCATE_ASKING;
    locate_set_timer(l, l->options.resolve_timeout);
    GArray *addresses = remote_resolve_numeric(uri->hosts[l->host], uri->ports[l->host]);
    if (!addresses) {
        l->resolve = remote_resolve_start(l->loop, uri->hosts[l->host], uri->ports[l->host], 0, locate_on_resolved, l);
    }
    if (!l->resolve) {
        locate_on_resolved(l, addresses, "no thread can be started to look it up");
    }
}

/* The present host is of no use: asks the next. */
static void locate_pass_over(struct redis_locate *l, const char *why)
{
    char *host = redis_uri_show_host(l->options.uri->hosts[l->host], l->options.uri->ports[l->host]), text[256];
    g_string_append_printf(l->errors, "%s%s %s: %s", l->errors->len > 0 ? "; " : "",
                           l->options.uri->kind == REDIS_SENTINEL ? "the Sentinel" : "the node", host,
                           log_escape(text, sizeof text, why));
    g_free(host);
    locate_next(l);
}

static void locate_on_resolved(void *arg, GArray *addresses, const char *error)
{
    struct redis_locate *l = arg;
    l->resolve = NULL;
    if (!addresses) {
        locate_pass_over(l, error);
        return;
    }
    l->addresses = addresses;
    l->address = 0;
    locate_connect(l);
}

static void locate_connect(struct redis_locate *l)
{
    const struct redis_uri *uri = l->options.uri;
    const struct remote_address *address = &g_array_index(l->addresses, struct remote_address, l->address);
    locate_set_timer(l, REDIS_LOCATE_TIMEOUT);
    int r = redis_link_open(&l->link, address, l->options.tls_trust, uri->tls ? uri->hosts[l->host] : NULL, true);
    if (r < 0) {
        locate_pass_over(l, g_strerror(-r));
    }
}

/* The address that was tried has failed: there may be another. */
static void locate_fail(struct redis_locate *l, const char *why)
{
    redis_link_close(&l->link);
    if (l->addresses && ++l->address < l->addresses->len) {
        locate_connect(l);
    } else {
        locate_pass_over(l, why);
    }
}

static void locate_begin(struct redis_locate *l, bool quietly)
{
    l->quietly = quietly;
    l->left = l->count;
    g_string_truncate(l->errors, 0);
    locate_next(l);
}

static void locate_on_timer(struct ev_loop *loop, struct ev_timer *timer, int events)
{
    struct redis_locate *l = timer->data;
    (void)loop, (void)events;
    if (l->state == LOCATE_WAITING) {
        locate_begin(l, true);
    } else if (l->resolve) {
        locate_pass_over(l, "its address is not found in time");
    } else {
        locate_fail(l, "no answer in time");
    }
}

/* --- questions and answers --- */

static void locate_say(struct redis_locate *l, int count, const char **words)
{
    size_t lengths[4];
    for (int i = 0; i < count; i++) {
        lengths[i] = strlen(words[i]);
    }
    redis_link_append(&l->link, count, words, lengths);
}

#define SAY(l, ...)                                                                                                    \
    do {                                                                                                               \
        const char *words_[] = {__VA_ARGS__};                                                                          \
        locate_say(l, (int)G_N_ELEMENTS(words_), words_);                                                              \
    } while (0)

static void locate_on_opened(void *arg)
{
    struct redis_locate *l = arg;
    const struct redis_locate_options *o = &l->options;
    l->step = o->password || o->user ? LOCATE_AUTH : LOCATE_FIRST;
    if (o->user) {
        SAY(l, "AUTH", o->user, o->password ? o->password : "");
    } else if (o->password) {
        SAY(l, "AUTH", o->password);
    }
    if (o->uri->kind == REDIS_SENTINEL) {
        SAY(l, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", o->uri->name);
        SAY(l, "SUBSCRIBE", SWITCHED);
    } else {
        SAY(l, "CLUSTER", "KEYSLOT", o->prefix);
        SAY(l, "CLUSTER", "SLOTS");
    }
    redis_link_flush(&l->link);
}

/* In words of its own: a server repeats the arguments of a command that it does not know, and one may be a password. */
static void locate_on_refused(struct redis_locate *l, const char *why)
{
    static const struct {
        const char *begin, *words;
    } known[] = {
        {"ERR This instance has cluster support disabled", "the server belongs to no Cluster: mount redis://HOST"},
        {"ERR unknown command `SENTINEL", "the server is no Sentinel"},
        {"ERR unknown command 'SENTINEL", "the server is no Sentinel"},
    };
    bool of_sentinels = l->options.uri->kind == REDIS_SENTINEL;
    if (g_str_has_prefix(why, "NOAUTH")) {
        why = of_sentinels ? "the server requires a password: put it in a file with mode 0600 and mount with -o "
                             "sentinel_credentials=FILE"
                           : "the server requires a password: put it in a file with mode 0600 and mount with -o "
                             "credentials=FILE";
    } else if (l->step == LOCATE_AUTH) {
        why = of_sentinels ? "the server refuses this password: correct or leave out sentinel_credentials="
                           : "the server refuses this password: correct or leave out credentials=";
    }
    for (size_t i = 0; i < G_N_ELEMENTS(known); i++) {
        why = g_str_has_prefix(why, known[i].begin) ? known[i].words : why;
    }
    locate_fail(l, why);
}

static bool locate_is_text(const redisReply *reply, size_t index)
{
    return reply->type == REDIS_REPLY_ARRAY && index < reply->elements &&
           reply->element[index]->type == REDIS_REPLY_STRING;
}

/* Element 0 is a host, element 1 a port, as text or number.  In a Cluster a host that is not said is the one that was
 * asked. */
static bool locate_take_address(struct redis_locate *l, const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 2) {
        return false;
    }
    const redisReply *host = reply->element[0], *port = reply->element[1];
    int64_t number = port->type == REDIS_REPLY_INTEGER  ? port->integer
                     : port->type == REDIS_REPLY_STRING ? g_ascii_strtoll(port->str, NULL, 10)
                                                        : 0;
    bool same = l->options.uri->kind == REDIS_CLUSTER &&
                (host->type == REDIS_REPLY_NIL || (host->type == REDIS_REPLY_STRING && host->len == 0));
    const char *text = same ? l->options.uri->hosts[l->host] : host->type == REDIS_REPLY_STRING ? host->str : "";
    if (!remote_is_host(text) || number < 1 || number > UINT16_MAX) {
        return false;
    }
    g_free(l->found);
    l->found = g_strdup(text);
    l->found_port = (uint16_t)number;
    return true;
}

static void locate_on_first(struct redis_locate *l, const redisReply *reply)
{
    if (l->options.uri->kind == REDIS_CLUSTER) {
        l->slot = reply->type == REDIS_REPLY_INTEGER ? reply->integer : -1;
    } else if (reply->type == REDIS_REPLY_NIL) {
        char *why = g_strdup_printf("it knows no master '%s'", l->options.uri->name);
        locate_fail(l, why);
        g_free(why);
    } else if (!locate_take_address(l, reply)) {
        locate_fail(l, "an answer that cannot be");
    }
}

static bool locate_take_slots(struct redis_locate *l, const redisReply *reply)
{
    for (size_t i = 0; reply->type == REDIS_REPLY_ARRAY && i < reply->elements; i++) {
        const redisReply *range = reply->element[i];
        if (range->type == REDIS_REPLY_ARRAY && range->elements > 2 && range->element[0]->type == REDIS_REPLY_INTEGER &&
            range->element[1]->type == REDIS_REPLY_INTEGER && range->element[0]->integer <= l->slot &&
            l->slot <= range->element[1]->integer) {
            return locate_take_address(l, range->element[2]); /* its master; behind it replicas */
        }
    }
    return false;
}

static void locate_on_found(struct redis_locate *l)
{
    char *host = g_steal_pointer(&l->found);
    ev_timer_stop(l->loop, &l->timer);
    if (l->options.uri->kind == REDIS_SENTINEL) {
        l->state = LOCATE_WATCHING;
    } else {
        locate_stop(l);
    }
    l->located(l->arg, host, l->found_port, NULL);
    g_free(host);
}

/* "NAME OLD-HOST OLD-PORT HOST PORT" */
static void locate_on_message(struct redis_locate *l, const redisReply *reply)
{
    if (!locate_is_text(reply, 1) || !locate_is_text(reply, 2) || strcmp(reply->element[1]->str, SWITCHED) != 0) {
        return;
    }
    char **words = g_strsplit(reply->element[2]->str, " ", 5);
    guint64 port;
    if (g_strv_length(words) == 5 && strcmp(words[0], l->options.uri->name) == 0 && remote_is_host(words[3]) &&
        g_ascii_string_to_unsigned(words[4], 10, 1, UINT16_MAX, &port, NULL)) {
        l->located(l->arg, words[3], (uint16_t)port, NULL);
    }
    g_strfreev(words);
}

static void locate_on_answer(struct redis_locate *l, const redisReply *reply)
{
    bool may_fail = l->step == LOCATE_SECOND && l->options.uri->kind == REDIS_SENTINEL; /* it may not be permitted */
    if (reply->type == REDIS_REPLY_ERROR && !may_fail) {
        locate_on_refused(l, reply->str);
        return;
    }
    switch (l->step++) {
    case LOCATE_FIRST:
        locate_on_first(l, reply);
        break;
    case LOCATE_SECOND:
        if (l->options.uri->kind == REDIS_SENTINEL || locate_take_slots(l, reply)) {
            locate_on_found(l);
        } else {
            locate_fail(l, "it knows no node that has the slot of the prefix");
        }
        break;
    default:
        break;
    }
}

static void locate_on_replied(void *arg, redisReply *reply)
{
    struct redis_locate *l = arg;
    if (l->state == LOCATE_WATCHING) {
        locate_on_message(l, reply);
    } else {
        locate_on_answer(l, reply);
    }
    freeReplyObject(reply);
}

static void locate_on_closed(void *arg, enum redis_failure failure, const char *why)
{
    struct redis_locate *l = arg;
    (void)failure;
    if (l->state == LOCATE_WATCHING) {
        l->state = LOCATE_WAITING;
        locate_set_timer(l, REDIS_LOCATE_RETRY);
    } else {
        locate_fail(l, why);
    }
}

bool redis_locate_is_master(const redisReply *reply)
{
    return locate_is_text(reply, 0) && strcmp(reply->element[0]->str, "master") == 0;
}

/* --- from outside --- */

static const struct redis_link_events link_events = {locate_on_opened, locate_on_replied, locate_on_closed};

struct redis_locate *redis_locate_new(const struct redis_locate_options *options, struct ev_loop *loop,
                                      redis_located *located, void *arg)
{
    struct redis_locate *l = g_new0(struct redis_locate, 1);
    l->options = *options;
    l->loop = loop;
    l->located = located;
    l->arg = arg;
    l->count = options->uri->hosts ? g_strv_length(options->uri->hosts) : 0;
    l->host = l->count - 1; /* the first is asked first */
    l->errors = g_string_new(NULL);
    redis_link_init(&l->link, loop, &link_events, l);
    ev_timer_init(&l->timer, locate_on_timer, 0, 0);
    l->timer.data = l;
    return l;
}

void redis_locate_ask(struct redis_locate *l)
{
    const struct redis_uri *uri = l->options.uri;
    if (uri->kind == REDIS_SERVER) {
        l->located(l->arg, uri->host, uri->port, NULL);
        return;
    }
    locate_begin(l, false);
}

void redis_locate_free(struct redis_locate *l)
{
    locate_stop(l);
    g_string_free(l->errors, TRUE);
    g_free(l);
}
