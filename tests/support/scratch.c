/* scratch: directories and files for the checks of what is kept on disk. */
#include "tests/support/scratch.h"

#include <check.h>
#include <glib/gstdio.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char *scratch_new(void)
{
    char *directory = g_build_filename(g_get_tmp_dir(), "leasefs-check-XXXXXX", NULL);

    if (!g_mkdtemp(directory)) /* and no assertion: it may be made before the first check */
        ck_abort_msg("cannot make a directory");
    return directory;
}

static void remove_tree(const char *directory)
{
    GDir *dir = g_dir_open(directory, 0, NULL);
    const char *name;

    while (dir && (name = g_dir_read_name(dir))) {
        char *path = g_build_filename(directory, name, NULL);

        if (g_file_test(path, G_FILE_TEST_IS_DIR) && !g_file_test(path, G_FILE_TEST_IS_SYMLINK))
            remove_tree(path);
        else
            g_unlink(path);
        g_free(path);
    }
    if (dir)
        g_dir_close(dir);
    g_rmdir(directory);
}

void scratch_free(char *directory)
{
    remove_tree(directory);
    g_free(directory);
}

GBytes *scratch_read(const char *directory, const char *name)
{
    char *path = g_build_filename(directory, name, NULL);
    char *data;
    gsize length;

    ck_assert(g_file_get_contents(path, &data, &length, NULL));
    g_free(path);
    return g_bytes_new_take(data, length);
}

void scratch_write(const char *directory, const char *name, const void *data, size_t length)
{
    char *path = g_build_filename(directory, name, NULL);
    FILE *file = fopen(path, "w");

    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(length ? fwrite(data, 1, length, file) : 0, length);
    ck_assert_int_eq(fclose(file), 0);
    g_free(path);
}

char *scratch_copy(const char *directory)
{
    char *copy = scratch_new();
    GDir *dir = g_dir_open(directory, 0, NULL);
    const char *name;

    ck_assert_ptr_nonnull(dir);
    while ((name = g_dir_read_name(dir))) {
        GBytes *bytes = scratch_read(directory, name);

        scratch_write(copy, name, g_bytes_get_data(bytes, NULL), g_bytes_get_size(bytes));
        g_bytes_unref(bytes);
    }
    g_dir_close(dir);
    return copy;
}

uint32_t scratch_seed(void)
{
    const char *given = getenv("CHECK_SEED");
    uint32_t seed = given ? (uint32_t)strtoul(given, NULL, 0) : g_random_int();

    printf("# CHECK_SEED=%" PRIu32 "\n", seed);
    fflush(stdout);
    return seed;
}

int scratch_collect(void *arg, uint8_t type, const void *payload, size_t length)
{
    uint8_t *record = g_malloc(length + 1);

    record[0] = type;
    if (length)
        memcpy(record + 1, payload, length);
    g_ptr_array_add(arg, g_bytes_new_take(record, length + 1));
    return 0;
}

GPtrArray *scratch_records(void)
{
    return g_ptr_array_new_with_free_func((GDestroyNotify)g_bytes_unref);
}
