/* private: shared by the files of the Redlock backend.
 *
 * No file calls one above it:
 *
 * redlock.c          opens and closes the backend; servers up and down, messages, status
 * check.c            tries the servers before a mount
 * recover.c          the leases and handle locks of a mount that starts again
 * tickets.c          releases, renews, sets and converts tickets; the table of procedures
 * acquire.c          takes locks, and waits for them
 * revoke.c           ends holders by name
 * directory.c        makes, removes, changes and restores directories
 * query.c            who holds a name, and the names in a directory
 * mounts.c           the mounts that are there
 * hold.c             the locks that this mount holds, and their records on the servers
 * flow.c             a request in one or more polls
 * poll.c             one question to all servers, and their votes
 * node.c             one server
 * script.c           the table of scripts
 * vote.c             decides by votes
 * uri.c              parses the address
 */
#ifndef BACKEND_REDLOCK_PRIVATE_H
#define BACKEND_REDLOCK_PRIVATE_H

#include "backend/redis/key.h"
#include "backend/redis/redis.h"
#include "backend/redlock/redlock.h"
#include "backend/redlock/script.h"
#include "backend/redlock/vote.h"
#include "backend/remote/remote.h"

#define REDLOCK_RETRY 200 /* ms before another attempt, ±50 %, growing */
#define REDLOCK_RETRY_MAX 1000
#define REDLOCK_TRIES 6            /* of a claim that does not wait, while votes are split */
#define REDLOCK_RELEASE_TIME 10000 /* ms that a release is repeated on a server after a majority has it */
#define REDLOCK_LONGEST 3600000    /* ms: servers are not held off for longer terms */
#define REDLOCK_CONTENT_MAX 65536
#define REDLOCK_META_MAX 4096

/* One server. */
struct redlock_node {
    struct redlock *r;
    struct redis_conn *conn;
    char *where;
    char *run_id;     /* of the process that answers; NULL: not known */
    clock_ms born;    /* the latest time at which it can have started */
    clock_ms greeted; /* when it last reported its start */
    clock_ms changed; /* when it came up or went down */
    clock_ms full;    /* when it last refused something for lack of memory; 0: never */
    bool lasting;     /* it writes each change to its disk before it answers */
    GPtrArray *warnings;
};

/* A ticket of this mount that holds. */
struct redlock_hold {
    char *name;
    char id[REMOTE_ID_SIZE]; /* the value of the key; compatible tickets share that of the first */
    uint64_t revision;       /* the latest revision of its record that a majority has */
};

struct redlock {
    struct remote remote;
    unsigned count;
    struct redlock_node *nodes;
    struct redis_keys keys;
    char *channel;           /* of all mounts with these keys */
    char *about;             /* this mount's description: see backend/format.h */
    char id[REMOTE_ID_SIZE]; /* of this daemon, for other mounts */
    clock_ms started;
    char *address;                     /* to show */
    bool notes;                        /* the mount has an identity: its locks are noted, for its next daemon */
    struct redlock_recovery *recovery; /* until all that the daemon before held is found; or NULL */
    GHashTable *holds;                 /* ticket id -> struct redlock_hold */
    GHashTable *tries;   /* ticket id -> the value of the key of the pending attempt: each has its own, because a late
                            release of an earlier attempt may still arrive */
    GHashTable *changes; /* name -> a bit for each server that has reported a change of its key */
    LIST_HEAD(, redlock_poll) polls;
    LIST_HEAD(, redlock_flow) flows;
    GStringChunk *arena; /* of the poll that is being encoded */
    GArray *arguments;   /* struct redis_argument: its KEYS, then ARGV */
    char *removes;       /* see struct redlock_poll */
    guint key_count;
    GRand *random;
    int64_t longest; /* the longest term that was requested */
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
    return g_strconcat(begin, prefix ? prefix : "", template ? template : REDIS_KEY_DEFAULT, NULL);
}

/* --- node.c --- */

/* See struct redis_conn_events. */
bool redlock_node_greeted(struct redlock_node *node, const redisReply *reply);
/* The server is up: reads what INFO does not have. */
void redlock_node_up(struct redlock_node *node);
bool redlock_node_is_up(const struct redlock_node *node);
/* ms for which its vote does not count, because it started so recently that it may have lost locks; 0: it counts. */
int64_t redlock_node_held_off(const struct redlock_node *node);
bool redlock_node_is_full(const struct redlock_node *node); /* it was of late */
/* Updates the argument of all scripts, repeated ones too, that says whether the server is held off. */
void redlock_node_stamp(struct redlock_node *node);
/* ms for which a server that started at `born` is held off, with terms of at most `term`. */
int64_t redlock_node_hold_off(clock_ms now, clock_ms born, int64_t term);
/* Sends a message to all mounts through that server, if it is up. */
void redlock_node_publish(struct redlock_node *node, const char *text);
/* The number of servers that are up. */
unsigned redlock_nodes_up(const struct redlock *r);

/* --- poll.c --- */

/* One server's answer. */
struct redlock_ballot {
    struct redlock_poll *poll;
    uint64_t id;      /* of the pending request; 0: none */
    bool held_off;    /* when it answered: the process may be another than the one that got the request */
    bool repeated;    /* an earlier attempt may have been carried out, too */
    clock_ms sent;    /* of the answer */
    GPtrArray *words; /* GBytes, each with a NUL behind it; NULL: no answer */
};

struct redlock_poll {
    LIST_ENTRY(redlock_poll) link;
    struct redlock *r;
    struct redlock_flow *flow; /* NULL: the remaining answers are only counted */
    enum redlock_script_id script;
    struct vote vote;
    unsigned open;
    bool reporting;
    char *removes; /* a release: the digest of the value of the key, which was this mount's; or NULL */
    struct redlock_ballot ballots[VOTE_SERVERS];
};

/* Encode the next poll: all KEYS first. */
void redlock_poll_key(struct redlock *r, char letter, const char *name); /* letter 0: the lock's own */
void redlock_poll_text(struct redlock *r, const char *text);
void redlock_poll_number(struct redlock *r, int64_t number);
void redlock_poll_bytes(struct redlock *r, GBytes *bytes); /* NULL: '' */
/* Sends the poll that was encoded to all servers.  Calls flow->on_answer after each answer, until redlock_poll_close.
 * `flow` NULL: the answers are ignored.  `timeout`: of each server, ms. */
void redlock_poll_send(struct redlock *r, struct redlock_flow *flow, enum redlock_script_id script, int64_t timeout);
/* Sends the encoded call to one server.  Returns an id for redis_conn_forget. */
uint64_t redlock_poll_send_one(struct redlock_node *node, enum redlock_script_id script, int64_t timeout,
                               redis_answered *on_answer, void *arg);
/* Cancels pending requests: they are not sent, or not repeated. */
void redlock_poll_forget(struct redlock_poll *poll);
/* Its flow gets no further answer.  `settle`: pending requests are still carried out. */
void redlock_poll_close(struct redlock_poll *poll, bool settle);
void redlock_poll_end_all(struct redlock *r);
/* Words of an answer; "" and 0 if there is none. */
const char *redlock_ballot_text(const struct redlock_ballot *ballot, guint index);
int64_t redlock_ballot_number(const struct redlock_ballot *ballot, guint index);
GBytes *redlock_ballot_bytes(const struct redlock_ballot *ballot, guint index, gsize max); /* a new reference */
/* Of the answers with that vote, the one with the greatest number at `index`; NULL: none. */
const struct redlock_ballot *redlock_poll_best(const struct redlock_poll *poll, const char *word, guint index);
/* Is `word` the vote for a holder whose key this mount is just removing? */
bool redlock_poll_is_removing(const struct redlock *r, const char *word);
/* The number of answers, also of servers that are held off. */
unsigned redlock_poll_answers(const struct redlock_poll *poll);
/* Before the first request was sent whose answer has the vote "ok". */
clock_ms redlock_poll_sent(const struct redlock_poll *poll);
void redlock_poll_fill_list(struct redlock *r, const char *directory, const char *after, size_t max);
/* Releases the key whose value has that SHA-1 digest.  `id`: the value, if it is of this mount; or NULL. */
void redlock_poll_fill_release(struct redlock *r, const char *name, const char *digest, const char *why,
                               uint64_t number, int64_t guard, const char *id);
/* The key NOTES, and this mount's note of a lock with that token (NULL: none): see head.lua. */
void redlock_poll_fill_notes(struct redlock *r);
void redlock_poll_fill_note(struct redlock *r, const char *id, const char *name);

/* --- flow.c --- */

struct redlock_flow {
    LIST_ENTRY(redlock_flow) link;
    struct redlock *r;
    struct remote_request *request; /* NULL: nobody waits for it */
    struct redlock_poll *poll;      /* or NULL */
    void (*on_answer)(struct redlock_flow *flow);
    void (*on_timer)(struct redlock_flow *flow); /* when `timer` fires */
    ev_timer timer;
    unsigned tries;
    clock_ms tried_until;       /* repeat a change that no majority has confirmed until then; 0: do not */
    char *name;                 /* of the lock or directory */
    char id[REMOTE_ID_SIZE];    /* the value of the lock's key */
    uint64_t revision;          /* that it writes in the record of the lock */
    GHashTable *mounts;         /* id of a mount -> its line; NULL: it asks for none */
    enum backend_result result; /* that it gives from the loop */
    union {
        struct {
            uint64_t fence;
            clock_ms deadline; /* of what the first round has won */
        } acquire;
        struct remote_batch *renewals;
        struct {
            bool holder_read; /* from the servers */
            bool confirmed;   /* the holder's mount has read that it ended */
            bool released;    /* only that confirmation is missing */
        } revoke;
        struct {
            char id[REMOTE_ID_SIZE]; /* of the making or the removal: see directory.lua */
        } directory;
        struct {
            bool outdated; /* this mount has changed the directory since the read began */
        } restore;
        struct {
            char former[REMOTE_ID_SIZE]; /* of a lock: its token until now */
            pid_t pid;                   /* and its holder's; -1: not known; 0: it is a lease */
            bool confirmed;              /* a majority has noted it */
        } recovery;
    };
};

struct redlock_flow *redlock_flow_new(struct redlock *r, struct remote_request *request, const char *name);
/* Frees it.  `settle`: see redlock_poll_close. */
void redlock_flow_end(struct redlock_flow *flow, bool settle);
void redlock_flow_end_all(struct redlock *r);
/* Sends the poll that was encoded; calls `on_answer` after each answer. */
void redlock_flow_poll(struct redlock_flow *flow, enum redlock_script_id script, int64_t timeout,
                       void (*on_answer)(struct redlock_flow *flow));
/* Calls `on_timer` from the loop, after `ms`. */
void redlock_flow_continue_later(struct redlock_flow *flow, int64_t ms, void (*on_timer)(struct redlock_flow *flow));
/* A random pause before the next attempt, ms. */
int64_t redlock_flow_pause(struct redlock *r, int64_t waited);
/* The timeout of one server for a lock with that term, ms. */
int64_t redlock_flow_timeout(const struct redlock *r, int64_t ttl);
/* Releases the key with that value on all servers, without waiting. */
void redlock_flow_undo(struct redlock *r, const char *name, const char *id);
char *redlock_flow_digest(const char *id);

/* --- hold.c --- */

/* The record of a lock. */
struct redlock_record {
    unsigned kind;
    int64_t ttl, age;
    uint64_t number, revision;
    GBytes *meta, *content; /* borrowed */
};

struct redlock_record redlock_hold_record(const struct remote_ticket *t, uint64_t revision);
/* redlock_hold_send writes the record of flow->name, with flow->id as the value of the key.  The key lasts for the
 * record's ttl, or longer if another ticket shares it.  `give`: the lock is held, so servers without the key get it. */
void redlock_hold_fill_record(struct redlock *r, const struct redlock_record *record);
void redlock_hold_send(struct redlock_flow *flow, const struct redlock_record *record, bool give,
                       void (*on_answer)(struct redlock_flow *flow));
/* VOTE_WON: a majority has the record; VOTE_LOST: it has not; VOTE_AWAY: unknown. */
enum vote_verdict redlock_hold_verdict(struct redlock_flow *flow);
struct redlock_hold *redlock_hold_find(const struct redlock *r, const char *id);
struct redlock_hold *redlock_hold_new(struct redlock *r, const struct remote_ticket *t, const char *id,
                                      uint64_t revision);
void redlock_hold_free(gpointer hold);
/* The value that the key has, or may have, for this ticket. */
const char *redlock_hold_value(const struct redlock *r, const char *id);
/* Another ticket on that lock that holds with the same value, or NULL. */
struct remote_ticket *redlock_hold_find_sharing(const struct redlock *r, const char *name, const char *id);
/* The first ticket of this mount that holds the lock before its deadline; NULL: none. */
struct remote_ticket *redlock_hold_find_holder(const struct redlock *r, const char *name);
/* Reports an event to all tickets of this mount that hold with that value.  False: there is none. */
bool redlock_hold_report(struct redlock *r, const char *id, enum remote_event event, enum backend_end why);

/* --- query.c --- */

/* Is `id` the value of a key during a guard? */
bool redlock_is_guard(const char *id);
void redlock_stat(struct redlock_flow *flow);
void redlock_test(struct redlock_flow *flow);
void redlock_list(struct redlock_flow *flow);
/* The holder that a majority names ("held …"); meta and content are new references: remote_info_clear. */
void redlock_query_describe(struct redlock_flow *flow, const char *word, struct backend_info *info);
/* Meta and content are borrowed. */
void redlock_query_describe_ticket(struct remote_ticket *t, struct backend_info *info);
void redlock_query_fill(struct redlock *r, const char *name);
/* The verdict on the answers; `nothing`: the answer of a server that has no such name. */
enum vote_verdict redlock_query_verdict(const struct redlock_flow *flow, const char *nothing, const char **ret_word);
/* The newest attributes of a directory that a majority has; meta is a new reference. */
void redlock_query_note_directory(struct redlock_flow *flow, const char *word, struct backend_directory *directory);

/* --- mounts.c --- */

void redlock_mounts(struct redlock_flow *flow);
/* Messages: "m QUESTION", and "i QUESTION ANSWER". */
void redlock_mounts_question(struct redlock_node *node, const char *question);
void redlock_mounts_answer(struct redlock *r, const char *question, const char *answer);

/* --- directory.c --- */

void redlock_mkdir(struct redlock_flow *flow);
void redlock_rmdir(struct redlock_flow *flow);
void redlock_set_directory(struct redlock_flow *flow);
/* Gives all directories that this mount has seen to the servers, because one may have lost them. */
void redlock_directory_restore_all(struct redlock *r);

/* --- revoke.c --- */

void redlock_revoke(struct redlock_flow *flow);
/* The message "h TOKEN". */
void redlock_revoke_confirmed(struct redlock *r, const char *id);

/* --- acquire.c --- */

void redlock_acquire_begin(struct redlock_flow *flow);
/* See struct remote_store. */
void redlock_acquire_heartbeat(struct remote *remote, struct remote_ticket *const *tickets, size_t count);
void redlock_acquire_watch(struct remote *remote, struct remote_ticket *t);
/* The server has reported a change of the lock's key. */
void redlock_acquire_changed(struct redlock_node *node, const char *name);

/* --- recover.c --- */

void redlock_recover(struct remote *remote, backend_recover_each *found, void *arg);
/* Locks that are not found yet run out. */
void redlock_recover_stop(struct redlock *r);
/* A token that this daemon is about to use: a note with it is not the former daemon's. */
void redlock_recover_exclude(struct redlock *r, const char *id);

/* --- tickets.c --- */

/* See struct remote_store. */
uint64_t redlock_tickets_send(struct remote_request *request, struct remote_ticket *t, int64_t timeout);
void redlock_tickets_renew(struct remote *remote, struct remote_batch *batch);
void redlock_tickets_forget(struct remote *remote, uint64_t request);

#endif
