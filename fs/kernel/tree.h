/* tree: names and inodes.
 *
 * A node stands for a name as long as the kernel knows it (look-up count), or
 * something here refers to it: an open handle, a hold, a node below it.  There
 * is one node for a name, whoever holds its lock, so that st_ino is the same
 * through path and handle.  The one exception: when a name goes from file to
 * symbolic link or back, the kernel needs another inode, and the old node is
 * detached: it keeps its handles and its name but is not found by it.
 *
 * The kernel's node id is the address of the node; st_ino is a number that is
 * never used twice.
 */
#ifndef FS_KERNEL_TREE_H
#define FS_KERNEL_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "backend/backend.h"
#include "fs/kernel/nametable.h"
#include "fs/options/options.h"

struct fs;
struct handle;
struct hold;
struct notify;

/* What a directory has beyond a name. */
struct node_directory {
    struct backend_directory attributes; /* meta: see meta.h */
    uint32_t held;                       /* locks that this mount holds in it and below */
    uid_t uid;
    gid_t gid;
    struct timespec changed;
};

/* What only those have that were renamed, or whose lock has ended or is another mount's. */
struct node_past {
    char *name;          /* its present one, or NULL */
    uint64_t deleted;    /* the last notification of its end: see notify_delete */
    uint64_t expired;    /* the last that was of a kept entry */
    uint32_t lock_ended; /* when its lock last ended: clock_now, cut; 0: never */
    mode_t mode;         /* the last lock's type and permissions, and whose it was; 0: there was none */
    uid_t uid;
    gid_t gid;
};

struct node {
    struct node *parent; /* counted; NULL for the root */
    struct node *next;   /* in its bucket: nametable.h */
    uint32_t hash;       /* by which it is in that */
    uint32_t references;
    LIST_HEAD(, handle) handles;
    LIST_HEAD(, hold) holds;          /* what is held, the latest first, and leases asked for */
    LIST_HEAD(, hold) waiting;        /* handle locks that are asked for or wait: there may be thousands */
    struct node_directory *directory; /* NULL for a lock */
    struct node_past *past;           /* mostly NULL */
    uint64_t ino;
    uint64_t lookups;
    uint16_t mode;      /* type and permissions */
    uint8_t control;    /* enum control_node: .leasefs and what is in it */
    bool hashed : 1;    /* found by its name */
    bool visible : 1;   /* the kernel was told that it exists and not yet that it went */
    bool kept : 1;      /* and may go by that without asking again */
    bool shown : 1;     /* and may show attributes that it was told of, for a second: see entry_fill_listed */
    bool made : 1;      /* or for a moment, since it was made */
    bool displaced : 1; /* in use, and another node is found by its name */
    bool moved : 1;     /* renamed: see opening.h */
    bool awaited : 1;   /* found by one who was told ESTALE before: see opening.h */
    bool linked : 1;    /* shares its ino with the node of another name: tree_link */
    char made_as[];     /* its first name */
};

/* The fields belong to tree.c. */
struct tree {
    struct nametable names;
    struct node *root;
    GHashTable *links; /* ino -> how many names share it, when more than one did */
    uint64_t next_ino;
    struct nametable unnamed; /* those not in `names` */
    struct notify *notify;
    GQueue deferred;      /* freed when the kernel was told of their end, in the order of that */
    GPtrArray *displaced; /* those of them that are used; mostly there are none */
};

struct tree *tree_new(void);
/* Nodes of whose end the kernel is still to be told are kept until it was: their
 * number would be that of another node else. */
void tree_set_notify(struct tree *tree, struct notify *notify);
void tree_free(struct tree *tree);
static inline struct node *tree_root(struct tree *tree)
{
    return tree->root;
}

static inline const char *tree_name(const struct node *node)
{
    return node->past && node->past->name ? node->past->name : node->made_as;
}

/* Its past, from now on. */
struct node_past *tree_ensure_past(struct node *node);
/* Its lock has ended just now. */
void tree_note_ended(struct node *node);
/* It ended less than that ago, in milliseconds. */
bool tree_ended_within(const struct node *node, uint32_t within);
/* The last notification that what the kernel has kept of it is no longer so. */
static inline uint64_t tree_expired(const struct node *node)
{
    return node->past ? node->past->expired : 0;
}

/* The node of a kernel node id. */
static inline struct node *tree_node(struct tree *tree, uint64_t id)
{
    return id == FUSE_ROOT_ID ? tree->root : (struct node *)(uintptr_t)id;
}

static inline uint64_t tree_id(struct tree *tree, const struct node *node)
{
    return node == tree->root ? FUSE_ROOT_ID : (uint64_t)(uintptr_t)node;
}

/* The node of a name in a directory, or NULL if none is known.  Not counted.  One
 * that had to give way to another is found again when that has gone. */
struct node *tree_find(struct tree *tree, const struct node *parent, const char *name);

/* The same of a path as tree_path gives it. */
struct node *tree_find_path(struct tree *tree, const char *path);

/* Do both have the same path? */
bool tree_same_path(const struct node *a, const struct node *b);
/* The node that this one's path finds now: another one after a rename, or after its directory was removed and made
 * anew.  Itself, if none is found. */
struct node *tree_current_node(struct tree *tree, struct node *node);

/* A node of that name that had to give way and still has handles or holds: the
 * first after `last` (NULL: the first), or NULL. */
struct node *tree_find_displaced(struct tree *tree, const struct node *parent, const char *name,
                                 const struct node *last);

/* The node of a name of which tree_find has just found this one or NULL, made with this
 * type (S_IFREG, S_IFLNK, S_IFDIR) when it is not there; one of another type is detached.
 * With a new reference. */
struct node *tree_get(struct tree *tree, struct node *there, struct node *parent, const char *name, mode_t type);

/* A new node that is not found by its name until tree_attach or tree_rename. */
struct node *tree_make(struct tree *tree, struct node *parent, const char *name, mode_t type);

/* All nodes but the root, those that are not found by name too, each with a new
 * reference. */
GPtrArray *tree_all(struct tree *tree);

static inline struct node *tree_ref(struct node *node)
{
    node->references++;
    return node;
}

/* Frees it, and what only it has kept, if nothing refers to it any more. */
void tree_reap(struct tree *tree, struct node *node);
static inline void tree_unref(struct tree *tree, struct node *node)
{
    if (node && --node->references == 0) {
        tree_reap(tree, node);
    }
}

/* The kernel's own references. */
static inline void tree_add_lookup(struct node *node)
{
    node->lookups++;
}

void tree_forget(struct tree *tree, struct node *node, uint64_t count);

/* From now on not found by its name. */
void tree_detach(struct tree *tree, struct node *node);
/* Found by it again, unless another node is. */
void tree_attach(struct tree *tree, struct node *node);
/* Gives it another name; a node that has that name is detached. */
void tree_rename(struct tree *tree, struct node *node, struct node *parent, const char *name);

/* What stat(2) shows of the node has changed without the kernel's doing. */
void tree_invalidate(struct tree *tree, struct node *node);

/* Hard links: `node` is from now on the same file to users (st_ino) as `other`.
 * They stay two nodes, as each name is a lock of its own.  Within the request that
 * links them. */
void tree_link(struct tree *tree, struct node *node, struct node *other);
/* One of the names has gone. */
void tree_unlink(struct tree *tree, struct node *node);
/* st_nlink. */
static inline unsigned tree_links(const struct tree *tree, const struct node *node)
{
    unsigned links = node->linked ? GPOINTER_TO_UINT(g_hash_table_lookup(tree->links, &node->ino)) : 0;
    return links ? links : 1; /* the last of them does not know that it is alone */
}

/* Notes that the entries of a directory have changed (its mtime). */
static inline void tree_touch(struct node *directory)
{
    clock_gettime(CLOCK_REALTIME, &directory->directory->changed);
}

/* The path for the backend.  False if it is longer than `size`. */
bool tree_path(const struct node *node, char *buffer, size_t size);
/* The same of a name in a directory. */
bool tree_child_path(const struct node *parent, const char *name, char *buffer, size_t size);

#define TREE_PATH_MAX 4096

#endif
