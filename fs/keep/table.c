/* table: records of one size with numbers that are never used twice; see memory.h. */
#include <errno.h>
#include <string.h>

#include "fs/keep/private.h"

#define KEEP_INDEX_BITS 32

void (*keep_on_store)(void);

static struct keep_record *keep_at_index(const struct keep_table *table, uint64_t index)
{
    return (struct keep_record *)(void *)(table->base + index * table->stride);
}

static struct keep_record *keep_record_of(const void *record)
{
    return (struct keep_record *)(void *)((char *)(uintptr_t)record - offsetof(struct keep_record, bytes));
}

static uint32_t keep_index(const struct keep_table *table, const struct keep_record *r)
{
    return (uint32_t)((size_t)((const char *)r - table->base) / table->stride);
}

struct keep_table *keep_table(struct keep *keep, enum keep_table_id id)
{
    return &keep->tables[id];
}

size_t keep_table_record_size(const struct keep_table *table)
{
    return (size_t)table->head->sizes.tables[table->id].record;
}

void *keep_record_new(struct keep_table *table, uint64_t *ret_number)
{
    uint64_t *used = &table->head->table_used[table->id], index;
    if (table->free->len > 0) {
        index = g_array_index(table->free, uint32_t, table->free->len - 1);
        g_array_set_size(table->free, table->free->len - 1);
    } else if (*used < table->head->sizes.tables[table->id].count && table->stride) {
        index = *used;
        KEEP_STORE(*used, index + 1);
    } else {
        return NULL;
    }
    struct keep_record *r = keep_at_index(table, index);
    KEEP_STORE(r->uses, r->uses + 1);
    memset(r->bytes, 0, table->stride - sizeof *r);
    *ret_number = (uint64_t)r->uses << KEEP_INDEX_BITS | index;
    return r->bytes;
}

void keep_record_commit(struct keep_table *table, void *record)
{
    (void)table;
    KEEP_STORE(keep_record_of(record)->valid, 1);
}

void keep_record_end(void *record)
{
    KEEP_STORE(keep_record_of(record)->valid, 0);
}

void keep_record_free(struct keep_table *table, void *record)
{
    struct keep_record *r = keep_record_of(record);
    uint32_t index = keep_index(table, r);
    if (r->valid) {
        KEEP_STORE(r->valid, 0);
    }
    g_array_append_val(table->free, index);
}

void *keep_record_find(struct keep_table *table, uint64_t number)
{
    uint64_t index = number & UINT32_MAX;
    if (index >= table->head->table_used[table->id]) {
        return NULL;
    }
    struct keep_record *r = keep_at_index(table, index);
    return r->valid && r->uses == number >> KEEP_INDEX_BITS ? r->bytes : NULL;
}

uint64_t keep_record_number(const struct keep_table *table, const void *record)
{
    const struct keep_record *r = keep_record_of(record);
    return (uint64_t)r->uses << KEEP_INDEX_BITS | keep_index(table, r);
}

uint32_t keep_record_index(const struct keep_table *table, const void *record)
{
    return keep_index(table, keep_record_of(record));
}

void *keep_record_at(const struct keep_table *table, uint32_t index)
{
    struct keep_record *r = index < table->head->table_used[table->id] ? keep_at_index(table, index) : NULL;
    return r && r->valid ? r->bytes : NULL;
}

void *keep_record_next(struct keep_table *table, const void *record)
{
    uint64_t index = record ? keep_index(table, keep_record_of(record)) + UINT64_C(1) : 0;
    for (; index < table->head->table_used[table->id]; index++) {
        struct keep_record *r = keep_at_index(table, index);
        if (r->valid) {
            return r->bytes;
        }
    }
    return NULL;
}

int keep_table_attach(struct keep_table *table)
{
    uint64_t used = table->head->table_used[table->id];
    if (used > table->head->sizes.tables[table->id].count || (used && !table->stride)) {
        return -EIO;
    }
    table->free = g_array_new(FALSE, FALSE, sizeof(uint32_t));
    for (uint32_t index = 0; index < used; index++) {
        const struct keep_record *r = keep_at_index(table, index);
        if (r->valid > 1) {
            return -EIO;
        }
        if (!r->valid) {
            g_array_append_val(table->free, index);
        }
    }
    return 0;
}
