/* fuzz_world: messages in a world, selected by a source of numbers; see fuzz_world.h. */
#include "tests/message/fuzz_world.h"

#include <check.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "backend/log.h"
#include "fs/hold/hold.h"
#include "fs/hold/quota.h"
#include "fs/kernel/tree.h"
#include "tests/message/fake_store.h"
#include "tests/message/wire.h"

#define FUZZ_PEOPLE 4

/* A request without an answer yet, and what it uses. */
struct fuzz_request {
    uint64_t unique;
    uint64_t node, other, fh;
    uint64_t owner; /* the lock owner of a record lock's request, or 0 */
    bool ends_all;  /* it ends what that has of the file, and nothing else of its is under way */
};

struct fuzz_node {
    uint64_t id;
    mode_t mode;
};

struct fuzz {
    struct wire *w;
    fuzz_pick *pick;
    void *arg;
    GArray *nodes;        /* struct fuzz_node, in the order of their look-ups */
    GArray *files;        /* struct wire_file, the same */
    GArray *requests;     /* struct fuzz_request */
    GArray *directories;  /* fh of each that is open */
    GHashTable *occupied; /* names held by another mount */
};

static const char *const fuzz_names[] = {"a", "b", "c", "d", "dir", "sub", "job-", "job-0000000001", "job-0000000002"};
static const char *const fuzz_attributes[] = {
    "user.lease.state", "user.lease.kind",     "user.lease.mode",    "user.lease.owner",    "user.lease.token",
    "user.lease.ttl",   "user.lease.acquired", "user.lease.waiters", "user.lease.position", "user.lease.width",
    "user.lease.check", "user.lease.release",  "user.lease.break",   "user.lease.name",     "user.other"};
static const char *const fuzz_values[] = {
    "1", "2", "3", "7", "auto", "5s", "100ms", "0", "", "-1", "99999999999999999999"};

static struct fuzz *z;
static pid_t people[FUZZ_PEOPLE]; /* also of the next world: a fork is slow in a fuzzer, which has much memory */

static uint32_t pick(uint32_t below)
{
    return z->pick(z->arg, below);
}

static bool chance(uint32_t one_in)
{
    return pick(one_in) == 0;
}

#define PICK_OF(array) ((array)[pick(G_N_ELEMENTS(array))])

/* --- what the kernel knows --------------------------------------------------------- */

static struct fuzz_node *find_node(uint64_t id)
{
    for (guint i = 0; i < z->nodes->len; i++) {
        struct fuzz_node *node = &g_array_index(z->nodes, struct fuzz_node, i);
        if (node->id == id) {
            return node;
        }
    }
    return NULL;
}

static void note_answer(uint64_t unique, const struct wire_exchange *e)
{
    const struct fuse_entry_out *entry = wire_data(z->w, unique, NULL);
    bool has_entry = e->opcode == FUSE_LOOKUP || e->opcode == FUSE_CREATE || e->opcode == FUSE_MKDIR ||
                     e->opcode == FUSE_MKNOD || e->opcode == FUSE_SYMLINK || e->opcode == FUSE_LINK;
    if (e->error == 0 && has_entry && entry->nodeid && !find_node(entry->nodeid)) {
        struct fuzz_node node = {entry->nodeid, entry->attr.mode};
        g_array_append_val(z->nodes, node);
    }
    if (e->error == 0 && (e->opcode == FUSE_CREATE || e->opcode == FUSE_OPEN)) {
        struct wire_file file = wire_file(z->w, unique);
        g_array_append_val(z->files, file);
    } else if (e->error == 0 && e->opcode == FUSE_OPENDIR) {
        uint64_t fh = ((const struct fuse_open_out *)wire_data(z->w, unique, NULL))->fh;
        g_array_append_val(z->directories, fh);
    }
}

/* What a lock owner has given back is free, whichever handle it was got by. */
static void check_ended(const struct fuzz_request *r)
{
    char path[TREE_PATH_MAX];
    const GPtrArray *tickets = z->w->fake->store->tickets;
    ck_assert(tree_path(tree_node(z->w->fs->tree, r->node), path, sizeof path));
    for (guint i = 0; i < tickets->len; i++) {
        const struct fake_ticket *t = g_ptr_array_index(tickets, i);
        bool has = t->head.held && t->head.kind == BACKEND_FCNTL && t->lock_owner == r->owner;
        ck_assert_msg(!has || !fake_store_is_on(t, path), "%s is not given back", path);
    }
}

/* Drops the requests that have been answered. */
static void settle(void)
{
    for (guint i = z->requests->len; i-- > 0;) {
        uint64_t unique = g_array_index(z->requests, struct fuzz_request, i).unique;
        const struct wire_exchange *e = g_hash_table_lookup(z->w->exchanges, GSIZE_TO_POINTER(unique));
        if (e->answered) {
            note_answer(unique, e);
            if (g_array_index(z->requests, struct fuzz_request, i).ends_all && e->error == 0) {
                check_ended(&g_array_index(z->requests, struct fuzz_request, i));
            }
            g_array_remove_index_fast(z->requests, i);
        }
    }
}

static bool is_used(uint64_t node, uint64_t fh)
{
    for (guint i = 0; i < z->requests->len; i++) {
        const struct fuzz_request *r = &g_array_index(z->requests, struct fuzz_request, i);
        if ((fh && r->fh == fh) || (!fh && (r->node == node || r->other == node))) {
            return true;
        }
    }
    return false;
}

static void sent_with(uint64_t unique, uint64_t node, uint64_t other, uint64_t fh)
{
    struct fuzz_request r = {.unique = unique, .node = node, .other = other, .fh = fh};
    g_array_append_val(z->requests, r);
}

static void sent_of_lock_owner(uint64_t unique, struct wire_file file, uint64_t owner, bool ends_all)
{
    struct fuzz_request r = {unique, file.node, 0, file.fh, owner, ends_all};
    for (guint i = 0; i < z->requests->len; i++) {
        struct fuzz_request *other = &g_array_index(z->requests, struct fuzz_request, i);
        if (other->owner == owner) {
            other->ends_all = r.ends_all = false;
        }
    }
    g_array_append_val(z->requests, r);
}

/* A node of this type that the kernel knows; 0 if there is none. */
static uint64_t some_node(mode_t type)
{
    uint64_t of_type[64], root = FUSE_ROOT_ID;
    uint32_t count = 0;
    for (guint i = z->nodes->len; i-- > 0 && count < G_N_ELEMENTS(of_type) - 2;) {
        const struct fuzz_node *node = &g_array_index(z->nodes, struct fuzz_node, i);
        if ((node->mode & S_IFMT) == type) {
            of_type[count++] = node->id;
        }
    }
    if (type == S_IFDIR) {
        of_type[count++] = root;
        of_type[count++] = root;
    }
    return count ? of_type[pick(count)] : 0;
}

static uint64_t any_node(void)
{
    uint64_t node = some_node(chance(4) ? S_IFDIR : chance(4) ? S_IFLNK : S_IFREG);
    return node ? node : FUSE_ROOT_ID;
}

static bool some_file(struct wire_file *ret_file)
{
    if (z->files->len) {
        *ret_file = g_array_index(z->files, struct wire_file, pick(z->files->len));
    }
    return z->files->len != 0;
}

static void release(struct wire_file file)
{
    for (guint i = 0; i < z->files->len; i++) {
        if (g_array_index(z->files, struct wire_file, i).fh == file.fh) {
            g_array_remove_index(z->files, i);
            break;
        }
    }
    sent_with(wire_release(z->w, file), file.node, 0, file.fh);
}

/* --- valid requests ------------------------------------------------------------------ */

static void send_name_request(void)
{
    struct wire *w = z->w;
    const char *name = PICK_OF(fuzz_names);
    static const int flags[] = {O_RDONLY, O_WRONLY, O_RDWR, O_WRONLY | O_EXCL, O_WRONLY | O_TRUNC};
    uint64_t directory = w->directory = some_node(S_IFDIR), unique, other = 0;
    switch (pick(12)) {
    case 0:
        unique = wire_unlink(w, name);
        break;
    case 1:
        unique = wire_mkdir(w, name);
        break;
    case 2:
        unique = wire_rmdir(w, name);
        break;
    case 3:
        unique = wire_symlink(w, name, "somewhere");
        break;
    case 4:
        other = some_node(S_IFREG);
        unique = other ? wire_link(w, other, name) : wire_lookup(w, name);
        break;
    case 5:
        unique = wire_rename(w, name, PICK_OF(fuzz_names), pick(3));
        break;
    case 6:
    case 7:
        unique = wire_lookup(w, name);
        break;
    default:
        unique = wire_create(w, name, PICK_OF(flags));
    }
    sent_with(unique, directory, other, 0);
}

static void send_record_request(struct wire_file file)
{
    static const uint32_t types[] = {F_RDLCK, F_WRLCK, F_UNLCK};
    uint64_t start = pick(20), end = chance(3) ? INT64_MAX : start + pick(10), owner = 1 + pick(4);
    uint32_t type = PICK_OF(types);
    if (chance(4)) {
        sent_with(wire_getlk(z->w, file, owner, types[pick(2)], start, end), file.node, 0, file.fh);
        return;
    }
    start = chance(3) ? 0 : start;
    uint64_t unique = wire_setlk(z->w, file, owner, type, start, end, chance(2));
    sent_of_lock_owner(unique, file, owner, type == F_UNLCK && start == 0 && end == INT64_MAX);
}

static void send_lock_request(struct wire_file file)
{
    static const int operations[] = {LOCK_SH, LOCK_EX, LOCK_SH | LOCK_NB, LOCK_EX | LOCK_NB, LOCK_UN};
    if (chance(2)) {
        sent_with(wire_flock(z->w, file, PICK_OF(operations)), file.node, 0, file.fh);
    } else {
        send_record_request(file);
    }
}

static void send_file_request(struct wire_file file)
{
    struct wire *w = z->w;
    uint64_t owner = 1 + pick(4), unique;
    switch (pick(9)) {
    case 0:
        unique = wire_read(w, file, pick(100), pick(1 << 17));
        break;
    case 1:
        unique = wire_write(w, file, chance(8) ? CONTENT_BYTES_MAX - 2 : pick(40), "some content", pick(12));
        break;
    case 2:
        sent_of_lock_owner(wire_flush(w, file, owner), file, owner, true);
        return;
    case 3:
        unique = wire_fsync(w, file);
        break;
    case 4:
        unique = wire_poll(w, file, pick(1000));
        break;
    case 5:
        unique = wire_touch(w, file.node, &file);
        break;
    case 6:
        unique =
            wire_setattr(w, file.node, &file, (struct fuse_setattr_in){.valid = pick(1 << 11), .size = pick(70000)});
        break;
    default:
        if (!is_used(0, file.fh)) {
            release(file);
        }
        return;
    }
    sent_with(unique, file.node, 0, file.fh);
}

static void send_node_request(void)
{
    struct wire *w = z->w;
    uint64_t node = any_node(), file = some_node(S_IFREG), link = some_node(S_IFLNK), unique;
    switch (pick(8)) {
    case 0:
        unique = wire_getattr(w, node);
        break;
    case 1:
        unique = wire_touch(w, node, NULL);
        break;
    case 2:
        unique = wire_setattr(w, node, NULL,
                              (struct fuse_setattr_in){.valid = pick(1 << 11) & ~(unsigned)FATTR_FH,
                                                       .size = pick(70000),
                                                       .mode = S_IFREG | pick(0777)});
        break;
    case 3:
        unique = wire_getxattr(w, node, PICK_OF(fuzz_attributes));
        break;
    case 4:
        unique = wire_setxattr(w, node, PICK_OF(fuzz_attributes), PICK_OF(fuzz_values));
        break;
    case 5:
        unique = wire_send(w, FUSE_LISTXATTR, node, &(struct fuse_getxattr_in){.size = pick(300)},
                           sizeof(struct fuse_getxattr_in), NULL, 0);
        break;
    case 6:
        unique = link ? wire_send(w, FUSE_READLINK, link, NULL, 0, NULL, 0)
                      : wire_send(w, FUSE_STATFS, node, NULL, 0, NULL, 0);
        node = link ? link : node;
        break;
    default:
        node = file ? file : node;
        unique = file ? wire_open(w, file, (int)pick(3) | (chance(4) ? O_TRUNC : 0)) : wire_getattr(w, node);
    }
    sent_with(unique, node, 0, 0);
}

static void send_directory_request(void)
{
    struct wire *w = z->w;
    guint index = z->directories->len ? pick(z->directories->len) : 0;
    if (!z->directories->len || chance(3)) {
        uint64_t node = some_node(S_IFDIR);
        struct fuse_open_in in = {.flags = O_RDONLY};
        sent_with(wire_send(w, FUSE_OPENDIR, node, &in, sizeof in, NULL, 0), node, 0, 0);
        return;
    }
    /* Every directory is read as the root: only the cursor is the handle's own. */
    uint64_t fh = g_array_index(z->directories, uint64_t, index);
    if (is_used(0, fh)) {
        return;
    }
    if (chance(3)) {
        struct fuse_release_in in = {.fh = fh};
        g_array_remove_index_fast(z->directories, index);
        sent_with(wire_send(w, FUSE_RELEASEDIR, FUSE_ROOT_ID, &in, sizeof in, NULL, 0), FUSE_ROOT_ID, 0, fh);
    } else {
        struct fuse_read_in in = {.fh = fh, .offset = pick(20), .size = pick(4096)};
        uint32_t opcode = in.size % 2 ? FUSE_READDIRPLUS : FUSE_READDIR;
        sent_with(wire_send(w, opcode, FUSE_ROOT_ID, &in, sizeof in, NULL, 0), FUSE_ROOT_ID, 0, fh);
    }
}

static void forget_something(void)
{
    uint64_t node = any_node();
    uint64_t reported = GPOINTER_TO_SIZE(g_hash_table_lookup(z->w->lookups, GSIZE_TO_POINTER(node)));
    for (guint i = 0; i < z->files->len; i++) {
        if (g_array_index(z->files, struct wire_file, i).node == node) {
            return; /* the kernel keeps the inode of an open file */
        }
    }
    if (!reported || is_used(node, 0)) {
        return;
    }
    uint64_t count = chance(3) ? 1 : reported;
    wire_forget(z->w, node, count);
    if (count == reported) {
        g_array_remove_index(z->nodes, (guint)(find_node(node) - (struct fuzz_node *)(void *)z->nodes->data));
    }
}

/* --- mangled requests ------------------------------------------------------------------ */

/* Bytes of a message that may be anything; what libfuse reads sizes and pointers
 * from is left alone. */
static void send_mangled(void)
{
    static const uint32_t by_name[] = {FUSE_LOOKUP, FUSE_UNLINK, FUSE_RMDIR, FUSE_MKDIR, FUSE_MKNOD, FUSE_CREATE};
    static const uint32_t unheard_of[] = {0, 7, 19, 46, 47, 50, 51, 52, 99, 4095, 4097, 1 << 20, UINT32_MAX};
    char junk[600];
    size_t size = pick(sizeof junk);
    for (size_t i = 0; i < sizeof junk; i++) {
        junk[i] = (char)(chance(3) ? 0 : 1 + pick(255));
        junk[i] = (char)(junk[i] == '/' ? 'x' : junk[i]); /* no name has one */
    }
    if (chance(3)) {
        uint64_t node = any_node();
        sent_with(wire_send(z->w, PICK_OF(unheard_of), node, junk, size, NULL, 0), node, 0, 0);
    } else if (chance(2)) {
        uint64_t node = any_node();
        uint32_t opcode = chance(2) ? FUSE_GETATTR : chance(2) ? FUSE_STATFS : FUSE_ACCESS;
        sent_with(wire_send(z->w, opcode, node, junk, size, NULL, 0), node, 0, 0);
    } else {
        uint64_t node = some_node(S_IFDIR);
        sent_with(wire_send(z->w, PICK_OF(by_name), node, junk, size, NULL, 0), node, 0, 0);
    }
}

/* --- the world around --------------------------------------------------------------------- */

static void answer_something(void)
{
    static const enum backend_result failures[] = {BACKEND_UNREACHABLE, BACKEND_FULL, BACKEND_UNSUPPORTED};
    struct fake_backend *fake = z->w->fake;
    enum fake_call call = (enum fake_call)pick(FAKE_CALLS);
    call = call == FAKE_RENAME ? FAKE_ACQUIRE : call; /* claims by the old name meanwhile would end on the new one */
    unsigned held_back = fake_backend_held_back(fake, call);
    if (held_back && chance(5)) {
        bool knows = call == FAKE_STAT || call == FAKE_LIST || call == FAKE_TEST;
        fake_backend_refuse(fake, call, pick(held_back), knows ? BACKEND_UNREACHABLE : PICK_OF(failures));
    } else if (held_back) {
        fake_backend_answer(fake, call, pick(held_back));
    } else {
        fake_backend_hold(fake, call, chance(3));
    }
}

static void meddle_from_afar(void)
{
    static const enum backend_end ends[] = {BACKEND_EXPIRED, BACKEND_RELEASED, BACKEND_BROKEN, BACKEND_LOST};
    const char *name = PICK_OF(fuzz_names);
    struct fake_backend *fake = z->w->fake;
    if (g_hash_table_remove(z->occupied, name)) {
        fake_backend_vacate(fake, name);
    } else if (fake_backend_holders(fake, name) && chance(2)) {
        fake_backend_end(fake, name, PICK_OF(ends));
    } else if (!fake_backend_holders(fake, name) && !fake_backend_waiters(fake, name) && !strchr(name, '-') &&
               strlen(name) == 1) {
        g_hash_table_add(z->occupied, (char *)name);
        if (chance(4)) {
            fake_backend_occupy_plainly(fake, name, "some token", NULL);
        } else {
            fake_backend_occupy(fake, name, (enum backend_kind)pick(4), (enum backend_mode)pick(2));
        }
    }
}

static void interrupt_something(void)
{
    if (z->requests->len) {
        wire_interrupt(z->w, g_array_index(z->requests, struct fuzz_request, pick(z->requests->len)).unique);
    }
}

static void replace_somebody(void)
{
    pid_t *place = &people[pick(FUZZ_PEOPLE)];
    wire_kill(z->w, *place);
    if (chance(2)) { /* else its requests come from one who is gone */
        *place = wire_sleeper();
    }
}

static void move(void)
{
    switch (pick(8)) {
    case 0:
        wire_take(z->w);
        break;
    case 1:
        wire_advance(z->w, pick(chance(10) ? 40000 : 700));
        break;
    case 2:
        fake_backend_hold_events(z->w->fake, chance(3));
        break;
    default:
        wire_turn(z->w);
    }
    settle();
}

/* --- what users are charged ---------------------------------------------------------------- */

struct fuzz_account {
    int64_t locks, content;
};

static void add_used(void *arg, const struct quota_used *used)
{
    struct fuzz_account *all = arg;
    int who = used->uid == 0 ? 0 : used->uid == 1000 ? 1 : 2;
    all[who].locks += (int64_t)used->locks;
    all[who].content += (int64_t)used->content;
}

static void recount(struct fuzz_account *all, const struct hold *hold, bool at_rest)
{
    int who = hold->account == 0 ? 0 : hold->account == 1000 ? 1 : 2;
    all[who].locks--;
    all[who].content -= hold->bytes;
    ck_assert(!at_rest || hold->bytes == hold->size);
}

/* Each user is charged for exactly what exists: counts it again. */
static void check_accounts(bool at_rest)
{
    struct fuzz_account all[3] = {0};
    const struct hold *hold;
    GPtrArray *nodes = tree_all(z->w->fs->tree);
    quota_each(z->w->fs->quota, add_used, all);
    for (guint i = 0; i < nodes->len; i++) {
        struct node *node = g_ptr_array_index(nodes, i);
        LIST_FOREACH(hold, &node->holds, link) {
            recount(all, hold, at_rest);
        }
        LIST_FOREACH(hold, &node->waiting, link) {
            recount(all, hold, at_rest);
        }
        tree_unref(z->w->fs->tree, node);
    }
    g_ptr_array_free(nodes, TRUE);
    for (int who = 0; who < 3; who++) {
        ck_assert_int_eq(all[who].content, 0);
        ck_assert_int_ge(all[who].locks, 0);
    }
    /* what is left are directories, all but the top */
    ck_assert_int_eq(all[0].locks + all[1].locks + all[2].locks,
                     (int64_t)g_hash_table_size(z->w->fake->store->directories) - 1);
}

void fuzz_world_step(void)
{
    struct wire_file file;
    uint32_t kind = pick(100);
    z->w->pid = chance(30) ? 0 : PICK_OF(people);
    z->w->uid = chance(4) ? 1000 : 0;
    if (kind < 25) {
        send_name_request();
    } else if (kind < 40 && some_file(&file)) {
        send_lock_request(file);
    } else if (kind < 60 && some_file(&file)) {
        send_file_request(file);
    } else if (kind < 70) {
        send_node_request();
    } else if (kind < 74) {
        send_directory_request();
    } else if (kind < 78) {
        forget_something();
    } else if (kind < 83) {
        send_mangled();
    } else if (kind < 90) {
        answer_something();
    } else if (kind < 94) {
        interrupt_something();
    } else if (kind < 98) {
        meddle_from_afar();
    } else if (chance(8)) {
        replace_somebody();
    }
    move();
    check_accounts(false);
}

/* --- beginning and end ------------------------------------------------------------------ */

void fuzz_world_new(unsigned features, fuzz_pick *source, void *arg)
{
    log_set_level(LOG_LEVEL_ERROR);
    z = g_new0(struct fuzz, 1);
    z->pick = source;
    z->arg = arg;
    z->w = wire_new(BACKEND_CAN_RANGE | BACKEND_CAN_SEQUENCE | features);
    quota_free(z->w->fs->quota);
    z->w->fs->quota = quota_new(&(struct quota_limits){.user_locks = 8, .user_content = 600});
    z->nodes = g_array_new(FALSE, FALSE, sizeof(struct fuzz_node));
    z->files = g_array_new(FALSE, FALSE, sizeof(struct wire_file));
    z->requests = g_array_new(FALSE, FALSE, sizeof(struct fuzz_request));
    z->directories = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    z->occupied = g_hash_table_new(g_str_hash, g_str_equal);
    for (int i = 0; i < FUZZ_PEOPLE; i++) {
        if (!people[i] || waitpid(people[i], NULL, WNOHANG) != 0) {
            people[i] = wire_sleeper();
        }
    }
}

/* All that was asked is answered, all that was opened is closed. */
static void come_to_rest(void)
{
    struct fake_backend *fake = z->w->fake;
    fake_backend_hold_events(fake, false);
    for (int call = 0; call < FAKE_CALLS; call++) {
        fake_backend_hold(fake, (enum fake_call)call, false);
        while (fake_backend_held_back(fake, (enum fake_call)call)) {
            fake_backend_answer(fake, (enum fake_call)call, 0);
        }
    }
    wire_advance(z->w, 2 * SECOND);
    settle();
    while (z->requests->len) { /* what waits for locks waits for ever */
        guint before = z->requests->len;
        for (guint i = 0; i < z->requests->len; i++) {
            wire_interrupt(z->w, g_array_index(z->requests, struct fuzz_request, i).unique);
        }
        wire_advance(z->w, SECOND);
        settle();
        ck_assert_msg(z->requests->len < before, "a request that is interrupted is not answered");
    }
    check_accounts(true);
    for (guint i = 0; i < z->directories->len; i++) {
        struct fuse_release_in in = {.fh = g_array_index(z->directories, uint64_t, i)};
        wire_send(z->w, FUSE_RELEASEDIR, FUSE_ROOT_ID, &in, sizeof in, NULL, 0);
    }
}

static void check_only_leases_stay(void)
{
    while (z->files->len) {
        release(g_array_index(z->files, struct wire_file, 0));
    }
    wire_advance(z->w, 2 * SECOND);
    ck_assert_uint_eq(fake_backend_tickets(z->w->fake, BACKEND_PROVISIONAL), 0);
    ck_assert_uint_eq(fake_backend_tickets(z->w->fake, BACKEND_FLOCK), 0);
    ck_assert_uint_eq(fake_backend_tickets(z->w->fake, BACKEND_FCNTL), 0);
}

void fuzz_world_end(void)
{
    come_to_rest();
    check_only_leases_stay();
}

void fuzz_world_free(void)
{
    wire_free(z->w);
    g_array_free(z->nodes, TRUE);
    g_array_free(z->files, TRUE);
    g_hash_table_destroy(z->occupied);
    g_array_free(z->requests, TRUE);
    g_array_free(z->directories, TRUE);
    g_free(z);
}
