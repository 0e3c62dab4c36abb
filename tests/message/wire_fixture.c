#include "tests/message/wire_fixture.h"

#include <check.h>
#include <fcntl.h>
#include <string.h>

struct wire *w;
pid_t alice, bob, carol;
struct wire_file a, b, c;

void wire_setup_on_kernel(unsigned features, unsigned minor)
{
    w = wire_new_on_kernel(features, minor);
    alice = wire_child(w);
    bob = wire_child(w);
    carol = wire_child(w);
    w->pid = alice;
}

void wire_setup_with(unsigned features)
{
    wire_setup_on_kernel(features, FUSE_KERNEL_MINOR_VERSION);
}

void wire_setup(void)
{
    wire_setup_with(WIRE_LOCAL_FEATURES);
}

void wire_setup_files(void)
{
    wire_setup();
    a = wire_created(w, "L", O_RDONLY);
    w->pid = bob;
    b = wire_created(w, "L", O_RDONLY);
    w->pid = carol;
    c = wire_created(w, "L", O_RDONLY);
}

void wire_teardown(void)
{
    wire_free(w);
}

const struct backend_ticket *holder(const char *name)
{
    return fake_backend_holder(w->fake, name);
}

bool held_as(const char *name, enum backend_kind kind)
{
    return holder(name) && holder(name)->kind == kind;
}

uint64_t lease_of(pid_t pid, const char *name)
{
    pid_t before = w->pid;
    w->pid = pid;
    struct wire_file file = wire_created(w, name, O_WRONLY);
    ck_assert_int_eq(wire_close(w, file), 0);
    ck_assert_int_eq(holder(name)->kind, BACKEND_LEASE);
    w->pid = before;
    return file.node;
}

struct fuse_attr attributes(uint64_t node)
{
    uint64_t requested = wire_getattr(w, node);
    ck_assert_int_eq(wire_result(w, requested), 0);
    return ((const struct fuse_attr_out *)wire_data(w, requested, NULL))->attr;
}

void check_content(struct wire_file file, const char *expected)
{
    uint64_t read = wire_read(w, file, 0, 1 << 17);
    ck_assert_int_eq(wire_result(w, read), 0);
    size_t size;
    const char *data = wire_data(w, read, &size);
    ck_assert_uint_eq(size, strlen(expected));
    ck_assert(size == 0 || memcmp(data, expected, size) == 0); /* empty content has no address */
}
