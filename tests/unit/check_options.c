/* The command line and mount(8)'s option lists, and the messages for wrong ones. */
#include <errno.h>
#include <glib.h>
#include <glib/gstdio.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/options/options.h"
#include "tests/support/check_main.h"

#define ARGUMENTS_MAX 16

static char *workdir;    /* its real path */
static char *mountpoint; /* a directory in it */
static struct options options;
static char error[512];

static void set_up(void)
{
    char *made = g_dir_make_tmp("check_options.XXXXXX", NULL);
    ck_assert_ptr_nonnull(made);
    char *real = realpath(made, NULL);
    workdir = g_strdup(real);
    free(real);
    g_free(made);
    mountpoint = g_build_filename(workdir, "mnt", NULL);
    ck_assert_int_eq(g_mkdir(mountpoint, 0755), 0);
}

static void tear_down(void)
{
    options_clear(&options);
    g_rmdir(mountpoint);
    g_rmdir(workdir);
    g_free(mountpoint);
    g_free(workdir);
}

/* Parses `PROGRAM ARGUMENT...`. */
static int parse(const char *program, const char *const *arguments)
{
    char *argv[ARGUMENTS_MAX + 1] = {g_strdup(program)};
    int argc = 1;
    options_clear(&options);
    error[0] = '\0';
    for (; *arguments; arguments++) {
        ck_assert_int_lt(argc, ARGUMENTS_MAX);
        argv[argc++] = g_strdup(*arguments);
    }
    char *given[ARGUMENTS_MAX + 1]; /* getopt reorders argv */
    memcpy(given, argv, sizeof given);
    int result = options_parse(&options, argc, argv, error, sizeof error);
    for (int i = 0; i < argc; i++) {
        g_free(given[i]);
    }
    return result;
}

#define PARSE(...) parse("leasefs", (const char *const[]){__VA_ARGS__, NULL})
#define PARSE_HELPER(...) parse("/sbin/mount.leasefs", (const char *const[]){__VA_ARGS__, NULL})

/* `expected` without the default_permissions at the end. */
static void assert_fuse_arguments(const char *expected)
{
    bool checks = geteuid() != 0 || strstr(expected, "allow_other");
    char *whole = g_strconcat(expected, checks ? " -o default_permissions" : "", NULL);
    GString *text = g_string_new(NULL);
    for (int i = 0; i < options.fuse.argc; i++) {
        g_string_append_printf(text, i ? " %s" : "%s", options.fuse.argv[i]);
    }
    ck_assert_str_eq(text->str, whole);
    g_string_free(text, TRUE);
    g_free(whole);
}

static void assert_refused(int result, const char *expected)
{
    ck_assert_int_eq(result, -EINVAL);
    ck_assert_str_eq(error, expected);
}

START_TEST(plain_mount_has_the_defaults)
{
    ck_assert_int_eq(PARSE("memory", mountpoint), 0);
    ck_assert_str_eq(options.backend, "memory");
    ck_assert_int_eq(options.kind, OPTIONS_LOCAL);
    ck_assert_str_eq(options.mountpoint, mountpoint);
    ck_assert_ptr_null(options.directory);
    ck_assert(!options.foreground);
    ck_assert(!options.owner_user);
    ck_assert(!options.sync_always);
    ck_assert(options.sandbox);
    ck_assert_uint_eq(options.spin, 25);
    ck_assert(options.follow);
    ck_assert_int_eq(options.ttl, 30000);
    ck_assert_uint_eq(options.mode, 0755);
    ck_assert_uint_eq(options.uid, geteuid());
    ck_assert_uint_eq(options.gid, getegid());
    assert_fuse_arguments("leasefs -o fsname=memory -o subtype=leasefs");
}
END_TEST

START_TEST(own_options_are_taken)
{
    ck_assert_int_eq(PARSE("-f", "-o", "ttl=1500ms,owner=user,mode=2770,sandbox=no", "-o",
                           "uid=12,gid=34,sync=always,log=debug", "-o",
                           "user_locks=5K,user_content=0,locks=3M,content=2G,lockmode=0660,spin=0,follow=no", "memory",
                           mountpoint),
                     0);
    ck_assert(options.foreground);
    ck_assert_int_eq(options.ttl, 1500);
    ck_assert(options.owner_user);
    ck_assert(!options.sandbox);
    ck_assert_uint_eq(options.spin, 0);
    ck_assert(!options.follow);
    ck_assert_uint_eq(options.mode, 02770);
    ck_assert_uint_eq(options.uid, 12);
    ck_assert_uint_eq(options.gid, 34);
    ck_assert(options.sync_always);
    ck_assert_int_eq(options.log, LOG_LEVEL_DEBUG);
    ck_assert_uint_eq(options.user_locks, 5 * 1024);
    ck_assert_uint_eq(options.user_content, 0);
    ck_assert_uint_eq(options.locks, 3 << 20);
    ck_assert_uint_eq(options.content, 2ull << 30);
    ck_assert_uint_eq(options.lock_mode, 0660);
    assert_fuse_arguments("leasefs -o fsname=memory -o subtype=leasefs");
}
END_TEST

START_TEST(later_option_wins)
{
    ck_assert_int_eq(PARSE("-o", "ttl=1m,owner=user,sync=always,ttl=2m,owner=process,sync=no", "memory", mountpoint),
                     0);
    ck_assert_int_eq(options.ttl, 120000);
    ck_assert(!options.owner_user);
    ck_assert(!options.sync_always);
}
END_TEST

START_TEST(options_may_follow_the_positionals_as_mount_fuse3_puts_them)
{
    ck_assert_int_eq(PARSE("memory", mountpoint, "-o", "rw,dev,suid,ttl=5s"), 0);
    ck_assert_str_eq(options.backend, "memory");
    ck_assert_int_eq(options.ttl, 5000);
    assert_fuse_arguments("leasefs -o rw -o dev -o suid -o fsname=memory -o subtype=leasefs");
}
END_TEST

START_TEST(flags_of_mount_8_are_tolerated)
{
    ck_assert_int_eq(PARSE("-n", "-s", "-v", "-w", "memory", mountpoint), 0);
    assert_fuse_arguments("leasefs -o fsname=memory -o subtype=leasefs");
}
END_TEST

START_TEST(fuse_and_kernel_options_are_handed_on)
{
    ck_assert_int_eq(PARSE("-o", "allow_root,auto_unmount,nosuid,nodev,noexec,noatime,sync,dirsync,async,exec,atime",
                           "memory", mountpoint),
                     0);
    assert_fuse_arguments("leasefs -o allow_root -o nosuid -o nodev -o noexec -o noatime -o sync "
                          "-o dirsync -o async -o exec -o atime -o fsname=memory -o subtype=leasefs");
}
END_TEST

START_TEST(words_for_fstab_and_systemd_are_dropped)
{
    ck_assert_int_eq(PARSE("-o",
                           "defaults,auto,noauto,user,user=ann,users,nofail,_netdev,owner,group,comment=a b,"
                           "x-systemd.automount,x-gvfs-hide,relatime,default_permissions,,",
                           "memory", mountpoint),
                     0);
    ck_assert(!options.owner_user);
    assert_fuse_arguments("leasefs -o fsname=memory -o subtype=leasefs");
}
END_TEST

START_TEST(debug_stays_in_the_foreground)
{
    ck_assert_int_eq(PARSE("-d", "memory", mountpoint), 0);
    ck_assert(options.foreground);
    assert_fuse_arguments("leasefs -o debug -o fsname=memory -o subtype=leasefs");
    ck_assert_int_eq(PARSE("-o", "debug", "memory", mountpoint), 0);
    ck_assert(options.foreground);
}
END_TEST

START_TEST(given_fsname_and_subtype_replace_ours)
{
    ck_assert_int_eq(PARSE("-o", "fsname=a\\,b,subtype=locks", "memory", mountpoint), 0);
    assert_fuse_arguments("leasefs -o fsname=a\\,b -o subtype=locks");
}
END_TEST

START_TEST(fsname_escapes_commas_of_the_directory)
{
    ck_assert_int_eq(PARSE("local:/tmp/a,b\\c", mountpoint), 0);
    ck_assert_str_eq(options.directory, "/tmp/a,b\\c");
    assert_fuse_arguments("leasefs -o fsname=local:/tmp/a\\,b\\\\c -o subtype=leasefs");
}
END_TEST

START_TEST(allow_other_by_root_opens_the_top_directory)
{
    ck_assert_int_eq(PARSE("-o", "allow_other", "memory", mountpoint), 0);
    ck_assert_uint_eq(options.mode, geteuid() == 0 ? 0777 : 0755);
    ck_assert_int_eq(PARSE("-o", "mode=0700,allow_other", "memory", mountpoint), 0);
    ck_assert_uint_eq(options.mode, 0700);
    ck_assert_int_eq(PARSE("-o", "allow_other,mode=0", "memory", mountpoint), 0);
    ck_assert_uint_eq(options.mode, 0);
}
END_TEST

START_TEST(local_has_one_store_for_each_mount_point)
{
    char *other = g_build_filename(workdir, ".a b-c", NULL);
    ck_assert_int_eq(g_mkdir(other, 0755), 0);
    ck_assert_int_eq(PARSE("local", mountpoint), 0);
    char *first = g_strdup(options.directory);
    ck_assert_int_eq(PARSE("local", other), 0);
    ck_assert(g_path_is_absolute(first));
    ck_assert_str_ne(first, options.directory);
    ck_assert(g_str_has_suffix(first, "-mnt"));
    ck_assert(g_str_has_suffix(options.directory, "-.a\\x20b\\x2dc"));
    ck_assert_ptr_null(strchr(strstr(options.directory, "/leasefs/") + strlen("/leasefs/"), '/'));
    g_free(first);
    g_rmdir(other);
    g_free(other);
}
END_TEST

START_TEST(local_store_of_root_is_below_var_lib)
{
    g_setenv("XDG_STATE_HOME", "/elsewhere", TRUE);
    ck_assert_int_eq(PARSE("local", "/"), 0);
    ck_assert_str_eq(options.directory, "/var/lib/leasefs/-");
}
END_TEST

START_TEST(local_store_of_a_user_is_in_the_state_home)
{
    if (geteuid() == 0) {
        ck_assert_int_eq(seteuid(65534), 0); /* of this forked test only */
    }
    g_setenv("XDG_STATE_HOME", "/elsewhere", TRUE);
    ck_assert_int_eq(PARSE("local", "/"), 0);
    ck_assert_str_eq(options.directory, "/elsewhere/leasefs/-");
    g_setenv("XDG_STATE_HOME", "relative/is/ignored", TRUE);
    ck_assert_int_eq(PARSE("local", "/usr"), 0);
    char *expected = g_build_filename(g_get_home_dir(), ".local/state/leasefs/usr", NULL);
    ck_assert_str_eq(options.directory, expected);
    g_free(expected);
    ck_assert_int_eq(seteuid(getuid()), 0);
}
END_TEST

START_TEST(relative_paths_are_taken_from_the_working_directory)
{
    ck_assert_int_eq(g_chdir(workdir), 0);
    ck_assert_int_eq(PARSE("local:state/../kept", "mnt/."), 0);
    char *kept = g_build_filename(workdir, "kept", NULL);
    ck_assert_str_eq(options.directory, kept);
    ck_assert_str_eq(options.mountpoint, mountpoint);
    g_free(kept);
    ck_assert_int_eq(g_chdir("/"), 0);
}
END_TEST

START_TEST(help_and_version_need_nothing_else)
{
    ck_assert_int_eq(PARSE("--help"), 0);
    ck_assert(options.show_help);
    ck_assert_int_eq(PARSE("-h"), 0);
    ck_assert(options.show_help);
    ck_assert_int_eq(PARSE("--version"), 0);
    ck_assert(options.show_version && !options.show_help);
    ck_assert_int_eq(PARSE("-V"), 0);
    ck_assert(options.show_version && !options.json);
    ck_assert_int_eq(PARSE("--version", "--json"), 0);
    ck_assert(options.show_version && options.json);
    ck_assert_int_eq(PARSE("--print-schema=postgresql"), 0);
    ck_assert_str_eq(options.print_schema, "postgresql");
    ck_assert_int_eq(PARSE("--protect", "/mnt/locks"), 0);
    ck_assert_str_eq(options.protect, "/mnt/locks");
    ck_assert_int_lt(PARSE("--protect"), 0);
}
END_TEST

START_TEST(wrong_value_is_reported_with_the_allowed_ones)
{
    static const struct {
        const char *word, *error;
    } cases[] = {
        {"ttl=soon", "ttl=soon: ttl= takes a time from 100ms to 3650d, such as 500ms, 30s, 5m or 1h"},
        {"ttl=99ms", "ttl=99ms: ttl= takes a time from 100ms to 3650d, such as 500ms, 30s, 5m or 1h"},
        {"ttl=", "ttl=: ttl= takes a time from 100ms to 3650d, such as 500ms, 30s, 5m or 1h"},
        {"owner=me", "owner=me: owner= takes process or user"},
        {"user_locks=-1", "user_locks=-1: user_locks= takes a number, such as 5000, 64K, 64M or 1G, or 0 for no limit"},
        {"lockmode=01777", "lockmode=01777: lockmode= takes permissions in octal, such as 0666 or 0660"},
        {"user_locks=", "user_locks=: user_locks= takes a number, such as 5000, 64K, 64M or 1G, or 0 for no limit"},
        {"user_content=64MB",
         "user_content=64MB: user_content= takes a number, such as 5000, 64K, 64M or 1G, or 0 for no limit"},
        {"user_content=9999999999G",
         "user_content=9999999999G: user_content= takes a number, such as 5000, 64K, 64M or 1G, or 0 for no limit"},
        {"sync=yes", "sync=yes: sync= takes always or no"},
        {"sandbox=1", "sandbox=1: sandbox= takes yes or no"},
        {"spin=1001", "spin=1001: spin= takes microseconds from 0 to 1000"},
        {"spin=1ms", "spin=1ms: spin= takes microseconds from 0 to 1000"},
        {"log=loud", "log=loud: log= takes error, warning, notice, info or debug"},
        {"log=", "log=: log= takes error, warning, notice, info or debug"},
        {"mode=888", "mode=888: mode= takes permissions in octal, such as 0755 or 0777"},
        {"mode=17777", "mode=17777: mode= takes permissions in octal, such as 0755 or 0777"},
        {"mode=", "mode=: mode= takes permissions in octal, such as 0755 or 0777"},
        {"uid=root", "uid=root: uid= takes the number of a user"},
        {"uid=-1", "uid=-1: uid= takes the number of a user"},
        {"uid=4294967295", "uid=4294967295: uid= takes the number of a user"},
        {"gid=1x", "gid=1x: gid= takes the number of a group"},
        {"timeout=9ms", "timeout=9ms: timeout= takes a time from 10ms to 10m, such as 500ms, 2s or 1m"},
        {"timeout=601", "timeout=601: timeout= takes a time from 10ms to 10m, such as 500ms, 2s or 1m"},
        {"command_timeout=x",
         "command_timeout=x: command_timeout= takes a time from 10ms to 10m, such as 500ms, 2s or 1m"},
        {"connect_timeout=",
         "connect_timeout=: connect_timeout= takes a time from 10ms to 10m, such as 500ms, 2s or 1m"},
        {"key=", "key=: key= takes the key of a lock, with {n} once, where its name is to stand"},
        {"key=lock:n", "key=lock:n: key= takes the key of a lock, with {n} once, where its name is to stand"},
        {"key={n}{n}", "key={n}{n}: key= takes the key of a lock, with {n} once, where its name is to stand"},
        {"credentials=", "credentials=: credentials= takes the name of a file"},
        {"ro", "ro: a mount cannot be read-only, because locks need writing"},
    };
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        assert_refused(PARSE("-o", cases[i].word, "memory", mountpoint), cases[i].error);
    }
}
END_TEST

START_TEST(helper_of_mount_8_has_its_flags)
{
    ck_assert_int_eq(PARSE_HELPER("memory", mountpoint, "-f", "-n", "-v", "-w", "-t", "leasefs", "-o", "rw"), 0);
    ck_assert(options.fake && options.verbose && !options.foreground);
    assert_refused(PARSE_HELPER("memory", mountpoint, "-N", "/proc/1/ns/mnt"),
                   "-N /proc/1/ns/mnt: use nsenter(1) to mount in another namespace");
    assert_refused(PARSE("memory", mountpoint, "-N", "/x"), "unknown option '-N': try leasefs --help");
    ck_assert_int_eq(PARSE("-f", "memory", mountpoint), 0);
    ck_assert(options.foreground && !options.fake);
}
END_TEST

START_TEST(sloppy_drops_what_is_unknown_and_nothing_else)
{
    ck_assert_int_eq(PARSE("memory", mountpoint, "-o", "nosuch,ttl=5", "-s"), 0);
    ck_assert_int_eq(options.ttl, 5000);
    ck_assert_int_lt(PARSE("-s", "memory", mountpoint, "-o", "ttl=soon"), 0);
}
END_TEST

START_TEST(remount_takes_a_ttl_and_what_mount_tables_show)
{
    ck_assert_int_eq(PARSE("memory", mountpoint, "-o", "rw,relatime,remount,user_id=0,group_id=0,ttl=5s"), 0);
    ck_assert(options.remount);
    ck_assert_int_eq(options.ttl, 5000);
    ck_assert_int_eq(PARSE("memory", mountpoint, "-o", "rw,relatime,user_id=0,group_id=0,remount,ttl=5s"), 0);
    ck_assert(options.remount);
    assert_refused(PARSE("memory", mountpoint, "-o", "remount,noatime"),
                   "remount changes ttl= and nothing else: say remount,ttl=TIME, or unmount and mount anew");
    assert_refused(PARSE("memory", mountpoint, "-o", "user_id=0"), "option user_id= is the kernel's, not yours to set");
}
END_TEST

START_TEST(refusal_is_one_line_whatever_was_said)
{
    assert_refused(PARSE("-o", "tll=5s\nand\033[2J", "memory", mountpoint),
                   "unknown option 'tll=5s?and?[2J': did you mean ttl=TIME? See OPTIONS in leasefs(8)");
    assert_refused(PARSE("no\nstore", mountpoint),
                   "unknown backend 'no?store': use memory, local, local:DIR, redis://HOST, "
                   "redlock://HOST,HOST,HOST, zookeeper://HOST or postgresql://HOST/DATABASE");
}
END_TEST

START_TEST(unknown_option_is_named)
{
    static const char *const words[] = {"tll=5s",      "ttl",          "rox",        "xattr",
                                        "sync=",       "allow_others", "nonempty",   "prefix",
                                        "keepalive=1", "background=",  "password=x", "timeouts=1"};
    for (size_t i = 0; i < G_N_ELEMENTS(words); i++) {
        ck_assert_int_eq(PARSE("-o", words[i], "memory", mountpoint), -EINVAL);
        ck_assert_ptr_nonnull(strstr(error, words[i]));
    }
    assert_refused(PARSE("-o", "rw,tll=5s", "memory", mountpoint),
                   "unknown option 'tll=5s': did you mean ttl=TIME? See OPTIONS in leasefs(8)");
    assert_refused(PARSE("-x", "memory", mountpoint), "unknown option '-x': try leasefs --help");
    assert_refused(PARSE("--fast", "memory", mountpoint), "unknown option '--fast': try leasefs --help");
    assert_refused(PARSE("memory", mountpoint, "-o"), "-o needs a list of options");
    assert_refused(PARSE("-r", "memory", mountpoint), "-r: a mount cannot be read-only, because locks need writing");
}
END_TEST

START_TEST(unknown_backend_is_reported_with_the_known_ones)
{
    static const char *const unknown[] = {"", "/tmp", "nosuch", "nosuch:x"};
    for (size_t i = 0; i < G_N_ELEMENTS(unknown); i++) {
        char *expected = g_strdup_printf("unknown backend '%s': use memory, local, local:DIR, redis://HOST, "
                                         "redlock://HOST,HOST,HOST, zookeeper://HOST or postgresql://HOST/DATABASE",
                                         unknown[i]);
        assert_refused(PARSE(unknown[i], mountpoint), expected);
        g_free(expected);
    }
    assert_refused(PARSE("local:", mountpoint),
                   "backend 'local:' needs a directory: use local:DIR, or local for the default one");
}
END_TEST

START_TEST(redis_is_a_backend_of_its_own)
{
    static const char *const uris[] = {"redis://host/1", "rediss://host", "redis+unix:///run/r", "REDIS://h"};
    for (size_t i = 0; i < G_N_ELEMENTS(uris); i++) {
        ck_assert_int_eq(PARSE(uris[i], mountpoint), 0);
        ck_assert_int_eq(options.kind, OPTIONS_REDIS);
        ck_assert_str_eq(options.backend, uris[i]);
        ck_assert_ptr_null(options.directory);
        ck_assert_ptr_null(options.server.prefix);
        ck_assert_ptr_null(options.server.key);
        ck_assert_ptr_null(options.credentials);
        ck_assert_int_eq(options.server.timeout, 0);
        ck_assert_int_eq(options.server.command_timeout, 0);
        ck_assert_int_eq(options.server.connect_timeout, 0);
        ck_assert(options.server.keepalive);
        ck_assert(!options.server.background);
        ck_assert_int_eq(options.server.grace, 0);
        ck_assert(!options.server.strict);
        ck_assert_uint_eq(options.server.wait, 0);
    }
    assert_fuse_arguments("leasefs -o fsname=REDIS://h -o subtype=leasefs");
    ck_assert_int_eq(PARSE("local:redis://host", mountpoint), 0);
    ck_assert_int_eq(options.kind, OPTIONS_LOCAL);
}
END_TEST

START_TEST(redis_options_are_taken)
{
    ck_assert_int_eq(g_chdir(workdir), 0);
    ck_assert_int_eq(
        PARSE("-o", "prefix=app:,key=lock:{n}:x,credentials=a/../secret,timeout=10m", "-o",
              "command_timeout=10ms,connect_timeout=1.5,nokeepalive,background,grace=1m,grace=strict,wait=2",
              "redis://h", mountpoint),
        0);
    char *credentials = g_build_filename(workdir, "secret", NULL);
    ck_assert_str_eq(options.server.prefix, "app:");
    ck_assert_str_eq(options.server.key, "lock:{n}:x");
    ck_assert_str_eq(options.credentials, credentials);
    ck_assert_int_eq(options.server.timeout, 600000);
    ck_assert_int_eq(options.server.command_timeout, 10);
    ck_assert_int_eq(options.server.connect_timeout, 1500);
    ck_assert_int_eq(options.server.grace, 60000);
    ck_assert(options.server.strict);
    ck_assert_uint_eq(options.server.wait, 2);
    ck_assert(!options.server.keepalive);
    ck_assert(options.server.background);
    g_free(credentials);
    ck_assert_int_eq(g_chdir("/"), 0);
    ck_assert_int_eq(PARSE("-o",
                           "prefix=a,prefix=,key={n},key={{n}},nokeepalive,keepalive,credentials=/a,credentials=/b",
                           "redis://h", mountpoint),
                     0);
    ck_assert_str_eq(options.server.prefix, "");
    ck_assert_str_eq(options.server.key, "{{n}}");
    ck_assert_str_eq(options.credentials, "/b");
    ck_assert(options.server.keepalive);
    assert_refused(PARSE("-o", "wait=101", "redis://h", mountpoint), "wait=101: wait= takes a number from 0 to 100");
}
END_TEST

START_TEST(comma_after_a_backslash_belongs_to_the_text)
{
    ck_assert_int_eq(PARSE("-o", "prefix=a\\,b\\\\,key=x\\,{n},credentials=/c\\,d", "redis://h", mountpoint), 0);
    ck_assert_str_eq(options.server.prefix, "a,b\\");
    ck_assert_str_eq(options.server.key, "x,{n}");
    ck_assert_str_eq(options.credentials, "/c,d");
}
END_TEST

START_TEST(option_of_another_backend_is_refused)
{
    static const char *const redis_words[] = {"prefix=a",   "key={n}",    "credentials=/a",     "timeout=1",
                                              "keepalive",  "background", "command_timeout=1s", "connect_timeout=1s",
                                              "nokeepalive"};
    for (size_t i = 0; i < G_N_ELEMENTS(redis_words); i++) {
        const char *equals = strchr(redis_words[i], '=');
        int length = equals ? (int)(equals + 1 - redis_words[i]) : (int)strlen(redis_words[i]);
        bool of_all_servers =
            strcmp(redis_words[i], "credentials=/a") == 0 || strcmp(redis_words[i], "background") == 0;
        char *expected =
            g_strdup_printf("option %.*s is only for redis://%s", length, redis_words[i],
                            of_all_servers ? ", redlock://, zookeeper:// and postgresql://" : " and redlock://");
        assert_refused(PARSE("-o", redis_words[i], "memory", mountpoint), expected);
        assert_refused(PARSE("local:/x", mountpoint, "-o", redis_words[i]), expected);
        ck_assert_int_eq(PARSE("-o", redis_words[i], "redis://h", mountpoint), 0);
        ck_assert_int_eq(PARSE("-o", redis_words[i], "redlock://h,i,j", mountpoint), 0);
        ck_assert_int_eq(options.kind, OPTIONS_REDLOCK);
        g_free(expected);
    }
    assert_refused(PARSE("-o", "sync=always", "redis://h", mountpoint),
                   "option sync= is only for memory and local stores");
    assert_refused(PARSE("-o", "sync=always", "zookeeper://h", mountpoint),
                   "option sync= is only for memory and local stores");
    assert_refused(PARSE("-o", "prefix=a", "zookeeper://h", mountpoint),
                   "option prefix= is only for redis:// and redlock://");
    assert_refused(PARSE("-o", "wait=1", "memory", mountpoint), "option wait= is only for redis://");
    assert_refused(PARSE("-o", "wait=1", "redlock://h,i,j", mountpoint), "option wait= is only for redis://");
    assert_refused(PARSE("-o", "keep=1m", "memory", mountpoint),
                   "keep= needs a store that outlives the daemon, and memory does not: use local:DIR, or leave it out");
    ck_assert_int_eq(PARSE("-o", "keep=0", "memory", mountpoint), 0);
    assert_refused(PARSE("-o", "grace=strict", "redlock://h,i,j", mountpoint),
                   "grace=strict is how redlock:// always is: leave it out");
    assert_refused(PARSE("-o", "layout=kazoo", "redis://h", mountpoint), "option layout= is only for zookeeper://");
    ck_assert_int_eq(PARSE("-o", "layout=kazoo,credentials=/a,state=/b,background", "zookeeper://h", mountpoint), 0);
    ck_assert(g_str_has_prefix(options.directory, "/b/"));
    ck_assert(g_str_has_suffix(options.directory, "/zookeeper"));
    assert_refused(PARSE("-o", "state=/b", "local", mountpoint), "option state= is only for zookeeper://");
    ck_assert_int_eq(PARSE("-o", "credentials=/a,background,grace=1m,shedlock=t", "postgresql://h/d", mountpoint), 0);
    ck_assert_str_eq(options.shedlock, "t");
    ck_assert_int_eq(options.kind, OPTIONS_POSTGRESQL);
    assert_refused(PARSE("-o", "prefix=a", "postgres://h/d", mountpoint),
                   "option prefix= is only for redis:// and redlock://");
}
END_TEST

START_TEST(wrong_number_of_arguments_shows_the_usage)
{
    assert_refused(PARSE("-f"),
                   "a backend and a mount point are needed: usage is leasefs [-f] [-o OPTIONS] BACKEND MOUNTPOINT");
    assert_refused(PARSE("memory"),
                   "a backend and a mount point are needed: usage is leasefs [-f] [-o OPTIONS] BACKEND MOUNTPOINT");
    assert_refused(PARSE("memory", mountpoint, "more"),
                   "'more' is one argument too many: usage is leasefs [-f] [-o OPTIONS] BACKEND MOUNTPOINT");
}
END_TEST

START_TEST(mount_point_must_be_a_directory)
{
    char *missing = g_build_filename(workdir, "missing", NULL);
    char *expected = g_strdup_printf("mount point '%s' does not exist: run mkdir %s", missing, missing);
    assert_refused(PARSE("memory", missing), expected);
    g_free(expected);
    g_free(missing);
    assert_refused(PARSE("memory", "/dev/null"), "mount point '/dev/null' is not a directory");
    assert_refused(PARSE("memory", "/dev/null/x"), "mount point '/dev/null/x' is not a directory");
}
END_TEST

START_TEST(near_miss_gets_a_suggestion)
{
    static const struct {
        const char *arguments[4], *error;
    } cases[] = {
        {{"-o", "ttl", "memory"},
         "ttl needs a value: ttl= takes a time from 100ms to 3650d, such as 500ms, 30s, 5m or 1h"},
        {{"-o", "prefix", "redis://h"}, "prefix needs a value: write prefix=TEXT"},
        {{"-o", "keepalive=1", "redis://h"}, "keepalive=1: keepalive takes no value: write keepalive"},
        {{"-o", "tll=5s", "memory"}, "unknown option 'tll=5s': did you mean ttl=TIME? See OPTIONS in leasefs(8)"},
        {{"-o", "TTL=5", "memory"}, "unknown option 'TTL=5': did you mean ttl=TIME? See OPTIONS in leasefs(8)"},
        {{"-o", "ttl:5", "memory"}, "unknown option 'ttl:5': did you mean ttl=TIME? See OPTIONS in leasefs(8)"},
        {{"-o", "alow-other", "memory"},
         "unknown option 'alow-other': did you mean allow_other? See OPTIONS in leasefs(8)"},
        {{"-o", "nosuchoption", "memory"}, "unknown option 'nosuchoption': see OPTIONS in leasefs(8)"},
        {{"--ttl=5", "memory"}, "unknown option '--ttl=5': write -o ttl=TIME"},
        {{"memroy"}, "unknown backend 'memroy': did you mean memory?"},
        {{"Local"}, "unknown backend 'Local': did you mean local?"},
        {{"redis"}, "unknown backend 'redis': did you mean redis://HOST?"},
        {{"redis:host"}, "unknown backend 'redis:host': did you mean redis://HOST?"},
        {{"redis:me:secret@host"}, "unknown backend 'redis:...': did you mean redis://HOST?"},
        {{"zokeeper://h"}, "unknown backend 'zokeeper:...': did you mean zookeeper://HOST,HOST,HOST?"},
        {{"redlok://h,i,j"}, "unknown backend 'redlok:...': did you mean redlock://HOST,HOST,HOST?"},
        {{"postgres:me:secret@h/db"}, "unknown backend 'postgres:...': did you mean postgresql://HOST/DATABASE?"},
    };
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        const char *const *a = cases[i].arguments;
        assert_refused(a[2]   ? PARSE(a[0], a[1], a[2], mountpoint)
                       : a[1] ? PARSE(a[0], a[1], mountpoint)
                              : PARSE(a[0], mountpoint),
                       cases[i].error);
    }
}
END_TEST

START_TEST(wrong_order_of_arguments_is_recognised)
{
    g_autofree char *expected =
        g_strdup_printf("'%s' is not a backend: the order is leasefs BACKEND MOUNTPOINT, as in leasefs memory %s",
                        mountpoint, mountpoint);
    assert_refused(PARSE(mountpoint, "memory"), expected);
    assert_refused(PARSE("memory", "redis://h"), "mount point 'redis://h' does not exist: run mkdir redis://h");
}
END_TEST

START_TEST(long_error_is_cut_to_fit)
{
    char small[8];
    char *argv[] = {(char *)"leasefs", (char *)"nothing", mountpoint, NULL};
    ck_assert_int_eq(options_parse(&options, 3, argv, small, sizeof small), -EINVAL);
    ck_assert_str_eq(small, "unknown");
}
END_TEST

START_TEST(duration_is_read)
{
    static const struct {
        const char *text;
        int64_t ms;
    } cases[] = {
        {"100ms", 100},
        {"0.1", 100},
        {".5", 500},
        {".25h", 900000},
        {"30", 30000},
        {"30s", 30000},
        {"1.5s", 1500},
        {"5m", 300000},
        {"1h", 3600000},
        {"2d", 172800000},
        {"0.25h", 900000},
        {"007", 7000},
        {"250.9ms", 250},
        {"1.2345678901", 1234},
        {"3650d", LEASE_TTL_MAX},
        {"315360000", LEASE_TTL_MAX},
    };
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        int64_t ms = 0;
        ck_assert_int_eq(options_duration(cases[i].text, strlen(cases[i].text), &ms), 0);
        ck_assert_int_eq(ms, cases[i].ms);
    }
}
END_TEST

START_TEST(duration_of_a_length_ends_there)
{
    int64_t ms = 0;
    ck_assert_int_eq(options_duration("5m30", 2, &ms), 0);
    ck_assert_int_eq(ms, 300000);
}
END_TEST

START_TEST(malformed_duration_is_refused_and_nothing_is_set)
{
    static const char *const cases[] = {
        "",
        "s",
        "ms",
        "-1",
        "+1",
        "1 s",
        " 1",
        "1s ",
        "1S",
        "1.",
        "1.s",
        ".",
        ".s",
        "..5",
        "1e3",
        "0x10",
        "1sec",
        "1.5.5",
        "0",
        "99ms",
        "0.099",
        "3651d",
        "315360000.001",
        "99999999999999999999999",
        "3650.1d",
        "9223372036854775807d",
        "nan",
        "inf",
        "auto",
        "1\n",
    };
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        int64_t ms = 42;
        ck_assert_int_eq(options_duration(cases[i], strlen(cases[i]), &ms), -EINVAL);
        ck_assert_int_eq(ms, 42);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("options");
    TCase *line = tcase_create("command line");
    TCase *duration = tcase_create("durations");
    tcase_add_checked_fixture(line, set_up, tear_down);
    tcase_add_test(line, plain_mount_has_the_defaults);
    tcase_add_test(line, own_options_are_taken);
    tcase_add_test(line, later_option_wins);
    tcase_add_test(line, options_may_follow_the_positionals_as_mount_fuse3_puts_them);
    tcase_add_test(line, flags_of_mount_8_are_tolerated);
    tcase_add_test(line, fuse_and_kernel_options_are_handed_on);
    tcase_add_test(line, words_for_fstab_and_systemd_are_dropped);
    tcase_add_test(line, debug_stays_in_the_foreground);
    tcase_add_test(line, given_fsname_and_subtype_replace_ours);
    tcase_add_test(line, fsname_escapes_commas_of_the_directory);
    tcase_add_test(line, allow_other_by_root_opens_the_top_directory);
    tcase_add_test(line, local_has_one_store_for_each_mount_point);
    check_add_where(geteuid() == 0, "as root", line, local_store_of_root_is_below_var_lib);
    tcase_add_test(line, local_store_of_a_user_is_in_the_state_home);
    tcase_add_test(line, relative_paths_are_taken_from_the_working_directory);
    tcase_add_test(line, help_and_version_need_nothing_else);
    tcase_add_test(line, wrong_value_is_reported_with_the_allowed_ones);
    tcase_add_test(line, helper_of_mount_8_has_its_flags);
    tcase_add_test(line, sloppy_drops_what_is_unknown_and_nothing_else);
    tcase_add_test(line, remount_takes_a_ttl_and_what_mount_tables_show);
    tcase_add_test(line, refusal_is_one_line_whatever_was_said);
    tcase_add_test(line, unknown_option_is_named);
    tcase_add_test(line, unknown_backend_is_reported_with_the_known_ones);
    tcase_add_test(line, redis_is_a_backend_of_its_own);
    tcase_add_test(line, redis_options_are_taken);
    tcase_add_test(line, comma_after_a_backslash_belongs_to_the_text);
    tcase_add_test(line, option_of_another_backend_is_refused);
    tcase_add_test(line, wrong_number_of_arguments_shows_the_usage);
    tcase_add_test(line, mount_point_must_be_a_directory);
    tcase_add_test(line, near_miss_gets_a_suggestion);
    tcase_add_test(line, wrong_order_of_arguments_is_recognised);
    tcase_add_test(line, long_error_is_cut_to_fit);
    tcase_add_test(duration, duration_is_read);
    tcase_add_test(duration, duration_of_a_length_ends_there);
    tcase_add_test(duration, malformed_duration_is_refused_and_nothing_is_set);
    suite_add_tcase(suite, line);
    suite_add_tcase(suite, duration);
    return check_main(suite);
}
