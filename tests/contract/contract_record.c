/* contract_record: the contract for the engine of records on a model store, with several mounts and their faults. */
#include <stdio.h>

#include "backend/record/engine.h"
#include "tests/contract/contract.h"
#include "tests/support/check_main.h"
#include "tests/support/record_model.h"
#include "tests/support/relay.h"

enum { TIMEOUT = 20000, RELAYED_TIMEOUT = 4000 };

static struct model *model;
static struct model_link *relayed;

static struct backend *open_with(uint32_t seed, int64_t timeout, const char *identity, struct model_link **ret_link)
{
    const struct engine_options options = {
        .timeout = timeout, .identity = identity, .text = "1 1.0.0 host", .address = "model:", .seed = seed};
    struct backend *b = NULL;
    model = model ? model : model_new();
    ck_assert_int_eq(engine_new(model_store(model, timeout, ret_link), &options, &b), 0);
    return b;
}

static struct backend *open_one(void)
{
    return open_with(1, TIMEOUT, NULL, NULL);
}

static struct backend *open_other(void)
{
    return open_with(2, TIMEOUT, NULL, NULL);
}

static struct backend *open_again(void)
{
    static uint32_t seed = 3;
    return open_with(seed++, TIMEOUT, "host:/mnt/locks", NULL);
}

static struct backend *open_relayed(void)
{
    return open_with(1, RELAYED_TIMEOUT, NULL, &relayed);
}

static void clean(void)
{
    model_free(model);
    model = NULL;
}

static bool restart(bool empty)
{
    model_restart(model, empty);
    return true;
}

/* --- faults of the relayed mount --- */

void relay_end(void)
{
    relayed = NULL;
}

void relay_be_deaf(void)
{
    link_be_deaf(relayed);
}

void relay_cut(void)
{
    link_lose_next(relayed);
}

void relay_close(void)
{
    link_cut(relayed, true);
}

void relay_stop(void)
{
    link_stop(relayed);
}

void relay_continue(void)
{
    if (relayed) {
        link_continue(relayed);
    }
}

void relay_be_slow(int64_t ms)
{
    link_be_slow(relayed, ms);
}

void relay_reset(void)
{
    if (relayed) {
        link_cut(relayed, false);
    }
}

int main(void)
{
    static const struct contract record = {.name = "record",
                                           .open = open_one,
                                           .clean = clean,
                                           .open_other = open_other,
                                           .open_again = open_again,
                                           .refuses_daemon_before = true,
                                           .open_relayed = open_relayed,
                                           .restart = restart,
                                           .timeout = RELAYED_TIMEOUT};
    return check_main(contract_suite(&record));
}
