/* contract_memory: the contract for the backend without a journal. */
#include "backend/local/local.h"
#include "tests/contract/contract.h"
#include "tests/support/check_main.h"

static struct backend *open_memory(void)
{
    struct local_options options = {.seed = 1};
    struct backend *b = NULL;
    char error[256] = "";

    ck_assert_msg(local_new(&options, &b, error, sizeof(error)) == 0, "%s", error);
    return b;
}

int main(void)
{
    static const struct contract memory = {.name = "memory", .open = open_memory, .term = 500};

    return check_main(contract_suite(&memory));
}
