/* uri: where a Redis server is, and how to speak to it.
 *
 * Forms (RFC 3986; the scheme names are those that IANA and redis-cli use):
 *
 *     redis://[USER@]HOST[:PORT][/DB]     rediss:// the same with TLS
 *     redis+unix://[USER@]/PATH[?db=DB]
 *     redis+sentinel://[USER@]HOST[:PORT][,HOST[:PORT]...]/NAME[?db=DB]
 *     redis+cluster://[USER@]HOST[:PORT][,HOST[:PORT]...][/][?prefix=PREFIX]
 *
 * and rediss+sentinel://, rediss+cluster://.  The hosts are Sentinels, which know the
 * master of that NAME, or some nodes of the Cluster.
 *
 * USER, PATH and PREFIX are percent-encoded.  HOST may be an IPv6 address in brackets.
 * A password in a URI is refused: it would be seen in argv, /proc/mounts and
 * logs; it comes from a file.
 */
#ifndef BACKEND_REDIS_CONN_URI_H
#define BACKEND_REDIS_CONN_URI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REDIS_PORT_DEFAULT 6379
#define REDIS_SENTINEL_PORT_DEFAULT 26379

/* Where the server that has the data is found. */
enum redis_kind {
    REDIS_SERVER, /* the URI names the server */
    REDIS_SENTINEL,
    REDIS_CLUSTER
};

struct redis_uri {
    enum redis_kind kind;
    bool tls;
    char *user; /* of the server; percent-decoded; NULL: none */
    char *host; /* name or address without brackets; NULL with `path` or `hosts` */
    char *path; /* of a Unix-domain socket; else NULL */
    uint16_t port;
    int database;    /* 0..65535 */
    char **hosts;    /* Sentinels or nodes, at least one, NULL behind the last; else NULL */
    uint16_t *ports; /* theirs */
    char *name;      /* of the master that the Sentinels watch; else NULL */
    char *prefix;    /* of keys in a Cluster; NULL: none */
};

/* 0, or -EINVAL (-EOPNOTSUPP for rediss:// and its like in a build without TLS) with one line
 * in `error` that says what is wrong and what to write instead.  Free with
 * redis_uri_clear in both cases. */
int redis_uri_parse(struct redis_uri *uri, const char *text, char *error, size_t error_size);
void redis_uri_clear(struct redis_uri *uri);

/* "redis://host:port/db" or the like, without the user: for logs and status.  A
 * new string. */
char *redis_uri_show(const struct redis_uri *uri);
/* "host:port", with brackets around an IPv6 address.  A new string. */
char *redis_uri_show_host(const char *host, uint16_t port);
/* A deep copy without the user. */
struct redis_uri redis_uri_copy(const struct redis_uri *uri);

/* Reads a file with a password (the first line), or USER:PASSWORD (then *ret_user
 * is set, else NULL).  So a password with a colon in it is written USER:PASSWORD,
 * or :PASSWORD.  Further lines are ignored.
 * The file must be a regular one (no symbolic link), the caller's or root's, and
 * mode 0600 or narrower; at most 4 KiB.  New strings, to be freed with g_free
 * after clearing; 0 or -errno with one line in `error`. */
int redis_credentials_read(const char *path, char **ret_user, char **ret_password, char *error, size_t error_size);

#endif
