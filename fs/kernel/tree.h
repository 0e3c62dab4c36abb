/* tree: names and inodes.
 *
 * A node stands for a name as long as the kernel knows it (look-up count), or
 * something here refers to it: an open handle, a hold, a node below it.  There is one
 * node for a name, whoever holds its lock, so that path and handle show the same
 * st_ino.  The one exception: when a name changes from file to symbolic link or back,
 * the kernel needs another inode.  The old node is detached: it keeps its handles and
 * its name, but the name does not find it.
 *
 * The kernel's node id is the number of the node's record, which outlives the daemon: the next daemon makes the same
 * nodes from the records.  No such number, and no st_ino, is ever used twice.
 */
#ifndef FS_KERNEL_TREE_H
#define FS_KERNEL_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "backend/backend.h"
#include "fs/keep/memory.h"
#include "fs/kernel/nametable.h"
#include "fs/options/options.h"

struct fs;
struct handle;
struct hold;
struct notify;

#define NODE_NAME_SHORT 24 /* bytes for a name in its node's record */
#define NODE_NAME_PIECE 40

/* What the next daemon must know of a node, in KEEP_NODES.  Only tree_rename changes directory and name, and a rename
 * that was cut short is done again. */
struct node_record {
    struct node *node;   /* of this daemon; means nothing to the next one */
    uint64_t ino;        /* st_ino */
    uint32_t parent;     /* index of its directory's record, and 1; 0: the root */
    uint32_t lookups;    /* that the kernel has, or is about to get; UINT32_MAX: too many to count */
    uint16_t mode;       /* type and permissions */
    uint8_t control;     /* enum control_node: .leasefs and its files */
    uint8_t hashed : 1;  /* its name finds it */
    uint8_t visible : 1; /* the kernel knows that it exists */
    uint8_t kept : 1;    /* the kernel may cache the entry */
    uint8_t shown : 1;   /* the kernel may cache the attributes for a second: see entry_fill_listed */
    uint8_t made : 1;    /* the kernel may cache the entry for a moment, since it was made */
    uint8_t moved : 1;   /* renamed: see opening.h */
    uint8_t linked : 1;  /* shares its ino with another name: see tree_link */
    uint32_t long_name;  /* index of the name's first piece, and 1; 0: it is in `name` */
    char name[NODE_NAME_SHORT];
};

/* A piece of a long name, in KEEP_NAMES. */
struct node_name {
    uint64_t node;               /* number of the node's record */
    uint64_t next;               /* index of the next piece, and 1; 0: this is the last */
    char piece[NODE_NAME_PIECE]; /* with NULs behind the name */
};

/* What the next daemon must know of a directory and the store does not, in KEEP_DIRECTORIES. */
struct node_directory_record {
    uint64_t node;     /* number of the node's record; 0: the root */
    uint64_t next_ino; /* of the root: every st_ino from here on is unused */
    int64_t seconds;   /* mtime */
    int64_t nanoseconds;
};

/* Only for directories. */
struct node_directory {
    struct backend_directory attributes; /* meta: see meta.h */
    clock_ms loaded;                     /* when the store was asked for them last */
    uint32_t held;                       /* how many locks this mount holds in it and below */
    uid_t uid;
    gid_t gid;
    struct node_directory_record *record;
    bool recorded; /* it is kept */
};

/* Only for nodes that were renamed, or whose lock ended or belongs to another mount. */
struct node_past {
    char *name;          /* the present name, or NULL: see tree_name */
    uint64_t deleted;    /* number of the last notify_delete; see notify.h */
    uint64_t expired;    /* the last such number of an entry that the kernel had cached */
    uint64_t fence;      /* of the lock of another mount that was found by its name; 0: none */
    uint32_t lock_ended; /* when its lock last ended: low bits of clock_now; 0: never */
    mode_t mode;         /* of the last lock, with uid and gid: type and permissions; 0: there was none */
    uid_t uid;
    gid_t gid;
};

struct node {
    struct node *parent; /* counted; NULL for the root */
    struct node *next;   /* in its bucket: see nametable.h */
    uint32_t hash;       /* see nametable.h */
    uint32_t references : 29;
    bool recorded : 1;  /* `record` is kept */
    bool displaced : 1; /* in use, while its name finds another node */
    bool awaited : 1;   /* looked up again after an ESTALE: see opening.h */
    LIST_HEAD(, handle) handles;
    LIST_HEAD(, hold) holds;   /* leases not answered yet, granted ones, granted handle locks: each latest first */
    struct hold *longest;      /* of those granted, the one that has held longest; or NULL */
    LIST_HEAD(, hold) waiting; /* handle locks that wait or are not answered yet; there may be thousands */
    struct node_directory *directory; /* NULL for a lock */
    struct node_past *past;           /* NULL for most nodes */
    struct node_record *record;
    uint64_t fence_elsewhere;    /* of the last holder elsewhere whose attributes were shown, */
    clock_ms acquired_elsewhere; /* and when it acquired the lock, as shown; 0: none was shown */
    char made_as[];              /* its first name, if that is long */
};

/* The fields belong to tree.c. */
struct tree {
    struct nametable names;
    struct node *root;
    GHashTable *links;        /* ino -> how many names have it; only where several had it */
    struct nametable unnamed; /* nodes that are not in `names` */
    struct notify *notify;
    struct keep_table *nodes, *long_names, *directories;
    GPtrArray *restored;            /* nodes that an earlier daemon has left, each with a reference */
    struct node_record *spare;      /* a record for the next node; NULL: the table is full */
    struct node_record root_record; /* not kept: the root is the same for each daemon */
    /* nametable_hash -> GPtrArray of displaced nodes: in use, while their name finds another node; mostly empty */
    GHashTable *displaced;
};

/* Makes the nodes that an earlier daemon has left in `keep`.  tree_drop_unknown frees those that nothing refers to. */
struct tree *tree_new(struct keep *keep);
void tree_drop_unknown(struct tree *tree);
/* The node of .leasefs, or of a file in it, that an earlier daemon has left, with a new reference; or NULL. */
struct node *tree_restored_control(struct tree *tree, uint8_t control);
void tree_set_notify(struct tree *tree, struct notify *notify);
/* No further node can be made that the kernel may know. */
static inline bool tree_is_full(const struct tree *tree)
{
    return !tree->spare;
}
void tree_free(struct tree *tree);
static inline struct node *tree_root(struct tree *tree)
{
    return tree->root;
}

static inline const char *tree_name(const struct node *node)
{
    return node->past && node->past->name ? node->past->name
           : node->record->long_name      ? node->made_as
                                          : node->record->name;
}

/* Makes node->past if there is none. */
struct node_past *tree_ensure_past(struct node *node);
/* The node's lock ends now. */
void tree_note_ended(struct node *node);
/* Did its lock end less than `within` milliseconds ago? */
bool tree_ended_within(const struct node *node, uint32_t within);
/* The number of the last notification about an entry that the kernel had cached; 0: none. */
static inline uint64_t tree_expired(const struct node *node)
{
    return node->past ? node->past->expired : 0;
}

/* `id` is the kernel's.  NULL: there is no such node any more. */
struct node *tree_node(struct tree *tree, uint64_t id);
uint64_t tree_id(struct tree *tree, const struct node *node);

/* The node of a name in a directory, or NULL.  Not counted.  A displaced node is found again when the other one is
 * gone. */
struct node *tree_find(struct tree *tree, const struct node *parent, const char *name);

/* The same for a path that tree_path wrote. */
struct node *tree_find_path(struct tree *tree, const char *path);

/* Do both nodes have the same path? */
bool tree_same_path(const struct node *a, const struct node *b);
/* The node that this node's path finds now: another one after a rename, or after its directory was removed and made
 * again.  The node itself if the path finds none. */
struct node *tree_current_node(struct tree *tree, struct node *node);

/* The next displaced node of that name that still has handles or holds; or NULL.  Begins at position `*at` (0 at first)
 * and sets it to the position after that node.  The cost depends only on the displaced nodes of that name. */
struct node *tree_next_displaced(struct tree *tree, const struct node *parent, const char *name, unsigned *at);

/* The node of a name, with a new reference.  `there` is what tree_find has just returned for it.  Makes a node of this
 * type (S_IFREG, S_IFLNK, S_IFDIR) if there is none, and detaches one of another type. */
struct node *tree_get(struct tree *tree, struct node *there, struct node *parent, const char *name, mode_t type);

/* A new node, which its name finds only after tree_attach or tree_rename. */
struct node *tree_make(struct tree *tree, struct node *parent, const char *name, mode_t type);

/* All nodes but the root, detached ones too, each with a new reference. */
GPtrArray *tree_all(struct tree *tree);

static inline struct node *tree_ref(struct node *node)
{
    node->references++;
    return node;
}

/* Frees the node, and its parents, if nothing refers to them any more. */
void tree_reap(struct tree *tree, struct node *node);
static inline void tree_unref(struct tree *tree, struct node *node)
{
    if (node && --node->references == 0) {
        tree_reap(tree, node);
    }
}

/* The kernel is about to get one more reference. */
static inline void tree_add_lookup(struct node *node)
{
    KEEP_STORE(node->record->lookups, node->record->lookups + (node->record->lookups < UINT32_MAX));
}

static inline void tree_set_lookups(struct node *node, uint64_t lookups)
{
    KEEP_STORE(node->record->lookups, (uint32_t)MIN(lookups, UINT32_MAX));
}

void tree_forget(struct tree *tree, struct node *node, uint64_t count);

/* From now on its name does not find it. */
void tree_detach(struct tree *tree, struct node *node);
/* Its name finds it again, unless it finds another node. */
void tree_attach(struct tree *tree, struct node *node);
/* Gives it another name.  Detaches a node that has that name. */
void tree_rename(struct tree *tree, struct node *node, struct node *parent, const char *name);

/* Attributes of the node have changed without the kernel: notifies it, if it has cached them. */
void tree_invalidate(struct tree *tree, struct node *node);

/* Makes a hard link: from now on both nodes have the same st_ino.  They stay two nodes, because each name is a lock of
 * its own.  Call it within the request that links them. */
void tree_link(struct tree *tree, struct node *node, struct node *other);
/* The node's name is gone: it leaves its hard links.  It keeps the st_ino while a file of it is open. */
void tree_unlink(struct tree *tree, struct node *node);
/* st_nlink.  0: its lock has ended, and no name has its ino any more. */
static inline unsigned tree_links(const struct tree *tree, const struct node *node)
{
    bool gone = !node->record->hashed && LIST_EMPTY(&node->holds) && LIST_EMPTY(&node->waiting);
    bool shares = gone || node->record->linked;
    unsigned links = shares ? GPOINTER_TO_UINT(g_hash_table_lookup(tree->links, &node->record->ino)) : 0;
    return links || gone ? links : 1;
}

/* Sets a directory's mtime, because its entries have changed. */
void tree_touch(struct node *directory);
struct timespec tree_changed(const struct node *directory);
void tree_set_changed(struct node *directory, struct timespec when);

/* Writes the path for the backend.  False if it is longer than `size`. */
bool tree_path(const struct node *node, char *buffer, size_t size);
/* The same for a name in a directory. */
bool tree_child_path(const struct node *parent, const char *name, char *buffer, size_t size);

#define TREE_PATH_MAX 4096

#endif
