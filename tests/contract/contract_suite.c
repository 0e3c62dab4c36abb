/* contract_suite: the list of all scenarios. */
#include "tests/contract/contract.h"

Suite *contract_suite(const struct contract *subject)
{
    Suite *suite = suite_create(subject->name);

    contract_use(subject);
    suite_add_tcase(suite, contract_acquire_case());
    suite_add_tcase(suite, contract_convert_case(subject));
    if (subject->open_relayed) {
        suite_add_tcase(suite, contract_faults_case(subject));
        if (subject->restart) {
            suite_add_tcase(suite, contract_restarts_case(subject));
        }
    }
    if (subject->brief) {
        return suite;
    }
    suite_add_tcase(suite, contract_wait_case());
    suite_add_tcase(suite, contract_time_case());
    suite_add_tcase(suite, contract_name_case());
    suite_add_tcase(suite, contract_range_case());
    suite_add_tcase(suite, contract_sequence_case());
    suite_add_tcase(suite, contract_guard_case());
    suite_add_tcase(suite, contract_upgrade_case());
    if (subject->open_again) {
        suite_add_tcase(suite, contract_restart_case(subject));
    }
    if (subject->open_other) {
        suite_add_tcase(suite, contract_mounts_case());
        suite_add_tcase(suite, contract_hosts_case(subject));
        suite_add_tcase(suite, contract_guard_mounts_case());
        suite_add_tcase(suite, contract_upgrade_mounts_case());
    }
    if (subject->open_relayed) {
        suite_add_tcase(suite, contract_lost_case(subject));
    }
    return suite;
}
