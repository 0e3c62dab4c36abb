/* The URI of a Redis server, and the files of passwords. */
#include "config.h"

#include <errno.h>
#include <glib.h>
#include <glib/gstdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "backend/redis/conn/uri.h"
#include "tests/support/check_main.h"
#include "tests/support/scratch.h"

#define SECRET "s3cret"
#define NOBODY 65534

static char *directory;
static char error[512];

static void set_up(void)
{
    directory = scratch_new();
    error[0] = '\0';
}

static void tear_down(void)
{
    scratch_free(directory);
}

/* Further errors are reported only for a known one. */
static bool scheme_is_known(const char *text)
{
    struct redis_uri uri;
    int result = redis_uri_parse(&uri, text, error, sizeof error);
    redis_uri_clear(&uri);
    return result == 0 || !strstr(error, "the scheme of the redis URI is not known");
}

START_TEST(schemes_are_known)
{
    ck_assert(scheme_is_known("redis://host"));
    ck_assert(scheme_is_known("rediss://host"));
    ck_assert(scheme_is_known("redis+unix:///run/redis.sock"));
    ck_assert(scheme_is_known("REDIS://host"));
    ck_assert(scheme_is_known("redis:host"));
    ck_assert(!scheme_is_known("redis"));
    ck_assert(!scheme_is_known("redish://host"));
    ck_assert(!scheme_is_known("local:redis://host"));
    ck_assert(!scheme_is_known("memory"));
    ck_assert(!scheme_is_known(""));
}
END_TEST

START_TEST(good_forms_are_read_and_shown)
{
    static const struct {
        const char *text, *user, *host, *path;
        int port, database;
        const char *shown;
    } cases[] = {
        {"redis://host", NULL, "host", NULL, 6379, 0, "redis://host:6379/0"},
        {"redis://host/", NULL, "host", NULL, 6379, 0, "redis://host:6379/0"},
        {"redis://host:/", NULL, "host", NULL, 6379, 0, "redis://host:6379/0"},
        {"redis://host:1", NULL, "host", NULL, 1, 0, "redis://host:1/0"},
        {"redis://host:65535/65535", NULL, "host", NULL, 65535, 65535, "redis://host:65535/65535"},
        {"redis://host/15", NULL, "host", NULL, 6379, 15, "redis://host:6379/15"},
        {"Redis://a-b.example.org", NULL, "a-b.example.org", NULL, 6379, 0, "redis://a-b.example.org:6379/0"},
        {"redis://my_redis:7000", NULL, "my_redis", NULL, 7000, 0, "redis://my_redis:7000/0"},
        {"redis://127.0.0.1:7000/3", NULL, "127.0.0.1", NULL, 7000, 3, "redis://127.0.0.1:7000/3"},
        {"redis://[::1]", NULL, "::1", NULL, 6379, 0, "redis://[::1]:6379/0"},
        {"redis://ann@[2001:db8::7]:99/1", "ann", "2001:db8::7", NULL, 99, 1, "redis://[2001:db8::7]:99/1"},
        {"redis://[fe80::1%25eth0]:7000", NULL, "fe80::1%eth0", NULL, 7000, 0, "redis://[fe80::1%eth0]:7000/0"},
        {"redis://ann@host", "ann", "host", NULL, 6379, 0, "redis://host:6379/0"},
        {"redis://a%3Ab%40c%2Fd@host", "a:b@c/d", "host", NULL, 6379, 0, "redis://host:6379/0"},
        {"redis://j%C3%B6rg@host", "j\xc3\xb6rg", "host", NULL, 6379, 0, "redis://host:6379/0"},
        {"redis://@host", NULL, "host", NULL, 6379, 0, "redis://host:6379/0"},
        {"redis+unix:///run/redis.sock", NULL, NULL, "/run/redis.sock", 0, 0, "redis+unix:///run/redis.sock?db=0"},
        {"redis+unix:///run/r.sock?db=7", NULL, NULL, "/run/r.sock", 0, 7, "redis+unix:///run/r.sock?db=7"},
        {"redis+unix://ann@/run/r", "ann", NULL, "/run/r", 0, 0, "redis+unix:///run/r?db=0"},
        {"redis+unix:///a%20b/%3F?db=1", NULL, NULL, "/a b/?", 0, 1, "redis+unix:///a%20b/%3F?db=1"},
        {"redis+unix:///at@x:y/s", NULL, NULL, "/at@x:y/s", 0, 0, "redis+unix:///at@x:y/s?db=0"},
        {"redis+unix:///line%0Abreak", NULL, NULL, "/line\nbreak", 0, 0, "redis+unix:///line%0Abreak?db=0"},
    };
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        struct redis_uri uri;
        int result = redis_uri_parse(&uri, cases[i].text, error, sizeof error);
        ck_assert_msg(result == 0, "%s: %s", cases[i].text, error);
        ck_assert(!uri.tls);
        ck_assert_pstr_eq(uri.user, cases[i].user);
        ck_assert_pstr_eq(uri.host, cases[i].host);
        ck_assert_pstr_eq(uri.path, cases[i].path);
        ck_assert_int_eq(uri.port, cases[i].port);
        ck_assert_int_eq(uri.database, cases[i].database);
        char *shown = redis_uri_show(&uri);
        ck_assert_str_eq(shown, cases[i].shown);
        g_free(shown);
        redis_uri_clear(&uri);
        ck_assert_ptr_null(uri.host);
    }
}
END_TEST

#define BAD_SCHEME                                                                                                     \
    "the scheme of the redis URI is not known: write redis://, rediss://, redis+unix://, "                             \
    "redis+sentinel:// or redis+cluster://"
#define NO_HOST "the redis URI names no host: write redis://HOST, or redis+unix:///PATH"
#define BAD_HOST                                                                                                       \
    "the host of the redis URI is neither a name nor an address; IPv6 is written in brackets, as in "                  \
    "redis://[::1]:6379"
#define SEVERAL_HOSTS                                                                                                  \
    "the redis URI names several hosts: write redis+sentinel://HOST,HOST,HOST/NAME for Sentinels, "                    \
    "redis+cluster://HOST,HOST,HOST/?prefix={TAG} for a Cluster, or redlock://HOST,HOST,HOST for independent servers"
#define BAD_PORT                                                                                                       \
    "the port of the redis URI is not a number from 1 to 65535; IPv6 is written in brackets, as in redis://[::1]:6379"
#define BAD_DATABASE "what follows the host in the redis URI is not a database: write /NUMBER, 0 to 65535"
#define BAD_QUERY "the redis URI has a '?': a database is written redis://HOST/NUMBER, and settings are options"
#define BAD_FRAGMENT "the redis URI has a '#', which is written %23 where it is meant"
#define NO_SOCKET "the redis URI names no socket: write redis+unix:///PATH, with three slashes"
#define BAD_SOCKET_QUERY                                                                                               \
    "what follows '?' in the redis URI is not a database: write ?db=NUMBER, 0 to 65535 (a '?' of the path itself is "  \
    "written %3F)"
#define MALFORMED                                                                                                      \
    "the redis URI is malformed: write redis://[USER@]HOST[:PORT][/DB] or redis+unix:///PATH, with special "           \
    "characters "                                                                                                      \
    "as %XX"
#define BAD_USER "the user in the redis URI is not UTF-8 in percent-encoding"

START_TEST(bad_forms_are_refused_with_what_to_write)
{
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"redis", BAD_SCHEME},
        {"redish://host", BAD_SCHEME},
        {"redis-sentinel://ann:" SECRET "@host", BAD_SCHEME},
        {"redis:", NO_HOST},
        {"redis:host", NO_HOST},
        {"redis:/host", NO_HOST},
        {"redis://", NO_HOST},
        {"redis:///0", NO_HOST},
        {"redis://:6379", NO_HOST},
        {"redis://ann@/0", NO_HOST},
        {"redis://a b", BAD_HOST},
        {"redis://host,other", SEVERAL_HOSTS},
        {"redis://me@h1:6379,h2:6379/0", SEVERAL_HOSTS},
        {"redis://host%00x", BAD_HOST},
        {"redis://host%2Fx", BAD_HOST},
        {"redis://%zz", BAD_HOST},
        {"redis://h\xff", BAD_HOST},
        {"redis://[::1", BAD_HOST},
        {"redis://[::1]x", BAD_HOST},
        {"redis://[host]", BAD_HOST},
        {"redis://[]", BAD_HOST},
        {"redis://::1", BAD_PORT},
        {"redis://2001:db8::1", BAD_PORT},
        {"redis://host:0", BAD_PORT},
        {"redis://host:65536", BAD_PORT},
        {"redis://host:99999999999999999999", BAD_PORT},
        {"redis://host:-1", BAD_PORT},
        {"redis://host:+1", BAD_PORT},
        {"redis://host: 1", BAD_PORT},
        {"redis://host:0x10", BAD_PORT},
        {"redis://host:port", BAD_PORT},
        {"redis://host:1:2", BAD_PORT},
        {"redis://host/65536", BAD_DATABASE},
        {"redis://host/-1", BAD_DATABASE},
        {"redis://host/+1", BAD_DATABASE},
        {"redis://host/1/", BAD_DATABASE},
        {"redis://host//", BAD_DATABASE},
        {"redis://host/one", BAD_DATABASE},
        {"redis://host/99999999999999999999", BAD_DATABASE},
        {"redis://host?db=1", BAD_QUERY},
        {"redis://host/1?timeout=5", BAD_QUERY},
        {"redis://host/1?", BAD_QUERY},
        {"redis://host/#1", BAD_FRAGMENT},
        {"redis+unix:///run/r#1", BAD_FRAGMENT},
        {"redis://a%zz@host", BAD_USER},
        {"redis://a%ff@host", BAD_USER},
        {"redis+unix:///run/%zz", MALFORMED},
        {"redis+unix:///run/%00", MALFORMED},
        {"redis+unix:", NO_SOCKET},
        {"redis+unix:run/r", NO_SOCKET},
        {"redis+unix://run/r", NO_SOCKET},
        {"redis+unix:///", NO_SOCKET},
        {"redis+unix://", NO_SOCKET},
        {"redis+unix:///run/r?db=", BAD_SOCKET_QUERY},
        {"redis+unix:///run/r?db=65536", BAD_SOCKET_QUERY},
        {"redis+unix:///run/r?db=1&db=2", BAD_SOCKET_QUERY},
        {"redis+unix:///run/r?x=1", BAD_SOCKET_QUERY},
    };
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        struct redis_uri uri;
        int result = redis_uri_parse(&uri, cases[i].text, error, sizeof error);
        ck_assert_msg(result == -EINVAL, "%s: %d", cases[i].text, result);
        ck_assert_msg(strcmp(error, cases[i].error) == 0, "%s: %s", cases[i].text, error);
        redis_uri_clear(&uri);
    }
}
END_TEST

START_TEST(lists_of_hosts_are_read_and_shown)
{
    static const struct {
        const char *text, *user, *hosts, *name, *prefix;
        int database;
        const char *shown;
    } cases[] = {
        {"redis+sentinel://h1,h2,h3/locks", NULL, "h1:26379 h2:26379 h3:26379", "locks", NULL, 0,
         "redis+sentinel://h1:26379,h2:26379,h3:26379/locks?db=0"},
        {"Redis+Sentinel://ann@h1:1,[::1]:2,[2001:db8::7]/a.b-C_9?db=7", "ann", "h1:1 [::1]:2 [2001:db8::7]:26379",
         "a.b-C_9", NULL, 7, "redis+sentinel://h1:1,[::1]:2,[2001:db8::7]:26379/a.b-C_9?db=7"},
        {"redis+sentinel://a%40b@10.0.0.1/x", "a@b", "10.0.0.1:26379", "x", NULL, 0,
         "redis+sentinel://10.0.0.1:26379/x?db=0"},
        {"redis+cluster://h1,h2:7000", NULL, "h1:6379 h2:7000", NULL, NULL, 0, "redis+cluster://h1:6379,h2:7000"},
        {"redis+cluster://ann@h1/?prefix={app}", "ann", "h1:6379", NULL, "{app}", 0,
         "redis+cluster://h1:6379/?prefix={app}"},
        {"redis+cluster://h1?prefix=%7Bapp%7D:a%20b%2Fc%40d%23", NULL, "h1:6379", NULL, "{app}:a b/c@d#", 0,
         "redis+cluster://h1:6379/?prefix={app}:a%20b/c%40d%23"},
        {"redis+cluster://h1/?prefix=", NULL, "h1:6379", NULL, "", 0, "redis+cluster://h1:6379/?prefix="},
    };
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        struct redis_uri uri;
        ck_assert_msg(redis_uri_parse(&uri, cases[i].text, error, sizeof error) == 0, "%s: %s", cases[i].text, error);
        GString *hosts = g_string_new(NULL);
        for (size_t j = 0; uri.hosts[j]; j++) {
            char *host = redis_uri_show_host(uri.hosts[j], uri.ports[j]);
            g_string_append_printf(hosts, "%s%s", j > 0 ? " " : "", host);
            g_free(host);
        }
        ck_assert_str_eq(hosts->str, cases[i].hosts);
        g_string_free(hosts, TRUE);
        ck_assert_int_eq(uri.kind, cases[i].name ? REDIS_SENTINEL : REDIS_CLUSTER);
        ck_assert_pstr_eq(uri.user, cases[i].user);
        ck_assert_pstr_eq(uri.name, cases[i].name);
        ck_assert_pstr_eq(uri.prefix, cases[i].prefix);
        ck_assert_int_eq(uri.database, cases[i].database);
        ck_assert_ptr_null(uri.host);
        ck_assert_ptr_null(uri.path);
        struct redis_uri copy = redis_uri_copy(&uri);
        redis_uri_clear(&uri);
        char *shown = redis_uri_show(&copy);
        ck_assert_str_eq(shown, cases[i].shown);
        g_free(shown);
        redis_uri_clear(&copy);
    }
}
END_TEST

#define NO_NAME                                                                                                        \
    "the redis URI names no master as its Sentinels know it, with letters, digits and '.-_': write "                   \
    "redis+sentinel://HOST,HOST,HOST/NAME"
#define NO_HOSTS "the redis URI names no host: write HOST,HOST,HOST behind the //"
#define BAD_LIST_QUERY "what follows '?' in the redis URI is not a database: write ?db=NUMBER, 0 to 65535"
#define BAD_CLUSTER_PATH                                                                                               \
    "what follows the hosts in the redis URI is not possible there, as a Cluster has one database: write "             \
    "redis+cluster://HOST,HOST,HOST/?prefix={TAG}"
#define BAD_CLUSTER_QUERY                                                                                              \
    "what follows '?' in the redis URI is not a prefix: write ?prefix={TAG}, and settings as options"

START_TEST(bad_lists_of_hosts_are_refused)
{
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"redis+sentinel://h1,h2", NO_NAME},
        {"redis+sentinel://h1,h2/", NO_NAME},
        {"redis+sentinel://h1/a/0", NO_NAME},
        {"redis+sentinel://h1/a%20b", NO_NAME},
        {"redis+sentinel:///a", NO_HOSTS},
        {"redis+sentinel://?db=1", NO_HOSTS},
        {"redis+sentinel://h1,/a", NO_HOSTS},
        {"redis+sentinel://,h1/a", NO_HOSTS},
        {"redis+sentinel://h1,:5/a", NO_HOSTS},
        {"redis+sentinel://h1,h 2/a", BAD_HOST},
        {"redis+sentinel://h1,::1/a", BAD_PORT},
        {"redis+sentinel://h1,h2:0/a", BAD_PORT},
        {"redis+sentinel://h1:65536,h2/a", BAD_PORT},
        {"redis+sentinel://h1/a?db=x", BAD_LIST_QUERY},
        {"redis+sentinel://h1/a?prefix={a}", BAD_LIST_QUERY},
        {"redis+sentinel://h1/a#b", BAD_FRAGMENT},
        {"redis+sentinel:h1/a", MALFORMED},
        {"redis+cluster://h1,h2/1", BAD_CLUSTER_PATH},
        {"redis+cluster://h1,h2/?db=1", BAD_CLUSTER_QUERY},
        {"redis+cluster://", NO_HOSTS},
        {"redis+sentinel://ann:" SECRET "@h1,h2/a",
         "a password in the URI would be shown to all users: put it in a file with mode 0600 and mount with -o "
         "credentials=FILE"},
    };
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        struct redis_uri uri;
        ck_assert_int_eq(redis_uri_parse(&uri, cases[i].text, error, sizeof error), -EINVAL);
        ck_assert_msg(strcmp(error, cases[i].error) == 0, "%s: %s", cases[i].text, error);
        redis_uri_clear(&uri);
    }
}
END_TEST

START_TEST(password_is_refused_and_never_repeated)
{
    static const char *const cases[] = {
        "redis://:" SECRET "@host",       "redis://ann:" SECRET "@host",      "redis://ann:@host",
        "redis://ann:" SECRET "/x@host",  "redis://ann:" SECRET "@[::1]:0/x", "redis://ann:" SECRET "@",
        "redis://ann:%zz" SECRET "@host", "redis://ann@b:" SECRET "@host",    "redis+unix://ann:" SECRET "@/run/r",
    };
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        struct redis_uri uri;
        ck_assert_int_eq(redis_uri_parse(&uri, cases[i], error, sizeof error), -EINVAL);
        ck_assert_str_eq(error,
                         "a password in the URI would be shown to all users: put it in a file with mode 0600 and mount "
                         "with -o credentials=FILE");
        redis_uri_clear(&uri);
    }
}
END_TEST

START_TEST(nothing_of_a_malformed_uri_is_repeated)
{
    static const char *const cases[] = {"redis://ann:" SECRET, "redis://host:" SECRET "/0", "redis://host/" SECRET,
                                        "redis://" SECRET "%zz", "redis://[" SECRET "]"};
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        struct redis_uri uri;
        ck_assert_int_eq(redis_uri_parse(&uri, cases[i], error, sizeof error), -EINVAL);
        ck_assert_ptr_null(strstr(error, SECRET));
        redis_uri_clear(&uri);
    }
}
END_TEST

START_TEST(tls_needs_a_build_with_it)
{
    struct redis_uri uri;
    int result = redis_uri_parse(&uri, "rediss://host", error, sizeof error);
#ifdef HAVE_HIREDIS_SSL
    ck_assert_int_eq(result, 0);
    char *shown = redis_uri_show(&uri);
    ck_assert(uri.tls);
    ck_assert_str_eq(shown, "rediss://host:6379/0");
    g_free(shown);
#else
    ck_assert_int_eq(result, -EOPNOTSUPP);
    ck_assert_ptr_nonnull(strstr(error, "hiredis_ssl"));
    ck_assert_int_eq(redis_uri_parse(&uri, "rediss+sentinel://h/a", error, sizeof error), -EOPNOTSUPP);
    ck_assert_ptr_nonnull(strstr(error, "use a tunnel, and redis+sentinel:// to its end"));
#endif
    redis_uri_clear(&uri);
}
END_TEST

START_TEST(socket_path_has_the_length_of_the_kernel)
{
    char path[sizeof((struct sockaddr_un *)NULL)->sun_path + 1];
    struct redis_uri uri;
    memset(path, 'x', sizeof path);
    path[0] = '/';
    for (size_t length = sizeof path - 2; length < sizeof path; length++) {
        char *text = g_strdup_printf("redis+unix://%.*s", (int)length, path);
        bool fits = length < sizeof((struct sockaddr_un *)NULL)->sun_path;
        ck_assert_int_eq(redis_uri_parse(&uri, text, error, sizeof error), fits ? 0 : -EINVAL);
        ck_assert(fits || strstr(error, "longer than the 107 bytes"));
        redis_uri_clear(&uri);
        g_free(text);
    }
}
END_TEST

/* A credentials file as it should be; returns its path. */
static char *credentials(const void *text, size_t length, mode_t mode)
{
    char *path = g_build_filename(directory, "credentials", NULL);
    scratch_write(directory, "credentials", text, length);
    ck_assert_int_eq(chmod(path, mode), 0);
    return path;
}

static int read_credentials(const char *path, char **ret_user, char **ret_password)
{
    error[0] = '\0';
    return redis_credentials_read(path, ret_user, ret_password, error, sizeof error);
}

START_TEST(credentials_are_the_first_line)
{
    static const struct {
        const char *text, *user, *password;
    } cases[] = {
        {SECRET, NULL, SECRET},
        {SECRET "\n", NULL, SECRET},
        {SECRET "\r\nmore\n", NULL, SECRET},
        {"ann:" SECRET "\n# a note\n", "ann", SECRET},
        {":" SECRET, NULL, SECRET},
        {":a:b", NULL, "a:b"},
        {"ann:a:b", "ann", "a:b"},
        {" a b \n", NULL, " a b "},
        {"\xff\xfe\n", NULL, "\xff\xfe"},
    };
    static const mode_t modes[] = {0600, 0400, 0200};
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        for (size_t j = 0; j < (geteuid() == 0 ? 3 : 2); j++) {
            char *user = NULL, *password = NULL, *path = credentials(cases[i].text, strlen(cases[i].text), modes[j]);
            ck_assert_int_eq(read_credentials(path, &user, &password), 0);
            ck_assert_pstr_eq(user, cases[i].user);
            ck_assert_str_eq(password, cases[i].password);
            g_free(user);
            g_free(password);
            ck_assert_int_eq(g_unlink(path), 0);
            g_free(path);
        }
    }
}
END_TEST

/* Refused with this errno and these words; what was to be returned is untouched. */
static void assert_refused(char *path, int result, const char *words)
{
    char untouched[] = "untouched", *user = untouched, *password = untouched;
    int got = read_credentials(path, &user, &password);
    ck_assert_msg(got == result, "%s: %d: %s", path, got, error);
    ck_assert_msg(strstr(error, words) != NULL, "%s: %s", words, error);
    ck_assert_ptr_nonnull(strstr(error, path));
    ck_assert_ptr_null(strstr(error, SECRET));
    ck_assert_ptr_eq(user, untouched);
    ck_assert_ptr_eq(password, untouched);
    g_free(path);
}

START_TEST(credentials_without_a_password_are_refused)
{
    static const char *const cases[] = {"", "\n", "\r\n", "\n" SECRET "\n", "ann:", "ann:\n", ":\n"};
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        assert_refused(credentials(cases[i], strlen(cases[i]), 0600), -EINVAL, "no password in its first line");
    }
    assert_refused(credentials("s3\0cret\n", 8, 0600), -EINVAL, "not a text file");
}
END_TEST

START_TEST(credentials_that_others_may_read_are_refused)
{
    static const mode_t modes[] = {0640, 0604, 0620, 0602, 0610, 0601, 0700, 04600, 02600, 01600};
    for (size_t i = 0; i < G_N_ELEMENTS(modes); i++) {
        assert_refused(credentials(SECRET, strlen(SECRET), modes[i]), -EPERM, "chmod 600");
    }
}
END_TEST

START_TEST(credentials_of_another_user_are_refused)
{
    char *path = credentials(SECRET, strlen(SECRET), 0600);
    ck_assert_int_eq(chown(path, NOBODY, NOBODY), 0);
    assert_refused(path, -EPERM, "belongs to another user");
}
END_TEST

START_TEST(own_credentials_serve_an_ordinary_user)
{
    char *user, *password, *path = credentials(SECRET, strlen(SECRET), 0600);
    ck_assert_int_eq(chmod(directory, 0755), 0);
    ck_assert_int_eq(seteuid(NOBODY), 0);
    ck_assert_int_eq(read_credentials(path, &user, &password), -EACCES);
    ck_assert_int_eq(seteuid(0), 0);
    ck_assert_int_eq(chown(path, NOBODY, NOBODY), 0);
    ck_assert_int_eq(seteuid(NOBODY), 0);
    ck_assert_int_eq(read_credentials(path, &user, &password), 0);
    ck_assert_int_eq(seteuid(0), 0);
    ck_assert_str_eq(password, SECRET);
    g_free(password);
    g_free(path);
}
END_TEST

START_TEST(credentials_must_be_a_regular_file)
{
    char *target = credentials(SECRET, strlen(SECRET), 0600), *link = g_build_filename(directory, "link", NULL);
    char *fifo = g_build_filename(directory, "fifo", NULL);
    ck_assert_int_eq(symlink(target, link), 0);
    ck_assert_int_eq(mkfifo(fifo, 0600), 0);
    assert_refused(link, -ELOOP, "symbolic link");
    assert_refused(fifo, -EINVAL, "not a regular file");
    assert_refused(g_strdup(directory), -EINVAL, "not a regular file");
    assert_refused(g_strdup("/dev/null"), -EINVAL, "not a regular file");
    assert_refused(g_strdup("/nowhere/credentials"), -ENOENT, "No such file");
    g_free(target);
}
END_TEST

START_TEST(credentials_have_a_limit)
{
    char text[4097];
    memset(text, 'x', sizeof text);
    assert_refused(credentials(text, 4097, 0600), -EFBIG, "longer than 4096 bytes");
    char *user, *password, *path = credentials(text, 4096, 0600);
    ck_assert_int_eq(read_credentials(path, &user, &password), 0);
    ck_assert_ptr_null(user);
    ck_assert_uint_eq(strlen(password), 4096);
    g_free(password);
    g_free(path);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("redis_uri");
    TCase *uris = tcase_create("URIs");
    TCase *files = tcase_create("credentials");
    tcase_add_test(uris, schemes_are_known);
    tcase_add_test(uris, good_forms_are_read_and_shown);
    tcase_add_test(uris, bad_forms_are_refused_with_what_to_write);
    tcase_add_test(uris, lists_of_hosts_are_read_and_shown);
    tcase_add_test(uris, bad_lists_of_hosts_are_refused);
    tcase_add_test(uris, password_is_refused_and_never_repeated);
    tcase_add_test(uris, nothing_of_a_malformed_uri_is_repeated);
    tcase_add_test(uris, tls_needs_a_build_with_it);
    tcase_add_test(uris, socket_path_has_the_length_of_the_kernel);
    tcase_add_checked_fixture(files, set_up, tear_down);
    tcase_add_test(files, credentials_are_the_first_line);
    tcase_add_test(files, credentials_without_a_password_are_refused);
    tcase_add_test(files, credentials_that_others_may_read_are_refused);
    check_add_where(check_may(CAP_CHOWN), "with CAP_CHOWN", files, credentials_of_another_user_are_refused);
    check_add_where(check_may(CAP_SETUID) && check_may(CAP_CHOWN), "with CAP_CHOWN and CAP_SETUID", files,
                    own_credentials_serve_an_ordinary_user);
    tcase_add_test(files, credentials_must_be_a_regular_file);
    tcase_add_test(files, credentials_have_a_limit);
    suite_add_tcase(suite, uris);
    suite_add_tcase(suite, files);
    return check_main(suite);
}
