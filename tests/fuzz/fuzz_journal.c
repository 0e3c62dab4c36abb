/* fuzz_journal: the input is a journal.
 *
 * Its first byte selects: records with right checksums, such with changed bytes, or the file as it is.  A store that
 * opens it twice has the same locks both times, and cuts nothing off the second time.
 */
#include <glib.h>
#include <glib/gstdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/journal/journal.h"
#include "backend/local/local.h"
#include "backend/log.h"
#include "tests/fuzz/fuzz.h"

#define CHANGES_MAX 8

static char *directory, *path;

static void remove_directory(void)
{
    static const char *const names[] = {"journal", "lock", "journal.new"};
    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        char *file = g_build_filename(directory, names[i], NULL);
        g_unlink(file);
        g_free(file);
    }
    g_rmdir(directory);
}

static void prepare(void)
{
    if (!directory) {
        const char *memory = g_file_test("/dev/shm", G_FILE_TEST_IS_DIR) ? "/dev/shm" : g_get_tmp_dir();
        char *template = g_build_filename(memory, "leasefs-fuzz.XXXXXX", NULL);
        directory = g_mkdtemp(template);
        FUZZ_MUST(directory);
        path = g_build_filename(directory, "journal", NULL);
        log_set_level(LOG_LEVEL_ERROR);
        atexit(remove_directory);
    }
    g_unlink(path);
}

static int ignore(void *arg, uint8_t type, const void *payload, size_t length)
{
    (void)arg, (void)type, (void)payload, (void)length;
    return 0;
}

/* As many records as there are: a type, a length, and so many bytes. */
static void write_records(struct fuzz_bytes *bytes)
{
    struct journal *journal;
    uint64_t cut;
    char error[256];
    FUZZ_MUST(journal_open(directory, ignore, NULL, &journal, &cut, error, sizeof error) == 0);
    while (bytes->left > 2) {
        uint8_t type = (uint8_t)(1 + fuzz_below(bytes, 12));
        size_t length = fuzz_byte(bytes);
        length = MIN(length, bytes->left);
        FUZZ_MUST(journal_append(journal, type, bytes->data, length) == 0);
        bytes->data += length;
        bytes->left -= length;
    }
    FUZZ_MUST(journal_commit(journal) == 0);
    journal_close(journal);
}

static void change_file(struct fuzz_bytes *bytes, uint32_t changes)
{
    char *text;
    gsize length;
    FUZZ_MUST(g_file_get_contents(path, &text, &length, NULL));
    for (uint32_t i = 0; i < changes && length > 0; i++) {
        uint32_t at = fuzz_below(bytes, 1 << 16) % (uint32_t)length;
        if (fuzz_below(bytes, 8) == 0) {
            length = at;
        } else {
            text[at] = (char)fuzz_byte(bytes);
        }
    }
    FUZZ_MUST(g_file_set_contents(path, text, (gssize)length, NULL));
    g_free(text);
}

/* Writes the listing of a store as text. */
static void on_listed(void *arg, enum backend_result result, const struct backend_entry *entries, size_t count)
{
    GString *text = arg;
    g_string_append_printf(text, "%d:", result);
    for (size_t i = 0; i < count; i++) {
        FUZZ_MUST(*entries[i].name && !strchr(entries[i].name, '/'));
        g_string_append_printf(text, " %s", entries[i].name);
    }
}

/* NULL: it refuses. */
static char *read_store(void)
{
    static const char boot[] = "01234567-89ab-cdef-0123-456789abcdef";
    struct local_options options = {.directory = directory, .seed = 1, .boot_id = boot};
    struct backend *backend;
    char error[512] = "";
    if (local_new(&options, &backend, error, sizeof error) < 0) {
        FUZZ_MUST(*error && !strchr(error, '\n'));
        return NULL;
    }
    GString *text = g_string_new(NULL);
    backend_list(backend, "", "", 1000, on_listed, text);
    backend_free(backend);
    return g_string_free(text, FALSE);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_bytes bytes = {data, size};
    uint32_t how = fuzz_byte(&bytes);
    prepare();
    if (how % 4 == 3) {
        FUZZ_MUST(g_file_set_contents(path, (const char *)bytes.data, (gssize)bytes.left, NULL));
    } else {
        struct fuzz_bytes changes = {bytes.data, how % 4 == 2 ? MIN(bytes.left, 3 * CHANGES_MAX) : 0};
        bytes.data += changes.left;
        bytes.left -= changes.left;
        write_records(&bytes);
        change_file(&changes, changes.left ? how / 4 % CHANGES_MAX : 0);
    }
    g_chmod(path, 0600);
    char *once = read_store(), *twice = read_store();
    FUZZ_MUST(g_strcmp0(once, twice) == 0);
    g_free(once);
    g_free(twice);
    return 0;
}
