/* table: see table.h.  Columns are found by the names in the first
 * line, so that a daemon may tell more than this program knows. */
#include "fs/leaserun/table.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS_MAX 32
#define ROWS_STEP 256

static size_t table_split(char *line, char **fields)
{
    size_t count = 0;
    char *field;
    line[strcspn(line, "\n")] = '\0';
    while (count < COLUMNS_MAX && (field = strsep(&line, "\t"))) {
        fields[count++] = field;
    }
    return count;
}

static const char *table_field(char *const *names, size_t columns, char *const *fields, size_t count, const char *name)
{
    for (size_t i = 0; i < columns && i < count; i++) {
        if (strcmp(names[i], name) == 0) {
            return fields[i];
        }
    }
    return "-";
}

static void table_parse(struct leaserun_row *row, char *const *names, size_t columns)
{
    char *fields[COLUMNS_MAX];
    size_t count = table_split(row->line, fields);
    row->name = table_field(names, columns, fields, count, "name");
    row->kind = table_field(names, columns, fields, count, "kind");
    row->mode = table_field(names, columns, fields, count, "mode");
    row->host = table_field(names, columns, fields, count, "host");
    row->command = table_field(names, columns, fields, count, "command");
    row->note = table_field(names, columns, fields, count, "note");
    row->pid = strtol(table_field(names, columns, fields, count, "pid"), NULL, 10);
    row->uid = strtol(table_field(names, columns, fields, count, "uid"), NULL, 10);
    row->age = strtod(table_field(names, columns, fields, count, "age"), NULL);
    const char *remaining = table_field(names, columns, fields, count, "remaining");
    row->remaining = strcmp(remaining, "-") == 0 ? -1 : strtod(remaining, NULL);
    row->waiters = (unsigned)strtoul(table_field(names, columns, fields, count, "waiters"), NULL, 10);
    row->position = (unsigned)strtoul(table_field(names, columns, fields, count, "position"), NULL, 10);
}

static int table_add(struct leaserun_table *table, const char *line, char *const *names, size_t columns)
{
    if (table->count % ROWS_STEP == 0) {
        struct leaserun_row *rows = realloc(table->rows, (table->count + ROWS_STEP) * sizeof *rows);
        if (!rows) {
            return -ENOMEM;
        }
        table->rows = rows;
    }
    struct leaserun_row *row = &table->rows[table->count];
    *row = (struct leaserun_row){.line = strdup(line), .number = table->count};
    if (!row->line) {
        return -ENOMEM;
    }
    table->count++;
    table_parse(row, names, columns);
    return 0;
}

static int table_read_lines(struct leaserun_table *table, FILE *file)
{
    char *header = NULL, *line = NULL, *names[COLUMNS_MAX];
    size_t header_size = 0, line_size = 0;
    int result = getline(&header, &header_size, file) > 0 ? 0 : -EIO;
    size_t columns = result == 0 ? table_split(header, names) : 0;
    while (result == 0 && getline(&line, &line_size, file) > 0) {
        result = table_add(table, line, names, columns);
    }
    result = result == 0 && ferror(file) ? -EIO : result;
    free(header);
    free(line);
    return result;
}

static int table_read(struct leaserun_table *table, const char *root, const char *name)
{
    char path[PATH_MAX + 32];
    *table = (struct leaserun_table){0};
    snprintf(path, sizeof path, "%s/.leasefs/%s", strcmp(root, "/") == 0 ? "" : root, name);
    FILE *file = fopen(path, "re");
    if (!file) {
        return -errno;
    }
    int result = table_read_lines(table, file);
    fclose(file);
    if (result < 0) {
        leaserun_table_free(table);
    }
    return result;
}

int leaserun_table_locks(struct leaserun_table *table, const char *root)
{
    return table_read(table, root, "locks");
}

int leaserun_table_waiters(struct leaserun_table *table, const char *root)
{
    return table_read(table, root, "waiters");
}

void leaserun_table_free(struct leaserun_table *table)
{
    for (size_t i = 0; i < table->count; i++) {
        free(table->rows[i].line);
    }
    free(table->rows);
    *table = (struct leaserun_table){0};
}
