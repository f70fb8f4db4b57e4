//! The named faults as tests: each scenario passes with all defences standing.

use tercio_sim::faults::{by_number, guarded};

macro_rules! scenarios {
    ($($test:ident $number:literal),* $(,)?) => {
        $(#[test]
        fn $test() {
            let fault = by_number($number).expect("it is listed");
            if let Err(violation) = guarded(fault.run) {
                panic!("{} {}: {violation}", fault.number, fault.name);
            }
        })*
    };
}

scenarios! {
    f01_equivocating_primary "f01",
    f03_state_forgotten_after_restart "f03",
    f04_crash_between_signing_and_persisting "f04",
    f05_a_restarted_replica_repeats_its_vote "f05",
    f06_view_change_drops_a_prepared_request "f06",
    f08_new_view_without_a_quorum "f08",
    f14_gaps_after_a_view_change "f14",
    f16_client_mac_attack "f16",
    f18_censoring_primary "f18",
    f21_a_view_named_by_one_replica "f21",
    f22_source_lowers_its_offer "f22",
    f23_pieces_that_belong_elsewhere "f23",
    f24_source_sends_junk_or_stalls "f24",
    f25_forged_blocks "f25",
    f26_corrupt_checkpoint_message "f26",
    f26_keys_of_a_corrupt_state "f26_keys",
    f27_laggards_when_checkpoints_stop "f27",
    f28_state_transfer_races_with_consensus "f28",
    f29_paused_replica_returns "f29",
    f30_numbers_beyond_the_watermarks "f30",
    f31_request_flooding_by_one_client "f31",
    f32_unsigned_malformed_or_absurd_request "f32",
    f32_a_client_on_forged_approvals "f32_approvals",
    f33_votes_before_the_proposal "f33",
    f34_one_decision_twice_around_a_sync "f34",
    f35_torn_log_tail "f35",
    f35_corrupt_middle_of_a_log "f35_middle",
    f36_failed_fsync_or_full_disk "f36",
    f41_lost_log "f41",
    f42_forgotten_proposal "f42",
    f43_long_batches_without_checkpoints "f43",
    f44_views_that_a_laggard_cannot_follow "f44",
    f45_a_record_before_what_it_stands_on "f45",
    f46_a_certificate_of_what_nobody_has "f46",
    f47_blocks_beyond_the_buffer "f47",
    f48_absurd_numbers_in_an_offer "f48",
    f51_a_log_that_went_back "f51",
    f52_execution_halts "f52",
    f65_numbers_far_ahead "f65",
    f63_clocks_that_are_wrong "f63",
    f64_a_write_ahead_log_that_was_cut "f64",
    f56_a_primary_dies_under_full_load "f56",
    f59_false_signatures_and_old_forwards "f59",
    f60_large_requests "f60",
    f61_links_across_the_world "f61",
    f62_a_lone_view_changer "f62",
}

/// With the feature `zoo`: each scenario ends in a violation when its defence is taken away.
#[cfg(feature = "zoo")]
#[test]
fn every_missing_defence_is_caught() {
    for fault in tercio_sim::faults::ALL {
        let outcome = tercio_types::zoo::without(fault.defence, || guarded(fault.run));
        assert!(outcome.is_err(), "{} {} was not noticed", fault.number, fault.name);
    }
}
