/* quota: what each user has of this mount; see quota.h. */
#include "fs/hold/quota.h"

#include <glib.h>

/* Each may need the memory of a table of all locks. */
#define QUOTA_OPEN_MAX 16

struct quota_user {
    struct quota_used used;
    GArray *until; /* array of clock_ms, sorted: the ends of the charges of quota_charge_until; NULL: none */
};

struct quota {
    uint64_t locks, content; /* the limits */
    GHashTable *users;       /* uid -> struct quota_user */
    struct quota_user *last; /* the user who was charged last, or NULL */
    GHashTable *directories; /* path -> uid */
};

static void quota_free_user(gpointer data)
{
    struct quota_user *user = data;
    g_clear_pointer(&user->until, g_array_unref);
    g_free(user);
}

struct quota *quota_new(uint64_t locks, uint64_t content)
{
    struct quota *quota = g_new0(struct quota, 1);
    quota->locks = locks;
    quota->content = content;
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
static struct quota_used quota_sum(const struct quota_user *user)
{
    struct quota_used used = user->used;
    if (user->until) {
        g_array_remove_range(user->until, 0, quota_count_over(user->until, clock_now()));
        used.locks += user->until->len;
    }
    return used;
}

static struct quota_used quota_of(const struct quota *quota, uid_t uid)
{
    const struct quota_user *user = g_hash_table_lookup(quota->users, GUINT_TO_POINTER(uid));
    return user ? quota_sum(user) : (struct quota_used){.uid = uid};
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
}

void quota_charge_until(struct quota *quota, uid_t uid, clock_ms until)
{
    struct quota_user *user = uid && quota->locks ? quota_user(quota, uid) : NULL;
    if (user && !user->until) {
        user->until = g_array_new(FALSE, FALSE, sizeof until);
    }
    if (user) {
        g_array_insert_val(user->until, quota_count_over(user->until, until), until);
    }
}

void quota_end_charge(struct quota *quota, uid_t uid, clock_ms until)
{
    const struct quota_user *user = quota_user(quota, uid);
    guint count = user->until ? quota_count_over(user->until, until) : 0;
    if (count > 0 && g_array_index(user->until, clock_ms, count - 1) == until) {
        g_array_remove_index(user->until, count - 1);
    }
}

void quota_charge_open(struct quota *quota, uid_t uid, int files)
{
    quota_user(quota, uid)->used.open += (uint64_t)files;
}

bool quota_exceeded(const struct quota *quota, uid_t uid)
{
    if (uid == 0) {
        return false;
    }
    struct quota_used used = quota_of(quota, uid);
    return (quota->locks && used.locks > quota->locks) || (quota->content && used.content > quota->content);
}

static uint64_t quota_difference(uint64_t limit, uint64_t used)
{
    return limit == 0 ? UINT64_MAX : limit > used ? limit - used : 0;
}

static void quota_add_content(void *arg, const struct quota_used *used)
{
    *(uint64_t *)arg += used->content;
}

struct quota_left quota_left(const struct quota *quota, uid_t uid)
{
    struct quota_used used = quota_of(quota, uid);
    struct quota_left left = {quota_difference(uid == 0 ? 0 : quota->locks, used.locks),
                              quota_difference(uid == 0 ? 0 : quota->content, used.content), 0};
    quota_each(quota, quota_add_content, &left.used);
    return left;
}

bool quota_allows_directory(const struct quota *quota, uid_t uid)
{
    return uid == 0 || !quota->locks || quota_of(quota, uid).locks < quota->locks;
}

bool quota_allows_open(const struct quota *quota, uid_t uid)
{
    return uid == 0 || quota_of(quota, uid).open < QUOTA_OPEN_MAX;
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

static void quota_note(void *arg, const struct quota_used *used)
{
    (void)used;
    *(bool *)arg = false;
}

bool quota_is_unused(const struct quota *quota)
{
    bool unused = true;
    quota_each(quota, quota_note, &unused);
    return unused;
}

void quota_each(const struct quota *quota, void (*each)(void *arg, const struct quota_used *used), void *arg)
{
    GHashTableIter iter;
    gpointer value;
    g_hash_table_iter_init(&iter, quota->users);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        struct quota_used used = quota_sum(value);
        if (used.locks || used.content) {
            each(arg, &used);
        }
    }
}
