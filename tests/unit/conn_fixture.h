/* conn_fixture: a redis_conn on a loop of its own, and a record of its events. */
#ifndef TESTS_UNIT_CONN_FIXTURE_H
#define TESTS_UNIT_CONN_FIXTURE_H

#include <check.h>
#include <ev.h>
#include <glib.h>

#include "backend/redis/conn/conn.h"

extern struct ev_loop *conn_loop;
extern struct redis_conn *conn;
/* For conn_open; the set-up has made the times short, and a channel "lfs:me". */
extern struct redis_conn_options conn_options;

/* The scripts of `conn`. */
extern const struct redis_script conn_scripts[];
#define CONN_COUNT (&conn_scripts[0]) /* counts KEYS[1] up and returns it; replicas must confirm */
#define CONN_ECHO (&conn_scripts[1])  /* returns ARGV[1] */

extern struct conn_reported {
    unsigned ups, downs, messages, changes, all_changes;
    char why[256], message[64], key[64];
    void (*on_up)(void);
    clock_ms needed; /* the deadline for a connection; 0: none */
} conn_reported;

struct conn_answer {
    unsigned times; /* that it came: 1 */
    enum remote_outcome outcome;
    int type; /* of the reply; 0: none */
    long long integer;
    char text[128];
    clock_ms sent;
    bool repeated;
    unsigned when; /* the number of this answer among all */
};

/* Checked fixtures. */
void conn_setup(void);
void conn_teardown(void);

/* Makes `conn` with a Unix socket and starts it; it is not up yet. */
void conn_open(const char *socket);
/* The same by a host. */
void conn_open_host(const char *host, uint16_t port);

/* The same as conn_options.uri says. */
void conn_open_given(void);

/* One turn of the loop; ends the check 20 s after the last call of conn_restart_time_limit: what is slow is not stuck.
 */
void conn_turn(void);
void conn_restart_time_limit(void);

#define CONN_UNTIL(condition)                                                                                          \
    do {                                                                                                               \
        conn_restart_time_limit();                                                                                     \
        while (!(condition))                                                                                           \
            conn_turn();                                                                                               \
    } while (0)

void conn_until_up(void);

/* Turns until `milliseconds` have passed: to see that nothing comes. */
void conn_pass(int64_t milliseconds);

/* Ask with the default timeout; conn_command splits its words at spaces. */
uint64_t conn_command(struct conn_answer *answer, const char *words);
uint64_t conn_call(struct conn_answer *answer, const struct redis_script *script, const char *key,
                   const char *argument);
uint64_t conn_watch(struct conn_answer *answer, const char *key);

/* Asks and waits for the answer. */
struct conn_answer conn_get(const char *words);

#endif
