"""Every table and figure in the order of the paper, followed by our own."""

from collections.abc import Sequence

from emi import program
from emi.errors import UserError, did_you_mean
from emi.reproduction import (
    ablation,
    atari_curves,
    benchmark,
    box_image,
    coefficient_search,
    crossing,
    door_key,
    embedding_paths,
    emi_d_coefficient,
    emi_d_comparison,
    error_model,
    locomotion_curves,
    loss_convergence,
    noisy_tv,
    open_choices,
    paper_settings,
    performance_profile,
    planning,
    planning_choices,
    recipe,
    recipe_coefficients,
    report_page,
    robust,
    rounding,
    sb3_replay,
    sb3_success,
    statistical_tests,
    table_1,
)
from emi.reproduction.experiment import Experiment

EXPERIMENTS: tuple[Experiment, ...] = (
    table_1.EXPERIMENT,
    embedding_paths.EXPERIMENT,
    locomotion_curves.EXPERIMENT,
    ablation.EXPERIMENT,
    atari_curves.EXPERIMENT,
    box_image.EXPERIMENT,
    emi_d_comparison.EXPERIMENT,
    emi_d_coefficient.EXPERIMENT,
    loss_convergence.EXPERIMENT,
    error_model.EXPERIMENT,
    statistical_tests.EXPERIMENT,
    performance_profile.EXPERIMENT,
    coefficient_search.EXPERIMENT,
    open_choices.EXPERIMENT,
    paper_settings.EXPERIMENT,
    paper_settings.PATHS_EXPERIMENT,
    paper_settings.BASELINES,
    robust.EXPERIMENT,
    robust.PARTS_EXPERIMENT,
    robust.DENSE_EXPERIMENT,
    robust.DEVELOPMENT_EXPERIMENT,
    rounding.EXPERIMENT,
    sb3_success.EXPERIMENT,
    sb3_replay.SAC_EXPERIMENT,
    sb3_replay.SAC_DECAY_EXPERIMENT,
    sb3_replay.DQN_EXPERIMENT,
    recipe.EXPERIMENT,
    recipe_coefficients.EXPERIMENT,
    door_key.EXPERIMENT,
    benchmark.EXPERIMENT,
    benchmark.SEARCH_EXPERIMENT,
    crossing.EXPERIMENT,
    noisy_tv.EXPERIMENT,
    planning.BOX_EXPERIMENT,
    planning.WALL_EXPERIMENT,
    planning.MAZE_EXPERIMENT,
    planning_choices.EXPERIMENT,
    report_page.EXPERIMENT,
)


def named(names: Sequence[str]) -> tuple[Experiment, ...]:
    """The experiments with these names, or all if none is given; UserError for an unknown name."""
    known = {experiment.name: experiment for experiment in EXPERIMENTS}
    for name in names:
        if name not in known:
            hint = did_you_mean(name, list(known)) or f": see '{program.command('paper', 'list')}'"
            raise UserError(f"unknown table or figure {name!r}{hint}")
    return tuple(known[name] for name in dict.fromkeys(names)) or EXPERIMENTS
