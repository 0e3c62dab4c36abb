/* contract: what every backend must do, as one list of scenarios.
 *
 * A program for a backend has functions that open an empty store, and runs contract_suite.  Scenarios use only
 * backend.h, on a loop of their own.  They do not assume that a completion comes before its call returns, use short
 * real terms, and wait for conditions.
 */
#ifndef TESTS_CONTRACT_H
#define TESTS_CONTRACT_H

#include <check.h>
#include <ev.h>

#include "backend/backend.h"

#define CONTRACT_FEATURES                                                                                              \
    (unsigned)(BACKEND_CAN_RANGE | BACKEND_CAN_SEQUENCE | BACKEND_CAN_RENAME | BACKEND_CAN_REPLACE | BACKEND_CAN_SHARE)

struct contract {
    const char *name;
    struct backend *(*open)(void);         /* an empty store, not started; NULL: the scenario opens one itself */
    void (*clean)(void);                   /* after the backend was freed; may be NULL */
    struct backend *(*open_other)(void);   /* another mount of the same store; NULL: there is none */
    struct backend *(*open_relayed)(void); /* one that relay.h stands before; NULL: as `open` */
    struct backend *(*open_again)(void); /* the next daemon of a mount that is none of these, or of that of `open` where
                                            there is no other; NULL: its handle locks are not recovered */
    bool refuses_daemon_before;          /* that was only stopped, and goes on beside the next one */
    int64_t timeout;                     /* ms, of a request of that */
    unsigned lacks;                      /* of CONTRACT_FEATURES: no scenario of these is run */
    bool brief;    /* only what depends on how a server confirms; another program runs the others */
    bool sessions; /* a lock ends in the store with its mount's session, which is long, and not with its term */
    /* Between these, what is opened has servers of its own, which restart ends; NULL: those of all checks. */
    void (*begin_own_servers)(void);
    void (*end_own_servers)(void);
    /* Its server ends and begins again with its data; `empty`: without.  NULL: it cannot. */
    void (*restart)(bool empty);
    unsigned pace; /* what it has in a term is so many times less than others have; 0: once */
    int64_t term;  /* ms, CONTRACT_TERM; 0: that of a store across a network */
};

/* All scenarios, for this backend.  One backend for one program. */
Suite *contract_suite(const struct contract *subject);

/* So many of what is made one after the other, or as many as this store makes in the time of these. */
unsigned contract_many(unsigned many);

int64_t contract_term(void);

/* Names what this scenario has in its server: no other scenario has the same number.  (A pid may come again.) */
int contract_world(void);

/* Whether the store has it, for the lists of scenarios. */
bool contract_has(enum backend_feature feature);
/* Whether the store of the scenario can. */
bool contract_can(enum backend_feature feature);

/* What the fixtures open, for checks that are not of the list. */
void contract_use(const struct contract *subject);

/* The parts of the list. */
TCase *contract_acquire_case(void);
TCase *contract_wait_case(void);
TCase *contract_time_case(void);
TCase *contract_name_case(void);
TCase *contract_range_case(void);
TCase *contract_sequence_case(void);
TCase *contract_guard_case(void);
TCase *contract_mounts_case(void); /* where there is another mount */
TCase *contract_hosts_case(const struct contract *subject);
TCase *contract_guard_mounts_case(void);
TCase *contract_upgrade_case(void);
TCase *contract_upgrade_mounts_case(void);
TCase *contract_convert_case(const struct contract *subject);
TCase *contract_faults_case(const struct contract *subject); /* two mounts of a store across a network */
TCase *contract_lost_case(const struct contract *subject);
TCase *contract_restarts_case(const struct contract *subject); /* of its servers */
TCase *contract_restart_case(const struct contract *subject);

/* --- for scenarios --- */

#define CONTRACT_LONG 60000 /* a term that does not end during a scenario */
#define CONTRACT_SHORT 200  /* one that does, perhaps before the store has answered: see contract_get_soon */
/* One that does, but in which a busy machine answers, too. */
#define CONTRACT_TERM contract_term()

extern struct backend *contract_backend;
extern struct ev_loop *contract_loop; /* the scenario's */
extern uint64_t contract_began;       /* clock_wall_us before its store was made */

/* Starts a backend on the scenario's loop; the fixtures do it for the first. */
void contract_start(struct backend *b);
void contract_setup(void);
void contract_teardown(void);

/* Fixtures of two mounts; calls go to contract_backend, which is one of them.  A scenario may free contract_one and
 * open it again. */
extern struct backend *contract_one, *contract_other;
void contract_setup_two(void);
void contract_teardown_two(void);

/* One turn of the loop, of 20 ms at most; ends the check 20 s after the last call of contract_restart_time_limit: what
 * is slow is not stuck. */
void contract_turn(void);
void contract_restart_time_limit(void);
/* The same without waiting. */
void contract_poll(void);
/* For callbacks: the turn ends with them, instead of waiting for more. */
void contract_end_turn(void);

#define CONTRACT_UNTIL(condition)                                                                                      \
    do {                                                                                                               \
        contract_restart_time_limit();                                                                                 \
        while (!(condition))                                                                                           \
            contract_turn();                                                                                           \
    } while (0)

/* The answer and the events of one ticket: its claim's `user`. */
struct contract_log {
    unsigned granted, due, wanted, ended;
    enum backend_end why;
    bool guarded;  /* it ended, and its guard is left */
    unsigned when; /* the number of its last event, over all tickets */
};

/* A claim of this log; exclusive, of CONTRACT_LONG. */
struct backend_claim contract_claim(enum backend_kind kind, struct contract_log *log);

/* Each waits for the completion. */
struct contract_acquired {
    enum backend_result result;
    struct backend_ticket *ticket;
    bool holder; /* was given; its kind, fence and ticket follow */
    enum backend_kind kind;
    uint64_t fence;
    struct backend_ticket *holding;
};
struct contract_acquired contract_acquire(const char *name, const struct backend_claim *claim);
/* The ticket, which must be granted, or queued. */
struct backend_ticket *contract_get(const char *name, enum backend_kind kind, struct contract_log *log);
struct backend_ticket *contract_get_shared(const char *name, enum backend_kind kind, struct contract_log *log);
struct backend_ticket *contract_queue(const char *name, enum backend_mode mode, struct contract_log *log);
/* The same of a claim of a short term: it is made again if the answer came too late to be believed in. */
struct backend_ticket *contract_get_soon(const char *name, const struct backend_claim *claim);
#define CONTRACT_MARKER "time passes" /* the lease by which contract_pass measures time */
/* Waits until a lease of that term has ended that is taken now, of a name of its own. */
void contract_pass(int64_t ttl);
/* Whether a lease would be refused now as BUSY; if not it is released again. */
bool contract_is_busy(const char *name);

enum backend_result contract_release(struct backend_ticket *ticket);
enum backend_result contract_convert(struct backend_ticket *ticket, const struct backend_claim *claim);
enum backend_result contract_set(struct backend_ticket *ticket, const struct backend_change *change);
enum backend_result contract_revoke(const char *name, uint64_t fence);
enum backend_result contract_revoke_matching(const char *name, uint64_t fence, unsigned word, const char *text);
enum backend_result contract_rename(struct backend_ticket *ticket, const char *name);
enum backend_result contract_rename_over(struct backend_ticket *ticket, const char *name,
                                         struct backend_ticket *replaced);
enum backend_result contract_mkdir(const char *name, const struct backend_directory *directory);
enum backend_result contract_rmdir(const char *name);
enum backend_result contract_set_directory(const char *name, const struct backend_directory *directory);
/* MISSING: nothing is left. */
enum backend_result contract_release_range(struct backend_ticket *ticket, uint64_t start, uint64_t end);

/* Known of a name; meta and content are kept until the next scenario. */
struct backend_info contract_stat(const char *name);
struct backend_info contract_test(const char *name, const struct backend_claim *claim);
/* The same; the ticket is released while the answer is on its way. */
struct backend_info contract_test_and_release(const char *name, const struct backend_claim *claim,
                                              struct backend_ticket *ticket);

/* All names of a directory, read `part` at a time, joined with spaces and with
 * a slash behind directories; borrowed until the next call. */
const char *contract_list(const char *directory, size_t part);
/* "a-0000000000 held, a-0000000001 waits": its tickets, of whichever mount; until the next call of either. */
const char *contract_tickets(const char *directory, size_t part);
enum backend_result contract_list_result(const char *directory);

GBytes *contract_bytes(const char *text); /* kept until the next scenario */
bool contract_equal(GBytes *bytes, const char *text);

#endif
