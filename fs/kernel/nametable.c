/* nametable: see nametable.h for what it promises. */
#include "fs/kernel/nametable.h"

#include <string.h>
#include <sys/random.h>

#include "fs/kernel/tree.h"

enum { SEGMENT = 512 }; /* buckets; there is always the first */

/* --- SipHash-1-3 (J.-P. Aumasson and D. J. Bernstein, 2012) ------------------------- */

struct sip {
    uint64_t v[4];
};

static uint64_t sip_rotate(uint64_t x, unsigned bits)
{
    return x << bits | x >> (64 - bits);
}

static inline void sip_round(struct sip *s)
{
    uint64_t *v = s->v;
    v[0] += v[1], v[2] += v[3];
    v[1] = sip_rotate(v[1], 13) ^ v[0], v[3] = sip_rotate(v[3], 16) ^ v[2];
    v[0] = sip_rotate(v[0], 32);
    v[2] += v[1], v[0] += v[3];
    v[1] = sip_rotate(v[1], 17) ^ v[2], v[3] = sip_rotate(v[3], 21) ^ v[0];
    v[2] = sip_rotate(v[2], 32);
}

static inline void sip_add(struct sip *s, uint64_t word)
{
    s->v[3] ^= word;
    sip_round(s);
    s->v[0] ^= word;
}

/* Of the directory's number, which is not used twice, and the name. */
uint32_t nametable_hash(const struct nametable *table, const struct node *parent, const char *name)
{
    const uint64_t *key = table->key;
    size_t length = strlen(name), left = length;
    struct sip s = {{key[0] ^ UINT64_C(0x736f6d6570736575), key[1] ^ UINT64_C(0x646f72616e646f6d),
                     key[0] ^ UINT64_C(0x6c7967656e657261), key[1] ^ UINT64_C(0x7465646279746573)}};
    uint64_t word;
    sip_add(&s, parent->record->ino);
    for (; left >= sizeof word; left -= sizeof word, name += sizeof word) {
        memcpy(&word, name, sizeof word);
        sip_add(&s, word);
    }
    word = 0;
    memcpy(&word, name, left);
    sip_add(&s, word | (uint64_t)length << 56);
    s.v[2] ^= 0xff;
    for (int i = 0; i < 3; i++) {
        sip_round(&s);
    }
    return (uint32_t)(s.v[0] ^ s.v[1] ^ s.v[2] ^ s.v[3]);
}

/* --- buckets ------------------------------------------------------------------------ */

/* Of the last bucket: that which it was split from, or will be joined with. */
static uint32_t nametable_buddy(uint32_t bucket)
{
    return bucket & ~(UINT32_C(1) << (31 - (unsigned)__builtin_clz(bucket)));
}

static struct node **nametable_bucket(const struct nametable *table, uint32_t bucket)
{
    struct node **segment = g_ptr_array_index(table->segments, bucket / SEGMENT);
    return &segment[bucket % SEGMENT];
}

static struct node **nametable_place(const struct nametable *table, uint32_t hash)
{
    uint32_t mask = UINT32_MAX >> __builtin_clz(table->buckets - 1);
    uint32_t bucket = hash & mask;
    return nametable_bucket(table, bucket < table->buckets ? bucket : bucket & mask >> 1);
}

void nametable_init(struct nametable *table)
{
    *table = (struct nametable){.segments = g_ptr_array_new_with_free_func(g_free), .buckets = SEGMENT};
    while (getrandom(table->key, sizeof table->key, 0) != (ssize_t)sizeof table->key) {
    }
    g_ptr_array_add(table->segments, g_new0(struct node *, SEGMENT));
}

void nametable_clear(struct nametable *table)
{
    g_ptr_array_free(table->segments, TRUE);
    table->segments = NULL;
}

struct node *nametable_find(const struct nametable *table, const struct node *parent, const char *name)
{
    uint32_t hash = nametable_hash(table, parent, name);
    struct node *node = *nametable_place(table, hash);
    while (node && (node->hash != hash || node->parent != parent || strcmp(tree_name(node), name) != 0)) {
        node = node->next;
    }
    return node;
}

static void nametable_push(struct node **place, struct node *node)
{
    node->next = *place;
    *place = node;
}

static void nametable_grow(struct nametable *table)
{
    uint32_t last = table->buckets++;
    if (last % SEGMENT == 0) {
        g_ptr_array_add(table->segments, g_new0(struct node *, SEGMENT));
    }
    struct node **place = nametable_bucket(table, nametable_buddy(last));
    struct node *node = *place;
    *place = NULL;
    for (struct node *next; node; node = next) {
        next = node->next;
        nametable_push(nametable_place(table, node->hash), node);
    }
}

static void nametable_shrink(struct nametable *table)
{
    uint32_t last = --table->buckets;
    struct node **place = nametable_bucket(table, nametable_buddy(last));
    for (struct node *node = *nametable_bucket(table, last), *next; node; node = next) {
        next = node->next;
        nametable_push(place, node);
    }
    *nametable_bucket(table, last) = NULL;
    if (last % SEGMENT == 0) {
        g_ptr_array_set_size(table->segments, (gint)(last / SEGMENT));
    }
}

void nametable_expect(struct nametable *table, uint64_t count)
{
    while (table->buckets < MIN(count, UINT32_MAX / 2)) {
        nametable_grow(table);
    }
}

static void nametable_put(struct nametable *table, struct node *node, uint32_t hash)
{
    node->hash = hash;
    nametable_push(nametable_place(table, node->hash), node);
    if (++table->count > table->buckets) {
        nametable_grow(table);
    }
}

void nametable_add(struct nametable *table, struct node *node)
{
    nametable_put(table, node, nametable_hash(table, node->parent, tree_name(node)));
}

void nametable_add_nameless(struct nametable *table, struct node *node)
{
    nametable_put(table, node, (uint32_t)node->record->ino); /* given one after the other */
}

void nametable_remove(struct nametable *table, struct node *node)
{
    struct node **place = nametable_place(table, node->hash);
    while (*place != node) {
        place = &(*place)->next;
    }
    *place = node->next;
    table->count--;
    for (int i = 0; i < 2 && table->buckets > SEGMENT && table->buckets / 2 > table->count; i++) {
        nametable_shrink(table); /* two steps for each removal, so that it is small when it is empty */
    }
}

void nametable_each(const struct nametable *table, void (*each)(void *arg, struct node *node), void *arg)
{
    for (uint32_t i = 0; i < table->buckets; i++) {
        for (struct node *node = *nametable_bucket(table, i), *next; node; node = next) {
            next = node->next;
            each(arg, node);
        }
    }
}
