/* private: what the files of the Redlock backend share.
 *
 * From the top to the ground; none calls one above it.
 *
 * redlock.c    the backend: its beginning and end, servers up and down, messages, status
 * check.c      the first look at the servers, before a mount
 * change.c     what is done to tickets
 * acquire.c    taking and waiting
 * revoke.c     ending holders by name
 * directory.c  directories: making, removing, changing, giving them back
 * ask.c        questions: who holds, and what is in a directory
 * keep.c       what is held, and its record
 * call.c       what an operation asks of all servers, once or more
 * poll.c       one question to all servers, and their votes
 * node.c       one server
 * seen.c       directories that were seen
 * script.c     the table of scripts
 * vote.c       what becomes of votes
 * uri.c        the address
 */
#ifndef BACKEND_REDLOCK_PRIVATE_H
#define BACKEND_REDLOCK_PRIVATE_H

#include "backend/redlock/redlock.h"
#include "backend/redlock/script.h"
#include "backend/redlock/vote.h"
#include "backend/remote/remote.h"

#define REDLOCK_RETRY 200 /* ms before it is tried again, ±50 %, growing */
#define REDLOCK_RETRY_MAX 1000
#define REDLOCK_TRIES 6            /* of a claim that does not wait, while nobody has a majority */
#define REDLOCK_RELEASE_TIME 10000 /* ms that a release is tried on a server behind a majority */
#define REDLOCK_LONGEST 3600000    /* ms: of terms, as far as servers are held off for them */
#define REDLOCK_CONTENT_MAX 65536
#define REDLOCK_META_MAX 4096

/* One server. */
struct redlock_node {
    struct redlock *r;
    struct redis_conn *conn;
    char *where;
    char *run_id;     /* of the process that answers; NULL: not known */
    clock_ms born;    /* it was started no later than then */
    clock_ms greeted; /* when that was said last */
    clock_ms changed; /* when it came up or went down */
    bool lasting;     /* it has all on its disk before it answers */
    GPtrArray *warnings;
};

/* What this mount knows of a ticket that holds. */
struct redlock_hold {
    char *name;
    char id[REMOTE_ID_SIZE]; /* what stands in the key: of several of one handle or lock owner the first one's */
    uint64_t revision;       /* of its record, as far as a majority has it */
};

/* A directory as it was last seen. */
struct redlock_directory {
    char *made;
    int64_t ttl, revision;
    GBytes *meta;
};

struct redlock {
    struct remote remote;
    unsigned count;
    struct redlock_node *nodes;
    char *before, *behind; /* of a lock's key: around the name */
    char *channel;         /* of all mounts with these keys */
    char *about;           /* how this mount describes itself: see backend/format.h */
    char *address;         /* to show */
    GHashTable *holds;     /* token -> struct redlock_hold */
    GHashTable *tries;     /* token -> the one with which it is asked for: each time another, as what is late of an
                              earlier time may let it go */
    GHashTable *changes;   /* name -> a bit for each server that has told that its key has changed */
    GHashTable *directories;
    LIST_HEAD(, redlock_poll) polls;
    LIST_HEAD(, redlock_call) calls;
    GStringChunk *arena; /* of the poll that is being made */
    GArray *arguments;   /* struct redis_argument: its keys, then the rest */
    guint keys;
    GRand *random;
    int64_t timeout; /* of a request to one server */
    int64_t longest; /* the longest term that was asked for */
    int64_t grace;   /* or 0 */
    uint64_t revisions, order;
    bool up, was_up; /* a majority */
    clock_ms changed;
};

#define REDLOCK_CHANNEL "lfs:redlock1:"       /* and the template of the keys */
#define REDLOCK_CHANNEL_FORMER "lfs:redlock:" /* the same of mounts without a format number */

/* The channel of all mounts with these keys, as struct redlock_options has them.  A new string. */
static inline char *redlock_channel(const char *begin, const char *prefix, const char *template)
{
    return g_strconcat(begin, prefix ? prefix : "", template ? template : "{n}", NULL);
}

/* --- node.c --- */

/* As struct redis_conn_events says. */
bool redlock_node_greeted(struct redlock_node *node, const redisReply *reply);
/* It is up: asks what INFO does not tell. */
void redlock_node_up(struct redlock_node *node);
bool redlock_node_is_up(const struct redlock_node *node);
/* It was started so lately that it may have forgotten what others still believe in: for how long this counts, ms; 0:
 * no. */
int64_t redlock_node_held_off(const struct redlock_node *node);
/* Scripts that are sent from now on, also those that are sent again, know whether it is. */
void redlock_node_stamp(struct redlock_node *node);
/* For a server that was started at `born`, and terms of at most `term`. */
int64_t redlock_hold_off(clock_ms now, clock_ms born, int64_t term);
/* How many are up. */
unsigned redlock_nodes_up(const struct redlock *r);

/* --- poll.c --- */

/* One server's answer. */
struct redlock_ballot {
    struct redlock_poll *poll;
    uint64_t id;      /* of the request; 0: none is under way */
    bool young;       /* it is held off, now that it has answered: it may be another process than was asked */
    clock_ms sent;    /* of the answer */
    GPtrArray *words; /* GBytes, each with a NUL behind it; NULL: no answer */
};

struct redlock_poll {
    LIST_ENTRY(redlock_poll) link;
    struct redlock *r;
    struct redlock_call *call; /* NULL: what still comes is of no interest */
    enum redlock_script_id script;
    struct vote vote;
    unsigned open;
    bool telling;
    struct redlock_ballot ballots[VOTE_SERVERS];
};

/* Whether a name can be that of a lock or a directory. */
bool redlock_is_name(const struct redlock *r, const char *name);
/* What is asked: KEYS, and then the rest. */
char *redlock_key(const struct redlock *r, const char *name);
void redlock_poll_key(struct redlock *r, char letter, const char *name); /* letter 0: the lock's own */
void redlock_poll_text(struct redlock *r, const char *text);
void redlock_poll_number(struct redlock *r, int64_t number);
void redlock_poll_bytes(struct redlock *r, GBytes *bytes); /* NULL: '' */
/* Asks all servers.  After each answer call->told, until redlock_poll_close; call NULL: nobody is told.  `timeout`: of
 * each, ms. */
void redlock_poll_send(struct redlock *r, struct redlock_call *call, enum redlock_script_id script, int64_t timeout);
/* What has not been answered is not sent (again). */
void redlock_poll_forget(struct redlock_poll *poll);
/* Its call hears no more.  `settle`: what is under way is to be carried out all the same. */
void redlock_poll_close(struct redlock_poll *poll, bool settle);
void redlock_poll_end_all(struct redlock *r);
/* Words of an answer: "" and 0 where there is none. */
const char *redlock_ballot_text(const struct redlock_ballot *ballot, guint index);
int64_t redlock_ballot_number(const struct redlock_ballot *ballot, guint index);
GBytes *redlock_ballot_bytes(const struct redlock_ballot *ballot, guint index, gsize max); /* a new reference */
/* The one with that vote whose number at `index` is the greatest; NULL: none has it. */
const struct redlock_ballot *redlock_poll_best(const struct redlock_poll *poll, const char *word, guint index);
/* How many have answered, whether it counts or not. */
unsigned redlock_poll_answers(const struct redlock_poll *poll);
/* Before the first answer with that vote was asked for. */
clock_ms redlock_poll_sent(const struct redlock_poll *poll, const char *word);
/* One of the store's that answers nobody any more: lets go `digest` (SHA-1 of the token), everywhere. */
void redlock_poll_fill_list(struct redlock *r, const char *directory, const char *after, size_t max);
void redlock_poll_fill_release(struct redlock *r, const char *name, const char *digest, const char *why,
                               uint64_t number, int64_t guard);

/* --- call.c --- */

struct redlock_call {
    LIST_ENTRY(redlock_call) link;
    struct redlock *r;
    struct remote_request *request;
    struct redlock_poll *poll; /* or NULL */
    void (*told)(struct redlock_call *call);
    void (*again)(struct redlock_call *call); /* when `timer` goes off */
    ev_timer timer;
    unsigned tries;
    clock_ms tried_until; /* a change that no majority has confirmed is tried again until then; 0: not */
    char id[REMOTE_ID_SIZE];
    char *name;
    clock_ms deadline; /* until when the first round is believed in */
    uint64_t number, revision;
    enum backend_result result;
    bool looked;  /* who holds has been asked */
    bool crossed; /* what it looks at was changed by this mount meanwhile */
    char *made;   /* of a directory */
};

struct redlock_call *redlock_call_new(struct redlock *r, struct remote_request *request, const char *name);
/* Frees it; what is under way is settled if `settle`, else not sent (again). */
void redlock_call_end(struct redlock_call *call, bool settle);
void redlock_call_end_all(struct redlock *r);
/* Asks, and has each answer told. */
void redlock_call_poll(struct redlock_call *call, enum redlock_script_id script, int64_t timeout,
                       void (*told)(struct redlock_call *call));
/* Later, from the loop. */
void redlock_call_later(struct redlock_call *call, int64_t ms, void (*again)(struct redlock_call *call));
/* A random pause before the next try. */
int64_t redlock_call_pause(struct redlock *r, int64_t waited);
/* How long one server may take for a lock with that term. */
int64_t redlock_call_timeout(const struct redlock *r, int64_t ttl);
/* Lets go `token` everywhere; nobody waits for it. */
void redlock_call_undo(struct redlock *r, const char *name, const char *id);
char *redlock_call_digest(const char *id);

/* --- keep.c --- */

/* What a lock's record says. */
struct redlock_record {
    unsigned kind;
    int64_t ttl, age;
    uint64_t number, revision;
    GBytes *meta, *content; /* borrowed */
};

struct redlock_record redlock_keep_record(const struct remote_ticket *t, uint64_t revision);
/* Of call->name with call->token: leaf and record; the key is to last `term`, or as long as another ticket that holds
 * with it needs.  `give`: it is held, so that servers that have it not are to be given it. */
void redlock_keep_fill_record(struct redlock *r, const struct redlock_record *record);
void redlock_keep_poll(struct redlock_call *call, const struct redlock_record *record, bool give,
                       void (*told)(struct redlock_call *call));
/* For how long one that holds is to be kept to last as long as it is believed in. */
int64_t redlock_keep_left(const struct remote_ticket *t);
/* Whether it was answered that a majority keeps it (VOTE_WON), or that a majority does not (VOTE_LOST); VOTE_AWAY:
 * nobody knows. */
enum vote_verdict redlock_keep_verdict(struct redlock_call *call);
struct redlock_hold *redlock_keep_hold(const struct redlock *r, const char *id);
struct redlock_hold *redlock_keep_new(struct redlock *r, const struct remote_ticket *t, const char *id,
                                      uint64_t revision);
void redlock_keep_free(gpointer hold);
/* What stands in the key for this ticket, or may. */
const char *redlock_keep_token(const struct redlock *r, const char *id);
/* Another ticket of that place that holds with the same, or NULL. */
struct remote_ticket *redlock_keep_other(const struct redlock *r, const char *name, const char *id);
/* The first ticket of this mount that holds the name, and is believed in; NULL: none. */
struct remote_ticket *redlock_keep_holder(const struct redlock *r, const char *name);
/* Tells all tickets of this mount that hold with what stands in a key. */
void redlock_keep_tell(struct redlock *r, const char *id, enum remote_event news, enum backend_end why);

/* --- ask.c --- */

/* What stands in the key while a guard runs. */
bool redlock_is_guard(const char *id);
void redlock_stat(struct redlock_call *call);
void redlock_test(struct redlock_call *call);
void redlock_list(struct redlock_call *call);
/* The holder that a majority may have named ("held …"); its meta and content are new references: redlock_ask_clear. */
void redlock_ask_describe(struct redlock_call *call, const char *word, struct backend_info *info);
void redlock_ask_clear(struct backend_info *info);
/* The same of a ticket of this mount, whose meta and content are borrowed. */
void redlock_ask_describe_ticket(struct remote_ticket *t, struct backend_info *info);
void redlock_ask_fill_look(struct redlock *r, const char *name);
/* What the answers to that tell; `nothing`: what a server says that knows nothing. */
enum vote_verdict redlock_ask_verdict(const struct redlock_call *call, const char *nothing, const char **ret_word);
/* The newest of what a majority says of a directory; its meta is a new reference. */
void redlock_ask_note_directory(struct redlock_call *call, const char *word, struct backend_directory *directory);

/* --- directory.c --- */

void redlock_mkdir(struct redlock_call *call);
void redlock_rmdir(struct redlock_call *call);
void redlock_set_directory(struct redlock_call *call);
/* A server may have lost those that were seen. */
void redlock_directory_restore_all(struct redlock *r);

/* --- seen.c --- */

/* It was seen, or not seen. */
void redlock_seen_note(struct redlock *r, const char *name, const char *made, int64_t revision,
                       const struct backend_directory *attributes);
void redlock_seen_forget(struct redlock *r, const char *name);
void redlock_seen_free(gpointer directory);

/* --- revoke.c --- */

void redlock_revoke(struct redlock_call *call);

/* --- acquire.c --- */

void redlock_acquire_begin(struct redlock_call *call);
/* As struct remote_store says. */
void redlock_acquire_beat(struct remote *remote, struct remote_ticket *const *tickets, size_t count);
void redlock_acquire_watch(struct remote *remote, struct remote_ticket *t);
/* That server says that the key of the lock has changed. */
void redlock_acquire_changed(struct redlock_node *node, const char *name);

/* --- change.c --- */

/* As struct remote_store says. */
uint64_t redlock_change_call(struct remote_request *request, struct remote_ticket *t, int64_t timeout);
void redlock_change_forget(struct remote *remote, uint64_t request);

#endif
