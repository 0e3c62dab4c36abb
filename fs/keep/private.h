/* private: the layout of the memory, for the files of this room.
 *
 *     head | small slots | large pieces | landing | table, table
 */
#ifndef FS_KEEP_PRIVATE_H
#define FS_KEEP_PRIVATE_H

#include <glib.h>
#include <pthread.h>

#include "fs/keep/memory.h"

#define KEEP_PAGE 0x1000
#define KEEP_FORMAT 1
#define KEEP_SLOT_SIZE 1024 /* a slot, and a message behind it */
#define KEEP_SMALL_MAX (KEEP_SLOT_SIZE - sizeof(struct keep_request))
#define KEEP_CROWDED 64 /* slots that requests which wait may not take */

struct keep_head {
    char magic[8];
    uint32_t format, head_size, mutex_size;
    uint32_t generation;
    uint64_t nonce, size;
    struct keep_sizes sizes;
    uint64_t order;      /* of the last request */
    uint32_t clean;      /* the daemon has called keep_end */
    uint32_t init_valid; /* `init` is complete */
    int64_t term;
    struct keep_history history;
    uint64_t small_used, large_used; /* how many of the slots were ever used */
    uint64_t table_used[KEEP_TABLES];
    struct keep_init init;
    char options[KEEP_OPTIONS_MAX];
    struct keep_request landing; /* the slot of a request that stays where it landed */
    pthread_mutex_t mutex;
};

struct keep_record {
    uint32_t valid;
    uint32_t uses; /* how often it was given out */
    uint64_t bytes[];
};

struct keep_table {
    struct keep_head *head;
    enum keep_table_id id;
    char *base;
    size_t stride;
    GArray *free; /* uint32_t: those below table_used that are free */
};

struct keep {
    int fd;
    size_t size;
    struct keep_head *head;
    char *slots, *large, *landing;
    GArray *free_slots, *free_large; /* uint32_t, those below what was ever used */
    uint32_t *buckets, *next;        /* slots by unique: number + 1; 0 ends */
    uint32_t bucket_mask;
    struct keep_request *current;
    struct keep_table tables[KEEP_TABLES];
};

static inline struct keep_request *keep_slot(const struct keep *keep, uint64_t i)
{
    return (struct keep_request *)(void *)(keep->slots + i * KEEP_SLOT_SIZE);
}

static inline void *keep_large(const struct keep *keep, uint64_t i)
{
    return keep->large + i * KEEP_LANDING_SIZE;
}

/* After the head was checked.  -EIO: what they find is damaged. */
int keep_requests_attach(struct keep *keep);
void keep_requests_detach(struct keep *keep);
int keep_table_attach(struct keep_table *table);

#endif
