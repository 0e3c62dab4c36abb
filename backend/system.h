/* system: Linux functions and constants that musl and older versions of glibc lack.
 *
 * Include this instead of <sys/mount.h>, and for statx(2).  ./configure looks for each function.
 */
#pragma once

#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "config.h"

#ifndef HAVE_MOVE_MOUNT
#include <linux/mount.h>
#endif

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#endif

#ifndef STATX_ATTR_MOUNT_ROOT
#define STATX_ATTR_MOUNT_ROOT 0x2000U
#endif

#ifndef STATX_MNT_ID /* musl 1.2.5 has padding there */
#define STATX_MNT_ID 0x1000U
#define stx_mnt_id __pad1[0]
#endif

#ifndef HAVE_TGKILL
static inline int tgkill(pid_t process, pid_t thread, int number)
{
    return (int)syscall(SYS_tgkill, process, thread, number);
}
#endif

#ifndef HAVE_CLOSE_RANGE
static inline int close_range(unsigned first, unsigned last, int flags)
{
    return (int)syscall(SYS_close_range, first, last, (unsigned)flags);
}
#endif

#ifndef HAVE_CLOSEFROM
static inline void closefrom(int first)
{
    close_range((unsigned)first, ~0U, 0);
}
#endif

#ifndef HAVE_MOVE_MOUNT /* glibc has all of these since 2.36 */
static inline int open_tree(int directory, const char *path, unsigned flags)
{
    return (int)syscall(SYS_open_tree, directory, path, flags);
}
static inline int move_mount(int from, const char *from_path, int to, const char *to_path, unsigned flags)
{
    return (int)syscall(SYS_move_mount, from, from_path, to, to_path, flags);
}
static inline int mount_setattr(int directory, const char *path, unsigned flags, struct mount_attr *set, size_t size)
{
    return (int)syscall(SYS_mount_setattr, directory, path, flags, set, size);
}
static inline int fsopen(const char *type, unsigned flags)
{
    return (int)syscall(SYS_fsopen, type, flags);
}
static inline int fsconfig(int fs, unsigned command, const char *key, const void *value, int number)
{
    return (int)syscall(SYS_fsconfig, fs, command, key, value, number);
}
static inline int fsmount(int fs, unsigned flags, unsigned attributes)
{
    return (int)syscall(SYS_fsmount, fs, flags, attributes);
}
#endif
