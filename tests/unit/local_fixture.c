/* local_fixture: see local_fixture.h. */
#include "tests/unit/local_fixture.h"

#include "backend/log.h"
#include "tests/support/scratch.h"

char *local_directory;
struct local_options local_options;
char local_error[512];

struct backend *local_open_at(const char *where)
{
    struct local_options at = local_options;
    struct backend *b = NULL;

    at.directory = where;
    ck_assert_msg(local_new(&at, &b, local_error, sizeof(local_error)) == 0, "%s", local_error);
    return b;
}

static struct backend *open_new(void)
{
    log_set_level(LOG_LEVEL_ERROR);
    local_directory = scratch_new();
    return local_open_at(local_directory);
}

static struct backend *open_new_synced(void)
{
    local_options.sync_always = true;
    return open_new();
}

static void clean(void)
{
    scratch_free(local_directory);
}

static const struct contract plain = {.open = open_new, .clean = clean};
static const struct contract synced = {.open = open_new_synced, .clean = clean};

void local_setup(void)
{
    contract_use(&plain);
    contract_setup();
}

void local_setup_synced(void)
{
    contract_use(&synced);
    contract_setup();
}

void local_crash(void)
{
    char *copy = scratch_copy(local_directory);

    backend_free(contract_backend);
    scratch_free(local_directory);
    local_directory = copy;
    contract_start(local_open_at(local_directory));
}

void local_restart(void)
{
    backend_free(contract_backend);
    contract_start(local_open_at(local_directory));
}

void local_let_time_pass(void)
{
    for (clock_ms since = clock_now(); clock_now() < since + 50; contract_poll()) {
        g_usleep(2000);
    }
}
