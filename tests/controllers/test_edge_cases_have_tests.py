"""The edge cases of device taints, claims, quota, the API and kubelets, by number, each with the tests that show it.

The cases are those of the specification of controllers, API server and kubelet (its last section, 1 to 103), and the sentences of
the design section of KEP-5055 that say what happens.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

SHOWN: dict[int, str] = {
    # Device taint eviction
    1: "test_evicts_the_pods_that_use_the_device_at_once_and_says_so",
    2: "test_with_another_effect_evicts_nobody test_with_an_effect_of_a_newer_version_evicts_nobody",
    3: "test_without_an_end_keeps_the_pod_for_ever",
    4: "test_with_seconds_counts_from_when_the_taint_was_added",
    5: "test_the_shortest_counts",
    6: "test_of_no_time_evicts_at_once",
    7: "test_of_another_key_value_or_effect_does_not_help",
    8: "test_with_an_empty_key_or_effect_matches_every_one",
    9: "test_must_be_there_for_each_device_of_the_claim",
    10: "test_the_earliest_of_two_claims_counts_and_both_rules_count_the_pod",
    11: "test_the_taint_is_removed",
    12: "test_the_effect_becomes_less",
    13: "test_goes_with_its_slice test_stays_in_force_when_the_slice_goes",
    14: "test_evicts_from_a_device_that_no_slice_lists",
    15: "test_of_an_old_generation_of_the_pool_does_not_count",
    16: "test_counts_again_when_the_newer_generation_goes",
    17: "test_a_pod_without_a_node_stays_until_it_has_one",
    18: "test_a_generated_claim_counts_when_the_pod_records_it",
    19: "test_a_generated_claim_of_an_earlier_pod_does_not_count",
    20: "test_a_pod_that_the_claim_is_not_reserved_for_is_left_alone "
    "test_a_reservation_for_an_earlier_pod_of_the_name_does_not_count",
    21: "test_the_claim_is_deallocated test_the_claim_is_deleted",
    22: "test_the_pod_is_deleted_by_somebody_else",
    23: "test_a_new_pod_of_the_same_name_is_not_touched",
    24: "test_a_delete_that_fails_is_tried_again_and_counted_once",
    25: "test_a_pod_that_is_gone_when_it_is_looked_at_is_done_and_not_counted",
    26: "test_a_change_of_a_pod_that_does_not_matter",
    27: "test_a_few_at_the_same_time test_so_many_a_second_and_all_of_them_in_the_end",
    28: "test_without_a_selector_matches_nothing test_matches_by_driver_pool_and_device_and_all_that_are_given",
    29: "test_it_says_what_would_be_evicted_and_nothing_is",
    30: "test_pods_in_several_namespaces_are_counted",
    31: "test_changed_from_none_it_is_in_progress_at_once_with_a_new_time",
    32: "test_it_ends_when_the_last_pod_was_told_to_leave",
    33: "test_after_a_restart_the_count_starts_again",
    34: "test_it_says_that_nothing_is_evicted",
    35: "test_a_change_of_the_status_alone_causes_nothing",
    36: "test_a_new_rule_of_the_same_name_counts_for_itself",
    37: "test_the_counts_move_while_it_goes_on_and_not_more_often_than_every_ten_seconds",
    38: "test_admin_access_is_no_exemption",
    39: "test_keeps_the_deadline",
    40: "test_a_pod_with_a_device_through_an_extended_resource_leaves_too",
    # Rules over slices
    41: "test_changed_to_another_device_lets_one_go_and_takes_the_other test_step_by_step_is_as_good_as_all_at_once",
    42: "test_a_rule_about_others_leaves_what_is_known_of_a_node",
    43: "test_a_rule_that_goes_or_loses_its_effect_wakes_who_waits test_step_by_step_is_as_good_as_all_at_once",
    44: "test_taints_of_driver_and_administrator_add_up",
    # Generated claims
    45: "test_with_name_owner_annotation_and_labels_and_the_pod_records_it",
    46: "test_is_cut_in_proportion_so_that_part_of_both_is_left",
    47: "test_a_claim_whose_recording_failed_is_used_again test_also_when_the_watch_has_not_shown_it_yet",
    48: "test_when_it_was_deleted",
    49: "test_when_the_recorded_one_belongs_to_another_pod",
    50: "test_for_lack_of_a_template_is_told_once_and_made_when_the_template_comes",
    51: "test_an_entry_that_is_recorded_already_stays_in_the_list",
    52: "test_and_the_template_is_not_changed",
    53: "test_the_last_one_frees_the_devices_and_a_generated_claim_goes",
    54: "test_stays_when_the_api_server_has_it test_goes_when_the_api_server_has_none_or_another_of_that_name",
    55: "test_is_never_removed_when_it_is_not_a_pod",
    56: "test_stays_allocated_when_nobody_ever_did",
    57: "test_is_freed_and_let_go_when_it_is_deleted",
    58: "test_gets_the_allocated_claim_reserved test_but_never_an_allocation",
    59: "test_a_pod_with_only_an_extended_resource_claim",
    60: "test_a_conflict_is_decided_again_from_what_is_true_now",
    61: "test_because_a_feature_is_off",
    # Quota
    62: "test_a_claim_is_charged_for_what_it_asks",
    63: "test_a_claim_is_charged_for_what_it_asks test_a_mode_of_the_future_is_not_counted",
    64: "test_of_alternatives_the_largest_of_each_class_counts",
    65: "test_a_claim_is_charged_for_what_it_asks",
    66: "test_the_claim_that_provides_a_pods_devices_is_not_charged_again",
    67: "test_only_the_oldest_claim_of_a_pod_is_exempt",
    68: "test_a_name_that_no_class_serves_counts_pods_only",
    69: "test_a_claim_beyond_the_quota_is_refused_by_each_name",
    # The API
    70: "test_taints_without_a_time_were_added_now test_unchanged_taints_are_kept",
    71: "test_a_changed_effect_counts_from_now",
    72: "test_a_put_needs_a_version test_older_versions_take_a_put_without_one_and_show_what_they_delete",
    73: "test_a_write_of_the_status_leaves_the_rest test_a_write_of_the_object_leaves_the_status",
    74: "test_an_unknown_effect_of_a_rule_may_stay_but_not_come",
    75: "test_a_slice_within_its_limits_is_accepted_and_beyond_refused",
    76: "test_binding_conditions_come_with_failure_conditions_and_do_not_overlap",
    77: "test_an_allocation_can_be_set_and_cleared_but_not_changed",
    78: "test_reservations_need_an_allocation test_a_claim_that_is_deleted_gets_no_new_reservations",
    79: "test_deallocation_takes_the_device_status_with_it",
    80: "test_a_driver_on_the_allocated_node_writes_its_own_devices_only",
    81: "test_allocations_and_reservations_need_binding_everywhere",
    82: "test_admin_access_needs_a_labelled_namespace",
    83: "test_fields_of_a_disabled_feature_are_dropped test_fields_of_a_feature_that_is_in_use_are_kept",
    84: "test_so_does_the_claim_for_extended_resources",
    # Kubelets
    85: "test_a_retry_replaces_what_the_driver_that_succeeded_had_answered",
    86: "test_an_answer_that_is_no_good_is_told_and_asked_for_again",
    87: "test_two_pods_that_share_a_claim_have_it_prepared_once_and_unprepared_after_the_second",
    88: "test_a_claim_that_is_being_unprepared_is_refused_to_a_new_pod_until_that_is_done",
    89: "test_what_went_while_no_kubelet_ran_is_unprepared_from_the_checkpoint",
    90: "test_a_driver_that_is_back_within_half_a_minute_keeps_its_slices",
    91: "test_a_container_that_names_a_request_gets_its_devices_only_and_one_that_names_none_gets_all",
    92: "test_a_device_that_reports_leave_out_is_unknown_when_its_time_is_up test_a_long_message_is_cut",
    # Lists, watches, writes, leaders
    93: "test_a_compacted_version_is_an_error_event",
    94: "test_initial_events_end_with_a_bookmark test_initial_events_need_a_version_match",
    95: "test_what_leaves_a_selector_is_deleted_and_what_enters_is_added",
    96: "test_an_update_needs_the_version_that_it_changes",
    97: "test_a_delete_with_another_uid_conflicts_and_deletes_nothing",
    98: "test_finalizers_hold_an_object_until_the_last_is_removed",
    99: "test_a_changed_value_of_another_manager_is_a_conflict test_with_force_a_changed_value_changes_hands",
    100: "test_pages_are_of_one_moment test_a_token_older_than_the_history_is_expired_and_offers_to_go_on",
    101: "test_a_write_that_changes_nothing_keeps_the_version_and_sends_no_event",
    102: "test_a_pod_is_bound_once test_gated_deleted_and_other_pods_are_not_bound",
    103: "test_takeover_comes_a_lease_duration_after_the_last_seen_change_and_counts_a_transition",
}

SENTENCES: dict[str, str] = {
    "A controller deletes pods that use tainted devices unless they tolerate the taint": (
        "test_evicts_the_pods_that_use_the_device_at_once_and_says_so test_without_an_end_keeps_the_pod_for_ever"
    ),
    "The kubelet stops its containers; the claim controller lets go of the claim and deallocates it": (
        "test_pods_leave_and_run_again_elsewhere_and_their_old_claims_are_gone "
        "test_the_last_one_frees_the_devices_and_a_generated_claim_goes"
    ),
    "Effect None is ignored by scheduling and causes no eviction": (
        "test_a_taint_that_only_informs_changes_nothing test_with_another_effect_evicts_nobody"
    ),
    "Taints are cumulative: a rule adds to what the driver published, and all that are not tolerated apply": (
        "test_is_one_taint_more_beside_what_the_driver_published test_taints_of_driver_and_administrator_add_up"
    ),
    "One key with two effects is valid, and tolerating one effect does not imply the other": (
        "test_must_be_there_for_each_taint_also_for_two_of_one_key test_tolerating_eviction_is_not_tolerating_scheduling "
        "test_a_taint_for_scheduling_beside_one_for_eviction_needs_no_toleration_to_stay"
    ),
    "All pods that share a claim are treated alike": "test_all_pods_of_a_shared_claim_leave",
    "Device and node taints are applied independently": (
        "test_a_tainted_device_is_not_given_to_a_pod_that_does_not_tolerate_it test_a_pod_that_does_not_belong_on_the_node_fails"
    ),
    "Taints change without a new generation of the pool": "test_a_fault_is_a_taint_that_goes_with_it",
    "16 taints a device, and 64 devices in a slice with taints": (
        "test_a_device_within_its_limits_is_accepted_and_beyond_refused "
        "test_a_slice_within_its_limits_is_accepted_and_beyond_refused"
    ),
    "Unknown effects are treated like None, and stored ones are kept": (
        "test_an_effect_that_is_not_known_is_none test_an_unknown_effect_of_a_rule_may_stay_but_not_come"
    ),
    "TimeAdded is set when it is missing, and renewed when the effect of a rule changes": (
        "test_taints_without_a_time_were_added_now test_a_changed_effect_counts_from_now"
    ),
    "NoSchedule keeps new pods away and lets running ones run": "test_no_schedule_keeps_new_pods_away_and_leaves_the_others",
    "NoExecute must be tolerated to be allocated, too": ("test_a_tainted_device_is_not_given_to_a_pod_that_does_not_tolerate_it"),
    "No new pod reserves a claim with tainted devices; once all are evicted it is deallocated": (
        "test_a_claim_with_a_taint_takes_no_new_pod_until_the_taint_is_gone "
        "test_where_there_is_no_other_place_they_wait_and_come_back_when_the_taint_is_gone"
    ),
    "Key, operator, value and effect of a toleration; empty ones match all": (
        "test_a_toleration_matches_by_key_operator_value_and_effect test_with_an_empty_key_or_effect_matches_every_one"
    ),
    "TolerationSeconds count from when the taint was added, zero and less at once, and only for NoExecute": (
        "test_with_seconds_counts_from_when_the_taint_was_added test_of_no_time_evicts_at_once "
        "test_seconds_of_a_toleration_that_is_not_of_no_execute_are_ignored"
    ),
    "A rule works where no slice lists the device": "test_evicts_from_a_device_that_no_slice_lists",
    "Rules have a gate of their own": (
        "test_switched_off_a_rule_evicts_nobody_and_its_status_is_not_touched "
        "test_without_the_gate_for_rules_only_taints_of_drivers_count"
    ),
    "A changed spec counts up the generation": "test_a_changed_effect_counts_from_now",
    "All criteria of a selector must hold; the empty one matches all, none matches nothing": (
        "test_matches_by_driver_pool_and_device_and_all_that_are_given test_without_a_selector_matches_nothing"
    ),
    "EvictionInProgress is true while pods must leave, and counts pending and evicted ones": (
        "test_the_counts_move_while_it_goes_on_and_not_more_often_than_every_ten_seconds "
        "test_it_ends_when_the_last_pod_was_told_to_leave test_without_faults_but_kills_the_counts_are_true_at_each_step"
    ),
    "With effect None it is said once for each change of the spec what would happen: devices, pods, namespaces": (
        "test_it_says_what_would_be_evicted_and_nothing_is test_it_is_said_once_for_each_change_of_the_spec "
        "test_pods_in_several_namespaces_are_counted"
    ),
    "Eight conditions at most": "test_there_are_eight_at_most_and_a_full_list_is_left_alone test_a_rule_has_at_most_8_conditions",
    "kubectl wait for EvictionInProgress=false": "test_from_none_over_no_execute_to_removed_and_kubectl_waits_for_it",
    "It becomes false 5 to 10 seconds after the rule, against the race with a scheduler": (
        "test_without_pods_it_is_said_only_when_schedulers_must_know_the_rule test_a_pod_that_is_placed_meanwhile_makes_it_true"
    ),
    "Many pods, with the controller's own rights": "test_a_hundred_pods_leave_at_the_pace",
    "Metrics": "test_deletions_and_how_long_they_took_are_measured",
}


@lru_cache(maxsize=1)
def known() -> frozenset[str]:
    return frozenset(name for file in TESTS.rglob("test_*.py") for name in re.findall(r"def (test_\w+)", file.read_text()))


def test_every_case_is_there() -> None:
    assert sorted(SHOWN) == list(range(1, 104))


@pytest.mark.parametrize("number", SHOWN)
def test_the_tests_of_a_case_exist(number: int) -> None:
    assert set(SHOWN[number].split()) <= known()


@pytest.mark.parametrize("sentence", SENTENCES)
def test_the_tests_of_a_sentence_exist(sentence: str) -> None:
    assert set(SENTENCES[sentence].split()) <= known()
