/* fake_store: the leases of the fake backend, simple and slow. */
#ifndef TESTS_MESSAGE_FAKE_STORE_H
#define TESTS_MESSAGE_FAKE_STORE_H

#include "tests/message/fake_backend.h"

struct fake_ticket {
    struct backend_ticket head; /* first */
    struct fake_backend *mount; /* whose it is; NULL: of a mount or a client that only occupies the name */
    char *name;
    bool sequence;
    bool requested; /* its acquire has not been carried out yet */
    bool ended;     /* `ended` is not reported yet */
    bool kept;      /* of the daemon before: backend_recover finds it */
    bool apart;     /* granted after it has waited, and not told: what its lock owner holds is another */
    uint64_t handle, lock_owner;
    GArray *segments;  /* struct backend_segment, of FCNTL; NULL: the whole lock */
    clock_ms due;      /* CLOCK_NEVER: none */
    int64_t due_after; /* the grant */
    GBytes *meta;
};

/* A call on its way. */
struct fake_pending {
    enum fake_call call;
    char *name, *after;
    struct fake_ticket *ticket;   /* NULL if it went meanwhile */
    struct fake_ticket *replaced; /* of rename; NULL likewise */
    struct backend_claim claim;
    struct backend_change change;
    struct backend_directory directory;
    uint64_t fence;
    bool matching;
    struct backend_match match;
    size_t max;
    bool cancelled;
    bool carried_out; /* an acquire, with this result */
    enum backend_result placed;
    union {
        backend_done *done;
        backend_acquire_done *acquired;
        backend_info_done *known;
        backend_list_done *listed;
    };
    void *arg;
};

enum fake_event_type { FAKE_GRANTED, FAKE_DUE, FAKE_ENDED, FAKE_WANTED, FAKE_COMPLETED };

struct fake_event {
    enum fake_event_type type;
    struct fake_ticket *ticket; /* NULL for COMPLETED: a call that is behind the events before it */
    enum backend_end why;
    enum backend_result result;
    backend_done *done;
    void *arg;
};

/* What all mounts see. */
struct fake_store {
    GPtrArray *tickets;      /* in order of arrival */
    GHashTable *directories; /* name -> struct backend_directory */
    GPtrArray *mounts;       /* struct fake_backend */
    uint64_t next_fence;
};

struct fake_backend {
    struct backend head; /* first */
    struct fake_store *store;
    clock_ms *now;
    const struct backend_events *events;
    void *context;
    GPtrArray *pending;
    GQueue reported; /* events to report */
    bool recovering; /* backend_recover has not found all */
    backend_recover_each *found;
    void *found_arg;
    bool hold_events;
    bool hold[FAKE_CALLS];
    unsigned count[FAKE_CALLS];
    enum backend_result fail[FAKE_CALLS];
    void (*death)(void); /* see fake_backend_die_at; NULL: no */
    enum fake_call death_call;
    unsigned death_nth;
    bool death_after;
};

struct fake_store *fake_store_new(void);
void fake_store_free(struct fake_store *store);
GBytes *fake_store_bytes(GBytes *bytes);
void fake_store_replace(GBytes **place, GBytes *bytes);
void fake_store_tell(struct fake_backend *fake, enum fake_event_type type, struct fake_ticket *ticket,
                     enum backend_end why);
void fake_store_free_ticket(struct fake_backend *fake, struct fake_ticket *ticket);
/* It holds from now on together with what its lock owner holds already, if it does. */
void fake_store_join(struct fake_backend *fake, struct fake_ticket *ticket);
bool fake_store_release_range(struct fake_backend *fake, struct fake_ticket *t, uint64_t start, uint64_t end);
void fake_store_settle(struct fake_backend *fake);
/* Ends it; fake_store_settle grants what has become free. */
void fake_store_end(struct fake_backend *fake, struct fake_ticket *ticket, enum backend_end why);
bool fake_store_is_on(const struct fake_ticket *ticket, const char *name);
void fake_store_stat(const struct fake_backend *fake, const char *name, struct backend_info *info);
void fake_store_list(struct fake_backend *fake, struct fake_pending *p);
void fake_store_test(struct fake_backend *fake, struct fake_pending *p);
enum backend_result fake_store_place(struct fake_backend *fake, struct fake_ticket *t,
                                     const struct backend_claim *claim);
enum backend_result fake_store_convert(struct fake_backend *fake, struct fake_ticket *t,
                                       const struct backend_claim *claim);
enum backend_result fake_store_revoke(struct fake_backend *fake, const struct fake_pending *p);
enum backend_result fake_store_rename(struct fake_backend *fake, struct fake_ticket *t, const char *name,
                                      struct fake_ticket *replaced);
enum backend_result fake_store_change(struct fake_ticket *t, const struct backend_change *change);
void fake_store_free_directory(gpointer pointer);
enum backend_result fake_store_mkdir(struct fake_backend *fake, const char *name,
                                     const struct backend_directory *directory);
enum backend_result fake_store_rmdir(struct fake_backend *fake, const char *name);
enum backend_result fake_store_set_directory(struct fake_backend *fake, const char *name,
                                             const struct backend_directory *attributes);

#endif
