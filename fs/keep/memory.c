/* memory: the memory itself, its head, and the lock of the daemon that uses it; see memory.h. */
#include "fs/keep/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/keep/private.h"

#define KEEP_MAGIC "leasefs\n"
#define KEEP_NAME "leasefs-keep"
#define KEEP_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#define KEEP_COUNT_MAX (UINT64_C(1) << 26)
#define KEEP_RECORD_MAX (UINT64_C(1) << 16)

void keep_default_sizes(struct keep_sizes *ret_sizes)
{
    bool wide = sizeof(void *) > sizeof(uint32_t);
    *ret_sizes = (struct keep_sizes){.small = wide ? 1 << 16 : 1 << 13, .large = wide ? 1 << 10 : 1 << 7};
}

static uint64_t keep_round(uint64_t size)
{
    return (size + KEEP_PAGE - 1) & ~(uint64_t)(KEEP_PAGE - 1);
}

static size_t keep_stride(const struct keep_table_size *table)
{
    return table->record ? sizeof(struct keep_record) + (((size_t)table->record + 7) & ~(size_t)7) : 0;
}

static bool keep_sizes_are_valid(const struct keep_sizes *sizes)
{
    bool valid = sizes->small > KEEP_CROWDED && sizes->small < KEEP_COUNT_MAX && sizes->large < KEEP_COUNT_MAX;
    for (int i = 0; i < KEEP_TABLES; i++) {
        valid = valid && sizes->tables[i].record <= KEEP_RECORD_MAX && sizes->tables[i].count < KEEP_COUNT_MAX;
    }
    return valid;
}

/* The sections, one behind the other.  Returns their end.  `base` may be NULL. */
static uint64_t keep_lay_out(struct keep *keep, const struct keep_sizes *sizes, char *base)
{
    uint64_t at = keep_round(sizeof(struct keep_head));
    keep->slots = base + at;
    at += sizes->small * KEEP_SLOT_SIZE;
    keep->large = base + at;
    at += sizes->large * KEEP_LANDING_SIZE;
    keep->landing = base + at;
    at += KEEP_LANDING_SIZE;
    for (int i = 0; i < KEEP_TABLES; i++) {
        size_t stride = keep_stride(&sizes->tables[i]);
        keep->tables[i] = (struct keep_table){.id = (enum keep_table_id)i, .base = base + at, .stride = stride};
        at += keep_round(sizes->tables[i].count * stride);
    }
    return at;
}

static int G_GNUC_PRINTF(4, 5) keep_fail(char *error, size_t error_size, int result, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    g_vsnprintf(error, error_size, format, arguments);
    va_end(arguments);
    return result;
}

/* kill(2) must not make read(2) of a message fail half way: the kernel then answers EIO to its caller.  It does not if
 * the pages are there. */
static void keep_fault_in_landing(struct keep *keep)
{
    for (size_t i = 0; i < KEEP_LANDING_SIZE; i += KEEP_PAGE) {
        volatile char *byte = keep->landing + i;
        *byte = *byte;
    }
    mlock(keep->landing, KEEP_LANDING_SIZE); /* if the limit allows it */
}

static int keep_map(struct keep *keep, char *error, size_t error_size)
{
    char *base = mmap(NULL, keep->size, PROT_READ | PROT_WRITE, MAP_SHARED, keep->fd, 0);
    if (base == MAP_FAILED) {
        return keep_fail(error, error_size, -errno, "cannot map %zu MiB of memory for the next daemon: %s",
                         keep->size >> 20, g_strerror(errno));
    }
    madvise(base, keep->size, MADV_DONTDUMP);
    keep->head = (struct keep_head *)(void *)base;
    return 0;
}

static int keep_attach_parts(struct keep *keep, char *error, size_t error_size)
{
    int result = keep_requests_attach(keep);
    for (int i = 0; result == 0 && i < KEEP_TABLES; i++) {
        keep->tables[i].head = keep->head;
        result = keep_table_attach(&keep->tables[i]);
    }
    if (result < 0) {
        return keep_fail(error, error_size, result, "a record in the memory of the daemon before is damaged");
    }
    keep_fault_in_landing(keep);
    return 0;
}

static int keep_init_mutex(struct keep_head *head)
{
    pthread_mutexattr_t attributes;
    int result = pthread_mutexattr_init(&attributes);
    if (result == 0) {
        pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
        pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
        result = pthread_mutex_init(&head->mutex, &attributes);
        pthread_mutexattr_destroy(&attributes);
    }
    return -result;
}

static int keep_fill_head(struct keep *keep, const struct keep_sizes *sizes, char *error, size_t error_size)
{
    struct keep_head *head = keep->head;
    memcpy(head->magic, KEEP_MAGIC, sizeof head->magic);
    head->format = KEEP_FORMAT;
    head->head_size = sizeof *head;
    head->mutex_size = sizeof head->mutex;
    head->size = keep->size;
    head->sizes = *sizes;
    while (head->nonce == 0) {
        if (getrandom(&head->nonce, sizeof head->nonce, 0) < 0 && errno != EINTR) {
            return keep_fail(error, error_size, -errno,
                             "cannot get a random number for the memory for the next daemon: %s", g_strerror(errno));
        }
    }
    int result = keep_init_mutex(head);
    return result < 0 ? keep_fail(error, error_size, result,
                                  "cannot make a mutex in the memory for the next daemon: %s", g_strerror(-result))
                      : 0;
}

static struct keep *keep_new(int fd)
{
    struct keep *keep = g_new0(struct keep, 1);
    keep->fd = fd;
    return keep;
}

int keep_create(const struct keep_sizes *sizes, struct keep **ret_keep, char *error, size_t error_size)
{
    if (!keep_sizes_are_valid(sizes)) {
        return keep_fail(error, error_size, -EINVAL, "the memory for the next daemon cannot have these sizes");
    }
    int fd = memfd_create(KEEP_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return keep_fail(error, error_size, -errno, "cannot make memory for the next daemon: %s", g_strerror(errno));
    }
    struct keep *keep = keep_new(fd);
    keep->size = (size_t)keep_lay_out(keep, sizes, NULL);
    int result = 0;
    if (ftruncate(fd, (off_t)keep->size) < 0 || fcntl(fd, F_ADD_SEALS, KEEP_SEALS) < 0) {
        result = keep_fail(error, error_size, -errno, "cannot set the size of the memory for the next daemon: %s",
                           g_strerror(errno));
    }
    result = result < 0 ? result : keep_map(keep, error, error_size);
    result = result < 0 ? result : keep_fill_head(keep, sizes, error, error_size);
    if (result == 0) {
        keep_lay_out(keep, sizes, (char *)keep->head);
        result = keep_attach_parts(keep, error, error_size);
    }
    if (result < 0) {
        keep_free(keep);
        return result;
    }
    *ret_keep = keep;
    return 0;
}

/* Nothing of it may change its size, or a daemon that reads it gets SIGBUS. */
static int keep_check_file(struct keep *keep, char *error, size_t error_size)
{
    struct stat status;
    int seals = fcntl(keep->fd, F_GET_SEALS);
    if (seals < 0 || (seals & KEEP_SEALS) != KEEP_SEALS || fstat(keep->fd, &status) < 0 ||
        status.st_size < (off_t)keep_round(sizeof(struct keep_head))) {
        return keep_fail(error, error_size, -EINVAL,
                         "the descriptor for the memory of the daemon before is another file");
    }
    keep->size = (size_t)status.st_size;
    return 0;
}

static int keep_check_head(struct keep *keep, char *error, size_t error_size)
{
    const struct keep_head *head = keep->head;
    if (memcmp(head->magic, KEEP_MAGIC, sizeof head->magic) != 0) {
        return keep_fail(error, error_size, -EINVAL,
                         "the descriptor for the memory of the daemon before is another file");
    }
    if (head->format != KEEP_FORMAT || head->head_size != sizeof *head || head->mutex_size != sizeof head->mutex) {
        return keep_fail(error, error_size, -EOPNOTSUPP,
                         "the memory of the daemon before has format %u, and this version reads format %u",
                         head->format, KEEP_FORMAT);
    }
    bool valid = keep_sizes_are_valid(&head->sizes) && head->size == keep->size && head->nonce != 0 &&
                 keep_lay_out(keep, &head->sizes, (char *)keep->head) == keep->size &&
                 head->init.length <= KEEP_INIT_MAX && memchr(head->options, '\0', KEEP_OPTIONS_MAX);
    return valid ? 0 : keep_fail(error, error_size, -EINVAL, "the head of the memory of the daemon before is damaged");
}

int keep_attach(int fd, struct keep **ret_keep, char *error, size_t error_size)
{
    struct keep *keep = keep_new(fd);
    int result = keep_check_file(keep, error, error_size);
    result = result < 0 ? result : keep_map(keep, error, error_size);
    result = result < 0 ? result : keep_check_head(keep, error, error_size);
    result = result < 0 ? result : keep_attach_parts(keep, error, error_size);
    if (result < 0) {
        keep->fd = -1; /* the caller's */
        keep_free(keep);
        return result;
    }
    *ret_keep = keep;
    return 0;
}

void keep_free(struct keep *keep)
{
    if (!keep) {
        return;
    }
    keep_requests_detach(keep);
    for (int i = 0; i < KEEP_TABLES; i++) {
        g_clear_pointer(&keep->tables[i].free, g_array_unref);
    }
    if (keep->head) {
        munmap(keep->head, keep->size);
    }
    if (keep->fd >= 0) {
        close(keep->fd);
    }
    g_free(keep);
}

int keep_fd(const struct keep *keep)
{
    return keep->fd;
}

uint64_t keep_nonce(const struct keep *keep)
{
    return keep->head->nonce;
}

uint32_t keep_generation(const struct keep *keep)
{
    return keep->head->generation;
}

/* --- one daemon at a time ---------------------------------------------------------------- */

static int keep_locked(struct keep *keep, int result)
{
    if (result == EOWNERDEAD) {
        result = pthread_mutex_consistent(&keep->head->mutex);
    }
    return -result;
}

int keep_lock(struct keep *keep)
{
    return keep_locked(keep, pthread_mutex_lock(&keep->head->mutex));
}

int keep_try_lock(struct keep *keep)
{
    return keep_locked(keep, pthread_mutex_trylock(&keep->head->mutex));
}

void keep_unlock(struct keep *keep)
{
    pthread_mutex_unlock(&keep->head->mutex);
}

static void keep_count_death(struct keep_request *slot, void *arg)
{
    (void)arg;
    if (!slot->waiting) {
        KEEP_STORE(slot->deaths, slot->deaths + 1);
    }
}

void keep_begin(struct keep *keep)
{
    struct keep_head *head = keep->head;
    if (!head->clean) {
        keep_requests_pending(keep, keep_count_death, NULL);
    }
    KEEP_STORE(head->clean, 0);
    KEEP_STORE(head->history.served, 0);
    KEEP_STORE(head->generation, head->generation + 1);
}

void keep_end(struct keep *keep)
{
    KEEP_STORE(keep->head->clean, 1);
}

/* --- the head ---------------------------------------------------------------------------- */

const struct keep_init *keep_init(const struct keep *keep)
{
    return keep->head->init_valid ? &keep->head->init : NULL;
}

void keep_set_init(struct keep *keep, const struct keep_init *init)
{
    keep->head->init = *init;
    KEEP_STORE(keep->head->init_valid, 1);
}

const char *keep_options(const struct keep *keep)
{
    return keep->head->options;
}

bool keep_set_options(struct keep *keep, const char *options)
{
    return g_strlcpy(keep->head->options, options, KEEP_OPTIONS_MAX) < KEEP_OPTIONS_MAX;
}

int64_t keep_term(const struct keep *keep)
{
    return keep->head->term;
}

void keep_set_term(struct keep *keep, int64_t term)
{
    if (keep->head->term != term) {
        KEEP_STORE(keep->head->term, term);
    }
}

struct keep_history *keep_history(struct keep *keep)
{
    return &keep->head->history;
}

bool keep_has_ended(const struct keep *keep)
{
    return keep->head->clean;
}
