/* quota: what each user has of this mount; see quota.h. */
#include "fs/hold/quota.h"

#include <glib.h>

/* Each may need the memory of a table of all locks. */
#define QUOTA_OPEN_MAX 16

/* ms: so often, at most, all users are asked which of their charges have ended. */
#define QUOTA_LOOK_EVERY 1000

struct quota_user {
    struct quota_used used;
    GArray *until; /* array of clock_ms, sorted: the ends of the charges of quota_charge_until; NULL: none */
};

struct quota {
    struct quota_limits limits;
    struct quota_used
        all;           /* of all users; charges of quota_charge_until until somebody looks whether they have ended */
    clock_ms looked;   /* when that was done last for all users */
    GHashTable *users; /* uid -> struct quota_user */
    struct quota_user *last; /* the user who was charged last, or NULL */
    GHashTable *directories; /* path -> uid */
    guint recounted;         /* how often quota_some_directory was called */
};

static void quota_free_user(gpointer data)
{
    struct quota_user *user = data;
    g_clear_pointer(&user->until, g_array_unref);
    g_free(user);
}

struct quota *quota_new(const struct quota_limits *limits)
{
    struct quota *quota = g_new0(struct quota, 1);
    quota->limits = *limits;
    quota->users = g_hash_table_new_full(NULL, NULL, NULL, quota_free_user);
    quota->directories = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    return quota;
}

void quota_free(struct quota *quota)
{
    if (quota) {
        g_hash_table_destroy(quota->directories);
        g_hash_table_destroy(quota->users);
        g_free(quota);
    }
}

/* The number of these charges that have ended at `when`. */
static guint quota_count_over(const GArray *until, clock_ms when)
{
    guint low = 0, high = until->len;
    while (low < high) {
        guint middle = low + (high - low) / 2;
        if (g_array_index(until, clock_ms, middle) <= when) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* What the user has, including the charges of quota_charge_until that have not ended. */
static struct quota_used quota_sum(struct quota *quota, const struct quota_user *user)
{
    struct quota_used used = user->used;
    if (user->until) {
        guint over = quota_count_over(user->until, clock_now());
        g_array_remove_range(user->until, 0, over);
        quota->all.locks -= over;
        used.locks += user->until->len;
    }
    return used;
}

static struct quota_used quota_of(struct quota *quota, uid_t uid)
{
    const struct quota_user *user = g_hash_table_lookup(quota->users, GUINT_TO_POINTER(uid));
    return user ? quota_sum(quota, user) : (struct quota_used){.uid = uid};
}

/* Those who have nothing any more stay: they come back. */
static struct quota_user *quota_user(struct quota *quota, uid_t uid)
{
    struct quota_user *user = quota->last;
    if (user && user->used.uid == uid) {
        return user;
    }
    user = g_hash_table_lookup(quota->users, GUINT_TO_POINTER(uid));
    if (!user) {
        user = g_new0(struct quota_user, 1);
        user->used.uid = uid;
        g_hash_table_insert(quota->users, GUINT_TO_POINTER(uid), user);
    }
    quota->last = user;
    return user;
}

void quota_charge(struct quota *quota, uid_t uid, int64_t locks, int64_t content)
{
    struct quota_used *used = &quota_user(quota, uid)->used;
    used->locks += (uint64_t)locks;
    used->content += (uint64_t)content;
    quota->all.locks += (uint64_t)locks;
    quota->all.content += (uint64_t)content;
}

void quota_charge_until(struct quota *quota, uid_t uid, clock_ms until)
{
    bool limited = quota->limits.user_locks || quota->limits.locks;
    struct quota_user *user = uid && limited ? quota_user(quota, uid) : NULL;
    if (user && !user->until) {
        user->until = g_array_new(FALSE, FALSE, sizeof until);
    }
    if (user) {
        g_array_insert_val(user->until, quota_count_over(user->until, until), until);
        quota->all.locks++;
    }
}

void quota_end_charge(struct quota *quota, uid_t uid, clock_ms until)
{
    const struct quota_user *user = quota_user(quota, uid);
    guint count = user->until ? quota_count_over(user->until, until) : 0;
    if (count > 0 && g_array_index(user->until, clock_ms, count - 1) == until) {
        g_array_remove_index(user->until, count - 1);
        quota->all.locks--;
    }
}

void quota_charge_open(struct quota *quota, uid_t uid, int files)
{
    quota_user(quota, uid)->used.open += (uint64_t)files;
}

static uint64_t quota_difference(uint64_t limit, uint64_t used)
{
    return limit == 0 ? UINT64_MAX : limit > used ? limit - used : 0;
}

/* What one may still have of a total when each may have as much as is left free. */
static uint64_t quota_share(uint64_t total, uint64_t used, uint64_t all)
{
    uint64_t left = quota_difference(total, used + all);
    return left == UINT64_MAX ? left : left / 2;
}

/* What a user with a limit may still have. */
static struct quota_left quota_of_user(struct quota *quota, const struct quota_used *used)
{
    const struct quota_limits *limits = &quota->limits;
    return (struct quota_left){
        .locks = MIN(quota_difference(limits->user_locks, used->locks),
                     quota_share(limits->locks, used->locks, quota->all.locks)),
        .content = MIN(quota_difference(limits->user_content, used->content),
                       quota_share(limits->content, used->content, quota->all.content)),
    };
}

static bool quota_is_over(uint64_t limit, uint64_t used)
{
    return limit && used > limit;
}

/* Has a user with so much more than is left free? */
static bool quota_is_full(const struct quota *quota, const struct quota_used *used)
{
    return quota_is_over(quota->limits.locks, used->locks + quota->all.locks) ||
           quota_is_over(quota->limits.content, used->content + quota->all.content);
}

static void quota_note(void *arg, const struct quota_used *used)
{
    (void)used;
    *(bool *)arg = false;
}

bool quota_exceeded(struct quota *quota, uid_t uid)
{
    const struct quota_limits *limits = &quota->limits;
    if (uid == 0) {
        return false;
    }
    struct quota_used used = quota_of(quota, uid);
    if (quota_is_over(limits->user_locks, used.locks) || quota_is_over(limits->user_content, used.content)) {
        return true;
    }
    if (quota_is_full(quota, &used) && clock_now() - quota->looked >= QUOTA_LOOK_EVERY) {
        bool unused;
        quota->looked = clock_now();
        quota_each(quota, quota_note, &unused);
    }
    return quota_is_full(quota, &used);
}

struct quota_left quota_left(struct quota *quota, uid_t uid)
{
    struct quota_used used = quota_of(quota, uid);
    struct quota_left left = {.locks = UINT64_MAX, .content = UINT64_MAX};
    if (uid) {
        left = quota_of_user(quota, &used);
    }
    left.used = quota->all.content;
    return left;
}

bool quota_allows_directory(struct quota *quota, uid_t uid)
{
    return quota_left(quota, uid).locks > 0;
}

bool quota_allows_open(struct quota *quota, uid_t uid)
{
    return uid == 0 || quota_of(quota, uid).open < QUOTA_OPEN_MAX;
}

const char *quota_some_directory(struct quota *quota, uid_t uid)
{
    GHashTableIter iter;
    gpointer path, owner;
    const char *found = NULL;
    guint size = g_hash_table_size(quota->directories), from = size ? quota->recounted++ % size : 0;
    g_hash_table_iter_init(&iter, quota->directories);
    for (guint at = 0; (!found || at <= from) && g_hash_table_iter_next(&iter, &path, &owner); at++) {
        found = GPOINTER_TO_UINT(owner) == uid ? path : found;
    }
    return found;
}

void quota_add_directory(struct quota *quota, const char *path, uid_t uid)
{
    quota_drop_directory(quota, path);
    g_hash_table_insert(quota->directories, g_strdup(path), GUINT_TO_POINTER(uid));
    quota_charge(quota, uid, 1, 0);
}

void quota_drop_directory(struct quota *quota, const char *path)
{
    gpointer uid;
    if (g_hash_table_lookup_extended(quota->directories, path, NULL, &uid)) {
        g_hash_table_remove(quota->directories, path);
        quota_charge(quota, GPOINTER_TO_UINT(uid), -1, 0);
    }
}

bool quota_is_unused(struct quota *quota)
{
    bool unused = true;
    quota_each(quota, quota_note, &unused);
    return unused;
}

void quota_each(struct quota *quota, void (*each)(void *arg, const struct quota_used *used), void *arg)
{
    GHashTableIter iter;
    gpointer value;
    g_hash_table_iter_init(&iter, quota->users);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        struct quota_used used = quota_sum(quota, value);
        if (used.locks || used.content) {
            each(arg, &used);
        }
    }
}
