/* driver: runs a fuzz target on its stored inputs, or on the given files. */
#include <glib.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"

static GPtrArray *files_in(const char *directory)
{
    GPtrArray *files = g_ptr_array_new_with_free_func(g_free);
    GDir *dir = g_dir_open(directory, 0, NULL);
    const char *name;
    while (dir && (name = g_dir_read_name(dir))) {
        g_ptr_array_add(files, g_build_filename(directory, name, NULL));
    }
    if (dir) {
        g_dir_close(dir);
    }
    g_ptr_array_sort(files, (GCompareFunc)g_strcmp0);
    return files;
}

static void run(const char *path)
{
    char *data;
    gsize size;
    FUZZ_MUST(g_file_get_contents(path, &data, &size, NULL));
    LLVMFuzzerTestOneInput((const uint8_t *)data, size);
    g_free(data);
}

int main(int argc, char **argv)
{
    const char *top = g_getenv("top_srcdir"), *name = strrchr(argv[0], '/');
    name = name ? name + 1 : argv[0];
    char *directory = g_build_filename(top ? top : ".", "tests/fuzz/corpus", name, NULL);
    GPtrArray *files = files_in(directory);
    for (int i = 1; i < argc; i++) {
        run(argv[i]);
    }
    for (guint i = 0; i < files->len && argc == 1; i++) {
        printf("# %s\n", (const char *)files->pdata[i]);
        fflush(stdout); /* names an input that ends the program */
        run(files->pdata[i]);
    }
    if (argc == 1) {
        printf("%sok 1 - %s takes the %u inputs that are kept\n1..1\n", files->len ? "" : "not ", name, files->len);
    }
    bool good = argc > 1 || files->len;
    g_ptr_array_unref(files);
    g_free(directory);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
