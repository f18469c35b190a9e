"""Makes the scorecard of faults: injects each fault into the real program and checks what the program promises.

    python experiments/faults.py [ROW ...] [--list] [--json] [--out=FILE.md]

Measures the rows of `fault_probes.py`; the other rows run tests of the suite, including slow ones, in one process.
ROW: names of rows, or their beginnings ("load"). --out writes the table of experiments/notes/faults.md; --json ends
with {"rows": [{"name", "passed", "figure"}]}. --report takes the outcomes of tests from a run of the suite:
`./run_tests.sh --junitxml=FILE`, which leaves slow tests out. The exit status is 1 if a row has not passed. It needs
the extra `dev`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from typing import NamedTuple

import fault_probes

ROOT = pathlib.Path(__file__).parents[1]


class Row(NamedTuple):
    """A fault, and the tests that inject it; without tests, the probe with the row's name does.

    needs: a package for the tests that is not installed everywhere. A test may record the row's figure by its name.
    """

    name: str
    fault: str
    promise: str
    tests: tuple[str, ...] = ()
    needs: str = ""


class Result(NamedTuple):
    """A row's result. passed: None if its package is missing."""

    row: Row
    passed: bool | None
    figure: str


E2E, WIRE, BUCKET = "tests/e2e/", "tests/transport/", "tests/storage/bucket/"
WANDB = "tests/monitoring/wandb_run_test.py::"
ROWS = (
    Row("load-1", "1 worker, 25 steps a second", "answered"),
    Row("load-10", "10 workers, 250 steps a second", "answered"),
    Row("load-100", "100 workers, 400 steps a second", "99 % within 100 ms"),
    Row("load-1000", "1,000 workers join at once, 400 steps a second", "all join; 99 % within 1 s"),
    Row("load-2000", "1,000 workers join 1,000 busy ones", "all join within 15 s; 99 % within 1 s"),
    Row(
        "load-refused",
        "four times as many workers as are allowed",
        "each is rejected with a reason within 1 s; health answers",
    ),
    Row("load-reset", "200 connections are reset at once", "the other workers continue, 99 % within 100 ms"),
    Row(
        "load-reader",
        "a worker that asks and never reads",
        "it is rejected with a reason",
        (WIRE + "server_client_test.py::test_worker_that_asks_on_without_reading_is_refused",),
    ),
    Row(
        "load-slow",
        "an environment that stands still for seconds",
        "the others continue; heartbeats keep its place",
        (
            E2E + "worker_loss_test.py::test_a_worker_that_stands_still_does_not_slow_the_others",
            WIRE + "server_client_test.py::test_heartbeats_keep_a_slow_environment_alive",
        ),
    ),
    Row(
        "process-worker",
        "kill -9 of workers",
        "they come back; no trajectory mixes two lives; the ledger's sum holds",
        (
            E2E + "worker_loss_test.py::test_killed_workers_come_back_and_no_trajectory_mixes_runs",
            E2E + "vtrace_run_test.py::test_every_step_is_learned_from_at_most_once_though_workers_die",
        ),
    ),
    Row(
        "process-learner",
        "kill -9 of the learner",
        "it resumes at its last durable update; workers reconnect",
        (E2E + "learner_loss_test.py",),
    ),
    Row(
        "process-bits",
        "kill -9 of a deterministic run (slow tests: of each agent)",
        "the bits of an undisturbed run",
        (E2E + "deterministic_run_test.py",),
    ),
    Row(
        "process-save",
        "a kill between any two changes of the disk within a save",
        "the old or the new state, nothing else, no rest",
        (
            "tests/storage/checkpoints/durable_test.py",
            "tests/storage/checkpoints/player_files_test.py::test_a_kill_between_any_two_changes_of_the_disk_loses_no_player_and_leaves_none",
            E2E + "stopping_test.py::test_killed_while_writing_its_replay_a_run_keeps_its_newest_parameters",
        ),
    ),
    Row(
        "process-league",
        "kill -9 of a league around snapshots and resets",
        "payoff, players and files of the last checkpoint",
        (E2E + "league_run_test.py::test_killed_around_a_freeze_or_reset_it_goes_on_at_its_last_checkpoint",),
    ),
    Row(
        "process-league-devices",
        "a league whose builder adds and retires players, resumed on 1 to 4 other devices (a slow test)",
        "the players are dealt again; none is without environments",
        (
            "tests/learner/league_play/league_draws_test.py::test_a_league_of_any_players_is_dealt_to_other_devices",
            E2E + "several_players_test.py::test_a_league_of_players_that_come_and_go_resumes_on_other_devices",
        ),
    ),
    Row(
        "process-host",
        "kill -9 of one of two learner hosts",
        "all start again together, with equal parameters",
        (E2E + "hosts_run_test.py::test_two_hosts_learn_the_same_though_one_is_killed",),
    ),
    Row(
        "process-host-stop",
        "SIGSTOP of a learner host",
        "named, killed, started again",
        (E2E + "hosts_run_test.py::test_a_host_that_stands_still_is_noticed_and_all_start_again",),
    ),
    Row(
        "process-host-cpu",
        "two learner hosts whose processors compute different bits",
        "named; equal parameters in all checkpoints, a resume continues; a deterministic run ends with a reason",
        (
            E2E + "hosts_run_test.py::test_hosts_of_other_processors_go_on_from_the_same_checkpoints",
            E2E + "hosts_run_test.py::test_a_deterministic_run_on_other_processors_ends_by_name",
        ),
    ),
    Row(
        "process-host-environments",
        "two learner hosts whose environments differ",
        "both end with an error that names the difference",
        ("tests/learner/together_test.py::test_hosts_with_other_environments_are_named_on_every_host",),
    ),
    Row(
        "process-signals",
        "SIGINT, SIGTERM, SIGHUP; a second Ctrl-C",
        "saved, exit, and the same command continues",
        (
            E2E + "stopping_test.py::test_one_signal_saves_and_leaves_and_the_same_command_goes_on_from_there",
            E2E + "running_learner_test.py::test_a_second_ctrl_c_leaves_at_once",
            "tests/learner/processes/signals_test.py",
        ),
    ),
    Row(
        "process-phases",
        "SIGTERM while networks are built, programs compiled, an evaluation played, the last state saved",
        "the run ends within 30 s, saved as far as it had come",
        (
            E2E + "stopping_test.py::test_a_signal_ends_a_run_that_is_built_or_compiled",
            "tests/learner/stopping_test.py::test_a_stop_ends_a_build_that_does_not_return_soon_after",
            "tests/learner/loop/device_loop_test.py::TestLastEvaluation::test_a_signal_ends_it_without_waiting",
            "tests/learner/stopping_test.py::test_a_signal_while_the_last_state_is_saved_does_not_abandon_it",
        ),
    ),
    Row(
        "process-stop",
        "SIGSTOP of the learner",
        "workers notice, and continue with it",
        (
            WIRE + "server_client_test.py::test_client_notices_a_learner_that_stands_still",
            WIRE + "streams_test.py::test_learner_that_stood_still_itself_blames_no_worker",
        ),
    ),
    Row(
        "process-fork",
        "an environment that forks beside gRPC, within each step, too",
        "it works",
        (
            WIRE + "server_client_test.py::test_environments_may_fork_beside_grpc",
            E2E + "running_learner_test.py::test_an_environment_may_fork_within_a_step",
        ),
    ),
    Row(
        "process-fork-learner",
        "a process that is forked beside a learner, signalled, and outlives it, killed or not",
        "the learner leaves; directory, port and pipes are free; a signal is the child's alone",
        (
            "tests/core/forks_test.py",
            "tests/learner/processes/signals_test.py::test_a_forked_process_has_its_own_signals_and_keeps_nobody_from_leaving",
            "tests/storage/checkpoints/run_lock_test.py::test_what_a_learner_has_forked_does_not_keep_its_lock",
            "tests/storage/checkpoints/run_lock_test.py::test_a_lock_that_a_dead_process_has_left_names_no_living_one",
            WIRE + "server_client_test.py::test_what_a_killed_learner_had_forked_does_not_keep_its_port",
        ),
    ),
    Row(
        "process-fork-policy",
        "a policy of `seedzero.load` or `connect` in a forked process, in eight threads, or dropped without `close`",
        "an error at once; each thread its own answers; the server's rows are free",
        (
            "tests/core/forks_test.py::test_a_library_in_use_before_a_fork_is_refused_after_it_and_no_other",
            "tests/acting/actors/remote_policy_test.py::test_a_forked_process_is_told_at_once",
            "tests/acting/actors/remote_policy_test.py::test_threads_that_share_a_policy_get_the_answers_to_their_own_requests",
            "tests/acting/actors/remote_policy_test.py::test_a_dropped_policy_frees_its_rows",
            "tests/acting/actors/acting_policy_test.py::test_a_forked_process_is_told_at_once_and_a_copy_has_a_memory_of_its_own",
        ),
    ),
    Row(
        "process-crash",
        "SIGSEGV within a step, as of an engine in C++; kill -9 of processes that share compiled levels",
        "the worker comes back; a level is whole or absent",
        (
            E2E + "running_learner_test.py::test_an_environment_that_crashes_its_worker_is_started_again",
            "tests/envs/level_cache_test.py",
        ),
    ),
    Row(
        "process-exit",
        "an environment that calls sys.exit(), os._exit() or abort(), or raises now and then",
        "the failure and its line are named; training ends only without a completed episode between five failures",
        (
            "tests/worker/worker_test.py::test_sys_exit_is_a_failure_with_its_line_and_episodes_make_it_a_later_one",
            "tests/worker/worker_test.py::test_an_environment_that_ends_its_process_is_named_with_its_line",
            "tests/learner/processes/programs_test.py",
            "tests/envs/env_base_test.py",
        ),
    ),
    Row(
        "process-clock",
        "a clock that jumps",
        "nothing but texts for people reads it",
        ("tests/clocks_test.py",),
    ),
    Row(
        "process-second",
        "a second learner in the same directory, or at the same port",
        "rejected with a reason, with the process's id",
        (
            E2E + "running_learner_test.py::test_an_occupied_run_directory_is_refused_with_the_pid",
            "tests/cli/train_test.py::test_a_port_that_is_in_use_is_refused_and_leaves_no_run_directory",
        ),
    ),
    Row(
        "process-hang",
        "environments that hang when made, reset or closed",
        "killed, named, started again",
        ("tests/learner/processes/supervisor_test.py", "tests/learner/endings_test.py"),
    ),
    Row(
        "process-session",
        "an environment's simulator in a session of its own, when its worker ends, is killed, or loses its learner",
        "it ends, too, and nothing else does",
        ("tests/core/descendants_test.py",),
    ),
    Row(
        "cluster-ray-learner",
        "kill -9 of the learner's actor, then of its program",
        "the run continues from its last checkpoint with all workers",
        (E2E + "ray_run_test.py::test_catch_is_learned_though_actors_are_killed_and_a_node_is_lost",),
        needs="ray",
    ),
    Row(
        "cluster-ray-node",
        "the loss of the learner's node",
        "named; the run continues once there is room",
        (E2E + "ray_run_test.py::test_catch_is_learned_though_actors_are_killed_and_a_node_is_lost",),
        needs="ray",
    ),
    Row("network-delay-20", "20 ms each way", "no session ends"),
    Row("network-delay-100", "100 ms each way", "no session ends"),
    Row("network-delay-300", "300 ms each way", "no session ends"),
    Row(
        "network-cut",
        "the connection is cut after a random number of bytes, 200 times",
        "no step lost, doubled or mixed",
    ),
    Row("network-hole-12", "nothing comes through for 12 s", "the worker continues where it was"),
    Row(
        "network-hole-40",
        "nothing comes through for 40 s",
        "the worker begins a new session, mixes nothing, continues",
    ),
    Row(
        "network-jump",
        "a link whose delay jumps from 1 to 200 ms and back",
        "no session ends; the worker is as quick as before",
    ),
    Row(
        "network-slow",
        "a link of 1 Mbit/s, for frames of Breakout: transport.compression off and auto",
        "no session ends; compressed, at least four times the frames arrive, unchanged",
    ),
    Row(
        "network-seeds",
        "cuts, kills, freezes, repeats, swaps: 300 seeds on a virtual clock",
        "no step lost, doubled or mixed; everybody is answered within 30 s of the last fault",
        (WIRE + "protocol_test.py::test_no_step_is_lost_doubled_or_spliced_and_all_workers_are_answered",),
    ),
    Row(
        "network-planted",
        "13 planted defects of the protocol",
        "the row above finds each",
        (WIRE + "protocol_test.py::test_a_planted_defect_is_found",),
    ),
    Row(
        "network-name",
        "hosts on machines whose own name is 127.0.1.1 (network namespaces; skipped where they are not permitted)",
        "they meet, and add up their gradients",
        (E2E + "two_machines_test.py",),
    ),
    Row("input-mutated", "20,000 mutated messages", "each taken or rejected with a reason"),
    Row("input-settings", "40 wrong settings", "each refused by its name, exit status 2"),
    Row(
        "input-resume",
        "a resume with each setting changed",
        "taken, rejected with a reason, or kept with a message",
        ("tests/storage/checkpoints/run_dirs_test.py::test_every_changed_setting_is_taken_refused_or_kept_by_name",),
    ),
    Row(
        "input-messages",
        "messages out of place, of wrong shapes, sizes and values",
        "that worker alone is rejected, with a reason",
        (
            WIRE + "server_client_test.py::test_what_cannot_be_sent_or_taken_ends_that_worker_only",
            WIRE + "server_client_test.py::test_bad_first_message_is_refused",
            WIRE + "server_client_test.py::test_bad_later_message_ends_its_session",
            WIRE + "sessions_test.py",
            E2E + "worker_protocol_test.py",
        ),
    ),
    Row(
        "input-compressed",
        "damaged compressed bytes: each bit flipped, cut, too short, too long, a bomb, a difference to another step",
        "that worker alone is rejected, with an error that names its step; no more is inflated than its spec allows",
        (
            WIRE + "compression_test.py",
            WIRE + "streams_test.py::test_damaged_compressed_bytes_end_that_workers_session_with_an_error",
        ),
    ),
    Row(
        "input-times",
        "a worker that lies about the time of its steps: NaN, 0, below 0, a day, infinite",
        "named once; it keeps its groups",
        (
            WIRE + "links_test.py::test_a_worker_that_lies_about_its_steps_is_named_and_not_believed",
            "tests/learner/learner_parts_test.py::test_a_worker_that_reports_impossible_times_is_named_once_and_keeps_its_groups",
        ),
    ),
    Row(
        "input-environment",
        "environments that show NaN, wrong shapes, dtypes, flags or spaces, raise, or leave",
        "named with environment and step",
        (
            "tests/envs/gym_env_test.py",
            "tests/envs/check_test.py",
            E2E + "running_learner_test.py::test_an_environment_that_raises_once_is_started_again",
            E2E + "stopping_test.py::test_an_environment_that_always_fails_ends_training_with_its_reason",
        ),
    ),
    Row(
        "storage-full",
        "a full disk",
        "training continues and reports it; the next save counts",
        (
            E2E + "stopping_test.py::test_a_full_disk_does_not_end_training",
            E2E + "league_run_test.py::test_a_full_disk_is_named_once_a_snapshot_and_a_resume_goes_on",
            "tests/monitoring/metrics_log_test.py::test_full_disk_is_reported_once_and_tried_again",
        ),
    ),
    Row(
        "storage-descriptors",
        "no file can be opened while a checkpoint is saved; a disk that does not answer",
        "training continues and reports it, the next save counts; ending has a limit",
        (
            "tests/storage/checkpoints/trees_test.py::test_a_save_fails_at_once_while_no_file_can_be_opened",
            "tests/storage/checkpoints/checkpointers_test.py"
            "::test_without_free_descriptors_a_save_is_reported_and_the_next_one_counts",
            "tests/storage/checkpoints/checkpointers_test.py::test_an_interrupted_run_leaves_a_disk_that_does_not_answer",
            "tests/storage/checkpoints/checkpointers_test.py"
            "::test_waiting_ends_if_the_disk_does_not_answer_and_sooner_after_an_interrupt",
            "tests/storage/checkpoints/checkpointers_test.py"
            "::test_an_upload_has_limits_of_its_own_and_an_error_reaches_who_waits",
            "tests/monitoring/usage_test.py::test_without_a_free_descriptor_no_process_is_known",
        ),
    ),
    Row(
        "storage-full-host",
        "a full disk of one of two learner hosts",
        "the status names the host; the next checkpoint that all can write counts; Ctrl-C saves",
        (E2E + "hosts_run_test.py::test_a_host_with_a_full_disk_stops_no_saving_for_longer",),
    ),
    Row(
        "storage-read-only",
        "a read-only run directory, a file in its place, a link",
        "rejected with a reason",
        (
            "tests/storage/checkpoints/run_dirs_test.py::test_read_only_directory_is_refused",
            "tests/storage/checkpoints/run_dirs_test.py::test_read_saved_says_what_is_no_run_directory",
            "tests/storage/checkpoints/run_dirs_test.py::test_a_link_in_a_run_directory_is_refused_by_name_and_what_is_behind_it_stays",
        ),
    ),
    Row("storage-damage", "each file of a checkpoint truncated, deleted, flipped", "verification names each"),
    Row(
        "storage-older",
        "a checkpoint with a flipped bit",
        "a resume takes the older one and reports it",
        (E2E + "catch_run_test.py::test_a_flipped_bit_makes_a_resume_take_the_older_checkpoint_and_say_so",),
    ),
    Row(
        "storage-versions",
        "run directories of an earlier or later format, and with settings that this version lacks",
        "another format is rejected with the version that reads it; readers ignore such a setting, a resume names it",
        (
            "tests/storage/checkpoints/manifest_test.py",
            "tests/storage/checkpoints/manifest_test.py::test_another_format_is_refused_with_the_version_that_reads_it",
        ),
    ),
    Row(
        "storage-bucket",
        "a bucket that is away, or takes long for each answer; a machine that is lost",
        "an outage stops nothing; the run continues elsewhere",
        (E2E + "bucket_run_test.py", "tests/storage/bucket"),
    ),
    Row(
        "storage-bucket-requests",
        "any request of a run in a bucket answered with 408, 412, 429 or 503, cut within its body, or not answered",
        "nothing is lost or half; the request is named, and tried again",
        (
            BUCKET + "bucket_test.py::test_what_fails_for_a_moment_is_repeated",
            BUCKET + "bucket_test.py::test_a_condition_that_nobody_set_fails",
            BUCKET + "bucket_test.py::test_a_bucket_that_never_answers_is_given_up",
            BUCKET + "lease_test.py::test_a_write_that_came_twice_is_known_as_ones_own",
            BUCKET + "mirrors_test.py::test_a_request_that_fails_for_good_loses_nothing_and_leaves_nothing_half",
        ),
    ),
    Row(
        "storage-export",
        "a kill between any two changes of the disk within an export",
        "the old or the new one, no file left after the next",
        (
            "tests/acting/exports/exporting_test.py::test_an_export_killed_at_any_change_of_the_disk_leaves_the_old_or_the_new_one",
            "tests/acting/exports/exporting_test.py::test_an_export_takes_the_place_of_an_earlier_one_whole_or_not_at_all",
        ),
    ),
    Row(
        "storage-neighbour",
        "your own files beside an export whose names look like temporary ones; a link instead of its mark",
        "they stay",
        (
            "tests/acting/exports/exporting_test.py::test_an_export_leaves_its_neighbours_alone",
            "tests/acting/exports/exporting_test.py::test_an_export_leaves_what_another_one_still_writes",
            "tests/storage/checkpoints/durable_test.py::test_among_others_files_a_mark_tells_a_leftover",
            "tests/storage/checkpoints/durable_test.py::test_a_mark_does_not_follow_a_link",
        ),
    ),
    Row(
        "storage-two-records",
        "two recordings into one directory; two videos, files or exports of one name",
        "the second recording is rejected with a reason; each file is whole",
        (
            "tests/acting/tables/recording_test.py::test_two_processes_do_not_record_into_one_directory",
            "tests/acting/tables/videos_test.py::test_of_two_videos_of_one_name_each_is_whole",
            "tests/storage/checkpoints/durable_test.py::test_two_writers_of_one_file_write_it_whole_beside_files_of_others",
            "tests/storage/checkpoints/run_lock_test.py::test_a_lock_whose_file_was_deleted_meanwhile_is_none",
        ),
    ),
    Row(
        "storage-wandb",
        "Weights & Biases is away, breaks off, is slow, or fails at the end",
        "training continues and reports it; metrics.jsonl has all rows",
        (
            WANDB + "test_without_a_network_the_rows_are_kept_on_the_disk",
            WANDB + "test_a_failure_ends_no_training_and_is_told_once",
            WANDB + "test_a_slow_network_delays_neither_rows_nor_the_end",
        ),
    ),
    Row(
        "storage-search",
        "a search's journal on a full disk, with half a line or zeros at its end, cut between two lines of a trial",
        "the search continues or resumes; no trial is lost, or trained with settings that were not drawn",
        (
            "tests/api/search_journal_test.py",
            "tests/api/trials_test.py::test_a_disk_full_for_a_moment_costs_no_trial",
            "tests/api/trials_test.py::test_a_trial_without_its_settings_is_drawn_anew",
            "tests/api/trials_test.py::test_a_directory_of_a_lost_draw_is_no_other_trials",
        ),
    ),
    Row(
        "storage-followed",
        "a followed run is deleted, replaced, damaged or goes back, or its learner trains another one",
        "the server continues with what it has; console and Describe say what is wrong, with the version served",
        (
            "tests/interfaces/serving/followers_test.py::test_a_run_that_is_gone_replaced_or_damaged_is_reported_with_the_version_served",
            "tests/interfaces/serving/learner_agents_test.py",
            WIRE
            + "policy_servers_test.py::test_a_server_s_trouble_is_in_its_description_and_one_without_players_is_named",
        ),
    ),
    Row(
        "learning-stall",
        "no worker, too few environments, a budget that ends too early",
        "the reason on the console and in the status",
        (
            E2E + "stopping_test.py::test_a_budget_that_is_over_before_anybody_joins_is_a_failure",
            E2E + "vtrace_run_test.py::test_fewer_environments_than_a_batch_has_unrolls_are_no_reason_to_wait",
            "tests/learner/loop/facts_test.py",
        ),
    ),
    Row(
        "learning-nan",
        "losses and gradients that are not numbers",
        "the update is refused and counted; the run ends with a reason after too many",
        ("tests/agents/learning_test.py",),
    ),
    Row(
        "learning-reward",
        "a single reward of 1e30, and of -3e38, for each agent",
        "learned or refused; learning continues",
        (
            "tests/agents/conformance_test.py::test_a_single_reward_of_any_size_is_learned_or_refused_and_learning_goes_on",
        ),
    ),
    Row(
        "security-token",
        "no token, a wrong one; a token in files, process lists and core files",
        "refused before anything is read; it is only in its file",
        (
            E2E + "fleet_test.py::test_workers_that_are_refused_say_why_and_end",
            E2E + "fleet_test.py::test_the_token_is_in_its_file_and_nowhere_else",
            WIRE + "servers_test.py::test_nothing_is_read_of_a_request_that_needs_no_answer_of_its_own",
            WIRE + "servers_test.py::test_a_compressed_message_is_refused_before_it_is_inflated",
            WIRE + "security_test.py",
        ),
    ),
    Row(
        "security-hosts",
        "strangers of this machine at the meeting of its hosts: 40 without a word, one with another host's hello",
        "refused before anything is read; the hosts meet",
        (
            "tests/learner/cluster/link_test.py::test_idle_strangers_take_no_hosts_place",
            "tests/learner/cluster/link_test.py::test_a_stranger_is_refused_before_anything_is_read",
            "tests/learner/together_test.py::test_hosts_of_one_process_have_its_token_and_their_workers_have_not",
            "tests/api/local_hosts_test.py::test_hosts_share_a_token_of_this_start_that_no_command_line_shows",
        ),
    ),
    Row(
        "security-tls",
        "workers with and without TLS at the other kind of learner",
        "they say why, and end",
        (E2E + "fleet_test.py::test_a_worker_with_tls_at_a_learner_without_says_why_and_ends",),
    ),
    Row(
        "security-page",
        "hostile readers of a run's page; names with markup",
        "named answers; training continues",
        (
            E2E + "watched_run_test.py::test_hostile_readers_get_named_answers_and_training_goes_on",
            E2E + "watched_run_test.py::test_a_hostile_worker_s_name_stays_a_text",
        ),
    ),
    Row(
        "security-lock",
        "another user who would hold or read a run's lock; a pipe, a link or a directory in its place",
        "the lock is its user's alone; others learn only that nothing is known",
        (
            "tests/storage/checkpoints/run_lock_test.py::test_a_lock_is_its_user_s_alone_and_an_earlier_one_becomes_so",
            "tests/storage/checkpoints/run_lock_test.py::test_whoever_may_not_read_a_lock_does_not_know",
            "tests/storage/checkpoints/run_lock_test.py::test_what_is_no_file_is_no_lock",
            "tests/monitoring/status_test.py::test_whoever_may_not_read_the_lock_is_told_that_nothing_is_known",
        ),
    ),
    Row(
        "security-pipes",
        "a pipe, a socket or an endless device instead of any file of someone else's run; files without end",
        "nobody waits: it is named or left out",
        ("tests/core/plain_files_test.py",),
    ),
    Row(
        "security-page-cookie",
        "another program's cookie on the page's host: JSON, a space, an umlaut",
        "the owner's own cookie counts; a wrong one does not",
        ("tests/interfaces/page/guard_test.py::test_another_programs_cookie_hides_nothing",),
    ),
    Row(
        "security-http",
        "a web page asks a policy server without a token, by DNS rebinding, too; chunks, gzip, sizes that are none",
        "refused before anything is read; chunks are read up to the limit",
        (
            "tests/interfaces/serving/policy_serving_test.py::test_without_a_token_no_web_page_is_answered",
            "tests/interfaces/serving/policy_serving_test.py::test_strangers_and_large_requests_are_refused_before_they_are_read",
            "tests/interfaces/serving/policy_serving_test.py::test_content_in_chunks_is_read_up_to_the_limit",
        ),
    ),
    Row(
        "security-page-league",
        "a league of four times as many frozen players",
        "four times the work",
        (
            "tests/interfaces/page/league_view_test.py::test_four_times_the_players_take_four_times_the_work",
            "tests/league/elo_test.py::test_many_players_who_met_few_others_need_no_matrix_of_all_pairs",
        ),
    ),
    Row(
        "security-page-idle",
        "512 idle connections to the page; readers that take nothing of an answer",
        "the owner is answered; the slowest are dropped, within 64 MiB of memory",
        (
            "tests/interfaces/page/serve_test.py::test_idle_connections_shut_nobody_out",
            "tests/interfaces/page/serve_test.py",
        ),
    ),
    Row(
        "security-code",
        "run directories that name code",
        "nothing runs without consent",
        ("tests/storage/checkpoints/consent_test.py", "tests/storage/checkpoints/own_runs_test.py"),
    ),
)


def main() -> int:
    """Runs rows, prints each, and returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*")
    parser.add_argument("--list", action="store_true", help="only name the rows")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--report", type=pathlib.Path, metavar="FILE")
    arguments = parser.parse_args()
    chosen = [row for row in ROWS if not arguments.rows or any(row.name.startswith(name) for name in arguments.rows)]
    if not chosen:
        parser.error(f"no row is called {' or '.join(arguments.rows)}; --list names them")
    if arguments.list:
        print("\n".join(f"{row.name:20} {row.fault}" for row in chosen))
        return 0
    results = []
    for row in chosen:
        if row.needs and importlib.util.find_spec(row.needs) is None:
            results.append(Result(row, None, f"needs the package {row.needs}"))
            _show(results[-1])
        elif not row.tests:
            results.append(_probed(row))
            _show(results[-1])
    done = {result.row for result in results}
    tested = [row for row in chosen if row not in done]
    for result in _tested(tested, arguments.report):
        results.append(result)
        _show(result)
    results.sort(key=lambda result: chosen.index(result.row))
    ran = [result.passed for result in results if result.passed is not None]
    print(f"{sum(ran)} of {len(ran)} rows passed")
    if arguments.out:
        arguments.out.write_text(table(results))
    if arguments.json:
        shown = [dict(name=row.name, passed=passed, figure=figure) for row, passed, figure in results]
        print(json.dumps({"rows": shown}))
    return int(not all(ran))


def table(results: Sequence[Result]) -> str:
    """Returns the table of experiments/notes/faults.md."""
    lines = ["| row | fault | promise | figure | passed |", "|---|---|---|---|---|"]
    for row, passed, figure in results:
        lines.append(f"| {row.name} | {row.fault} | {row.promise} | {figure} | {_OUTCOMES[passed][1]} |")
    return "\n".join(lines) + "\n"


_OUTCOMES = {True: ("passed", "yes"), False: ("FAILED", "**no**"), None: ("not run", "not run")}
"""Words for the screen and for the table."""


def _show(result: Result) -> None:
    print(f"{_OUTCOMES[result.passed][0]:7} {result.row.name:20} {result.figure}", flush=True)


def _probed(row: Row) -> Result:
    probe = fault_probes.PROBES[row.name]
    try:
        return Result(row, True, probe())
    except Exception as raised:
        error = raised
        while isinstance(error, ExceptionGroup):  # of the tasks of a probe
            error = error.exceptions[0]
        return Result(row, False, f"{type(error).__name__}: {error}".removeprefix("Broken: "))


def _tested(rows: Sequence[Row], report: pathlib.Path | None) -> list[Result]:
    """Runs the tests of all rows in one process, each once, or reads the report of an earlier run."""
    if not rows:
        return []
    wanted = sorted({test for row in rows for test in row.tests}, key=_place)
    with tempfile.TemporaryDirectory() as directory:
        if report is None:
            report = pathlib.Path(directory) / "report.xml"
            began = time.monotonic()
            # The last -m counts, and pyproject.toml excludes slow tests.
            command = [sys.executable, "-m", "pytest", "-q", "-n0", "-m", "not tpu", f"--junitxml={report}", *wanted]
            subprocess.run(command, cwd=ROOT, check=False, stdout=sys.stderr)
            print(f"the tests took {time.monotonic() - began:.0f} s", file=sys.stderr)
        cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    return [_result(row, [case for case in cases if _is_of(case, row.tests)]) for row in rows]


def _place(test: str) -> tuple[str, int]:
    """Sorts tests by file and their order in it; the last test may end everybody's learner."""
    file, _, name = test.partition("::")
    name = name.rpartition("::")[2]
    return file, (ROOT / file).read_text(encoding="utf-8").index(f"def {name}(") if name else 0


def _is_of(case: ElementTree.Element, tests: Sequence[str]) -> bool:
    """Returns whether a test case is one of FILE, FILE::NAME, FILE::CLASS::NAME or DIRECTORY."""
    name = case.get("name", "").partition("[")[0]
    for test in tests:
        file, _, wanted = test.partition("::")
        module = file.removesuffix(".py").replace("/", ".")
        if f"{case.get('classname', '')}.".startswith(f"{module}.") and wanted.rpartition("::")[2] in ("", name):
            return True
    return False


def _result(row: Row, cases: Sequence[ElementTree.Element]) -> Result:
    failed = [case.get("name") for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skipped = sum(case.find("skipped") is not None for case in cases)
    seconds = sum(float(case.get("time", "0")) for case in cases)
    num_run = len(cases) - skipped
    figure = f"{num_run} test{'s' * (num_run != 1)}, {seconds:.0f} s" + (f", {skipped} skipped" if skipped else "")
    for case in cases:
        figure = next(
            (found.get("value", "") for found in case.iter("property") if found.get("name") == row.name), figure
        )
    if failed:
        figure = f"failed: {', '.join(map(str, failed))}"
    return Result(row, num_run > 0 and not failed, figure)


if __name__ == "__main__":
    sys.exit(main())
