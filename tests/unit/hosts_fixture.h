/* hosts_fixture: several mounts of one real Redis server, on one loop.
 *
 * Each mount is a Redis backend of its own.  The answers and events of a ticket are in its struct hosts_record.
 */
#ifndef TESTS_UNIT_HOSTS_FIXTURE_H
#define TESTS_UNIT_HOSTS_FIXTURE_H

#include <check.h>
#include <ev.h>
#include <glib.h>

#include "backend/backend.h"
#include "backend/redis/redis.h"
#include "tests/support/redis_server.h"

enum { HOSTS = 100 };

#define HOSTS_LONG 60000    /* a term that does not end during a check */
#define HOSTS_TIMEOUT 10000 /* ms, of a request; longer than a busy machine takes for one */
#define HOSTS_COMMAND_TIMEOUT 3000
#define HOSTS_HURRY 800 /* the same after hosts_hurry */
#define HOSTS_COMMAND_HURRY 300
#define HOSTS_GRACE 1000 /* for which nothing is granted when the server has forgotten, or may have */

extern struct ev_loop *hosts_loop;
extern struct redis_server *hosts_server;
/* Of the mounts that are opened next; the set-up gives the prefix "h:" and the server's socket. */
extern struct redis_options hosts_options;
/* Names of backend_watch, of any mount, that are gone. */
extern GPtrArray *hosts_gone;

struct hosts_record {
    unsigned mount;
    struct backend_ticket *ticket; /* NULL: refused, released or ended */
    bool answered;
    bool renews; /* at each `due`, as the filesystem does; default true */
    enum backend_result result;
    unsigned granted, wanted, ended;
    enum backend_end why;
    unsigned when;              /* the number of the last event or answer, over all mounts */
    clock_ms at;                /* its time */
    clock_ms deadline;          /* of the ticket when it ended */
    struct backend_info holder; /* of a refusal; without meta and content */
    const char *name;
    uint64_t lock_owner;
};

/* Checked fixtures; the second with a server that keeps an AOF. */
void hosts_setup(void);
void hosts_setup_aof(void);
/* With these arguments of redis-server. */
void hosts_setup_with(const char *const *arguments);
void hosts_teardown(void);
/* Mounts that are opened after this call reach the server by this port of 127.0.0.1; 0: by its socket. */
void hosts_reach_by(uint16_t port);
/* For checks of a server that does not answer: the mounts that are opened next give up soon. */
void hosts_hurry(void);

/* Opened when it is first named, or after hosts_close, with the hosts_options of that time; it is up then. */
struct backend *hosts_mount(unsigned mount);
/* Frees it; its tickets stay in the server unless they were released before. */
void hosts_close(unsigned mount);
void hosts_until_up(unsigned mount);
/* It has heard of a term that is so long, a moment after the grant.  A server that forgets before is closed for the
 * longest that mounts know of. */
void hosts_until_known(unsigned mount, int64_t term);
/* The same of its end: the longest is no longer than that. */
void hosts_until_forgotten(unsigned mount, int64_t term);
/* It grants what is new again. */
void hosts_until_open(unsigned mount);

/* One turn of the loop; ends the check 20 s after the last call of hosts_restart_time_limit: what is slow is not stuck.
 */
void hosts_turn(void);
void hosts_restart_time_limit(void);

#define HOSTS_UNTIL(condition)                                                                                         \
    do {                                                                                                               \
        hosts_restart_time_limit();                                                                                    \
        while (!(condition))                                                                                           \
            hosts_turn();                                                                                              \
    } while (0)

/* Turns until `milliseconds` have passed: to see that nothing comes. */
void hosts_pass(int64_t milliseconds);

struct backend_claim hosts_claim(enum backend_kind kind, int64_t ttl);
/* Asks; the answer comes later.  The structure ends with the check. */
struct hosts_record *hosts_request(unsigned mount, const char *name, const struct backend_claim *claim);
/* Waits for the answer. */
struct hosts_record *hosts_acquire(unsigned mount, const char *name, const struct backend_claim *claim);
/* An exclusive lease, which must be granted. */
struct hosts_record *hosts_get(unsigned mount, const char *name, int64_t ttl);
/* A flock that waits, which must be queued. */
struct hosts_record *hosts_queue(unsigned mount, const char *name, enum backend_mode mode, int64_t ttl);

/* Each waits for the answer. */
enum backend_result hosts_release(struct hosts_record *record);
/* Byte ranges of a lock owner, if it holds any. */
enum backend_result hosts_unlock(unsigned mount, const char *name, uint64_t lock_owner, uint64_t start, uint64_t end);
enum backend_result hosts_mkdir(unsigned mount, const char *name, const struct backend_directory *directory);
enum backend_result hosts_set_directory(unsigned mount, const char *name, const struct backend_directory *directory);
enum backend_result hosts_revoke(unsigned mount, const char *name, uint64_t fence);
enum backend_result hosts_rename(struct hosts_record *record, const char *name);
enum backend_result hosts_rename_over(struct hosts_record *record, const char *name, struct hosts_record *replaced);
struct backend_info hosts_stat(unsigned mount, const char *name); /* without meta and content */

/* No wait, and no report. */
void hosts_drop(struct hosts_record *record);

/* For other calls: a completion that sets what `arg` points to. */
struct hosts_done {
    bool called;
    enum backend_result result;
};
void hosts_on_done(void *arg, enum backend_result result);

/* That with which a lock owner holds, or NULL. */
struct hosts_record *hosts_of_lock_owner(unsigned mount, const char *name, uint64_t lock_owner);

bool hosts_exists(const char *key);
/* Whether the string at `key` is `value`. */
bool hosts_is(const char *key, const char *value);

/* Hears all messages to mounts from now on. */
void hosts_spy(void);
/* Those since the last call that begin with `what` ("g ": it holds), and of those how many channels. */
unsigned hosts_messages(const char *what, unsigned *ret_channels);

#endif
