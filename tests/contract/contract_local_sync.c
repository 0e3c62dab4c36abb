/* contract_local_sync: the contract for the local backend with sync=always, where completions come after the call has
 * returned. */
#define LOCAL_SYNC_ALWAYS true
#define LOCAL_NAME "local sync=always"
#include "tests/contract/contract_local.c"
